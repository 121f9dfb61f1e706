"""
A report of a fit
=================

One page about a fit, without a network connection: the learned network, its errors, how well it
predicts and how to make it again.
"""

import tempfile
from pathlib import Path

import numpy as np

import fieldfit as ff

QUESTIONS = ["sleep", "tired", "focus", "worry", "panic", "mood"]


def answers_of(n_people, rng):
    """Yes or no to six questions, each of which depends on the one before it."""
    answers = np.zeros((n_people, len(QUESTIONS)), dtype=int)
    answers[:, 0] = rng.random(n_people) < 0.4
    for k in range(1, len(QUESTIONS)):
        answers[:, k] = rng.random(n_people) < np.where(answers[:, k - 1] == 1, 0.7, 0.25)
    return answers


# %%
# Give the report data that the fit has not seen.  Open the file in a browser.

answers = answers_of(1200, np.random.default_rng(0))
model = ff.IsingModel().fit(answers[:900])
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "network.html")
    model.report(path, answers[900:], feature_names=QUESTIONS)
    print(f"{path.name}: {path.stat().st_size // 1000} kB; {model.status_}")

# %%
# The network that the page shows.

import matplotlib.pyplot as plt

model.plot_network(names=QUESTIONS, level=0.95)
plt.show()
