"""
The best labelling, and how good it is
======================================

A MAP search returns labels, their score and an upper bound on the score of any labelling.  Where
the two meet, the labels are proved to be best.
"""

import numpy as np
from scipy.ndimage import gaussian_filter

import fieldfit as ff

# %%
# Three kinds of ground, seen with noise; neighbouring pixels prefer to be equal.

rng = np.random.default_rng(0)
truth = gaussian_filter(rng.normal(size=(3, 40, 60)), sigma=(0, 4, 4)).argmax(axis=0)
unary = 1.2 * np.eye(3)[truth] + rng.normal(size=(*truth.shape, 3))
graph = ff.FactorGraph.grid(*truth.shape, 3)
potentials = ff.Potentials(graph, unary.reshape(-1, 3), 0.9 * np.eye(3))

# %%
# Cuts with expansion moves, tree-reweighted max-product, and the search that chooses for itself.

SEARCHES = {
    "each pixel alone": None,
    "expansion moves": ff.MaxFlow(),
    "tree-reweighted": ff.MaxProduct(entropy=ff.TreeReweighted()),
    "Map()": ff.Map(),
}
labels, gaps = {}, {}
for name, search in SEARCHES.items():
    if search is None:
        labels[name] = unary.argmax(axis=2)
        continue
    result = search.run(graph, potentials)
    labels[name] = result.labels.reshape(truth.shape)
    gaps[name] = result.upper_bound - result.score
    print(f"{name:16} score {result.score:.2f}, at most {gaps[name]:.2f} from the best one, "
          f"{np.mean(labels[name] != truth):.1%} of the pixels wrong")  # fmt: skip

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 4, figsize=(10, 2), layout="constrained")
shown = {name: labels[name] for name in ("each pixel alone", "expansion moves", "Map()")}
for axis, (name, picture) in zip(axes, (shown | {"truth": truth}).items(), strict=True):
    axis.imshow(picture)
    axis.set(title=name, xticks=[], yticks=[])
plt.show()
