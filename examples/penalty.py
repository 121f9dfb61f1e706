"""
A field that must pay: penalties chosen on held-out pictures
============================================================

Couplings are only worth their trouble if labels become better than without them.  Without
``l2=``, a `GridCRF` finds out: it goes from independent pixels to ever weaker penalties on
couplings and keeps what held-out pictures support.
"""

import warnings

import numpy as np
from scipy.ndimage import gaussian_filter

import fieldfit as ff

# %%
# Pictures with blobs, for which neighbours matter, and pictures of dust, for which they do not.

rng = np.random.default_rng(0)
noise = rng.normal(size=(24, 14, 14))
truths = {"blobs": gaussian_filter(noise, sigma=(0, 2, 2)) > 0, "dust": noise > 0}
paths = {}
for name, truth in truths.items():
    Y = truth.astype(int)
    X = Y + 1.2 * rng.normal(size=Y.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.errors.NoGainWarning)  # the status says it, too
        crf = ff.GridCRF("trw").fit(X, Y)
    print(f"{name}: {crf.status_}\n")
    paths[name] = crf.path_

# %%
# Scores on held-out pictures, along the path of penalties on couplings.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for axis, (name, path) in zip(axes, paths.items(), strict=True):
    fields = [row for row in path if row["model"] != "independent"]
    alone = max(row["score"] for row in path if row["model"] == "independent")
    axis.axhline(alone, color="gray", label="independent pixels")
    axis.semilogx(
        [row["l2"] for row in fields], [row["score"] for row in fields], "o-", label="field"
    )
    axis.invert_xaxis()
    axis.set(title=name, xlabel="penalty on couplings, relative", ylabel="held-out accuracy")
axes[0].legend(frameon=False)
plt.show()
