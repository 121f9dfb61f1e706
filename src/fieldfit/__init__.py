"""Learning Markov and conditional random fields whose exact inference is out of reach.

An example is a factor graph with tied log-linear potentials; an inference turns potentials into
beliefs; an objective turns beliefs and labels into a value and a gradient; a learner moves the
weights.  Start with an estimator such as `GridCRF` or `ChainCRF`, or with `FactorGraph`,
`Potentials` and `infer`.
"""

from typing import TYPE_CHECKING, Any

from fieldfit.core.batch import Batch
from fieldfit.core.entropy import Bethe, Convex, CountingNumbers, Entropy, TreeReweighted
from fieldfit.core.graph import FactorGraph
from fieldfit.core.potentials import Beliefs, Potentials
from fieldfit.core.result import InferenceResult, MapResult
from fieldfit.core.template import Block, Template
from fieldfit.errors import (
    ConvergenceWarning,
    FileFormatError,
    InvalidInputError,
    MissingDependencyError,
    TooLargeError,
    ZeroWeightError,
)
from fieldfit.inference.auto import infer
from fieldfit.inference.bounds import log_likelihood_bounds
from fieldfit.inference.brute_force import BruteForce
from fieldfit.inference.double_loop import DoubleLoop
from fieldfit.inference.exact import Exact
from fieldfit.inference.exact_sampling import sample_exactly
from fieldfit.inference.gibbs import Gibbs
from fieldfit.inference.mean_field import MeanField
from fieldfit.inference.schedule import grid_clique_order
from fieldfit.inference.stability import Stability, stability
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
from fieldfit.io.columns import read_columns
from fieldfit.io.samples import read_fasta, read_samples
from fieldfit.learner.lbfgs import LBFGS
from fieldfit.learner.stochastic import SGD, Adam
from fieldfit.objective._base import Evaluation, Objective
from fieldfit.objective.camel import Camel
from fieldfit.objective.likelihood import Likelihood
from fieldfit.objective.max_margin import MaxMargin
from fieldfit.objective.moment_matching import MomentMatching
from fieldfit.objective.perceptron import Perceptron
from fieldfit.objective.piecewise import Piecewise
from fieldfit.objective.pseudo_likelihood import PseudoLikelihood
from fieldfit.oracle.auto import decode
from fieldfit.oracle.exact_map import ExactMap
from fieldfit.oracle.max_product import MaxProduct

if TYPE_CHECKING:
    from fieldfit.core.regions import RegionGraph
    from fieldfit.estimators._load import load
    from fieldfit.estimators.chain import ChainCRF
    from fieldfit.estimators.error_bound import ErrorBound, error_bound
    from fieldfit.estimators.graph import GraphCRF
    from fieldfit.estimators.grid import GridCRF
    from fieldfit.estimators.ising import IsingModel
    from fieldfit.estimators.mixture import MixtureField
    from fieldfit.estimators.potts import PottsModel, sequence_weights
    from fieldfit.estimators.skip_chain import SkipChainCRF
    from fieldfit.inference.belief_optimization import BeliefOptimization
    from fieldfit.inference.generalized_sum_product import GeneralizedSumProduct
    from fieldfit.objective.contrastive import ContrastiveFreeEnergy
    from fieldfit.objective.contrastive_divergence import ContrastiveDivergence

__version__ = "0.1.0"

