"""What CAMEL costs on names in articles (CoNLL-2003): one evaluation, and a whole round.

python -m benchmarks.camel [--only evaluations] [--write docs/camel.md]

Needs the data sets in the folder that FIELDFIT_DATA names.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.pages import replace_section, stamp
from benchmarks.timing import best_of
from experiments.ganapathi2008.ner.data import examples, model_labels, read_documents
from experiments.ganapathi2008.ner.run import FULL
from experiments.tables import markdown_table
from fieldfit._parallel import one_blas_thread
from fieldfit.features.text import drop_rare
from fieldfit.learners.base import Penalty
from fieldfit.learners.camel_dual import JointDual, WeightDual
from fieldfit.learners.camel_rounds import CamelRounds
from fieldfit.learners.problem import TemplateProblem
from fieldfit.models.chain.chain_crf import UNSEEN
from fieldfit.models.chain.chain_labels import label_classes, number_labels

#: Articles of the comparison of solvers.
N_ARTICLES = 200
#: Iterations of the joint solver at which it is looked at.
LOOKS = (50, 100, 200, 400, 800)
TOL = 1e-5


def problem(n_articles: int | None) -> TemplateProblem:
    """The training set of the experiment, as its skip-chains see it."""
    documents = read_documents(Path(os.environ["FIELDFIT_DATA"]), "train")[:n_articles]
    given = examples(documents, FULL.features, FULL.max_links)
    kept = drop_rare([x[0] for x in given], FULL.min_count)
    X = [(tokens, *x[1:]) for tokens, x in zip(kept, given, strict=True)]
    Y = model_labels(documents)
    crf = ff.SkipChainCRF(all_possible_transitions=True)
    crf.classes_ = label_classes(Y)
    labels = number_labels(Y, crf.classes_, UNSEEN)
    return TemplateProblem(ff.Piecewise(), crf._parts(crf._encode_training(X, labels), labels))


def evaluations() -> list[str]:
    """CPU time of one value and gradient over all articles, for each method."""
    separate = problem(None)
    shared = TemplateProblem(ff.Piecewise(unary="shared"), separate.parts)
    model = separate.linear_model()
    joint, double = JointDual(model), WeightDual(model, tol=TOL)
    rng = np.random.default_rng(0)
    weights = 0.1 * rng.normal(size=separate.n_weights)
    both = np.concatenate([weights, 0.1 * rng.normal(size=joint.n_weights - joint.n_shared)])
    # as a learner does: each evaluation is a step away from the last one, with its messages
    step = 0.01 * rng.normal(size=separate.n_weights)
    signs = iter(np.resize([1.0, -1.0], 1000))
    times = best_of(
        {
            "piecewise": lambda: separate.evaluate(weights),
            "piecewise, unary potentials shared": lambda: shared.evaluate(weights),
            "CAMEL, joint dual": lambda: joint.evaluate(both),
            "CAMEL, double loop, warm": lambda: double.evaluate(weights + next(signs) * step),
        },
        repeats=5,
    )
    base = times["piecewise"]
    rows = [[name, f"{s * 1e3:.0f}", f"{s / base:.2f}"] for name, s in times.items()]
    graph = sum(part.batch.graph.n_factors for part in separate.parts)
    return [
        f"One value and gradient over {model.n_examples} articles ({graph:,} factors, "
        f"{model.n_weights:,} weights, {joint.n_weights - joint.n_shared:,} multipliers), CPU time "
        "in one thread:",
        "",
        markdown_table(["evaluation", "ms", "times piecewise"], rows),
        "",
    ]


def solvers() -> list[str]:
    """How near the two solvers of a round come to its optimum, and when."""
    given = problem(N_ARTICLES)
    start = np.zeros(given.n_weights)
    penalty = Penalty(l2=0.1)
    rows = []

    def fit(solver: str, max_iter: int, tol: float) -> tuple[float, float, int]:
        objective = ff.Camel("camel0", solver=solver, tol=TOL)
        learner = CamelRounds(objective, inner=ff.LBFGS(max_iter=max_iter, tol=tol))
        begin = time.process_time()
        with one_blas_thread():
            found = learner.minimize(given, start, penalty=penalty)
        return found.trace[-1]["objective"], time.process_time() - begin, found.n_iter

    fit("double-loop", 5, 1e-3)  # compile
    fit("joint", 5, 1e-3)
    optimum, _, _ = fit("double-loop", 2000, 1e-6)
    for tol in (1e-2, 1e-3, 1e-4):
        value, seconds, n_iter = fit("double-loop", 2000, tol)
        rows.append(["double loop", n_iter, f"{seconds:.1f}", f"{value / optimum - 1:.1e}"])
    for limit in LOOKS:
        value, seconds, n_iter = fit("joint", limit, 1e-6)
        rows.append(["joint", n_iter, f"{seconds:.1f}", f"{value / optimum - 1:.1e}"])
    return [
        f"CAMEL(0) on {N_ARTICLES} articles, iterations with those of the piecewise stage:",
        "",
        markdown_table(["solver", "iterations", "CPU s", "above the optimum, relative"], rows),
        "",
    ]


TABLES = {"evaluations": evaluations, "solvers": solvers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page to put the tables in")
    parser.add_argument("--only", choices=list(TABLES), help="one table; default all")
    options = parser.parse_args()
    chosen = [options.only] if options.only else list(TABLES)
    command = " ".join(
        ["python -m benchmarks.camel", *(["--only", *chosen] if options.only else [])]
    )
    lines = [stamp(command), "", *(line for name in chosen for line in TABLES[name]())]
    print("\n".join(lines))
    if options.write:
        replace_section(options.write, "benchmark", lines)


if __name__ == "__main__":
    main()
