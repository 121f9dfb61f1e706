"""What a contrastive gradient costs on seminar mails: in flooding sweeps, and beside likelihoods.

python -m benchmarks.contrastive [--write docs/contrastive.md]

Needs the data sets in the folder that FIELDFIT_DATA names.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.pages import replace_section, stamp
from benchmarks.timing import best_of
from experiments.seminar_mails import FILE
from experiments.seminars_reader import read_seminars
from experiments.tables import markdown_table
from experiments.welling_sutton2005.seminars.run import linked_mails
from fieldfit._parallel import one_blas_thread
from fieldfit.learners.base import Penalty
from fieldfit.learners.problem import TemplateProblem
from fieldfit.models.chain.chain_crf import UNSEEN
from fieldfit.models.chain.chain_labels import label_classes, number_labels
from fieldfit.objectives.base import Objective

#: Sweeps that one contrastive gradient may cost.
N_SWEEPS = 12
#: Iterations after which weights are no longer small, so that beliefs have some way to go.
N_ITERATIONS = 30


def problem(objective: Objective) -> TemplateProblem:
    """All mails, as the experiment's 2-clique model sees them."""
    mails = read_seminars(Path(os.environ["FIELDFIT_DATA"]) / FILE)
    X = linked_mails(mails, [2])[2]
    Y = [[int(label.endswith("-speaker")) for label in mail.labels] for mail in mails]
    crf = ff.SkipChainCRF(all_possible_transitions=True)
    crf.classes_ = label_classes(Y)
    labels = number_labels(Y, crf.classes_, UNSEEN)
    return TemplateProblem(objective, crf._parts(crf._encode_training(X, labels), labels))


def gradients() -> list[str]:
    """CPU time of values and gradients on potentials, in one thread."""
    five = ff.ContrastiveFreeEnergy("bethe", n_steps=5)
    given = problem(five)
    with one_blas_thread():
        learner = ff.LBFGS(max_iter=N_ITERATIONS)
        fit = learner.minimize(given, np.zeros(given.n_weights), penalty=Penalty(l2=0.1))
    parts = [
        (part.batch, part.template.potentials(fit.weights), part.labels) for part in given.parts
    ]
    sweeps = ff.SumProduct(schedule="flooding", tol=1e-300, max_iter=N_SWEEPS, damping=0.0)
    methods = {
        f"{N_SWEEPS} flooding sweeps": lambda: [sweeps.run_batch(b, p) for b, p, _ in parts],
        **{
            name: (lambda objective=objective: [objective.evaluate(*part) for part in parts])
            for name, objective in {
                "CF 5, mean field": ff.ContrastiveFreeEnergy("mean-field", n_steps=5),
                "CF 5, Bethe": five,
                "CF 15, Bethe": ff.ContrastiveFreeEnergy("bethe", n_steps=15),
                "contrastive divergence, 1 sweep": ff.ContrastiveDivergence(1),
                "pseudo-likelihood": ff.PseudoLikelihood(),
                "likelihood, Bethe, cold, tree schedule": ff.Likelihood(
                    ff.SumProduct(schedule="tree", tol=1e-6)
                ),
                "likelihood, Bethe, cold, sequential": ff.Likelihood(ff.SumProduct(tol=1e-6)),
            }.items()
        },
    }
    times = best_of(methods, repeats=5)
    sweep = times[f"{N_SWEEPS} flooding sweeps"] / N_SWEEPS
    rows = [[name, f"{s * 1e3:.0f}", f"{s / sweep:.1f}"] for name, s in times.items()]
    n_variables = sum(part.batch.graph.n_variables for part in given.parts)
    n_factors = sum(part.batch.graph.n_factors for part in given.parts)
    return [
        f"One value and gradient on the potentials of all mails ({n_variables:,} tokens, "
        f"{n_factors:,} edges), at weights of iteration {N_ITERATIONS}, CPU time in one thread:",
        "",
        markdown_table(["evaluation", "ms", "flooding sweeps"], rows),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page to put the table in")
    options = parser.parse_args()
    lines = [stamp("python -m benchmarks.contrastive"), "", *gradients()]
    print("\n".join(lines))
    if options.write:
        replace_section(options.write, "benchmark", lines)


if __name__ == "__main__":
    main()
