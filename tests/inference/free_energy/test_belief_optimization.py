"""Belief optimisation: factor beliefs with given margins, gradients, descent, zeros.

The laws that every inference owes are in `test_laws.py`.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from assertions import assert_distributions, assert_locally_consistent
from problems import PROBLEMS, ising, random_tables
from reference.belief_optimization import exact_log_pair, fitted_vectors, free_energy
from reference.sum_product import primal_value

import fieldfit as ff
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs, Potentials, folded_unary
from fieldfit.inference.free_energy.anderson import accelerated_candidates, descend
from fieldfit.inference.free_energy.belief_optimization import BeliefOptimization, descend_bethe
from fieldfit.inference.free_energy.bethe_free_energy import BetheEnergy
from fieldfit.inference.free_energy.bethe_newton import BetheHessian, newton_descend
from fieldfit.inference.free_energy.binary_pair_fitting import (
    GENERAL,
    PAIR,
    factor_kinds,
    fit_binary_pairs,
    log_pair,
)
from fieldfit.inference.free_energy.iterative_proportional_fitting import fit_factors
from fieldfit.inference.free_energy.natural_gradient import natural_gradient_steps

COUPLINGS = (0.0, 1e-12, -1e-12, 1.0, -1.0, 8.0, -8.0, 40.0, -40.0, 300.0, -300.0, 800.0, -800.0)
#: Beliefs whose complements are floats too, down to 2^-40, about 1e-12.
DYADIC = (2.0**-40, 0.125, 0.375, 0.5, 0.8125, 1.0 - 2.0**-40)

MIXED = ff.FactorGraph([2, 3, 4, 2, 5], [(0, 1), (1, 2, 3), (3, 4), (4,), (2, 0), ()])
MODELS = {
    "binary": ff.FactorGraph.grid(3, 3, 2),
    "three labels": ff.FactorGraph.grid(2, 3, 3),
    "arity three": ff.FactorGraph([2, 2, 2, 3], [(0, 1, 2), (1, 2, 3), (0, 3)]),
    "mixed": MIXED,
}


def random_log_beliefs(rng, graph, scale=1.0):
    """Normalised logarithms of random beliefs."""
    parts = []
    for cardinality in graph.cardinalities:
        values = scale * rng.normal(size=cardinality)
        parts.append(values - np.logaddexp.reduce(values))
    return np.concatenate([np.zeros(0), *parts])


def split(graph, values):
    return np.split(values, graph.unary_offsets[1:-1])


def bethe_energy(graph, potentials):
    return BetheEnergy(Batch.of([graph]), folded_unary(potentials), potentials.factor_values)


def evaluate(energy, log_unary):
    """Free energy and targets of a single graph."""
    targets = np.empty_like(log_unary)
    (value,) = energy(log_unary, np.array([0]), targets)
    return float(value), targets


def bethe_value(graph, potentials, beliefs):
    """Bethe's objective at beliefs of variables and factors, computed from these alone."""
    return primal_value(graph, potentials, ff.Bethe().counting_numbers(graph), beliefs)


# -- binary pairs -------------------------------------------------------------------------


def scaled_pairs(tables, beliefs):
    """``u`` of pairs (0, 1), (2, 3), ... in closed form, and the terms of the free energy."""
    n_pairs = len(tables)
    graph = ff.FactorGraph.from_edges(2 * n_pairs, np.arange(2 * n_pairs).reshape(-1, 2), 2)
    flat, q = np.ascontiguousarray(tables).reshape(-1), np.ascontiguousarray(beliefs).reshape(-1)
    with np.errstate(divide="ignore"):
        log_q = np.log(q)
    kinds = np.empty(n_pairs, dtype=np.uint8)
    factor_kinds(graph.structure, flat, kinds)
    assert (kinds == PAIR).all()
    vectors, terms = np.full(4 * n_pairs, np.nan), np.full(n_pairs, np.nan)
    everything = np.array([[0, n_pairs]])
    fit_binary_pairs(graph.structure, kinds, flat, q, log_q, everything, vectors, terms)
    return vectors.reshape(n_pairs, 2, 2), terms


def log_tables(tables, vectors):
    return tables + vectors[:, 0, :, None] + vectors[:, 1, None, :]


