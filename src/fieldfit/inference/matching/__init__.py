"""Matchings of bipartite and general graphs: best ones, sums over all, and marginals.

    p(Y) ~ exp(sum_ij W_ij Y_ij)    over matchings Y

Best: ``assignment`` (Hungarian method, b-matching), ``perfect_matching`` (blossom algorithm).
Exact sums: ``matching_partition`` (permanent, hafnian).  Approximate marginals:
``matching_polytope`` (the entropies), ``matching_messages`` (belief propagation, Sinkhorn-like
sweeps), ``matching_newton``, and ``matching_marginals`` (Frank-Wolfe, which certifies).
``matching_encoding`` recognises factor graphs that encode a matching.
"""
