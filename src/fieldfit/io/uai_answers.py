"""Evidence (``.evid``) and answers (``MAR``, ``PR``, ``MAP``) of the UAI text format.

Evidence is ``count`` and then pairs ``variable label``; a lone ``0`` is no evidence.  An answer
names its task, then::

    MAR    n, then for every variable its cardinality and its probabilities
    PR     the logarithm to base 10 of the partition function (with the evidence)
    MAP    n, then one label for every variable
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fieldfit._arrays import integers, real_numbers
from fieldfit._validation import is_integer, require_instance, require_list, require_number, shown
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.graph.factor_graph import MAX_ENTRIES, FactorGraph
from fieldfit.graph.potentials import Beliefs
from fieldfit.io._text import NumberFile, Source, integer_texts, write_text

__all__ = [
    "Answer",
    "MapAnswer",
    "MarginalAnswer",
    "PartitionAnswer",
    "format_answer",
    "read_answer",
    "read_evidence",
    "write_answer",
    "write_evidence",
]


#: Beliefs may exceed 1 by this much.
ROUNDING = 1e-6


@dataclass(frozen=True)
class MarginalAnswer:
    """``MAR``: the marginal distribution of every variable.

    Attributes
    ----------
    marginals
        One vector for each variable.
    """

    marginals: tuple[NDArray[np.float64], ...]

    def __post_init__(self) -> None:
        require_list("marginals", self.marginals, "distributions")
        for index, marginal in enumerate(self.marginals):
            given = real_numbers(f"marginals[{index}]", marginal)
            if given.ndim != 1 or not bool(np.all((given >= 0.0) & (given <= 1.0 + ROUNDING))):
                raise InvalidInputError(
                    f"marginals[{index}] must be probabilities of one variable, got {shown(given)}"
                )

    @classmethod
    def from_beliefs(cls, beliefs: Beliefs) -> MarginalAnswer:
        """The unary beliefs of an inference result."""
        require_instance("beliefs", beliefs, Beliefs, "result.beliefs")
        offsets = beliefs.graph.unary_offsets.tolist()
        return cls(tuple(beliefs.unary_values[a:b] for a, b in pairwise(offsets)))


@dataclass(frozen=True)
class PartitionAnswer:
    """``PR``: the partition function, as logarithm to base 10.

    Attributes
    ----------
    log10_partition
        Logarithm to base 10.
    """

    log10_partition: float

    def __post_init__(self) -> None:
        require_number("log10_partition", self.log10_partition, finite=False)


@dataclass(frozen=True)
class MapAnswer:
    """``MAP``: one label for every variable.

    Attributes
    ----------
    labels
        One for each variable.
    """

    labels: NDArray[np.int32]

    def __post_init__(self) -> None:
        labels = integers("labels", self.labels)
        if labels.ndim != 1 or labels.min(initial=0) < 0:
            raise InvalidInputError(
                f"labels must be one integer of at least 0 for each variable, got {shown(labels)}"
            )


Answer = MarginalAnswer | PartitionAnswer | MapAnswer


# -- evidence -----------------------------------------------------------------------------


def read_evidence(source: Source, graph: FactorGraph | None = None) -> dict[int, int]:
    """Read evidence as a mapping from variable to label.

    The older form with a leading number of samples is understood when that number is 1: it has
    an even number of tokens where the present form has an odd one.

    Parameters
    ----------
    source
        Path of the file (plain or gzip) or an open binary file.
    graph
        If given, variables and labels must exist in it.

    Returns
    -------
    dict
        Label by variable.
    """
    require_instance("graph", graph, FactorGraph, "FactorGraph.chain(3, 2)", or_none=True)
    file = NumberFile(source)
    begin = 0
    if file.n_numbers % 2 == 0:
        file.integer(0, "the number of samples, which must be 1", low=1, high=1)
        begin = 1
    count = file.integer(begin, "the number of observed variables")
    if 2 * count != file.n_numbers - begin - 1:
        raise FileFormatError(
            f"{file.name}: the file announces {count} observed variables, that is {2 * count} "
            f"further numbers, but {file.n_numbers - begin - 1} follow"
        )
    at = np.arange(begin + 1, file.n_numbers, 2)
    high = MAX_ENTRIES if graph is None else graph.n_variables - 1
    variables = file.integers(at, "an observed variable", high=high)
    labels = file.integers(at + 1, "an observed label")
    if graph is not None:
        bad = np.flatnonzero(labels >= graph.cardinalities[variables])
        if len(bad):
            variable = int(variables[bad[0]])
            largest = int(graph.cardinalities[variable]) - 1
            raise file.expected(
                int(at[bad[0]]) + 1, f"a label of variable {variable} (an integer in 0..{largest})"
            )
    observed: dict[int, int] = {}
    for position, variable, label in zip(at + 1, variables.tolist(), labels.tolist(), strict=True):
        if observed.setdefault(variable, label) != label:
            raise file.expected(
                int(position), f"label {observed[variable]} again for variable {variable}"
            )
    return observed


def write_evidence(path: str | os.PathLike[str], observed: Mapping[int, int]) -> None:
    """Write evidence in the present one-line form.

    Parameters
    ----------
    path
        File to write.
    observed
        ``{variable: label}``.
    """
    if not isinstance(observed, Mapping):
        raise InvalidInputError(f"observed must map variables to labels, got {shown(observed)}")
    for entry in (number for pair in observed.items() for number in pair):
        if not is_integer(entry) or not 0 <= entry <= MAX_ENTRIES:
            raise InvalidInputError(
                f"observed must map variables to labels, integers of at least 0, got {shown(entry)}"
            )
    pairs = [f" {int(variable)} {int(label)}" for variable, label in observed.items()]
    write_text(path, [str(len(pairs)), *pairs, "\n"])


# -- answers ------------------------------------------------------------------------------


def format_answer(answer: Answer) -> str:
    """The text of an answer file.

    Parameters
    ----------
    answer
        A `MarginalAnswer`, `PartitionAnswer` or `MapAnswer`.

    Returns
    -------
    str
        Kind and numbers.

    Examples
    --------
    >>> format_answer(PartitionAnswer(1.5)).split()
    ['PR', '1.5']
    """
    return "".join(_answer_parts(answer))


def write_answer(path: str | os.PathLike[str], answer: Answer) -> None:
    """Write an answer file; numbers have up to 17 significant digits.

    Parameters
    ----------
    path
        File to write.
    answer
        A `MarginalAnswer`, `PartitionAnswer` or `MapAnswer`.
    """
    write_text(path, _answer_parts(answer))


def read_answer(source: Source) -> Answer:
    """Read an answer file; ``MPE`` is taken as another name of ``MAP``.

    Parameters
    ----------
    source
        Path of the file (plain or gzip) or an open binary file.

    Returns
    -------
    MarginalAnswer, PartitionAnswer or MapAnswer
        What the file holds.
    """
    file = NumberFile(source, keywords=("MAR", "PR", "MAP", "MPE"))
    if file.keyword == "PR":
        if not file.n_numbers:
            raise file.expected(0, "the logarithm of the partition function")
        file.finish(1)
        return PartitionAnswer(float(file.values[0]))
    n_variables = file.count(0, "variables")
    if file.keyword == "MAR":
        return MarginalAnswer(tuple(_read_marginals(file, n_variables)))
    labels = file.integers(np.arange(1, 1 + n_variables), "a label")
    file.finish(1 + n_variables)
    return MapAnswer(labels.astype(np.int32))


def _read_marginals(file: NumberFile, n_variables: int) -> Iterator[NDArray[np.float64]]:
    position = 1
    for variable in range(n_variables):
        what = f"the cardinality of variable {variable}"
        end = position + 1 + file.integer(position, what, low=1)
        if end > file.n_numbers:
            raise file.expected(end, f"the probabilities of variable {variable}")
        marginal = file.values[position + 1 : end]
        bad = np.flatnonzero(~((marginal >= 0) & (marginal <= 1)))
        if len(bad):
            raise file.expected(position + 1 + int(bad[0]), "a probability in 0..1")
        yield marginal
        position = end
    file.finish(position)


def _answer_parts(answer: Answer) -> Iterator[str]:
    match answer:
        case PartitionAnswer():
            yield f"PR\n{float(answer.log10_partition)!r}\n"
        case MapAnswer():
            labels = integer_texts(np.asarray(answer.labels))
            yield " ".join([f"MAP\n{len(labels)}", *labels]) + "\n"
        case MarginalAnswer():
            yield f"MAR\n{len(answer.marginals)}"
            for marginal in answer.marginals:
                yield f" {len(marginal)} " + " ".join(map(repr, np.asarray(marginal).tolist()))
            yield "\n"
        case _:
            raise InvalidInputError(
                "answer must be a MarginalAnswer, PartitionAnswer or MapAnswer, "
                f"got {shown(answer)}"
            )
