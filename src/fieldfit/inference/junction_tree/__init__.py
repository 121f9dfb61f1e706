r"""Exact inference by variable elimination and message passing on a junction tree (clique tree).

    m_c(y_S) = log sum_{y_C \ y_S} exp(sum_a th_a(y_a) + sum_{children d} m_d(y_{S_d}))

`greedy_elimination` finds orders (weighted min-fill), `elimination_order` their trees and costs,
`clique_tables` streams the tables of clusters, `junction_tree_passes` sends the messages, and
`exact` turns them into marginals, log-partitions and samples.
"""
