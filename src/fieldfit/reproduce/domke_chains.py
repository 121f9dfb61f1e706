"""Losses on exact chains: what is to be made small when the model is wrong.

Beliefs of a chain are exact after one sweep up and down, so nothing is approximate here but the
model itself.  Three sources of sequences, all losses, learning curves.  Reference: Domke, thesis
(2009), section 3.7.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from fieldfit._parallel import one_blas_thread
from fieldfit._typing import FloatArray
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.template import Block, Template
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.learners.base import Penalty
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.learners.problem import Part, TemplateProblem
from fieldfit.objectives.base import Objective
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.marginal_losses import MarginalLoss
from fieldfit.objectives.procedural_loss import ProceduralLoss
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood
from fieldfit.reproduce._base import Outcome, Settings
from fieldfit.reproduce._domke_chains_data import SOURCES, Sequences, draw_sequences
from fieldfit.reproduce._domke_chains_report import curves, headline, report, table

__all__ = ["FULL", "METHODS", "QUICK", "Design", "run", "run_design"]


#: Exact on a chain: one sweep is one pass up and one down.
EXACT = SumProduct(schedule="tree")
#: The method whose weights all others start from.
LIKELIHOOD = "cl"
#: Abbreviations of table 3.1 of the thesis.
METHODS: dict[str, Objective] = {
    LIKELIHOOD: Likelihood(EXACT),
    "pseudo": PseudoLikelihood(),
    **{
        name: ProceduralLoss(loss, n_sweeps=1, schedule="tree")
        for name, loss in (
            ("ucl", "ucl"),
            ("ccl", "ccl"),
            ("uquad", "uquad"),
            ("cquad", "cquad"),
            ("s.uclass", "suclass"),
            ("s.cclass", "scclass"),
        )
    },
}
#: What test sequences are judged by, beside their likelihood; for a variable or a pair.
SCORES = ("uclass", "cclass", "ucl", "ccl", "uquad", "cquad")
COLUMNS = ("method", "data", "n_train", "repeat", *SCORES, "cl", "seconds", "converged")


@dataclass(frozen=True)
class Design:
    """Size of the experiment.

    ``n_repeats`` draws of sequences of a ``length``; ``n_train`` of them train, ``n_test`` test.
    """

    length: int = 50
    n_train: tuple[int, ...] = (1, 2, 5, 10, 20, 50)
    n_test: int = 200
    n_repeats: int = 100
    methods: tuple[str, ...] = tuple(METHODS)
    l2: float = 0.1
    max_iter: int = 200


FULL = Design()
QUICK = Design(n_train=(2, 10, 50), n_repeats=4)


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce domke-chains``."""
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """Every method on every source and size."""
    rows: list[dict[str, Any]] = []
    total = len(SOURCES) * design.n_repeats * len(design.n_train) * len(design.methods)
    for number, source in enumerate(SOURCES):
        for repeat in range(design.n_repeats):
            rng = np.random.default_rng([settings.seed, number, repeat])
            largest = max(design.n_train)
            drawn = draw_sequences(source, largest + design.n_test, design.length, rng)
            test = chain_part(drawn[largest:])
            if not rows:
                _compile(design, test)
            for n_train in design.n_train:
                settings.progress(len(rows), total, f"{source}, {n_train} sequences")
                train = chain_part(drawn[:n_train])
                for row in _rows(train, test, design):
                    row |= {"data": source, "n_train": n_train, "repeat": repeat}
                    rows.append({column: row[column] for column in COLUMNS})
    settings.progress(total, total, "done")
    return Outcome(
        rows=rows,
        table=table(rows),
        report=report(rows, design),
        figures={"curves": curves(rows)},
        headline=headline(rows),
    )


def chain_part(sequences: Sequences) -> Part:
    """Chains with a table of label and what is seen, and one table for all pairs."""
    count, length = sequences.labels.shape
    batch = Batch.of([FactorGraph.chain(length, 2)] * count)
    seen = np.eye(2)[sequences.seen.ravel()]
    blocks = [Block.unary(batch.graph, seen), Block.tables(batch.graph, name="pairs")]
    return Part(batch, Template(batch.graph, blocks), sequences.labels.ravel())


def _rows(train: Part, test: Part, design: Design) -> list[dict[str, Any]]:
    rows = []
    start = np.zeros(train.template.n_weights)
    for name in design.methods:
        problem = TemplateProblem(METHODS[name], [train])
        began = time.perf_counter()
        with one_blas_thread():
            fit = LBFGS(max_iter=design.max_iter).minimize(
                problem,
                start,
                penalty=Penalty(l2=design.l2),
            )
        seconds = time.perf_counter() - began
        if name == LIKELIHOOD:  # convex, as pseudo-likelihood is, whose start does not matter
            start = fit.weights
        row: dict[str, Any] = {"method": name, "seconds": seconds, "converged": fit.converged}
        rows.append(row | _scores(test, fit.weights))
    return rows


def _scores(part: Part, weights: FloatArray) -> dict[str, float]:
    """Means over the variables or the pairs of all sequences; likelihood for a variable."""
    potentials = part.template.potentials(weights)
    beliefs = EXACT.run_batch(part.batch, potentials).beliefs
    graph = part.batch.graph
    scores = {}
    for name in SCORES:
        values = MarginalLoss(name).values(part.batch, beliefs, part.labels)
        count = graph.n_factors if name.startswith("c") else graph.n_variables
        scores[name] = float(values.sum() / count)
    likelihoods = Likelihood(EXACT).evaluate(part.batch, potentials, part.labels).values
    assert likelihoods is not None
    scores["cl"] = float(likelihoods.sum() / graph.n_variables)
    return scores


def _compile(design: Design, part: Part) -> None:
    """Every kernel once, so that seconds are seconds of learning."""
    for name in design.methods:
        problem = TemplateProblem(METHODS[name], [part])
        LBFGS(max_iter=1).minimize(problem, np.zeros(problem.n_weights))
