"""The seven methods of Welling and Sutton (2005), and what their training costs.

Likelihood methods run their inference from the same start at every evaluation, as in the paper
(messages of 1, uniform beliefs), or from where the last one ended.  Every method predicts with
the inference of its free energy.  Seconds depend on the machine and on how well a method is
programmed; so *messages* are counted, too: vectors over the labels of a variable that a factor
sends to it, in propagation, in a sweep of mean field, or in one evaluation of a free energy with
its slopes, which needs the same vectors.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.seminar_mails import Example, in_matrices, split_mails
from fieldfit import (
    ContrastiveFreeEnergy,
    ConvergenceWarning,
    FactorGraph,
    InferenceResult,
    Likelihood,
    MeanField,
    Potentials,
    SumProduct,
)
from fieldfit.graph import Batch
from fieldfit.inference import Inference
from fieldfit.objectives import Evaluation, Objective

LabelArray = NDArray[np.int32]
#: Whether tokens are in the name of a speaker.
Decisions = NDArray[np.bool_]

#: Names of the methods in ``results.csv``, in the order of the paper's table: the number of steps,
#: and the family of free energies.
CONTRASTIVE: Mapping[str, tuple[int, str]] = {
    "CF5-bethe": (5, "bethe"),
    "CF10-bethe": (10, "bethe"),
    "CF15-bethe": (15, "bethe"),
    "CF500-bethe": (500, "bethe"),
    "CF10-mf": (10, "mean-field"),
}
METHODS = (*CONTRASTIVE, "ML-mf", "ML-bp")

#: Of messages and beliefs in learning: the library's default.
LEARNING_TOL = 1e-6
#: Propagation on spanning trees, as in the paper.
BELIEF_PROPAGATION = SumProduct(schedule="tree", tol=LEARNING_TOL)
#: Damped parallel updates; the paper's factor of 0.1 is the share of the new belief.  After 200 the
#: start has a share of 1e-9; mails that oscillate, or are slow for another reason, are cut there.
MEAN_FIELD = MeanField(update="parallel", damping=0.9, tol=LEARNING_TOL, max_iter=200)


@dataclass
class Meter:
    """What evaluations cost so far: examples that were evaluated, and messages."""

    n_examples: int = 0
    n_messages: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, n_examples: int, n_messages: int) -> None:
        """Called from the threads of a learner."""
        with self._lock:
            self.n_examples += n_examples
            self.n_messages += n_messages


@dataclass(frozen=True)
class MeteredInference:
    """An inference that is counted, and forgets where it ended the last time unless told so."""

    inference: SumProduct | MeanField
    meter: Meter = field(repr=False)
    warm_start: bool = False

    def run_batch(
        self,
        batch: Batch,
        potentials: Potentials,
        observed: dict[int, int] | ArrayLike | None = None,
        init: InferenceResult | None = None,
    ) -> InferenceResult:
        """A run from the beginning, whatever ``init`` is, or from there."""
        start = init if self.warm_start else None
        result = self.inference.run_batch(batch, potentials, observed, start)
        swept = result.n_iter * batch.graph.n_slots
        self.meter.add(batch.n_examples, result.diagnostics.get("n_messages", swept))
        return result


@dataclass(frozen=True)
class MeteredContrast(ContrastiveFreeEnergy):
    """A contrastive free energy that is counted, and predicts as the likelihood of its family."""

    meter: Meter = field(default_factory=Meter, repr=False)

    def prediction(self, graph: FactorGraph) -> Inference:
        """Propagation, or mean field."""
        return MEAN_FIELD if self.family == "mean-field" else BELIEF_PROPAGATION

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """The same, and the messages that it took."""
        found = super().evaluate(batch, potentials, labels, init)
        self.meter.add(batch.n_examples, found.state.n_messages)
        return found


def contrastive_objective(method: str, meter: Meter, *, warm_start: bool = False) -> Objective:
    """The objective of one of `METHODS`; what it costs goes to the meter.

    ``warm_start`` lets the inference of a likelihood begin where it ended the last time.
    """
    if method in CONTRASTIVE:
        n_steps, family = CONTRASTIVE[method]
        return MeteredContrast(family, n_steps=n_steps, meter=meter)  # type: ignore[arg-type]
    if method == "ML-mf":
        return Likelihood(MeteredInference(MEAN_FIELD, meter, warm_start))
    if method == "ML-bp":
        return Likelihood(MeteredInference(BELIEF_PROPAGATION, meter, warm_start))
    raise ValueError(f"method must be one of {METHODS}, got {method!r}")


@dataclass(frozen=True)
class Training:
    """A fitted estimator, and how its training went.

    ``evaluations`` of value and gradient on all mails; ``messages`` that these needed.
    """

    estimator: Any
    seconds: float
    processor_seconds: float
    evaluations: int
    messages: int

    def columns(self) -> dict[str, Any]:
        """The columns of ``results.csv`` that say how a training went."""
        return {
            "seconds": self.seconds,
            "processor_seconds": self.processor_seconds,
            "converged": bool(self.estimator.converged_),
            "n_iter": int(self.estimator.n_iter_),
            "evaluations": self.evaluations,
            "messages": self.messages,
        }


def train(
    make: Callable[[Objective], Any],
    method: str,
    examples: Sequence[Any],
    labels: Sequence[Any],
    *,
    warm_start: bool = False,
) -> Training:
    """Fit one method; ``make`` builds the estimator for an objective.

    Non-convergence is part of the findings: it is kept in the result instead of a warning.
    """
    meter = Meter()
    estimator = make(contrastive_objective(method, meter, warm_start=warm_start))
    begin, busy = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(examples, labels)
    return Training(
        estimator,
        seconds=time.perf_counter() - begin,
        processor_seconds=time.process_time() - busy,
        evaluations=round(meter.n_examples / len(examples)),
        messages=meter.n_messages,
    )


def predict_speakers(estimator: Any, examples: Sequence[Any]) -> Decisions:
    """The labels of all tokens of all mails; what has not converged is counted, not told."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.concatenate(estimator.predict(examples)).astype(bool)


