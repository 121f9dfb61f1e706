"""Fits that are stopped dead after each checkpoint and begun again: the same bits, every learner.

`python -m benchmarks.kill` kills processes at random moments instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from fields import images

import fieldfit as ff
from fieldfit.learners.checkpoint import Checkpoint

_LBFGS = ff.LBFGS(max_iter=8, tol=0.0, checkpoint_every=2)
_ADAM = ff.Adam(max_iter=6, random_state=0, checkpoint_every=2)
_DUAL = ff.MLEStruct(tol=1e-9)
FITS = {
    "LBFGS": {"objective": "trw", "learner": _LBFGS},
    "OWL-QN": {"objective": "trw", "learner": _LBFGS, "l1": 0.5},
    "Adam": {"objective": "trw", "learner": _ADAM},
    "SGD": {
        "objective": "trw",
        "learner": ff.SGD(max_iter=6, random_state=0, checkpoint_every=2),
    },
    "CamelRounds": {
        "objective": ff.Camel(max_rounds=2),
        "learner": ff.LBFGS(max_iter=4, checkpoint_every=2),
    },
    "DualFrankWolfe": {
        "objective": _DUAL,
        "learner": ff.learners.DualFrankWolfe(_DUAL, max_iter=6, checkpoint_every=2),
    },
    "cf-bethe": {"objective": "cf-bethe", "learner": _LBFGS},
    "cd": {"objective": "cd", "learner": _ADAM},
    "implicit": {"objective": "implicit", "learner": _LBFGS},
    "procedural": {"objective": "procedural", "learner": _LBFGS},
}


class Killed(BaseException):
    """Nobody catches it."""


@dataclass
class Killer:
    """Lets a checkpoint be written and ends the run, again and again."""

    n_kills: int = 0

    def install(self, monkeypatch):
        write = Checkpoint.write

        def write_and_die(checkpoint, state):
            write(checkpoint, state)
            self.n_kills += 1
            raise Killed

        monkeypatch.setattr(Checkpoint, "write", write_and_die)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_a_fit_that_is_killed_after_each_checkpoint_ends_with_the_same_bits(
    name, tmp_path, monkeypatch
):
    X, Y = images()

    def fit(path):
        return ff.GridCRF(**{"l2": 0.1, **FITS[name]}).fit(X, Y, checkpoint=path)

    expected = fit(tmp_path / "straight")
    assert np.abs(expected.weights_).max() > 0.01  # weights that never move would prove nothing
    killer, found = Killer(), None
    killer.install(monkeypatch)
    while found is None:
        try:
            found = fit(tmp_path / "killed")
        except Killed:
            assert killer.n_kills < 50
    assert killer.n_kills >= 3
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    assert found.status_ == expected.status_
    assert found.n_iter_ == expected.n_iter_
