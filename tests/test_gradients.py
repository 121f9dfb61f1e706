"""Laws of every objective on every problem: gradient, value, batches, warm starts, invariance."""

from __future__ import annotations

import numpy as np
import pytest
from objectives import CHOSEN, LABELS, OBJECTIVES, complete_labels
from problems import PROBLEMS
from reference import objectives as twin

import fieldfit as ff
from fieldfit.objectives.likelihood import Likelihood

#: Step of the finite differences: the cubic term is 1e-8 of the gradient's scale, rounding of
#: values of order 1e4 (the problems of huge range) 1e-8 as well.
STEP = 1e-4
CASES = [(entry, problem) for entry in OBJECTIVES for problem in CHOSEN if entry.covers(problem)]

by_case = pytest.mark.parametrize(
    ("entry", "problem"), CASES, ids=[f"{entry}-{problem}" for entry, problem in CASES]
)
by_labels = pytest.mark.parametrize("kind", list(LABELS))
by_entry = pytest.mark.parametrize("entry", OBJECTIVES, ids=str)


def flat(potentials):
    return np.concatenate([potentials.unary_values, potentials.factor_values])


def unflat(graph, vector):
    cut = int(graph.unary_offsets[-1])
    return ff.Potentials.from_flat(graph, vector[:cut].copy(), vector[cut:].copy())


def evaluate(entry, graphs, potentials, labels, init=None):
    batch = ff.graph.Batch.of(graphs)
    joined = np.concatenate(labels).astype(np.int32)
    return entry.objective.evaluate(batch, batch.pack(potentials), joined, init)


def evaluate_all(entry, kind):
    """All problems that an objective covers, as one batch."""
    problems = [p for p in CHOSEN if entry.covers(p)]
    labels = [LABELS[kind](p) for p in problems]
    graphs, potentials = [p.graph for p in problems], [p.potentials for p in problems]
    return problems, labels, evaluate(entry, graphs, potentials, labels)


def differences(entry, problem, labels, entries):
    """Central finite differences in some entries: all the moved potentials as one batch."""
    moved = []
    for z in entries:
        for sign in (1.0, -1.0):
            vector = flat(problem.potentials).copy()
            vector[z] += sign * STEP
            moved.append(unflat(problem.graph, vector))
    graphs, copies = [problem.graph] * len(moved), [labels] * len(moved)
    evaluation = evaluate(entry, graphs, moved, copies)
    assert evaluation.converged_examples.all()
    plus, minus = evaluation.values[::2], evaluation.values[1::2]
    return (plus - minus) / (2 * STEP)


def has_kink(entry, problem, labels):
    """True if a move of the potentials can change the maximiser."""
    if entry.margin is None:
        return entry.ties and problem.name == "zero potentials"
    for found in (
        twin.augmented(problem.graph, problem.potentials, labels, entry.margin),
        twin.scores(problem.graph, problem.potentials, labels),
    ):
        best = np.sort(found)[-2:]
        if len(best) == 2 and best[1] - best[0] < 10 * STEP:
            return True
    return False


@by_labels
@by_case
def test_gradient_is_that_of_the_value(entry, problem, kind):
    labels = LABELS[kind](problem)
    if has_kink(entry, problem, labels):
        pytest.skip("the maximum is not unique")
    _, gradient = entry.objective.value_and_grad(problem.graph, problem.potentials, labels)
    is_finite = np.isfinite(flat(problem.potentials))
    entries = np.flatnonzero(is_finite)
    if entry.n_differences is not None:
        entries = np.random.default_rng(5).permutation(entries)[: entry.n_differences]
    expected = differences(entry, problem, labels, entries)
    actual = flat(gradient)
    assert np.all(actual[~is_finite] == 0.0)  # a hard zero cannot be moved
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(actual[entries], expected, rtol=0, atol=1e-6 * scale)


def test_wrong_gradients_are_found():
    """The check above can fail."""
    (entry,) = (e for e in OBJECTIVES if e.name == "pseudo-likelihood")
    (problem,) = (p for p in CHOSEN if p.name == "triangle")
    labels = complete_labels(problem)
    _, gradient = entry.objective.value_and_grad(problem.graph, problem.potentials, labels)
    wrong = flat(gradient)
    wrong[3] += 2e-6
    expected = differences(entry, problem, labels, range(len(wrong)))
    assert not np.allclose(wrong, expected, rtol=0, atol=1e-6)


@by_labels
@pytest.mark.parametrize("entry", [e for e in OBJECTIVES if e.value is not None], ids=str)
def test_value_is_that_of_enumeration(entry, kind):
    problems, labels, evaluation = evaluate_all(entry, kind)
    for problem, y, value in zip(problems, labels, evaluation.values, strict=True):
        expected = entry.value(problem.graph, problem.potentials, y)
        assert value == pytest.approx(expected, rel=1e-11, abs=1e-10), problem.name


@by_labels
@by_entry
def test_constants_in_a_table_change_nothing(entry, kind):
    """So the gradient of every table sums to zero."""
    problems, labels, evaluation = evaluate_all(entry, kind)
    gradient, graph = evaluation.gradient, evaluation.gradient.graph
    for values, offsets in (
        (gradient.unary_values, graph.unary_offsets),
        (gradient.factor_values, graph.table_offsets),
    ):
        np.testing.assert_allclose(np.add.reduceat(values, offsets[:-1]), 0.0, atol=1e-9)
    rng = np.random.default_rng(0)
    moved = [
        ff.Potentials.from_flat(
            p.graph,
            p.potentials.unary_values
            + np.repeat(rng.normal(size=p.graph.n_variables), np.diff(p.graph.unary_offsets)),
            p.potentials.factor_values
            + np.repeat(rng.normal(size=p.graph.n_factors), np.diff(p.graph.table_offsets)),
        )
        for p in problems
    ]
    again = evaluate(entry, [p.graph for p in problems], moved, labels)
    np.testing.assert_allclose(again.values, evaluation.values, rtol=1e-9, atol=1e-9)
    if entry.margin is None:  # a maximum that is not unique may be another one
        np.testing.assert_allclose(flat(again.gradient), flat(gradient), rtol=0, atol=1e-8)


