"""Generalised belief propagation: Kikuchi's free energy on region graphs.

    max_b <th, b> + sum_r c_r H(b_r)        over consistent beliefs b_r of regions r

`region_sets` and `cluster_variation` find regions and their counting numbers, `region_graph` lays
them out in flat arrays, `region_tables` and `region_sweeps` are the kernels, `kikuchi_run` the two
loops (double loop and plain messages), `generalized_sum_product` the algorithm, and
`kikuchi_descent` a few rounds from a data point, for contrastive objectives.  `hypertrees` and
`hypertree_entropy` make counting numbers whose problem is concave, `hypertree_bound` the bound that
they prove, `optimized_hypertrees` weights that tighten it.
"""
