"""The report of ``domke-scenes``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.base import Figure, Row
from experiments.domke2009.scenes.data import LABELS, Scenes
from experiments.tables import markdown_table, text_table

if TYPE_CHECKING:
    from experiments.domke2009.scenes.run import Design


#: Test ``uclass`` of table 6.3 (StreetScenes).  Its ``uquad`` is divided by something that is not
#: stated, so only the order of that column can be compared.
THESIS = {
    "pseudo": 0.847,
    "baseline": 0.333,
    "uquad": 0.287,
    "uquad+entropy": 0.239,
    "uquad-1": 0.252,
    "uquad-2": 0.264,
}
N_SHOWN = 5
#: Colours of the labels, and of no label.
COLOURS = np.array(
    [[160, 60, 50], [120, 180, 230], [70, 50, 140], [130, 130, 130], [60, 130, 60], [0, 0, 0]]
)

WHAT_WAS_DONE = """
## What was done

CamVid in place of StreetScenes: {n_train} training and {n_test} test pictures of {size} pixels from
the sets that the data come in. Labels are those of the thesis ({labels}); pixels of all other
kinds ({missing:.0%} of the training set) are unlabelled, in training and in scores. Every pixel has
the features of table 6.2 ({n_features} with {n_clusters} clusters at each scale). All fits begin
at zero, as in the thesis, and stop after {max_iter} iterations of L-BFGS at the latest, `uquad`
after a fifth of them and `uquad+entropy` after another tenth, because inference to convergence
takes longer than a few sweeps. The penalty of each method is the one of {penalties} with fewest
errors on a quarter of the training pictures, after {choice_iter} iterations (or that share of them)
on the others; `uquad+entropy` has that of `uquad`. Test pictures chose nothing.

