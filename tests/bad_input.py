"""Bad values for every argument of every public entry point, made from signatures.

An *entry point* is a callable with arguments that work.  The *kind* of an argument goes by its
name, and each kind has a list of values that it must refuse.  An argument whose kind is not known
is an error of the table itself, so that a new option cannot be left out.
"""

from __future__ import annotations

import atexit
import inspect
import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from typing import Any

import numpy as np

import fieldfit as ff
from fieldfit._registry import MODELS, PUBLIC, find
from fieldfit.inference.base import Inference
from fieldfit.inference.map.base import MapSearch
from fieldfit.objectives.base import Objective

#: Files are written here and nowhere else.
_FOLDER = tempfile.mkdtemp(prefix="bad-input-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def in_folder(name: str) -> str:
    """A file in a folder that is removed at the end."""
    return os.path.join(_FOLDER, name)


# -- bad values ----------------------------------------------------------------------------------


class Anything:
    """An object that nothing is made for."""

    def __repr__(self) -> str:
        return "Anything()"


ANYTHING = Anything()
DATE = np.datetime64("2024-02-29")
COMPLEX = 1.0 + 2.0j


def masked(values: Any) -> np.ma.MaskedArray:
    """The values as a masked array whose first entry does not count."""
    array = np.ma.array(values)
    array[(0,) * array.ndim] = np.ma.masked
    return array


_NO_OBJECT = {"object": ANYTHING, "complex": COMPLEX, "date": DATE}
_INTEGER = {**_NO_OBJECT, "text": "2", "fraction": 1.5, "nan": np.nan, "list": [1, 2]}
_NUMBER = {**_NO_OBJECT, "text": "0.5", "nan": np.nan, "list": [0.5, 0.5], "infinity": np.inf}
_CHOICE = {**_NO_OBJECT, "text": "nope", "number": 3.7, "list": ["nope"], "array": np.zeros(3)}
_OPTION = {**_NO_OBJECT, "text": "nope", "number": 3.7, "list": ["nope"], "class": ff.FactorGraph}
_PATH = {**_NO_OBJECT, "number": 3.7, "list": ["nope"], "null": "model\0.ff", "empty": ""}
_GRAPH = {**_NO_OBJECT, "text": "nope", "number": 3, "list": [(0, 1)], "class": ff.FactorGraph}
_ARRAY = {
    **_NO_OBJECT,
    "text": "nope",
    "texts": ["a", "b", "c"],
    "ragged": [[0.0], [0.0, 1.0]],
    "dictionary": {0: 1.0},
}
_LABELS = {
    **_ARRAY,
    "number": 1.5,
    "fractions": [0.5, 0.0, 1.0],
    "dates": np.array([DATE] * 3),
    "complex numbers": np.array([COMPLEX] * 3),
    "nothing": [None, 0, 1],
    "masked": masked([0, 1, 0]),
    "many": [0] * 7,
}
del _LABELS["dictionary"]
_EXAMPLES = {
    **_NO_OBJECT,
    "text": "nope",
    "number": 3,
    "numbers": [3, 4],
    "objects": [ANYTHING, ANYTHING],
    "dictionary": {0: 1.0},
    "nothing": [None, None],
    "numbers for each": [0.5] * 4,
    "sets for each": [{1}] * 4,
    "objects for each": [ANYTHING] * 4,
    "arrays for each": [np.zeros((1, 1, 1, 1, 1))] * 4,
    "dates for each": [np.full((2, 2), DATE)] * 4,
    "complex numbers for each": [np.full((2, 2), COMPLEX)] * 4,
}
_SAMPLES = {
    **_ARRAY,
    "fractions": [[0.5, 0.0, 1.0]] * 4,
    "number texts": [["0", "1", "0"], ["1", "0", "1"]],
    "complex numbers": np.full((4, 3), COMPLEX),
    "dates": np.full((4, 3), DATE),
    "objects": np.full((4, 3), ANYTHING),
    "masked": masked([[0, 1, 0], [1, 0, 1], [0, 0, 1], [1, 1, 0]]),
    "flat": [0, 1, 0],
    "empty": np.zeros((0, 3)),
}

_PICTURES = {
    **_NO_OBJECT,
    "text": "nope",
    "number": 3,
    "numbers": [3, 4],
    "nothing": [None],
    "grey": [np.zeros((6, 6))],
    "nan": [np.full((6, 6, 3), np.nan)],
    "dictionary": {0: np.zeros((6, 6, 3))},
}
_PICTURE = {
    **_ARRAY,
    "grey": np.zeros((6, 6)),
    "nan": np.full((6, 6, 3), np.nan),
    "masked": masked(np.zeros((6, 6, 3))),
    "empty": np.zeros((0, 6, 3)),
}

#: Values that each kind of argument refuses; ``None`` is added where it is not the default.
KINDS: dict[str, dict[str, Any]] = {
    "integer": _INTEGER,
    "number": _NUMBER,
    "limit": {name: value for name, value in _NUMBER.items() if name != "infinity"},
    "flag": {**_NO_OBJECT, "text": "yes", "number": 2, "list": [True]},
    "choice": _CHOICE,
    "option": _OPTION,
    "seed": {**_NO_OBJECT, "text": "a", "fraction": 1.5, "nan": np.nan, "list": [1, 2], "sign": -1},
    "graph": _GRAPH,
    "batch": {**_GRAPH, "graph": ff.FactorGraph.chain(3, 2)},
    "observed": {
        **_LABELS,
        "label texts": {0: "a"},
        "label fractions": {0: 1.5},
        "no label": {0: None},
        "unknown label": {0: 9},
        "unknown variable": {9: 0},
        "variable texts": {"a": 0},
        "variable fractions": {0.5: 0},
        "variable objects": {ANYTHING: 0},
    },
    "labels": _LABELS,
    "any labels": {name: value for name, value in _LABELS.items() if name != "many"},
    "distributions": {
        **_NO_OBJECT,
        "text": "nope",
        "texts": ["a", "b"],
        "dictionary": {0: 1.0},
        "number": 3.7,
        "nan": [np.full(2, np.nan)],
        "large": [np.full(2, 7.0)],
    },
    "values": {**_ARRAY, "masked": masked(np.zeros(6)), "short": np.zeros(3)},
    "tables": {**_ARRAY, "number": 3.7, "objects": [ANYTHING] * 3, "nan": np.full((3, 2), np.nan)},
    "numbers": {**_ARRAY, "nan": np.full(3, np.nan), "masked": masked([1.0, 1.0, 1.0])},
    "counts": {**_ARRAY, "fractions": [0.5, 1.5, 2.0], "masked": masked([2, 2, 2])},
    "scopes": {**_NO_OBJECT, "text": "nope", "texts": ["a"], "fractions": [(0.5, 1.0)]},
    "evidence": {
        **_NO_OBJECT,
        "text": "nope",
        "list": [0, 1],
        "fractions": {0: 1.5},
        "sign": {0: -1},
    },
    "edges": {
        **_ARRAY,
        "fractions": [(0.5, 1.0)],
        "unknown": [(0, 9)],
        "negative": [(-1, 0)],
        "loop": [(1, 1)],
        "flat": [0, 1],
        "masked": masked([(0, 1), (1, 2)]),
    },
    "callable or name": {**_NO_OBJECT, "number": 3.7, "list": [len]},
    "callable": {**_NO_OBJECT, "text": "nope", "number": 3.7, "list": [len]},
    "init": {**_NO_OBJECT, "text": "nope", "list": ["a"], "dictionary": {0: 1}},
    "client": {**_NO_OBJECT, "text": "tcp://127.0.0.1:1", "number": 3, "class": ff.FactorGraph},
    "path": _PATH,
    "file": {**_PATH, "folder": "no/such/folder/file"},
    "source": {**_PATH, "text file": io.StringIO("0")},
    "answer": {**_NO_OBJECT, "text": "PR", "number": 1.5, "list": [0, 1]},
    "letters": {**_NO_OBJECT, "number": 3, "list": ["a"], "empty": "", "bytes": b","},
    "examples": _EXAMPLES,
    "weights": {
        **_ARRAY,
        "masked": masked(np.ones(4)),
        "nan": np.full(4, np.nan),
        "signs": -np.ones(4),
        "zeros": np.zeros(4),
        "short": [1.0],
    },
    "pair": {**_EXAMPLES, "triple": (1, 2, 3)},
    "matrix": {**_ARRAY, "flat": np.zeros(3), "masked": masked(np.zeros((2, 2)))},
    "start": {**_ARRAY, "nan": np.full(4, np.nan), "long": np.ones(999)},
    "samples": _SAMPLES,
    "observations": {**_ARRAY, "infinity": np.full((2, 4), np.inf), "many": np.zeros(7)},
    "share": {**_ARRAY, "nan": np.nan, "large": 2.0, "many": np.full(7, 0.5)},
    "names": {**_NO_OBJECT, "number": 3, "short": ["a"]},
    "feature names": {**_NO_OBJECT, "number": 3, "text": "a", "long": ["a"] * 9},
    "shape": {**_NO_OBJECT, "text": "22", "number": 4, "fractions": (2.0, 2.5), "long": (2, 2, 1)},
    "image": {**_PICTURE, "large": np.full((6, 6, 3), 7.0)},
    "picture": _PICTURE,
    "pictures": {**_PICTURES, "empty": []},
    "more pictures": _PICTURES,
    "label image": {
        **_ARRAY,
        "fractions": np.full((6, 6), 0.5),
        "flat": np.zeros(36, dtype=int),
        "large": np.full((6, 6), 2**40),
        "sign": np.full((6, 6), -2),
        "masked": masked(np.zeros((6, 6), dtype=int)),
    },
    "segments": {
        **_ARRAY,
        "fractions": np.full((6, 6), 0.5),
        "flat": np.zeros(36, dtype=int),
        "gap": np.where(np.eye(6, dtype=bool), 2, 0),
        "sign": np.full((6, 6), -1),
        "masked": masked(np.zeros((6, 6), dtype=int)),
    },
    "entries": {
        "object": ANYTHING,
        "number": 3,
        "ragged": [[0.0], [0.0, 1.0]],
        "many": np.zeros(7),
        "masked": masked(np.zeros(2)),
    },
    "groups": {**_ARRAY, "fractions": [0.5, 1.5], "number": 3, "masked": masked([0, 1])},
    "classifier": {**_NO_OBJECT, "text": "nope", "number": 3, "class": ff.FactorGraph},
    "word": {**_NO_OBJECT, "number": 3, "list": ["a"], "bytes": b"a"},
    "words": {
        **_NO_OBJECT,
        "text": "nope",
        "number": 3,
        "numbers": [1, 2],
        "nothing": [None],
        "bytes": [b"a"],
        "dictionary": {"a": 1},
    },
    "sentences": {
        **_NO_OBJECT,
        "text": "nope",
        "texts": ["a", "b"],
        "number": 3,
        "numbers": [[1, 2]],
        "nothing": [None],
    },
    "tags": {
        **_NO_OBJECT,
        "text": "nope",
        "number": 3,
        "list": ["a", "b"],
        "number in it": {"pos": 3},
        "text in it": {"pos": "ab"},
        "numbers in it": {"pos": [1, 2]},
        "number as name": {3: ["a", "b"]},
        "long": {"pos": ["a"] * 9},
    },
    "tokens": {
        **_NO_OBJECT,
        "text": "nope",
        "number": 3,
        "texts": ["a", "b"],
        "words": [["a", "b"]],
        "lists in it": [[{"a": [1]}]],
    },
    "label texts": {**_NO_OBJECT, "text": "B-A", "number": 3, "numbers": [1, 2], "bytes": [b"B"]},
    "label sequences": {
        **_NO_OBJECT,
        "text": "nope",
        "texts": ["B-A"],
        "number": 3,
        "numbers": [[1, 2]],
        "many": [["O"]] * 9,
        "nothing": [None],
    },
    "square": {
        **_ARRAY,
        "flat": np.zeros(3),
        "oblong": np.zeros((2, 3)),
        "nan": np.full((2, 2), np.nan),
    },
    "strength": {**_NO_OBJECT, "text": "0.5", "nan": np.nan, "infinity": np.inf, "sign": -1.0},
    "parts": {**_GRAPH, "empty": [], "objects": [ANYTHING]},
}

# -- kinds of arguments by their names -----------------------------------------------------------

_NAMES = {
    "integer": """max_iter n_rounds n_starts n_restarts n_sweeps burn_in n_chains max_rounds
        first_sweeps overlap
        bound_sweeps max_frustrated max_configurations patience checkpoint_every history
        n_hidden_sweeps max_missing n_labels batch_size height width n_variables n_samples
        n_sweeps_between variable factor verbose max_links n_jobs n n_pairs missing block_size
        n_steps ignore_label region n_clusters n_patches stride n_folds fold max_run min_count
        prefixes suffixes ngrams window nearby min_distance part shard_size max_losses shard
        folds n_examples arity n_features""",
    "number": """damping tol l1 l2 smoothing round_tol value_tol step decay beta1 beta2 identity
        min_freq sharpness level offset minimum rho log10_partition compactness sigma min_share
        percent floor couplings memory task_seconds absent_seconds seconds budget""",
    "limit": "max_memory max_operations time_limit",
    "flag": """accelerate branch keep_active_set perfect persistent per_sweep_weights averaging
        fit_intercept
        all_possible_transitions boundary_weights all_possible_states with_labels by_channel
        lower conjunctions place topic spelling truecase context runs acronyms""",
    "choice": """schedule update method variant solver sides family loss gradient mode directions
        points pairwise decode kind encoding skip_table gauge correction name neighbors regions
        hypertrees
        edge_features checkpoints tying tables capacity fit_entropy skip_edges breaks""",
    "option": """entropy oracle exact messages inference objective inner learner limits options
        penalty problem estimator""",
    "client": "client",
    "seed": "random_state",
    "graph": "graph potentials other beliefs truth model vector counting moments",
    "matrix": "features allowed",
    "batch": "batch",
    "observed": "observed",
    "labels": "labels",
    "values": "unary_values factor_values",
    "tables": "unary factors marginals",
    "counts": "cardinalities scopes factor_types slot_variables arities shard_parts",
    "edges": "edges",
    "callable": "progress",
    "init": "init",
    "path": "path folder scratch",
    "source": "source",
    "answer": "answer",
    "letters": "alphabet delimiter separator unknown",
    "examples": "X graphs blocks examples",
    "weights": "sample_weight",
    "file": "checkpoint",
    "pair": "validation",
    "start": "start change",
    "samples": "samples",
    "observations": "Z",
    "share": "alpha",
    "names": "names arrays methods label_names",
    "feature names": "feature_names",
    "numbers": "means variances weights order",
    "shape": "shape",
    "image": "image",
    "pictures": "images",
    "segments": "segments",
    "groups": "groups",
    "classifier": "classifier",
    "word": "word",
    "words": "words exclude columns drop",
    "sentences": "sentences",
    "tags": "tags",
    "tokens": "sequences",
    "label sequences": "true predicted",
    "square": "couplings scores contacts strengths",
    "parts": "parts",
}
_KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names.split()}
#: Where a name means something else than elsewhere, or takes more.
_KIND_AT = {
    ("Convex", "unary"): "number",
    ("Convex", "factor"): "number",
    ("Piecewise", "unary"): "choice",
    ("Camel", "start"): "choice",
    ("MLEStruct", "start"): "choice",
    ("MLEStruct", "step"): "choice",
    ("TreeReweighted", "rho"): "tables",
    ("HypertreeReweighted", "rho"): "tables",
    ("Beliefs.from_labels", "labels"): "labels",
    ("MixtureField.fit", "labels"): "samples",
    ("IsingModel.report", "X"): "samples",
    ("PottsModel.report", "X"): "samples",
    ("PottsModel.contact_scores", "ignore_labels"): "counts",
    ("FactorGraph", "scopes"): "scopes",
    ("SkipChainCRF", "skip_edges"): "callable or name",
    ("SkipChainCRF", "breaks"): "callable or name",
    ("write_evidence", "observed"): "evidence",
    ("FactorGraph.from_edges", "n_labels"): "counts",
    ("matching_edges", "weights"): "tables",
    ("Batch.pack", "potentials"): "examples",
    ("read_columns", "separator"): "letters",
    ("load", "path"): "path",
    ("PseudoLikelihood", "blocks"): "choice",
    ("EntropyWeights", "unary"): "numbers",
    ("EntropyWeights", "factors"): "numbers",
    ("Template.potentials", "weights"): "start",
    ("Template.split", "weights"): "start",
    ("RelativePenalty", "unary"): "number",
    ("GridCRF", "unary"): "choice",
    ("GraphCRF", "unary"): "choice",
    ("read_image_archive", "path"): "path",
    ("read_image_archive", "arrays"): "names",
    ("TextFeatures", "word"): "flag",
    ("TextFeatures", "shape"): "flag",
    ("repeated_capitalised", "fold"): "flag",
    ("region_labels", "labels"): "label image",
    ("Assignment.match", "weights"): "matrix",
    ("Assignment.match_batch", "weights"): "examples",
    ("PerfectMatching.match", "weights"): "matrix",
    ("PerfectMatching.match_batch", "weights"): "examples",
    ("MomentMatching.moments", "weights"): "weights",
    ("MapAnswer", "labels"): "any labels",
    ("EntropyWeights.from_flat", "unary_values"): "values",
    ("PartitionAnswer", "log10_partition"): "limit",
    ("PatchCodebook.transform", "images"): "more pictures",
    ("SceneFeatures.transform", "images"): "more pictures",
    ("paint", "values"): "entries",
    ("out_of_fold", "features"): "matrix",
    ("out_of_fold", "labels"): "labels",
    ("chunks", "labels"): "label texts",
    ("Penalty", "l1"): "strength",
    ("Penalty", "l2"): "strength",
    ("PatchCodebook.nearest", "image"): "picture",
    ("MarginalAnswer", "marginals"): "distributions",
    ("TemplateProblem.evaluate", "weights"): "start",
    ("TemplateProblem.evaluate_part", "weights"): "start",
    ("potentials_of", "weights"): "start",
    ("MatchingExample.weight_matrix", "weights"): "start",
    ("MarginalAnswer.from_beliefs", "beliefs"): "graph",
}
#: Arguments whose type is a name that stands for more, ``None`` included.
MAY_BE_NONE = (
    "observed",
    "init",
    "unary",
    "factors",
    "names",
    "skip_edges",
    "breaks",
    "validation",
)
#: Arguments that are data of a kind of their own, or that a method says it ignores.
_LEFT_OUT = {
    ("IsingModel.score", "y"),
    ("PottsModel.score", "y"),
    ("ConvexDual.run", "weights"),
}