def test_binary_pairs_against_high_precision():
    rng = np.random.default_rng(0)
    cases = list(product(COUPLINGS, DYADIC, DYADIC))
    tables = np.zeros((len(cases), 2, 2))
    tables[:, 1, 1] = [case[0] for case in cases]
    # unary parts of a table, of few digits so that the coupling stays what it is
    shifts = rng.integers(-4, 5, size=(2, len(cases), 2)) * 0.5
    tables += shifts[0][:, :, None] + shifts[1][:, None, :]
    beliefs = np.array([[[1.0 - p, p], [1.0 - r, r]] for _, p, r in cases])
    vectors, terms = scaled_pairs(tables, beliefs)
    found = log_tables(tables, vectors)
    for k, (coupling, p, r) in enumerate(cases):
        if tables[k, 0, 0] + tables[k, 1, 1] - tables[k, 0, 1] - tables[k, 1, 0] != coupling:
            assert abs(coupling) == 1e-12  # lost in the sum; its effect is below the tolerance
        expected = exact_log_pair(coupling, p, r)
        np.testing.assert_allclose(found[k].ravel(), expected, rtol=1e-13, atol=3e-12)
        value = np.exp(expected) @ (np.array(expected) - tables[k].ravel())
        assert terms[k] == pytest.approx(value, rel=1e-12, abs=1e-12)


def test_high_precision_comparison_can_fail():
    expected = exact_log_pair(8.0, 0.375, 0.5)
    other = exact_log_pair(8.0 + 1e-9, 0.375, 0.5)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(other, expected, rtol=1e-13, atol=3e-12)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_the_log_domain_form_is_the_same(coupling):
    for p, r in product(DYADIC, DYADIC):
        found = log_pair(coupling, np.log1p(-p), np.log(p), np.log1p(-r), np.log(r))
        expected = exact_log_pair(coupling, p, r)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("coupling", [-700.0, -3.0, 0.0, 2.0, 700.0])
def test_tiny_beliefs_and_certain_labels(coupling):
    """Down to 1e-300 and 0: margins hold in relative terms, nothing is NaN."""
    rng = np.random.default_rng(1)
    small = [0.0, 1e-300, 1e-200, 1e-87, 1e-40, 0.5, 1.0]
    cases = list(product(small, small))
    tables = np.broadcast_to([[0.3, -0.2], [0.1, 0.0]], (len(cases), 2, 2)).copy()
    tables[:, 0, 0] += coupling
    beliefs = np.array([[[1.0 - p, p], [1.0 - r, r]] for p, r in cases])
    flips = rng.integers(0, 2, size=(len(cases), 2))
    beliefs[flips == 1] = beliefs[flips == 1][:, ::-1]
    vectors, terms = scaled_pairs(tables, beliefs)
    assert not np.isnan(vectors).any()
    assert np.isfinite(terms).all()
    entries = np.exp(log_tables(tables, vectors))
    np.testing.assert_allclose(entries.sum(axis=2), beliefs[:, 0], rtol=1e-12, atol=0)
    np.testing.assert_allclose(entries.sum(axis=1), beliefs[:, 1], rtol=1e-12, atol=0)


# -- any factor ---------------------------------------------------------------------------


def fit(table, margins, kind_of_pair=GENERAL):
    """``exp(table + sum u)`` by proportional fitting in the kernel, and the term; or ``None``."""
    cardinalities = [len(margin) for margin in margins]
    graph = ff.FactorGraph(cardinalities, [tuple(range(len(margins)))])
    q = np.concatenate(margins)
    with np.errstate(divide="ignore"):
        log_q = np.log(q)
    vectors, terms = np.zeros(len(q)), np.zeros(1)
    flat = np.ascontiguousarray(table, dtype=np.float64).reshape(-1)
    failures = fit_factors(
        graph.structure, np.array([kind_of_pair], dtype=np.uint8), flat, q, log_q, 0, 1,
        1e-12, 320, vectors, np.empty_like(flat), terms,
    )  # fmt: skip
    if failures:
        assert terms[0] == np.inf
        return None
    total = np.asarray(table, dtype=np.float64)
    for axis, vector in enumerate(split(graph, vectors)):
        total = total + vector.reshape([-1 if j == axis else 1 for j in range(len(margins))])
    return np.exp(total), terms[0], split(graph, vectors)


