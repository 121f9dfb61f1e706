"""
Fitting for marginals: implicit and procedural
==============================================

Predictions are made with approximate marginals.  So the loss should be one of these marginals,
and its gradient should go through the inference: by implicit differentiation of a concave
surrogate, or through the few sweeps that will be run.
"""

import numpy as np

import fieldfit as ff

N_IMAGES, NOISE = 40, 0.6

# %%
# Squares of ink on paper, in which six pixels of ten are set at random.

rng = np.random.default_rng(0)
clean = np.zeros((N_IMAGES, 12, 12), dtype=int)
for picture in clean:
    top, left = rng.integers(0, 7, size=2)
    picture[top : top + 6, left : left + 6] = 1
is_random = rng.random(clean.shape) < NOISE
seen = np.where(is_random, rng.integers(0, 2, clean.shape), clean)
X, half = 2.0 * seen[..., None] - 1.0, N_IMAGES // 2

# %%
# These losses are not convex in the weights, so fits start from one that is.

convex = ff.GridCRF("convex", l2=1.0).fit(X[:half], clean[:half])
models = {
    "implicit": ff.GridCRF(ff.ImplicitLoss("ucl"), l2=1.0, max_iter=500),
    "procedural": ff.GridCRF(ff.ProceduralLoss("ucl", n_sweeps=4), l2=1.0, max_iter=500),
}
errors = {
    "as seen": float(np.mean(seen[half:] != clean[half:])),
    "convex likelihood": 1.0 - convex.score(X[half:], clean[half:]),
}
chances = {"convex likelihood": convex.predict_marginals(X[half:])}
for name, crf in models.items():
    crf.fit(X[:half], clean[:half], start=convex.weights_)
    errors[name] = 1.0 - crf.score(X[half:], clean[half:])
    chances[name] = crf.predict_marginals(X[half:])
for name, error in errors.items():
    print(f"{name:18} {100 * error:5.1f} % of the pixels are wrong")

# %%
# Probabilities of ink in one test picture.

import matplotlib.pyplot as plt

shown = {"seen": seen[half]} | {name: found[0][:, :, 1] for name, found in chances.items()}
figure, axes = plt.subplots(1, 5, figsize=(9, 2.3), layout="constrained")
for axis, (name, picture) in zip(axes, (shown | {"truth": clean[half]}).items(), strict=True):
    axis.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
    axis.set(title=name, xticks=[], yticks=[])
plt.show()
