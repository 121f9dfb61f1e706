"""Entropy weights for every configuration: ``- sum_a sum_y w_a(y) b_a(y) log b_a(y) - ...``.

Laid out like potentials and beliefs.  With a weight of its own for each configuration the entropy
can be fitted to data like potentials are; weights that are constant over the tables of a factor are
the counting numbers of an `Entropy`.  Factors of arity zero and one have no entropy (they are
constants, and part of their variable); their entries are kept at zero.

Parameters of entropy weights are a `Template` whose potentials are logarithms of factors of the
weights,

    w = w0 exp(s(Psi v)),      s(x) = W tanh(x / W),      W = log 1000

``w0`` are the weights of an entropy, ``v`` the parameters, and ``Psi`` a template like the one
that makes potentials: so weights stay positive, are the entropy's own at ``v = 0`` (towards which a
penalty shrinks them), and follow features in the same way.  ``s`` is the identity near zero and
keeps weights within a factor of 1000: a line search may ask for any, and beliefs under weights of
very different size are as hard to find as those of a linear program.  Multiplying all weights and
potentials by one number changes no belief; the penalty removes this freedom, too.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fieldfit._arrays import real_numbers
from fieldfit._typing import FloatArray, IntArray
from fieldfit._validation import require_instance
from fieldfit.entropy.counting_numbers import Entropy
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph, require_factor_graph
from fieldfit.graph.potentials import Potentials, Tables, _GraphVector
from fieldfit.graph.ragged import expand, reduce_rows
from fieldfit.graph.result import Bound
from fieldfit.graph.template import Block, Template

__all__ = [
    "TIES",
    "EntropyTies",
    "EntropyWeights",
    "entropy_gradient",
    "entropy_template",
    "scaled_weights",
]


class EntropyWeights(_GraphVector):
    """Entropy weights of a graph, immutable.

    Parameters
    ----------
    graph
        The structure.
    unary, factors
        A number for all, an array with one number for each variable or factor, or tables as
        `Potentials` takes them: one number for each configuration.  All must be positive.

    Examples
    --------
    >>> weights = EntropyWeights(FactorGraph.chain(3, 2), unary=0.01, factors=[1.0, 0.5])
    >>> weights.unary(0), weights.factor(1)
    (array([0.01, 0.01]), array([[0.5, 0.5],
           [0.5, 0.5]]))
    """

    def __init__(
        self, graph: FactorGraph, unary: ArrayLike | Tables = 1.0, factors: ArrayLike | Tables = 1.0
    ) -> None:
        require_factor_graph(graph)
        unary_values = _spread("unary", graph, unary, graph.unary_offsets)
        factor_values = _spread("factors", graph, factors, graph.table_offsets)
        linking = expand(graph.arities >= 2, graph.table_offsets)
        factor_values[~linking] = 0.0
        _require_positive("unary", unary_values, graph.unary_offsets)
        _require_positive("factors", np.where(linking, factor_values, 1.0), graph.table_offsets)
        self._freeze(graph, unary_values, factor_values)

    @classmethod
    def of(cls, entropy: Entropy, graph: FactorGraph) -> EntropyWeights:
        """The counting numbers of an entropy: those of variables may be zero or negative."""
        require_instance("entropy", entropy, Entropy, "Bethe()")
        counting = entropy.counting_numbers(graph)
        return cls.from_flat(
            graph,
            expand(counting.variable, graph.unary_offsets),
            expand(np.where(graph.arities >= 2, counting.factor, 0.0), graph.table_offsets),
        )

    @classmethod
    def from_flat(
        cls, graph: FactorGraph, unary_values: FloatArray, factor_values: FloatArray
    ) -> EntropyWeights:
        """Keep two flat vectors, without checks of their values; they become read-only."""
        weights = cls.__new__(cls)
        weights._freeze(graph, unary_values, factor_values)
        return weights

    def _freeze(
        self, graph: FactorGraph, unary_values: FloatArray, factor_values: FloatArray
    ) -> None:
        checked = Potentials.from_flat(graph, unary_values, factor_values)  # shapes
        self.graph = graph
        self.unary_values, self.factor_values = checked.unary_values, checked.factor_values
        self.unary_values.flags.writeable = False
        self.factor_values.flags.writeable = False

    @property
    def is_positive(self) -> bool:
        """True if every weight (of factors of arity two or more) is above zero."""
        linking = expand(self.graph.arities >= 2, self.graph.table_offsets)
        return bool(np.all(self.unary_values > 0.0) and np.all(self.factor_values[linking] > 0.0))

    @property
    def is_constant(self) -> bool:
        """True if no weight depends on the configuration: message passing applies."""
        return _constant(self.unary_values, self.graph.unary_offsets) and _constant(
            self.factor_values, self.graph.table_offsets
        )

    def bound(self) -> Bound:
        """What the maximum is: "upper" if the least weights already make an upper bound.

        No term ``- w b log b`` is negative, so the entropy is not below that with the least weight
        of each table in place of all, to which Shearer's inequality applies (see `Convex`).
        """
        graph = self.graph
        if not self.is_positive and bool(np.any(self.unary_values < 0.0)):
            return None
        total = reduce_rows(np.minimum, self.unary_values, graph.unary_offsets)
        least = reduce_rows(np.minimum, self.factor_values, graph.table_offsets)
        total += np.bincount(
            graph.slot_variables, least[graph.slot_factors], minlength=graph.n_variables
        )
        return "upper" if bool(np.all(total >= 1.0)) else None


# -- helpers ------------------------------------------------------------------------------


def _spread(
    name: str, graph: FactorGraph, given: ArrayLike | Tables, offsets: IntArray
) -> FloatArray:
    """One number for each entry from numbers for all, for each table or for each entry."""
    sizes = np.diff(offsets)
    if given is None:
        raise InvalidInputError(f"{name} must be a number, an array or tables, got None")
    try:
        array = real_numbers(name, given)
    except InvalidInputError:
        array = None  # tables of several shapes, or what is refused below
    if array is not None and array.ndim == 0:
        return np.full(int(offsets[-1]), float(array))
    if array is not None and array.shape == sizes.shape:
        return expand(array, offsets)
    tables = given if array is None or not isinstance(given, np.ndarray) else array
    of_tables = Potentials(graph, **{name: tables})  # type: ignore[arg-type]
    return (of_tables.unary_values if name == "unary" else of_tables.factor_values).copy()


def _require_positive(name: str, values: FloatArray, offsets: IntArray) -> None:
    bad = np.flatnonzero(~((values > 0.0) & (values < np.inf)))
    if len(bad):
        index = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        raise InvalidInputError(
            f"{name}[{index}] must hold finite weights above 0, got {values[bad[0]]}"
        )


def _constant(values: FloatArray, offsets: IntArray) -> bool:
    if len(values) == 0:
        return True
    first = expand(values[np.minimum(offsets[:-1], len(values) - 1)], offsets)
    return bool(np.all(values == first))


# -- parameters of entropy weights --------------------------------------------------------

EntropyTies = Literal["tied", "configuration", "features"]

TIES = ("tied", "configuration", "features")
#: ``W``.
WIDEST = float(np.log(1000.0))


def entropy_template(template: Template, ties: EntropyTies) -> Template:
    """Parameters for the weights of variables and of the tables that a template has.

    ``"tied"`` has one number for all variables and one for all tables of a block of factors,
    ``"configuration"`` one for each entry of these, and ``"features"`` one for each entry and
    feature of every block.  Where blocks of factors with and without features share tables,
    those without stand for both.
    """
    if ties == "features":
        chosen = list(template.blocks)
    else:
        factors = [block for block in template.blocks if block.part == "factors"]
        constant = [block for block in factors if type(block) is Block and block.features is None]
        chosen = [Block.unary(template.graph), *(constant or factors)]
    blocks = []
    for block in chosen:
        if type(block) is not Block:
            raise InvalidInputError(
                f"entropy weights need plain blocks of tables, got {type(block).__name__} "
                f"{block.name!r}"
            )
        size = len(block.groups)
        groups = np.zeros(size, dtype=np.int64) if ties == "tied" else np.arange(size)
        features = block.features if ties == "features" else None
        blocks.append(Block(f"entropy of {block.name}", block.part, block.starts, groups, features))
    return Template(template.graph, blocks)


def scaled_weights(base: EntropyWeights, logs: Potentials) -> EntropyWeights:
    """``w0 exp(s(logs))``."""
    return EntropyWeights.from_flat(
        base.graph,
        base.unary_values * np.exp(WIDEST * np.tanh(logs.unary_values / WIDEST)),
        base.factor_values * np.exp(WIDEST * np.tanh(logs.factor_values / WIDEST)),
    )


def entropy_gradient(
    weights: EntropyWeights, logs: Potentials, by_weights: Potentials
) -> Potentials:
    """The derivative by ``logs`` from that by weights."""
    return Potentials.from_flat(
        weights.graph,
        _by_logs(weights.unary_values, logs.unary_values, by_weights.unary_values),
        _by_logs(weights.factor_values, logs.factor_values, by_weights.factor_values),
    )


def _by_logs(weights: FloatArray, logs: FloatArray, by_weights: FloatArray) -> FloatArray:
    return weights * by_weights * (1.0 - np.tanh(logs / WIDEST) ** 2)
