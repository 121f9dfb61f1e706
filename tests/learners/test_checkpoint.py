"""Checkpoints: a run that is killed and resumed ends with the same bits; others are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learning import Failing, Logistic, Remembering

from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io._container import read_container, write_container
from fieldfit.learners.base import Penalty
from fieldfit.learners.checkpoint import FORMAT, VERSION
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.learners.stochastic import SGD, Adam

LEARNERS = {
    "lbfgs": (LBFGS(max_iter=25, tol=1e-9, checkpoint_every=4), Penalty(l2=0.1)),
    "lbfgs, short": (LBFGS(max_iter=25, tol=0.0, history=3), Penalty(l2=0.1)),
    "owl-qn": (LBFGS(max_iter=25, tol=1e-9, checkpoint_every=2), Penalty(l2=0.1, l1=1.0)),
    "adam": (Adam(max_iter=25, random_state=0, checkpoint_every=4), Penalty(l2=0.1, l1=0.1)),
    "sgd": (SGD(max_iter=25, random_state=0, averaging=False), Penalty(l2=0.1)),
}


class Killed(Exception):
    """Stands for a kill: nothing is done about it."""


def train(name, checkpoint, problem=None, **options):
    learner, penalty = LEARNERS[name]
    problem = Remembering(n_parts=3) if problem is None else problem
    return learner.minimize(
        problem, np.zeros(12), penalty=penalty, checkpoint=checkpoint, **options
    )


def killed_and_resumed(name, checkpoint, **options):
    """Train, but stop dead after a few evaluations, a little later each time, until it ends."""
    n_kills = 0
    while True:
        n_calls = (5 if isinstance(LEARNERS[name][0], LBFGS) else 14) + n_kills
        problem = Failing(Remembering(n_parts=3), n_calls, Killed)
        try:
            return train(name, checkpoint, problem, **options), n_kills
        except Killed:
            n_kills += 1


# -- resuming -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_resumed_runs_end_with_the_same_bits(name, tmp_path):
    """Killed again and again after some evaluations; answers of the problem depend on its past."""
    expected = train(name, tmp_path / "straight")
    fit, n_kills = killed_and_resumed(name, tmp_path / "killed")
    assert n_kills >= 3
    np.testing.assert_array_equal(fit.weights, expected.weights)
    assert (fit.n_iter, fit.converged, fit.status) == (
        expected.n_iter, expected.converged, expected.status,
    )  # fmt: skip
    for row, wanted in zip(fit.trace, expected.trace, strict=True):
        assert row | {"seconds": 0.0} == wanted | {"seconds": 0.0}
    seconds = [row["seconds"] for row in fit.trace]
    assert seconds == sorted(seconds)


def test_the_problem_must_forget_for_that():
    """The test above could fail: without `forget`, the answers do depend on the past."""
    problem = Remembering(n_parts=3)
    weights = np.ones(12)
    first = problem.evaluate(weights).gradient
    second = problem.evaluate(weights).gradient
    problem.reset_warm_start()
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, problem.evaluate(weights).gradient)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_processes_end_with_the_same_bits(tmp_path):
    program = Path(__file__).parents[1] / "killing.py"
    answer = subprocess.run(
        [sys.executable, str(program), str(tmp_path), "5"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ).stdout.splitlines()
    assert [line.split()[0] for line in answer] == ["LBFGS", "OWL-QN", "Adam"]
    for line in answer:
        _, kills, resumed, same = line.split()
        assert int(kills) >= 2
        assert int(resumed) >= 2
        assert same == "True", line


@pytest.mark.parametrize("name", LEARNERS)
def test_a_finished_run_returns_its_result_at_once(name, tmp_path):
    fit = train(name, tmp_path / "file")
    before = (tmp_path / "file").read_bytes()
    again = train(name, tmp_path / "file", Failing(Remembering(n_parts=3), 1, Killed))
    np.testing.assert_array_equal(again.weights, fit.weights)
    assert again.trace == fit.trace
    assert again.status == fit.status
    assert (tmp_path / "file").read_bytes() == before


def test_a_limit_can_be_raised(tmp_path):
    learner = LBFGS(max_iter=8, tol=1e-9, checkpoint_every=4)
    problem, start, penalty = Remembering(n_parts=3), np.zeros(12), Penalty(l2=0.1)
    first = learner.minimize(problem, start, penalty=penalty, checkpoint=tmp_path / "file")
    assert not first.converged
    second = replace(learner, max_iter=25).minimize(
        problem, start, penalty=penalty, checkpoint=tmp_path / "file"
    )
    expected = train("lbfgs", tmp_path / "straight")
    np.testing.assert_array_equal(second.weights, expected.weights)


@pytest.mark.parametrize("name", ["lbfgs", "adam"])
def test_early_stopping_is_resumed(name, tmp_path):
    def validation(weights):
        return -abs(float(np.linalg.norm(weights)) - 1.5)

    expected = train(name, tmp_path / "straight", validation=validation)
    assert "best validation score" in expected.status
    fit, n_kills = killed_and_resumed(name, tmp_path / "killed", validation=validation)
    assert n_kills >= 2
    np.testing.assert_array_equal(fit.weights, expected.weights)
    assert fit.status == expected.status


@pytest.mark.parametrize("n_calls", [2, 6, 11])
def test_an_interrupt_loses_nothing(n_calls, tmp_path):
    """Without warm starts even the bits are those of a run that was left alone."""
    interrupted = train("lbfgs", tmp_path / "file", Failing(Logistic(), n_calls, KeyboardInterrupt))
    assert "interrupted" in interrupted.status
    problem = Logistic()
    resumed = train("lbfgs", tmp_path / "file", problem)
    expected = train("lbfgs", None, Logistic())
    np.testing.assert_array_equal(resumed.weights, expected.weights)
    assert resumed.n_iter == expected.n_iter


@pytest.mark.parametrize("n_calls", [1, 13, 14, 15, 40])
def test_an_interrupt_of_an_epoch_keeps_the_last_checkpoint(n_calls, tmp_path):
    interrupted = train(
        "adam", tmp_path / "file", Failing(Remembering(n_parts=3), n_calls, KeyboardInterrupt)
    )
    assert "interrupted" in interrupted.status
    assert np.isfinite(interrupted.weights).all()
    assert (tmp_path / "file").exists() == (n_calls >= 14)
    resumed, expected = train("adam", tmp_path / "file"), train("adam", tmp_path / "straight")
    np.testing.assert_array_equal(resumed.weights, expected.weights)


def test_a_checkpoint_does_not_change_the_result_without_warm_starts(tmp_path):
    for name in LEARNERS:
        kept, free = train(name, tmp_path / name, Logistic()), train(name, None, Logistic())
        np.testing.assert_array_equal(kept.weights, free.weights)


# -- files --------------------------------------------------------------------------------


class Named(Remembering):
    """A problem that knows its data."""

    def __init__(self, name, **options):
        super().__init__(**options)
        self.name = name

    def fingerprint(self):
        return self.name


@pytest.mark.parametrize(
    ("learner", "penalty", "problem", "message"),
    [
        (Adam(), Penalty(l2=0.1), Named("a"), "learner is Adam here, and LBFGS in the file"),
        (LBFGS(tol=1e-3), Penalty(l2=0.1), Named("a"), "tol is 0.001 here, and 1e-05 in the file"),
        (LBFGS(history=4), Penalty(l2=0.1), Named("a"), "history is 4 here"),
        (LBFGS(), Penalty(l2=0.2), Named("a"), "l2 is 0.2 here, and 0.1 in the file"),
        (LBFGS(), Penalty(l2=np.full(12, 0.1)), Named("a"), "l2 is an array of digest"),
        (LBFGS(), Penalty(l2=0.1, l1=1.0), Named("a"), "l1 is 1.0 here"),
        (LBFGS(), Penalty(l2=0.1), Named("b"), "the digest of the data is b here, and a"),
        (LBFGS(), Penalty(l2=0.1), Named("a", n_weights=10), "number of weights is 10 here"),
        (LBFGS(), Penalty(l2=0.1), Named("a", n_parts=2), "number of parts is 2 here"),
        (LBFGS(), Penalty(l2=0.1), Named("a", n_examples=200), "one of 300 examples for a problem"),
    ],
)
def test_checkpoints_of_other_runs_are_refused(learner, penalty, problem, message, tmp_path):
    path = tmp_path / "file"
    written = replace(LBFGS(), max_iter=3).minimize(
        Named("a"), np.zeros(12), penalty=Penalty(l2=0.1), checkpoint=path
    )
    assert written.n_iter == 3
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match=message):
        learner.minimize(problem, np.zeros(problem.n_weights), penalty=penalty, checkpoint=path)
    assert path.read_bytes() == before


def test_damaged_checkpoints_are_refused(tmp_path):
    path = tmp_path / "file"
    train("lbfgs", path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(data), 60, replace=False):
        altered = bytearray(data)
        altered[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(altered)
        with pytest.raises(FileFormatError, match="file"):
            train("lbfgs", path)
        path.write_bytes(data[:place])
        with pytest.raises(FileFormatError, match="cut short or damaged"):
            train("lbfgs", path)
    path.write_bytes(data)
    train("lbfgs", path)


def test_remains_of_a_killed_writer_do_no_harm(tmp_path):
    expected = train("lbfgs", tmp_path / "straight")
    (tmp_path / ".file.partial").write_bytes(b"half a checkp")
    fit = train("lbfgs", tmp_path / "file")
    np.testing.assert_array_equal(fit.weights, expected.weights)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "straight"]


def test_the_folder_must_exist(tmp_path):
    for path in (tmp_path / "missing" / "file", tmp_path):
        with pytest.raises(InvalidInputError, match="checkpoint must be a file in a folder that"):
            train("lbfgs", path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("lbfgs", {"numbers": 3}, "expected an entry 'method', found none"),
        ("lbfgs", {"identity": []}, "expected 'identity' to be an object"),
        ("lbfgs", {"method": {"dictionary": []}}, "expected an entry"),
        ("lbfgs", {"trace": [{"dictionary": []}]}, "expected an entry 'seconds'"),
        ("lbfgs", {"outcome": ["yes"]}, "expected 'outcome' to be a list of 2"),
        ("lbfgs", {"count": 10**6}, "expected 'count' to be an integer in 0..10"),
        ("lbfgs", {"weights": np.zeros(3)}, r"expected 'weights' to be numbers of shape \(12\)"),
        ("lbfgs", {"gradient": np.full(12, np.nan)}, "expected 'gradient' to be finite"),
        ("lbfgs", {"steps": None}, "expected an array 'steps', found none"),
        (
            "adam",
            {"generator": {"dictionary": [["state", 5]]}},
            "expected 'generator' to be the state",
        ),
        ("adam", {"step_size": "long"}, "expected 'step_size' to be a number"),
        ("adam", {"means": np.zeros(3)}, "expected 'means' to be numbers"),
    ],
)
def test_forged_checkpoints_are_refused_in_a_sentence(name, change, message, tmp_path):
    """The digest is right, the content is not."""
    path = tmp_path / "checkpoint"
    train(name, path)
    content, arrays = read_container(path, FORMAT, VERSION)
    for key, value in change.items():
        if isinstance(value, np.ndarray):
            arrays[f"method.{key}"] = value
        elif value is None:
            del arrays[f"method.{key}"]
        elif key in content:
            content[key] = value
        else:
            content["numbers"] = replaced(content["numbers"], key, value)
    write_container(path, FORMAT, VERSION, content, arrays)
    with pytest.raises(FileFormatError, match=message) as caught:
        train(name, path)
    assert str(caught.value).startswith(str(path))


def replaced(stored, key, value):
    """A stored dictionary, or one inside it, with another value."""
    if isinstance(stored, dict) and set(stored) == {"dictionary"}:
        pairs = stored["dictionary"]
        return {
            "dictionary": [
                [name, value if name == key else replaced(entry, key, value)]
                for name, entry in pairs
            ]
        }
    return stored
