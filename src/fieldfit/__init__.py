"""Learning Markov and conditional random fields whose exact inference is out of reach.

An example is a factor graph with tied log-linear potentials; an inference turns potentials into
beliefs.  Start with `FactorGraph`, `Potentials` and `infer`.
"""

from fieldfit.core.batch import Batch
from fieldfit.core.entropy import Bethe, Convex, CountingNumbers, Entropy, TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Beliefs, Potentials
from fieldfit.core.result import InferenceResult, MapResult
from fieldfit.errors import (
    ConvergenceWarning,
    FileFormatError,
    InvalidInputError,
    MissingDependencyError,
    TooLargeError,
    ZeroWeightError,
)
from fieldfit.inference.auto import infer
from fieldfit.inference.brute_force import BruteForce
from fieldfit.inference.exact import Exact
from fieldfit.inference.gibbs import Gibbs
from fieldfit.inference.mean_field import MeanField
from fieldfit.inference.schedule import grid_clique_order
from fieldfit.inference.sum_product import SumProduct
from fieldfit.io import (
    MapAnswer,
    MarginalAnswer,
    PartitionAnswer,
    read_answer,
    read_evidence,
    read_fg,
    read_uai,
    write_answer,
    write_evidence,
    write_fg,
    write_uai,
)
from fieldfit.oracle.auto import decode
from fieldfit.oracle.exact_map import ExactMap
from fieldfit.oracle.max_product import MaxProduct

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Beliefs",
    "Bethe",
    "BruteForce",
    "ConvergenceWarning",
    "Convex",
    "CountingNumbers",
    "Entropy",
    "Exact",
    "ExactMap",
    "FactorGraph",
    "FileFormatError",
    "Gibbs",
    "InferenceResult",
    "InvalidInputError",
    "MapAnswer",
    "MapResult",
    "MarginalAnswer",
    "MaxProduct",
    "MeanField",
    "MissingDependencyError",
    "PartitionAnswer",
    "Potentials",
    "SumProduct",
    "TooLargeError",
    "TreeReweighted",
    "ZeroWeightError",
    "decode",
    "grid_clique_order",
    "infer",
    "read_answer",
    "read_evidence",
    "read_fg",
    "read_uai",
    "write_answer",
    "write_evidence",
    "write_fg",
    "write_uai",
]
