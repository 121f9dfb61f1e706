"""Linear chains on real data: CRFsuite on CoNLL-2000, and objectives on OCR letters.

python -m benchmarks.chain [--write docs/benchmarks-chain.md] [--only SECTION ...]

Needs the data sets in the folder that FIELDFIT_DATA names.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numba
import numpy as np

from benchmarks.chain_runs import install_crfsuite, run
from benchmarks.run import Table, table
from fieldfit.cli.kinds.token_features import token_attributes
from fieldfit.errors import ConvergenceWarning
from fieldfit.models.chain.chain_crf import ChainCRF
from fieldfit.io.sequences import read_columns
from fieldfit.metrics import chunk_f1

#: CRFsuite's c2 = 1.
L2 = 2.0
SEED = 0
#: Iterations of one timed run, and runs of each rival.
N_ITERATIONS, N_ROUNDS = 40, 3


def data_folder() -> Path:
    folder = os.environ.get("FIELDFIT_DATA")
    if not folder:
        raise SystemExit("FIELDFIT_DATA must name the folder with the data sets")
    return Path(folder)


def write_attributes(name: str, folder: Path) -> tuple[Path, list[list[str]]]:
    """The tutorial's attributes of a part of CoNLL-2000 as text, and its labels."""
    labels = []
    path = folder / f"{name}.txt"
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for rows in read_columns(data_folder() / "conll2000" / f"{name}.txt.gz"):
            labels.append([row[2] for row in rows])
            attributes = token_attributes([row[:2] for row in rows], "window", 2)
            for label, names in zip(labels[-1], attributes, strict=True):
                file.write("\t".join([label, *names]) + "\n")
            file.write("\n")
    return path, labels


