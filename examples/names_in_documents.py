"""
Names in documents: a skip-chain
================================

A name is often clear in one sentence and vague in the next.  `SkipChainCRF` links words that are
repeated in a document, so that sentences tell each other what a name is.
"""

from itertools import pairwise

import numpy as np

import fieldfit as ff
from fieldfit.features.text import TextFeatures, document_features, repeated_capitalised
from fieldfit.metrics import chunk_f1

FIRST = ["Ann", "Bo", "Eva", "Jon", "Kim", "Liv", "Max", "Tom"]
STEMS = ["Ard", "Bel", "Cor", "Dun", "Fal", "Hol", "Mar", "Nor", "Sel", "Win"]
ENDS = ["by", "dale", "ford", "ham", "ley", "more", "ton", "wick"]
CLEAR = {"PER": ["{first} {name} won", "then {first} {name} spoke"], "LOC": ["rain fell in {name}"]}
VAGUE = ["{name} was calm", "nobody forgot {name}", "{name} again", "they saw {name} today"]


def article(rng):
    """A name that may be a person's or a place's: clear in one sentence, in others not."""
    kind = str(rng.choice(["PER", "LOC"]))
    name = str(rng.choice(STEMS)) + str(rng.choice(ENDS))
    plans = [str(rng.choice(CLEAR[kind])), *map(str, rng.choice(VAGUE, size=3))]
    rng.shuffle(plans)
    sentences, labels = [], []
    for plan in plans:
        words = [*plan.format(first=rng.choice(FIRST), name=name).split(), "."]
        inside = [word == name or (kind == "PER" and word in FIRST) for word in words]
        sentences.append(words)
        for before, here in pairwise([False, *inside]):
            labels.append(f"{'I' if before else 'B'}-{kind}" if here else "O")
    return sentences, labels


def example(sentences, links):
    """Tokens, skip edges and where sentences begin; names tell each other what they are."""
    alone = TextFeatures(context=False)  # or the features would tell it
    tokens = [token for part in document_features(sentences, options=alone) for token in part]
    words = [word for sentence in sentences for word in sentence]
    begins = np.cumsum([len(sentence) for sentence in sentences])[:-1]
    return tokens, repeated_capitalised(words) if links else [], begins


# %%
# The same features and weights, without the links and with them.

rng = np.random.default_rng(0)
train, test = [[article(rng) for _ in range(n)] for n in (40, 100)]
truth = [labels for _, labels in test]
scores, chances = {}, {}
for name, links in (("chains alone", False), ("with links", True)):
    X, new = [[example(words, links) for words, _ in part] for part in (train, test)]
    crf = ff.SkipChainCRF("trw", l2=0.1).fit(X, [labels for _, labels in train])
    scores[name] = chunk_f1(truth, crf.predict(new))
    chances[name] = crf.predict_marginals(new)
    print(f"{name:12}  F1 of names {100 * scores[name]:.1f} %")

# %%
# Probability that a token is (part of) a person's name, in a document where links help most.

import matplotlib.pyplot as plt

persons = [k for k, label in enumerate(crf.classes_) if str(label).endswith("PER")]
share = {name: [part[:, persons].sum(axis=1) for part in found] for name, found in chances.items()}
differs = [np.abs(a - b).sum() for a, b in zip(*share.values(), strict=True)]
chosen = int(np.argmax(differs))
words = [word for part in test[chosen][0] for word in part]
is_person = [label.endswith("PER") for label in truth[chosen]]
figure, axis = plt.subplots(figsize=(9, 2.6), layout="constrained")
for (name, found), offset in zip(share.items(), (-0.2, 0.2), strict=True):
    axis.bar(np.arange(len(words)) + offset, found[chosen], 0.4, label=name)
axis.plot(range(len(words)), is_person, "k_", ms=12, label="truth")
axis.set_xticks(range(len(words)), words, rotation=60, ha="right")
axis.set(ylabel="P(person)")
axis.legend(frameon=False, loc="center right")
plt.show()
