"""Memory and time of a fit over shards, against the same fit in memory.

    python -m benchmarks.out_of_core [--kind grid|graph|chain] [--iterations 3]

A tree-reweighted `GridCRF`, a tree-reweighted `GraphCRF` whose graphs are all different, or the
likelihood of a `ChainCRF`, learns from 1, 2, 5 and 10 times as many examples.  Each fit runs in a
process of its own, whose peak memory is that of the operating system less the one before the fit.
With ``memory=0`` no shard stays in memory, which is what data much larger than it come to.  Times
are processor seconds of the fit, the least of two runs, with files in the page cache; kernels are
loaded before.  The table of the kind goes to docs/scale.md.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fieldfit as ff
from benchmarks.pages import DOCS, written_section

SIDE, N_LABELS, N_FEATURES = 64, 5, 4
N_WORDS = 3000
SEED = 0
WAYS = ("memory", "shards, memory=0", "shards")


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


def networks(count: int) -> Iterator[tuple[tuple, np.ndarray]]:
    """Graphs of 100 to 200 nodes and twice as many edges, each of its own."""
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        n_nodes = int(rng.integers(100, 201))
        tree = [(int(rng.integers(0, node)), node) for node in range(1, n_nodes)]
        more = np.sort(rng.integers(0, n_nodes, size=(n_nodes, 2)), axis=1)
        edges = np.unique(np.concatenate([tree, more[more[:, 0] < more[:, 1]]]), axis=0)
        labels = rng.integers(0, N_LABELS, n_nodes)
        for first, second in tree:
            if rng.random() < 0.6:
                labels[second] = labels[first]
        features = rng.normal(size=(n_nodes, N_FEATURES))
        features[:, 0] += labels
        yield (features, edges), labels


def sentences(count: int) -> Iterator[tuple[list, list]]:
    """Words of a fixed vocabulary, with labels that depend on them."""
    rng = np.random.default_rng(SEED)
    for _ in range(count):
        words = np.minimum(rng.zipf(1.3, size=20), N_WORDS).tolist()
        tokens = [
            {"word": str(word), "before": str(before), "end": str(word % 50)}
            for word, before in zip(words, [0, *words[:-1]], strict=True)
        ]
        yield tokens, [f"L{word % N_LABELS}" for word in words]


@dataclass(frozen=True)
class Kind:
    """A model and its data; ``examples`` is how many are used at first."""

    data: Callable[[int], Iterator[tuple]]
    make: Callable[[int], Any]
    small: Callable[[tuple], tuple]
    examples: int
    shard_size: int


def make_grid(max_iter: int):
    return ff.GridCRF("trw", l2=1.0, max_iter=max_iter, n_labels=N_LABELS)


def make_graph(max_iter: int):
    return ff.GraphCRF("trw", l2=1.0, max_iter=max_iter, n_labels=N_LABELS)


def make_chain(max_iter: int):
    return ff.ChainCRF(l2=1.0, max_iter=max_iter)


KINDS = {
    "grid": Kind(pictures, make_grid, lambda xy: (xy[0][:8, :8], xy[1][:8, :8]), 20, 2**16),
    "graph": Kind(networks, make_graph, lambda xy: xy, 50, 2**14),
    "chain": Kind(sentences, make_chain, lambda xy: xy, 4000, 2**15),
}


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(kind: Kind, way: str, folder: str, count: int, max_iter: int) -> None:
    """One fit; prints its figures."""
    warnings.simplefilter("ignore")
    kind.make(1).fit(*zip(*map(kind.small, kind.data(2)), strict=True))  # kernels
    before = peak_megabytes()
    data = tuple(zip(*kind.data(count), strict=True)) if way == "memory" else ()
    begin = time.process_time()
    if way == "memory":
        kind.make(max_iter).fit(*data)
    else:
        memory = 0.0 if way == "shards, memory=0" else 1e9
        kind.make(max_iter).fit(ff.shards.Shards(folder, memory=memory))
    figures = {"seconds": time.process_time() - begin, "peak": peak_megabytes() - before}
    print(json.dumps(figures))


def measured(kind: str, way: str, folder: Path, count: int, max_iter: int) -> dict:
    command = [sys.executable, "-m", "benchmarks.out_of_core", "--kind", kind, "--child", way]
    command += [str(folder), str(count), str(max_iter)]
    found = []
    for _ in range(2):
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(json.loads(answer.stdout))
    return {name: min(one[name] for one in found) for name in found[0]}


def table(name: str, max_iter: int, say: Callable[[str], None]) -> None:
    """Peaks and times, with 1, 2, 5 and 10 times the data."""
    kind = KINDS[name]
    say("| examples | shards | on disk | way | peak of the fit | processor time |")
    say("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        for factor in (1, 2, 5, 10):
            count = factor * kind.examples
            folder = Path(root) / str(factor)
            shards = ff.shards.write(
                folder, kind.make(1), kind.data(count), shard_size=kind.shard_size
            )
            disk = sum(entry.n_bytes for entry in shards.manifest.shards) / 2**20
            for way in WAYS:
                found = measured(name, way, folder, count, max_iter)
                say(
                    f"| {count} | {len(shards)} | {disk:.0f} MB | {way} | {found['peak']:.0f} MB | "
                    f"{found['seconds']:.2f} s |"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="grid")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--child", nargs=4)
    args = parser.parse_args()
    if args.child:
        way, folder, count, max_iter = args.child
        child(KINDS[args.kind], way, folder, int(count), int(max_iter))
        return
    command = f"python -m benchmarks.out_of_core --kind {args.kind} --iterations {args.iterations}"
    with written_section(DOCS / "scale.md", f"out-of-core-{args.kind}", command) as say:
        table(args.kind, args.iterations, say)


if __name__ == "__main__":
    main()
