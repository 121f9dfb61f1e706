"""Contacts of a protein family (Pfam PF00014) from its aligned sequences.

FIELDFIT_DATA=folder python -m benchmarks.potts [--l2 100 ...] [--write docs/ising.md]
[--images docs/images]

13,600 sequences of 53 columns, 21 labels, weighted at 80 % identity.  A pair at least five columns
apart is a contact if the residues are closer than 8 Angstrom in the structure.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.pages import replace_section, stamp
from fieldfit.models.pairwise.potts_model import PottsModel, sequence_weights
from fieldfit.io.samples import read_fasta

TOP = (10, 20, 50, 100)
MIN_DISTANCE, CONTACT = 5, 8.0


def structure_contacts(path: Path, n_columns: int) -> np.ndarray:
    with gzip.open(path, "rt") as file:
        rows = np.loadtxt(file)
    first, second = rows[:, 0].astype(int) - 1, rows[:, 1].astype(int) - 1
    contacts = np.zeros((n_columns, n_columns), dtype=bool)
    contacts[first, second] = contacts[second, first] = rows[:, 3] < CONTACT
    return contacts


def precisions(scores: np.ndarray, contacts: np.ndarray) -> list[float]:
    first, second = np.triu_indices(len(scores), MIN_DISTANCE)
    order = np.argsort(-scores[first, second], kind="stable")
    hits = contacts[first, second][order]
    return [float(hits[:n].mean()) for n in TOP]


def megabytes() -> float:
    """Largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compile_kernels(n_labels: int) -> None:
    """A fit to a few random sequences, so that compilation is not timed."""
    rng = np.random.default_rng(0)
    PottsModel(n_labels=n_labels, l2=1.0).fit(rng.integers(0, n_labels, (50, 4)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--l2", type=float, nargs="+", default=[30.0, 100.0, 300.0])
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--images", type=Path)
    options = parser.parse_args()
    if "FIELDFIT_DATA" not in os.environ:
        print("FIELDFIT_DATA must name the folder of the data sets", file=sys.stderr)
        return 2
    folder = Path(os.environ["FIELDFIT_DATA"]) / "protein_msa"
    alignment = read_fasta(folder / "PF00014_mgap6.fasta.gz")
    labels, n_labels = alignment.labels, len(alignment.alphabet)
    contacts = structure_contacts(folder / "PF00014_struct.dat.gz", labels.shape[1])
    compile_kernels(n_labels)
    wall, cpu = time.perf_counter(), time.process_time()
    weights = sequence_weights(labels, 0.8, n_jobs=options.n_jobs)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    lines = [
        stamp("python -m benchmarks.potts --write docs/ising.md --images docs/images"),
        f"{labels.shape[0]:,} sequences ({weights.sum():.0f} effective, weights in {wall:.1f} s of "
        f"wall time, {cpu:.1f} s CPU), {options.n_jobs} threads.",
        "",
        "| l2 | " + " | ".join(f"top {n}" for n in TOP) + " | iterations | wall s | CPU s | MB |",
        "|---" * (len(TOP) + 5) + "|",
    ]
    print("\n".join(lines), flush=True)
    for l2 in options.l2:
        model = PottsModel(n_labels=n_labels, l2=l2, n_jobs=options.n_jobs)
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(labels, sample_weight=weights)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        found = precisions(model.contact_scores(), contacts)
        lines.append(
            f"| {l2:g} | "
            + " | ".join(f"{value:.2f}" for value in found)
            + f" | {model.n_iter_} | "
            f"{wall:.0f} | {cpu:.0f} | {megabytes():.0f} |"
        )
        print(lines[-1], flush=True)
        if options.images and l2 == 100.0:
            import matplotlib

            matplotlib.use("Agg")
            axes = model.plot_contacts(contacts=contacts)
            axes.figure.savefig(options.images / "contacts.png", dpi=80)
    if options.write:
        replace_section(options.write, "contacts", lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
