"""The log-determinant relaxation: a Gaussian entropy bounds that of discrete variables.

    log Z(th) <= max_mu  <th, mu> + 1/2 log det(cov(mu) + noise) + N/2 log(2 pi e)

over locally consistent beliefs of pairs whose moment matrix is positive semidefinite.
`log_determinant` has the inference, `moment_model` the moments of one connected component as
unknowns, `moment_path` the interior-point method with its certified gap, and `moment_hessian` the
Newton systems of its steps.
"""
