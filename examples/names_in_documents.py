"""Find persons and places in documents: features from the text, a skip-chain over each document.

python examples/names_in_documents.py
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


def main():
    rng = np.random.default_rng(0)
    train, test = [[article(rng) for _ in range(n)] for n in (40, 100)]
    truth = [labels for _, labels in test]
    scores = {}
    for name, links in (("chains alone", False), ("with links", True)):
        X, new = [[example(words, links) for words, _ in part] for part in (train, test)]
        crf = ff.SkipChainCRF("trw", l2=0.1).fit(X, [labels for _, labels in train])
        scores[name] = chunk_f1(truth, crf.predict(new))
        print(f"{name:12}  F1 of names {100 * scores[name]:.1f} %")
    return scores


if __name__ == "__main__":
    main()