@pytest.mark.parametrize("coupling", [0.0, 1e-12, 1.0, -1.0, 8.0, -8.0, 20.0, -20.0])
def test_proportional_fitting_is_the_closed_form_at_two_labels(coupling):
    rng = np.random.default_rng(2)
    for _ in range(20):
        table = rng.normal(size=(2, 2))
        table[1, 1] += coupling
        p, r = rng.uniform(0.01, 0.99, size=2)
        margins = np.array([[1 - p, p], [1 - r, r]])
        vectors, terms = scaled_pairs(table[None], margins[None])
        entries, term, _ = fit(table, list(margins))
        closed = np.exp(log_tables(table[None], vectors))[0]
        np.testing.assert_allclose(entries, closed, rtol=1e-9, atol=0)
        assert term == pytest.approx(terms[0], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "shape", [(3, 3), (2, 5), (7, 4), (2, 3, 2), (3, 3, 3), (2, 2, 2, 2), (9,) * 2]
)
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_proportional_fitting_against_the_twin(shape, scale):
    rng = np.random.default_rng(3)
    table = scale * rng.normal(size=shape)
    margins = [rng.dirichlet(np.ones(k)) for k in shape]
    entries, term, vectors = fit(table, margins)
    for axis, margin in enumerate(margins):
        others = tuple(j for j in range(len(shape)) if j != axis)
        np.testing.assert_allclose(entries.sum(axis=others), margin, rtol=1e-10, atol=0)
    if scale == 1.0:  # the twin has no method of Newton and would take forever
        twin = fitted_vectors(table, margins)
        for own, other in zip(vectors, twin, strict=True):
            difference = own - other
            np.testing.assert_allclose(difference, difference[0], rtol=0, atol=1e-9)
    assert term == pytest.approx(float((entries * (np.log(entries) - table)).sum()), abs=1e-9)


@pytest.mark.parametrize("scale", [15.0, 60.0])
def test_proportional_fitting_with_strong_couplings(scale):
    """Sinkhorn's iteration alone would need about ``exp(scale)`` rounds."""
    rng = np.random.default_rng(4)
    for shape in ((4, 4), (3, 2, 3)):
        for _ in range(10):
            margins = [rng.dirichlet(np.ones(k)) for k in shape]
            entries, _, _ = fit(scale * rng.normal(size=shape), margins)
            for axis, margin in enumerate(margins):
                others = tuple(j for j in range(len(shape)) if j != axis)
                np.testing.assert_allclose(entries.sum(axis=others), margin, rtol=1e-9, atol=0)


def test_hard_zeros_in_a_table():
    differ = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    entries, _, _ = fit(differ, [np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.3, 0.2])])
    assert np.all(np.diag(entries) == 0.0)
    np.testing.assert_allclose(entries.sum(axis=1), [0.2, 0.3, 0.5], rtol=0, atol=1e-10)
    # no table of differing labels has these margins
    assert fit(differ, [np.array([0.8, 0.1, 0.1]), np.array([0.8, 0.1, 0.1])]) is None
    assert (
        fit([[-np.inf, 0.0], [0.0, -np.inf]], [np.array([0.5, 0.5]), np.array([0.4, 0.6])]) is None
    )
    # and labels without belief need none
    entries, _, _ = fit(differ, [np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.6, 0.4])])
    np.testing.assert_allclose(entries[0], [0.0, 0.6, 0.4], rtol=1e-12, atol=0)


# -- the free energy and its derivative ---------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_free_energy_and_targets_against_the_twin(name):
    rng = np.random.default_rng(5)
    graph = MODELS[name]
    potentials = random_tables(rng, graph)
    log_unary = random_log_beliefs(rng, graph)
    energy = bethe_energy(graph, potentials)
    value, targets = evaluate(energy, log_unary)
    expected, expected_targets = free_energy(
        graph, potentials, [np.exp(part) for part in split(graph, log_unary)]
    )
    assert value == pytest.approx(expected, abs=1e-10)
    for own, other in zip(split(graph, targets), expected_targets, strict=True):
        np.testing.assert_allclose(own - own[0], other - other[0], rtol=0, atol=1e-9)
    # and the value is Bethe's own at the factor beliefs behind it, which agree with the given ones
    beliefs = Beliefs(graph, energy.beliefs, energy.tables())
    assert value == pytest.approx(-bethe_value(graph, potentials, beliefs), abs=1e-10)


