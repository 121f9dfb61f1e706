"""Gibbs sampling (Markov chain Monte Carlo) with a systematic scan, colour by colour.

Each sweep draws every variable from ``p(y_i | others) ∝ exp(th_i(y_i) + sum_{a on i} th_a)``.
Unary beliefs average these conditional distributions over sweeps and chains (Rao-Blackwell),
factor beliefs count configurations.  The chain never leaves the possible configurations; with
hard zeros single-variable moves may not reach all of them, which chains from different starting
points show as a large split R-hat.

References: Geman and Geman, "Stochastic relaxation, Gibbs distributions, and the Bayesian
restoration of images", PAMI 6, 1984; Liu, Wong and Kong, Biometrika 81, 1994 (averaging
conditionals is never worse than counting, for two-block chains).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import plain_array
from fieldfit._parallel import n_threads, require_jobs
from fieldfit._random_state import random_generator, require_random_state
from fieldfit._typing import IntArray, LabelArray
from fieldfit._validation import require_integer
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials, observed_labels, require_graph
from fieldfit.graph.ragged import expand, reduce_rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.base import Evidence, GraphInference, Progress
from fieldfit.inference.conditioning import GeneralModel, condition, feasible_labels, sweep_form
from fieldfit.inference.gibbs.gibbs_chains import (
    MAX_SPLIT_R_HAT,
    ChainRunner,
    CountHistory,
    Mixing,
    new_record,
)
from fieldfit.inference.gibbs.gibbs_sweeps import Chains, Record
from fieldfit.inference.mean_field.mean_field import product_bound

__all__ = ["Gibbs", "gibbs_sweeps"]

#: Rule of thumb for ``converged``: standard errors of frequencies are then at most 0.05.
MIN_EFFECTIVE_SAMPLE_SIZE = 100.0

NO_START = "a search within its budget found no configuration of positive weight"


@dataclass(frozen=True, kw_only=True)
class Gibbs(GraphInference):
    """Markov chain Monte Carlo by single-variable updates.

    Parameters
    ----------
    n_sweeps
        Recorded sweeps of each chain.
    burn_in
        Sweeps of each chain before recording.
    random_state
        Seed: an integer, a NumPy generator or ``None``.  Results depend on it alone, not on
        ``n_jobs``.  With an integer, every example of a batch is sampled as it would be alone,
        hence with the same random numbers as the others.
    n_chains
        Chains from independent random starting points.
    n_jobs
        Threads; 1 if ``None``.  They split the chains, or the colours of one large graph
        when there are fewer chains than threads.

    Notes
    -----
    ``log_partition`` is not an estimate: sampling gives none cheaply.  It is the better of two
    proved lower bounds, the mean-field bound at the product of the sampled marginals and the
    score of the best final configuration, and may be far below the true value.

    ``converged`` is a rule of thumb: every variable has a split R-hat of at most 1.05 and an
    effective sample size of at least 100.  ``residual`` is the largest standard error of a
    label's frequency.  ``diagnostics`` holds both figures for every variable.

    Examples
    --------
    >>> graph = FactorGraph.chain(2, 2)
    >>> result = Gibbs(n_sweeps=200, burn_in=10, random_state=0).run(graph, Potentials(graph))
    >>> result.converged, result.bound
    (True, 'lower')
    """

    n_sweeps: int = field(default=1000, kw_only=False)
    burn_in: int = 100
    random_state: int | np.random.Generator | None = None
    n_chains: int = 4
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        require_integer("n_sweeps", self.n_sweeps, at_least=1)
        require_integer("burn_in", self.burn_in, at_least=0)
        require_integer("n_chains", self.n_chains, at_least=1)
        require_random_state(self.random_state)
        require_jobs(self.n_jobs)

    def run_graph(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        observed: LabelArray,
        init: InferenceResult | ArrayLike | None,
        progress: Progress | None,
    ) -> InferenceResult:
        """Sampled beliefs; ``progress`` is told (sweeps, inf): errors are known at the end.

        ``init`` is a labelling, one for each chain, or an earlier result of this class; labels
        of -1, and labels that evidence or hard zeros rule out, are chosen at random.
        """
        model, colors = condition(graph, potentials, observed)
        generator = random_generator(self.random_state)
        labels = _starting_labels(graph, model, self.n_chains, init, generator)
        if labels is None:
            return _no_start(graph, potentials, model)
        chains = Chains(labels, _keys(generator, self.n_chains))
        threads = n_threads(self.n_jobs)
        record = new_record(graph, self.n_chains, threads)
        history = CountHistory(record.label_counts, self.n_sweeps)
        with ChainRunner(graph, sweep_form(graph, model), colors, chains, threads) as runner:
            for done in range(0, self.burn_in, history.batch_length):
                runner.advance(done)  # in parts, so that the user may interrupt
                if progress is not None:
                    progress(done, np.inf)
            runner.advance(self.burn_in)
            for done in history.stops():
                runner.advance(self.burn_in + done, record)
                history.note(done)
                if progress is not None:
                    progress(self.burn_in + done, np.inf)
        return self._result(graph, potentials, chains, record, history.mixing())

    def sample(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        n_samples: int,
        n_sweeps_between: int = 1,
        observed: Evidence = None,
        init: InferenceResult | ArrayLike | None = None,
    ) -> IntArray:
        """Configurations, shape (n_samples, n_variables), ``n_sweeps_between`` sweeps apart.

        The chains take turns: rows ``c``, ``c + n_chains``, ... come from chain ``c``, which has
        made ``burn_in`` sweeps before its first row (``n_sweeps`` is not used).
        """
        require_integer("n_samples", n_samples, at_least=0)
        require_integer("n_sweeps_between", n_sweeps_between, at_least=1)
        require_graph(graph, potentials)
        model, colors = condition(graph, potentials, observed)
        generator = random_generator(self.random_state)
        labels = _starting_labels(graph, model, self.n_chains, init, generator)
        if labels is None:
            raise InvalidInputError(f"init must be given: {NO_START}")
        chains = Chains(labels, _keys(generator, self.n_chains))
        samples = np.empty((n_samples, graph.n_variables), dtype=np.int32)
        form = sweep_form(graph, model)
        with ChainRunner(graph, form, colors, chains, n_threads(self.n_jobs)) as runner:
            done = self.burn_in
            for first in range(0, n_samples, self.n_chains):
                runner.advance(done)
                block = samples[first : first + self.n_chains]
                block[:] = labels[: len(block)]
                done += n_sweeps_between
        return samples

    def _result(
        self,
        graph: FactorGraph,
        potentials: Potentials,
        chains: Chains,
        record: Record,
        mixing: Mixing,
    ) -> InferenceResult:
        n_draws = self.n_chains * self.n_sweeps
        # the conditionals add up to one only up to rounding
        unary, offsets = record.conditional_sums.sum(axis=0), graph.unary_offsets
        unary /= expand(reduce_rows(np.add, unary, offsets), offsets)
        factors = record.factor_counts.sum(axis=0, dtype=np.int64) / n_draws
        values, _ = product_bound(Batch.of([graph]), potentials, unary)
        scores = [potentials.score(labels) for labels in chains.labels]
        sizes = reduce_rows(np.minimum, mixing.effective_sample_sizes, offsets)
        ratios = reduce_rows(np.maximum, mixing.split_r_hats, offsets)
        smallest = float(sizes.min(initial=n_draws))
        largest = float(ratios.max(initial=1.0))
        residual = float(mixing.standard_errors().max(initial=0.0))
        converged = largest <= MAX_SPLIT_R_HAT and smallest >= MIN_EFFECTIVE_SAMPLE_SIZE
        status = (
            f"{'mixed' if converged else 'not mixed'} after {self.n_sweeps} sweeps of "
            f"{self.n_chains} chains: smallest effective sample size {smallest:.0f} (at least "
            f"{MIN_EFFECTIVE_SAMPLE_SIZE:.0f} wanted), largest split R-hat {largest:.3f} (at most "
            f"{MAX_SPLIT_R_HAT} wanted); log_partition is a lower bound, not an estimate"
        )
        log_partition = max(float(values[0]), *scores)
        return InferenceResult(
            beliefs=Beliefs(graph, unary, factors),
            log_partition=log_partition,
            bound="lower",
            converged=converged,
            n_iter=self.burn_in + self.n_sweeps,
            residual=residual,
            status=status,
            method="Gibbs",
            log_partitions=np.array([log_partition]),
            converged_examples=np.array([converged]),
            diagnostics={
                "effective_sample_sizes": sizes,
                "min_effective_sample_size": smallest,
                "split_r_hats": ratios,
                "max_split_r_hat": largest,
            },
            state=chains.labels,
        )


def gibbs_sweeps(
    graph: FactorGraph,
    potentials: Potentials,
    labels: ArrayLike,
    n_sweeps: int,
    random_state: int | np.random.Generator | None = None,
    observed: Evidence = None,
    n_jobs: int | None = None,
) -> IntArray:
    """``n_sweeps`` sweeps of one chain from each row of ``labels``; the new labels.

    ``labels`` has shape (n_variables,) or (n_chains, n_variables), complete and of positive
    weight; variables in ``observed`` are set to their evidence first and stay there.
    """
    threads = n_threads(n_jobs)
    require_integer("n_sweeps", n_sweeps, at_least=0)
    model, colors = condition(graph, potentials, observed)
    start = _label_rows("labels", graph, labels, least=0)
    evidence = observed_labels(graph, observed)
    start[:, evidence >= 0] = evidence[evidence >= 0]
    for row in range(len(start)):
        if potentials.score(start[row]) == -np.inf:
            raise InvalidInputError(
                f"labels must have positive weight, got weight zero in row {row}"
            )
    chains = Chains(start, _keys(random_generator(random_state), len(start)))
    with ChainRunner(graph, sweep_form(graph, model), colors, chains, threads) as runner:
        runner.advance(n_sweeps)
    return start.reshape(np.shape(labels))


# -- starting points ----------------------------------------------------------------------


def _keys(generator: np.random.Generator, n_chains: int) -> NDArray[np.uint64]:
    return generator.integers(2**64, size=n_chains, dtype=np.uint64)


def _label_rows(name: str, graph: FactorGraph, labels: ArrayLike, least: int) -> IntArray:
    """Checked labels, one row for each chain (a new array)."""
    array = plain_array(name, labels)
    rows = array[None] if array.ndim == 1 else array
    wrong_type = bool(array.size) and array.dtype.kind not in "iu"
    if rows.ndim != 2 or rows.shape[1] != graph.n_variables or wrong_type:
        raise InvalidInputError(
            f"{name} must be integers of shape ({graph.n_variables},) or "
            f"(n_chains, {graph.n_variables}), got dtype {array.dtype} and shape {array.shape}"
        )
    bad = np.argwhere((rows < least) | (rows >= graph.cardinalities))
    if len(bad):
        row, variable = bad[0]
        raise InvalidInputError(
            f"{name}: the label of variable {variable} must be in "
            f"{least}..{graph.cardinalities[variable] - 1}, got {rows[row, variable]}"
        )
    return np.array(rows, dtype=np.int32, order="C")


def _starting_labels(
    graph: FactorGraph,
    model: GeneralModel,
    n_chains: int,
    init: InferenceResult | ArrayLike | None,
    generator: np.random.Generator,
) -> IntArray | None:
    """A possible configuration for each chain, random but for ``init``; ``None`` if none found."""
    given: Any = init.state if isinstance(init, InferenceResult) else init
    if given is None:
        rows = np.full((1, graph.n_variables), -1, dtype=np.int32)
    else:
        rows = _label_rows("init", graph, given, least=-1)
    if len(rows) not in (1, n_chains):
        raise InvalidInputError(f"init must have 1 or {n_chains} rows, got {len(rows)}")
    labels = np.empty((n_chains, graph.n_variables), dtype=np.int32)
    found: list[int] = []
    for chain in range(n_chains):
        row = rows[chain % len(rows)]
        preference = generator.random(len(model.unary))
        wanted = np.flatnonzero(row >= 0)
        preference[graph.unary_offsets[wanted] + row[wanted]] = 2.0  # above every random one
        possible = feasible_labels(model, preference)
        if possible is not None:
            labels[chain] = possible
            found.append(chain)
    if n_chains and not found:
        return None
    for chain in set(range(n_chains)) - set(found):
        labels[chain] = labels[found[chain % len(found)]]
    return labels


def _no_start(graph: FactorGraph, potentials: Potentials, model: GeneralModel) -> InferenceResult:
    """The result when no chain could start: beliefs say only which labels may be possible."""
    unary, offsets = (model.unary > -np.inf).astype(np.float64), graph.unary_offsets
    unary /= expand(reduce_rows(np.add, unary, offsets), offsets)
    _, factors = product_bound(Batch.of([graph]), potentials, unary)
    return InferenceResult(
        beliefs=Beliefs(graph, unary, factors),
        log_partition=-np.inf,
        bound=None,
        converged=False,
        n_iter=0,
        residual=np.inf,
        status=f"did not start: {NO_START}; give one as init",
        method="Gibbs",
        log_partitions=np.array([-np.inf]),
        converged_examples=np.array([False]),
    )
