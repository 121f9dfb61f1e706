"""Types of factors: how many nodes they join, how many features they have, how tables are tied.

A factor ``a`` of a type, with features ``x_a`` if the type has any, has the table

    th_a(y_a) = V[g(y_a)] + sum_d x_a[d] V_d[g'(y_a)]

with one ``V`` and one ``V_d`` for each feature, shared by all factors of the type.  ``g`` and
``g'`` tie entries of the tables (`fieldfit.graph.template.tie_entries`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import comb
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit._validation import require_integer, require_one_of, shown
from fieldfit.errors import FileFormatError, InvalidInputError, Place, TooLargeError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.template import Block, Tying
from fieldfit.io.stored import Stored
from fieldfit.models.graphs.graph_examples import EDGES, Scopes, require_type_name

__all__ = [
    "FactorType",
    "TypesSeen",
    "check_factors",
    "require_affordable",
    "require_searches",
    "require_type",
    "restored_types",
    "shard_types",
    "stored_types",
    "type_blocks",
    "typed_graph",
]

_FORMS = ("auto", *get_args(Tying))
#: A symmetric table of more weights than this is tied further, unless it is asked for.
MOST_SYMMETRIC_WEIGHTS = 1000
#: Entries of one table, of which a message of a factor sees all.
MOST_TABLE_ENTRIES = 2**20


@dataclass(frozen=True)
class FactorType:
    """A type of factors: in ``factors`` of `GraphCRF`, and what it has learned of one.

    A fit learns arities and numbers of features from its examples.  A type that some of them may
    lack altogether, as in one fold of a cross-validation, can be declared by this instead.

    Parameters
    ----------
    arity
        How many nodes a factor joins.
    n_features
        How many features a factor has.
    tables
        Which entries share a weight: ``"full"``, ``"symmetric"``, ``"potts"``, ``"potts-labels"``,
        ``"robust-potts"``, or ``"auto"``: symmetric (robust Potts where that would be more than
        1000 weights), and Potts for features.

    Examples
    --------
    >>> FactorType(3, n_features=1).forms(n_labels=2)
    ('symmetric', 'potts')
    """

    arity: int = 2
    n_features: int = field(default=0, kw_only=True)
    tables: Tying | Literal["auto"] = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        require_integer("arity", self.arity, at_least=2)
        require_integer("n_features", self.n_features, at_least=0)
        require_one_of("tables", self.tables, _FORMS)

    def forms(self, n_labels: int) -> tuple[Tying, Tying]:
        """How constant tables are tied, and how those of features are."""
        require_integer("n_labels", n_labels, at_least=1)
        if self.tables != "auto":
            return self.tables, self.tables
        n_symmetric = comb(n_labels + self.arity - 1, self.arity)
        plain: Tying = "symmetric" if n_symmetric <= MOST_SYMMETRIC_WEIGHTS else "robust-potts"
        return plain, "potts"


def require_affordable(kind: FactorType, name: str, n_labels: int) -> None:
    """Refuse tables whose entries no message could go through; memory limits those of pairs."""
    if kind.arity > 2 and n_labels**kind.arity > MOST_TABLE_ENTRIES:
        raise TooLargeError(
            f"factors of type {name!r} must have tables of at most {MOST_TABLE_ENTRIES} "
            f"entries, got {n_labels} labels at {kind.arity} nodes, which are "
            f"{float(min(n_labels**kind.arity, 10**300)):.3g}"
        )


def check_factors(given: Any) -> None:
    """Refuse what is no ``factors`` of `GraphCRF`."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            "factors must be a dictionary from types to the form of their tables, such as "
            f"{{'triples': 'potts'}}, got {shown(given)}"
        )
    for name, form in given.items():
        require_type_name(name)
        if isinstance(form, FactorType):
            if name == EDGES and (form.arity != 2 or form.tables != "auto"):
                raise InvalidInputError(
                    f"factors['edges'] must have arity 2 and tables='auto', because pairwise is "
                    f"the form of edges, got {form!r}"
                )
        elif name == EDGES:
            raise InvalidInputError(
                f"factors must not have 'edges', the form of which is pairwise, got {shown(form)}"
            )
        else:
            require_one_of(f"factors[{name!r}]", form, _FORMS)


