"""Pseudo-likelihood of a questionnaire with missing answers, against the one without.

python -m benchmarks.missing_answers [--seed 0] [--write docs/ising.md]

1,525 people and 16 questions, answers drawn at random; entries are missing at random, at most as
many in a row as the model takes.  "Enumeration" sums missing labels out once for each conditional.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.pages import replace_section, stamp
from benchmarks.timing import best_of
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.missing_conditionals import missing_conditionals
from fieldfit.models.pairwise.missing_labels import MissingRows, known_conditionals
from fieldfit.models.pairwise.pairwise_parameters import (
    IsingParameters,
    PottsParameters,
    full_edges,
)
from fieldfit.models.pairwise.pairwise_problems import PseudoLikelihoodProblem
from fieldfit.models.pairwise.potts_model import PottsModel
from fieldfit.models.pairwise.sample_data import Samples

N_ROWS, N_COLUMNS = 1525, 16
MAX_MISSING = {2: 15, 5: 5}


def answers(n_labels: int, rng: np.random.Generator) -> np.ndarray:
    """Answers with something in common: every person tends to high or to low ones."""
    tendency = rng.normal(size=(N_ROWS, 1)) + rng.normal(size=(N_ROWS, N_COLUMNS))
    cuts = np.quantile(tendency, np.arange(1, n_labels) / n_labels)
    return np.searchsorted(cuts, tendency).astype(np.int16)


def with_missing(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    order = rng.random(labels.shape)
    most = MAX_MISSING[int(labels.max()) + 1]
    kept = np.sort(order, axis=1)[:, most : most + 1]  # smallest that may not be missing
    return np.where((order < share) & (order < kept), -1, labels).astype(np.int16)


def evaluation_seconds(complete: np.ndarray, given: np.ndarray, n_labels: int) -> dict[str, float]:
    """CPU seconds of one value and gradient, complete and by both ways for missing labels."""
    edges = full_edges(N_COLUMNS)
    parameters = (
        IsingParameters(N_COLUMNS, edges)
        if n_labels == 2
        else PottsParameters(N_COLUMNS, edges, n_labels)
    )
    weights = 0.3 * np.random.default_rng(0).normal(size=parameters.n_weights)
    weight = np.ones(N_ROWS)
    whole = PseudoLikelihoodProblem(parameters, Samples.of(complete, weight))
    rows = MissingRows(parameters, Samples.of(given, weight), n_more=1)
    found = best_of(
        {
            "complete": lambda: whole.evaluate(weights),
            "now": lambda: rows.evaluate(missing_conditionals, weights),
        }
    )
    found |= best_of({"enumeration": lambda: rows.evaluate(known_conditionals, weights)}, repeats=1)
    a = rows.evaluate(missing_conditionals, weights)
    b = rows.evaluate(known_conditionals, weights)
    assert all(np.allclose(x, y, rtol=1e-9, atol=1e-8) for x, y in zip(a, b, strict=True))
    return found


def fit_seconds(labels: np.ndarray, n_labels: int) -> tuple[float, int]:
    model = IsingModel(l2=1.0) if n_labels == 2 else PottsModel(l2=1.0, n_labels=n_labels)
    start = time.process_time()
    model.fit(labels)
    return time.process_time() - start, model.n_iter_


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    lines = [
        stamp(f"python -m benchmarks.missing_answers --seed {options.seed} --write docs/ising.md"),
        f"{N_ROWS:,} x {N_COLUMNS} answers, of 5 labels at most {MAX_MISSING[5]} missing in a row "
        "(what the model takes); `IsingModel` for 2 labels, `PottsModel` for 5. CPU milliseconds "
        "of one value and gradient: all labels known; missing ones summed out anew for each "
        "conditional (before); all conditionals from one table (now). Ratios are to the complete "
        "table. Fits with `l2=1` in CPU seconds.",
        "",
        "| labels | missing | complete | before | now | ratio before | ratio now | fit complete "
        "| fit |",
        "|---" * 9 + "|",
    ]
    print("\n".join(lines), flush=True)
    for n_labels in (2, 5):
        for share in (0.05, 0.15):
            rng = np.random.default_rng(options.seed)
            complete = answers(n_labels, rng)
            given = with_missing(complete, share, rng)
            found = evaluation_seconds(complete, given, n_labels)
            fit_seconds(given, n_labels)  # compile
            fits = [fit_seconds(labels, n_labels) for labels in (complete, given)]
            ms = [f"{1000 * found[name]:.2f}" for name in ("complete", "enumeration", "now")]
            ratios = [found[name] / found["complete"] for name in ("enumeration", "now")]
            lines.append(
                f"| {n_labels} | {100 * share:.0f} % | {' | '.join(ms)} | "
                + " | ".join(f"{ratio:.1f}" for ratio in ratios)
                + " | "
                + " | ".join(f"{cpu:.2f} ({n_iter} iterations)" for cpu, n_iter in fits)
                + " |"
            )
            print(lines[-1], flush=True)
    if options.write:
        replace_section(options.write, "missing-answers", lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
