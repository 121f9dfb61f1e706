"""Graph cuts: MAP of pairwise models by minimum s-t cuts.

    -s(x) = constant + capacity of the cut between {x_i = 0} and {x_i = 1}

for submodular pairs of two labels.  ``cut_network`` turns tables into capacities,
``boykov_kolmogorov`` finds the maximum flow, ``max_flow`` is the search, ``expansion_moves``
(alpha-expansion) extends it to many labels and ``roof_duality`` (QPBO) to pairs of any sign.
"""
