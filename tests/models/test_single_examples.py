"""One example where a list of them is needed, and channels first: the sentence says what to do."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.errors import InvalidInputError

RNG = np.random.default_rng(0)
GREY = RNG.normal(size=(6, 7))
COLOUR = RNG.normal(size=(6, 7, 3))
FIRST = np.moveaxis(COLOUR, -1, 0)
LABELS = (GREY > 0).astype(int)
NODES, EDGES, NODE_LABELS = RNG.normal(size=(5, 2)), [(0, 1), (1, 2)], [0, 1, 1, 0, 1]
TOKENS, NAMES = [{"w": "the"}, {"w": "dog"}], ["D", "N"]

PICTURE = "one picture is [picture]"
MOVED = "np.moveaxis(picture, 0, -1)"
GRAPH = "one graph is [(node_features, edges)]"
SEQUENCE = "one sequence is [tokens]"


@pytest.mark.parametrize(
    ("model", "X", "Y", "message"),
    [
        (ff.GridCRF, GREY, LABELS, PICTURE),
        (ff.GridCRF, GREY.tolist(), LABELS.tolist(), PICTURE),
        (ff.GridCRF, COLOUR, LABELS, PICTURE),
        (ff.GridCRF, COLOUR, [LABELS], PICTURE),
        (ff.GridCRF, COLOUR[:, :6], LABELS[:, :6], PICTURE),
        (ff.GridCRF, [COLOUR], LABELS, "Y must be a list of label pictures"),
        (ff.GridCRF, FIRST, LABELS, f"one picture is [{MOVED}]"),
        (
            ff.GridCRF,
            [FIRST, FIRST],
            [LABELS, LABELS],
            f"X[0] must have its channels last, .*{MOVED}",
        ),
        (ff.GridCRF, np.stack([FIRST] * 2), np.stack([LABELS] * 2), f"channels last, .*{MOVED}"),
        (ff.GraphCRF, (NODES, EDGES), NODE_LABELS, GRAPH),
        (ff.GraphCRF, [NODES, EDGES], [NODE_LABELS], GRAPH),
        (ff.GraphCRF, (NODES.tolist(), EDGES), NODE_LABELS, GRAPH),
        (ff.ChainCRF, TOKENS, NAMES, SEQUENCE),
        (ff.ChainCRF, TOKENS, [NAMES], SEQUENCE),
        (ff.ChainCRF, ["the", "dog"], NAMES, SEQUENCE),
        (ff.ChainCRF, NODES, NODE_LABELS, SEQUENCE),
        (ff.ChainCRF, [TOKENS], NAMES, "those of one sequence are [labels]"),
        (ff.ChainCRF, [NODES], NODE_LABELS, "those of one sequence are [labels]"),
        (ff.SkipChainCRF, (TOKENS, [(0, 1)]), NAMES, "one sequence is [(tokens, edges)]"),
        (ff.MatchingCRF, RNG.normal(size=(3, 3, 2)), [0, 1, 2], "one example is [features]"),
    ],
)
def test_one_example_is_refused(model, X, Y, message):
    pattern = re.escape(message).replace(re.escape(".*"), ".*")
    with pytest.raises(InvalidInputError, match=pattern):
        model().fit(X, Y)


@pytest.mark.parametrize("method", ["predict", "predict_marginals", "sample"])
def test_prediction_of_one_example_is_refused(method):
    grey = ff.GridCRF("pseudolikelihood", l2=1.0).fit([GREY] * 2, [LABELS] * 2)
    colour = ff.GridCRF("pseudolikelihood", l2=1.0).fit([COLOUR] * 2, [LABELS] * 2)
    graph = ff.GraphCRF("pseudolikelihood", l2=1.0).fit([(NODES, EDGES)] * 2, [NODE_LABELS] * 2)
    for model, X, message in [
        (grey, GREY, PICTURE),
        (colour, COLOUR, PICTURE),
        (colour, FIRST, MOVED),
        (colour, [FIRST], MOVED),
        (graph, (NODES, EDGES), GRAPH),
    ]:
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            getattr(model, method)(X)
    # what looks alike and is right
    assert len(getattr(grey, method)(np.stack([GREY] * 3))) == 3
    assert len(getattr(grey, method)([GREY])) == 1
    assert len(getattr(colour, method)(np.stack([COLOUR] * 3))) == 3


def test_what_looks_like_one_example_and_is_none():
    for X, Y in [([GREY], [LABELS]), (GREY[None], LABELS[None]), ([COLOUR], [LABELS])]:
        assert ff.GridCRF("pseudolikelihood", l2=1.0).fit(X, Y).score(X, Y) > 0
    square = np.stack([COLOUR[:3, :3]] * 3)  # as many pictures as rows, columns and channels
    labels = np.stack([LABELS[:3, :3]] * 3)
    assert ff.GridCRF("pseudolikelihood", l2=1.0).fit(square, labels).score(square, labels) > 0
    square = np.stack([GREY[:3, :3]] * 3)
    assert ff.GridCRF("pseudolikelihood", l2=1.0).fit(square, labels).score(square, labels) > 0
    two = [(NODES, EDGES), (NODES, EDGES)]
    assert ff.GraphCRF("pseudolikelihood", l2=1.0).fit(two, [NODE_LABELS] * 2).n_labels_ == 2
    assert ff.ChainCRF().fit([[["a"], ["b"]]], [["A", "B"]]).predict([[["a"]]])[0] == ["A"]
