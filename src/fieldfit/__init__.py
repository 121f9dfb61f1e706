"""Learning Markov and conditional random fields whose exact inference is out of reach.

An example is a factor graph with tied log-linear potentials; an inference turns potentials into
beliefs; an objective turns beliefs and labels into a value and a gradient; a learner moves the
weights.  Start with an estimator such as `GridCRF` or `ChainCRF`, or with `FactorGraph`,
`Potentials` and `infer`.
"""

from typing import TYPE_CHECKING, Any

from fieldfit.entropy.counting_numbers import (
    Bethe,
    Convex,
    CountingNumbers,
    Entropy,
    TreeReweighted,
)
from fieldfit.errors import (
    ConvergenceWarning,
    FileFormatError,
    InvalidInputError,
    MissingDependencyError,
    TooLargeError,
    ZeroWeightError,
)
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.result import InferenceResult, MapResult
from fieldfit.graph.template import Block, Template
from fieldfit.inference.auto import decode, infer
from fieldfit.inference.brute_force import BruteForce
from fieldfit.inference.free_energy.double_loop import DoubleLoop
from fieldfit.inference.gibbs.gibbs import Gibbs
from fieldfit.inference.junction_tree.exact import Exact, sample_exactly
from fieldfit.inference.likelihood_bounds import log_likelihood_bounds
from fieldfit.inference.map.exact_map import ExactMap
from fieldfit.inference.map.max_product import MaxProduct
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.inference.messages.schedule import grid_clique_order
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.inference.second_order.stability import Stability, stability
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
from fieldfit.io.samples import read_fasta, read_samples
from fieldfit.io.seminars import read_seminars
from fieldfit.io.sequences import read_columns
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.learners.stochastic import SGD, Adam
from fieldfit.objectives.base import Evaluation, Objective
from fieldfit.objectives.camel import Camel
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.max_margin import MaxMargin, Perceptron
from fieldfit.objectives.moment_matching import MomentMatching
from fieldfit.objectives.piecewise import Piecewise
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood

if TYPE_CHECKING:
    from fieldfit.inference.free_energy.belief_optimization import BeliefOptimization
    from fieldfit.inference.kikuchi.generalized_sum_product import GeneralizedSumProduct
    from fieldfit.inference.kikuchi.region_graph import RegionGraph
    from fieldfit.models.chain.chain_crf import ChainCRF
    from fieldfit.models.chain.skip_chain_crf import SkipChainCRF
    from fieldfit.models.decoding_error_bound import ErrorBound, error_bound
    from fieldfit.models.graph_crf import GraphCRF
    from fieldfit.models.grid_crf import GridCRF
    from fieldfit.models.loading import load
    from fieldfit.models.mixture_field import MixtureField
    from fieldfit.models.pairwise.ising_model import IsingModel
    from fieldfit.models.pairwise.potts_model import PottsModel, sequence_weights
    from fieldfit.objectives.contrastive import ContrastiveFreeEnergy
    from fieldfit.objectives.contrastive_divergence import ContrastiveDivergence

__version__ = "0.1.0"

#: Names that are imported when they are first used: scikit-learn and many kernels take long.
_LAZY = {
    "BeliefOptimization": "inference.free_energy.belief_optimization",
    "ContrastiveDivergence": "objectives.contrastive_divergence",
    "ContrastiveFreeEnergy": "objectives.contrastive",
    "GeneralizedSumProduct": "inference.kikuchi.generalized_sum_product",
    "RegionGraph": "inference.kikuchi.region_graph",
    "Assignment": "inference.matching.assignment",
    "FrankWolfe": "inference.frank_wolfe.frank_wolfe",
    "MatchingCRF": "models.matching_crf",
    "MaxFlow": "inference.map.graph_cut.max_flow",
    "MLEStruct": "objectives.mle_struct",
    "PerfectMatching": "inference.matching.perfect_matching",
    "RoofDuality": "inference.map.graph_cut.roof_duality",
    "matching_marginals": "inference.matching.matching_marginals",
    "matching_partition": "inference.matching.matching_partition",
    "LinearProgram": "inference.map.linear_program",
    "Map": "inference.auto",
    "PlanarIsing": "inference.planar.planar_ising",
    "matching_graph": "inference.matching.matching_polytope",
    "matching_edges": "inference.matching.matching_polytope",
    "planar_ising_log_partition": "inference.planar.planar_ising",
    "ChainCRF": "models.chain.chain_crf",
    "ConvexDual": "inference.convex.convex_dual",
    "ConvexPrimal": "inference.convex.convex_primal",
    "EntropyWeights": "entropy.configuration_weights",
    "ImplicitLoss": "objectives.implicit_loss",
    "MarginalLoss": "objectives.marginal_losses",
    "ProceduralLoss": "objectives.procedural_loss",
    "UnrolledMeanField": "inference.mean_field.unrolled_mean_field",
    "UnrolledSumProduct": "inference.messages.unrolled_sum_product",
    "ErrorBound": "models.decoding_error_bound",
    "GraphCRF": "models.graph_crf",
    "GridCRF": "models.grid_crf",
    "IsingModel": "models.pairwise.ising_model",
    "MixtureField": "models.mixture_field",
    "PottsModel": "models.pairwise.potts_model",
    "SkipChainCRF": "models.chain.skip_chain_crf",
    "sequence_weights": "models.pairwise.potts_model",
    "error_bound": "models.decoding_error_bound",
    "load": "models.loading",
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
    "read_seminars",
    "read_uai",
    "sample_exactly",
    "sequence_weights",
    "stability",
    "write_answer",
    "write_evidence",
    "write_fg",
    "write_uai",
]