def kind_of(entry: str, argument: str) -> str:
    """The kind of an argument; a `KeyError` says that the table lacks it."""
    if entry.endswith(".minimize") and argument == "validation":
        return "callable"
    if argument == "Y":
        is_field = entry.startswith(("MixtureField", "error_bound"))
        return "observations" if is_field else "examples"
    return _KIND_AT.get((entry, argument)) or _KIND_OF[argument]


# -- entry points --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A callable, the arguments that are tried with bad values, and others that it needs."""

    name: str
    call: Callable[..., Any]
    signature: inspect.Signature
    given: dict[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def called_by(self, call: Callable[..., Any]) -> Entry:
        """The same arguments for another callable, which checks them."""
        return replace(self, call=call)

    def cases(self) -> Iterator[tuple[str, str, Any]]:
        """Argument, name and content of each bad value."""
        for argument, parameter in self.signature.parameters.items():
            if argument in ("self", *self.left_out) or (self.name, argument) in _LEFT_OUT:
                continue
            values = KINDS[kind_of(self.name, argument)]
            for name, value in values.items():
                yield argument, name, value
            takes_none = "None" in str(parameter.annotation) or parameter.default is None
            if not takes_none and argument not in MAY_BE_NONE:
                yield argument, "None", None


def entry_of(name: str, call: Any, given: dict[str, Any] | None = None, *left_out: str) -> Entry:
    """An entry whose arguments are those of the callable."""
    return Entry(name, call, inspect.signature(call), given or {}, left_out)


GRAPH = ff.FactorGraph.chain(3, 2)
POTENTIALS = ff.Potentials(GRAPH)
BATCH = ff.graph.Batch.of([GRAPH])
BELIEFS = ff.Beliefs(GRAPH, np.full(6, 0.5), np.full(8, 0.25))


def _options() -> Iterator[Entry]:
    """Option objects check their fields when they are made."""
    for name, entry in PUBLIC.items():
        if entry.stored:
            yield entry_of(name, entry.load())


#: A small model as arguments of ``run`` and of ``run_batch``.
MODEL = {"graph": GRAPH, "potentials": POTENTIALS}
UNION = {"batch": BATCH, "potentials": POTENTIALS}
#: Models for searches that know matchings only.
MATCHINGS = {
    "Assignment": ff.inference.matching_graph(np.zeros((2, 2))),
    "PerfectMatching": ff.inference.matching_graph(np.zeros((2, 2)), "general"),
}
#: Methods that start from an earlier result; the others say that they ignore it.
TAKES_INIT = (
    *("SumProduct", "MeanField", "Gibbs", "BeliefOptimization", "DoubleLoop"),
    *("GeneralizedSumProduct", "ConvexDual", "ConvexPrimal", "FrankWolfe"),
)


def _runs() -> Iterator[Entry]:
    """What runs on a graph with potentials, by name or by the class of the registry."""
    for name, entry in PUBLIC.items():
        found = entry.load() if entry.stored else object
        if issubclass(found, Inference | MapSearch):
            yield from _solver(name, found())
        if issubclass(found, Objective):
            given = {**MODEL, "labels": [0, 1, 1]}
            yield entry_of(f"{name}.value_and_grad", found().value_and_grad, given)
    counting = ff.Bethe().counting_numbers(GRAPH)
    response = ff.inference.LinearResponse(GRAPH, BELIEFS, counting)
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "infer": (ff.infer, MODEL),
        "decode": (ff.decode, MODEL),
        "sample_exactly": (ff.inference.sample_exactly, {**MODEL, "n_samples": 2}),
        "stability": (ff.inference.stability, {**MODEL, "entropy": ff.Bethe()}),
        "planar_ising_log_partition": (ff.inference.planar_ising_log_partition, MODEL),
        "log_likelihood_bounds": (
            ff.inference.log_likelihood_bounds,
            {**UNION, "labels": np.array([0, 1, 1])},
        ),
        "LinearResponse": (
            ff.inference.LinearResponse,
            {"graph": GRAPH, "beliefs": BELIEFS, "counting": counting},
        ),
        "Gibbs.sample": (ff.Gibbs(2, burn_in=0).sample, {**MODEL, "n_samples": 2}),
        "BruteForce.scores": (ff.BruteForce().scores, MODEL),
        "BruteForce.configurations": (ff.BruteForce().configurations, {"graph": GRAPH}),
        "Exact.memory": (ff.Exact().memory, {"graph": GRAPH}),
        "SumProduct.memory": (ff.SumProduct().memory, {"graph": GRAPH}),
        "Bethe.counting_numbers": (ff.Bethe().counting_numbers, {"graph": GRAPH}),
        "Convex.counting_numbers": (ff.Convex().counting_numbers, {"graph": GRAPH}),
        "FactorType.forms": (ff.models.FactorType().forms, {"n_labels": 2}),
        "TreeReweighted.counting_numbers": (ff.TreeReweighted().counting_numbers, {"graph": GRAPH}),
        "LinearResponse.apply": (response.apply, {"change": np.zeros(14)}),
        "LinearResponse.norm": (response.norm, {}),
        "MomentMatching.moments": (
            ff.MomentMatching().moments,
            {"graph": GRAPH, "samples": [[0, 1, 0], [1, 0, 1]]},
        ),
        "MomentMatching.potentials": (
            ff.MomentMatching().potentials,
            {"graph": GRAPH, "moments": BELIEFS},
        ),
    }
    for name, (call, given) in calls.items():
        yield entry_of(name, call, given)


