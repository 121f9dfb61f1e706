"""Solvers of concave free energies with an entropy weight for every configuration.

    max_b  <th, b> - sum_a <w_a, b_a log b_a> - sum_i <w_i, b_i log b_i>     b locally consistent

`convex_problem` states this problem and its Lagrangian dual, `convex_solver` what solvers have in
common.  `convex_dual` is Newton's method on the dual, `convex_primal` a sequence of quadratic
bounds in the primal, `interior_point` a primal-dual path that any concave entropy may take; all
solve the reduced KKT system of `fieldfit.inference.second_order`.  `split_dual` has upper bounds at
any multipliers.
"""