@pytest.mark.parametrize("scale", [0.5, 3.0])
@pytest.mark.parametrize("name", MODELS)
def test_the_derivative_is_log_belief_minus_target(name, scale):
    """Central differences along directions that keep every belief normalised."""
    rng = np.random.default_rng(6)
    graph = MODELS[name]
    energy = bethe_energy(graph, random_tables(rng, graph, scale=scale))
    log_unary = random_log_beliefs(rng, graph, scale=0.5)
    _, targets = evaluate(energy, log_unary)
    beliefs, slope = np.exp(log_unary), log_unary - targets
    step = 1e-5
    for _ in range(8):
        direction = np.concatenate(
            [d - d.mean() for d in split(graph, rng.normal(size=len(beliefs)))]
        )
        direction *= beliefs.min() / np.abs(direction).max()
        above, _ = evaluate(energy, np.log(beliefs + step * direction))
        below, _ = evaluate(energy, np.log(beliefs - step * direction))
        found, expected = (above - below) / (2 * step), float(slope @ direction)
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-7)


# -- descent ------------------------------------------------------------------------------


def binary_couplings(rng, graph, size, field=1.0):
    """Couplings of +-size between labels 1 and 1, random unary potentials."""
    tables = np.zeros((graph.n_factors, 2, 2))
    tables[:, 1, 1] = size * rng.choice([-1.0, 1.0], graph.n_factors)
    return Potentials(graph, field * rng.normal(size=(graph.n_variables, 2)), tables)


def complete_graph(n_variables, n_labels=2):
    edges = [(i, j) for i in range(n_variables) for j in range(i)]
    return ff.FactorGraph.from_edges(n_variables, edges, n_labels)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [*MODELS, "grid of five labels"])
def test_it_agrees_with_propagation_where_that_converges(name, seed):
    graph = MODELS.get(name, ff.FactorGraph.grid(4, 4, 5))
    potentials = random_tables(np.random.default_rng(seed), graph, scale=0.6)
    bp = ff.SumProduct(tol=1e-12).run(graph, potentials)
    assert bp.converged
    result = BeliefOptimization(tol=1e-10).run(graph, potentials)
    assert result.converged, result.status
    assert result.log_partition == pytest.approx(bp.log_partition, rel=1e-9)
    for kind in ("unary_values", "factor_values"):
        np.testing.assert_allclose(
            getattr(result.beliefs, kind), getattr(bp.beliefs, kind), rtol=0, atol=1e-6
        )


HARD = {
    "grid, +-8": lambda: strong(ff.FactorGraph.grid(6, 6, 2), 8.0, seed=4),
    "complete graph, +-8": lambda: strong(complete_graph(8), 8.0, seed=4),
    "grid of spins, up to 8": lambda: ising(np.random.default_rng(0), 6, 6, 8.0, field=0.3),
    "three labels": lambda: strong_tables(complete_graph(7, 3), 4.0, seed=5),
    "arity three": lambda: strong_tables(triples(9), 4.0, seed=4),
}


def strong(graph, size, seed):
    return graph, binary_couplings(np.random.default_rng(seed), graph, size, field=0.3)


def strong_tables(graph, scale, seed):
    return graph, random_tables(np.random.default_rng(seed), graph, scale=scale)


def triples(n_variables):
    ring = np.arange(n_variables)
    scopes = [(i, (i + 1) % n_variables, (i + 3) % n_variables) for i in ring]
    return ff.FactorGraph(2 + ring % 2, scopes)


@pytest.mark.parametrize("name", HARD)
def test_it_converges_where_propagation_does_not(name):
    graph, potentials = HARD[name]()
    for schedule in ("flooding", "sequential"):
        plain = ff.SumProduct(schedule=schedule, damping=0.0).run(graph, potentials)
        assert not plain.converged
        assert plain.residual > 0.1  # it runs in circles, and is not just slow
    result = BeliefOptimization().run(graph, potentials)
    assert result.converged, result.status
    assert result.status.startswith("converged: a full step would move a belief by")
    assert result.bound is None
    assert_stationary(graph, potentials, result)


