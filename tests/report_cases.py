"""A small fitted model of every kind, data to report it on, and pages read back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

import fieldfit as ff

#: A name that must never become markup.
HOSTILE = "<script>alert('x')</script>"
#: Elements without an end tag.
VOID = {"meta", "img", "br", "circle", "line", "polyline", "input"}


# -- models ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A fitted model, the arguments of its report, and headings that the page must have."""

    model: Any
    data: tuple[Any, ...]
    options: dict[str, Any]
    sections: tuple[str, ...]

    def write(self, path: Path, with_data: bool = True) -> str:
        data = self.data if with_data else ()
        options = dict(self.options)
        if not with_data:
            options.pop("alpha", None)
        self.model.report(path, *data, **options)
        return path.read_text(encoding="utf-8")


SCORED = ("Predictions", "Scores", "Weights", "How to make it again")


def _sentences(count: int) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    words = {"B-NP": ["the", "a"], "I-NP": ["dog", "cat", "house"], "O": ["sees", "runs", HOSTILE]}
    after = {"B-NP": ["I-NP"], "I-NP": ["O", "I-NP"], "O": ["B-NP", "O"]}
    X, Y = [], []
    for _ in range(count):
        label, tokens, labels = "B-NP", [], []
        for _ in range(int(rng.integers(4, 12))):
            chosen = label if rng.random() < 0.8 else str(rng.choice(list(words)))
            tokens.append({"word": str(rng.choice(words[chosen])), "bias": 1.0})
            labels.append(label)
            label = str(rng.choice(after[label]))
        X.append(tokens)
        Y.append(labels)
    return X, Y


def _chain() -> Case:
    X, Y = _sentences(60)
    model = ff.ChainCRF(l2=0.3, boundary_weights=True).fit(X[:40], Y[:40])
    return Case(model, (X[40:], Y[40:]), {}, ("Learning curve", *SCORED))


def _skip_chain() -> Case:
    X, Y = _sentences(40)
    model = ff.SkipChainCRF("pseudolikelihood", l2=0.3, skip_edges="word")
    model.fit(X[:30], Y[:30], validation=(X[30:35], Y[30:35]))
    names = ["noun", HOSTILE, "out"]
    return Case(model, (X[30:], Y[30:]), {"label_names": names}, ("Learning curve", *SCORED))


def _grid() -> Case:
    rng = np.random.default_rng(1)
    Y = np.kron(rng.integers(0, 3, size=(12, 3, 3)), np.ones((1, 4, 4), dtype=int))
    X = np.eye(3)[Y] + rng.normal(size=(*Y.shape, 3))
    model = ff.GridCRF("pseudolikelihood", l2="auto").fit(X[:9], Y[:9])
    options = {"label_names": ["sky", HOSTILE, "water"], "feature_names": ["red", "green", "blue"]}
    wanted = ("Learning curve", "Penalties that were tried", "Certificate", *SCORED)
    return Case(model, (X[9:], Y[9:]), options, wanted)


def _graph() -> Case:
    rng = np.random.default_rng(2)
    X, Y = [], []
    for _ in range(30):
        places = rng.random((9, 2))
        apart = ((places[:, None] - places[None]) ** 2).sum(-1)
        edges = np.argwhere(np.triu(apart < 0.2, 1))
        y = (places.sum(axis=1) > 1).astype(int)
        distances = np.sqrt(apart[edges[:, 0], edges[:, 1]])[:, None]
        X.append((y[:, None] + rng.normal(size=(9, 1)), edges, distances))
        Y.append(y)
    Y[-1][0] = -1
    model = ff.GraphCRF("pseudolikelihood", l2=0.1).fit(X[:20], Y[:20])
    options = {"label_names": ["low", HOSTILE]}
    return Case(model, (X[20:], Y[20:]), options, ("Learning curve", "Certificate", *SCORED))


PREDICTED = "Variables predicted from the others"


