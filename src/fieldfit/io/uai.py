"""Models in the UAI text format (``.uai``).

::

    MARKOV                 or BAYES: the same tables, read as conditional probabilities
    3                      number of variables
    2 2 3                  cardinalities
    2                      number of factors
    2 0 1                  arity and scope of each factor
    2 1 2
    4                      size of each table, then its weights;
     4.0 1.0 1.0 2.0       the last variable of the scope runs fastest
    6
     1 1 0 1 2 3

Line breaks have no meaning.  Weights are plain numbers in the file and natural logarithms in
`Potentials`; weight 0 is ``-inf``.  The format is that of the UAI inference competitions of 2008
to 2022.
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

__all__ = ["read_uai", "write_uai"]


def read_uai(source: Source, max_memory: float = 4e9) -> tuple[FactorGraph, Potentials]:
    """Read a model.

    Every table becomes a factor, those over one variable too, so that the file can be written
    back as it was; the unary part of the potentials is zero.

    Parameters
    ----------
    source
        Path of the file (plain or gzip) or an open binary file.
    max_memory
        Bytes that the values of the model may take; a larger model is refused before they are
        allocated.

    Returns
    -------
    graph, potentials : FactorGraph, Potentials
        The model; potentials are natural logarithms of the weights in the file.

    Examples
    --------
    >>> import tempfile, fieldfit as ff
    >>> graph = ff.FactorGraph([2, 3], [(0, 1)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ff.write_uai(f"{folder}/model.uai", graph, ff.Potentials(graph))
    ...     again, potentials = ff.read_uai(f"{folder}/model.uai")
    >>> again.cardinalities.tolist(), again.n_factors
    ([2, 3], 1)
    """
    file = NumberFile(source, keywords=("MARKOV", "BAYES"))
    n_variables = file.count(0, "variables")
    cardinalities = file.integers(
        np.arange(1, 1 + n_variables), "the cardinality of a variable", low=1
    )
    n_factors = file.count(1 + n_variables, "factors")
    scope_begins, arities = _walk_scopes(file, 2 + n_variables, n_factors, n_variables)
    slots = ranges(scope_begins, arities)
    file.integers(slots, "a variable of a scope", high=n_variables - 1)
    try:
        graph = graph_of_scopes(file, cardinalities, scope_begins, arities)
    except TooLargeError as error:
        # no file holds that many numbers, so its header is wrong
        raise FileFormatError(
            f"{file.name}: {error}, and the file holds {file.n_numbers} numbers"
        ) from error

    tables_begin = 2 + n_variables + n_factors + len(slots)
    sizes = np.diff(graph.table_offsets).astype(np.int64)
    _check_table_sizes(file, graph, tables_begin, sizes)
    positions = ranges(tables_begin + 1 + np.cumsum(sizes + 1) - (sizes + 1), sizes)
    file.finish(tables_begin + n_factors + len(positions))
    require_memory(file, graph, max_memory)
    unary_values = np.zeros(graph.unary_offsets[-1])
    return graph, Potentials.from_flat(graph, unary_values, file.log_weights(positions))


def write_uai(path: str | os.PathLike[str], graph: FactorGraph, potentials: Potentials) -> None:
    """Write a model as ``MARKOV``; a name that ends in ``.gz`` is compressed.

    Unary log-potentials that are not all zero are written as factors over one variable, after
    the factors of the graph.  Weights have up to 17 significant digits.  One that lies outside the
    range of doubles is still written in full (``1.5e-400``): `read_uai` reads it back, other
    programs may take it for zero or infinity.

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
    ...     ff.write_uai(f"{folder}/model.uai", graph, ff.Potentials(graph))
    ...     again, potentials = ff.read_uai(f"{folder}/model.uai")
    >>> again.cardinalities.tolist(), again.n_factors
    ([2, 3], 1)
    """
    require_writable(graph, potentials)
    write_text(path, _model_parts(graph, potentials))


# -- reading ------------------------------------------------------------------------------


def _walk_scopes(
    file: NumberFile, begin: int, n_factors: int, n_variables: int
) -> tuple[Positions, Positions]:
    """Position of the first variable of every scope, and the arities."""
    begins = np.empty(n_factors, dtype=np.int64)
    arities = np.empty(n_factors, dtype=np.int64)
    # each arity tells where the next one stands, so this walk is the one loop over factors;
    # reading through memoryviews is several times faster than indexing arrays
    values, to_begins, to_arities = file.values.data, begins.data, arities.data
    position, end = begin, file.n_numbers
    for factor in range(n_factors):
        arity = values[position] if position < end else -1.0
        if not 0 <= arity <= n_variables or arity != int(arity):
            raise file.expected(
                position, f"the arity of factor {factor} (an integer in 0..{n_variables})"
            )
        to_begins[factor] = position + 1
        to_arities[factor] = int(arity)
        position += 1 + int(arity)
    if position > end:
        raise file.expected(position, "a variable of a scope")
    return begins, arities


def _check_table_sizes(file: NumberFile, graph: FactorGraph, begin: int, sizes: Positions) -> None:
    """Compare every announced table size with the scope, and all of them with the file."""
    announcements = begin + np.cumsum(sizes + 1) - (sizes + 1)
    present = announcements[announcements < file.n_numbers]
    wrong = np.flatnonzero(file.values[present] != sizes[: len(present)])
    if len(wrong):
        factor = int(wrong[0])
        shape = " x ".join(map(str, graph.table_shape(factor))) or "1"
        hint = f", or the table of factor {factor - 1} has a wrong length" if factor else ""
        raise file.expected(
            int(present[factor]),
            f"the size {sizes[factor]} of the table of factor {factor} ({shape}{hint})",
        )
    total, left = int(sizes.sum()), file.n_numbers - begin - len(sizes)
    if total > left:
        factor = max(len(present) - 1, 0)
        raise FileFormatError(
            f"{file.name}: the tables need {total} numbers ({total * 8 / 1e9:.3g} GB), "
            f"but the file ends in the table of factor {factor} after {max(left, 0)} of them"
        )


# -- writing ------------------------------------------------------------------------------


def _model_parts(graph: FactorGraph, potentials: Potentials) -> Iterator[str]:
    extra = unary_factors(potentials)
    yield f"MARKOV\n{graph.n_variables}\n"
    yield " ".join(integer_texts(graph.cardinalities)) + "\n"
    yield f"{graph.n_factors + len(extra)}\n"

    arities = graph.arities.tolist()
    slots = integer_texts(graph.slot_variables)
    begin = 0
    for arity in arities:
        yield " ".join([str(arity), *slots[begin : begin + arity]]) + "\n"
        begin += arity
    for variable in extra:
        yield f"1 {variable}\n"

    texts = weight_texts(potentials.factor_values)
    offsets = graph.table_offsets.tolist()
    for begin, end in pairwise(offsets):
        yield f"\n{end - begin}\n {' '.join(texts[begin:end])}\n"
    for variable in extra:
        table = weight_texts(potentials.unary(variable))
        yield f"\n{len(table)}\n {' '.join(table)}\n"