#: Names that are imported when they are first used: scikit-learn and many kernels take long.
_LAZY = {
    "BeliefOptimization": "inference.belief_optimization",
    "ContrastiveDivergence": "objective.contrastive_divergence",
    "ContrastiveFreeEnergy": "objective.contrastive",
    "GeneralizedSumProduct": "inference.generalized_sum_product",
    "RegionGraph": "core.regions",
    "Assignment": "oracle.assignment",
    "FrankWolfe": "oracle.frank_wolfe",
    "MatchingCRF": "estimators.matching",
    "MaxFlow": "oracle.max_flow",
    "MLEStruct": "objective.mle_struct",
    "PerfectMatching": "oracle.perfect_matching",
    "RoofDuality": "oracle.roof_duality",
    "matching_marginals": "oracle.matching_marginals",
    "matching_partition": "inference.matching_partition",
    "LinearProgram": "oracle.linear_program",
    "Map": "oracle.auto",
    "PlanarIsing": "oracle.planar_ising",
    "matching_graph": "core.matching_graphs",
    "matching_edges": "core.matching_graphs",
    "planar_ising_log_partition": "inference.planar_ising_partition",
    "ChainCRF": "estimators.chain",
    "ConvexDual": "inference.convex_dual",
    "ConvexPrimal": "inference.convex_primal",
    "EntropyWeights": "core.entropy_weights",
    "ImplicitLoss": "objective.implicit",
    "MarginalLoss": "adjoint.losses",
    "ProceduralLoss": "objective.procedural",
    "UnrolledMeanField": "adjoint.unrolled_mean_field",
    "UnrolledSumProduct": "adjoint.unrolled",
    "ErrorBound": "estimators.error_bound",
    "GraphCRF": "estimators.graph",
    "GridCRF": "estimators.grid",
    "IsingModel": "estimators.ising",
    "MixtureField": "estimators.mixture",
    "PottsModel": "estimators.potts",
    "SkipChainCRF": "estimators.skip_chain",
    "sequence_weights": "estimators.potts",
    "error_bound": "estimators.error_bound",
    "load": "estimators._load",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fieldfit' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"fieldfit.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


__all__ = [
    "LBFGS",
    "SGD",
    "Adam",
    "Assignment",
    "Batch",
    "BeliefOptimization",
    "Beliefs",
    "Bethe",
    "Block",
    "BruteForce",
    "Camel",
    "ChainCRF",
    "ContrastiveDivergence",
    "ContrastiveFreeEnergy",
    "ConvergenceWarning",
    "Convex",
    "ConvexDual",
    "ConvexPrimal",
    "CountingNumbers",
    "DoubleLoop",
    "Entropy",
    "EntropyWeights",
    "ErrorBound",
    "Evaluation",
    "Exact",
    "ExactMap",
    "FactorGraph",
    "FileFormatError",
    "FrankWolfe",
    "GeneralizedSumProduct",
    "Gibbs",
    "GraphCRF",
    "GridCRF",
    "ImplicitLoss",
    "InferenceResult",
    "InvalidInputError",
    "IsingModel",
    "Likelihood",
    "LinearProgram",
    "MLEStruct",
    "Map",
    "MapAnswer",
    "MapResult",
    "MarginalAnswer",
    "MarginalLoss",
    "MatchingCRF",
    "MaxFlow",
    "MaxMargin",
    "MaxProduct",
    "MeanField",
    "MissingDependencyError",
    "MixtureField",
    "MomentMatching",
    "Objective",
    "PartitionAnswer",
    "Perceptron",
    "PerfectMatching",
    "Piecewise",
    "PlanarIsing",
    "Potentials",
    "PottsModel",
    "ProceduralLoss",
    "PseudoLikelihood",
    "RegionGraph",
    "RoofDuality",
    "SkipChainCRF",
    "Stability",
    "SumProduct",
    "Template",
    "TooLargeError",
    "TreeReweighted",
    "UnrolledMeanField",
    "UnrolledSumProduct",
    "ZeroWeightError",
    "decode",
    "error_bound",
    "grid_clique_order",
    "infer",
    "load",
    "log_likelihood_bounds",
    "matching_edges",
    "matching_graph",
    "matching_marginals",
    "matching_partition",
    "planar_ising_log_partition",
    "read_answer",
    "read_columns",
    "read_evidence",
    "read_fasta",
    "read_fg",
    "read_samples",
    "read_uai",
    "sample_exactly",
    "sequence_weights",
    "stability",
    "write_answer",
    "write_evidence",
    "write_fg",
    "write_uai",
]
