"""MAP inference (energy minimisation): best labellings of a model, with certificates.

    maximise over y    s(y) = sum_i th_i(y_i) + sum_a th_a(y_a)

``base`` has `MapSearch` and what a result proves.  Exact: ``exact_map`` (junction tree, integer
program), ``graph_cut`` (submodular pairs), and the searches of ``matching`` and ``planar``.  With
an upper bound: ``max_product`` (messages; ``max_update`` has its kernels), ``linear_program``
(local polytope), ``graph_cut.roof_duality`` (QPBO).  `fieldfit.inference.auto.Map` picks one.
"""