# -- what a fit learns ---------------------------------------------------------------------


class TypesSeen:
    """Types of factors, learned from one example after the other.

    ``given`` is the option ``factors``; what it declares needs no example.
    """

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        self._given = {} if given is None else given
        self._found = {
            name: form for name, form in self._given.items() if isinstance(form, FactorType)
        }
        self._has_edges = False

    def see(self, factors: Mapping[str, Scopes]) -> None:
        """Learn types that no earlier example has; one without factors says nothing of a type."""
        self._has_edges |= EDGES in factors
        for name, (scopes, features) in factors.items():
            if name not in self._found and len(scopes):
                self._found[name] = FactorType(
                    int(scopes.shape[1]),
                    n_features=0 if features is None else int(features.shape[1]),
                    tables=self._given.get(name, "auto"),
                )

    def types(self) -> dict[str, FactorType]:
        """Edges first, then the others by their names: the order of weights is not that of data."""
        found = dict(self._found)
        if self._has_edges:  # what edges are is known without any
            found.setdefault(EDGES, FactorType(2))
        return {name: found[name] for name in sorted(found, key=lambda one: (one != EDGES, one))}

    def require(self, factors: Mapping[str, Scopes], place: Place) -> None:
        """Refuse factors of an example that are not as those of earlier ones."""
        for name, own in factors.items():
            require_type(self._found, name, own, place)

    def take(self, name: str, kind: FactorType) -> None:
        """Learn a type that shards say they have; refuses another one than ``factors`` declares."""
        declared = self._given.get(name, "auto")
        if not isinstance(declared, FactorType):
            self._found[name] = replace(kind, tables=declared)
        elif (declared.arity, declared.n_features) != (kind.arity, kind.n_features):
            raise InvalidInputError(
                f"factors[{name!r}] must have arity {kind.arity} and n_features "
                f"{kind.n_features} as in the shards, got {declared!r}"
            )

    def require_affordable(self, n_labels: int) -> None:
        """Refuse types whose tables are too large."""
        for name, kind in self.types().items():
            require_affordable(kind, name, n_labels)

    def require_names(self, data: str = "examples") -> None:
        """Refuse forms of types that the data lack."""
        unknown = [name for name in self._given if name not in self._found]
        if unknown:
            seen = ", ".join(map(repr, self.types())) or "none"
            raise InvalidInputError(
                f"factors must name types of the {data}, which have {seen}, got {unknown[0]!r}; "
                "a FactorType declares one that they may lack"
            )


def require_type(types: Mapping[str, FactorType], name: str, factors: Scopes, place: Place) -> None:
    """Refuse factors of an unknown type, of another arity or with other features."""
    if not len(factors.scopes):
        return
    if name not in types:
        known = ", ".join(map(repr, types)) or "none at all"
        raise InvalidInputError(
            f"types of factors must be those of the fit, {known}, got {name!r}", place
        )
    arity, n_features = types[name].arity, types[name].n_features
    what = EDGES if name == EDGES else f"factors of type {name!r}"
    if factors.scopes.shape[1] != arity:
        raise InvalidInputError(
            f"{what} must join {arity} nodes as in the fit, got {factors.scopes.shape[1]}", place
        )
    found = 0 if factors.features is None else int(factors.features.shape[1])
    if found != n_features:
        raise InvalidInputError(
            f"{what} must have {n_features} features as in the first example of the fit, "
            f"got {found}",
            place,
        )


def require_searches(objective: Any, types: Mapping[str, FactorType]) -> None:
    """Refuse an objective with a search or inference that does not take so many nodes."""
    if not is_dataclass(objective):
        return
    most = getattr(objective, "max_arity", None)
    for name, kind in types.items():
        if most is not None and kind.arity > most:
            raise InvalidInputError(
                f"factors of type {name!r} must join at most {most} nodes for "
                f"{type(objective).__name__}, got {kind.arity}; ExactMap, MaxProduct and "
                "SumProduct take any number"
            )
    for option in fields(objective):
        require_searches(getattr(objective, option.name), types)


