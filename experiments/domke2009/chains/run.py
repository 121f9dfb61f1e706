"""Losses on exact chains: what is to be made small when the model is wrong.

Beliefs of a chain are exact after one sweep up and down, so nothing is approximate here but the
model itself.  Three sources of sequences, all losses, learning curves.  Reference: Domke, thesis
(2009), section 3.7.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.domke2009.chains.data import SOURCES, Sequences, draw_sequences
from experiments.domke2009.chains.report import curves, headline, report, table
from fieldfit import LBFGS, FactorGraph, Likelihood, ProceduralLoss, PseudoLikelihood, SumProduct
from fieldfit.graph import Batch, Block, Template
from fieldfit.learners import Part, Penalty, TemplateProblem
from fieldfit.objectives import MarginalLoss, Objective

FloatArray = NDArray[np.float64]

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
#: Losses on test sequences, beside their likelihood; for a variable or a pair.
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


class Chains(Plan[Design]):
    """A task is one size of one draw of one source, with all methods."""

    full, quick = FULL, QUICK

    def tasks(self) -> Sequence[Task]:
        """Sources, draws and numbers of training sequences."""
        design = self.design
        return [
            (source, repeat, n_train)
            for source in SOURCES
            for repeat in range(design.n_repeats)
            for n_train in design.n_train
        ]

    def run_task(self, task: Task, results: Results) -> Result:
        """A row for each method."""
        source, repeat, n_train = str(task[0]), int(task[1]), int(task[2])
        drawn = self.kept("drawn", task[:2], lambda: self._draw(source, repeat))
        largest = max(self.design.n_train)
        test = self.kept("test", task[:2], lambda: chain_part(drawn[largest:]))
        rows = []
        for row in _rows(chain_part(drawn[:n_train]), test, self.design):
            row |= {"data": source, "n_train": n_train, "repeat": repeat}
            rows.append({column: row[column] for column in COLUMNS})
        return Result(rows)

    def outcome(self, results: Results) -> Outcome:
        rows = results.rows()
        return Outcome(
            rows=rows,
            table=table(rows),
            report=report(rows, self.design),
            figures={"curves": curves(rows)},
            headline=headline(rows),
        )

    def warm_up(self) -> None:
        """One iteration of every method."""
        part = chain_part(self._draw(next(iter(SOURCES)), 0))
        for name in self.design.methods:
            problem = TemplateProblem(METHODS[name], [part])
            LBFGS(max_iter=1).minimize(problem, np.zeros(problem.n_weights))

    def _draw(self, source: str, repeat: int) -> Sequences:
        rng = np.random.default_rng([self.settings.seed, list(SOURCES).index(source), repeat])
        count = max(self.design.n_train) + self.design.n_test
        return draw_sequences(source, count, self.design.length, rng)


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
        with threadpool_limits(limits=1, user_api="blas"):
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
