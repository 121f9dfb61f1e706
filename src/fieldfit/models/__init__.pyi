"""Written by make stubs from fieldfit._registry."""

from fieldfit.models.chain.chain_crf import ChainCRF as ChainCRF
from fieldfit.models.chain.skip_chain_crf import SkipChainCRF as SkipChainCRF
from fieldfit.models.decoding_error_bound import ErrorBound as ErrorBound
from fieldfit.models.decoding_error_bound import error_bound as error_bound
from fieldfit.models.graphs.factor_types import FactorType as FactorType
from fieldfit.models.graphs.graph_crf import GraphCRF as GraphCRF
from fieldfit.models.grid_crf import GridCRF as GridCRF
from fieldfit.models.loading import load as load
from fieldfit.models.matching_crf import MatchingCRF as MatchingCRF
from fieldfit.models.matching_problems import ExactMatchings as ExactMatchings
from fieldfit.models.matching_problems import MatchingExample as MatchingExample
from fieldfit.models.matching_problems import MatchingProblem as MatchingProblem
from fieldfit.models.mixture_field import MixtureField as MixtureField
from fieldfit.models.pairwise.ising_model import IsingModel as IsingModel
from fieldfit.models.pairwise.potts_model import PottsModel as PottsModel
from fieldfit.models.pairwise.potts_model import sequence_weights as sequence_weights
from fieldfit.models.penalties import RelativePenalty as RelativePenalty

__all__ = [
    "ChainCRF",
    "ErrorBound",
    "ExactMatchings",
    "FactorType",
    "GraphCRF",
    "GridCRF",
    "IsingModel",
    "MatchingCRF",
    "MatchingExample",
    "MatchingProblem",
    "MixtureField",
    "PottsModel",
    "RelativePenalty",
    "SkipChainCRF",
    "error_bound",
    "load",
    "sequence_weights",
]
