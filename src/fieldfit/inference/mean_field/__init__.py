"""Naive mean field: the best product distribution, as an inference and as a differentiable map.

    log Z >= max_b E_b[s(y)] + H(b),        b(y) = prod_j b_j(y_j)

`mean_field_sweeps` has the updates, `mean_field` the algorithm, and `unrolled_mean_field` a fixed
number of sweeps with its backward pass.
"""
