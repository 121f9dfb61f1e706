r"""Sum-product message passing (belief propagation) under any counting numbers.

    m_ai(y_i)  = c_a log sum_{y_a \ y_i} exp((th_a(y_a) + sum_{j != i} lam_aj(y_j)) / c_a)
    log tau_i  = (th_i + sum_a m_ai) / chat_i,        lam_aj = c_a log tau_j - m_aj

`message_arrays` states the update; `pair_update` and `factor_update` compute it, `message_sweeps`
and `residual_schedule` run it over a `schedule`, `message_beliefs` reads off beliefs and values;
`message_run` and `sum_product` are the algorithm, `optimized_tree_weights` an outer loop.  The
modules ``vjp_*`` are the transposes (vector-Jacobian products, `vjp_arrays` states them), and
`unrolled_sum_product` the differentiable map that they make.
"""
