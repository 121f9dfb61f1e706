"""Option objects as JSON, and back, without pickle.

An object such as ``Likelihood(SumProduct(TreeReweighted()))`` is its class name and its fields.
Only the classes in `CLASSES` can be written or read; a file cannot name anything else, so reading
one runs no code but the constructors of these dataclasses, which check their fields.

Plain values and lists stand for themselves.  What JSON does not have is an object that says so:

    {"class": "Convex", "fields": {...}}    {"tuple": [...]}    {"float": "inf"}
    {"dictionary": [[key, value], ...]}     {"texts": [...]}    (an array of texts)
    {"array": name}                         (an array of numbers, which is stored beside)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import FileFormatError, InvalidInputError

__all__ = ["CLASSES", "decode", "encode"]

#: Every class whose objects may be stored, and the module that defines it.
CLASSES = {
    "Bethe": "fieldfit.core.entropy",
    "Convex": "fieldfit.core.entropy",
    "TreeReweighted": "fieldfit.core.entropy",
    "BeliefOptimization": "fieldfit.inference.belief_optimization",
    "BruteForce": "fieldfit.inference.brute_force",
    "ConvexDual": "fieldfit.inference.convex_dual",
    "ConvexPrimal": "fieldfit.inference.convex_primal",
    "DoubleLoop": "fieldfit.inference.double_loop",
    "Exact": "fieldfit.inference.exact",
    "GeneralizedSumProduct": "fieldfit.inference.generalized_sum_product",
    "Gibbs": "fieldfit.inference.gibbs",
    "MeanField": "fieldfit.inference.mean_field",
    "SumProduct": "fieldfit.inference.sum_product",
    "ExactMap": "fieldfit.oracle.exact_map",
    "FrankWolfe": "fieldfit.oracle.frank_wolfe",
    "MaxFlow": "fieldfit.oracle.max_flow",
    "Assignment": "fieldfit.oracle.assignment",
    "LinearProgram": "fieldfit.oracle.linear_program",
    "Map": "fieldfit.oracle.auto",
    "PerfectMatching": "fieldfit.oracle.perfect_matching",
    "PlanarIsing": "fieldfit.oracle.planar_ising",
    "MaxProduct": "fieldfit.oracle.max_product",
    "RoofDuality": "fieldfit.oracle.roof_duality",
    "MarginalLoss": "fieldfit.adjoint.losses",
    "UnrolledMeanField": "fieldfit.adjoint.unrolled_mean_field",
    "UnrolledSumProduct": "fieldfit.adjoint.unrolled",
    "Camel": "fieldfit.objective.camel",
    "ContrastiveDivergence": "fieldfit.objective.contrastive_divergence",
    "ContrastiveFreeEnergy": "fieldfit.objective.contrastive",
    "ImplicitLoss": "fieldfit.objective.implicit",
    "Likelihood": "fieldfit.objective.likelihood",
    "MaxMargin": "fieldfit.objective.max_margin",
    "MLEStruct": "fieldfit.objective.mle_struct",
    "MomentMatching": "fieldfit.objective.moment_matching",
    "Perceptron": "fieldfit.objective.perceptron",
    "Piecewise": "fieldfit.objective.piecewise",
    "ProceduralLoss": "fieldfit.objective.procedural",
    "PseudoLikelihood": "fieldfit.objective.pseudo_likelihood",
    "Adam": "fieldfit.learner.stochastic",
    "CamelRounds": "fieldfit.learner.camel",
    "DualFrankWolfe": "fieldfit.learner.frank_wolfe",
    "LBFGS": "fieldfit.learner.lbfgs",
    "SGD": "fieldfit.learner.stochastic",
}

Arrays = dict[str, NDArray[Any]]


def encode(value: Any, arrays: Arrays, where: str = "value") -> Any:
    """JSON for a value; arrays in it are put into ``arrays`` under the name ``where`` they are."""
    if isinstance(value, (np.bool_, np.integer, np.floating, np.str_)):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list):
        if _is_texts(value):
            return value
        return [encode(entry, arrays, f"{where}.{index}") for index, entry in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": encode(list(value), arrays, where)}
    if isinstance(value, Mapping):
        pairs = enumerate(value.items())
        return {"dictionary": [encode(list(pair), arrays, f"{where}.{n}") for n, pair in pairs]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        arrays[where] = value
        return {"array": where}
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return {"texts": value.tolist()}
    name = type(value).__name__
    if is_dataclass(value) and CLASSES.get(name) == type(value).__module__:
        given = {
            field.name: encode(getattr(value, field.name), arrays, f"{where}.{field.name}")
            for field in fields(value)
            if field.init
        }
        return {"class": name, "fields": given}
    raise InvalidInputError(
        f"{where} must be a number, text, array or one of fieldfit's option objects to be stored, "
        f"got {value!r}"
    )


def decode(stored: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """What `encode` was given."""
    if isinstance(stored, list):
        if _is_texts(stored):
            return stored
        return [decode(entry, arrays) for entry in stored]
    if not isinstance(stored, dict):
        return stored
    if "class" in stored:
        cls = _class_of(stored["class"])
        return cls(**{name: decode(entry, arrays) for name, entry in stored["fields"].items()})
    kind, content = _only_item(stored)
    if kind == "tuple":
        return tuple(decode(content, arrays))
    if kind == "dictionary":
        return dict(tuple(decode(pair, arrays)) for pair in content)
    if kind == "array":
        return arrays[content]
    if kind == "texts":
        return np.array(content, dtype=str)
    if kind == "float":
        return float(content)
    raise FileFormatError(f"expected a stored value, found one of the unknown kind {kind!r}")


def _is_texts(entries: list[Any]) -> bool:
    """True for a list of texts, such as a vocabulary of a million names: nothing to be done."""
    return all(type(entry) is str for entry in entries)


def _only_item(stored: dict[str, Any]) -> tuple[str, Any]:
    if len(stored) != 1:
        raise FileFormatError(f"expected a stored value with one key, found {sorted(stored)}")
    return next(iter(stored.items()))


def _class_of(name: str) -> type[Any]:
    """A class of the table, imported only now: most models use few of them."""
    if name not in CLASSES:
        raise FileFormatError(
            f"expected an option object of this version of fieldfit, found {name!r}"
        )
    found: type[Any] = getattr(import_module(CLASSES[name]), name)
    return found