# -- types in files ------------------------------------------------------------------------


def stored_types(types: Mapping[str, FactorType]) -> list[list[Any]]:
    """Types as a model file has them."""
    return [[name, kind.arity, kind.n_features, kind.tables] for name, kind in types.items()]


def restored_types(stored: Stored, n_labels: int, n_weights: int) -> dict[str, FactorType]:
    """Types of a model file; before there were any others, edges."""
    if "factor_types" not in stored.numbers:
        return {EDGES: FactorType(2, n_features=stored.integer("n_edge_features", 0, n_weights))}
    names = ("arity", "n_features", "tables")
    return {
        name: _restored_type(Stored({}, values), name, n_labels, n_weights)
        for name, values in _stored_entries(stored, "factor_types", names).items()
    }


def shard_types(
    model: Stored, given: Mapping[str, Any] | None, n_labels: int
) -> dict[str, FactorType]:
    """Types of the factors in shards, with the tables that ``factors`` of a fit asks for."""
    seen = TypesSeen(given)
    if "factor_scopes" in model.numbers:
        entries = _stored_entries(model, "factor_scopes", ("arity", "n_features"))
    else:
        entries = {EDGES: {"arity": 2, "n_features": model.integer("n_edge_features", 0)}}
    for name, values in entries.items():
        found = _restored_type(Stored({}, values | {"tables": "auto"}), name, n_labels, None)
        seen.take(name, found)
    seen.require_names("shards")
    return seen.types()


def _stored_entries(
    stored: Stored, entry_name: str, names: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """What a file says of each type, by its name; the values are not yet checked."""
    found = {}
    for entry in stored.items(entry_name, (list, tuple)):
        values = dict(zip(("name", *names), entry, strict=False))
        found[Stored({}, values).text("name")] = values
    return found


def _restored_type(one: Stored, name: str, n_labels: int, most: int | None) -> FactorType:
    """A type of a file, with at most ``most`` features."""
    arity, n_features = one.integer("arity", 2), one.integer("n_features", 0, most)
    try:
        require_type_name(name)
        require_one_of("tables", one.text("tables"), _FORMS)
        kind = FactorType(arity, n_features=n_features, tables=one.value("tables"))
        require_affordable(kind, name, n_labels)
    except InvalidInputError as error:
        raise FileFormatError(f"expected a type of factors, found {name!r}: {error}") from None
    return kind


# -- graphs and blocks of weights ----------------------------------------------------------


def typed_graph(n_nodes: int, n_labels: int, scopes: Sequence[NDArray[Any]]) -> FactorGraph:
    """A graph with the factors of each type, numbered by type; ``scopes`` are ``(S, n)`` each."""
    counts = [len(own) for own in scopes]
    empty = np.zeros(0, dtype=np.int64)
    return FactorGraph.from_flat(
        np.full(n_nodes, n_labels),
        np.concatenate([empty, *(own.reshape(-1) for own in scopes)]),
        np.repeat(np.array([own.shape[1] for own in scopes], dtype=np.int64), counts),
        np.repeat(np.arange(len(scopes)), counts),
    )


def type_blocks(
    graph: FactorGraph,
    name: str,
    factors: NDArray[Any],
    tyings: tuple[Tying, Tying],
    shape: tuple[int, ...],
    features: FloatArray | None,
) -> list[Block]:
    """A constant table for some factors and, if they have features, one for each feature.

    ``tyings`` are the forms of the two, ``shape`` is that of a table, for a graph that has no such
    factor; ``features`` has a row for each of the factors.
    """
    blocks = [Block.tables(graph, tyings[0], factors=factors, name=name, shape=shape)]
    if features is not None:
        blocks.append(
            Block.tables(
                graph,
                tyings[1],
                features,
                factors=factors,
                name=f"{name}_features",
                shape=shape,
            )
        )
    return blocks
