"""Shards of sequences: a vocabulary that grows while they are written, and a second pass."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import fieldfit as ff
from fieldfit.errors import InvalidInputError
from fieldfit.learners.problem import SumProblem
from fieldfit.models.chain import chain_crf

SIZE = 30
WORDS = ["the", "a", "dog", "cat", "runs", "sleeps", "big", "small"]
CLASSES = ["D", "D", "N", "N", "V", "V", "J", "J"]

pytestmark = pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """Data in memory are cut as finely as the files."""
    monkeypatch.setattr(chain_crf, "SHARD_SIZE", SIZE)


def sentences(count=20, seed=0):
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(count):
        chosen = rng.integers(0, len(WORDS), int(rng.integers(0, 7)))
        X.append([{"w": WORDS[k], "length": 0.1 * len(WORDS[k])} for k in chosen])
        Y.append([CLASSES[k] if rng.random() > 0.1 else None for k in chosen])
    return X, Y


def write(folder, estimator, X, Y, *weights, **options):
    examples = zip(X, Y, *weights, strict=True)
    return ff.shards.write(folder, estimator, examples, shard_size=SIZE, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"l1": 0.2},
        {"min_freq": 2, "boundary_weights": True},
        {"objective": "pseudolikelihood", "all_possible_states": True},
        {"learner": "adam", "batch_size": 3},
        {"all_possible_transitions": True, "n_jobs": 2},
    ],
    ids=str,
)
def test_sequences_on_disk_give_the_bits_of_memory(tmp_path, options):
    X, Y = sentences()
    weights = np.linspace(0.5, 2.0, len(X))
    shards = write(tmp_path / "shards", ff.ChainCRF(**options), X, Y, weights)
    assert len(shards) > 2
    fits = [ff.ChainCRF(l2=0.1, max_iter=6, **options) for _ in range(3)]
    fits[0].fit(X, Y, sample_weight=weights)
    fits[1].fit(shards)
    fits[2].fit(ff.shards.Shards(tmp_path / "shards", memory=0))
    for other in fits[1:]:
        np.testing.assert_array_equal(other.weights_, fits[0].weights_)
        assert other.attributes_ == fits[0].attributes_
        assert other.classes_.tolist() == fits[0].classes_.tolist()
        assert [row["objective"] for row in other.trace_] == [
            row["objective"] for row in fits[0].trace_
        ]


@pytest.mark.parametrize("sparse", [False, True])
def test_matrices(tmp_path, sparse):
    rng = np.random.default_rng(0)
    X = [np.round(rng.normal(size=(4, 3))) for _ in range(9)]
    Y = [rng.integers(0, 3, 4) for _ in range(9)]
    X = [csr_matrix(x) for x in X] if sparse else X
    shards = write(tmp_path / "shards", ff.ChainCRF(), X, Y)
    weights = ff.ChainCRF(max_iter=5).fit(X, Y).weights_
    np.testing.assert_array_equal(ff.ChainCRF(max_iter=5).fit(shards).weights_, weights)


def test_the_sum_in_memory_is_that_of_the_shards():
    X, Y = sentences()
    crf = ff.ChainCRF()
    problem = crf._problem(crf._objective(), X, Y, None)
    assert isinstance(problem, SumProblem)
    assert problem.n_parts == len(problem.problems)
    weights = np.random.default_rng(0).normal(size=problem.n_weights)
    parts = [problem.evaluate_part(weights, part) for part in range(problem.n_parts)]
    gradient = parts[0].gradient.copy()
    for part in parts[1:]:
        gradient += part.gradient
    np.testing.assert_array_equal(problem.evaluate(weights).gradient, gradient)
    with pytest.raises(IndexError):
        problem.evaluate_part(weights, problem.n_parts)


def test_predictions_on_shards_of_the_fit_and_of_others(tmp_path):
    X, Y = sentences()
    crf = ff.ChainCRF(l2=0.1)
    crf.fit(write(tmp_path / "train", crf, X, Y))
    new, truth = sentences(seed=1)
    new[0] = [{"w": "unknown"}]
    truth[0] = ["unknown"]
    shards = write(tmp_path / "test", crf, new, truth)
    answers = crf.predict(shards)
    for found, expected in zip(answers, crf.predict(new), strict=True):
        assert found.tolist() == expected.tolist()
    assert crf.score(shards) == crf.score(new, truth) < 1.0
    crf.predict_marginals(shards).write(tmp_path / "marginals")
    written = ff.shards.read_answers(tmp_path / "marginals")
    for found, expected in zip(written, crf.predict_marginals(new), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    other = ff.ChainCRF(l2=0.1).fit(new[1:], truth[1:])
    with pytest.raises(InvalidInputError, match="got shards of another vocabulary"):
        other.predict(shards)


def test_both_passes_are_shown(tmp_path, capsys):
    write(tmp_path / "shards", ff.ChainCRF(), *sentences(), verbose=1)
    told = capsys.readouterr().err
    assert "writing" in told
    assert "second pass" in told


def test_bad_sequences_are_refused_in_a_sentence(tmp_path):
    X, Y = sentences()
    good = [(x, y) for x, y in zip(X, Y, strict=True) if len(x) > 1][:3]
    for bad, sentence in (
        (([{"w": "a"}], ["D", "N"]), r"Y\[3\] must have one label for each of the 1 tokens"),
        (([{"w": object()}], ["D"]), r"X\[3\]\[0\]: feature 'w' must be a string"),
        (([{"w": "a"}], [1]), r"Y\[3\] must hold strings or integers, not both; got 1"),
        (("text", ["D"]), r"X\[3\] must be a sequence of tokens, got str"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            ff.shards.write(tmp_path / "shards", ff.ChainCRF(), [*good, bad])
    with pytest.raises(InvalidInputError, match="at least two different labels"):
        ff.shards.write(tmp_path / "shards", ff.ChainCRF(), [([{"w": "a"}], ["D"])])
    shards = write(tmp_path / "shards", ff.ChainCRF(), X, Y)
    with pytest.raises(InvalidInputError, match="batch_size must be given"):
        ff.ChainCRF(learner="adam").fit(shards)
    with pytest.raises(InvalidInputError, match=r"written with min_freq=2\.0 as here"):
        ff.ChainCRF(min_freq=2).fit(shards)
    with pytest.raises(InvalidInputError, match="estimator must be a ChainCRF, GridCRF, GraphCRF"):
        ff.shards.write(tmp_path / "skip", ff.SkipChainCRF(skip_edges="w"), zip(X, Y, strict=True))
