"""
Noun phrases in text: a linear chain
====================================

A `ChainCRF` takes features as sklearn-crfsuite does, one dictionary for each token.  Here a third
of the training labels is missing; for files of columns, see `fieldfit.io.read_columns`.
"""

import numpy as np

import fieldfit as ff
from fieldfit.metrics import chunk_f1

WORDS = {"DT": "the a", "JJ": "old red light", "NN": "dog light run house", "VB": "run light sees"}
PHRASES = [["DT", "NN"], ["DT", "JJ", "NN"], ["JJ", "NN"], ["NN"]]


def sentence(rng):
    """Noun phrase, verb, noun phrase; some words are of more than one kind."""
    words, labels = [], []
    for part in (PHRASES[rng.integers(4)], ["VB"], PHRASES[rng.integers(4)]):
        for position, kind in enumerate(part):
            words.append(str(rng.choice(WORDS[kind].split())))
            labels.append("O" if kind == "VB" else ("I-NP" if position else "B-NP"))
    return words, labels


def features(words):
    """The word and its neighbours."""
    return [
        {f"word[{k}]": words[t + k] for k in (-1, 0, 1) if 0 <= t + k < len(words)}
        for t in range(len(words))
    ]


# %%
# A label that is ``None`` is missing: it is summed out.

rng = np.random.default_rng(0)
train, test = [[sentence(rng) for _ in range(n)] for n in (200, 100)]
known = [[label if rng.random() > 1 / 3 else None for label in labels] for _, labels in train]
crf = ff.ChainCRF(l2=1.0).fit([features(words) for words, _ in train], known)
X, Y = [features(words) for words, _ in test], [labels for _, labels in test]
score = chunk_f1(Y, crf.predict(X))
print(crf.status_)
print(f"F1 of chunks: {score:.3f}; the largest weights:")
for weight, what in crf.top_weights(5):
    print(f"{weight:8.2f}  {what}")

# %%
# Probabilities of the labels of one test sentence; a ring marks what is true.

import matplotlib.pyplot as plt

chances = crf.predict_marginals(X[:1])[0]
figure, axis = plt.subplots(figsize=(7, 2.4), layout="constrained")
axis.imshow(chances.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
names = [str(name) for name in crf.classes_]
axis.plot(range(len(Y[0])), [names.index(label) for label in Y[0]], "o", mfc="none", mec="k", ms=12)
axis.set_xticks(range(len(Y[0])), test[0][0])
axis.set_yticks(range(len(names)), names)
plt.show()
