"""Memory and time of a fit over shards, against the same fit in memory.

    python -m benchmarks.out_of_core [--pictures 40] [--iterations 3] [--largest 10]

A tree-reweighted `GridCRF` learns from 1, 2, 5 and 10 times as many pictures.  Each fit runs in a
process of its own, whose peak memory is that of the operating system less the one before the fit.
With ``memory=0`` no shard stays in memory, which is what data much larger than it come to.  Times
are processor seconds of the fit, with files in the page cache; kernels are loaded before.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SIDE, N_LABELS, N_FEATURES = 64, 5, 4
SHARD_SIZE = 2**16
SEED = 0


def pictures(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Smooth label pictures, with noisy features of their labels."""
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        corners = rng.normal(size=(N_LABELS, 5, 5))
        smooth = corners.repeat(SIDE // 4, axis=1)[:, :SIDE].repeat(SIDE // 4, axis=2)[:, :, :SIDE]
        labels = smooth.argmax(axis=0)
        features = rng.normal(size=(SIDE, SIDE, N_FEATURES))
        features[..., 0] += labels
        yield features, labels


def estimator(max_iter: int):
    import fieldfit as ff

    return ff.GridCRF("trw", l2=1.0, max_iter=max_iter, n_labels=N_LABELS)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(way: str, folder: str, count: int, max_iter: int) -> None:
    """One fit; prints its figures."""
    import fieldfit as ff

    warnings.simplefilter("ignore")
    small = [(x[:8, :8], y[:8, :8]) for x, y in pictures(2)]
    estimator(1).fit(*zip(*small, strict=True))  # kernels
    before = peak_megabytes()
    data = tuple(zip(*pictures(count), strict=True)) if way == "memory" else ()
    begin = time.process_time()
    if way == "memory":
        crf = estimator(max_iter).fit(*data)
    else:
        memory = 0.0 if way == "shards, memory=0" else 1e9
        crf = estimator(max_iter).fit(ff.shards.Shards(folder, memory=memory))
    figures = {
        "seconds": time.process_time() - begin,
        "peak": peak_megabytes() - before,
        "weights": crf.weights_.tolist(),
    }
    print(json.dumps(figures))


def measured(way: str, folder: Path, count: int, max_iter: int) -> dict:
    command = [sys.executable, "-m", "benchmarks.out_of_core", "--child", way, str(folder)]
    command += [str(count), str(max_iter)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=40)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--largest", type=int, default=10)
    parser.add_argument("--child", nargs=4)
    args = parser.parse_args()
    if args.child:
        way, folder, count, max_iter = args.child
        child(way, folder, int(count), int(max_iter))
        return
    import fieldfit as ff

    print(f"python -m benchmarks.out_of_core --pictures {args.pictures} (seed {SEED})\n")
    print("| pictures | shards | on disk | way | peak of the fit | processor time |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        for factor in (size for size in (1, 2, 5, 10) if size <= args.largest):
            count = factor * args.pictures
            folder = Path(root) / str(factor)
            shards = ff.shards.write(folder, estimator(1), pictures(count), shard_size=SHARD_SIZE)
            disk = sum(entry.n_bytes for entry in shards.manifest.shards) / 2**20
            ways = ["memory"] * (factor <= 2) + ["shards, memory=0", "shards"]
            for way in ways:
                found = measured(way, folder, count, args.iterations)
                print(
                    f"| {count} | {len(shards)} | {disk:.0f} MB | {way} | {found['peak']:.0f} MB | "
                    f"{found['seconds']:.1f} s |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
