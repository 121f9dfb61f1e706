"""Bit-exact snapshot of what the library computes, to compare two states of the code.

python -m benchmarks.snapshot write FILE.npz        # in each checkout, on one machine
python -m benchmarks.snapshot compare A.npz B.npz   # lists every array whose bits differ

A refactoring must not change a bit; a change of an algorithm shows what it changed.  The snapshot
holds every inference and MAP search on every problem of the laws, every objective with its
gradient, and some fits of each estimator.  Bits are comparable on one machine only.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fieldfit as ff

Arrays = dict[str, np.ndarray]
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))


def inferences() -> Iterator[tuple[str, Arrays]]:
    """Beliefs and values of every inference, labels of every MAP search, on every problem."""
    from algorithms import INFERENCES, MAP_SEARCHES
    from problems import PROBLEMS

    for algorithm in INFERENCES:
        for problem in filter(algorithm.takes, PROBLEMS):
            result = algorithm.run(problem)
            yield (
                f"{algorithm} / {problem.name}",
                {
                    "unary": result.beliefs.unary_values,
                    "factors": result.beliefs.factor_values,
                    "value": np.array([result.log_partition, result.residual, result.n_iter]),
                },
            )
    for search in MAP_SEARCHES:
        for problem in PROBLEMS:
            found = search.run(problem)
            bound = np.nan if found.upper_bound is None else found.upper_bound
            arrays = {"labels": np.asarray(found.labels), "value": np.array([found.score, bound])}
            yield f"{search} / {problem.name}", arrays


def objectives() -> Iterator[tuple[str, Arrays]]:
    """Value and gradient of every objective, with all labels and with some missing."""
    from objectives import CHOSEN, LABELS, OBJECTIVES

    for entry in OBJECTIVES:
        for problem in CHOSEN:
            for kind, make in LABELS.items():
                try:
                    value, gradient = entry.objective.value_and_grad(
                        problem.graph, problem.potentials, make(problem)
                    )
                except ValueError:  # this objective refuses this problem
                    continue
                yield (
                    f"{entry.name} / {problem.name} / {kind}",
                    {
                        "value": np.array(np.nan if value is None else value),
                        "unary": gradient.unary_values,
                        "factors": gradient.factor_values,
                    },
                )


def fits() -> Iterator[tuple[str, Arrays]]:
    """Weights of fits of each estimator to small drawn data."""
    rng = np.random.default_rng(0)
    pictures = rng.normal(size=(6, 7, 8, 2))
    labels = (pictures[..., 0] + rng.normal(scale=0.5, size=(6, 7, 8)) > 0).astype(int)
    for name in ("trw", "bethe", "convex", "pseudolikelihood", "piecewise", "camel0", "camel",
                 "cf-bethe", "cf-mean-field", "procedural", "implicit", "mle-struct", "perceptron",
                 "max-margin", "likelihood", "mean-field"):  # fmt: skip
        grid = ff.GridCRF(objective=name, l2=0.1, max_iter=15, random_state=0)
        yield f"GridCRF {name}", {"weights": grid.fit(pictures, labels).weights_}
        yield f"GridCRF {name}, marginals", {"0": grid.predict_marginals(pictures)[0]}
    sentences = [rng.normal(size=(int(n), 3)) for n in rng.integers(2, 9, size=20)]
    tags = [(sentence.sum(axis=1) > 0).astype(int) + (sentence[:, 0] > 1) for sentence in sentences]
    for name in ("likelihood", "pseudolikelihood", "trw"):
        chain = ff.ChainCRF(objective=name, max_iter=30).fit(sentences, tags)
        yield f"ChainCRF {name}", {"weights": chain.weights_}
    samples = rng.integers(0, 2, size=(200, 5))
    for name in ("likelihood", "pseudolikelihood", "trw", "bethe"):
        ising = ff.IsingModel(objective=name, max_iter=30).fit(samples)
        yield f"IsingModel {name}", {"weights": ising.weights_}
    potts = ff.PottsModel(objective="pseudolikelihood", max_iter=20)
    yield "PottsModel", {"weights": potts.fit(rng.integers(0, 3, size=(200, 4))).weights_}
    edges = rng.normal(size=(8, 5, 5, 2))
    partners = [rng.permutation(5) for _ in edges]
    matching = ff.MatchingCRF(kind="bipartite", max_iter=20).fit(list(edges), partners)
    yield "MatchingCRF", {"weights": matching.weights_}


def write(path: Path) -> None:
    arrays: Arrays = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits are cut short on purpose
        for source in (inferences, objectives, fits):
            for name, found in source():
                arrays |= {f"{name} / {key}": np.asarray(value) for key, value in found.items()}
    np.savez_compressed(path, **{name.replace("/", "|"): value for name, value in arrays.items()})
    print(f"{path}: {len(arrays)} arrays")


def compare(first: Path, second: Path) -> int:
    """Number of arrays whose bits differ, or that one file lacks; each is printed."""
    a, b = np.load(first), np.load(second)
    n_different = 0
    for name in sorted(set(a.files) | set(b.files)):
        if name not in a.files or name not in b.files:
            print(f"only in {first if name in a.files else second}: {name}")
        elif a[name].dtype != b[name].dtype or a[name].tobytes() != b[name].tobytes():
            same_shape = a[name].shape == b[name].shape
            with np.errstate(invalid="ignore"):
                distance = np.nanmax(np.abs(a[name] - b[name])) if same_shape else np.inf
            print(f"differs by {distance:.1e}: {name}")
        else:
            continue
        n_different += 1
    print(f"{n_different} of {len(set(a.files) | set(b.files))} arrays differ")
    return n_different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write").add_argument("file", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("files", type=Path, nargs=2)
    args = parser.parse_args()
    if args.command == "write":
        write(args.file)
    else:
        sys.exit(compare(*args.files) > 0)


if __name__ == "__main__":
    main()