def assert_stationary(graph, potentials, result, *, atol=1e-6):
    """Bethe's own value, agreement of beliefs, and propagation that does not move them."""
    value = bethe_value(graph, potentials, result.beliefs)
    assert result.log_partition == pytest.approx(value, rel=1e-9)
    assert_locally_consistent(result.beliefs, atol=1e-9)
    swept = ff.SumProduct(schedule="flooding", damping=0.0, max_iter=1).run(
        graph, potentials, init=result
    )
    np.testing.assert_allclose(
        swept.beliefs.unary_values, result.beliefs.unary_values, rtol=0, atol=atol
    )


def test_stationarity_can_fail():
    graph, potentials = HARD["grid, +-8"]()
    result = BeliefOptimization(max_iter=3).run(graph, potentials)
    assert not result.converged
    assert result.status.startswith("not converged: a full step would move a belief by")
    with pytest.raises(AssertionError):
        assert_stationary(graph, potentials, result)


@pytest.mark.parametrize("name", HARD)
def test_from_random_starts_it_goes_down_to_a_stationary_point(name):
    graph, potentials = HARD[name]()
    rng = np.random.default_rng(7)
    for _ in range(3):
        log_unary = random_log_beliefs(rng, graph, scale=3.0)
        before, _ = evaluate(bethe_energy(graph, potentials), log_unary)
        init = Beliefs(graph, np.exp(log_unary), np.zeros(graph.table_offsets[-1]))
        result = BeliefOptimization().run(graph, potentials, init=init)
        assert result.converged, result.status
        assert -result.log_partition <= before
        assert_stationary(graph, potentials, result)


@pytest.mark.parametrize("name", HARD)
def test_more_steps_are_never_worse(name):
    graph, potentials = HARD[name]()
    uniform = -np.log(np.repeat(graph.cardinalities, graph.cardinalities))
    start, _ = evaluate(bethe_energy(graph, potentials), uniform)
    values = [start] + [
        -BeliefOptimization(max_iter=n_steps).run(graph, potentials).log_partition
        for n_steps in (1, 2, 3, 4, 5, 7, 10, 15, 25, 50)
    ]
    assert np.diff(values).max() <= 1e-12 * abs(values[-1])
    assert values[-1] < values[0] - 1e-3


class Watched:
    """An evaluation that remembers every free energy it was asked for."""

    def __init__(self, energy):
        self.energy = energy
        self.values = []

    def __call__(self, log_unary, examples, targets):
        values = self.energy(log_unary, examples, targets)
        self.values.append(float(values[0]))
        return values


def test_trials_that_are_worse_are_refused_and_a_descent_without_refusals_can_fail():
    graph, potentials = HARD["grid, +-8"]()
    uniform = np.full(2 * graph.n_variables, np.log(0.5))
    free = np.ones(graph.n_variables, dtype=bool)
    for method in (natural_gradient_steps, descend):
        watched = Watched(bethe_energy(graph, potentials))
        result = method(Batch.of([graph]), watched, uniform, free, 30)
        assert result.free_energies[0] == min(watched.values)
        assert np.diff(watched.values).max() > 0.0  # some trial was worse, or nothing is tested
    watched = Watched(bethe_energy(graph, potentials))
    watched.model, watched.batch = watched.energy.model, watched.energy.batch
    watched.tables = watched.energy.tables
    found = newton_descend(Batch.of([graph]), watched, uniform, free, 60, 1e-8, np.array([0]))
    assert found.converged_examples.all()
    assert found.free_energies[0] == min(watched.values)
    # all the way to the target, whatever it costs: the free energy rises and falls
    energy, point, values = bethe_energy(graph, potentials), uniform, []
    for _ in range(30):
        value, targets = evaluate(energy, point)
        values.append(value)
        rows = targets.reshape(-1, 2)
        point = (rows - np.logaddexp(rows[:, :1], rows[:, 1:])).ravel()
    assert np.diff(values).max() > 0.1


