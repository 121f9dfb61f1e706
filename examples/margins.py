"""
Learning to decode: margins and probabilities
=============================================

Max-margin learning and the perceptron need best labellings only, no marginals.  They label about
as well as likelihood on chains of handwritten digits, but what their scores say about
probabilities means little.
"""

import warnings

import numpy as np
from sklearn.datasets import load_digits

import fieldfit as ff

# %%
# Numbers that count up or down, written with digits of which only the upper half is seen.

rng = np.random.default_rng(0)
digits = load_digits()
places = [np.flatnonzero(digits.target == k) for k in range(10)]


def number():
    """Six digits, each one more or one less than the last."""
    y = (rng.integers(10) + rng.choice([-1, 1]) * np.arange(6)) % 10
    rows = [rng.choice(places[k]) for k in y]
    return digits.data[rows][:, :32] / 16.0, y


X, Y = zip(*(number() for _ in range(160)), strict=True)
train, test = slice(0, 80), slice(80, None)

# %%
# The objective of margins is not smooth: its learner stops after so many passes and warns.

models = {
    "each digit alone": ff.ChainCRF("independent", l2=1.0),
    "perceptron": ff.ChainCRF("perceptron"),
    "max-margin": ff.ChainCRF("max-margin", l2=1.0),
    "likelihood": ff.ChainCRF("likelihood", l2=1.0),
}
accuracies = {}
for name, crf in models.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)
        crf.fit(X[train], Y[train])
    accuracies[name] = crf.score(X[test], Y[test])
    print(f"{name:18} {accuracies[name]:.1%} of the digits right")

# %%

import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(2, 1, figsize=(7, 4), layout="constrained")
left.imshow(np.hstack([x.reshape(4, 8) for x in X[-1]]), cmap="gray_r")
left.set(title=f"upper halves of {''.join(map(str, Y[-1]))}", xticks=[], yticks=[])
right.barh(list(accuracies), list(accuracies.values()))
right.set(xlim=(0.5, 1), xlabel="share of test digits right")
right.invert_yaxis()
plt.show()
