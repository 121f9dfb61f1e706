"""Entropies of pseudo-marginals: counting numbers, tree weights, weights of configurations.

    H_c(tau) = sum_a c_a H(tau_a) + sum_i c_i H(tau_i)

`counting_numbers` has the rules (Bethe, tree-reweighted, convex) and what is proved of each;
`tree_weights` and `effective_resistance` find edge appearance probabilities; and
`configuration_weights` and `weighted_entropy` give every configuration a weight of its own.
"""

from fieldfit._registry import exports

__all__, __getattr__, __dir__ = exports(__name__)
