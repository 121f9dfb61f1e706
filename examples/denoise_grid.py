"""
Noisy digits: what the objective changes
========================================

The same `GridCRF` learned in two ways, beside independent pixels.  All three see the same
features; only the fields use that neighbouring pixels resemble each other.
"""

import numpy as np
from sklearn.datasets import load_digits

import fieldfit as ff

N_IMAGES, NOISE = 120, 0.25

# %%
# Digits of 8 x 8 pixels, each pixel flipped with probability 1/4.  The features are a pixel and
# how dark the three by three pixels around it are.

rng = np.random.default_rng(0)
clean = (load_digits().images[:N_IMAGES] > 7).astype(int)
seen = np.where(rng.random(clean.shape) < NOISE, 1 - clean, clean)
padded = np.pad(seen, ((0, 0), (1, 1), (1, 1)))
around = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2)).mean(axis=(3, 4))
X = np.stack([seen, around], axis=3)
half = N_IMAGES // 2

# %%
# One line fits a field; ``objective="independent"`` is logistic regression of the pixels.

models = {
    "each pixel alone": ff.GridCRF("independent", l2=0.1),
    "pseudo-likelihood": ff.GridCRF("pseudolikelihood", neighbors=8, l2=0.1),
    "tree-reweighted": ff.GridCRF("trw", neighbors=8, l2=0.1),
}
errors = {"as seen": float(np.mean(seen[half:] != clean[half:]))}
restored = {"as seen": seen[half:]}
for name, crf in models.items():
    crf.fit(X[:half], clean[:half])
    restored[name] = np.array(crf.predict(X[half:]))
    errors[name] = float(np.mean(restored[name] != clean[half:]))
for name, error in errors.items():
    print(f"{name:18} {error:.1%} of the pixels are wrong")

# %%
# Ten test digits.

import matplotlib.pyplot as plt

rows = restored | {"truth": clean[half:]}
figure, axes = plt.subplots(len(rows), 10, figsize=(8, 4.2), layout="constrained")
for row, (name, pictures) in zip(axes, rows.items(), strict=True):
    for axis, picture in zip(row, pictures, strict=False):
        axis.imshow(picture, cmap="gray_r")
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel(name, rotation=0, ha="right", va="center")
plt.show()
