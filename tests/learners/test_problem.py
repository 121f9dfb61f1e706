"""Problems made of templates: parts, threads, weights of examples, warm starts, fingerprints."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import fieldfit as ff
from fieldfit.errors import InvalidInputError
from fieldfit.graph.template import Block, Template
from fieldfit.learners.problem import Part, ProblemValue, TemplateProblem, total
from fieldfit.objectives.base import Evaluation
from fieldfit.objectives.likelihood import Likelihood

N_FEATURES, N_LABELS = 3, 2
TRW = ff.SumProduct(entropy=ff.TreeReweighted(), tol=1e-10)


@dataclass(frozen=True)
class Example:
    graph: ff.FactorGraph
    features: np.ndarray
    labels: np.ndarray


def make_examples(n_examples, seed=0, missing=0.0):
    """Grids of several sizes with noisy features of their labels."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(n_examples):
        graph = ff.FactorGraph.grid(int(rng.integers(2, 4)), int(rng.integers(2, 5)), N_LABELS)
        labels = rng.integers(0, N_LABELS, graph.n_variables)
        features = rng.normal(size=(graph.n_variables, N_FEATURES))
        features[:, 0] += labels
        labels[rng.random(graph.n_variables) < missing] = -1
        examples.append(Example(graph, features, labels.astype(np.int32)))
    return examples


def make_part(examples, example_weights=None, sparse=False):
    batch = ff.graph.Batch.of([example.graph for example in examples])
    features = np.concatenate([example.features for example in examples])
    blocks = [
        Block.unary(batch.graph, csr_matrix(features) if sparse else features),
        Block.tables(batch.graph, "symmetric"),
    ]
    labels = np.concatenate([example.labels for example in examples])
    return Part(batch, Template(batch.graph, blocks), labels, example_weights)


def make_problem(examples, n_parts=1, n_jobs=None, inference=TRW, example_weights=None):
    chosen = np.array_split(np.arange(len(examples)), n_parts)
    parts = [
        make_part(
            [examples[m] for m in rows],
            None if example_weights is None else np.asarray(example_weights, float)[rows],
        )
        for rows in chosen
    ]
    return TemplateProblem(Likelihood(inference), parts, n_jobs)


def some_weights(problem, seed=0):
    return 0.3 * np.random.default_rng(seed).normal(size=problem.n_weights)


def assert_same(first: ProblemValue, second: ProblemValue, tol=0.0):
    np.testing.assert_allclose(first.value, second.value, rtol=tol)
    np.testing.assert_allclose(first.gradient, second.gradient, rtol=tol, atol=tol)
    assert (first.n_unconverged, first.n_examples) == (second.n_unconverged, second.n_examples)


# -- parts and threads --------------------------------------------------------------------


@pytest.mark.parametrize("inference", [TRW, ff.Exact()], ids=["trw", "exact"])
def test_threads_do_not_change_a_bit(inference):
    examples = make_examples(11, missing=0.2)
    one = make_problem(examples, 4, 1, inference)
    several = [make_problem(examples, 4, n_jobs, inference) for n_jobs in (2, 3, -1)]
    for seed in range(3):  # the second and third evaluation start from the messages of the last
        weights = some_weights(one, seed)
        expected = one.evaluate(weights)
        for problem in several:
            assert_same(problem.evaluate(weights), expected)


def test_parts_add_up_to_one_batch():
    examples = make_examples(9, missing=0.3)
    whole, cut = make_problem(examples), make_problem(examples, 4)
    weights = some_weights(whole)
    assert_same(cut.evaluate(weights), whole.evaluate(weights), tol=1e-9)
    parts = [cut.evaluate_part(weights, part) for part in range(cut.n_parts)]
    assert [given.n_examples for given in parts] == [3, 2, 2, 2]
    assert_same(total(parts), whole.evaluate(weights), tol=1e-9)
    assert cut.n_parts == 4
    assert (whole.n_weights, whole.is_smooth) == (N_FEATURES * N_LABELS + 3, True)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_gradient_against_differences(missing):
    problem = make_problem(
        make_examples(5, missing=missing), 2, inference=replace(TRW, tol=1e-13),
        example_weights=[1.0, 0.5, 2.0, 0.0, 1.5],
    )  # fmt: skip
    weights = some_weights(problem)
    gradient = problem.evaluate(weights).gradient
    step = 1e-5
    for index in range(problem.n_weights):
        moved = np.zeros_like(weights)
        moved[index] = step
        slope = problem.evaluate(weights + moved).value - problem.evaluate(weights - moved).value
        assert gradient[index] == pytest.approx(slope / (2 * step), rel=1e-6, abs=1e-7)


# -- weights of examples ------------------------------------------------------------------


