"""Kill training runs at random moments and let them go on; `test_checkpoint.py` runs this program.

    python killing.py FOLDER N_KILLS

Children are forked, so that the package is imported once.  One line is printed for each learner:
its name, the number of kills, the runs that found a checkpoint, and whether the weights are, to the
last bit, those of a run that was left alone.  The first two kills come after so many evaluations,
and so fall into the run on a machine of any speed; the others come after a time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from learning import Remembering

from fieldfit.learners.base import Penalty
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.learners.stochastic import Adam

LEARNERS = {
    "LBFGS": (LBFGS(max_iter=40, tol=0.0, value_tol=0.0, checkpoint_every=3), Penalty(l2=1e-3)),
    "OWL-QN": (LBFGS(max_iter=40, tol=0.0, value_tol=0.0, checkpoint_every=3), Penalty(l1=0.5)),
    "Adam": (Adam(max_iter=30, checkpoint_every=2, random_state=0), Penalty(l2=1e-3)),
}


class Slow(Remembering):
    """Takes its time, so that kills fall into evaluations as well as into writing."""

    def __init__(self, last_call=None, **options):
        super().__init__(**options)
        self.last_call = last_call

    def assess_part(self, weights, part):
        time.sleep(5e-4)
        if self.last_call is not None:
            self.last_call -= 1
            if self.last_call < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().assess_part(weights, part)


def train(name, checkpoint, last_call=None):
    learner, penalty = LEARNERS[name]
    problem = Slow(last_call, n_examples=200, n_parts=5)
    # zeros that never move would prove nothing
    return learner.minimize(problem, np.full(12, 0.1), penalty=penalty, checkpoint=checkpoint)


def train_in_child(name, checkpoint, answer, last_call):
    """Fork a child that trains and leaves its weights in a file."""
    process = os.fork()
    if process == 0:
        part = answer.with_suffix(".part.npy")
        np.save(part, train(name, checkpoint, last_call).weights)
        os.replace(part, answer)
        os._exit(0)
    return process


def kill_and_resume(name, folder, n_kills, rng):
    checkpoint, answer = folder / f"{name}.checkpoint", folder / f"{name}.npy"
    begin = time.perf_counter()
    expected = train(name, folder / f"{name}.straight").weights
    seconds = time.perf_counter() - begin
    kills = resumed = 0
    while not answer.exists():
        resumed += checkpoint.exists()
        # five parts in each evaluation, and a checkpoint after at most three iterations
        last_call = int(rng.integers(25, 45)) if kills < 2 else None
        process = train_in_child(name, checkpoint, answer, last_call)
        if last_call is None and kills < n_kills:
            time.sleep(float(rng.uniform(0.0, 0.5 * seconds)))
            os.kill(process, signal.SIGKILL)
        kills += os.WIFSIGNALED(os.waitpid(process, 0)[1])
    return kills, resumed, np.array_equal(np.load(answer), expected)


if __name__ == "__main__":
    for learner_name in LEARNERS:
        outcome = kill_and_resume(
            learner_name, Path(sys.argv[1]), int(sys.argv[2]), np.random.default_rng()
        )
        print(learner_name, *outcome)
