"""Small data files of every kind for the tests of the learning commands."""

from __future__ import annotations

import json

import numpy as np

SENTENCES = [
    "the DT B-NP|dog NN I-NP|saw VBD B-VP|a DT B-NP|cat NN I-NP|. . O",
    "a DT B-NP|cat NN I-NP|ran VBD B-VP|. . O",
    "Green NNP B-NP|saw VBD B-VP|the DT B-NP|man NN I-NP|Green NNP B-NP|. . O",
    "the DT B-NP|old JJ B-AP|man NN I-NP|ran VBD B-VP|. . O",
]


def rows_of(sentence):
    return [tuple(token.split()) for token in sentence.split("|")]


def write_columns(path, sentences=SENTENCES, with_labels=True):
    texts = [
        "".join(" ".join(row if with_labels else row[:-1]) + "\n" for row in rows_of(sentence))
        for sentence in sentences
    ]
    path.write_text("\n".join(texts))
    return str(path)


def write_crfsuite(path, sentences=SENTENCES):
    texts = []
    for sentence in sentences:
        rows = rows_of(sentence)
        lines = [f"{label}\tw[0]={word}\tpos={pos}\tbias" for word, pos, label in rows]
        lines[0] += "\tfirst:0.5"
        texts.append("".join(line + "\n" for line in lines))
    path.write_text("\n".join(texts))
    return str(path)


def images(seed=0, n=6, height=5, width=6):
    """Stripes with noise, some pixels not labelled."""
    rng = np.random.default_rng(seed)
    y = np.repeat(rng.integers(0, 2, size=(n, height, 1)), width, axis=2)
    x = y + 0.7 * rng.normal(size=y.shape)
    y[0, 0, 0] = -1
    return x, y


def write_archive(path, **options):
    x, y = images(**options)
    np.savez(path, x=x, y=y)
    return str(path)


def graphs(seed=0, n=8):
    """Triangles with a tail, labels that agree with the first feature most of the time."""
    rng = np.random.default_rng(seed)
    edges = [[0, 1], [1, 2], [2, 0], [2, 3]]
    found = []
    for _ in range(n):
        nodes = rng.normal(size=(4, 2)).round(3)
        labels = (nodes[:, 0] + 0.5 * rng.normal(size=4) > 0).astype(int).tolist()
        found.append({"nodes": nodes.tolist(), "edges": edges, "labels": labels})
    return found


def write_graphs(path, examples=None):
    lines = [json.dumps(example) + "\n" for example in (examples or graphs())]
    path.write_text("".join(lines))
    return str(path)


def samples(seed=0, n=60, n_labels=2):
    """Four variables, the first two of which agree; the third value of some rows is missing."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, n_labels, size=(n, 4)).astype(float)
    same = rng.random(n) < 0.7
    values[same, 1] = values[same, 0]
    values[::20, 2] = np.nan
    return values


def write_table(path, values=None, names="first,second,third,fourth"):
    values = samples() if values is None else values
    lines = [",".join("NA" if np.isnan(v) else f"{v:g}" for v in row) + "\n" for row in values]
    path.write_text((names + "\n" if names else "") + "".join(lines))
    return str(path)


def write_alignment(path, n=40, seed=0, letters="-ACD"):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(letters), size=(n, 5))
    codes[:, 4] = codes[:, 0]
    rows = ["".join(letters[c] for c in row) for row in codes]
    path.write_text("".join(f">s{k}\n{row}\n" for k, row in enumerate(rows)))
    return str(path)


def matchings(seed=0, n=12, size=4):
    """Rows with columns by the first of three features, most of the time."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, size, size, 3)).round(3)
    Y = np.array([rng.permutation(size) for _ in range(n)])
    for example, partners in enumerate(Y):
        X[example, np.arange(size), partners, 0] += 1.5
    return X, Y


def write_matchings(path):
    X, Y = matchings()
    np.savez(path, features=X, partners=Y)
    return str(path)


def write_rooms(path, with_labels=True):
    """The same as a table of edges."""
    X, Y = matchings()
    lines = ["example,row,column,first,second,third" + ",matched" * with_labels + "\n"]
    for example, (x, partners) in enumerate(zip(X, Y, strict=True)):
        for i, j in np.ndindex(x.shape[:2]):
            values = [example, f"r{i}", f"c{j}", *(f"{value:.17g}" for value in x[i, j])]
            values += [int(partners[i] == j)] * with_labels
            lines.append(",".join(map(str, values)) + "\n")
    path.write_text("".join(lines))
    return str(path)


WRITERS = {
    "chain": (write_columns, "train.txt"),
    "skip-chain": (write_columns, "train.txt"),
    "grid": (write_archive, "train.npz"),
    "graph": (write_graphs, "train.jsonl"),
    "ising": (write_table, "train.csv"),
    "potts": (write_alignment, "train.fasta"),
    "matching": (write_matchings, "train.npz"),
}


def write_training(kind, folder):
    """A file that a model of this kind can be learned from."""
    write, name = WRITERS[kind]
    return write(folder / name)