def test_accelerated_moves_are_least_squares():
    """The small problem of Anderson's method against `numpy.linalg.lstsq`."""
    rng = np.random.default_rng(8)
    graph = MIXED
    n_entries = int(graph.unary_offsets[-1])
    log_unary = random_log_beliefs(rng, graph)
    beliefs = np.exp(log_unary)

    def centred(values):
        return np.concatenate(
            [v - q @ v for v, q in zip(split(graph, values), split(graph, beliefs), strict=True)]
        )

    force = centred(rng.normal(size=n_entries))
    moves, changes = rng.normal(size=(2, 10, n_entries))
    count, head = 4, 2  # rows 8, 9, 0, 1
    targets, slopes = np.zeros(n_entries), np.zeros(1)
    accelerated_candidates(
        graph.structure, np.array([0, graph.n_variables]), np.array([0]), np.array([count]),
        np.array([head]), log_unary, beliefs, force, moves, changes, targets, slopes,
    )  # fmt: skip
    rows, root = [8, 9, 0, 1], np.sqrt(beliefs)
    matrix = np.array([root * centred(changes[row]) for row in rows]).T
    shares = np.linalg.lstsq(matrix, root * force)[0]
    move = centred(force - shares @ (moves[rows] + changes[rows]))
    np.testing.assert_allclose(centred(targets - log_unary), move, rtol=0, atol=1e-10)
    assert slopes[0] == pytest.approx(-float(beliefs * force @ move), rel=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_blocks_are_the_second_derivative(name):
    """The Hessian by beliefs of variables against differences of the gradient."""
    rng = np.random.default_rng(9)
    graph = MODELS[name]
    energy = bethe_energy(graph, random_tables(rng, graph, scale=1.5))
    log_unary = random_log_beliefs(rng, graph, scale=0.7)
    beliefs = np.exp(log_unary)
    evaluate(energy, log_unary)
    hessian = BetheHessian(Batch.of([graph]), np.ones(graph.n_variables, dtype=bool))
    hessian.update(beliefs, energy.tables(), np.array([0]))

    def gradient(q):
        _, targets = evaluate(energy, np.log(q))
        return np.log(q) - targets

    step = 1e-5
    reference = graph.unary_offsets[:-1] + hessian.blocks.reference
    kept = np.setdiff1d(np.arange(len(beliefs)), reference)
    roots = hessian.blocks.sqrt_beliefs[kept]
    for _ in range(5):
        vector = beliefs * rng.normal(size=len(beliefs))
        sums = np.add.reduceat(vector, graph.unary_offsets[:-1])
        vector -= beliefs * np.repeat(sums, graph.cardinalities)
        image = np.zeros(len(beliefs))  # the derivative by the reference labels is 0
        image[kept] = hessian.matvec(vector[kept] / roots) / roots
        change = gradient(beliefs + step * vector) - gradient(beliefs - step * vector)
        change -= np.repeat(change[reference], graph.cardinalities)
        np.testing.assert_allclose(image, change / (2 * step), rtol=1e-5, atol=1e-5)


# -- k-step descent -----------------------------------------------------------------------


def descent_case(rng):
    """A random model with random beliefs near a corner, as learning meets them."""
    graph = list(MODELS.values())[rng.integers(len(MODELS))]
    potentials = random_tables(rng, graph, scale=float(rng.choice([0.3, 1.0, 3.0, 10.0])))
    return graph, potentials, random_log_beliefs(rng, graph, scale=float(rng.choice([0.1, 1, 9])))


def test_k_steps_never_raise_the_free_energy():
    rng = np.random.default_rng(10)
    fallen = 0
    for _ in range(150):
        graph, potentials, log_unary = descent_case(rng)
        free = np.ones(graph.n_variables, dtype=bool)
        n_steps = int(rng.integers(0, 8))
        found = descend_bethe(Batch.of([graph]), potentials, log_unary, n_steps, free)
        assert found.free_energies[0] <= found.start_free_energies[0]
        fallen += found.free_energies[0] < found.start_free_energies[0]
        start, _ = evaluate(bethe_energy(graph, potentials), log_unary)
        assert found.start_free_energies[0] == pytest.approx(start, abs=1e-9)
        beliefs = Beliefs(graph, found.unary, found.factors)
        assert_distributions(beliefs, atol=1e-9)
        assert_locally_consistent(beliefs, atol=1e-9)
        value = bethe_value(graph, potentials, beliefs)
        assert -found.free_energies[0] == pytest.approx(value, rel=1e-8, abs=1e-8)
    assert fallen > 100


def test_a_descent_of_no_steps_stays_where_it_is():
    rng = np.random.default_rng(11)
    potentials, log_unary = random_tables(rng, MIXED), random_log_beliefs(rng, MIXED)
    free = np.ones(MIXED.n_variables, dtype=bool)
    found = descend_bethe(Batch.of([MIXED]), potentials, log_unary, 0, free)
    np.testing.assert_allclose(found.unary, np.exp(log_unary), rtol=1e-14, atol=0)
    assert found.n_evaluations == 1
    assert found.free_energies[0] == found.start_free_energies[0]


def test_variables_that_are_not_free_stay_put():
    rng = np.random.default_rng(12)
    graph = ff.FactorGraph.grid(4, 4, 2)
    potentials, log_unary = random_tables(rng, graph), random_log_beliefs(rng, graph)
    free = rng.random(graph.n_variables) < 0.5
    certain = np.flatnonzero(~free)[:4]
    log_unary[2 * certain], log_unary[2 * certain + 1] = 0.0, -np.inf
    held = np.repeat(~free, 2)
    for n_steps in (3, None):
        found = descend_bethe(Batch.of([graph]), potentials, log_unary, n_steps, free)
        np.testing.assert_allclose(found.unary[held], np.exp(log_unary[held]), rtol=1e-14, atol=0)
        assert found.free_energies[0] < found.start_free_energies[0]
    assert found.converged_examples.all()


def test_descent_to_convergence_with_observed_labels_is_inference():
    rng = np.random.default_rng(13)
    graph = ff.FactorGraph.grid(3, 4, 3)
    potentials = random_tables(rng, graph, scale=0.5)
    observed = {0: 2, 5: 1, 7: 0}
    log_unary = np.full(3 * graph.n_variables, -np.log(3.0))
    free = np.ones(graph.n_variables, dtype=bool)
    for i, label in observed.items():
        free[i] = False
        log_unary[3 * i : 3 * i + 3] = np.where(np.arange(3) == label, 0.0, -np.inf)
    found = descend_bethe(Batch.of([graph]), potentials, log_unary, None, free)
    bp = ff.SumProduct(tol=1e-12).run(graph, potentials, observed)
    result = BeliefOptimization().run(graph, potentials, observed)
    for unary, factors, value in (
        (found.unary, found.factors, -found.free_energies[0]),
        (result.beliefs.unary_values, result.beliefs.factor_values, result.log_partition),
    ):
        np.testing.assert_allclose(unary, bp.beliefs.unary_values, rtol=0, atol=1e-7)
        np.testing.assert_allclose(factors, bp.beliefs.factor_values, rtol=0, atol=1e-7)
        assert value == pytest.approx(bp.log_partition, abs=1e-9)


def test_an_example_does_not_depend_on_its_company():
    """Bit for bit, whoever else refuses steps or has finished."""
    rng = np.random.default_rng(14)
    cases = [descent_case(rng) for _ in range(40)]
    batch = Batch.of([graph for graph, _, _ in cases])
    potentials = batch.pack([given for _, given, _ in cases])
    log_unary = np.concatenate([point for _, _, point in cases])
    free = np.ones(batch.graph.n_variables, dtype=bool)
    together = descend_bethe(batch, potentials, log_unary, 6, free)
    parts = batch.split(Beliefs(batch.graph, together.unary, together.factors))
    for m, (graph, given, point) in enumerate(cases):
        alone = descend_bethe(
            Batch.of([graph]), given, point, 6, np.ones(graph.n_variables, dtype=bool)
        )
        assert alone.free_energies[0] == together.free_energies[m]
        assert alone.start_free_energies[0] == together.start_free_energies[m]
        np.testing.assert_array_equal(alone.unary, parts[m].unary_values)
        np.testing.assert_array_equal(alone.factors, parts[m].factor_values)


def test_a_batch_of_hard_examples_is_the_examples_alone():
    models = [make() for make in HARD.values()]
    batch = Batch.of([graph for graph, _ in models])
    together = BeliefOptimization().run_batch(batch, batch.pack([given for _, given in models]))
    assert together.converged, together.status
    for m, (graph, potentials) in enumerate(models):
        alone = BeliefOptimization().run(graph, potentials)
        assert together.log_partitions[m] == pytest.approx(alone.log_partition, abs=1e-9)
        own = batch.split(together.beliefs)[m]
        np.testing.assert_allclose(own.unary_values, alone.beliefs.unary_values, rtol=0, atol=1e-6)


def test_the_state_of_a_descent_is_a_start_for_the_next():
    rng = np.random.default_rng(15)
    potentials, log_unary = random_tables(rng, MIXED), random_log_beliefs(rng, MIXED)
    free = np.ones(MIXED.n_variables, dtype=bool)
    batch = Batch.of([MIXED])
    cold = descend_bethe(batch, potentials, log_unary, 4, free)
    warm = descend_bethe(batch, potentials, log_unary, 4, free, state=cold.state)
    np.testing.assert_allclose(warm.unary, cold.unary, rtol=0, atol=1e-9)
    pairs = ff.FactorGraph.grid(2, 2, 2)
    binary = descend_bethe(Batch.of([pairs]), Potentials(pairs), np.full(8, np.log(0.5)), 1,
                         np.ones(4, dtype=bool))  # fmt: skip
    assert binary.state is None


# -- zeros, errors ------------------------------------------------------------------------


def test_hard_zeros_in_cycles():
    """Labels of neighbours differ around a ring of four: finite beliefs, Bethe's value."""
    graph = ff.FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)], 3)
    differ = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    unary = 0.5 * np.random.default_rng(16).normal(size=(4, 3))
    potentials = Potentials(graph, unary, differ)
    result = BeliefOptimization(tol=1e-10).run(graph, potentials)
    bp = ff.SumProduct(tol=1e-12).run(graph, potentials)
    assert bp.converged
    assert result.converged, result.status
    np.testing.assert_allclose(
        result.beliefs.unary_values, bp.beliefs.unary_values, rtol=0, atol=1e-7
    )
    assert result.log_partition == pytest.approx(bp.log_partition, abs=1e-9)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_problem_converges(problem):
    """The laws are empty where nothing converges."""
    result = BeliefOptimization(max_iter=5000).run(
        problem.graph, problem.potentials, problem.observed
    )
    assert result.converged, result.status


