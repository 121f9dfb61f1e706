r"""Sweeps that stall under a concave entropy: when to stop, how to finish, what is still proved.

Near the maximum sweeps gain a constant factor each, and with strong couplings that factor is close
to one.  The maximum of a concave entropy is unique, so that another method may finish: the
interior-point method (`interior_point`), whose multipliers ``lam`` make the messages

    m_ai = c_a log sum_{y_a \ y_i} exp((th_a + sum_j lam_aj) / c_a) - lam_ai

of the same fixed point.  A run that has not converged still has an upper bound, by `split_dual` at
``lam_ai = c_a log tau_i - m_ai``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fieldfit._typing import BoolArray, FloatArray, LongArray
from fieldfit.entropy.entropy_split import EntropySplit, split_entropy
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs
from fieldfit.graph.ragged import expand, ranges, reduce_rows, rows
from fieldfit.graph.result import InferenceResult
from fieldfit.inference.convex.convex_problem import ConvexProblem
from fieldfit.inference.convex.interior_point import interior_point
from fieldfit.inference.convex.split_dual import messages_of_multipliers, split_dual_values
from fieldfit.inference.messages.message_arrays import Model, State
from fieldfit.inference.second_order.kkt_pattern import batch_pattern

if TYPE_CHECKING:
    from fieldfit.entropy.counting_numbers import CountingNumbers

__all__ = ["StallWatch", "finish_stalled", "upper_bounds"]

#: Sweeps before the first forecast: what converges by then is left alone.
MIN_SWEEPS = 64
#: An interior-point run from there costs about as much as this many sweeps, times the root of the
#: number of variables: on a grid that is how factors of its system grow, compared with messages.
SWEEPS_OF_FINISH = 3.0
#: Iterations of the interior-point method.
MAX_ITERATIONS = 100
#: Variables of one example, and of all together, for which the reduced KKT system is tried.
MAX_VARIABLES = 50_000
MAX_ALL_VARIABLES = 500_000


class StallWatch:
    """Forecasts, from how beliefs came to agree, how many sweeps are still to come."""

    def __init__(self, tol: float, batch: Batch) -> None:
        self._tol = tol
        n_variables = np.diff(batch.variable_offsets).max(initial=1)
        self._finish = SWEEPS_OF_FINISH * float(np.sqrt(n_variables))
        self._last: tuple[int, float] | None = None

    def stalls(self, n_sweeps: int, disagreement: float, n_left: int) -> bool:
        """True if the rest would take longer than another method, or than is allowed."""
        before, self._last = self._last, (n_sweeps, disagreement)
        if before is None or n_sweeps < MIN_SWEEPS:
            return False
        gain = np.log(max(before[1], 1e-300) / max(disagreement, 1e-300))
        rate = gain / max(1, n_sweeps - before[0])
        needed = np.log(max(disagreement, 1e-300) / self._tol)
        return bool(needed > rate * min(self._finish, n_left))


def finish_stalled(
    batch: Batch,
    counting: CountingNumbers,
    model: Model,
    state: State,
    beliefs: Beliefs,
    unfinished: BoolArray,
    tol: float,
) -> int:
    """Messages of the maximum for some examples, put into the state; iterations, or 0 if refused.

    Refused are systems that are too large to be factorised.
    """
    chosen = np.flatnonzero(unfinished)
    sizes = np.diff(batch.variable_offsets)[chosen]
    split = split_entropy(batch.graph, counting)
    if sizes.max(initial=0) > MAX_VARIABLES or sizes.sum() > MAX_ALL_VARIABLES or split is None:
        return 0
    part = batch if len(chosen) == batch.n_examples else Batch.of([batch.graphs[m] for m in chosen])
    if not batch_pattern(part).is_direct:
        return 0
    graph, factors = part.graph, rows(batch.factor_offsets, chosen)
    # labels that messages have excluded stay excluded
    unary = np.where(np.isneginf(state.log_belief), -np.inf, model.unary)
    problem = ConvexProblem(
        part,
        unary[rows(batch.unary_offsets, chosen)],
        model.log_table[rows(batch.table_offsets, chosen)],
        expand(counting.variable[rows(batch.variable_offsets, chosen)], graph.unary_offsets),
        expand(model.factor_weight[factors], graph.table_offsets),
    )
    own = _restricted(split, batch, chosen)
    start = Beliefs(
        graph,
        beliefs.unary_values[rows(batch.unary_offsets, chosen)],
        beliefs.factor_values[rows(batch.table_offsets, chosen)],
    )
    init = InferenceResult(start, 0.0, None, False, 0, np.inf, "")
    found = interior_point(problem, own, tol, MAX_ITERATIONS, init)
    messages = messages_of_multipliers(
        graph, problem.tables, model.factor_weight[factors], found.multipliers
    )
    tops = reduce_rows(np.maximum, messages, graph.message_offsets)
    messages -= expand(np.where(np.isfinite(tops), tops, 0.0), graph.message_offsets)
    np.maximum(messages, model.floor, out=messages, where=messages > -np.inf)
    state.message[rows(batch.message_offsets, chosen)] = messages
    return found.n_iter


def upper_bounds(
    batch: Batch, counting: CountingNumbers, model: Model, state: State
) -> FloatArray | None:
    """Upper bounds on the maximum, by example, at messages of any quality.

    ``None`` if the entropy has no split.  Constants of factors of arity zero are left out.
    """
    split = split_entropy(batch.graph, counting)
    if split is None:
        return None
    graph = batch.graph
    entries = ranges(graph.unary_offsets[graph.slot_variables], np.diff(graph.message_offsets))
    weights = expand(model.factor_weight[graph.slot_factors], graph.message_offsets)
    possible = np.isfinite(state.message) & np.isfinite(state.log_belief[entries])
    multipliers = np.full(len(weights), -np.inf)
    np.subtract(weights * state.log_belief[entries], state.message, out=multipliers, where=possible)
    return split_dual_values(batch, model.unary, model.log_table, split, multipliers)


def _restricted(split: EntropySplit, batch: Batch, chosen: LongArray) -> EntropySplit:
    """The split of some examples."""
    factors = rows(batch.factor_offsets, chosen)
    slots = rows(batch.graph.scope_offsets[batch.factor_offsets], chosen)
    return EntropySplit(
        split.factor[factors],
        split.variable[rows(batch.variable_offsets, chosen)],
        split.slot[slots],
        split.factor_total[factors],
    )
