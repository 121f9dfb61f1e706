"""Every inference and search on random models (`benchmarks.laws` has many more of them)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fieldfit as ff
from benchmarks import laws
from benchmarks.laws import (
    INFERENCES,
    SEARCHES,
    broken_by_inference,
    broken_by_search,
    check_model,
    random_model,
)

N_MODELS, PER_TEST = 2_000, 100


@pytest.mark.parametrize("first", range(0, N_MODELS, PER_TEST))
@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_no_law_is_broken(first):
    broken = [
        f"model {number}: {sentence}"
        for number in range(first, first + PER_TEST)
        for sentence in check_model(0, number)
    ]
    assert broken == []


def test_the_methods_are_those_of_the_package():
    methods = {type(solver).__name__ for solver in (*INFERENCES.values(), *SEARCHES.values())}
    assert {"SumProduct", "InteriorPoint", "Exact", "Map", "LocalSearch"} <= methods


def test_the_checks_can_fail():
    graph, potentials, _ = random_model(0, 3)
    exact = ff.Exact().run(graph, potentials)
    value = exact.log_partition
    assert broken_by_inference(graph, {}, value, exact) is None
    assert "exact does not hold" in broken_by_inference(graph, {}, value + 1.0, exact)
    upper = replace(exact, bound="upper", log_partition=value - 1.0)
    assert "upper does not hold" in broken_by_inference(graph, {}, value, upper)
    lower = replace(exact, bound="lower", log_partition=np.nan)
    assert broken_by_inference(graph, {}, value, lower) == "a bound must be a number"
    best = ff.ExactMap().run(graph, potentials)
    other = best.labels.copy()
    other[0] = (other[0] + 1) % graph.cardinalities[0]
    assert broken_by_search(potentials, {}, best.score, best) is None
    assert "not that of the labels" in broken_by_search(
        potentials, {}, best.score, replace(best, score=best.score + 1.0)
    )
    assert "upper bound" in broken_by_search(
        potentials, {}, best.score, replace(best, upper_bound=best.score - 1.0)
    )
    assert broken_by_search(potentials, {0: int(other[0])}, best.score, best) == (
        "evidence must be kept"
    )


def test_a_run_that_was_stopped_goes_on_after_its_last_block(tmp_path, monkeypatch):
    monkeypatch.setattr(laws, "BLOCK", 2)
    seen = []
    monkeypatch.setattr(laws, "check_model", lambda seed, number: seen.append(number) or ["x: y"])
    path = tmp_path / "folder" / "rows"
    assert len([block for block, _ in zip(laws.run(path, 0, 0, 6), range(2), strict=False)]) == 2
    with path.open("a") as file:
        file.write('{"first": 4, "mod')  # torn by a kill
    done, seen[:] = list(seen), []
    blocks = list(laws.run(path, 0, 0, 7))
    assert [block.first for block in blocks] == [0, 2, 4, 6]
    assert sum(len(block.broken) for block in blocks) == 7
    assert sorted({*done, *seen}) == list(range(7))
    assert not set(seen) & {0, 1, 2, 3}
    with pytest.raises(SystemExit, match="must hold rows of"):
        list(laws.run(path, 1, 0, 2))