def _ising() -> Case:
    rng = np.random.default_rng(3)
    S = rng.integers(0, 2, size=(400, 5))
    S[:, 1] = np.where(rng.random(400) < 0.8, S[:, 0], S[:, 1])
    S[:, 4] = np.where(rng.random(400) < 0.7, 1 - S[:, 3], S[:, 4])
    model = ff.IsingModel().fit(S[:300])
    options = {"feature_names": ["sleep", HOSTILE, "mood", "worry", "guilt"]}
    wanted = ("Learning curve", "Score", PREDICTED, "Certificate", "Weights")
    return Case(model, (S[300:],), options, wanted)


def _potts() -> Case:
    rng = np.random.default_rng(4)
    S = rng.integers(0, 3, size=(400, 6))
    S[:, 4] = np.where(rng.random(400) < 0.7, S[:, 1], S[:, 4])
    model = ff.PottsModel().fit(S[:300])
    options = {"label_names": ["A", "C", HOSTILE]}
    wanted = ("Learning curve", "Score", PREDICTED, "Certificate", "Weights")
    return Case(model, (S[300:],), options, wanted)


def _matching() -> Case:
    rng = np.random.default_rng(5)
    X = list(rng.normal(size=(30, 6, 6, 2)))
    noise = rng.gumbel(size=(30, 6, 6))
    Y = [ff.Assignment().match(x @ [2.0, -1.0] + e).partners for x, e in zip(X, noise, strict=True)]
    model = ff.MatchingCRF().fit(X[:20], Y[:20])
    options = {"feature_names": ["distance", HOSTILE]}
    return Case(model, (X[20:], Y[20:]), options, ("Learning curve", "Certificate", *SCORED))


def _mixture() -> Case:
    rng = np.random.default_rng(6)
    coarse = rng.integers(0, 2, size=(60, 2, 2))
    model = ff.MixtureField(means=(-1, 1), variances=(0.1, 0.1))
    model.fit(np.kron(coarse, np.ones((1, 3, 3), dtype=int)))
    _, Z, Y = model.sample(5, alpha=0.6, random_state=1)
    return Case(model, (Y, Z), {"alpha": 0.6, "label_names": ["paper", HOSTILE]}, SCORED)


KINDS = {
    "chain": _chain,
    "skip-chain": _skip_chain,
    "grid": _grid,
    "graph": _graph,
    "ising": _ising,
    "potts": _potts,
    "matching": _matching,
    "mixture": _mixture,
}


@cache
def case(kind: str) -> Case:
    """The model of a kind, which no test changes."""
    return KINDS[kind]()


# -- reading pages ---------------------------------------------------------------------------


@dataclass
class Table:
    """A table of a page: headings, texts of cells, what sorting goes by (``None``: the text)."""

    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    values: list[list[str | None]] = field(default_factory=list)

    def column(self, name: str) -> list[str]:
        """What sorting goes by, of a column."""
        place = self.header.index(name)
        return [
            row[place] if value[place] is None else str(value[place])
            for row, value in zip(self.rows, self.values, strict=True)
        ]


class Page(HTMLParser):
    """A page whose elements are nested as they should be; anything else fails here."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.headings: list[str] = []
        self.tables: dict[str, Table] = {}
        self._table: Table | None = None
        self.feed(source)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert len(given) == len(attrs), f"<{tag}> has an attribute twice"
        self.tags.append((tag, given))
        if tag not in VOID or tag in ("circle", "line"):
            self.open.append(tag)
        if given.get("role") == "region":
            self._table = self.tables.setdefault(str(given.get("aria-label")), Table())
        if self._table is not None and tag == "tr" and "tbody" in self.open:
            self._table.rows.append([])
            self._table.values.append([])
        if self._table is not None and tag in ("td", "th") and self.open.count("tr"):
            if "thead" in self.open:
                self._table.header.append("")
            else:
                self._table.rows[-1].append("")
                self._table.values[-1].append(given.get("data-value"))
        if tag == "h2":
            self.headings.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()
        if tag == "table":
            self._table = None

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)
        if "h2" in self.open:
            self.headings[-1] += data
        if self._table is not None and ("td" in self.open or "th" in self.open):
            cells = self._table.header if "thead" in self.open else self._table.rows[-1]
            cells[-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of all elements of a name."""
        return [attrs for name, attrs in self.tags if name == tag]

    def figure(self, name: str) -> str:
        """A value of the large figures."""
        words = [text.strip() for text in self.texts if text.strip()]
        return words[words.index(name) + 1]