def token_scores(true: Decisions, guess: Decisions) -> dict[str, float]:
    """F1, precision and recall of the tokens of speakers (0 where there is nothing to count).

    >>> scores = token_scores(np.array([True, True, False]), np.array([True, False, False]))
    >>> round(scores["f1"], 3), scores["precision"], scores["recall"]
    (0.667, 1.0, 0.5)
    """
    n_right, n_true, n_guessed = int((true & guess).sum()), int(true.sum()), int(guess.sum())
    return {
        "f1": 2.0 * n_right / max(n_true + n_guessed, 1),
        "precision": n_right / max(n_guessed, 1),
        "recall": n_right / max(n_true, 1),
    }


# -- which words are linked ---------------------------------------------------------------

#: The method that compares rules for links, on the 2-clique model: the one that trains fastest.
CHOOSER = "CF5-bethe"
#: One of so many training mails is held out for that.
SHARE = 4


def choose_links(
    make: Callable[[Objective], Any],
    examples: Mapping[int, Sequence[Example]],
    labels: list[list[int]],
    test: slice,
    min_count: int,
) -> tuple[int, list[dict[str, Any]]]:
    """The best of some rules for links, and the token F1 of each; test mails are not looked at.

    ``examples`` are all mails under each rule: the largest number of equal words that are linked
    pair by pair.  A quarter of the training mails is held out, the rest is learned from.  Ties go
    to the first rule.
    """
    known = labels[: test.start] + labels[test.stop :]
    held_out = slice(0, len(known) // SHARE)
    found = []
    for rule, mails in examples.items():
        training = [*mails[: test.start], *mails[test.stop :]]
        split = in_matrices(split_mails(training, known, held_out, min_count))
        trained = train(make, CHOOSER, split.training, split.training_labels)
        true = np.concatenate(split.test_labels).astype(bool)
        guess = predict_speakers(trained.estimator, split.test)
        found.append({"max_links": rule, "f1": token_scores(true, guess)["f1"]})
    best = max(found, key=lambda row: row["f1"])
    return int(best["max_links"]), found
