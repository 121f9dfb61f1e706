"""The registry of objectives: one line each, with what each one promises.

A new objective is one line here; the laws of `test_gradients.py` then hold it to its promises on
the problems of `problems.py`, with complete and with missing labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from problems import PROBLEMS
from reference import objectives as twin

import fieldfit as ff
from fieldfit._registry import PUBLIC
from fieldfit.objectives.base import Objective
from fieldfit.objectives.camel import Camel
from fieldfit.objectives.contrastive import ContrastiveFreeEnergy
from fieldfit.objectives.implicit_loss import ImplicitLoss
from fieldfit.objectives.independent import Independent
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.max_margin import MaxMargin, Perceptron
from fieldfit.objectives.mle_struct import MLEStruct
from fieldfit.objectives.moment_matching import MomentMatching
from fieldfit.objectives.piecewise import Piecewise
from fieldfit.objectives.procedural_loss import ProceduralLoss
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood


@dataclass(frozen=True, eq=False)
class Entry:
    """An objective and its promises.

    ``value``: its value by enumeration (``None``: a surrogate).  ``everywhere``: it is defined
    for hard zeros and potentials of any size; otherwise only on ordinary problems.  ``margin``:
    the loss for each wrong variable of a hinge (``None``: smooth).  ``above`` and ``below``: its
    value with complete labels is never below, or never above, that of the likelihood.
    ``unique``: where it starts from does not matter.  ``ties``: it has a kink where two beliefs are
    equal.  ``pairs_only``: factors of three variables, and tables with hard zeros, are refused.
    ``n_differences``: how many derivatives are compared, where an evaluation takes long.
    """

    name: str
    objective: Any
    value: Callable[..., float] | None = None
    everywhere: bool = True
    margin: float | None = None
    above: bool = False
    below: bool = False
    unique: bool = True
    ties: bool = False
    pairs_only: bool = False
    n_differences: int | None = None

    def __str__(self) -> str:
        return self.name

    def covers(self, problem) -> bool:
        if self.pairs_only and (problem.max_arity > 2 or problem.has_table_zeros):
            return False
        return self.everywhere or not (problem.has_zeros or problem.scale > 100)


def pairs_of(graph):
    """Blocks of two neighbours in the order of the variables; the last may be alone."""
    return [np.arange(i, min(i + 2, graph.n_variables)) for i in range(0, graph.n_variables, 2)]


def overlapping(graph):
    """Blocks of three that overlap, and leave out the last variable."""
    return [range(i, i + 3) for i in range(max(graph.n_variables - 3, 0))]


def everything(graph):
    return [range(graph.n_variables)]


def _surrogate(name, inference, **promises):
    return Entry(name, Likelihood(inference), None, everywhere=False, **promises)


def _blocks(name, rule):
    def value(graph, potentials, labels):
        return twin.block_likelihood(graph, potentials, labels, rule(graph))

    # max_missing is above the size of every problem: nothing is left out
    return Entry(name, PseudoLikelihood(blocks=rule, max_missing=20), value)


def _hinge(name, objective, margin):
    def value(graph, potentials, labels):
        return twin.hinge(graph, potentials, labels, margin)

    return Entry(name, objective, value, margin=margin)


def _procedural(loss, entropy, schedule):
    objective = ProceduralLoss(loss, n_sweeps=3, entropy=entropy, schedule=schedule)
    return Entry(f"procedural {loss}", objective, ties=loss.startswith("s"))


def _implicit(loss, entropy, gradient="solve", solver="messages", tol=1e-13):
    objective = ImplicitLoss(
        loss, entropy=entropy, gradient=gradient, solver=solver, tol=tol, max_iter=20_000
    )
    name = f"implicit {loss}" + ", by perturbation" * (gradient == "perturbation")
    name += ", in the primal" * (solver == "primal")
    # the primal is exact in beliefs, not in logarithms of beliefs of 1e-300
    return Entry(name, objective, ties=loss.startswith("s"), everywhere=solver != "primal")


_TIGHT = {"tol": 1e-12, "max_iter": 20_000}

OBJECTIVES = (
    Entry("likelihood", Likelihood(), twin.likelihood, above=True, below=True),
    _surrogate("Bethe", ff.SumProduct(**_TIGHT)),
    _surrogate("tree-reweighted", ff.SumProduct(ff.TreeReweighted(), **_TIGHT), above=True),
    _surrogate(
        "reweighted Kikuchi",
        ff.GeneralizedSumProduct(entropy=ff.HypertreeReweighted(), tol=1e-12, max_iter=20_000),
        above=True,
    ),
    _surrogate("convex", ff.SumProduct(ff.Convex(), **_TIGHT), above=True),
    _surrogate(
        "log-determinant",
        ff.inference.LogDeterminant(tol=1e-12),
        above=True,
        pairs_only=True,
        n_differences=12,
    ),
    _surrogate("mean field", ff.MeanField(**_TIGHT), below=True, unique=False),
    Entry("pseudo-likelihood", PseudoLikelihood(max_missing=20), twin.pseudo_likelihood),
    _blocks("pairs", pairs_of),
    _blocks("overlapping blocks", overlapping),
    _blocks("one block", everything),
    Entry("tree blocks", PseudoLikelihood("tree", max_missing=20)),
    Entry("independent", Independent(), twin.independent),
    Entry("piecewise", Piecewise(), twin.piecewise, above=True),
    Entry("piecewise, shared", Piecewise("shared"), twin.shared_piecewise, above=True),
    Entry("CAMEL(0)", Camel("camel0", tol=1e-12), everywhere=False, above=True),
    Entry("CCCP CAMEL", Camel("cccp", tol=1e-11), everywhere=False),
    Entry(
        "contrast, Bethe",
        ContrastiveFreeEnergy("bethe", n_steps=None),
        everywhere=False,
        unique=False,
    ),
    Entry(
        "contrast, mean field",
        ContrastiveFreeEnergy("mean-field", n_steps=None),
        everywhere=False,
        below=True,
        unique=False,
    ),
    Entry("mle-struct", MLEStruct(), everywhere=False, above=True),
    _implicit("ucl", ff.Convex()),
    _implicit("ccl", ff.Convex(0.5, factor=0.5)),
    _implicit("uquad", ff.TreeReweighted()),
    _implicit("cquad", ff.Convex(unary=0.0)),
    _implicit("suclass", ff.Convex(1.0, factor=1.0)),
    _implicit("scclass", ff.TreeReweighted()),
    _implicit("uquad", ff.Convex(), "perturbation"),
    _implicit("ucl", ff.Convex(0.01, factor=1.0), solver="primal", tol=1e-11),
    _procedural("ucl", ff.Bethe(), "sequential"),
    _procedural("ccl", ff.TreeReweighted(), "flooding"),
    _procedural("uquad", ff.Convex(), "tree"),
    _procedural("cquad", ff.Bethe(), "tree"),
    _procedural("suclass", ff.TreeReweighted(), "sequential"),
    _procedural("scclass", ff.Bethe(), "flooding"),
    Entry(
        "procedural mean field",
        ProceduralLoss("ccl", n_sweeps=3, entropy="mean-field", damping=0.2),
        everywhere=False,
    ),
    Entry("moment matching", MomentMatching(), everywhere=False, above=True),
    _hinge("perceptron", Perceptron(ff.ExactMap()), 0.0),
    _hinge("max-margin", MaxMargin(ff.ExactMap()), 1.0),
)

_LISTED = {type(entry.objective) for entry in OBJECTIVES}
#: What the registry lists and nothing above covers is held to the laws all the same.
OBJECTIVES += tuple(
    Entry(entry.name, entry.load()(), everywhere=False)
    for entry in PUBLIC.values()
    if entry.stored and entry.namespace == "objectives" and issubclass(entry.load(), Objective)
    if entry.load() not in _LISTED and entry.name != "ContrastiveDivergence"  # a random draw
)

_NAMES = (
    "one variable", "chain of five labels", "hypertree", "forest", "zero potentials", "triangle",
    "grid of two labels", "complete graph", "mixed cardinalities", "repeated scopes",
    "isolated variables", "single labels", "arity four", "zeros on a tree", "zeros on a grid",
    "zeros in large factors", "exclusive chain", "parity", "forced labels", "huge range on a tree",
    "huge range with zeros", "huge range on a ring",
)  # fmt: skip

CHOSEN = tuple(problem for problem in PROBLEMS if problem.name in _NAMES)
assert len(CHOSEN) == len(_NAMES)


@cache
def complete_labels(problem):
    """A labelling of positive weight."""
    rng = np.random.default_rng(len(problem.name) + problem.graph.n_slots)
    possible = np.flatnonzero(
        np.isfinite(ff.BruteForce().scores(problem.graph, problem.potentials))
    )
    return ff.BruteForce().configurations(problem.graph)[rng.choice(possible)]


@cache
def partial_labels(problem):
    """The same with some labels missing: at least one, and one is left if there are two."""
    labels = complete_labels(problem).copy()
    rng = np.random.default_rng(7 + len(problem.name))
    missing = rng.random(len(labels)) < 0.4
    missing[rng.integers(len(labels))] = True
    if len(labels) > 1 and missing.all():
        missing[rng.integers(len(labels))] = False
    labels[missing] = -1
    return labels


LABELS = {"complete": complete_labels, "missing": partial_labels}
