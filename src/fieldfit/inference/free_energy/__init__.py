"""Descent on free energies as functions of the beliefs of variables.

For given beliefs ``q`` of variables the best factor beliefs are known (`binary_pair_fitting`,
`iterative_proportional_fitting`), so that Bethe's free energy

    F(q) = sum_i [-<th_i, q_i> + (1 - d_i) <log q_i, q_i>] + sum_a sum_{i in a} <u_ai, q_i>

(`bethe_free_energy`), and mean field's (`mean_field_free_energy`), are functions of ``q`` alone
with ``dF/dq_i = log q_i - target_i``.  They are lowered by natural gradient steps
(`natural_gradient`), Anderson acceleration (`anderson`) and Newton-CG (`bethe_newton`);
`bethe_descent` combines these for `belief_optimization`, and `k_step_descent` stops after a few
steps for contrastive learning. `double_loop` reaches the same stationary points by a sequence of
concave problems (CCCP).
"""
