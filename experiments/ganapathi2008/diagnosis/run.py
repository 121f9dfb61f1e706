"""Behind table 3 of Ganapathi et al. (2008): why CCCP's weights label superpixels badly.

Rounds are followed on the training pictures: objective, moments, beliefs with the data's moments,
what belief propagation makes of the same weights from a cold and from a warm start, and whether
Bethe's free energy has a minimum at the end.  Then what may help is tried, and what the order of
the methods depends on: how potentials were made, how good the classifier is, how pictures are cut.
Every variant is in the report.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.ganapathi2008.diagnosis.field import (
    Field,
    Precision,
    Round,
    random_beliefs,
    rounds,
    smoothed_labels,
)
from experiments.ganapathi2008.diagnosis.pictures import cut_picture, potentials_of_half
from experiments.ganapathi2008.diagnosis.report import (
    CLASSIFIER,
    Corpus,
    headline,
    objective_chart,
    report,
    table,
)
from experiments.ganapathi2008.methods import camel_objective
from experiments.ganapathi2008.segmentation.classifier import Boosting, Unaries
from experiments.ganapathi2008.segmentation.data import (
    FloatArray,
    Picture,
    halves,
    read_corel,
)
from fieldfit import LBFGS, Convex, Likelihood, Piecewise, SumProduct
from fieldfit.graph import InferenceResult
from fieldfit.learners import Penalty, TemplateProblem
from fieldfit.objectives import Objective


@dataclass(frozen=True)
class Setting:
    """How pictures are cut, what the classifier sees, and whose potentials the field learns from.

    Penalties are those of ``camel-segmentation``: 1 out of fold, 10 in sample.
    """

    cut: Literal["slic", "cuts"]
    classifier: Literal["wide", "narrow"]
    potentials: Literal["in sample", "out of fold"]

    @property
    def l2(self) -> float:
        return 1.0 if self.potentials == "out of fold" else 10.0

    @property
    def classified(self) -> str:
        """Settings with equal names here share a classifier."""
        return f"{self.cut}, {self.classifier}"

    @property
    def name(self) -> str:
        return f"{self.classified}, {self.potentials}"


#: The same where singleton potentials are clusters of their own, beside the edges: the paper does
#: not say what its clusters are.
SINGLETONS: dict[str, Objective] = {
    "piecewise-apart": Piecewise(unary="separate"),
    "camel0-apart": Likelihood(SumProduct(entropy=Convex(unary=1.0), tol=1e-5)),
}
MAIN = ("piecewise", "camel0", "lbp", "cccp", "cccp-printed", *SINGLETONS)
REMEDIES = (
    "cccp-empirical",
    "cccp-random",
    "cccp-precise",
    "cccp-homotopy",
    "camel0-l2",
    "cccp-l2",
    "cccp-long",
)
#: In the order in which they run; the first has the remedies as well.
SETTINGS = (
    Setting("slic", "wide", "out of fold"),
    Setting("slic", "wide", "in sample"),
    Setting("slic", "narrow", "in sample"),
    Setting("cuts", "narrow", "in sample"),
)
#: ``cccp-long`` goes on where ``cccp`` has stopped, for so many times as many rounds, until beliefs
#: move by less than this fraction of the tolerance.
LONGER, TIGHTER = 7, 0.1
#: The penalty of the methods that end with ``-l2``.
LARGE_L2 = 100.0


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    Rounds end when beliefs move by less than ``round_tol``, or after ``max_rounds``; the weights
    after ``early`` rounds have a row of their own, because ``camel-segmentation`` stopped there.
    Beliefs of the rounds ``shown`` are examined on the first half.
    """

    n_images: int = 80
    n_regions: int = 60
    n_halves: int = 3
    n_folds: int = 5
    boosting: Boosting = field(default_factory=lambda: Boosting(n_members=1, n_rounds=40))
    max_rounds: int = 20
    round_tol: float = 1e-3
    early: int = 6
    shown: tuple[int, ...] = (0, 1, 2, 3, 5, 9, 14, 19)
    n_parts: int = 10
    precision: Precision = field(default_factory=Precision)
    precise: Precision = field(
        default_factory=lambda: Precision(tol=1e-7, learner_tol=1e-6, value_tol=1e-9, max_iter=300)
    )
    settings: tuple[Setting, ...] = SETTINGS