`baseline` has no edges. `pseudo` is the pseudo-likelihood of labelled pixels, and predicts by loopy
propagation. `uquad` is implicit fitting with the entropy `w(y_c) = 1, w(y_i) = .01`;
`uquad+entropy` goes on from there and fits one entropy weight for each configuration; `uquad-k` is
procedural fitting with `k` iterations.
"""


def table(rows: Sequence[Row]) -> str:
    """For the terminal."""
    return text_table(*_cells(last_stages(rows)))


def report(rows: Sequence[Row], penalties: Sequence[Row], scenes: Scenes, design: Design) -> str:
    """Markdown of the whole."""
    height, width = scenes.train_labels[0].shape
    text = WHAT_WAS_DONE.format(
        n_train=len(scenes.train_images),
        n_test=len(scenes.test_images),
        size=f"{height} x {width}",
        labels=", ".join(LABELS),
        missing=float(np.mean(np.stack(scenes.train_labels) < 0)),
        n_features=27 + 3 * design.n_clusters,
        n_clusters=design.n_clusters,
        max_iter=design.stages[-1],
        penalties=", ".join(f"{l2:g}" for l2 in design.penalties),
        choice_iter=design.choice_iter,
    )
    parts = (
        text,
        "## Errors",
        markdown_table(*_cells(last_stages(rows))),
        "`uclass` is the share of wrong labelled test pixels, `uquad` the quadratic loss for one "
        "(-1 is perfect). The thesis has other pictures: compare the order, not the figures.",
        _findings(last_stages(rows)),
        "## Errors along the fits",
        "![Errors in training and test against processor seconds](stages.png)",
        markdown_table(*_stage_cells(rows)),
        "## Choice of penalties",
        markdown_table(*_penalty_cells(penalties)),
        "![Pictures, labels and what every method finds](scenes.png)",
    )
    return "\n\n".join(part.strip() for part in parts if part)


def _findings(rows: Sequence[Row]) -> str:
    """Which methods have fewer errors than the two that the thesis compares with."""
    of = {row["method"]: row for row in rows}
    if not {"baseline", "uquad"} <= set(of):
        return ""

    def better(than: str, column: str) -> list[str]:
        return [name for name, row in of.items() if row[column] < of[than][column]]

    def listed(names: list[str]) -> str:
        return ", ".join(f"`{name}`" for name in names) or "none"

    in_training, in_test = better("uquad", "train_uclass"), better("uquad", "uclass")
    text = (
        f"Fewer errors than `baseline`: {listed(better('baseline', 'uclass'))}; than `uquad`: "
        f"{listed(in_test)}; than `uquad` on the training pictures: {listed(in_training)}. In the "
        "thesis all but `pseudo` are better than `baseline`, and all fits with edges and a loss on "
        "beliefs better than `uquad`, with 100 training pictures."
    )
    if names := sorted(set(in_training) - set(in_test)):
        text += f" Better than `uquad` in training but not in the test: {listed(names)}."
    return text


def last_stages(rows: Sequence[Row]) -> list[Row]:
    """The row of each method where its fit ended."""
    return list({row["method"]: row for row in rows}.values())


def headline(rows: Sequence[Row]) -> dict[str, Any]:
    """Test errors."""
    return {row["method"]: row["uclass"] for row in last_stages(rows)}


def shown_scenes(scenes: Scenes) -> list[int]:
    """Which test pictures are shown."""
    return [int(m) for m in np.linspace(0, len(scenes.test_images) - 1, N_SHOWN).astype(int)]


def pictures(scenes: Scenes, found: Mapping[str, NDArray[np.uint8]]) -> Figure:
    """Some test pictures, their labels, and the labels that every method finds."""

    def draw(figure: Any) -> None:
        chosen = shown_scenes(scenes)
        lines = {
            "picture": [scenes.test_images[m] for m in chosen],
            "true": [COLOURS[scenes.test_labels[m]].astype(np.uint8) for m in chosen],
        }
        for name, labels in found.items():
            lines[name] = list(COLOURS[labels].astype(np.uint8))
        mosaic = np.concatenate([np.concatenate(row, axis=1) for row in lines.values()])
        height = len(mosaic) / len(lines)
        figure.set_size_inches(8.0, 1.1 * len(lines))
        axes = figure.subplots()
        axes.imshow(mosaic, interpolation="nearest")
        axes.set_yticks((np.arange(len(lines)) + 0.5) * height, list(lines), fontsize=8)
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.set_layout_engine("constrained")

    return draw


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    header = ["method", "l2", "uclass", "thesis", "uquad", "training uclass", "CPU s", "iterations"]
    lines = []
    for row in rows:
        ended = "" if row["converged"] else ", not converged"
        lines.append(
            [
                row["method"],
                f"{row['l2']:g}",
                f"{row['uclass']:.3f}",
                f"{THESIS[row['method']]:.3f}",
                f"{row['uquad']:.4f}",
                f"{row['train_uclass']:.3f}",
                f"{row['seconds']:.0f}",
                f"{row['n_iter']}{ended}",
            ]
        )
    return header, lines


def _stage_cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    header = ["method", "iterations", "CPU s", "uclass", "training uclass"]
    lines = [
        [
            row["method"],
            str(row["n_iter"]),
            f"{row['seconds']:.0f}",
            f"{row['uclass']:.3f}",
            f"{row['train_uclass']:.3f}",
        ]
        for row in rows
    ]
    return header, lines


def _penalty_cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Held-out errors, methods by penalties."""
    penalties = sorted({row["l2"] for row in rows})
    methods = list(dict.fromkeys(row["method"] for row in rows))
    held_out = {(row["method"], row["l2"]): row["held_out_uclass"] for row in rows}
    header = ["method", *(f"l2 = {l2:g}" for l2 in penalties)]
    return header, [[name, *(f"{held_out[name, l2]:.3f}" for l2 in penalties)] for name in methods]


def curves(rows: Sequence[Row]) -> Figure:
    """Errors in training (dashed) and test against processor time."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(7.0, 4.5)
        axes = figure.subplots()
        for name in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if row["method"] == name]
            seconds = [row["seconds"] for row in own]
            (line,) = axes.plot(seconds, [row["uclass"] for row in own], marker="o", label=name)
            training = [row["train_uclass"] for row in own]
            axes.plot(seconds, training, linestyle="--", marker=".", color=line.get_color())
        axes.set_xscale("log")
        axes.set_xlabel("CPU seconds of learning")
        axes.set_ylabel("share of wrong pixels (dashed: training)")
        axes.legend()
        figure.set_layout_engine("constrained")

    return draw
