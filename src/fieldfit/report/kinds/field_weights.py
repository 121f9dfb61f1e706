"""Weights of grids and graphs: features by label, couplings as tables, along each direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.report.heat_maps import heat_map
from fieldfit.report.kinds.base import strongest_first, weight_table
from fieldfit.report.page_parts import card, facts

__all__ = ["field_weights"]

#: Rows of a map of features; of more, the strongest.
MAX_FEATURES = 40
#: Edge features whose tables are shown one by one.
MAX_EDGE_FEATURES = 12


def field_weights(model: Any, labels: list[str], features: list[str]) -> list[str]:
    """A box for each block of weights."""
    boxes, first = [], 0
    for name, block in model.weight_blocks_.items():
        boxes.append(_box(model, first, name, block, labels, features))
        first += block.size
    return boxes


def _box(
    model: Any, first: int, name: str, block: FloatArray, labels: list[str], features: list[str]
) -> str:
    """``first`` is the position of the block's first weight."""
    kind = name.split(",")[0]  # several sets of weights have a clause behind it
    title = name[:1].upper() + name[1:].replace("_", " ")
    n_labels = len(labels)
    if kind == "unary" and block.size == 1:
        return card(facts({"scale of the given scores": float(block.reshape(-1)[0])}), title=title)
    if kind == "unary":
        return card(_features(block.reshape(-1, n_labels), labels, features), title=title)
    if kind == "intercept":
        return card(
            heat_map(block.reshape(1, -1), ("constant",), labels, caption=title), title=title
        )
    if kind.startswith("entropy of"):
        rows = [
            (f"{kind} {k}", float(block.reshape(-1)[k])) for k in strongest_first(block.reshape(-1))
        ]
        return card(weight_table("entry", rows, title), title=title)
    return _couplings(model, first, title, kind, block, labels)


def _features(weights: FloatArray, labels: list[str], features: list[str]) -> str:
    kept = sorted(strongest_first(np.abs(weights).max(axis=1), MAX_FEATURES))
    drawn = heat_map(
        weights[kept], [features[k] for k in kept], labels, caption="Weights of features"
    )
    if len(kept) < len(weights):
        drawn += f'<p class="soft">The strongest {len(kept)} of {len(weights)} features.</p>'
    return drawn


def _couplings(
    model: Any, first: int, title: str, kind: str, block: FloatArray, labels: list[str]
) -> str:
    """Tables of labels, one for each feature of the factors if there are any."""
    groups = next(one.groups for one in model._smallest_template().blocks if one.name == kind)
    if groups.size != len(labels) ** 2:
        return _larger_couplings(model, first, title, kind, block)
    n_labels, of_features = len(labels), kind.endswith("_features")
    parameters = block.reshape(-1, int(groups.max()) + 1)
    along = kind.removesuffix("_features")
    what = "every pair" if along == "edges" else f"{along} neighbours"
    note = f"By how much the labels of {what} raise the log-probability, given a constant of 1."
    if not of_features:
        table = np.append(parameters[0], 0.0)[groups].reshape(n_labels, n_labels)
        return card(heat_map(table, labels, labels, caption=title), title=title, note=note)
    note = f"The same for each feature of {what}, times its value."
    names = [f"edge feature {k}" for k in range(len(parameters))]
    if parameters.shape[1] == 1:
        rows = [
            (names[k], float(parameters[k, 0]))
            for k in strongest_first(parameters[:, 0], MAX_FEATURES)
        ]
        drawn = weight_table("feature, for equal labels", rows, title)
        return card(drawn, title=title, note=note)
    kept = strongest_first(np.abs(parameters).max(axis=1), MAX_EDGE_FEATURES)
    parts = []
    for k in kept:
        table = np.append(parameters[k], 0.0)[groups].reshape(n_labels, n_labels)
        parts.append(f"<h3>{names[k]}</h3>" + heat_map(table, labels, labels, caption=names[k]))
    return card(*parts, title=title, note=note)


def _larger_couplings(model: Any, first: int, title: str, kind: str, block: FloatArray) -> str:
    """A list, because tables of three labels and more are no matrices; ``first`` is its start."""
    flat = block.reshape(-1)
    name_of = model._weight_namer()
    rows = [(name_of(first + k), float(flat[k])) for k in strongest_first(flat, MAX_FEATURES)]
    note = (
        f"By how much the labels of a factor of the type {kind.removesuffix('_features')} raise "
        "the log-probability, times the feature if one is named; the strongest first."
    )
    return card(weight_table("labels", rows, title), title=title, note=note)
