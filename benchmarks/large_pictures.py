"""Prediction on large pictures, window by window: peak memory and processor time.

python -m benchmarks.large_pictures [--side 4000] [--labels 2 8] [--write docs/benchmarks-grid.md]

A model is learned from small noisy pictures of rectangles; then one picture of ``side`` x ``side``
pixels of the same kind is predicted in a process of its own, whose peak memory is that of all.
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
from fieldfit.models import large_pictures
from fieldfit.models.grid_crf import GridCRF

CELL = 20


def noisy_picture(side: int, n_labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Squares of random labels, and their labels with noise as the only feature."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, n_labels, (-(-side // CELL), -(-side // CELL)), dtype=np.int8)
    truth = np.repeat(np.repeat(cells, CELL, axis=0), CELL, axis=1)[:side, :side]
    noise = rng.standard_normal((side, side), dtype=np.float32)
    return (truth + 0.7 * noise)[:, :, None].astype(np.float32), truth


def one_case(side: int, n_labels: int, method: str, seed: int) -> str:
    """Learn, predict, and describe it."""
    small = [noisy_picture(60, n_labels, seed + 1 + k) for k in range(4)]
    crf = GridCRF(
        "trw", l2=1.0, pairwise="potts", directions="shared", verbose=1, n_labels=n_labels
    )
    crf.verbose = 0
    crf.fit([x for x, _ in small], [y.astype(int) for _, y in small])
    crf.verbose = 1
    picture, truth = noisy_picture(side, n_labels, seed)
    crf.predict([picture[:70, :70]])  # compile
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    windows = large_pictures.Windows(
        (side, side),
        n_labels,
        4,
        large_pictures.window_side(n_labels, 4, 1),
        large_pictures.OVERLAP,
    )
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = getattr(crf, method)([picture])[0]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    labels = found if method == "predict" else found.argmax(axis=2)
    error = float(np.mean(labels != truth))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return (
        f"| {side} x {side} | {n_labels} | `{method}` | {len(windows)} of {windows.size[0]} x "
        f"{windows.size[1]} | {'no' if seen else 'yes'} | {error:.4f} | {before:.2f} | {peak:.2f} | "
        f"{cpu:.0f} | {wall:.0f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=4000)
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--methods", nargs="+", default=["predict_marginals"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(one_case(options.side, int(options.one[0]), options.one[1], options.seed))
        return 0
    lines = [
        stamp(
            f"python -m benchmarks.large_pictures --side {options.side} --write docs/benchmarks-grid.md"
        ),
        f"Seed {options.seed}; `trw`, tolerance as trained; memory in GB (before: with picture, model "
        "and compiled kernels; peak: of the process).",
        "",
        "| picture | labels | method | windows | converged | error | before | peak | CPU s | wall s |",
        "|---" * 10 + "|",
    ]
    print("\n".join(lines), flush=True)
    for n_labels in options.labels:
        for method in options.methods:
            command = [sys.executable, "-m", "benchmarks.large_pictures", "--side", str(options.side),
                       "--seed", str(options.seed), "--one", str(n_labels), method]  # fmt: skip
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            lines.append(done.stdout.strip())
            print(lines[-1], flush=True)
    if options.write:
        replace_section(options.write, "large-pictures", lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