def chunking_quality() -> Table:
    """CoNLL-2000, both libraries to convergence (c2 = 1, l2 = 2)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, _ = write_attributes("train", folder)
        test, truth = write_attributes("test", folder)
        theirs = run("crfsuite", train, n_iterations=1000, l2=L2, test=test)
        ours = run("fieldfit", train, n_iterations=1000, l2=L2, n_jobs=2, test=test)
    rows = []
    for label, answer, key in (
        ("CRFsuite (Viterbi)", theirs, "predicted"),
        ("fieldfit (Viterbi)", ours, "predicted map"),
        ("fieldfit (marginals)", ours, "predicted marginals"),
    ):
        found = answer[key]
        right = [
            a == b for x, y in zip(truth, found, strict=True) for a, b in zip(x, y, strict=True)
        ]
        rows.append(
            f"{label} | {answer['objective']:.4f} | "
            f"{answer['objective'] / theirs['objective'] - 1.0:+.1e} | {answer['n_iter']} | "
            f"{answer['n_weights']} | {100 * chunk_f1(truth, found):.2f} | "
            f"{100 * np.mean(right):.2f}"
        )
    return table(
        "library | objective | relative difference | iterations | weights | chunk F1 % | "
        "token accuracy %",
        rows,
    )


def chunking_speed() -> Table:
    """One iteration of L-BFGS on CoNLL-2000: seconds, in interleaved processes; least median."""
    rivals = {"CRFsuite": ("crfsuite", 1), "fieldfit, 1 thread": ("fieldfit", 1)}
    rivals["fieldfit, 2 threads"] = ("fieldfit", 2)
    wall: dict[str, list[float]] = {name: [] for name in rivals}
    cpu: dict[str, list[float]] = {name: [] for name in rivals}
    last = {}
    with tempfile.TemporaryDirectory() as folder:
        train, _ = write_attributes("train", Path(folder))
        for _ in range(N_ROUNDS):
            for name, (library, n_jobs) in rivals.items():
                answer = run(
                    library, train, n_iterations=N_ITERATIONS, l2=L2, n_jobs=n_jobs, test=None
                )
                wall[name].append(median(answer["wall"]))
                cpu[name].append(float(np.mean(answer["cpu"])))
                last[name] = answer
    rows = []
    for name in rivals:
        answer = last[name]
        rows.append(
            f"{name} | {min(wall[name]):.3f} | {min(wall[name]) / min(wall['CRFsuite']):.2f} | "
            f"{min(cpu[name]):.3f} | {min(cpu[name]) / min(cpu['CRFsuite']):.2f} | "
            f"{answer['reading']:.1f} | {answer['increase']:.0f} | {answer['peak']:.0f}"
        )
    return table(
        "library | wall s / iteration | ratio | CPU s / iteration | ratio | reading s | "
        "MB more than the input | MB peak",
        rows,
    )


def letters() -> Table:
    """Fold 0 for training, folds 1 to 9 for testing; 128 pixels, weights for all pairs."""
    data = np.load(data_folder() / "ocr_letters" / "letters.npz")
    pixels = data["pixels"].reshape(-1, 128).astype(np.float64)
    bounds = list(zip(data["offsets"], data["offsets"][1:], strict=False))
    X = [pixels[a:b] for a, b in bounds]
    Y = [data["labels"][a:b].astype(int) for a, b in bounds]
    train = np.flatnonzero(data["fold"] == 0)
    test = np.flatnonzero(data["fold"] != 0)
    rows = []
    for objective in ("likelihood", "pseudolikelihood", "piecewise", "max-margin", "perceptron"):
        grid = (0.0,) if objective == "perceptron" else (0.3, 1.0, 3.0, 10.0, 30.0)

        def fitted(l2: float, chosen: np.ndarray, objective: str = objective) -> ChainCRF:
            smooth = objective not in ("max-margin", "perceptron")
            crf = ChainCRF(
                objective,
                l2=l2,
                all_possible_transitions=True,
                max_iter=1000 if smooth else 60,
                batch_size=None if smooth else 20,
                random_state=SEED,
                n_jobs=2,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                return crf.fit([X[m] for m in chosen], [Y[m] for m in chosen])

        def error(crf: ChainCRF, chosen: np.ndarray) -> float:
            return 1.0 - crf.score([X[m] for m in chosen], [Y[m] for m in chosen])

        # strength of the penalty by three-fold cross-validation on the training fold
        folds = np.random.default_rng(SEED).permutation(len(train)) % 3
        held_out = [
            np.mean([error(fitted(l2, train[folds != f]), train[folds == f]) for f in range(3)])
            for l2 in grid
        ]
        l2 = grid[int(np.argmin(held_out))]
        start = time.perf_counter()
        crf = fitted(l2, train)
        seconds = time.perf_counter() - start
        rows.append(
            f"{objective} | {l2} | {100 * error(crf, test):.2f} | {100 * min(held_out):.2f} | "
            f"{100 * error(crf, train):.2f} | {seconds:.1f} | {crf.n_iter_} | "
            f"{'yes' if crf.converged_ else 'no'}"
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return table(
        "objective | l2 | letter error %, test | cross-validation | training | seconds | "
        "iterations | converged",
        rows,
    )


SECTIONS: dict[str, tuple[str, Callable[[], Table]]] = {
    "quality": ("Chunking: the same optimum", chunking_quality),
    "speed": ("Chunking: time and memory", chunking_speed),
    "letters": ("OCR letters: objectives", letters),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="also write the tables to this file")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    options = parser.parse_args()
    if not install_crfsuite():
        raise SystemExit("python-crfsuite cannot be installed here")
    command = "python -m benchmarks.chain " + " ".join(sys.argv[1:])
    lines = [
        "# Benchmarks of linear chains",
        "",
        f"Written by `{command.strip()}` on {time.strftime('%Y-%m-%d')}; seed {SEED}.",
        f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}, "
        f"python-crfsuite 0.9.12, {platform.machine()} "
        f"({numba.core.config.NUMBA_NUM_THREADS} hardware threads, "
        f"{numba.core.codegen.ll.get_host_cpu_name()}).",
    ]
    for key in options.only:
        title, function = SECTIONS[key]
        print(f"\n{title} ...", file=sys.stderr)
        rows = function()
        summary = (function.__doc__ or "").strip()
        section = ["", f"## {title}", "", summary, "", *[f"| {row} |" for row in rows]]
        print("\n".join(section), flush=True)
        lines += section
    if options.write:
        options.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
