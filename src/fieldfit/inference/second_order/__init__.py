"""Second derivatives of free energies on the local polytope, and what follows from them.

All of it is about one matrix.  The free energy ``sum w b log b - <th, b>`` has the Hessian
``D = diag(w / b)``; on locally consistent beliefs, with factors eliminated, it is the reduced KKT
matrix (a Schur complement)

    H = N + sum_a P_a' C_a^-1 P_a

of `hessian_blocks`, factorised and solved by `marginal_hessian` with the sparsity pattern of
`kkt_pattern`.  Its inverse says how beliefs respond to potentials (`linear_response`, `stability`),
and how a loss on beliefs depends on potentials and entropy weights (`implicit_gradient`).
"""
