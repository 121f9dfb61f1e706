"""Models in the factor graph format of libDAI (``.fg``).

::

    2              number of factors; then one block for each, by habit after a blank line

    2              number of variables of the factor
    0 1            their labels
    2 3            their cardinalities
    5              number of nonzero entries, then index and weight of each;
    0 4.0          the index counts with the FIRST variable of the block running fastest
    1 1.0
    ...

A ``#`` begins a comment.  Entries that are not listed have weight zero (``-inf``).

A variable exists, for libDAI, if some factor names it.  Here variables are numbered by those
labels.  A number between 0 and the largest label that no factor names becomes a variable with a
single label: it changes neither the partition function nor any marginal, and evidence and
answers keep going by the labels of the file.

Reference: J. M. Mooij, libDAI: A free and open source C++ library for discrete approximate
inference in graphical models, JMLR 11 (2010).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from fieldfit.errors import FileFormatError, TooLargeError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.io._text import (
    NumberFile,
    Positions,
    Source,
    graph_of_scopes,
    integer_texts,
    ranges,
    require_memory,
    require_writable,
    unary_factors,
    weight_texts,
    write_text,
)

__all__ = ["read_fg", "write_fg"]

#: Labels that no factor names are filled in up to this many; beyond, a label is surely an error.
MAX_UNNAMED = 1_000_000


def read_fg(source: Source, max_memory: float = 4e9) -> tuple[FactorGraph, Potentials]:
    """Read a model; scopes keep the order of the file, the unary part is zero.

    Parameters
    ----------
    source
        Path of the file (plain or gzip) or an open binary file.
    max_memory
        Bytes that the values of the model may take.  A block lists only nonzero entries, so a
        short file can announce a table of any size; it is refused before anything is allocated.

    Returns
    -------
    graph, potentials : FactorGraph, Potentials
        The model; potentials are natural logarithms of the weights in the file.

    Examples
    --------
    >>> import tempfile, fieldfit as ff
    >>> graph = ff.FactorGraph([2, 3], [(0, 1)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ff.write_fg(f"{folder}/model.fg", graph, ff.Potentials(graph))
    ...     again, potentials = ff.read_fg(f"{folder}/model.fg")
    >>> again.cardinalities.tolist(), again.n_factors
    ([2, 3], 1)
    """
    file = NumberFile(source, comments=True)
    n_factors = file.count(0, "factors")
    begins, arities, n_entries, end = _walk_blocks(file, n_factors)
    file.finish(end)

    slots = ranges(begins, arities)
    labels = file.integers(slots, "the label of a variable")
    sizes = file.integers(ranges(begins + arities, arities), "the cardinality of a variable", low=1)
    cardinalities = _cardinalities(file, slots, labels, sizes)
    try:
        graph = graph_of_scopes(file, cardinalities, begins, arities)
    except TooLargeError as error:
        raise TooLargeError(f"{file.name}: {error}") from error
    require_memory(file, graph, max_memory)

    factors = np.repeat(np.arange(n_factors), n_entries)
    at = ranges(begins + 2 * arities + 1, 2 * n_entries)[::2]
    table_sizes = np.diff(graph.table_offsets)
    indices = file.integers(at, "the index of a table entry")
    outside = np.flatnonzero(indices >= table_sizes[factors])
    if len(outside):
        factor = int(factors[outside[0]])
        raise file.expected(
            int(at[outside[0]]),
            f"the index of an entry of factor {factor} (in 0..{table_sizes[factor] - 1})",
        )
    targets = _flat_entries(graph, factors, indices)
    factor_values = np.full(graph.table_offsets[-1], -np.inf)
    factor_values[targets] = file.log_weights(at + 1)
    _refuse_repeated(file, at, targets, len(factor_values))
    return graph, Potentials.from_flat(graph, np.zeros(graph.unary_offsets[-1]), factor_values)


def write_fg(path: str | os.PathLike[str], graph: FactorGraph, potentials: Potentials) -> None:
    """Write a model; a name that ends in ``.gz`` is compressed.

    Unary log-potentials that are not all zero follow as factors over one variable, and so do the
    variables that no factor names (all weights one), because the format knows a variable only
    through a factor.  Weights are written as by `write_uai`.

    Parameters
    ----------
    path
        File to write; it is replaced when the new one is complete.
    graph, potentials
        The model.

    Examples
    --------
    >>> import tempfile, fieldfit as ff
    >>> graph = ff.FactorGraph([2, 3], [(0, 1)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ff.write_fg(f"{folder}/model.fg", graph, ff.Potentials(graph))
    ...     again, potentials = ff.read_fg(f"{folder}/model.fg")
    >>> again.cardinalities.tolist(), again.n_factors
    ([2, 3], 1)
    """
    require_writable(graph, potentials)
    write_text(path, _model_parts(graph, potentials))


# -- reading ------------------------------------------------------------------------------


def _walk_blocks(file: NumberFile, n_factors: int) -> tuple[Positions, Positions, Positions, int]:
    """For every block: position of its first label, arity, number of entries; and the end."""
    begins = np.empty(n_factors, dtype=np.int64)
    arities = np.empty(n_factors, dtype=np.int64)
    n_entries = np.empty(n_factors, dtype=np.int64)
    # the counts of a block tell where the next one stands: the one loop over factors
    values, end = file.values.data, file.n_numbers
    position = 1
    for factor in range(n_factors):
        block = position
        arity = values[block] if block < end else -1.0
        if not 0 <= arity <= end or arity != int(arity):
            raise file.expected(block, f"the number of variables of factor {factor}")
        position += 1 + 2 * int(arity)
        count = values[position] if position < end else -1.0
        if not 0 <= count <= end or count != int(count):
            raise file.expected(position, f"the number of nonzero entries of factor {factor}")
        position += 1 + 2 * int(count)
        if position > end:
            raise file.expected(end, f"{int(count)} nonzero entries of factor {factor}")
        begins[factor], arities[factor], n_entries[factor] = block + 1, int(arity), int(count)
    return begins, arities, n_entries, position


def _cardinalities(
    file: NumberFile, slots: Positions, labels: Positions, sizes: Positions
) -> Positions:
    """Cardinality of every variable up to the largest label, 1 where no factor names it."""
    n_variables = int(labels.max(initial=-1)) + 1
    if n_variables - len(np.unique(labels)) > MAX_UNNAMED:
        raise file.expected(
            int(slots[int(np.argmax(labels))]),
            f"variable labels that leave at most {MAX_UNNAMED} numbers unused",
        )
    cardinalities = np.ones(n_variables, dtype=np.int64)
    # written in reverse, so that the first block that names a variable decides
    cardinalities[labels[::-1]] = sizes[::-1]
    differs = np.flatnonzero(cardinalities[labels] != sizes)
    if len(differs):
        label = int(labels[differs[0]])
        raise FileFormatError(
            f"{file.name}: expected {cardinalities[label]} as cardinality of variable {label} in "
            f"every block, found {sizes[differs[0]]}"
        )
    return cardinalities


def _refuse_repeated(file: NumberFile, at: Positions, targets: Positions, n_entries: int) -> None:
    seen = np.zeros(n_entries, dtype=bool)
    seen[targets] = True
    if np.count_nonzero(seen) != len(targets):
        _, first = np.unique(targets, return_index=True)
        repeated = np.setdiff1d(np.arange(len(targets)), first)[0]
        raise file.expected(int(at[repeated]), "every table entry at most once")


def _flat_entries(graph: FactorGraph, factors: Positions, indices: Positions) -> Positions:
    """Flat table entry of each (factor, index), the index having the first variable fastest.

    With digits ``y_t`` of the index, ``index = y_0 + K_0 (y_1 + K_1 (y_2 + ...))``, the entry
    with the last variable fastest is ``(...(y_0 K_1 + y_1) K_2 + ...)``: one pass over scope
    positions turns the one into the other for all factors at once.
    """
    rest = indices.astype(np.int64)
    local = np.zeros(len(rest), dtype=np.int64)
    arities, begins = graph.arities[factors], graph.scope_offsets[factors]
    for position in range(int(arities.max(initial=0))):
        has = np.flatnonzero(arities > position)
        sizes = graph.cardinalities[graph.slot_variables[begins[has] + position]]
        rest[has], digits = np.divmod(rest[has], sizes)
        local[has] = local[has] * sizes + digits
    return graph.table_offsets[factors] + local


# -- writing ------------------------------------------------------------------------------


def _model_parts(graph: FactorGraph, potentials: Potentials) -> Iterator[str]:
    extra = sorted({*unary_factors(potentials), *_unnamed_variables(graph)})
    yield f"{graph.n_factors + len(extra)}\n"

    offsets = graph.table_offsets.astype(np.int64)
    factors = np.repeat(np.arange(graph.n_factors), np.diff(offsets))
    indices = np.arange(offsets[-1]) - offsets[factors]
    values = potentials.factor_values[_flat_entries(graph, factors, indices)]
    texts = weight_texts(values)
    scope_offsets = graph.scope_offsets.tolist()
    for factor, (begin, end) in enumerate(pairwise(offsets.tolist())):
        scope = graph.slot_variables[scope_offsets[factor] : scope_offsets[factor + 1]]
        yield _block(
            integer_texts(scope), integer_texts(graph.cardinalities[scope]), texts[begin:end]
        )
    for variable in extra:
        table = weight_texts(potentials.unary(variable))
        yield _block([str(variable)], [str(len(table))], table)


def _block(labels: list[str], sizes: list[str], texts: list[str]) -> str:
    entries = [f"{index} {text}\n" for index, text in enumerate(texts) if text != "0.0"]
    return f"\n{len(labels)}\n{' '.join(labels)}\n{' '.join(sizes)}\n{len(entries)}\n" + "".join(
        entries
    )


def _unnamed_variables(graph: FactorGraph) -> list[int]:
    """Variables without a factor that the reader could not fill in by itself."""
    named = np.zeros(graph.n_variables, dtype=bool)
    named[graph.slot_variables] = True
    filled_in = graph.cardinalities == 1
    filled_in[-1:] = False  # the largest label must be named
    return [int(variable) for variable in np.flatnonzero(~named & ~filled_in)]
