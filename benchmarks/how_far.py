"""How far sums over shards go: a cost model of one evaluation, from constants measured here.

    python -m benchmarks.how_far

With W workers, S shards, n weights and N tokens an evaluation takes about

    T = N t / W  +  l + W m  +  (W s + S r + S a) n

    t  processor seconds for a token         l  seconds until the first answer of an empty task
    m  seconds for each further task         s  seconds to send a weight
    r  seconds to receive an entry of a gradient,  a  to add it

and on a machine with P processors W counts as at most P in the first term.  Constants are the least
of several repeats.  The last table compares the model with measured times at 1, 2 and 3 workers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.out_of_core import KINDS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from worker_processes import dask_cluster

SEED = 0
N_WEIGHTS = 10**6
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


def main() -> None:
    warnings.simplefilter("ignore")
    kind, processors = KINDS["chain"], os.cpu_count() or 1
    print(f"`python -m benchmarks.how_far` (seed {SEED}), {processors} processors:\n")
    with tempfile.TemporaryDirectory() as root:
        shards = ff.shards.write(
            Path(root) / "shards", kind.make(1), kind.data(6000), shard_size=2**15
        )
        n_tokens = sum(entry.n_variables for entry in shards.manifest.shards)
        crf = kind.make(1)
        from fieldfit.shards.shard_problem import ShardProblem

        with ShardProblem(shards, crf, crf._objective(), None) as problem:
            weights = np.zeros(problem.n_weights)
            problem.evaluate(weights)
            begin = time.process_time()
            for _ in range(5):
                problem.evaluate(weights)
            per_token = (time.process_time() - begin) / 5 / n_tokens
        measured = {}
        for count in (1, 2, 3):
            with dask_cluster(count) as (client, _):
                if count == 1:
                    cost = constants(client)
                measured[count] = evaluate_seconds(shards, client)
    cost["t"] = per_token
    names = {"t": "a token", "l": "an empty task", "m": "a further task", "s": "a weight sent",
             "r": "an entry received", "a": "an entry added"}  # fmt: skip
    print("| constant | seconds for | |\n|---|---|---|")
    for name, what in names.items():
        print(f"| {name} | {what} | {cost[name]:.2g} |")
    print("\n| workers | measured | model | of it passing data |\n|---|---|---|---|")
    for count, (seconds, n_weights) in measured.items():
        parts = predicted(cost, n_tokens, n_weights, count, len(shards), processors)
        print(f"| {count} | {seconds:.3g} s | {sum(parts):.3g} s | {parts[1]:.2g} s |")
    print(f"\n{N_SENTENCES:.0e} sentences of {N_TOKENS} tokens, {N_WEIGHTS:.0e} weights, "
          f"{SHARDS_PER_WORKER} shards for each worker, a processor each:\n")  # fmt: skip
    print("| workers | computing | passing data | an evaluation |\n|---|---|---|---|")
    for count in (8, 64, 512):
        tokens = float(N_SENTENCES * N_TOKENS)
        parts = predicted(cost, tokens, N_WEIGHTS, count, SHARDS_PER_WORKER * count, count)
        print(f"| {count} | {parts[0]:.3g} s | {parts[1]:.3g} s | {sum(parts):.3g} s |")
    by_worker = N_WEIGHTS * (cost["s"] + SHARDS_PER_WORKER * (cost["r"] + cost["a"])) + cost["m"]
    most = np.sqrt(N_SENTENCES * N_TOKENS * cost["t"] / by_worker)
    print(f"\nBeyond about {most:.0f} workers the reduction takes longer than the evaluation.")


if __name__ == "__main__":
    main()
