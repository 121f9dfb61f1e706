"""The registry of problems: small models whose exact answers are known by enumeration.

A new problem is one line in `PROBLEMS`; every algorithm of `algorithms.py` then has to keep every
law of `test_laws.py` on it.  `ZERO_WEIGHT` holds models that allow no configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.brute_force import BruteForce


@dataclass(frozen=True, eq=False)
class Problem:
    """One model with its evidence."""

    name: str
    graph: FactorGraph
    potentials: Potentials
    observed: dict[int, int] | None = None

    def __str__(self) -> str:
        return self.name

    @cached_property
    def exact(self):
        """The exact beliefs and log-partition."""
        return BruteForce().run(self.graph, self.potentials, self.observed)

    @cached_property
    def best_score(self) -> float:
        return float(BruteForce().scores(self.graph, self.potentials, self.observed).max())

    @property
    def is_acyclic(self) -> bool:
        return self.graph.is_acyclic

    @cached_property
    def has_zeros(self) -> bool:
        """True if some label or configuration is impossible (evidence included)."""
        return bool(
            self.observed
            or np.isneginf(self.potentials.unary_values).any()
            or np.isneginf(self.potentials.factor_values).any()
        )

    @cached_property
    def has_table_zeros(self) -> bool:
        """True if some configuration of two or more variables is impossible by itself."""
        graph, values = self.graph, self.potentials.factor_values
        pairs = np.repeat(graph.arities >= 2, np.diff(graph.table_offsets))
        return bool(np.isneginf(values[pairs]).any())

    @cached_property
    def scale(self) -> float:
        """One more than the largest finite log-potential."""
        values = np.concatenate([self.potentials.unary_values, self.potentials.factor_values])
        return 1.0 + float(np.abs(values[np.isfinite(values)]).max(initial=0.0))

    @cached_property
    def max_arity(self) -> int:
        return int(self.graph.arities.max(initial=0))


# -- building blocks ----------------------------------------------------------------------


def random_tables(rng, graph, scale=1.0, zeros=0.0, kept=None):
    """Normal log-potentials, a share of hard zeros that spares the configuration ``kept``."""
    if kept is None:
        kept = rng.integers(0, graph.cardinalities)

    def table(shape, chosen):
        values = scale * rng.normal(size=shape)
        forbidden = np.array(rng.random(shape) < zeros)
        forbidden[chosen] = False
        return np.where(forbidden, -np.inf, values)

    unary = [table((int(k),), (int(y),)) for k, y in zip(graph.cardinalities, kept, strict=True)]
    factors = [
        table(graph.table_shape(a), tuple(int(kept[i]) for i in graph.scope(a)))
        for a in range(graph.n_factors)
    ]
    return Potentials(graph, unary, factors)


def random_cardinalities(rng, n_variables, max_labels):
    """Two, three or five: pair kernels are compiled for each number of labels."""
    numbers = rng.integers(2, max_labels + 1, n_variables)
    return np.where(numbers == 4, 3, numbers)


def random_tree(rng, n_variables, max_arity=2, max_labels=3, n_single=2):
    """Hypertree: every factor joins one earlier variable to new ones; some of arity one."""
    scopes, joined = [], 1
    while joined < n_variables:
        new = min(int(rng.integers(1, max_arity)), n_variables - joined) if max_arity > 2 else 1
        members = [int(rng.integers(joined)), *range(joined, joined + new)]
        scopes.append(tuple(int(i) for i in rng.permutation(members)))
        joined += new
    scopes += [(int(rng.integers(n_variables)),) for _ in range(n_single)]
    order = rng.permutation(len(scopes))
    cardinalities = random_cardinalities(rng, n_variables, max_labels)
    return FactorGraph(cardinalities, [scopes[k] for k in order])


def random_graph(rng, n_variables, n_factors, max_arity=4, max_labels=5, repeats=1):
    """Factors of arity one to ``max_arity`` on random variables, some scopes repeated."""
    scopes = []
    for _ in range(n_factors):
        arity = int(rng.integers(1, min(max_arity, n_variables) + 1))
        scopes.append(tuple(int(i) for i in rng.permutation(n_variables)[:arity]))
    scopes += [scopes[int(rng.integers(n_factors))] for _ in range(repeats if n_factors else 0)]
    return FactorGraph(random_cardinalities(rng, n_variables, max_labels), scopes)


def ising(rng, height, width, coupling, field=0.1):
    """Ising model on a grid, couplings uniform in [-coupling, coupling], spins of size one."""
    graph = FactorGraph.grid(height, width, 2)
    spins = np.array([[1.0, -1.0], [-1.0, 1.0]])
    strength = rng.uniform(-coupling, coupling, graph.n_factors)
    unary = field * rng.normal(size=(height * width, 1)) * np.array([[1.0, -1.0]])
    return graph, Potentials(graph, unary, strength[:, None, None] * spins)


def _random(name, seed, graph, scale=1.0, zeros=0.0, observed=None):
    rng = np.random.default_rng(seed)
    kept = rng.integers(0, graph.cardinalities)
    for i, label in (observed or {}).items():
        kept[i] = label
    return Problem(name, graph, random_tables(rng, graph, scale, zeros, kept), observed)


def _generator(seed):
    return np.random.default_rng(seed)


def _attractive_grid():
    graph = FactorGraph.grid(3, 3, 2)
    table = np.array([[0.4, -0.4], [-0.4, 0.4]])
    return Problem("attractive grid", graph, Potentials(graph, None, np.tile(table, (12, 1, 1))))


def _exclusive_chain():
    """Neighbours differ, three labels: a hard constraint on every edge of a tree."""
    graph = FactorGraph.chain(5, 3)
    table = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    unary = _generator(41).normal(size=(5, 3))
    return Problem("exclusive chain", graph, Potentials(graph, unary, np.tile(table, (4, 1, 1))))


def _parity():
    """Even parity of four bits by one factor, and a pair that closes a cycle."""
    graph = FactorGraph([2, 2, 2, 2], [(0, 1, 2, 3), (3, 0)])
    total = np.indices((2, 2, 2, 2)).sum(axis=0)
    table = np.where(total % 2 == 0, 0.0, -np.inf)
    unary = _generator(42).normal(size=(4, 2))
    return Problem("parity", graph, Potentials(graph, unary, [table, [[0.5, 0.0], [0.0, 0.2]]]))


def _forced_labels():
    """Hard zeros leave a single configuration, found only by passing them along."""
    graph = FactorGraph.chain(4, 2)
    table = np.array([[-np.inf, 0.3], [1.0, -np.inf]])
    return Problem(
        "forced labels",
        graph,
        Potentials(graph, [[0.0, -np.inf], None, None, None], np.tile(table, (3, 1, 1))),
    )


def _uniform_tree():
    return Problem("zero potentials", *_zero(FactorGraph([2, 3, 4], [(0, 1), (2, 1), (0,)])))


def _zero(graph):
    return graph, Potentials(graph)


_MIXED = FactorGraph([2, 3, 4, 2, 5], [(0, 1), (1, 2, 3), (3, 4), (4,), (2, 0), ()])
_REPEATED = FactorGraph([3, 3, 2], [(0, 1), (1, 0), (0, 1), (2, 1), (2,), (2,)])
_ISOLATED = FactorGraph([2, 4, 3, 2], [(0, 3), (2,)])
_ONE_LABEL = FactorGraph([1, 3, 1, 2], [(0, 1), (1, 2, 3), (0, 2), (2,)])
_FOURS = FactorGraph([2, 2, 3, 2, 2], [(0, 1, 2, 3), (1, 4), (2, 4, 0)])

PROBLEMS = (
    Problem("empty graph", *_zero(FactorGraph([]))),
    _random("constants only", 1, FactorGraph([], [(), ()])),
    _random("one variable", 2, FactorGraph([4])),
    _random("chain of five labels", 3, FactorGraph.chain(5, 5)),
    _random("binary tree", 4,
            FactorGraph.from_edges(9, [(k, (k - 1) // 2) for k in range(1, 9)], 2)),
    _random("mixed tree", 5, random_tree(_generator(5), 7, max_labels=5)),
    _random("hypertree", 6, random_tree(_generator(6), 8, max_arity=4)),
    _random("forest", 7, FactorGraph([2, 3, 2, 2, 3, 2], [(0, 1), (3, 2), (4, 3)])),
    _uniform_tree(),
    _random("triangle", 8, FactorGraph.from_edges(3, [(0, 1), (1, 2), (2, 0)], 3)),
    _random("ring of five", 9, FactorGraph.from_edges(5, [(k, (k + 1) % 5) for k in range(5)], 2)),
    _random("grid of two labels", 10, FactorGraph.grid(3, 4, 2), scale=0.6),
    _random("grid of three labels", 11, FactorGraph.grid(3, 3, 3), scale=0.5),
    _attractive_grid(),
    _random("complete graph", 12,
            FactorGraph.from_edges(5, [(i, j) for i in range(5) for j in range(i)], 2), scale=0.3),
    _random("mixed cardinalities", 13, _MIXED, scale=0.7),
    _random("repeated scopes", 14, _REPEATED, scale=0.6),
    _random("isolated variables", 15, _ISOLATED),
    _random("single labels", 16, _ONE_LABEL),
    _random("arity four", 17, _FOURS, scale=0.7),
    _random("random hypergraph", 18, random_graph(_generator(18), 6, 7, max_labels=3), scale=0.5),
    _random("zeros on a tree", 19, random_tree(_generator(19), 7, max_arity=3), zeros=0.3),
    _random("zeros on a grid", 20, FactorGraph.grid(3, 3, 2), scale=0.5, zeros=0.15),
    _random("zeros in large factors", 21, _FOURS, scale=0.5, zeros=0.3),
    _exclusive_chain(),
    _parity(),
    _forced_labels(),
    _random("evidence on a tree", 22, random_tree(_generator(22), 7), observed={0: 1, 4: 0}),
    _random("evidence on a grid", 23, FactorGraph.grid(3, 3, 3), scale=0.5, observed={4: 2, 0: 0}),
    _random("all observed", 24, _MIXED, observed={0: 1, 1: 2, 2: 3, 3: 0, 4: 4}),
    _random("evidence and zeros", 25, _MIXED, zeros=0.2, observed={1: 1}),
    # log-potentials of order 1000: exp of any table underflows, and so do sums of products
    _random("huge range on a tree", 26, random_tree(_generator(26), 7, max_arity=3), scale=1000.0),
    _random("huge range on a chain", 27, FactorGraph.chain(6, 3), scale=1000.0),
    _random("huge range on a binary chain", 28, FactorGraph.chain(8, 2), scale=1000.0),
    _random("huge range with zeros", 29, FactorGraph.chain(6, 5), scale=1000.0, zeros=0.3),
    _random("huge range on a ring", 30,
            FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)], 2), scale=1000.0),
)  # fmt: skip


def _zero_weight(name, graph, unary=None, factors=None, observed=None):
    return Problem(name, graph, Potentials(graph, unary, factors), observed)


_FORBID = [-np.inf, -np.inf]
_DIFFER = [[-np.inf, 0.0], [0.0, -np.inf]]
_EQUAL = [[0.0, -np.inf], [-np.inf, 0.0]]

#: Contradictions that passing messages must find.
ZERO_WEIGHT = (
    _zero_weight("impossible variable", FactorGraph([2, 2], [(0, 1)]), [_FORBID, None]),
    _zero_weight("impossible isolated variable", FactorGraph([2, 2]), [None, _FORBID]),
    _zero_weight("impossible factor", FactorGraph([2, 2], [(0, 1)]), None, [[_FORBID, _FORBID]]),
    _zero_weight("impossible single factor", FactorGraph([2], [(0,)]), None, [_FORBID]),
    _zero_weight("impossible constant", FactorGraph([2], [()]), None, [-np.inf]),
    _zero_weight(
        "unary against single factor", FactorGraph([2], [(0,)]), [[0, -np.inf]], [[-np.inf, 0]]
    ),
    _zero_weight("evidence against unary", FactorGraph([2]), [[0, -np.inf]], None, {0: 1}),
    _zero_weight(
        "evidence against evidence",
        FactorGraph.chain(3, 2),
        None,
        [_EQUAL, _DIFFER],
        {0: 0, 2: 0},
    ),
    _zero_weight(
        "evidence against a large factor",
        FactorGraph([2, 2, 2], [(0, 1, 2)]),
        None,
        [np.where(np.indices((2, 2, 2)).sum(axis=0) % 2 == 0, 0.0, -np.inf)],
        {0: 0, 1: 0, 2: 1},
    ),
    _zero_weight(
        "odd ring with one end fixed",
        FactorGraph.from_edges(3, [(0, 1), (1, 2), (2, 0)], 2),
        [[0, -np.inf], None, None],
        [_DIFFER, _DIFFER, _DIFFER],
    ),
)

#: Contradictions that only a search finds: no message ever vanishes.
HIDDEN_ZERO_WEIGHT = (
    _zero_weight(
        "odd ring of differences",
        FactorGraph.from_edges(3, [(0, 1), (1, 2), (2, 0)], 2),
        None,
        [_DIFFER, _DIFFER, _DIFFER],
    ),
    _zero_weight("equal and different", FactorGraph([2, 2], [(0, 1), (1, 0)]), None,
                 [_EQUAL, _DIFFER]),
)  # fmt: skip


def pair_model(rng, n, ties=False, zeros=0.0, one_label=False, field=1.0, density=2.0, slope=1.0):
    """Pairs of either sign, factors of arity 0 and 1, hard zeros anywhere.

    A small ``field`` and ``slope`` leave the interactions, which cycles frustrate.
    """
    cardinalities = rng.integers(1, 3, n) if one_label else np.full(n, 2)
    n_pairs = int(rng.integers(0, density * n + 1)) if n > 1 else 0
    scopes = [tuple(int(i) for i in rng.permutation(n)[:2]) for _ in range(n_pairs)]
    scopes += [(int(rng.integers(n)),), ()]
    graph = FactorGraph(cardinalities, [scopes[k] for k in rng.permutation(len(scopes))])

    def draw(shape, scale):
        values = rng.integers(-1, 2, shape) if ties else rng.normal(size=shape)
        values = np.array(scale * values)
        if shape == (2, 2):  # the interaction, and what is left of the rest
            interaction = values[0, 0] + values[1, 1] - values[0, 1] - values[1, 0]
            spins = np.array([[1.0, -1.0], [-1.0, 1.0]])
            values = slope * values + (1.0 - slope) * interaction / 4.0 * spins
        if shape:
            values[rng.random(shape) < zeros] = -np.inf
        return values

    unary = [draw((int(k),), field) for k in cardinalities]
    factors = [
        draw(graph.table_shape(a), field if graph.arities[a] < 2 else 1.0)
        for a in range(graph.n_factors)
    ]
    return graph, Potentials(graph, unary, factors)
