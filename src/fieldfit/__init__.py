"""Learning Markov and conditional random fields whose exact inference is out of reach."""

from fieldfit.core.batch import Batch
from fieldfit.core.entropy import Bethe, Convex, Entropy, TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Beliefs, Potentials
from fieldfit.core.result import InferenceResult, MapResult
from fieldfit.inference.sum_product import SumProduct
from fieldfit.oracle.max_product import MaxProduct

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Beliefs",
    "Bethe",
    "Convex",
    "Entropy",
    "FactorGraph",
    "InferenceResult",
    "MapResult",
    "MaxProduct",
    "Potentials",
    "SumProduct",
    "TreeReweighted",
]
