"""
Labels of people in a network
=============================

`GraphCRF` takes any graphs, each example its own: weak features of people, who knows whom, and
how close they live.  A third of the training labels is missing.
"""

import numpy as np

import fieldfit as ff

N_NETWORKS, N_PEOPLE = 24, 60


def network(rng):
    """People in a square who know two neighbours and two others; groups live in three stripes."""
    places = rng.random((N_PEOPLE, 2))
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1:3]
    others = (np.arange(N_PEOPLE)[:, None] + rng.integers(1, N_PEOPLE, (N_PEOPLE, 2))) % N_PEOPLE
    known = np.concatenate([nearest, others], axis=1)
    pairs = np.stack([np.repeat(np.arange(N_PEOPLE), 4), known.ravel()], axis=1)
    edges = np.unique(np.sort(pairs, axis=1), axis=0)
    labels = np.minimum((places[:, 0] * 3).astype(int), 2)
    features = np.eye(3)[labels] + rng.normal(size=(N_PEOPLE, 3))
    closeness = np.exp(-3 * distances[edges[:, 0], edges[:, 1]])[:, None]
    return (features, edges, closeness), labels, places


# %%
# An example is ``(features of nodes, edges)``, or with features of edges as well.

rng = np.random.default_rng(0)
X, Y, places = zip(*(network(rng) for _ in range(N_NETWORKS)), strict=True)
half = N_NETWORKS // 2
known = [np.where(rng.random(len(y)) < 0.3, -1, y) for y in Y]  # -1: missing
kinds = {
    "features alone": [(x[0], []) for x in X],
    "and who knows whom": [x[:2] for x in X],
    "and how close": list(X),
}
accuracies = {}
for name, given in kinds.items():
    crf = ff.GraphCRF("trw", pairwise="potts", l2=0.1).fit(given[:half], known[:half])
    accuracies[name] = crf.score(given[half:], Y[half:])
    print(f"{name:18} {accuracies[name]:.1%} of the people are labelled right")

low, high = crf.log_likelihood_bounds(X[half:], Y[half:])
print(f"log-likelihood of a new network: proved to be in {low.mean():.1f} .. {high.mean():.1f}")

# %%
# A new network: colours are the predicted groups, sizes how sure they are, crosses mistakes.

import matplotlib.pyplot as plt

chances = crf.predict_marginals(X[-1:])[0]
labels, at = chances.argmax(axis=1), places[-1]
figure, axis = plt.subplots(figsize=(6, 4.5), layout="constrained")
for (i, j), close in zip(X[-1][1], X[-1][2][:, 0], strict=True):
    axis.plot(*at[[i, j]].T, color="gray", alpha=0.8 * close, linewidth=1, zorder=0)
axis.scatter(*at.T, c=labels, s=120 * chances.max(axis=1) ** 2, cmap="viridis")
axis.plot(*at[labels != Y[-1]].T, "x", color="C3", ms=10)
axis.set(xticks=[], yticks=[], title=f"{np.mean(labels == Y[-1]):.0%} right")
plt.show()
