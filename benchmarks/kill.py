"""Kill the training of real models at random moments and see that they end with the same weights.

    python -m benchmarks.kill [--kills 11] [--seed 0] [--only WORDS] [--write PAGE]

A `GridCRF` learns to restore noisy digits, by every learner and by the objectives that have state
of their own, with warm-started messages and two threads.  A process that trains is killed (SIGKILL)
at a random moment, and a new one goes on from its checkpoint, until there were so many kills; then
a new interpreter goes on to the end.  The weights must be those of a run that was left alone, to
the last bit.  Runs that end before they are killed are compared too, and begun again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import replace_section, stamp

#: Name -> what is learned by, and by which objective.
RUNS = {
    "LBFGS": "tree-reweighted likelihood, L2",
    "OWL-QN": "tree-reweighted likelihood, L1",
    "Adam": "tree-reweighted likelihood",
    "SGD": "tree-reweighted likelihood",
    "CamelRounds": "`camel`",
    "DualFrankWolfe": "`mle-struct`",
    "LBFGS by slopes": "`cf-bethe`",
    "Adam on draws": "`cd`",
    "LBFGS, implicit": "`implicit`",
    "LBFGS, procedural": "`procedural`",
}
FORK = multiprocessing.get_context("fork")
#: A run that takes longer than this does not end.
PATIENCE = 600.0


def estimator(name: str) -> Any:
    """The model of a run; learners go on to their limits, so that there is time for kills."""
    import fieldfit as ff

    lbfgs = ff.LBFGS(max_iter=80, tol=0.0, value_tol=0.0, checkpoint_every=2)
    adam = ff.Adam(max_iter=50, tol=0.0, random_state=0, checkpoint_every=2)
    dual = ff.MLEStruct(tol=1e-9)
    options: dict[str, Any] = {
        "LBFGS": {"objective": "trw", "learner": lbfgs},
        "OWL-QN": {"objective": "trw", "learner": lbfgs, "l2": 0.0, "l1": 2.0},
        "Adam": {"objective": "trw", "learner": adam},
        "SGD": {
            "objective": "trw",
            "learner": ff.SGD(max_iter=50, tol=0.0, random_state=0, checkpoint_every=2),
        },
        "CamelRounds": {
            "objective": ff.Camel(max_rounds=4),
            "learner": ff.LBFGS(max_iter=20, tol=0.0, value_tol=0.0, checkpoint_every=2),
        },
        "DualFrankWolfe": {
            "objective": dual,
            "learner": ff.learners.DualFrankWolfe(dual, max_iter=60, checkpoint_every=2),
            "l2": 1.0,
        },
        "LBFGS by slopes": {"objective": "cf-bethe", "learner": lbfgs},
        "Adam on draws": {"objective": "cd", "learner": adam},
        "LBFGS, implicit": {"objective": "implicit", "learner": lbfgs},
        "LBFGS, procedural": {"objective": "procedural", "learner": lbfgs},
    }[name]
    return ff.GridCRF(n_jobs=2, **{"l2": 1e-3, **options})


def train(name: str, checkpoint: Path, answer: Path) -> None:
    """One run, perhaps a resumed one; leaves the weights in a file."""
    import warnings

    from sklearn.datasets import load_digits

    import fieldfit as ff

    rng = np.random.default_rng(0)
    clean = [(digit > 7).astype(int) for digit in load_digits().images[:60]]
    # windows of 3 x 3 pixels as features: 10 weights for each label with the constant
    noisy = [picture + 0.8 * rng.normal(size=picture.shape) for picture in clean]
    windows = [
        np.stack([np.roll(image, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)], axis=2)
        for image in noisy
    ]
    crf = estimator(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)  # it runs to its limit on purpose
        crf.fit(windows, clean, checkpoint=checkpoint)
    np.save(answer.with_suffix(".part.npy"), crf.weights_)
    os.replace(answer.with_suffix(".part.npy"), answer)


def start(name: str, checkpoint: Path, answer: Path) -> Any:
    """A process that trains, or goes on; forked, because importing takes longer than a run."""
    child = FORK.Process(target=train, args=(name, checkpoint, answer))
    child.start()
    return child


def finish(name: str, checkpoint: Path, answer: Path) -> None:
    """Go on to the end in a new interpreter."""
    command = [sys.executable, "-m", "benchmarks.kill", "--child", name]
    subprocess.run([*command, str(checkpoint), str(answer)], check=True, timeout=PATIENCE)


@dataclass
class Outcome:
    """What became of the runs of one learner."""

    kills: int = 0
    resumed: int = 0
    runs: int = 0
    weights: int = 0
    same: bool = True


def kill_and_resume(name: str, folder: Path, n_kills: int, rng: np.random.Generator) -> Outcome:
    """Train once in peace, and then with kills until there were enough."""
    peace = folder / f"{name}-peace.npy"
    begin = time.monotonic()
    train(name, folder / f"{name}-peace.checkpoint", peace)
    seconds = time.monotonic() - begin
    expected = np.load(peace)
    outcome = Outcome(weights=len(expected))
    while outcome.kills < n_kills:
        checkpoint = folder / f"{name}-{outcome.runs}.checkpoint"
        answer = folder / f"{name}-{outcome.runs}.npy"
        while not answer.exists():
            outcome.resumed += checkpoint.exists()
            if outcome.kills == n_kills:
                finish(name, checkpoint, answer)
                break
            child = start(name, checkpoint, answer)
            # now and then at any time, so that kills fall into the beginning as well
            limit = float(rng.uniform(0.0, 0.5 * seconds)) if outcome.kills % 4 == 0 else PATIENCE
            outcome.kills += strike(child, checkpoint, limit, rng)
            child.join(PATIENCE)
        outcome.runs += 1
        outcome.same &= np.array_equal(np.load(answer), expected)
    return outcome


def strike(child: Any, checkpoint: Path, limit: float, rng: np.random.Generator) -> bool:
    """Kill a process some time after its next checkpoint, or at a limit; False if it had ended."""
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    deadline = time.monotonic() + limit
    while child.is_alive() and time.monotonic() < deadline:
        if checkpoint.exists() and checkpoint.stat().st_mtime_ns != before:
            time.sleep(float(rng.uniform(0.0, 0.2)))
            break
        time.sleep(0.002)
    child.kill()
    child.join(PATIENCE)
    return bool(child.exitcode == -signal.SIGKILL)


def row(name: str, outcome: Outcome) -> str:
    """A line of the table."""
    same = "yes" if outcome.same else "NO"
    return (
        f"| {name} | {RUNS[name]} | {outcome.weights} | {outcome.kills} | {outcome.resumed} | "
        f"{outcome.runs} | {same} |"
    )


def main() -> int:
    """Run and print; 1 if any weights differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=11, help="of each learner")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--only", default="", help="learners whose name has these words")
    parser.add_argument("--write", type=Path, help="page with a section 'kills'")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    lines = [
        stamp(f"python -m benchmarks.kill --kills {options.kills} --seed {options.seed}"),
        "",
        "| learner | objective | weights | kills | starts from a checkpoint | runs | same bits |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for name in (name for name in RUNS if options.only in name):
            outcomes.append(kill_and_resume(name, Path(folder), options.kills, rng))
            lines.append(row(name, outcomes[-1]))
            print(lines[-1], flush=True)
    lines += ["", f"{sum(outcome.kills for outcome in outcomes)} kills in all."]
    print("\n".join(lines[-2:]))
    if options.write:
        replace_section(options.write, "kills", lines)
    return int(not all(outcome.same for outcome in outcomes))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        train(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        sys.exit(main())