def _solver(name: str, solver: Any) -> Iterator[Entry]:
    model, union = MODEL, UNION
    if name in MATCHINGS:
        graph, potentials = MATCHINGS[name]
        model = {"graph": graph, "potentials": potentials}
        union = {"batch": ff.graph.Batch.of([graph]), "potentials": potentials}
    ignored = () if name in TAKES_INIT else ("init",)
    yield entry_of(f"{name}.run", solver.run, model, *ignored, "weights")
    yield entry_of(f"{name}.run_batch", solver.run_batch, union, *ignored, "weights")


def _structures() -> Iterator[Entry]:
    graph, potentials, batch = ff.FactorGraph, ff.Potentials, ff.graph.Batch
    flat = {"graph": GRAPH, "unary_values": np.zeros(6), "factor_values": np.zeros(8)}
    yield entry_of("FactorGraph", graph, {"cardinalities": [2, 2, 2], "scopes": [(0, 1)]})
    yield entry_of(
        "FactorGraph.from_flat",
        graph.from_flat,
        {"cardinalities": [2, 2], "slot_variables": [0, 1], "arities": [2]},
    )
    yield entry_of("FactorGraph.grid", graph.grid, {"height": 2, "width": 2, "n_labels": 2})
    yield entry_of("FactorGraph.chain", graph.chain, {"n_variables": 3, "n_labels": 2})
    yield entry_of(
        "FactorGraph.from_edges",
        graph.from_edges,
        {"n_variables": 3, "edges": [(0, 1)], "n_labels": 2},
    )
    yield entry_of("FactorGraph.scope", GRAPH.scope, {"factor": 0})
    yield entry_of("FactorGraph.table_shape", GRAPH.table_shape, {"factor": 0})
    yield entry_of("FactorGraph.has_structure_of", GRAPH.has_structure_of, {"other": GRAPH})
    yield entry_of("Potentials", potentials, {"graph": GRAPH})
    yield entry_of("Potentials.from_flat", potentials.from_flat, flat)
    yield entry_of("Potentials.unary", POTENTIALS.unary, {"variable": 0})
    yield entry_of("Potentials.factor", POTENTIALS.factor, {"factor": 0})
    yield entry_of("Potentials.score", POTENTIALS.score, {"labels": [0, 1, 1]})
    yield entry_of("Potentials.dot", POTENTIALS.dot, {"beliefs": BELIEFS})
    yield entry_of("Beliefs", ff.Beliefs, flat)
    labels = {"graph": GRAPH, "labels": [0, 1, 1]}
    yield entry_of("Beliefs.from_labels", ff.Beliefs.from_labels, labels)
    yield entry_of("Batch.of", batch.of, {"graphs": [GRAPH]})
    yield entry_of("Batch.pack", BATCH.pack, {"potentials": [POTENTIALS]})
    yield entry_of("Batch.scores", BATCH.scores, {"potentials": POTENTIALS, "labels": [0, 1, 1]})
    yield entry_of("Batch.split", BATCH.split, {"beliefs": BELIEFS})
    yield entry_of("Beliefs.unary", BELIEFS.unary, {"variable": 0})
    yield entry_of("Beliefs.factor", BELIEFS.factor, {"factor": 0})
    regions = find("RegionGraph")
    yield entry_of("RegionGraph.scope", regions.of(GRAPH).scope, {"region": 0})
    yield entry_of("RegionGraph.of", regions.of, {"graph": GRAPH})
    yield entry_of("RegionGraph.of_batch", regions.of_batch, {"batch": BATCH})
    weights = find("EntropyWeights")
    made = weights.of(ff.TreeReweighted(), GRAPH)
    yield entry_of("EntropyWeights", weights, {"graph": GRAPH})
    yield entry_of("EntropyWeights.of", weights.of, {"entropy": ff.Bethe(), "graph": GRAPH})
    ones = {"graph": GRAPH, "unary_values": np.ones(6), "factor_values": np.ones(8)}
    yield entry_of("EntropyWeights.from_flat", weights.from_flat, ones)
    yield entry_of("EntropyWeights.unary", made.unary, {"variable": 0})
    yield entry_of("EntropyWeights.factor", made.factor, {"factor": 0})
    block = find("Block")
    yield entry_of("Block.unary", block.unary, {"graph": GRAPH}, "name", "variables")
    yield entry_of("Block.tables", block.tables, {"graph": GRAPH}, "name", "factors", "shape")
    template = find("Template")(GRAPH, [block.unary(GRAPH)])
    yield entry_of("Template", find("Template"), {"graph": GRAPH, "blocks": list(template.blocks)})
    yield entry_of("Template.potentials", template.potentials, {"weights": np.zeros(2)})
    yield entry_of("Template.split", template.split, {"weights": np.zeros(2)})
    yield entry_of("Template.gradient", template.gradient, {"vector": POTENTIALS})


