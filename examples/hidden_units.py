"""
Hidden units by contrastive free energies
=========================================

Two hidden bits decide about three coins each, with some noise.  The samples hold the coins only;
a layer of two hidden variables is learned by contrastive free energies, by contrastive
divergence, and by the exact likelihood, which such a small model allows.
"""

import numpy as np

import fieldfit as ff


def coins(n_samples, rng):
    """Each bit is copied three times, and one copy in ten is wrong."""
    bits = rng.integers(0, 2, (n_samples, 2))
    copies = np.repeat(bits, 3, axis=1)
    return copies ^ (rng.random(copies.shape) < 0.1)


# %%
# Hidden units are columns that are missing in every sample.

rng = np.random.default_rng(0)
training, test = coins(1000, rng), coins(1000, rng)
hidden = np.full((1000, 2), np.nan)
edges = [(coin, 6 + unit) for coin in range(6) for unit in range(2)]

independent = training.mean(axis=0)
alone = np.log(np.where(test == 1, independent, 1.0 - independent)).sum(axis=1).mean()
values, couplings = {"independent": alone}, {}
for name in ("cf-bethe", "cd", "likelihood"):
    model = ff.IsingModel(name, l2=1.0, tol=1e-2, random_state=0)
    model.fit(np.hstack([training, hidden]), edges=edges)
    values[name] = model.log_likelihood(np.hstack([test, hidden])) / len(test)
    couplings[name] = model.weight_blocks_["couplings"].reshape(6, 2)
for name, value in values.items():
    print(f"{name:12} {value:.3f} nats for a test sample")

# %%
# Each hidden unit finds the three coins that belong together.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 3, figsize=(8, 3), layout="constrained")
for axis, (name, table) in zip(axes, couplings.items(), strict=True):
    picture = axis.imshow(table, cmap="RdBu", vmin=-4, vmax=4, aspect="auto")
    axis.set(title=name, xlabel="hidden unit", ylabel="coin", xticks=[0, 1])
figure.colorbar(picture, ax=axes, label="coupling")
plt.show()
