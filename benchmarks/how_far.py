"""How far sums over shards go: a cost model of one evaluation, from constants measured here.

    python -m benchmarks.how_far

With W workers, S shards, n weights and N tokens an evaluation takes about

    T = N t / W  +  l + W m  +  (W s + S r + S a) n

    t  processor seconds for a token         l  seconds until the first answer of an empty task
    m  seconds for each further task         s  seconds to send a weight
    r  seconds to receive an entry of a gradient,  a  to add it

and on a machine with P processors W counts as at most P in the first term.  Constants are the least
of several repeats.  The model is compared with times measured at 1, 2 and 3 workers, for two sizes
of data, and then asked about clusters.  The tables go to docs/scale.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.out_of_core import KINDS
from benchmarks.pages import DOCS, written_section

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from worker_processes import dask_cluster

SEED = 0
N_WEIGHTS = 10**6
#: Sentences of the comparison, and the sizes of their shards.
SIZES = {6000: 2**15, 60000: 2**18}
#: Of the prediction: sentences, tokens of each, and shards for each worker.
N_SENTENCES, N_TOKENS, SHARDS_PER_WORKER = 10**7, 25, 2


def least(function, repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def empty() -> None:
    """A task that does nothing."""


def length(array: np.ndarray) -> int:
    return len(array)


def constants(client) -> dict[str, float]:
    weights = np.random.default_rng(SEED).normal(size=N_WEIGHTS)
    (worker, *_) = client.scheduler_info()["workers"]

    def run(function, *arguments, count: int = 1) -> None:
        futures = [
            client.submit(function, *arguments, pure=False, workers=[worker]) for _ in range(count)
        ]
        for future in futures:
            future.result()

    latency = least(lambda: run(empty), 30)
    further = (least(lambda: run(empty, count=50)) - latency) / 49
    total = np.zeros(N_WEIGHTS)
    return {
        "l": latency,
        "m": further,
        "s": (least(lambda: run(length, weights)) - latency) / N_WEIGHTS,
        "r": (least(lambda: run(np.ones, N_WEIGHTS)) - latency) / N_WEIGHTS,
        "a": least(lambda: np.add(total, weights, out=total)) / N_WEIGHTS,
    }


def evaluate_seconds(shards: ff.shards.Shards, client) -> tuple[float, int]:
    """Seconds of an evaluation, without the first ones, and the number of weights."""
    kind = KINDS["chain"]
    kind.make(2).fit(shards, client=client)
    best = np.inf
    for _ in range(2):
        crf = kind.make(8).fit(shards, client=client)
        steps = np.diff([row["seconds"] for row in crf.trace_])
        best = min(best, float(steps.min()))
    return best, len(crf.weights_)


def predicted(cost: dict[str, float], n_tokens: float, n_weights: float, workers: int,
              n_shards: int, processors: int) -> tuple[float, float]:  # fmt: skip
    computing = n_tokens * cost["t"] / min(workers, processors)
    passing = cost["l"] + workers * cost["m"]
    passing += n_weights * (workers * cost["s"] + n_shards * (cost["r"] + cost["a"]))
    return computing, passing


def seconds_per_token(shards: ff.shards.Shards, n_tokens: int) -> float:
    """Processor seconds of an evaluation in this process, shared out."""
    from fieldfit.shards.shard_problem import ShardProblem

    crf = KINDS["chain"].make(1)
    with ShardProblem(shards, crf, crf._objective(), None) as problem:
        weights = np.zeros(problem.n_weights)
        problem.evaluate(weights)
        begin = time.process_time()
        for _ in range(5):
            problem.evaluate(weights)
        return (time.process_time() - begin) / 5 / n_tokens


def measure(root: Path) -> tuple[dict[str, float], list[tuple]]:
    """The constants, and (sentences, workers, seconds, tokens, weights, shards) for each fit."""
    kind, rows = KINDS["chain"], []
    written = {
        count: ff.shards.write(root / str(count), kind.make(1), kind.data(count), shard_size=size)
        for count, size in SIZES.items()
    }
    tokens = {
        count: sum(entry.n_variables for entry in shards.manifest.shards)
        for count, shards in written.items()
    }
    largest = max(written)
    per_token = seconds_per_token(written[largest], tokens[largest])
    for workers in (1, 2, 3):
        with dask_cluster(workers) as (client, _):
            if workers == 1:
                cost = {"t": per_token, **constants(client)}
            for count, shards in written.items():
                seconds, n_weights = evaluate_seconds(shards, client)
                rows.append((count, workers, seconds, tokens[count], n_weights, len(shards)))
    return cost, sorted(rows)


def compare(cost: dict[str, float], rows: list[tuple], say: Callable[[str], None]) -> None:
    """Constants, and the model beside what was measured."""
    names = {"t": "a token", "l": "an empty task", "m": "a further task", "s": "a weight sent",
             "r": "an entry received", "a": "an entry added"}  # fmt: skip
    say("| constant | seconds for | |\n|---|---|---|")
    for name, what in names.items():
        say(f"| {name} | {what} | {cost[name]:.2g} |")
    processors = os.cpu_count() or 1
    say("\n| sentences | workers | measured | model | of it passing data | model / measured |")
    say("|---|---|---|---|---|---|")
    for count, workers, seconds, n_tokens, n_weights, n_shards in rows:
        parts = predicted(cost, n_tokens, n_weights, workers, n_shards, processors)
        say(
            f"| {count} | {workers} | {seconds:.3g} s | {sum(parts):.3g} s | {parts[1]:.2g} s | "
            f"{sum(parts) / seconds:.2f} |"
        )


def extrapolate(cost: dict[str, float], say: Callable[[str], None]) -> None:
    """What the model says of clusters."""
    say(f"\n{N_SENTENCES:.0e} sentences of {N_TOKENS} tokens, {N_WEIGHTS:.0e} weights, "
        f"{SHARDS_PER_WORKER} shards for each worker, a processor each:\n")  # fmt: skip
    say("| workers | computing | passing data | an evaluation |\n|---|---|---|---|")
    for count in (8, 64, 512):
        tokens = float(N_SENTENCES * N_TOKENS)
        parts = predicted(cost, tokens, N_WEIGHTS, count, SHARDS_PER_WORKER * count, count)
        say(f"| {count} | {parts[0]:.3g} s | {parts[1]:.3g} s | {sum(parts):.3g} s |")
    by_worker = N_WEIGHTS * (cost["s"] + SHARDS_PER_WORKER * (cost["r"] + cost["a"])) + cost["m"]
    most = np.sqrt(N_SENTENCES * N_TOKENS * cost["t"] / by_worker)
    say(f"\nBeyond about {most:.0f} workers the reduction takes longer than the evaluation.")


def main() -> None:
    warnings.simplefilter("ignore")
    with (
        tempfile.TemporaryDirectory() as root,
        written_section(DOCS / "scale.md", "how-far", "python -m benchmarks.how_far") as say,
    ):
        cost, rows = measure(Path(root))
        say(f"Seed {SEED}, {os.cpu_count()} processors:\n")
        compare(cost, rows, say)
        extrapolate(cost, say)


if __name__ == "__main__":
    main()