def _matchings() -> Iterator[Entry]:
    weights = {"weights": np.zeros((2, 2))}
    for name in ("matching_marginals", "matching_partition", "matching_edges", "matching_graph"):
        yield entry_of(name, find(name), weights, "capacities", "weights")
    yield entry_of(
        "MatchingPolytope",
        find("MatchingPolytope"),
        {"allowed": np.ones((2, 2), bool)},
        "capacities",
    )
    for search in (ff.Assignment(), ff.PerfectMatching()):
        name = type(search).__name__
        yield entry_of(f"{name}.match", search.match, {"weights": np.zeros((2, 2))})
        several = {"weights": [np.zeros((2, 2))]}
        yield entry_of(f"{name}.match_batch", search.match_batch, several)
    yield entry_of("grid_clique_order", ff.inference.grid_clique_order, {"height": 2, "width": 2})


# -- estimators ----------------------------------------------------------------------------------


def _chains() -> tuple[Any, Any]:
    tokens = [{"a": 1.0}, {"b": 1.0}, {"a": 1.0}]
    return [tokens] * 4, [["x", "y", "x"]] * 4


def _grids() -> tuple[Any, Any]:
    Y = np.array([[[0, 1], [1, 0]], [[1, 1], [0, 0]]] * 2)
    return Y + 0.1 * np.arange(16.0).reshape(4, 2, 2), Y


