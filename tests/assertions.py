"""What beliefs and results must satisfy; `test_assertions.py` shows that each check can fail."""

from __future__ import annotations

from dataclasses import fields

import numpy as np


def assert_distributions(beliefs, *, atol=1e-12):
    """Every variable's and every factor's belief is finite, non-negative and sums to one."""
    graph = beliefs.graph
    for kind, values, offsets in (
        ("variable", beliefs.unary_values, graph.unary_offsets),
        ("factor", beliefs.factor_values, graph.table_offsets),
    ):
        assert np.isfinite(values).all(), f"a {kind} belief is not finite"
        assert (values >= 0).all(), f"a {kind} belief is negative: {values.min()}"
        if len(offsets) > 1:
            sums = np.add.reduceat(values, offsets[:-1])
            worst = int(np.argmax(np.abs(sums - 1)))
            assert abs(sums[worst] - 1) <= atol, f"{kind} {worst} sums to {sums[worst]}"


def consistency_error(beliefs):
    """Largest difference between a margin of a factor and the belief of its variable."""
    graph = beliefs.graph
    worst = 0.0
    for a in range(graph.n_factors):
        table, scope = beliefs.factor(a), graph.scope(a)
        for position, i in enumerate(scope):
            others = tuple(p for p in range(len(scope)) if p != position)
            worst = max(worst, float(np.abs(table.sum(axis=others) - beliefs.unary(i)).max()))
    return worst


def assert_locally_consistent(beliefs, *, atol=1e-6):
    error = consistency_error(beliefs)
    assert error <= atol, f"a margin of a factor is {error} away from its variable"


def belief_distance(first, second):
    """Largest difference of an entry, over variables and factors."""
    return max(
        float(np.abs(first.unary_values - second.unary_values).max(initial=0.0)),
        float(np.abs(first.factor_values - second.factor_values).max(initial=0.0)),
    )


def assert_same_beliefs(first, second, *, atol):
    assert first.unary_values.shape == second.unary_values.shape
    assert first.factor_values.shape == second.factor_values.shape
    distance = belief_distance(first, second)
    assert distance <= atol, f"beliefs differ by {distance}"


def assert_close(value, expected, *, atol, rtol=1e-13):
    """Scalars: ``atol``, and for large values the rounding of their own sums."""
    assert np.isfinite(value), f"got {value}"
    assert abs(value - expected) <= atol + rtol * abs(expected), f"{value} is not {expected}"


def assert_bound(kind, value, exact, *, slack=1e-9):
    """``value`` lies on the promised side of ``exact``; ``slack`` is relative above one."""
    margin = slack * max(1.0, abs(exact)) if np.isfinite(exact) else 0.0
    assert kind in ("upper", "lower", "exact"), kind
    if kind in ("upper", "exact"):
        assert value >= exact - margin, f"{value} is below {exact}"
    if kind in ("lower", "exact"):
        assert value <= exact + margin, f"{value} is above {exact}"


def assert_no_nan(result):
    """No field of a result holds NaN, and the log-partition is finite."""
    assert np.isfinite(result.log_partition), f"log_partition is {result.log_partition}"
    for name, values in _numbers(result):
        assert not np.isnan(values).any(), f"{name} holds NaN"


def _numbers(result):
    for item in fields(result):
        value = getattr(result, item.name)
        if isinstance(value, float | np.ndarray) and np.asarray(value).dtype.kind == "f":
            yield item.name, np.asarray(value)
        elif isinstance(value, tuple):
            for part in value:
                yield item.name, np.asarray(part)
    yield "beliefs", result.beliefs.unary_values
    yield "beliefs", result.beliefs.factor_values
