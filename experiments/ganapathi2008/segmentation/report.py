"""The report of ``camel-segmentation``: the paper's table 3 beside ours, and what was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.base import Figure, Row
from experiments.ganapathi2008.methods import METHODS, TITLES
from experiments.ganapathi2008.report import HOW_TO_READ, printed, training_columns
from experiments.tables import (
    Column,
    bar_chart,
    fold_cell,
    markdown_table,
    means,
    paper_table,
    terminal_table,
)

#: What the labels without any field are called; they are no method of the paper.
CLASSIFIER = "classifier alone"
#: Table 3 of the paper.
ACCURACY_PAPER = printed("78.6 (1.3)", "82.9 (.9)", "53.2 (4.2)", "84.4 (.6)", "84.4 (.5)")
SECONDS_PAPER = printed("911 (20)", "4082 (267)", "4437 (307)", "40501 (3994)", "37032 (4419)")
ACCURACY = Column("accuracy", "accuracy", paper=ACCURACY_PAPER)
PIXELS = Column("pixel_accuracy", "pixels")
TRAINING = Column("training_accuracy", "training")

WHAT_WAS_DONE = """
## What was done

The {n_images} Corel photographs of He, Zemel and Carreira-Perpiñán (2004) with seven labels, in
{n_halves} random halves: {n_training} to learn from, {n_test} to test. (The paper has 80 of them,
40 and 40; which ones is not known.) A photograph is cut into about {n_regions} superpixels (SLIC;
the paper: normalised cuts), whose label is the commonest of their pixels: if all superpixels were
right, {ceiling:.1%} of the pixels would be. Superpixels that touch are joined, {degree:.1f}
neighbours each, so loops are short and many.

The classifier is {n_members} times {n_rounds} rounds of boosted trees, averaged, on {n_features}
features (`fieldfit.features.image`: colour, texture, place and form of the superpixel, its
neighbours and the whole picture). Its choices were made by cross-validation inside training
pictures, but those of all halves, which together hold most of the test pictures. The field has the
seven log-probabilities and a constant for each label (8 x 7 = 56 weights), and one symmetric table
for all edges (28 weights: the paper says 21, and 84 in all, which is 56 + 28).

Log-probabilities of training pictures can come from the classifier that was trained on these very
pictures (*in sample*), or from classifiers that were trained on others ({n_folds} folds, *out of
fold*), which tells the field how far to trust them. The paper does not say which. Both are done.
The table of all halves is in sample, which was decided after both had been seen on test pictures:
rounds settle as in the paper only there. In sample a penalty is needed, because the classifier is
almost never wrong on its own pictures; the paper has none. {penalties}
"""
OUT_OF_FOLD = """
The same methods on the first half with potentials of training pictures out of fold,
`l2 = {unseen_l2:g}`, and at most {unseen_rounds} rounds of CCCP, which are slow here (above, up to
twelve, and fewer are needed). The rounds fail, and so they do on the training pictures, where it
can be seen without any test. `camel-diagnosis` follows them, on smaller pictures: the rounds have
not ended, their beliefs are good, but belief propagation from a cold start ends at others, of
higher value and worse. Methods with a concave entropy have a unique optimum and are not affected.
"""
CHOSEN = "Each method has the `l2` of {penalties} that labels a held out fifth of the training \
pictures best, by a classifier that has not seen them either."
FIXED = "Here `l2 = {penalties}`."

ORDER = """
*Accuracy* is the share of superpixels that have the right label, as in the paper; *pixels*, of
pixels. The classifier alone (largest probability, no field) has {alone} % of the superpixels.

