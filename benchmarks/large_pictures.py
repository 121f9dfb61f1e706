"""Prediction on large pictures, window by window: peak memory and processor time.

python -m benchmarks.large_pictures [--side 4000] [--labels 2] [--max-iter 1000] [--write PAGE]

One noisy picture of ``side`` x ``side`` pixels is predicted by ``GridCRF`` with given weights: the
noise is Gaussian and known, neighbours with equal labels gain `COUPLING`.  Every case has a process
of its own, whose peak memory is that of all.  With ``--max-iter`` below 1000, sweeps are cut off
and each window has one turn: this measures memory, and the answer has not converged.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.pages import replace_section, stamp
from fieldfit.entropy.counting_numbers import TreeReweighted
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.models import large_pictures
from fieldfit.models.grid_crf import GridCRF
from fieldfit.objectives.likelihood import Likelihood

CELL = 20
COUPLING = 0.8
FULL = 1000


def noisy_picture(side: int, n_labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Squares of random labels, and their labels with noise as the only feature."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, n_labels, (-(-side // CELL), -(-side // CELL)), dtype=np.int8)
    truth = np.repeat(np.repeat(cells, CELL, axis=0), CELL, axis=1)[:side, :side]
    noise = rng.standard_normal((side, side), dtype=np.float32)
    return (truth + noise)[:, :, None].astype(np.float32), truth


def given_model(n_labels: int, max_iter: int) -> GridCRF:
    """Log-densities of the noise, ``k x - k^2 / 2``, and the coupling."""
    inference = SumProduct(TreeReweighted(), tol=1e-6, max_iter=max_iter)
    crf = GridCRF(
        Likelihood(inference), pairwise="potts", directions="shared", n_labels=n_labels, max_iter=1
    )
    x, y = noisy_picture(40, n_labels, 0)
    crf.fit([x], [y.astype(int)])
    labels = np.arange(n_labels)
    crf.weights_ = np.concatenate([labels, -0.5 * labels**2, [COUPLING]])
    return crf


def one_case(side: int, n_labels: int, method: str, seed: int, max_iter: int) -> str:
    """Predict, and describe it."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        crf = given_model(n_labels, max_iter)
        picture, truth = noisy_picture(side, n_labels, seed)
        crf.predict([picture[:70, :70]])  # compile
        crf.verbose = 1
        seen.clear()
        if max_iter < FULL:
            large_pictures.MAX_ROUNDS = 1
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        wall, cpu = time.perf_counter(), time.process_time()
        found = getattr(crf, method)([picture])[0]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    labels = found if method == "predict" else found.argmax(axis=2)
    error = float(np.mean(labels != truth))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    window = large_pictures.window_side(n_labels, 4, 1)
    windows = large_pictures.Windows((side, side), n_labels, 4, window, large_pictures.OVERLAP)
    cells = [
        f"{side} x {side}",
        str(n_labels),
        f"`{method}`",
        f"{len(windows)} of {windows.size[0]} x {windows.size[1]}",
        str(max_iter),
        "no" if seen else "yes",
        f"{error:.4f}",
        f"{before:.2f}",
        f"{peak:.2f}",
        f"{cpu:.0f}",
        f"{wall:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=4000)
    parser.add_argument("--labels", type=int, nargs="+", default=[2])
    parser.add_argument("--methods", nargs="+", default=["predict_marginals"])
    parser.add_argument("--max-iter", type=int, default=FULL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        n_labels, method = int(options.one[0]), options.one[1]
        print(one_case(options.side, n_labels, method, options.seed, options.max_iter))
        return 0
    names = ("picture", "labels", "method", "windows", "sweeps at most", "converged", "error",
             "GB before", "GB peak", "CPU s", "wall s")  # fmt: skip
    lines = [
        stamp("python -m benchmarks.large_pictures " + " ".join(sys.argv[1:])),
        f"Seed {options.seed}; tree-reweighted, tolerance 1e-6. Memory is that of the process; "
        '"before": with the picture and compiled kernels.',
        "",
        f"| {' | '.join(names)} |",
        "|---" * len(names) + "|",
    ]
    print("\n".join(lines), flush=True)
    for n_labels in options.labels:
        for method in options.methods:
            command = [
                *(
                    sys.executable,
                    "-m",
                    "benchmarks.large_pictures",
                    "--one",
                    str(n_labels),
                    method,
                ),
                *("--side", str(options.side), "--seed", str(options.seed)),
                *("--max-iter", str(options.max_iter)),
            ]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            lines.append(done.stdout.strip())
            print(lines[-1], flush=True)
    if options.write:
        name = f"large-pictures-{options.labels[0]}"
        replace_section(options.write, name, lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
