"""
Learning the wrong model on purpose: coupled mixtures
=====================================================

A `MixtureField` predicts a signal from noisy observations of a latent field.  A model that was
learned with a surrogate should predict with the same surrogate: its errors cancel.
"""

import numpy as np

import fieldfit as ff
from fieldfit.inference import sample_exactly

SIDE, ALPHA = 8, 0.3
OPTIONS = {"means": (-1, 1), "variances": (0.5, 0.5)}

# %%
# Samples of the labels of a grid with couplings of different strength.

rng = np.random.default_rng(0)
graph = ff.FactorGraph.grid(SIDE, SIDE, 2)
strengths = rng.uniform(0, 1, size=(graph.n_factors, 1, 1))
truth = ff.Potentials(graph, factors=strengths * np.array([[1, -1], [-1, 1]]))  # spins -1, +1
labels = sample_exactly(graph, truth, 5000, random_state=rng)

# %%
# The best that can be done knows the true field and computes exactly; what do others lose to it?

bayes = ff.MixtureField("likelihood", **OPTIONS).assume(graph, truth)
drawn, signal, observed = bayes.sample(200, alpha=ALPHA, random_state=1)
best = -bayes.score(signal, observed, alpha=ALPHA)
models = {
    "independent": ff.MixtureField("trw", **OPTIONS).fit(labels, edges=[]),
    "belief propagation": ff.MixtureField("bethe", **OPTIONS).fit(labels, shape=(SIDE, SIDE)),
    "tree-reweighted": ff.MixtureField("trw", **OPTIONS).fit(labels, shape=(SIDE, SIDE)),
}
loss = {}
for name, model in models.items():
    loss[name] = 100 * (-model.score(signal, observed, alpha=ALPHA) / best - 1)
    print(f"{name:<20} loses {loss[name]:.1f} %")

# %%

import matplotlib.pyplot as plt

predicted = models["tree-reweighted"].predict(observed[:1], alpha=ALPHA)
shown = {"signal": signal[0], "observed": observed[0], "predicted": predicted[0]}
figure, axes = plt.subplots(
    1, 4, figsize=(9.5, 2.5), layout="constrained", width_ratios=(1, 1, 1, 1.4)
)
for axis, (name, values) in zip(axes, shown.items(), strict=False):
    axis.imshow(np.reshape(values, (SIDE, SIDE)), cmap="RdBu", vmin=-2, vmax=2)
    axis.set(title=name, xticks=[], yticks=[])
axes[3].barh(list(loss), list(loss.values()))
axes[3].set(title="loss over the best, %")
plt.show()