{findings}
"""


@dataclass(frozen=True)
class Corpus:
    """What the report says of data and design."""

    n_images: int
    n_halves: int
    n_training: int
    n_test: int
    n_regions: int
    ceiling: float
    degree: float
    n_features: int
    n_members: int
    n_rounds: int
    n_folds: int
    penalties: tuple[float, ...]
    unseen_l2: float
    unseen_rounds: int


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    return terminal_table(rows, [*training_columns(), ACCURACY, PIXELS], TITLES)


def report(rows: Sequence[Row], unseen: Sequence[Row], alone: Sequence[Row], corpus: Corpus) -> str:
    """Markdown of the whole; ``unseen`` are the rows with potentials out of fold."""
    columns = [*training_columns(seconds=SECONDS_PAPER), ACCURACY, PIXELS, TRAINING]
    several = len(corpus.penalties) > 1
    listed = ", ".join(f"{l2:g}" for l2 in corpus.penalties)
    penalties = (CHOSEN if several else FIXED).format(penalties=listed)
    values = [float(row["accuracy"]) for row in alone]
    return "\n\n".join(
        part.strip()
        for part in (
            WHAT_WAS_DONE.format(**{**vars(corpus), "penalties": penalties}),
            "## The paper's table 3 beside ours",
            paper_table(rows, columns, TITLES),
            HOW_TO_READ,
            ORDER.format(alone=fold_cell(values, 100.0), findings=_findings(rows, alone)),
            "![Accuracy of the methods](accuracy.png)",
            "![Photographs, their labels, and what the methods found](pictures.png)",
            "Test pictures of the first half at fixed ranks of the accuracy of CCCP CAMEL, hard "
            "ones first; below each, the share of its superpixels that are right.",
            "## Halves",
            _halves(rows, alone),
            "## Potentials out of fold",
            OUT_OF_FOLD.format(**vars(corpus)),
            paper_table(unseen, columns, TITLES),
            _halves(unseen, alone),
        )
    )


def accuracy_bars(rows: Sequence[Row]) -> Figure:
    """Accuracies beside those of the paper."""
    return bar_chart(rows, ACCURACY, "Corel superpixels: accuracy, percent", TITLES)


def headline(rows: Sequence[Row], alone: Sequence[Row]) -> dict[str, Any]:
    """Mean accuracies over halves."""
    return {**means(rows, ACCURACY), **means(alone, ACCURACY)}


def _findings(rows: Sequence[Row], alone: Sequence[Row]) -> str:
    """The statements of the paper beside ours, whatever came out."""
    mean = {**means(rows, ACCURACY), **means(alone, ACCURACY)}

    def gain(better: str, worse: str) -> str:
        if better not in mean or worse not in mean:
            return "not run"
        halves = _by_half(rows, alone)
        wins = sum(half[better] > half[worse] for half in halves)
        difference = 100.0 * (mean[better] - mean[worse])
        return f"{difference:+.1f} points, better in {wins} of {len(halves)} halves"

    return markdown_table(
        ["paper", "here"],
        [
            ["CAMEL(0) beats piecewise training by 4.3 points", gain("camel0", "piecewise")],
            ["CCCP CAMEL beats CAMEL(0) by 1.5", gain("cccp", "camel0")],
            ["both starts of CCCP are alike (0.0)", gain("cccp-empirical", "cccp")],
            ["learning with LBP fails: 31.2 below CCCP CAMEL", gain("lbp", "cccp")],
            ["(not in the paper) CCCP CAMEL and the classifier alone", gain("cccp", CLASSIFIER)],
        ],
    )


def _by_half(rows: Sequence[Row], alone: Sequence[Row]) -> list[dict[str, float]]:
    """Accuracy by method, one dictionary for each half."""
    return [
        {row["method"]: row["accuracy"] for row in (*rows, *alone) if row["fold"] == fold}
        for fold in sorted({row["fold"] for row in rows})
    ]


def _halves(rows: Sequence[Row], alone: Sequence[Row]) -> str:
    """Accuracy of every method on every half, percent."""
    methods = [method for method in METHODS if any(row["method"] == method for row in rows)]
    header = ["half", CLASSIFIER, *(TITLES[method] for method in methods)]
    lines = [
        [str(number + 1), *(f"{100.0 * half[method]:.1f}" for method in (CLASSIFIER, *methods))]
        for number, half in enumerate(_by_half(rows, alone))
    ]
    return markdown_table(header, lines)
