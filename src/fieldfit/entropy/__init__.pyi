"""Written by make stubs from fieldfit._registry."""

from fieldfit.entropy.configuration_weights import EntropyWeights as EntropyWeights
from fieldfit.entropy.configuration_weights import WIDEST as WIDEST
from fieldfit.entropy.counting_numbers import Bethe as Bethe
from fieldfit.entropy.counting_numbers import Convex as Convex
from fieldfit.entropy.counting_numbers import CountingNumbers as CountingNumbers
from fieldfit.entropy.counting_numbers import Entropy as Entropy
from fieldfit.entropy.counting_numbers import TreeReweighted as TreeReweighted

__all__ = [
    "WIDEST",
    "Bethe",
    "Convex",
    "CountingNumbers",
    "Entropy",
    "EntropyWeights",
    "TreeReweighted",
]
