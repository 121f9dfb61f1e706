"""Written by make stubs from fieldfit._registry."""

from fieldfit import graph as graph
from fieldfit import entropy as entropy
from fieldfit import inference as inference
from fieldfit import objectives as objectives
from fieldfit import learners as learners
from fieldfit import models as models
from fieldfit import shards as shards
from fieldfit import io as io
from fieldfit import comparison as comparison
from fieldfit import errors as errors
from fieldfit.comparison.compare_methods import compare as compare
from fieldfit.entropy.counting_numbers import Bethe as Bethe
from fieldfit.entropy.counting_numbers import Convex as Convex
from fieldfit.entropy.counting_numbers import TreeReweighted as TreeReweighted
from fieldfit.errors import ConvergenceWarning as ConvergenceWarning
from fieldfit.errors import InvalidInputError as InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph as FactorGraph
from fieldfit.graph.potentials import Beliefs as Beliefs
from fieldfit.graph.potentials import Potentials as Potentials
from fieldfit.graph.result import InferenceResult as InferenceResult
from fieldfit.graph.result import MapResult as MapResult
from fieldfit.inference.auto import Map as Map
from fieldfit.inference.auto import decode as decode
from fieldfit.inference.auto import infer as infer
from fieldfit.inference.brute_force import BruteForce as BruteForce
from fieldfit.inference.convex.convex_dual import ConvexDual as ConvexDual
from fieldfit.inference.convex.convex_primal import ConvexPrimal as ConvexPrimal
from fieldfit.inference.frank_wolfe.frank_wolfe import FrankWolfe as FrankWolfe
from fieldfit.inference.free_energy.belief_optimization import BeliefOptimization as BeliefOptimization
from fieldfit.inference.free_energy.double_loop import DoubleLoop as DoubleLoop
from fieldfit.inference.gibbs.gibbs import Gibbs as Gibbs
from fieldfit.inference.junction_tree.exact import Exact as Exact
from fieldfit.inference.kikuchi.generalized_sum_product import GeneralizedSumProduct as GeneralizedSumProduct
from fieldfit.inference.kikuchi.hypertree_entropy import HypertreeReweighted as HypertreeReweighted
from fieldfit.inference.map.cycle_cuts import CycleCuts as CycleCuts
from fieldfit.inference.map.exact_map import ExactMap as ExactMap
from fieldfit.inference.map.graph_cut.max_flow import MaxFlow as MaxFlow
from fieldfit.inference.map.graph_cut.roof_duality import RoofDuality as RoofDuality
from fieldfit.inference.map.linear_program import LinearProgram as LinearProgram
from fieldfit.inference.map.local_search import LocalSearch as LocalSearch
from fieldfit.inference.map.max_product import MaxProduct as MaxProduct
from fieldfit.inference.matching.assignment import Assignment as Assignment
from fieldfit.inference.matching.perfect_matching import PerfectMatching as PerfectMatching
from fieldfit.inference.mean_field.mean_field import MeanField as MeanField
from fieldfit.inference.messages.sum_product import SumProduct as SumProduct
from fieldfit.inference.planar.planar_ising import PlanarIsing as PlanarIsing
from fieldfit.io.fg import read_fg as read_fg
from fieldfit.io.fg import write_fg as write_fg
from fieldfit.io.uai import read_uai as read_uai
from fieldfit.io.uai import write_uai as write_uai
from fieldfit.learners.lbfgs import LBFGS as LBFGS
from fieldfit.learners.stochastic import Adam as Adam
from fieldfit.learners.stochastic import SGD as SGD
from fieldfit.models.chain.chain_crf import ChainCRF as ChainCRF
from fieldfit.models.chain.skip_chain_crf import SkipChainCRF as SkipChainCRF
from fieldfit.models.graphs.graph_crf import GraphCRF as GraphCRF
from fieldfit.models.grid_crf import GridCRF as GridCRF
from fieldfit.models.loading import load as load
from fieldfit.models.matching_crf import MatchingCRF as MatchingCRF
from fieldfit.models.mixture_field import MixtureField as MixtureField
from fieldfit.models.pairwise.ising_model import IsingModel as IsingModel
from fieldfit.models.pairwise.potts_model import PottsModel as PottsModel
from fieldfit.objectives.camel import Camel as Camel
from fieldfit.objectives.contrastive import ContrastiveFreeEnergy as ContrastiveFreeEnergy
from fieldfit.objectives.contrastive_divergence import ContrastiveDivergence as ContrastiveDivergence
from fieldfit.objectives.implicit_loss import ImplicitLoss as ImplicitLoss
from fieldfit.objectives.likelihood import Likelihood as Likelihood
from fieldfit.objectives.max_margin import MaxMargin as MaxMargin
from fieldfit.objectives.max_margin import Perceptron as Perceptron
from fieldfit.objectives.mle_struct import MLEStruct as MLEStruct
from fieldfit.objectives.moment_matching import MomentMatching as MomentMatching
from fieldfit.objectives.piecewise import Piecewise as Piecewise
from fieldfit.objectives.procedural_loss import ProceduralLoss as ProceduralLoss
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood as PseudoLikelihood

__version__: str

__all__ = [
    "LBFGS",
    "SGD",
    "Adam",
    "Assignment",
    "BeliefOptimization",
    "Beliefs",
    "Bethe",
    "BruteForce",
    "Camel",
    "ChainCRF",
    "ContrastiveDivergence",
    "ContrastiveFreeEnergy",
    "ConvergenceWarning",
    "Convex",
    "ConvexDual",
    "ConvexPrimal",
    "CycleCuts",
    "DoubleLoop",
    "Exact",
    "ExactMap",
    "FactorGraph",
    "FrankWolfe",
    "GeneralizedSumProduct",
    "Gibbs",
    "GraphCRF",
    "GridCRF",
    "HypertreeReweighted",
    "ImplicitLoss",
    "InferenceResult",
    "InvalidInputError",
    "IsingModel",
    "Likelihood",
    "LinearProgram",
    "LocalSearch",
    "MLEStruct",
    "Map",
    "MapResult",
    "MatchingCRF",
    "MaxFlow",
    "MaxMargin",
    "MaxProduct",
    "MeanField",
    "MixtureField",
    "MomentMatching",
    "Perceptron",
    "PerfectMatching",
    "Piecewise",
    "PlanarIsing",
    "Potentials",
    "PottsModel",
    "ProceduralLoss",
    "PseudoLikelihood",
    "RoofDuality",
    "SkipChainCRF",
    "SumProduct",
    "TreeReweighted",
    "compare",
    "decode",
    "infer",
    "load",
    "read_fg",
    "read_uai",
    "write_fg",
    "write_uai",
]