FULL = Design()
QUICK = Design(n_images=20, n_regions=40, n_halves=1, n_folds=3, max_rounds=8, n_parts=3)


@dataclass(frozen=True)
class Learned:
    """What a method ends with; the beliefs are those that have the data's moments."""

    weights: FloatArray
    result: InferenceResult | None = None
    n_rounds: int | None = None
    change: float | None = None
    solved: bool | None = None


class Diagnosis(Plan[Design]):
    """A task trains a classifier, or one method of one setting and half."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """``(half, cut and classifier, "classifier alone")`` and ``(half, setting, method)``."""
        found: dict[Task, None] = {}
        for half in range(self.design.n_halves):
            for setting in self.design.settings:
                methods = MAIN + (REMEDIES if setting == self.design.settings[0] else ())
                found[half, setting.classified, CLASSIFIER] = None
                found.update(dict.fromkeys((half, setting.name, method) for method in methods))
        return list(found)

    def run_task(self, task: Task, results: Results) -> Result:
        """Rows of one method; its rounds are a table of their own."""
        half, method = int(task[0]), str(task[2])
        setting = next(one for one in self.design.settings if task[1] in (one.name, one.classified))
        if method == CLASSIFIER:
            return self._classify(half, setting)
        l2 = LARGE_L2 if method.endswith("-l2") else setting.l2
        begin = time.perf_counter()
        known, new = self.kept(
            "fields", (half, setting.name), lambda: self._fields(half, setting, results)
        )
        if method in ("piecewise", "lbp", *SINGLETONS):
            learned = [(method, self._fit(known, method, l2))]
            seen: list[dict[str, Any]] = []
        else:
            learned, seen = self._rounds(half, known, method, l2, task, results)
        seconds = time.perf_counter() - begin
        start = learned[-1][1] if method == "camel0" else None
        if start is None and method != "piecewise":
            start = Learned(results[half, setting.name, "camel0"].arrays["weights"])
        beliefs = (
            None if start is None else [known.concave(start.weights), new.concave(start.weights)]
        )
        common = {"setting": setting.name, "fold": half, "l2": l2, "seconds": seconds}
        rows = [
            {**common, "method": name, **self._row(known, new, one, l2, beliefs)}
            for name, one in learned
        ]
        last = learned[-1][1]
        arrays = {"weights": last.weights}
        if last.result is not None:
            arrays["centre"] = last.result.beliefs.unary_values
        labelled = [
            {"setting": setting.name, "fold": half, "method": method, **one} for one in seen
        ]
        return Result(rows, tables={"rounds": labelled}, arrays=arrays)

    def outcome(self, results: Results) -> Outcome:
        rows, seen = results.rows(), results.table("rounds")
        alone = results.table("classifier")
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, seen, alone, self._corpus()),
            tables={"rounds": seen, "classifier": alone},
            figures={"objective": objective_chart(seen)},
            headline=headline(rows),
        )

    # -- learning -------------------------------------------------------------------------

    def _fit(self, known: Field, method: str, l2: float) -> Learned:
        """A method without rounds."""
        objective = SINGLETONS[method] if method in SINGLETONS else camel_objective(method)
        problem = TemplateProblem(objective, [known.part])
        precision = self.design.precision
        learner = LBFGS(max_iter=60, tol=precision.learner_tol, value_tol=precision.value_tol)
        start = np.zeros(known.template.n_weights)
        fit = learner.minimize(problem, start, penalty=Penalty(l2=l2))
        return Learned(fit.weights, solved=bool(fit.converged))

    def _rounds(
        self, half: int, known: Field, method: str, l2: float, task: Task, results: Results
    ) -> tuple[list[tuple[str, Learned]], list[dict[str, Any]]]:
        """Weights after few and after many rounds, and what was seen on the way."""
        design = self.design
        learned: list[tuple[str, Learned]] = []
        seen: list[dict[str, Any]] = []
        is_long = method == "cccp-long"
        before = design.max_rounds if is_long else 0
        round_tol = design.round_tol * (TIGHTER if is_long else 1.0)
        is_first = half == 0 and method in ("camel0", "cccp", "cccp-homotopy")
        for one in self._sequence(half, known, method, l2, task, results):
            examined = is_first and (method != "cccp-homotopy" or one.part == 1.0)
            details = _seen(known, one, l2, examined and one.number in (*design.shown, 0))
            seen.append(details)
            found = Learned(
                one.weights, one.result, before + one.number + 1, _finite(one.change), one.solved
            )
            if method == "cccp" and one.number + 1 == design.early:
                learned.append(("cccp-early", found))
            is_path = method == "cccp-homotopy" and one.part < 1.0
            if one.change <= round_tol and not is_path:
                break
        return [*learned, (method, found)], seen

    def _sequence(
        self, half: int, known: Field, method: str, l2: float, task: Task, results: Results
    ) -> Iterator[Round]:
        design = self.design
        precision = design.precise if method == "cccp-precise" else design.precision
        if method in ("camel0", "camel0-l2"):
            return rounds(known, l2, [0.0], precision)
        first = {"cccp-l2": "camel0-l2", "cccp-long": "cccp"}.get(method, "camel0")
        stored = results[half, str(task[1]), first].arrays
        weights, centre = stored["weights"], stored["centre"]
        parts = [1.0] * (design.early if method == "cccp-precise" else design.max_rounds)
        if method == "cccp-long":
            parts = parts * LONGER
        if method == "cccp-printed":
            parts = [-1.0] * (design.early + 1)
        if method == "cccp-empirical":
            centre = smoothed_labels(known)
        if method == "cccp-random":
            centre = random_beliefs(known, [self.settings.seed, half])
        if method == "cccp-homotopy":
            path = np.linspace(0.0, 1.0, design.n_parts + 1)[1:-1]
            parts = [*path.tolist(), *[1.0] * max(1, design.max_rounds - len(path))]
        return rounds(known, l2, parts, precision, weights, centre)

    def _row(
        self,
        known: Field,
        new: Field,
        learned: Learned,
        l2: float,
        beliefs: list[InferenceResult] | None,
    ) -> dict[str, Any]:
        """How well weights label, by two ways to predict; and the beliefs that they end with."""
        weights, result = learned.weights, learned.result
        cold = [one.propagate(weights) for one in (known, new)]
        row: dict[str, Any] = {
            "rounds": learned.n_rounds,
            "change": learned.change,
            "solved": learned.solved,
            "accuracy": new.accuracy(cold[1].beliefs),
            "training": known.accuracy(cold[0].beliefs),
            "dominance": known.dominance(cold[0].beliefs),
            "dominance_truth": known.dominance(),
        }
        row.update(dict.fromkeys(("accuracy_loop", "training_loop", "accuracy_concave")))
        if beliefs is not None:
            loops = [
                one.double_loop(weights, start, self.design.max_rounds)
                for one, start in zip((known, new), beliefs, strict=True)
            ]
            row["training_loop"] = known.accuracy(loops[0].beliefs)
            row["accuracy_loop"] = new.accuracy(loops[1].beliefs)
        row["accuracy_concave"] = new.accuracy(new.concave(weights).beliefs)
        names = "matched", "objective", "unmatched", "far_cold", "far_warm", "far_loop", "minima"
        row.update(dict.fromkeys((*names, "better")))
        if result is None:
            return row
        pi = result.beliefs
        warm = known.propagate(weights, result)
        values = [known.value(weights, one) for one in (cold[0].beliefs, warm.beliefs)]
        row.update(
            matched=known.accuracy(pi),
            objective=known.objective(pi, l2),
            unmatched=float(np.abs(known.mismatch(pi) - l2 * weights).max()),
            far_cold=known.distance(pi, cold[0].beliefs),
            far_warm=known.distance(pi, warm.beliefs),
            minima=known.minima(pi),
            better=(values[0] - values[1]) / known.batch.n_examples,
        )
        if beliefs is not None:
            row["far_loop"] = known.distance(pi, loops[0].beliefs)
        return row

    # -- data -----------------------------------------------------------------------------

    @cached_property
    def _photographs(self) -> tuple[list[Any], list[Any]]:
        return read_corel(self.settings.data_folder)

    def _cut(self, cut: str) -> dict[int, Picture]:
        """Superpixels of all photographs that are used, cut in one way."""
        images, truths = self._photographs
        used = {
            int(index)
            for half in range(self.design.n_halves)
            for part in self._indices(half)
            for index in part
        }
        return {
            index: cut_picture(images[index], truths[index], self.design.n_regions, cut)
            for index in sorted(used)
        }

    def _indices(self, half: int) -> tuple[Any, Any]:
        images, _ = self._photographs
        return halves(len(images), self.design.n_images, half, self.settings.seed)

    def _parts(self, half: int, cut: str) -> tuple[list[Picture], list[Picture]]:
        pictures = self.kept(f"pictures, {cut}", None, lambda: self._cut(cut))
        training, test = ([pictures[index] for index in part] for part in self._indices(half))
        return training, test

    def _classify(self, half: int, setting: Setting) -> Result:
        design = self.design
        training, test = self._parts(half, setting.cut)
        seed = self.settings.seed * design.n_halves + half
        unaries = potentials_of_half(
            training, test, setting.classifier, design.boosting, design.n_folds, seed
        )
        row = {
            "setting": setting.classified,
            "fold": half,
            "method": CLASSIFIER,
            "accuracy": _right(unaries.test, test),
            "in_sample": _right(unaries.in_sample, training),
            "out_of_fold": _right(unaries.unseen, training),
        }
        return Result(tables={"classifier": [row]}, arrays=unaries.arrays())

    def _fields(self, half: int, setting: Setting, results: Results) -> tuple[Field, Field]:
        training, test = self._parts(half, setting.cut)
        sizes = [[picture.n_regions for picture in part] for part in (training, test)]
        unaries = Unaries.of_arrays(results[half, setting.classified, CLASSIFIER].arrays, *sizes)
        known = unaries.in_sample if setting.potentials == "in sample" else unaries.unseen
        joined = np.concatenate(known)
        scale = joined.mean(axis=0), joined.std(axis=0)
        return Field(training, known, scale), Field(test, unaries.test, scale)

    def _corpus(self) -> Corpus:
        design = self.design
        training, test = self._parts(0, design.settings[0].cut)
        pictures = [*training, *test]
        n_regions = sum(picture.n_regions for picture in pictures)
        return Corpus(
            n_images=len(pictures),
            n_halves=design.n_halves,
            n_training=len(training),
            n_regions=round(n_regions / len(pictures)),
            degree=2.0 * sum(len(picture.edges) for picture in pictures) / n_regions,
            n_rounds=design.boosting.n_rounds,
            max_rounds=design.max_rounds,
            round_tol=design.round_tol,
            early=design.early,
            n_parts=design.n_parts,
            large_l2=LARGE_L2,
        )


def _seen(known: Field, one: Round, l2: float, examined: bool) -> dict[str, Any]:
    """A row of the table of rounds; beliefs are examined in some of them only."""
    pi, weights = one.result.beliefs, one.weights
    row: dict[str, Any] = {
        "round": one.number,
        "part": one.part,
        "bound": one.bound,
        "objective": known.objective(pi, l2),
        "change": _finite(one.change),
        "unmatched": float(np.abs(known.mismatch(pi) - l2 * weights).max()),
        "iterations": one.n_iter,
        "uncertainty": known.uncertainty(pi),
        "matched": known.accuracy(pi),
    }
    row.update(dict.fromkeys(("minima", "cold", "warm", "far_cold", "far_warm", "better")))
    if examined:
        cold, warm = known.propagate(weights), known.propagate(weights, one.result)
        value = known.value(weights, cold.beliefs) - known.value(weights, warm.beliefs)
        row.update(
            minima=known.minima(pi),
            cold=known.accuracy(cold.beliefs),
            warm=known.accuracy(warm.beliefs),
            far_cold=known.distance(pi, cold.beliefs),
            far_warm=known.distance(pi, warm.beliefs),
            better=value / known.batch.n_examples,
        )
    return row


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _right(potentials: Sequence[FloatArray], pictures: Sequence[Picture]) -> float:
    truth = np.concatenate([picture.labels for picture in pictures])
    return float(np.mean(np.concatenate(list(potentials)).argmax(axis=1) == truth))