def test_descent_refuses_a_start_next_to_hard_zeros():
    graph = ff.FactorGraph.chain(2, 2)
    potentials = Potentials(graph, factors=[[[-np.inf, 0.0], [0.0, -np.inf]]])
    free = np.ones(2, dtype=bool)
    log_unary = np.log([0.9, 0.1, 0.9, 0.1])
    with pytest.raises(InvalidInputError, match="those of example 0 have infinite free energy"):
        descend_bethe(Batch.of([graph]), potentials, log_unary, 1, free)


def test_wrong_arguments_are_refused():
    graph = ff.FactorGraph.chain(2, 2)
    potentials = Potentials(graph)
    with pytest.raises(InvalidInputError, match="tol must be positive"):
        BeliefOptimization(tol=0.0)
    with pytest.raises(InvalidInputError, match="max_iter must be an integer of at least 1, got 0"):
        BeliefOptimization(max_iter=0)
    other = BeliefOptimization().run(MIXED, Potentials(MIXED))
    with pytest.raises(
        InvalidInputError, match="init must be beliefs on a graph of this structure"
    ):
        BeliefOptimization().run(graph, potentials, init=other)
    negative = Beliefs(graph, np.array([1.5, -0.5, 0.5, 0.5]), np.zeros(4))
    with pytest.raises(InvalidInputError, match="init must hold finite beliefs of at least 0"):
        BeliefOptimization().run(graph, potentials, init=negative)
    with pytest.raises(InvalidInputError, match=r"log_unary and free must have shapes \(4,\)"):
        descend_bethe(Batch.of([graph]), potentials, np.zeros(3), 1, np.ones(2, dtype=bool))


def test_progress_is_told():
    graph, potentials = HARD["three labels"]()
    told = []
    result = BeliefOptimization().run(
        graph, potentials, progress=lambda n_steps, residual: told.append((n_steps, residual))
    )
    steps = [n_steps for n_steps, _ in told]
    assert steps == sorted(steps)
    assert steps[-1] <= result.n_iter
    assert told[-1][1] <= 1e-8


def test_observed_labels_do_not_slow_the_descent():
    """A certain variable tells its neighbours nothing; the second derivative has to know."""
    graph = ff.FactorGraph.grid(5, 5, 2)
    potentials = random_tables(np.random.default_rng(17), graph, scale=0.5)
    result = BeliefOptimization(tol=1e-10).run(graph, potentials, observed={0: 1, 7: 0, 12: 1})
    assert result.converged
    assert result.n_iter <= 15
