"""
Restore a picture by belief propagation
=======================================

No learning yet: a field that is given, noisy pixels, and the probability of ink at every one of
them.
"""

import matplotlib.pyplot as plt
import numpy as np

import fieldfit as ff

NOISE, COUPLING = 0.8, 1.0


def written(word, width, height):
    """A word as an array of 0 (paper) and 1 (ink)."""
    figure = plt.figure(figsize=(width / 100, height / 100), dpi=100)
    figure.text(0.5, 0.46, word, ha="center", va="center", size=0.56 * height, weight="bold")
    figure.canvas.draw()
    ink = np.asarray(figure.canvas.buffer_rgba())[:, :, 0] < 128
    plt.close(figure)
    return ink.astype(int)


# %%
# A graph is the structure, potentials are logarithms on it, and an inference returns beliefs.

clean = written("fieldfit", 200, 64)
noisy = clean + np.random.default_rng(0).normal(scale=NOISE, size=clean.shape)
graph = ff.FactorGraph.grid(*clean.shape, 2)
unary = -0.5 * ((noisy.reshape(-1, 1) - [0, 1]) / NOISE) ** 2
agree = COUPLING * np.eye(2)
result = ff.SumProduct().run(graph, ff.Potentials(graph, unary, agree))
print(result.status)

ink = result.beliefs.unary_values.reshape(*clean.shape, 2)[:, :, 1]
restored = result.beliefs.argmax().reshape(clean.shape)
print(f"pixels wrong: {((noisy > 0.5) != clean).sum()} alone, {(restored != clean).sum()} with")

# %%

titles = ("what was seen", "probability of ink, by belief propagation", "most probable labels")
figure, axes = plt.subplots(3, 1, figsize=(6.4, 6.9), layout="constrained")
shown = ((noisy + 1) / 3, ink, restored)  # noise reaches about one beyond both labels
for axis, title, values in zip(axes, titles, shown, strict=True):
    axis.imshow(values, cmap="gray_r", vmin=0, vmax=1)
    axis.set_title(title, fontsize=10)
    axis.set_axis_off()
plt.show()
