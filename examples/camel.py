"""Patches of a map with many small cycles: five ways to learn the few weights that all edges share.

python examples/camel.py
"""

import time
import warnings

import numpy as np
from scipy.spatial import Delaunay

import fieldfit as ff

OBJECTIVES = {
    "piecewise": ff.Piecewise(unary="shared"),  # factors need not agree
    "belief propagation": "bethe",  # which may not converge
    "tree-reweighted": "trw",
    "CAMEL(0)": "camel0",  # factors agree, negative entropies are left out
    "CAMEL": ff.Camel(max_rounds=50),  # Bethe's entropy, one concave problem after the other
}


def patches(rng, n_patches=30, n_kinds=3):
    """Patches scattered over a square, in regions around four centres; neighbours touch."""
    places, centres = rng.random((n_patches, 2)), rng.random((4, 2))
    kinds = rng.integers(0, n_kinds, len(centres))
    labels = kinds[np.linalg.norm(places[:, None] - centres[None], axis=2).argmin(axis=1)]
    triangles = Delaunay(places).simplices
    sides = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]])
    edges = np.unique(np.sort(sides, axis=1), axis=0)
    return (np.eye(n_kinds)[labels] + 0.6 * rng.normal(size=(n_patches, n_kinds)), edges), labels


def main(n_train=12, n_test=40):
    rng = np.random.default_rng(0)
    X, Y = map(list, zip(*(patches(rng) for _ in range(n_train + n_test)), strict=True))
    accuracies = {}
    for name, objective in OBJECTIVES.items():
        crf = ff.GraphCRF(objective, l2=0.03)
        begin = time.perf_counter()
        with warnings.catch_warnings():  # what has not converged is said in the table
            warnings.simplefilter("ignore", ff.ConvergenceWarning)
            crf.fit(X[:n_train], Y[:n_train])
            seconds = time.perf_counter() - begin
            accuracies[name] = crf.score(X[n_train:], Y[n_train:])
        ended = "converged" if crf.converged_ else "not converged"
        print(f"{name:18} {accuracies[name]:.1%} of the patches right, {seconds:4.1f} s, {ended}")

    ends = [row for row in crf.trace_ if "entropy" in row]
    print(f"\nCAMEL had {len(ends)} rounds; Bethe's entropy of its beliefs in the first and last:")
    for row in (*ends[:3], ends[-1]):
        print(f"{row['stage']:9} {row['entropy']:9.2f}")
    return accuracies


if __name__ == "__main__":
    main()
