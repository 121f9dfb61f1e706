"""Every inference and every MAP search on random models, against enumeration.

python -m benchmarks.laws [--models 100000] [--seed 0] [--first 0] [--out FILE]

Arity up to four, two or three labels, hard zeros, evidence, potentials up to 1,000.  For each
model and method: nothing is NaN, beliefs are distributions, evidence is kept, a claimed bound
holds, "exact" and "optimal" are true, scores are those of the labels.  What fails is printed with
its number, and ``--first N --models 1`` shows it again.  Every finished block of models is written
to a file, and a run that is started again goes on after the last one.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import fieldfit as ff
from fieldfit.errors import InvalidInputError, TooLargeError

#: Models in a block: about a minute.
BLOCK = 500
#: A violation must exceed this, relative to the size of the potentials.
SLACK = 1e-7

INFERENCES = {
    "Bethe": ff.SumProduct(),
    "Bethe, residual": ff.SumProduct(schedule="residual", max_iter=200),
    "TreeReweighted": ff.SumProduct(ff.TreeReweighted()),
    "TreeReweighted, 20 sweeps": ff.SumProduct(ff.TreeReweighted(), max_iter=20),
    "Convex": ff.SumProduct(ff.Convex()),
    "InteriorPoint": ff.inference.InteriorPoint(),
    "InteriorPoint, 5 steps": ff.inference.InteriorPoint(max_iter=5),
    "LogDeterminant": ff.inference.LogDeterminant(),
    "LogDeterminant, 3 steps": ff.inference.LogDeterminant(max_iter=3),
    "BeliefOptimization": ff.BeliefOptimization(max_iter=200),
    "DoubleLoop": ff.DoubleLoop(max_rounds=40),
    "GeneralizedSumProduct": ff.GeneralizedSumProduct(max_rounds=20),
    "ConvexDual": ff.ConvexDual(max_iter=100),
    "ConvexPrimal": ff.ConvexPrimal(max_iter=100),
    "MeanField": ff.MeanField(max_iter=200),
    "Gibbs": ff.Gibbs(n_sweeps=20, burn_in=2, random_state=0),
    "Exact": ff.Exact(),
}
SEARCHES = {
    "Map": ff.Map(),
    "ExactMap": ff.ExactMap(),
    "MaxProduct": ff.MaxProduct(max_iter=100),
    "MaxProduct, trees": ff.MaxProduct(ff.TreeReweighted(), max_iter=100),
    "LinearProgram": ff.LinearProgram(),
    "LocalSearch": ff.LocalSearch(n_starts=1, n_rounds=5),
    "CycleCuts": ff.CycleCuts(max_iter=5),
    "RoofDuality": ff.RoofDuality(),
    "Probing": ff.inference.Probing(),
    "MaxFlow": ff.MaxFlow(),
}


def random_model(seed: int, number: int) -> tuple[ff.FactorGraph, ff.Potentials, dict[int, int]]:
    """A model with at least one possible labelling, which the evidence agrees with."""
    rng = np.random.default_rng([seed, number])
    n = int(rng.integers(2, 7))
    n_labels = rng.integers(2, 4, n) if number % 2 else np.full(n, 2)
    most = 4 if number % 3 else 2
    scopes = [
        tuple(rng.permutation(n)[: rng.integers(1, min(most, n) + 1)].tolist())
        for _ in range(rng.integers(1, 2 * n))
    ]
    graph = ff.FactorGraph(n_labels, scopes)
    kept = rng.integers(0, n_labels)
    scale = float(10.0 ** rng.uniform(-1, 3) / 3.0)
    zeros = float(rng.choice([0.0, 0.2, 0.5]))

    def table(shape: tuple[int, ...], chosen: tuple[int, ...]) -> np.ndarray:
        forbidden = np.array(rng.random(shape) < zeros)
        forbidden[chosen] = False
        return np.where(forbidden, -np.inf, np.clip(scale * rng.normal(size=shape), -1e3, 1e3))

    unary = [table((int(k),), (int(y),)) for k, y in zip(n_labels, kept, strict=True)]
    factors = [
        table(graph.table_shape(a), tuple(int(kept[i]) for i in graph.scope(a)))
        for a in range(graph.n_factors)
    ]
    observed = {i: int(kept[i]) for i in range(n) if rng.random() < 0.2 * (number % 4 == 0)}
    return graph, ff.Potentials(graph, unary, factors), observed


def broken_by_inference(
    graph: ff.FactorGraph, observed: dict[int, int], exact: float, result: ff.InferenceResult
) -> str | None:
    """The first law that a result breaks."""
    unary, tables = result.beliefs.unary_values, result.beliefs.factor_values
    if not (np.isfinite(unary).all() and np.isfinite(tables).all()):
        return "beliefs must be finite"
    if (
        unary.min() < 0.0
        or np.abs(np.add.reduceat(unary, graph.unary_offsets[:-1]) - 1).max() > 1e-8
    ):
        return "beliefs must be distributions"
    if any(result.beliefs.unary(i)[label] < 1.0 - 1e-9 for i, label in observed.items()):
        return "evidence must be kept"
    if np.isnan(result.log_partition) or (result.bound and not np.isfinite(result.log_partition)):
        return "a bound must be a number"
    slack = SLACK * (1.0 + abs(exact))
    distance = result.log_partition - exact
    broken = {
        "exact": abs(distance) > slack,
        "upper": distance < -slack,
        "lower": distance > slack,
        None: False,
    }[result.bound]
    return f"{result.bound} does not hold by {distance:.3g}" if broken else None


def broken_by_search(
    potentials: ff.Potentials, observed: dict[int, int], best: float, result: ff.MapResult
) -> str | None:
    """The same for a labelling."""
    slack = SLACK * (1.0 + abs(best))
    if any(result.labels[i] != label for i, label in observed.items()):
        return "evidence must be kept"
    score = potentials.score(result.labels)
    if not (score == result.score or abs(score - result.score) <= slack):
        return f"score {result.score} is not that of the labels, {score}"
    if result.upper_bound < best - slack:
        return f"upper bound {result.upper_bound} is below the best score {best}"
    if result.optimal and score < best - slack:
        return f"optimal, but {best - score:.3g} below the best score"
    return None


def check_model(seed: int, number: int) -> list[str]:
    """What every method breaks on one model."""
    graph, potentials, observed = random_model(seed, number)
    scores = ff.BruteForce().scores(graph, potentials, _labels(graph, observed))
    best = float(scores.max())
    exact = best + float(np.log(np.exp(scores - best).sum()))
    broken = []

    def attempt(name: str, run: Callable[[], str | None]) -> None:
        try:
            found = run()
        except (InvalidInputError, TooLargeError):  # a method that does not take such models
            return
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found is not None:
            broken.append(f"{name}: {found}")

    for name, solver in INFERENCES.items():
        attempt(
            name,
            lambda solver=solver: broken_by_inference(
                graph, observed, exact, solver.run(graph, potentials, observed)
            ),
        )
    for name, search in SEARCHES.items():
        attempt(
            name,
            lambda search=search: broken_by_search(
                potentials, observed, best, search.run(graph, potentials, observed)
            ),
        )
    return broken


def _labels(graph: ff.FactorGraph, observed: dict[int, int]) -> np.ndarray:
    labels = np.full(graph.n_variables, -1, dtype=np.int32)
    for i, label in observed.items():
        labels[i] = label
    return labels


# -- blocks of models, each written when it is finished -------------------------------------------


@dataclass(frozen=True)
class Block:
    """What was found in some models one after the other."""

    first: int
    models: int
    seconds: float
    broken: list[str]


def finished_blocks(path: Path, seed: int) -> dict[tuple[int, int], Block]:
    """Blocks that an earlier run has written, by their models; a torn line is dropped."""
    if not path.exists():
        return {}
    lines = path.read_text().split("\n")
    # what follows the last line break was torn by a kill
    path.write_text("".join(line + "\n" for line in lines[:-1]))
    wanted = identity(seed)
    found = [json.loads(line) for line in lines[:-1]]
    if found and found[0] != wanted:
        raise SystemExit(f"{path} must hold rows of {wanted}, found those of {found[0]}")
    return {(row["first"], row["models"]): Block(**row) for row in found[1:]}


def identity(seed: int) -> dict[str, Any]:
    """What rows of one file have in common."""
    return {"seed": seed, "methods": [*INFERENCES, *SEARCHES]}


def check_block(seed: int, first: int, models: int) -> Block:
    """Check models one after the other."""
    start, broken = time.process_time(), []
    for number in range(first, first + models):
        broken += [f"model {number}: {sentence}" for sentence in check_model(seed, number)]
    return Block(first, models, time.process_time() - start, broken)


def run(path: Path, seed: int, first: int, models: int) -> Iterator[Block]:
    """All blocks, of which those that are in the file are not computed again."""
    known = finished_blocks(path, seed)
    firsts = range(first, first + models, BLOCK)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if file.tell() == 0:
            file.write(json.dumps(identity(seed)) + "\n")
        for begin in tqdm(firsts):
            count = min(BLOCK, first + models - begin)
            block = known.get((begin, count))
            if block is None:
                block = check_block(seed, begin, count)
                file.write(json.dumps(asdict(block)) + "\n")
                file.flush()
                os.fsync(file.fileno())
            yield block


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="file of finished blocks")
    options = parser.parse_args()
    wanted = (options.seed, options.first, options.models)
    out = options.out or Path("bench-results", f"laws-{options.seed}.jsonl")
    is_short = options.out is None and options.models < BLOCK  # to see something again
    blocks = []
    for block in [check_block(*wanted)] if is_short else run(out, *wanted):
        blocks.append(block)
        for sentence in block.broken:
            tqdm.write(sentence)
    n_methods = len(INFERENCES) + len(SEARCHES)
    n_broken = sum(len(block.broken) for block in blocks)
    print(
        f"{options.models} models, {n_methods} methods, seed {options.seed}: "
        f"{n_broken} laws broken, {sum(block.seconds for block in blocks):.0f} CPU s"
    )
    return 1 if n_broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