@by_entry
def test_side_of_the_likelihood(entry):
    problems, labels, evaluation = evaluate_all(entry, "complete")
    for problem, y, value in zip(problems, labels, evaluation.values, strict=True):
        exact = twin.likelihood(problem.graph, problem.potentials, y)
        slack = 1e-9 * max(1.0, abs(exact))
        if entry.above:
            assert value >= exact - slack, problem.name
        if entry.below:
            assert value <= exact + slack, problem.name
        if entry.margin is not None:
            assert value >= -slack, problem.name


# -- batches ------------------------------------------------------------------------------


@by_labels
@by_entry
def test_a_batch_is_its_examples(entry, kind):
    problems = [p for p in PROBLEMS if entry.covers(p) and p.graph.n_variables]
    labels = [LABELS[kind](p) for p in problems]
    evaluation = evaluate(entry, [p.graph for p in problems], [p.potentials for p in problems],
                          labels)  # fmt: skip
    batch = evaluation.gradient.graph
    assert evaluation.values.shape == (len(problems),)
    parts = ff.graph.Batch.of([p.graph for p in problems]).split(evaluation.gradient)
    assert batch.n_variables == sum(p.graph.n_variables for p in problems)
    for problem, y, value, part in zip(problems, labels, evaluation.values, parts, strict=True):
        alone, gradient = entry.objective.value_and_grad(problem.graph, problem.potentials, y)
        assert value == pytest.approx(alone, rel=1e-9, abs=1e-9), problem.name
        if not has_kink(entry, problem, y):
            np.testing.assert_allclose(
                flat(part), flat(gradient), rtol=0, atol=1e-8, err_msg=problem.name
            )


@by_labels
@by_entry
def test_an_earlier_state_changes_nothing(entry, kind):
    """Neither that of other potentials nor that of other labels."""
    if not entry.unique:
        pytest.skip("a start may lead to another local optimum")
    problems = [p for p in CHOSEN if entry.covers(p) and not p.has_zeros]
    graphs = [p.graph for p in problems]
    batch = ff.graph.Batch.of(graphs)
    potentials = batch.pack([p.potentials for p in problems])
    labels = np.concatenate([LABELS[kind](p) for p in problems]).astype(np.int32)
    expected = entry.objective.evaluate(batch, potentials, labels)
    rng = np.random.default_rng(3)
    other = ff.Potentials.from_flat(
        batch.graph,
        potentials.unary_values + 0.1 * rng.normal(size=len(potentials.unary_values)),
        potentials.factor_values + 0.1 * rng.normal(size=len(potentials.factor_values)),
    )
    state = entry.objective.evaluate(batch, other, labels).state
    other_labels = np.where(rng.random(len(labels)) < 0.5, 0, labels).astype(np.int32)
    other_state = entry.objective.evaluate(batch, other, other_labels).state
    for init in (state, other_state):
        again = entry.objective.evaluate(batch, potentials, labels, init)
        np.testing.assert_allclose(again.values, expected.values, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(flat(again.gradient), flat(expected.gradient), atol=1e-7)


@by_entry
def test_no_labels_no_value(entry):
    problems = [p for p in CHOSEN if entry.covers(p)]
    labels = [np.full(p.graph.n_variables, -1) for p in problems]
    evaluation = evaluate(entry, [p.graph for p in problems], [p.potentials for p in problems],
                          labels)  # fmt: skip
    np.testing.assert_allclose(evaluation.values, 0.0, atol=1e-9)
    np.testing.assert_allclose(flat(evaluation.gradient), 0.0, atol=1e-9)


@by_entry
def test_empty_examples(entry):
    empty, chain = ff.FactorGraph([]), ff.FactorGraph.chain(2, 2)
    evaluation = evaluate(
        entry, [empty, chain, empty], [ff.Potentials(g) for g in (empty, chain, empty)],
        [[], [0, 1], []],
    )  # fmt: skip
    alone, _ = entry.objective.value_and_grad(chain, ff.Potentials(chain), [0, 1])
    np.testing.assert_allclose(evaluation.values, [0.0, alone, 0.0], atol=1e-12)


@by_labels
@by_entry
def test_impossible_labels_are_refused(entry, kind):
    """Never an infinite value, never NaN: the error names the example."""
    chain = ff.FactorGraph.chain(4, 2)
    forbids = np.array([[0.0, 0.0], [-np.inf, 0.0]])
    fine, hard = ff.Potentials(chain), ff.Potentials(chain, None, [forbids, None, None])
    if entry.pairs_only:
        hard = ff.Potentials(chain, [[0.0, -np.inf], None, None, None])
    labels = [[0, 0, 0, 0], [1, 0, 0, 0 if kind == "complete" else -1]]
    with pytest.raises(ff.errors.ZeroWeightError) as caught:
        evaluate(entry, [chain, chain], [fine, hard], labels)
    assert "labels must have positive weight, those of example 1 of 2" in str(caught.value)


def test_the_likelihood_of_hidden_variables_can_exceed_nothing():
    """``-log p(observed)`` is never negative, whatever is missing."""
    for problem in CHOSEN:
        labels = LABELS["missing"](problem)
        value, _ = Likelihood().value_and_grad(problem.graph, problem.potentials, labels)
        assert value >= -1e-9
