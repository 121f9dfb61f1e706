"""Written by make stubs from fieldfit._registry."""

from fieldfit.graph.batch import Batch as Batch
from fieldfit.graph.factor_graph import FactorGraph as FactorGraph
from fieldfit.graph.potentials import Beliefs as Beliefs
from fieldfit.graph.potentials import Potentials as Potentials
from fieldfit.graph.result import InferenceResult as InferenceResult
from fieldfit.graph.result import MapResult as MapResult
from fieldfit.graph.template import Block as Block
from fieldfit.graph.template import Template as Template

__all__ = [
    "Batch",
    "Beliefs",
    "Block",
    "FactorGraph",
    "InferenceResult",
    "MapResult",
    "Potentials",
    "Template",
]
