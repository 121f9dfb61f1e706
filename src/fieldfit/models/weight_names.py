"""What each weight of a model belongs to, in words: for lists, data frames and the command line.

``top_weights`` and ``weights_frame`` of every estimator, and ``fieldfit inspect``, take names from
here: ``unary feature 3 / label 1``, ``horizontal label 0 - label 1``, ``anxiety - sleep``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import MissingDependencyError
from fieldfit.graph.template import Block, Template

__all__ = ["data_frame", "describe_labels", "potts_name", "template_names"]


def describe_labels(
    groups: NDArray[np.int64], group: int, classes: NDArray[Any] | Sequence[str], mark: str
) -> str:
    """What a parameter of a table belongs to; ``groups`` has that of each entry, row-major.

    >>> describe_labels(np.array([0, 1, 1, 2]), 1, np.array(["A", "B"]), "~")
    'A ~ B'
    >>> describe_labels(np.array([0, -1, -1, 0]), 0, np.array(["A", "B"]), "~")
    'equal labels'
    >>> describe_labels(np.array([0, 1, 1, 2, 1, 2, 2, 3]), 1, ["A", "B"], "~")
    'A ~ A ~ B'
    """
    shape = (len(classes),) * _arity(groups.size, len(classes))
    entries = np.unravel_index(np.flatnonzero(groups == group), shape)
    return _name_entries(np.stack(entries), classes, mark)


def _name_entries(
    labels: NDArray[np.int64], classes: NDArray[Any] | Sequence[str], mark: str
) -> str:
    """What entries of a table that share a parameter have in common; a column for each entry."""
    arity = len(labels)
    n_equal = int(np.bincount(labels[:, 0]).max())
    is_one_kind = np.all(np.sort(labels[:, 0]) == np.sort(labels, axis=0).T)
    if is_one_kind:  # one entry, or the same labels in another order
        return f" {mark} ".join(str(classes[label]) for label in labels[:, 0])
    return "equal labels" if n_equal == arity else f"{n_equal} of {arity} labels equal"


def _arity(n_entries: int, n_labels: int) -> int:
    """How many variables a table of so many entries has."""
    arity, size = 1, n_labels
    while size < n_entries:
        arity, size = arity + 1, size * n_labels
    return arity


def template_names(templates: Sequence[Template], n_labels: int) -> list[str]:
    """Names of all weights of templates over variables with one number of labels, in order.

    Where a template comes several times it is that of several sweeps, whose number is added.

    >>> from fieldfit.graph.factor_graph import FactorGraph
    >>> graph = FactorGraph.chain(2, 2)
    >>> blocks = [Block.unary(graph, np.ones((2, 1))), Block.tables(graph, "potts", name="edges")]
    >>> template_names([Template(graph, blocks)], 2)
    ['unary feature 0 / label 0', 'unary feature 0 / label 1', 'edges equal labels']
    """
    is_repeated = len(set(map(id, templates))) < len(templates)
    return [
        f"{name}, sweep {sweep}" if is_repeated else name
        for sweep, template in enumerate(templates, start=1)
        for block in template.blocks
        for name in _block_names(block, [f"label {k}" for k in range(n_labels)])
    ]


def _block_names(block: Block, labels: list[str]) -> Iterator[str]:
    """Features are the slow axis of a block's weights, entries of tables the fast one."""
    if block.part == "unary" and block.groups.size != len(labels):
        yield "scale of the given scores"
        return
    entries = labels if block.part == "unary" else _table_names(block, labels)
    if block.features is None:
        yield from (f"{block.name} {entry}" for entry in entries)
        return
    name = block.name.removesuffix("_features")
    for feature in range(block.n_weights // max(block.n_groups, 1)):
        yield from (f"{name} feature {feature} / {entry}" for entry in entries)


def _table_names(block: Block, labels: list[str]) -> list[str]:
    """Names of all parameters of tied tables; entries are sorted by parameter once."""
    order = np.argsort(block.groups, kind="stable")
    starts = np.searchsorted(block.groups[order], np.arange(block.n_groups + 1))
    shape = (len(labels),) * _arity(block.groups.size, len(labels))
    chosen = (order[first:last] for first, last in pairwise(starts.tolist()))
    return [_name_entries(np.stack(np.unravel_index(own, shape)), labels, "-") for own in chosen]


def potts_name(position: int, variables: Sequence[str], edges: NDArray[Any], n_labels: int) -> str:
    """What a weight of full tables belongs to: fields of all variables, then tables of all edges.

    >>> potts_name(7, ["a", "b"], np.array([[0, 1]]), 2)
    'a - b / labels 1, 1'
    """
    place, label = divmod(position, n_labels)
    if place < len(variables):
        return f"{variables[place]} / label {label}"
    edge, first = divmod(place - len(variables), n_labels)
    i, j = edges[edge]
    return f"{variables[i]} - {variables[j]} / labels {first}, {label}"


def data_frame(columns: Mapping[str, Any]) -> Any:
    """A pandas data frame."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependencyError(
            "data frames need pandas: pip install 'fieldfit[frame]'"
        ) from None
    return pd.DataFrame(dict(columns))
