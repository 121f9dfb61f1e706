"""Find noun phrases with a linear chain, from a text in which a third of the labels is missing.

python examples/chunking.py [train.txt.gz test.txt.gz]      (columns: word, part of speech, chunk)
"""

import sys

import numpy as np

import fieldfit as ff
from fieldfit.io.sequences import read_columns
from fieldfit.metrics import chunk_f1

WORDS = {"DT": "the a", "JJ": "old red light", "NN": "dog light run house", "VB": "run light sees"}
PHRASES = [["DT", "NN"], ["DT", "JJ", "NN"], ["JJ", "NN"], ["NN"]]


def sentence(rng):
    """Noun phrase, verb, noun phrase; some words are of more than one kind."""
    rows = []
    for part in (PHRASES[rng.integers(4)], ["VB"], PHRASES[rng.integers(4)]):
        for position, kind in enumerate(part):
            chunk = "O" if kind == "VB" else ("I-NP" if position else "B-NP")
            rows.append((str(rng.choice(WORDS[kind].split())), "?", chunk))
    return rows


def features(rows):
    """The word and its neighbours, with their tags where there are any."""
    return [
        {
            f"{name}[{k}]": rows[t + k][column]
            for column, name in enumerate(("word", "tag"))
            for k in (-1, 0, 1)
            if 0 <= t + k < len(rows)
        }
        for t in range(len(rows))
    ]


def main(*paths):
    rng = np.random.default_rng(0)
    made = [[sentence(rng) for _ in range(n)] for n in (200, 100)]
    train, test = [read_columns(path) for path in paths] or made
    labels = [[row[2] if rng.random() > 1 / 3 else None for row in rows] for rows in train]
    crf = ff.ChainCRF(l2=1.0, n_jobs=2).fit([features(rows) for rows in train], labels)
    found = crf.predict([features(rows) for rows in test])
    score = chunk_f1([[row[2] for row in rows] for rows in test], found)
    print(f"{crf.status_} F1 of chunks: {score:.3f}; the largest weights:")
    for weight, what in crf.top_weights(5):
        print(f"{weight:8.2f}  {what}")
    return score


if __name__ == "__main__":
    main(*sys.argv[1:])
