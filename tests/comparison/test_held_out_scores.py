"""Scores on held-out examples, against their definitions, label by label."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.comparison.held_out_scores import (
    LEAST_PROBABILITY,
    HeldOutScores,
    held_out_errors,
    held_out_scores,
)


def stripes(n=6, seed=0):
    rng = np.random.default_rng(seed)
    Y = [np.repeat(rng.integers(0, 2, (3, 1)), 4, axis=1) for _ in range(n)]
    return [y + rng.normal(size=y.shape) for y in Y], Y


def by_hand(pairs):
    """Error, log-loss and calibration from (probabilities, predicted, given) of each label."""
    wrong = [guess != truth for _, guess, truth in pairs]
    lost = [-np.log(max(p[truth], LEAST_PROBABILITY)) for p, _, truth in pairs]
    bins = {}
    for p, guess, truth in pairs:
        bins.setdefault(min(int(10 * p[guess]), 9), []).append((p[guess], guess == truth))
    apart = sum(abs(sum(c for c, _ in one) - sum(r for _, r in one)) for one in bins.values())
    return np.mean(wrong), np.mean(lost), apart / len(pairs)


def agree(scores, pairs):
    found = (scores.error, scores.mean_log_loss, scores.calibration_error)
    np.testing.assert_allclose(found, by_hand(pairs), atol=1e-12)


def test_pictures():
    X, Y = stripes()
    Y[0][0, 0] = -1
    crf = ff.GridCRF("likelihood", l2=0.1).fit(X, Y)
    scores = held_out_scores(crf, X, Y)
    found = zip(crf.predict_marginals(X), crf.predict(X), Y, strict=True)
    pairs = [
        (p[i, j], guess[i, j], y[i, j])
        for p, guess, y in found
        for i, j in np.ndindex(y.shape)
        if y[i, j] >= 0
    ]
    agree(scores, pairs)
    assert scores.count.tolist() == [11.0, 12.0, 12.0, 12.0, 12.0, 12.0]
    np.testing.assert_array_equal(held_out_errors(crf, X, Y).right, scores.right)
    lower, upper = crf.log_likelihood_bounds(X, Y)
    assert (scores.lower, scores.upper) == (lower.mean(), upper.mean())


def test_chains_and_labels_that_were_not_learned():
    X = [[["a"], ["b"]], [["b"], ["a"]], [["b"], ["b"]]]
    Y = [["A", "B"], ["B", "A"], ["B", "B"]]
    crf = ff.ChainCRF(l2=0.1).fit(X, Y)
    scores = held_out_scores(crf, X, Y)
    columns = {name: k for k, name in enumerate(crf.classes_)}
    found = zip(crf.predict_marginals(X), crf.predict(X), Y, strict=True)
    pairs = [
        (p[t], columns[guess[t]], columns[y[t]]) for p, guess, y in found for t in range(len(y))
    ]
    agree(scores, pairs)
    # of the likelihood of whole sequences: by enumeration
    plain = ff.ChainCRF(l2=0.1, max_iter=1)
    value = plain.fit(X, Y, start=crf.weights_)._problem(plain._objective(), X, Y, None)
    total = value.evaluate(crf.weights_).value
    np.testing.assert_allclose([scores.lower, scores.upper], [-total / 3] * 2, rtol=1e-9)
    unknown = held_out_scores(crf, X[:1], [["A", "C"]])
    assert unknown.error >= 0.5
    assert unknown.log_loss[0] > -np.log(2 * LEAST_PROBABILITY) - 1
    assert unknown.lower is None


@pytest.mark.parametrize("model", [ff.IsingModel(l2=0.5), ff.PottsModel(l2=0.5)], ids=repr)
def test_samples(model):
    """Every entry, from the others: by the joint probabilities of all states."""
    rng = np.random.default_rng(0)
    n_labels = 2 if isinstance(model, ff.IsingModel) else 3
    samples = rng.integers(0, n_labels, (40, 3))
    samples[:, 1] = np.where(rng.random(40) < 0.7, samples[:, 0], samples[:, 1])
    model.fit(samples)
    potentials = model.to_model()[1]
    joint = np.zeros((n_labels,) * 3)
    for state in product(range(n_labels), repeat=3):
        joint[state] = np.exp(potentials.score(np.array(state)))
    pairs = []
    for row in samples:
        for i in range(3):
            line = joint[tuple(slice(None) if k == i else row[k] for k in range(3))]
            p = line / line.sum()
            pairs.append((p, int(p.argmax()), row[i]))
    scores = held_out_scores(model, samples, None)
    agree(scores, pairs)
    exact = np.mean([np.log(joint[tuple(row)] / joint.sum()) for row in samples])
    np.testing.assert_allclose([scores.lower, scores.upper], [exact, exact], rtol=1e-9)


@pytest.mark.parametrize("perfect", [True, False])
def test_partners(perfect):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5, 3, 3, 2))
    Y = [rng.permutation(3) for _ in range(5)]
    if not perfect:
        Y[0] = np.array([-1, 0, 2])
    crf = ff.MatchingCRF("likelihood", perfect=perfect, l2=1.0).fit(X, Y)
    scores = held_out_scores(crf, X, Y)
    pairs = []
    for p, guess, y in zip(crf.predict_marginals(X), crf.predict(X), Y, strict=True):
        choices = np.column_stack([p, 1.0 - p.sum(axis=1)])
        pairs += [(choices[i], guess[i], y[i]) for i in range(3)]
    np.testing.assert_allclose(scores.error, by_hand(pairs)[0])
    np.testing.assert_allclose(scores.mean_log_loss, by_hand(pairs)[1], atol=1e-9)
    np.testing.assert_array_equal(held_out_errors(crf, X, Y).right, scores.right)
    np.testing.assert_allclose(scores.lower, crf.log_likelihood(X, Y).mean())


def test_differences_are_paired():
    """Two methods that err on the same examples: the noise of the examples cancels."""
    count = np.full(4, 10.0)
    bins = np.zeros((10, 3))
    first = HeldOutScores(np.array([1.0, 9.0, 2.0, 8.0]), count, count, bins)
    second = HeldOutScores(first.right + 1.0, count, count, bins)
    assert first.excess(second, "error") == (pytest.approx(0.1), 0.0)
    assert first.error_se > 0.1
    joined = HeldOutScores.joined([first, second])
    assert joined.error == pytest.approx((first.error + second.error) / 2)
    restored = HeldOutScores.from_json(first.as_json())
    np.testing.assert_array_equal(restored.right, first.right)


def test_without_labels_there_is_nothing_to_score():
    X, Y = stripes()
    crf = ff.GridCRF("pseudolikelihood", l2=0.1).fit(X, Y)
    with pytest.raises(ff.InvalidInputError, match="must hold known labels, got none"):
        held_out_scores(crf, X[:1], [np.full((3, 4), -1)])
    ising = ff.IsingModel().fit([[0, 1], [1, 0], [1, 1]])
    with pytest.raises(ff.InvalidInputError, match="must hold complete rows, got none"):
        held_out_scores(ising, np.array([[0.0, np.nan]]), None)
