"""The fast path of chains: value, gradient, marginals and Viterbi against enumeration and twins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.learners.problem import TemplateProblem
from fieldfit.models.chain import chain_tokens as _chain_tokens
from fieldfit.models.chain.chain_features import TokenFeatures
from fieldfit.models.chain.chain_layout import build_layout
from fieldfit.models.chain.chain_parts import chain_parts
from fieldfit.models.chain.chain_problem import ChainProblem
from fieldfit.models.chain.chain_tokens import EncodedTokens
from fieldfit.models.chain.sparse_scores import LIST, ROW, SINGLE
from fieldfit.objectives.likelihood import Likelihood
from tests.reference import chain as twin


def random_features(rng, n_sequences, n_attributes, *, longest=6, valued=False, most=5):
    """Sequences of 0 to ``longest`` tokens with up to ``most`` attributes each."""
    lengths = rng.integers(0, longest + 1, n_sequences)
    lengths[0] = longest
    counts = rng.integers(0, most + 1, int(lengths.sum()))
    total = int(counts.sum())
    return TokenFeatures(
        sequence_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        indices=rng.integers(0, n_attributes, total).astype(np.int32),
        values=rng.normal(size=total) if valued else np.zeros(0),
        n_attributes=n_attributes,
    )


def random_case(seed, n_labels, *, missing=0.0, valued=False, n_sequences=7, longest=6, **layout):
    rng = np.random.default_rng(seed)
    features = random_features(rng, n_sequences, 30, longest=longest, valued=valued)
    labels = rng.integers(0, n_labels, features.n_tokens).astype(np.int32)
    chosen = build_layout(features, labels, n_labels, **layout)
    labels[rng.random(features.n_tokens) < missing] = -1
    return rng, features, labels, chosen


def sequences(features):
    bounds = features.sequence_offsets
    return [(a, b) for a, b in itertools.pairwise(bounds) if b > a]


def central_difference(problem, weights, step=1e-5):
    numeric = np.empty_like(weights)
    for k in range(len(weights)):
        moved = weights.copy()
        moved[k] += step
        above = problem.evaluate(moved).value
        moved[k] -= 2 * step
        numeric[k] = (above - problem.evaluate(moved).value) / (2 * step)
    return numeric


# -- value and gradient -----------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.5])
@pytest.mark.parametrize("boundary", [False, True])
def test_value_and_marginals_equal_enumeration(missing, boundary):
    rng, features, labels, layout = random_case(
        0, 3, missing=missing, valued=True, longest=4, boundary=boundary
    )
    weights = rng.normal(size=layout.n_weights)
    scores = twin.token_scores(layout, features, weights)
    table = twin.transitions(layout, weights)
    tokens = EncodedTokens.of(layout, features)
    marginals = tokens.marginals(weights, None)
    expected = 0.0
    for a, b in sequences(features):
        free, beliefs, _, _ = twin.enumerate_chain(scores[a:b], table)
        expected += free - twin.enumerate_chain(scores[a:b], table, labels[a:b])[0]
        np.testing.assert_allclose(marginals[a:b], beliefs, atol=1e-12)
    assert ChainProblem(tokens, labels).evaluate(weights).value == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("valued", [False, True])
def test_gradient_equals_finite_differences(missing, valued):
    rng, features, labels, layout = random_case(1, 5, missing=missing, valued=valued, boundary=True)
    problem = ChainProblem(
        EncodedTokens.of(layout, features),
        labels,
        sequence_weights=rng.uniform(0.5, 2.0, len(features.sequence_offsets) - 1),
    )
    weights = rng.normal(size=layout.n_weights)
    np.testing.assert_allclose(
        problem.evaluate(weights).gradient,
        central_difference(problem, weights),
        rtol=1e-6,
        atol=1e-7,
    )


@pytest.mark.parametrize("n_labels", [2, 4, 9, 70])
@pytest.mark.parametrize("missing", [0.0, 0.4, 1.0])
def test_value_equals_twin(n_labels, missing):
    rng, features, labels, layout = random_case(n_labels, n_labels, missing=missing)
    weights = rng.normal(size=layout.n_weights)
    found = ChainProblem(EncodedTokens.of(layout, features), labels).evaluate(weights)
    expected = twin.value(layout, features, labels, weights)
    assert found.value == pytest.approx(expected, rel=1e-10, abs=1e-10)
    assert found.n_unconverged == 0


@pytest.mark.parametrize("scale", [50.0, 800.0])
@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_extreme_scores_stay_exact(scale, missing):
    """Beyond the range of doubles the sums run over logarithms; nothing is lost."""
    rng, features, labels, layout = random_case(3, 4, missing=missing, boundary=True)
    weights = rng.choice([-scale, scale], layout.n_weights)
    tokens = EncodedTokens.of(layout, features)
    found = ChainProblem(tokens, labels).evaluate(weights)
    assert found.value == pytest.approx(twin.value(layout, features, labels, weights), rel=1e-12)
    assert np.isfinite(found.gradient).all()
    scores, table = twin.token_scores(layout, features, weights), twin.transitions(layout, weights)
    marginals = tokens.marginals(weights, None)
    for a, b in sequences(features):
        np.testing.assert_allclose(
            marginals[a:b], twin.forward_backward(scores[a:b], table)[1], atol=1e-9
        )


def test_a_path_that_is_negligible_at_first_is_not_lost():
    """Label 1 is e^-650 at the first token, but the only one that goes on cheaply."""
    features = TokenFeatures(
        np.array([0, 4]), np.arange(5), np.array([0, 1, 1, 1], np.int32), np.zeros(0), 2
    )
    labels = np.array([0, 1, 1, 1], np.int32)
    layout = build_layout(
        features, labels, 2, all_possible_states=True, all_possible_transitions=True
    )
    for penalty in (-300.0, -600.0):
        state = np.array([0.0, -650.0, 0.0, 0.0])
        weights = np.concatenate([state, [penalty, 2 * penalty, 2 * penalty, 0.0]])
        tokens = EncodedTokens.of(layout, features)
        found = ChainProblem(tokens, labels).evaluate(weights).value
        expected = twin.value(layout, features, labels, weights)
        assert found == pytest.approx(expected, rel=1e-12)


def test_weights_beyond_all_range_give_infinity_not_nan():
    rng, features, labels, layout = random_case(4, 3)
    found = ChainProblem(EncodedTokens.of(layout, features), labels).evaluate(
        rng.choice([-1e308, 1e308], layout.n_weights)
    )
    assert found.value == np.inf
    assert np.isfinite(found.gradient).all()


# -- two paths, threads, groups -----------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("boundary", [False, True])
def test_general_path_gives_the_same(missing, boundary):
    rng, features, labels, layout = random_case(5, 6, missing=missing, boundary=boundary)
    tokens = EncodedTokens.of(layout, features)
    sequence_weights = rng.uniform(0.5, 2.0, tokens.n_sequences)
    weights = rng.normal(size=layout.n_weights)
    fast = ChainProblem(tokens, labels, sequence_weights=sequence_weights).evaluate(weights)
    parts = chain_parts(tokens, labels, sequence_weights, batch_size=3)
    assert len(parts) > 1
    general = TemplateProblem(Likelihood(Exact()), parts).evaluate(weights)
    assert fast.value == pytest.approx(general.value, rel=1e-9)
    np.testing.assert_allclose(fast.gradient, general.gradient, rtol=1e-9, atol=1e-9)


def test_threads_do_not_change_a_bit():
    rng, features, labels, layout = random_case(6, 9, missing=0.2, n_sequences=60, longest=20)
    tokens = EncodedTokens.of(layout, features)
    weights = rng.normal(size=layout.n_weights)
    results = [
        ChainProblem(tokens, labels, n_jobs=n_jobs, batch_size=7).evaluate(weights)
        for n_jobs in (None, 2, 5)
    ]
    assert ChainProblem(tokens, labels, batch_size=7).n_parts == 9
    for found in results[1:]:
        assert found.value == results[0].value
        assert np.array_equal(found.gradient, results[0].gradient)
    np.testing.assert_array_equal(tokens.marginals(weights, 3), tokens.marginals(weights, None))


def test_parts_add_up_and_evaluations_repeat():
    rng, features, labels, layout = random_case(7, 4, n_sequences=20)
    problem = ChainProblem(EncodedTokens.of(layout, features), labels, batch_size=6, n_jobs=2)
    weights = rng.normal(size=layout.n_weights)
    whole = problem.evaluate(weights)
    parts = [problem.evaluate_part(weights, part) for part in range(problem.n_parts)]
    assert whole.n_examples == sum(part.n_examples for part in parts) == 20
    assert whole.value == pytest.approx(sum(part.value for part in parts), rel=1e-13)
    np.testing.assert_allclose(whole.gradient, sum(p.gradient for p in parts), atol=1e-12)
    assert np.array_equal(problem.evaluate(weights).gradient, whole.gradient)


def test_a_failing_worker_leaves_nobody_waiting(monkeypatch):
    rng, features, labels, layout = random_case(8, 3, n_sequences=20)
    problem = ChainProblem(EncodedTokens.of(layout, features), labels, batch_size=4, n_jobs=3)
    weights = rng.normal(size=layout.n_weights)
    before = problem.evaluate(weights)
    work = problem._group

    def fail(model, group, scratch):
        if group == 1:
            raise MemoryError
        return work(model, group, scratch)

    monkeypatch.setattr(problem, "_group", fail)
    with pytest.raises(MemoryError):
        problem.evaluate(weights)
    monkeypatch.undo()
    assert np.array_equal(problem.evaluate(weights).gradient, before.gradient)


def test_every_way_to_serve_an_attribute_gives_the_same(monkeypatch):
    """Rows, lists and single weights are three routes to one sum."""
    rng, features, labels, layout = random_case(9, 70, valued=True, n_sequences=10)
    weights = rng.normal(size=layout.n_weights)
    found = []
    for row_bytes in (0, 10 * 8 * layout.width, 2**20):
        monkeypatch.setattr(_chain_tokens, "ROW_BYTES", row_bytes)
        tokens = EncodedTokens.of(layout, features)
        found.append((set(tokens.states.kinds.tolist()), ChainProblem(tokens, labels)))
    assert [kinds for kinds, _ in found] == [{LIST, SINGLE}, {ROW, LIST, SINGLE}, {ROW, SINGLE}]
    first, *others = [problem.evaluate(weights) for _, problem in found]
    for other in others:
        assert other.value == pytest.approx(first.value, rel=1e-13)
        np.testing.assert_allclose(other.gradient, first.gradient, atol=1e-12)


def test_fingerprint_tells_data_apart():
    _, features, labels, layout = random_case(10, 3)
    tokens = EncodedTokens.of(layout, features)
    same = ChainProblem(tokens, labels, n_jobs=2).fingerprint()
    assert same == ChainProblem(tokens, labels).fingerprint()
    changed = labels.copy()
    changed[0] = -1
    assert ChainProblem(tokens, changed).fingerprint() != same


# -- decoding and layout ------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 900.0])
def test_viterbi_equals_enumeration(scale):
    rng, features, _, layout = random_case(11, 4, longest=5, boundary=True)
    weights = scale * rng.normal(size=layout.n_weights)
    scores, table = twin.token_scores(layout, features, weights), twin.transitions(layout, weights)
    tokens = EncodedTokens.of(layout, features)
    labels, best = tokens.best_labels(weights, 2)
    for sequence, (a, b) in enumerate(
        zip(features.sequence_offsets, features.sequence_offsets[1:], strict=False)
    ):
        if b == a:
            assert best[sequence] == 0.0
            continue
        _, _, expected, score = twin.enumerate_chain(scores[a:b], table)
        assert best[sequence] == pytest.approx(score, rel=1e-12)
        assert labels[a:b].tolist() == expected.tolist()


def test_layout_has_the_pairs_that_occur():
    features = TokenFeatures(
        np.array([0, 2, 3]),
        np.array([0, 2, 3, 4]),
        np.array([0, 1, 1, 2], np.int32),
        np.zeros(0),
        3,
    )
    labels = np.array([1, 0, 0], np.int32)
    layout = build_layout(features, labels, 2)
    assert layout.state_offsets.tolist() == [0, 1, 3, 4]
    assert layout.state_labels.tolist() == [1, 0, 1, 0]
    assert layout.transitions.tolist() == [[-1, -1], [0, -1]]
    assert build_layout(features, labels, 2, min_freq=2).n_weights == 0
    every = build_layout(
        features, labels, 2, all_possible_states=True, all_possible_transitions=True
    )
    assert every.n_weights == 6 + 4
    # a missing label gives no pair
    assert build_layout(features, np.array([1, -1, 0], np.int32), 2).n_weights == 3


def test_min_freq_counts_values():
    features = TokenFeatures(
        np.array([0, 3]),
        np.array([0, 2, 3, 4]),
        np.array([0, 1, 0, 1], np.int32),
        np.array([0.5, 2.0, 0.6, -2.0]),
        2,
    )
    layout = build_layout(features, np.array([0, 0, 1], np.int32), 2, min_freq=1.0)
    assert layout.state_offsets.tolist() == [0, 1, 2]
    assert layout.state_labels.tolist() == [0, 0]
    assert layout.transitions.tolist() == [[0, 1], [-1, -1]]
