"""
Superpixels: a classifier, and a field on top of it
===================================================

Pictures become graphs of superpixels.  A classifier looks at each one alone; its
log-probabilities, made out of fold, are the features of a `GraphCRF`.
"""

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

import fieldfit as ff
from fieldfit.features import image as fi

N_PICTURES = 16
#: Of sky, hill and lake.
COLOURS = np.array([[0.55, 0.6, 0.7], [0.4, 0.55, 0.4], [0.45, 0.55, 0.65]])


def landscape(rng, height=40, width=56):
    """Sky over a hill over a lake, in a random light and with so much noise that colours mix."""
    across = np.linspace(0.0, 6.0, width) + rng.uniform(0.0, 6.0)
    skyline = height * (rng.uniform(0.25, 0.4) + 0.08 * np.sin(across))
    shore = height * rng.uniform(0.6, 0.8)
    rows = np.arange(height)[:, None]
    truth = np.where(rows < skyline, 0, np.where(rows < shore, 1, 2))
    light = rng.uniform(0.7, 1.1) + rng.normal(scale=0.05, size=3)
    picture = COLOURS[truth] * light + rng.normal(scale=0.16, size=(height, width, 3))
    return np.clip(picture, 0.0, 1.0), truth


# %%
# Superpixels, which of them touch, their labels and the colours of each one alone.

rng = np.random.default_rng(0)
pictures, truths = zip(*(landscape(rng) for _ in range(N_PICTURES)), strict=True)
segments = [fi.superpixels(picture, n=80) for picture in pictures]
edges = [fi.region_graph(regions) for regions in segments]
labels = [fi.region_labels(*pair) for pair in zip(truths, segments, strict=True)]
own = [fi.region_features(*pair)[:, :7] for pair in zip(pictures, segments, strict=True)]

# %%
# The classifier must not have seen the pictures whose probabilities train the field.

half = N_PICTURES // 2
groups = np.repeat(np.arange(half), [len(rows) for rows in own[:half]])
found = fi.out_of_fold(
    ExtraTreesClassifier(50, min_samples_leaf=3, random_state=0),
    np.concatenate(own[:half]), np.concatenate(labels[:half]), groups, random_state=0,
)  # fmt: skip
training = [found.log_probabilities[groups == index] for index in range(half)]
test = [found.predict_log_proba(rows) for rows in own[half:]]
crf = ff.GraphCRF("trw", l2=10.0)  # few pictures: without it, edges would rule
crf.fit(list(zip(training, edges[:half], strict=True)), labels[:half])
answers = {"classifier alone": [values.argmax(axis=1) for values in test]}
answers["random field"] = crf.predict(list(zip(test, edges[half:], strict=True)))

painted = {
    name: np.array([fi.paint(*pair) for pair in zip(answer, segments[half:], strict=True)])
    for name, answer in answers.items()
}
accuracies = {name: float(np.mean(p == np.array(truths[half:]))) for name, p in painted.items()}
for name, accuracy in accuracies.items():
    print(f"{name:16} {accuracy:.1%} of the pixels are right")

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 4, figsize=(9, 2), layout="constrained")
shown = {"picture": pictures[half]} | {name: p[0] for name, p in painted.items()}
for axis, (name, picture) in zip(axes, (shown | {"truth": truths[half]}).items(), strict=True):
    axis.imshow(picture, vmin=0, vmax=2)
    axis.set(title=name, xticks=[], yticks=[])
plt.show()
