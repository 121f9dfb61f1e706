"""
CAMEL on a map with many small cycles
=====================================

Neighbouring patches of a map touch each other in triangles, the shortest cycles there are.  Five
objectives learn the few weights that all edges share.
"""

import time
import warnings

import numpy as np
from scipy.spatial import Delaunay

import fieldfit as ff

N_TRAIN, N_TEST, N_KINDS = 10, 30, 3


def patches(rng, n_patches=30):
    """Patches scattered over a square, in regions around four centres; neighbours touch."""
    places, centres = rng.random((n_patches, 2)), rng.random((4, 2))
    kinds = rng.integers(0, N_KINDS, len(centres))
    labels = kinds[np.linalg.norm(places[:, None] - centres[None], axis=2).argmin(axis=1)]
    triangles = Delaunay(places).simplices
    sides = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]])
    edges = np.unique(np.sort(sides, axis=1), axis=0)
    features = np.eye(N_KINDS)[labels] + 0.6 * rng.normal(size=(n_patches, N_KINDS))
    return (features, edges), labels, places


# %%
# CAMEL leaves out the negative entropies of Bethe's free energy (``"camel0"``), and then puts
# them back by one concave problem after the other.  What does not converge is said in the table.

OBJECTIVES = {
    "piecewise": ff.Piecewise(unary="shared"),  # factors need not agree
    "belief propagation": "bethe",  # which may not converge
    "tree-reweighted": "trw",
    "CAMEL(0)": "camel0",
    "CAMEL": ff.Camel(max_rounds=50),
}
rng = np.random.default_rng(0)
X, Y, places = zip(*(patches(rng) for _ in range(N_TRAIN + N_TEST)), strict=True)
accuracies, converged = {}, {}
for name, objective in OBJECTIVES.items():
    crf = ff.GraphCRF(objective, l2=0.03)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)
        crf.fit(X[:N_TRAIN], Y[:N_TRAIN])
        accuracies[name] = crf.score(X[N_TRAIN:], Y[N_TRAIN:])
    converged[name] = crf.converged_
    ended = "converged" if crf.converged_ else "not converged"
    print(f"{name:18} {accuracies[name]:.1%} right, {time.perf_counter() - begin:4.1f} s, {ended}")

# %%
# One test map, and the share of patches that each objective gets right (pale: not converged).

import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for i, j in X[-1][1]:
    left.plot(*places[-1][[i, j]].T, color="lightgray", zorder=0)
left.scatter(*places[-1].T, c=Y[-1], cmap="viridis", s=60)
left.set(title="a map: patches, kinds, borders", xticks=[], yticks=[])
bars = right.barh(list(accuracies), list(accuracies.values()))
for bar, ended in zip(bars, converged.values(), strict=True):
    bar.set_alpha(1.0 if ended else 0.4)
right.set(xlim=(0.8, 1.0), xlabel="share of test patches right")
right.invert_yaxis()
plt.show()
