"""Does ``fieldfit compare`` recommend a method that is best in the test?  Five kinds of real data.

    FIELDFIT_DATA=folder python -m benchmarks.comparisons --out DIR [--tasks A,B] [--budget 180]
                         [--write docs/compare.md]

Every task is written to files and given to the command, as a user would, with test data that take
no part in any choice.  A row says how long it took by the clock, what was recommended, and how much
worse the recommended method is in the test than the best one there, with the standard error of that
difference over test examples.  Finished tasks are kept in DIR, and a run that is killed goes on.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gain_data import make_task
from benchmarks.grid_data import data_folder, digits
from benchmarks.pages import replace_section, stamp
from experiments.tables import markdown_table
from experiments.tang2016.house_hotel.data import read_sequences
from fieldfit.comparison.held_out_scores import HeldOutScores

#: Files of training and test data, and further words of the command.
Files = tuple[str, Path, Path, list[str]]


def conll2000(folder: Path) -> Files:
    """Chunks: 1,000 sentences, 500 of the test set."""
    paths = []
    for name, count in (("train", 1000), ("test", 500)):
        with gzip.open(data_folder() / "conll2000" / f"{name}.txt.gz", "rt") as file:
            sentences = file.read().strip().split("\n\n")[:count]
        paths.append(folder / f"{name}.txt")
        paths[-1].write_text("\n\n".join(sentences) + "\n")
    return "chain", *paths, []


def noisy_digits(folder: Path) -> Files:
    """Handwritten digits with noise: 90 and 90."""
    paths = []
    for name, (x, y) in zip(("train", "test"), digits(), strict=True):
        paths.append(folder / f"{name}.npz")
        np.savez(paths[-1], x=x, y=y)
    return "grid", *paths, []


def horses(folder: Path) -> Files:
    """Figure and ground by the log-probabilities of a classifier: 60 and 60 pictures."""
    task, paths = make_task("horses", 0), []
    for name, (x, y) in (("train", task.train), ("test", task.test)):
        paths.append(folder / f"{name}.npz")
        np.savez(paths[-1], x=np.stack(x[:60]), y=np.stack(y[:60]))
    return "grid", *paths, []


def wenchuan(folder: Path) -> Files:
    """Symptoms of 362 people, a hundred of them for the test."""
    with gzip.open(data_folder() / "ising_networks" / "wenchuan.csv.gz", "rt") as file:
        header, *rows = file.read().strip().split("\n")
    order, paths = np.random.default_rng(0).permutation(len(rows)), []
    for name, chosen in (("train", order[100:]), ("test", order[:100])):
        paths.append(folder / f"{name}.csv")
        paths[-1].write_text("\n".join([header, *(rows[k] for k in chosen)]) + "\n")
    return "ising", *paths, ["--threshold", "3"]


def house(folder: Path) -> Files:
    """Landmarks of two views, 50 frames apart."""
    sequence, paths = read_sequences(data_folder())[0], []
    for name in ("train", "test"):
        pairs = sequence.of(50, name)
        features = np.stack([sequence.features(pair, "squared") for pair in pairs])
        paths.append(folder / f"{name}.npz")
        partners = np.tile(np.arange(sequence.n_landmarks), (len(pairs), 1))
        np.savez(paths[-1], features=features, partners=partners)
    return "matching", *paths, []


TASKS: dict[str, Callable[[Path], Files]] = {
    "conll2000": conll2000,
    "digits": noisy_digits,
    "horses": horses,
    "wenchuan": wenchuan,
    "house": house,
}
#: What counts, by kind of model.
MEASURES = {"ising": "log_loss"}


def run_task(name: str, folder: Path, budget: float) -> dict[str, Any]:
    """The command on one task, unless it is done."""
    path = folder / name
    done = path / "done.json"
    if not done.exists():
        path.mkdir(parents=True, exist_ok=True)
        kind, train, test, more = TASKS[name](path)
        words = ["compare", kind, "--train", str(train), "--test", str(test)]
        words += ["--budget", f"{budget:g}", "--out", str(path / "out"), *more]
        begin = time.monotonic()
        subprocess.run([sys.executable, "-m", "fieldfit.cli.main", *words], check=True)
        done.write_text(json.dumps({"kind": kind, "seconds": time.monotonic() - begin}))
    found: dict[str, Any] = json.loads(done.read_text())
    return found | verdict(path / "out", found["kind"])


def verdict(out: Path, kind: str) -> dict[str, Any]:
    """The recommended method and the best one in the test."""
    measure = MEASURES.get(kind, "error")
    with open(out / "results.csv", newline="") as file:
        names = [row["method"] for row in csv.DictReader(file) if row["error"]]
    stored = {name: json.loads((out / "methods" / f"{name}.json").read_text()) for name in names}
    held_out = {name: HeldOutScores.from_json(row["scores"]) for name, row in stored.items()}
    test = {name: HeldOutScores.from_json(row["test"]) for name, row in stored.items()}
    chosen = min(names, key=lambda name: held_out[name].mean(measure))
    best = min(names, key=lambda name: test[name].mean(measure))
    excess, error = test[chosen].excess(test[best], measure)
    return {
        "methods": len(names),
        "recommended": chosen,
        "its score": test[chosen].mean(measure),
        "best": best,
        "best score": test[best].mean(measure),
        "independent": test["independent"].mean(measure),
        "excess": excess,
        "error": error,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--budget", type=float, default=180.0)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    header = ["data", "kind", "methods", "s by the clock", "independent", "recommended", "test"]
    header += ["best in the test", "test", "difference"]
    lines = []
    for name in options.tasks.split(","):
        row = run_task(name, options.out, options.budget)
        lines.append(
            [
                *(name, row["kind"], row["methods"], f"{row['seconds']:.0f}"),
                *(f"{row['independent']:.4f}", f"`{row['recommended']}`"),
                *(f"{row['its score']:.4f}", f"`{row['best']}`", f"{row['best score']:.4f}"),
                f"{row['excess']:.4f} ± {row['error']:.4f}",
            ]
        )
        print(lines[-1], flush=True)
    text = [
        stamp(f"python -m benchmarks.comparisons --budget {options.budget:g}"),
        "",
        markdown_table(header, lines),
    ]
    print("\n".join(text))
    if options.write:
        replace_section(options.write, "comparisons", text)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    raise SystemExit(main())
