"""Kill the training of a real model at random moments and see that it ends with the same weights.

    python -m benchmarks.kill [N_KILLS [LBFGS | OWL-QN | Adam ...]]

A `GridCRF` with the tree-reweighted surrogate learns to restore noisy digits, with warm-started
messages and two threads.  The child process is killed (SIGKILL) at a random moment and started
again, until it has been killed often enough; the weights must be those of a run that was left
alone, to the last bit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

#: Name -> options of `GridCRF`, and of the learner where it is not the default.
RUNS = {
    "LBFGS": {"l2": 1e-3, "max_iter": 120},
    "OWL-QN": {"l2": 0.0, "l1": 2.0, "max_iter": 120},
    "Adam": {"l2": 1e-3, "max_iter": 60},
}


def train(name: str, checkpoint: Path, answer: Path) -> None:
    """One run, perhaps a resumed one; leaves the weights in a file."""
    import warnings

    from sklearn.datasets import load_digits

    import fieldfit as ff

    rng = np.random.default_rng(0)
    clean = [(digit > 7).astype(int) for digit in load_digits().images[:150]]
    # windows of 3 x 3 pixels as features: 10 weights for each label with the constant
    noisy = [picture + 0.8 * rng.normal(size=picture.shape) for picture in clean]
    windows = [
        np.stack([np.roll(image, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)], axis=2)
        for image in noisy
    ]
    learner: object = ff.LBFGS(max_iter=120, tol=0.0, value_tol=0.0, checkpoint_every=2)
    if name == "Adam":
        learner = ff.Adam(max_iter=60, tol=0.0, random_state=0, checkpoint_every=2)
    crf = ff.GridCRF(objective="trw", learner=learner, n_jobs=2, **RUNS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)  # it runs to its limit on purpose
        crf.fit(windows, clean, checkpoint=checkpoint)
    np.save(answer.with_suffix(".part.npy"), crf.weights_)
    os.replace(answer.with_suffix(".part.npy"), answer)


def start(name: str, folder: Path, run: str) -> subprocess.Popen[bytes]:
    paths = [str(folder / f"{name}-{run}.checkpoint"), str(folder / f"{name}-{run}.npy")]
    return subprocess.Popen([sys.executable, "-m", "benchmarks.kill", "--child", name, *paths])


def kill_and_resume(name: str, folder: Path, n_kills: int, rng: np.random.Generator) -> str:
    """Train once in peace and once with kills; one line of figures."""
    assert start(name, folder, "peace").wait() == 0
    expected = np.load(folder / f"{name}-peace.npy")
    answer, checkpoint = folder / f"{name}-killed.npy", folder / f"{name}-killed.checkpoint"
    kills = resumed = 0
    while not answer.exists():
        resumed += checkpoint.exists()
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        child = start(name, folder, "killed")
        if kills < n_kills:
            # importing takes most of the time: wait for the first new checkpoint, then strike
            # at random; now and then earlier, so that kills fall into the beginning as well
            deadline = time.monotonic() + float(rng.uniform(0.5, 4.0) if kills % 4 == 0 else 60.0)
            while child.poll() is None and time.monotonic() < deadline:
                if checkpoint.exists() and checkpoint.stat().st_mtime_ns != before:
                    time.sleep(float(rng.uniform(0.0, 0.1)))
                    break
                time.sleep(0.002)
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                kills += 1
        child.wait()
    found = np.load(answer)
    same = "the same bits" if np.array_equal(found, expected) else "DIFFERENT"
    return (
        f"{name}: {kills} kills, {resumed} starts from a checkpoint, {len(found)} weights: {same}"
    )


def main(n_kills: int, names: list[str]) -> None:
    rng = np.random.default_rng()
    with tempfile.TemporaryDirectory() as folder:
        for name in names or RUNS:
            print(kill_and_resume(name, Path(folder), n_kills, rng), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        train(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:])
