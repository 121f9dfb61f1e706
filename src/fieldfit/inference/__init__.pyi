"""Written by make stubs from fieldfit._registry."""

from fieldfit.inference.auto import Automatic as Automatic
from fieldfit.inference.auto import Map as Map
from fieldfit.inference.auto import decode as decode
from fieldfit.inference.auto import infer as infer
from fieldfit.inference.base import Inference as Inference
from fieldfit.inference.brute_force import BruteForce as BruteForce
from fieldfit.inference.convex.convex_dual import ConvexDual as ConvexDual
from fieldfit.inference.convex.convex_primal import ConvexPrimal as ConvexPrimal
from fieldfit.inference.convex.interior_point import InteriorPoint as InteriorPoint
from fieldfit.inference.frank_wolfe.frank_wolfe import FrankWolfe as FrankWolfe
from fieldfit.inference.free_energy.belief_optimization import BeliefOptimization as BeliefOptimization
from fieldfit.inference.free_energy.double_loop import DoubleLoop as DoubleLoop
from fieldfit.inference.gibbs.gibbs import Gibbs as Gibbs
from fieldfit.inference.junction_tree.exact import Exact as Exact
from fieldfit.inference.junction_tree.exact import sample_exactly as sample_exactly
from fieldfit.inference.kikuchi.generalized_sum_product import GeneralizedSumProduct as GeneralizedSumProduct
from fieldfit.inference.kikuchi.hypertree_entropy import HypertreeReweighted as HypertreeReweighted
from fieldfit.inference.kikuchi.region_graph import RegionGraph as RegionGraph
from fieldfit.inference.likelihood_bounds import log_likelihood_bounds as log_likelihood_bounds
from fieldfit.inference.log_determinant.log_determinant import LogDeterminant as LogDeterminant
from fieldfit.inference.map.cycle_cuts import CycleCuts as CycleCuts
from fieldfit.inference.map.exact_map import ExactMap as ExactMap
from fieldfit.inference.map.graph_cut.max_flow import MaxFlow as MaxFlow
from fieldfit.inference.map.graph_cut.probing import Probing as Probing
from fieldfit.inference.map.graph_cut.roof_duality import RoofDuality as RoofDuality
from fieldfit.inference.map.linear_program import LinearProgram as LinearProgram
from fieldfit.inference.map.local_search import LocalSearch as LocalSearch
from fieldfit.inference.map.max_product import MaxProduct as MaxProduct
from fieldfit.inference.matching.assignment import Assignment as Assignment
from fieldfit.inference.matching.matching_marginals import matching_marginals as matching_marginals
from fieldfit.inference.matching.matching_partition import matching_partition as matching_partition
from fieldfit.inference.matching.matching_polytope import MatchingPolytope as MatchingPolytope
from fieldfit.inference.matching.matching_polytope import matching_edges as matching_edges
from fieldfit.inference.matching.matching_polytope import matching_graph as matching_graph
from fieldfit.inference.matching.perfect_matching import PerfectMatching as PerfectMatching
from fieldfit.inference.mean_field.mean_field import MeanField as MeanField
from fieldfit.inference.mean_field.unrolled_mean_field import UnrolledMeanField as UnrolledMeanField
from fieldfit.inference.messages.schedule import grid_clique_order as grid_clique_order
from fieldfit.inference.messages.sum_product import SumProduct as SumProduct
from fieldfit.inference.messages.unrolled_sum_product import UnrolledSumProduct as UnrolledSumProduct
from fieldfit.inference.planar.planar_ising import PlanarIsing as PlanarIsing
from fieldfit.inference.planar.planar_ising import planar_ising_log_partition as planar_ising_log_partition
from fieldfit.inference.second_order.linear_response import LinearResponse as LinearResponse
from fieldfit.inference.second_order.stability import Stability as Stability
from fieldfit.inference.second_order.stability import stability as stability

__all__ = [
    "Assignment",
    "Automatic",
    "BeliefOptimization",
    "BruteForce",
    "ConvexDual",
    "ConvexPrimal",
    "CycleCuts",
    "DoubleLoop",
    "Exact",
    "ExactMap",
    "FrankWolfe",
    "GeneralizedSumProduct",
    "Gibbs",
    "HypertreeReweighted",
    "Inference",
    "InteriorPoint",
    "LinearProgram",
    "LinearResponse",
    "LocalSearch",
    "LogDeterminant",
    "Map",
    "MatchingPolytope",
    "MaxFlow",
    "MaxProduct",
    "MeanField",
    "PerfectMatching",
    "PlanarIsing",
    "Probing",
    "RegionGraph",
    "RoofDuality",
    "Stability",
    "SumProduct",
    "UnrolledMeanField",
    "UnrolledSumProduct",
    "decode",
    "grid_clique_order",
    "infer",
    "log_likelihood_bounds",
    "matching_edges",
    "matching_graph",
    "matching_marginals",
    "matching_partition",
    "planar_ising_log_partition",
    "sample_exactly",
    "stability",
]