def test_weights_of_examples_are_repetitions():
    examples = make_examples(4, missing=0.2)
    counts = [2, 0, 1, 3]
    repeated = [
        example for example, count in zip(examples, counts, strict=True) for _ in range(count)
    ]
    weighted = make_problem(examples, 2, example_weights=counts)
    weights = some_weights(weighted)
    found, expected = weighted.evaluate(weights), make_problem(repeated).evaluate(weights)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-9)
    np.testing.assert_allclose(found.gradient, expected.gradient, atol=1e-9)
    assert found.n_examples == 4


def test_unit_weights_change_nothing():
    examples = make_examples(4)
    weights = some_weights(make_problem(examples))
    assert_same(
        make_problem(examples, example_weights=np.ones(4)).evaluate(weights),
        make_problem(examples).evaluate(weights),
    )


# -- warm starts --------------------------------------------------------------------------


@dataclass(frozen=True)
class Counting:
    """An inference that notes how many sweeps it took."""

    inference: ff.SumProduct
    sweeps: list

    def run_batch(self, batch, potentials, observed=None, init=None):
        result = self.inference.run_batch(batch, potentials, observed=observed, init=init)
        self.sweeps.append(result.n_iter)
        return result


def test_evaluations_start_from_the_last_messages():
    counting = Counting(TRW, [])
    problem = make_problem(make_examples(6), inference=counting)
    weights = some_weights(problem)
    cold = problem.evaluate(weights)
    again = problem.evaluate(weights)
    assert_same(again, cold, tol=1e-7)
    assert counting.sweeps[1] < counting.sweeps[0] / 2
    problem.reset_warm_start()
    assert_same(problem.evaluate(weights), cold)
    assert counting.sweeps[2] == counting.sweeps[0]


def test_each_part_has_its_own_messages():
    counting = Counting(TRW, [])
    problem = make_problem(make_examples(6), 2, inference=counting)
    weights = some_weights(problem)
    first = problem.evaluate_part(weights, 0)
    cold = counting.sweeps[-1]
    problem.evaluate_part(weights, 1)
    assert_same(problem.evaluate_part(weights, 0), first, tol=1e-7)
    assert counting.sweeps[-1] < cold / 2


def test_inference_that_stops_early_is_counted():
    examples = make_examples(6)
    problem = make_problem(examples, 3, inference=ff.SumProduct(max_iter=1))
    found = problem.evaluate(some_weights(problem))
    assert found.n_unconverged == 6
    assert make_problem(examples).evaluate(some_weights(problem)).n_unconverged == 0


# -- the rest -----------------------------------------------------------------------------


@dataclass(frozen=True)
class OnlyGradient(Likelihood):
    """Has no value, like contrastive divergence."""

    def evaluate(self, batch, potentials, labels, init=None):
        found = super().evaluate(batch, potentials, labels, init)
        return Evaluation(None, found.gradient, found.converged_examples, found.state)


def test_a_sum_has_a_value_only_if_all_parts_have():
    examples = make_examples(3)
    problem = TemplateProblem(OnlyGradient(), [make_part(examples[:1]), make_part(examples[1:])])
    weights = some_weights(problem)
    known = make_problem(examples, inference=ff.Exact()).evaluate(weights)
    found = problem.evaluate(weights)
    assert found.value is None
    np.testing.assert_allclose(found.gradient, known.gradient, atol=1e-12)
    assert total([found, known]).value is None
    assert total([known, known]).value == 2 * known.value


def test_the_fingerprint_is_that_of_the_data():
    examples = make_examples(4)
    prints = {make_problem(examples).fingerprint(), make_problem(examples, n_jobs=2).fingerprint()}
    assert len(prints) == 1
    other = make_examples(4)
    other[1].labels[0] = 1 - other[1].labels[0]
    features = make_examples(4)
    features[2].features[1, 1] += 1e-12
    prints |= {
        make_problem(other).fingerprint(),
        make_problem(features).fingerprint(),
        make_problem(examples, 2).fingerprint(),
        make_problem(examples, example_weights=np.ones(4)).fingerprint(),
        make_problem(examples, inference=ff.Exact()).fingerprint(),
        make_problem(examples, inference=ff.SumProduct(tol=1e-5)).fingerprint(),
        TemplateProblem(Likelihood(TRW), [make_part(examples, sparse=True)]).fingerprint(),
    }
    assert len(prints) == 8


def test_sparse_features_are_dense_ones():
    examples = make_examples(4)
    dense = make_problem(examples)
    sparse = TemplateProblem(Likelihood(TRW), [make_part(examples, sparse=True)])
    weights = some_weights(dense)
    assert_same(sparse.evaluate(weights), dense.evaluate(weights), tol=1e-10)


def test_bad_arguments():
    with pytest.raises(InvalidInputError, match="parts must hold at least one group of examples"):
        TemplateProblem(Likelihood(), [])
    with pytest.raises(InvalidInputError, match="n_jobs must not be 0"):
        make_problem(make_examples(1), n_jobs=0)
    problem = make_problem(make_examples(1))
    with pytest.raises(InvalidInputError, match=r"weights must have shape \(9,\), got \(2,\)"):
        problem.evaluate(np.zeros(2))