def _graphs() -> tuple[Any, Any]:
    nodes = np.array([[1.0], [0.2], [-1.0]])
    return [(nodes, [(0, 1), (1, 2)])] * 4, [[0, 1, 1]] * 4


def _pairings() -> tuple[Any, Any]:
    X = np.random.default_rng(0).normal(size=(4, 2, 2, 1))
    return list(X), [[0, 1], [1, 0]] * 2


SAMPLES = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0]])
FIELDS = np.array([[0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]).reshape(4, 2, 2)
FIT_OPTIONS: dict[str, dict[str, Any]] = {
    "ChainCRF": {},
    "SkipChainCRF": {"objective": "pseudolikelihood", "skip_edges": "a"},
    "GridCRF": {"objective": "pseudolikelihood"},
    "GraphCRF": {"objective": "pseudolikelihood"},
    "MatchingCRF": {"objective": "likelihood"},
    "IsingModel": {},
    "PottsModel": {},
    "MixtureField": {},
}


@cache
def data_of(name: str) -> dict[str, Any]:
    """Arguments of ``fit``."""
    if name in ("IsingModel", "PottsModel"):
        return {"samples": SAMPLES}
    if name == "MixtureField":
        return {"labels": FIELDS}
    make = {"GridCRF": _grids, "GraphCRF": _graphs, "MatchingCRF": _pairings}
    X, Y = make.get(name, _chains)()
    return {"X": X, "Y": Y}


@cache
def fitted(name: str) -> Any:
    """A small model, which no test changes."""
    return find(name)(**FIT_OPTIONS[name]).fit(**data_of(name))


def _estimators() -> Iterator[Entry]:
    yield entry_of("sequence_weights", find("sequence_weights"), {"samples": SAMPLES})
    truth = ff.Potentials(ff.FactorGraph.grid(2, 2, 2))
    field_model = ff.MixtureField().assume(truth.graph, truth)
    given = {"model": field_model, "Y": np.zeros((2, 4)), "alpha": 0.5, "truth": truth}
    yield entry_of("error_bound", find("error_bound"), given)
    for name in MODELS:
        yield from _estimator(name)


def _estimator(name: str) -> Iterator[Entry]:
    made = find(name)

    def fit_with(**options: Any) -> Any:
        return made(**{**FIT_OPTIONS[name], **options}).fit(**data_of(name))

    def fit(**arguments: Any) -> Any:
        return made(**FIT_OPTIONS[name]).fit(**arguments)

    yield Entry(name, fit_with, inspect.signature(made))
    yield Entry(f"{name}.fit", fit, inspect.signature(made.fit), data_of(name), ("capacities",))
    for method in sorted(vars_of(made)):
        yield Entry(
            f"{name}.{method}",
            _Method(name, method),
            inspect.signature(getattr(made, method)),
            _arguments_of(name, method),
            ("capacities", "ax", "contacts", "Y", "y")
            if method.startswith("plot")
            else ("capacities", "y"),
        )


def vars_of(made: type) -> set[str]:
    """Public methods of an estimator that are fieldfit's own, but ``fit``.

    ``weights_frame`` takes no arguments and needs pandas.
    """
    return {
        name
        for cls in made.__mro__
        if cls.__module__.startswith("fieldfit.")
        for name, found in vars(cls).items()
        if inspect.isfunction(found)
        and not name.startswith("_")
        and name not in ("fit", "weights_frame")
    }


@dataclass(frozen=True)
class _Method:
    """A method of a fitted model, which is fitted when it is first called."""

    model: str
    method: str

    def __call__(self, **arguments: Any) -> Any:
        return getattr(copy(fitted(self.model)), self.method)(**arguments)


def _arguments_of(name: str, method: str) -> dict[str, Any]:
    data = data_of(name)
    if name == "MixtureField":
        observed = {"Y": np.zeros((2, 4)), "alpha": 0.5}
        more = {"sample": {"n_samples": 2}, "assume": {"graph": GRAPH, "potentials": POTENTIALS}}
        more |= {
            "score": {"Z": np.zeros((2, 4)), **observed},
            "save": {"path": in_folder("model.ff")},
            "report": {"path": in_folder("fit.html"), **observed},
            "top_weights": {},
        }
        return more.get(method, observed)
    wanted = inspect.signature(getattr(find(name), method)).parameters
    data = {**data, "path": in_folder("model.ff")}
    return {key: value for key, value in data.items() if key in wanted}


# -- files ---------------------------------------------------------------------------------------


def _files() -> Iterator[Entry]:
    model = {"graph": GRAPH, "potentials": POTENTIALS}
    answer = ff.io.PartitionAnswer(1.0)
    yield entry_of("write_uai", ff.write_uai, {"path": in_folder("model.uai"), **model})
    yield entry_of("write_fg", ff.write_fg, {"path": in_folder("model.fg"), **model})
    yield entry_of(
        "write_evidence",
        ff.io.write_evidence,
        {"path": in_folder("model.evid"), "observed": {0: 1}},
    )
    yield entry_of(
        "write_answer", ff.io.write_answer, {"path": in_folder("model.PR"), "answer": answer}
    )
    yield entry_of("PartitionAnswer", ff.io.PartitionAnswer, {"log10_partition": 1.0})
    yield entry_of("MapAnswer", ff.io.MapAnswer, {"labels": np.array([0, 1])})
    yield entry_of("MarginalAnswer", ff.io.MarginalAnswer, {"marginals": (np.array([0.5, 0.5]),)})
    yield entry_of(
        "MarginalAnswer.from_beliefs", ff.io.MarginalAnswer.from_beliefs, {"beliefs": BELIEFS}
    )
    yield entry_of("format_answer", ff.io.format_answer, {"answer": answer})
    texts = {
        "read_uai": b"MARKOV 1 2 1 1 0 2 1 1",
        "read_fg": b"1\n\n1\n0\n2\n2\n0 1\n1 1\n",
        "read_evidence": b"1 0 1",
        "read_answer": b"PR 1.0",
        "read_samples": b"0,1\n1,0\n",
        "read_fasta": b">a\nAC\n",
        "read_alignment": b">a\nAC\n",
        "read_columns": b"a b\n",
    }
    for name, text in texts.items():
        yield entry_of(name, find(name), {"source": _Text(text)})
    yield entry_of(
        "read_image_archive", ff.io.read_image_archive, {"path": in_folder("pictures.npz")}
    )
    yield entry_of("load", ff.load, {"path": in_folder("model.ff")})


# -- comparisons ---------------------------------------------------------------------------------


def _comparisons() -> Iterator[Entry]:
    X, Y = _grids()
    few = {"methods": ["pseudolikelihood"], "budget": 100.0, "verbose": 0}
    given = {"estimator": ff.GridCRF(max_iter=1), "X": [*X, *X], "Y": [*Y, *Y], **few}
    yield entry_of("compare", ff.compare, given, "folder", "test", "fit_options")
    empty = find("Comparison")(ff.GridCRF(), (), "error", "")
    yield entry_of("Comparison.write", empty.write, {"folder": in_folder("which")})


# -- shards ---------------------------------------------------------------------------------------


def _shards() -> Iterator[Entry]:
    written = {"estimator": ff.GridCRF(), "examples": list(zip(*_grids(), strict=True))}
    signature = inspect.signature(ff.shards.write)
    yield Entry("write", _write_shards, signature, {"folder": "shards", **written})
    yield entry_of("Shards", ff.shards.Shards, {"folder": in_folder("written")})
    yield entry_of("Workers", ff.shards.Workers, {"client": ThreadPoolExecutor(1)})
    yield entry_of("read_answers", _read_answers, {"folder": in_folder("answers")})
    yield entry_of("ShardAnswers.write", _write_answers, {"folder": in_folder("more answers")})
    yield entry_of("Shards.read", _read_shard, {"shard": 0})


def _write_shards(folder: Any, **arguments: Any) -> Any:
    """To a new folder each time, if it is a good one."""
    if isinstance(folder, str) and folder == "shards":
        folder = in_folder(f"shards-{next(_NUMBERS)}")
    return ff.shards.write(folder, **arguments)


_NUMBERS = count()


def _write_answers(folder: Any) -> Any:
    return fitted("GridCRF").predict(_written()).write(folder)


def _read_shard(shard: Any) -> Any:
    return _written().read(shard)


def _written() -> Any:
    return ff.shards.Shards(in_folder("written"))


def _read_answers(folder: Any) -> Any:
    return list(ff.shards.read_answers(folder))


@dataclass(frozen=True)
class _Text:
    """A binary file that can be read again and again."""

    content: bytes

    def read(self) -> bytes:
        return self.content


def write_examples() -> None:
    """Files that the readers of a file name are given."""
    np.savez(in_folder("pictures.npz"), x=np.zeros((1, 2, 2)), y=np.zeros((1, 2, 2), dtype=int))
    fitted("IsingModel").save(in_folder("model.ff"))
    given = zip(*_grids(), strict=True)
    written = ff.shards.write(in_folder("written"), ff.GridCRF(), given)
    fitted("GridCRF").predict(written).write(in_folder("answers"))


def entries() -> list[Entry]:
    """All entry points."""
    return [
        *_options(),
        *_runs(),
        *_structures(),
        *_matchings(),
        *_estimators(),
        *_files(),
        *_comparisons(),
        *_shards(),
    ]


# -- verdicts ------------------------------------------------------------------------------------


def names_argument(message: str, argument: str) -> bool:
    """Whether a sentence names the argument, as a word."""
    return re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", message) is not None
