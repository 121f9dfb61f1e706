"""One Hessian: Newton's products, finite differences, solves, linear response, implicit gradients.

All of them are about the second derivative of the same free energy on consistent beliefs; at a
minimum of Bethe's free energy they must agree with each other.
"""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_tables

import fieldfit as ff
from fieldfit.entropy.configuration_weights import EntropyWeights
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.potentials import Beliefs, folded_unary
from fieldfit.inference.free_energy.bethe_free_energy import BetheEnergy
from fieldfit.inference.free_energy.bethe_newton import BetheHessian
from fieldfit.inference.second_order.implicit_gradient import implicit_gradient
from fieldfit.inference.second_order.linear_response import LinearResponse
from fieldfit.inference.second_order.marginal_hessian import IndefiniteError, MarginalHessian
from fieldfit.numeric.cholesky import cholesky_inverse, cholesky_root, cholesky_solve
from fieldfit.numeric.conjugate_gradient import solve_by_conjugate_gradients

GRAPHS = {
    "two labels, pairs": ff.FactorGraph.grid(3, 3, 2),
    "three labels, pairs": ff.FactorGraph.grid(2, 3, 3),
    "two labels, triples": ff.FactorGraph([2] * 5, [(0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 4)]),
    "three labels, triples": ff.FactorGraph([3] * 4, [(0, 1, 2), (1, 2, 3), (0, 3)]),
    "mixed": ff.FactorGraph([2, 3, 4, 2], [(0, 1), (1, 2, 3), (0, 3), (2, 0)]),
}
by_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


class Case:
    """A model, its Bethe beliefs, and everything that knows the Hessian there."""

    def __init__(self, graph):
        rng = np.random.default_rng(7)
        self.graph = graph
        self.potentials = random_tables(rng, graph, scale=0.6)
        result = ff.SumProduct(tol=1e-13, max_iter=5000).run(graph, self.potentials)
        assert result.converged
        unary = result.beliefs.unary_values
        # factor beliefs from those of variables, which then agree to the last digits
        self.energy = BetheEnergy(
            Batch.of([graph]), folded_unary(self.potentials), self.potentials.factor_values
        )
        self.targets(unary)
        self.beliefs = Beliefs(graph, unary, self.energy.tables())
        self.counting = ff.Bethe().counting_numbers(graph)
        self.hessian = MarginalHessian(
            graph,
            unary,
            self.beliefs.factor_values,
            np.repeat(self.counting.variable, graph.cardinalities),
            np.ones(len(self.beliefs.factor_values)),
        )
        self.newton = BetheHessian(Batch.of([graph]), np.ones(graph.n_variables, dtype=bool))
        self.newton.update(unary, self.beliefs.factor_values, np.array([0]))
        reference = graph.unary_offsets[:-1] + self.newton.blocks.reference
        self.kept = np.setdiff1d(np.arange(len(unary)), reference)
        self.rng = rng

    def targets(self, unary):
        targets = np.empty(len(unary))
        self.energy(np.log(unary), np.array([0]), targets)
        return targets

    def dense_by_products(self):
        """The Hessian by beliefs of variables (reference labels left out) from products."""
        roots = self.newton.blocks.sqrt_beliefs[self.kept]
        columns = np.array([self.newton.matvec(row) for row in np.eye(len(roots))])
        return columns / roots[:, None] / roots

    def dense_by_differences(self):
        """The same by central differences of the gradient of the free energy."""
        graph, reference = self.graph, self.newton.blocks.reference
        owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
        columns = []
        for entry in self.kept:
            own_reference = graph.unary_offsets[owner[entry]] + reference[owner[entry]]
            step = 1e-5 * self.beliefs.unary_values[entry]
            sides = []
            for sign in (1.0, -1.0):
                moved = self.beliefs.unary_values.copy()
                moved[entry] += sign * step
                moved[own_reference] -= sign * step
                sides.append(np.log(moved) - self.targets(moved))
            change = (sides[0] - sides[1]) / (2.0 * step)
            change -= np.repeat(change[graph.unary_offsets[:-1] + reference], graph.cardinalities)
            columns.append(change[self.kept])
        return np.array(columns)


@by_graph
def test_products_are_differences_of_the_gradient(graph):
    case = Case(graph)
    products, differences = case.dense_by_products(), case.dense_by_differences()
    scale = np.abs(differences).max()
    np.testing.assert_allclose(products, differences, rtol=0, atol=1e-6 * scale)
    np.testing.assert_allclose(products, products.T, rtol=0, atol=1e-12 * scale)


@by_graph
def test_solves_linear_response_and_implicit_gradients_invert_it(graph):
    case = Case(graph)
    dense = case.dense_by_products()
    n_unary = len(case.beliefs.unary_values)
    response = LinearResponse(graph, case.beliefs, case.counting)
    weights = EntropyWeights.of(ff.Bethe(), graph)
    owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
    reference = (graph.unary_offsets[:-1] + case.newton.blocks.reference)[owner]
    for _ in range(3):
        gradient = random_tables(case.rng, graph)
        unary = gradient.unary_values
        solved = case.hessian.solve(unary, gradient.factor_values)
        assert solved.residual < 1e-12
        both = np.concatenate([unary, gradient.factor_values])
        moved = np.concatenate([solved.unary, solved.factors])
        np.testing.assert_allclose(response.apply(both), moved, rtol=0, atol=1e-11)
        implicit = implicit_gradient(case.beliefs, weights, gradient).potentials
        np.testing.assert_allclose(implicit.unary_values, solved.unary, rtol=0, atol=1e-11)
        np.testing.assert_allclose(implicit.factor_values, solved.factors, rtol=0, atol=1e-11)
        # potentials of variables alone: the inverse of the Hessian by beliefs of variables
        step = response.apply(np.concatenate([unary, np.zeros(len(both) - n_unary)]))[:n_unary]
        expected = np.linalg.solve(dense, (unary - unary[reference])[case.kept])
        np.testing.assert_allclose(step[case.kept], expected, rtol=0, atol=1e-10)


@by_graph
def test_assembled_matrix_and_products_are_one(graph):
    case = Case(graph)
    z = case.rng.normal(size=case.hessian.n_unknowns)
    image = case.hessian.matvec(z)
    np.testing.assert_allclose(case.hessian.solve_reduced(image.copy()), z, rtol=0, atol=1e-10)
    # in the order of variables, these are Newton's products
    rows, newton_rows = case.hessian.pattern.layout.rows, case.newton.layout.rows
    sizes = graph.cardinalities - 1
    order = np.concatenate(
        [np.arange(row, row + size) for row, size in zip(rows, sizes, strict=True)]
    )
    assert np.array_equal(newton_rows, np.cumsum(sizes) - sizes)
    roots = case.newton.blocks.sqrt_beliefs[case.kept]
    scaled = case.dense_by_products() * roots[:, None] * roots
    np.testing.assert_allclose(image[order], scaled @ z[order], rtol=0, atol=1e-11)


def test_the_agreement_can_fail():
    case = Case(GRAPHS["two labels, pairs"])
    other = ff.TreeReweighted().counting_numbers(case.graph)
    change = case.rng.normal(size=len(case.beliefs.unary_values) + len(case.beliefs.factor_values))
    own = LinearResponse(case.graph, case.beliefs, case.counting).apply(change)
    different = LinearResponse(case.graph, case.beliefs, other).apply(change)
    assert np.abs(own - different).max() > 1e-3


# -- range ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("coupling", [1.0, 20.0, 200.0, 800.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_binary_pairs_of_any_strength(coupling, sign):
    """Two variables: the inverse is a covariance, exactly known at equal beliefs."""
    graph = ff.FactorGraph.from_edges(2, [(0, 1)], 2)
    odds = np.exp(-coupling / 2)
    tied, free = 0.5 / (1.0 + odds), 0.5 * odds / (1.0 + odds)
    table = [tied, free, free, tied] if sign > 0.0 else [free, tied, tied, free]
    beliefs = Beliefs(graph, np.full(4, 0.5), np.array(table))
    response = LinearResponse(graph, beliefs, ff.Bethe().counting_numbers(graph))
    change = np.zeros(8)
    change[1] = 1.0
    covariance = sign * 0.25 * (1.0 - odds) / (1.0 + odds)
    np.testing.assert_allclose(
        response.apply(change)[:4], [-0.25, 0.25, -covariance, covariance], rtol=0, atol=1e-12
    )


def test_a_certain_label_tells_nothing():
    graph = ff.FactorGraph.chain(3, 2)
    potentials = ff.Potentials(graph, [[0.0, 0.4], None, [0.3, 0.0]], np.eye(2))
    beliefs = ff.SumProduct(tol=1e-13).run(graph, potentials, {1: 0}).beliefs
    response = LinearResponse(graph, beliefs, ff.Bethe().counting_numbers(graph))
    change = np.zeros(response.n_entries)
    change[1] = 1.0
    p = beliefs.unary(0)[1]
    moved = response.apply(change)[:6]
    np.testing.assert_allclose(moved, [-p * (1 - p), p * (1 - p), 0, 0, 0, 0], atol=1e-12)


def test_a_flat_free_energy_has_no_response():
    """Around a cycle of copies every belief is a maximum: the matrix is singular, or all but."""
    graph = ff.FactorGraph.from_edges(3, [(0, 1), (1, 2), (0, 2)], 2)
    copies = np.where(np.eye(2) > 0, 0.0, -np.inf)
    found = ff.inference.stability(graph, ff.Potentials(graph, None, copies), ff.Bethe())
    assert found.converged
    assert found.local > 1e6


def test_indefinite_systems_are_refused_or_solved_with_pivots():
    """Uniform beliefs of a strongly coupled complete graph are a saddle of Bethe's free energy."""
    edges = [(i, j) for i in range(5) for j in range(i)]
    graph = ff.FactorGraph.from_edges(5, edges, 2)
    pair = np.array([0.45, 0.05, 0.05, 0.45])
    beliefs = Beliefs(graph, np.full(10, 0.5), np.tile(pair, len(edges)))
    weights = EntropyWeights.of(ff.Bethe(), graph)
    counting = ff.Bethe().counting_numbers(graph)
    with pytest.raises(IndefiniteError):
        MarginalHessian(
            graph, beliefs.unary_values, beliefs.factor_values, weights.unary_values,
            weights.factor_values,
        )  # fmt: skip
    with pytest.raises(InvalidInputError, match="concave at the beliefs"):
        implicit_gradient(beliefs, weights, ff.Potentials(graph))
    response = LinearResponse(graph, beliefs, counting)
    change = np.zeros(response.n_entries)
    change[1] = 1.0
    moved = response.apply(change)[:10]
    # q = H^-1 x with H = a I - b (1 1' - I) in the beliefs of label 1
    correlation = 0.8
    inverse = 4.0 / (1.0 - correlation**2)
    matrix = np.full((5, 5), -correlation * inverse)
    np.fill_diagonal(matrix, 4.0 * (1 - 4) + 4 * inverse)
    assert np.linalg.eigvalsh(matrix)[0] < 0.0
    np.testing.assert_allclose(moved[1::2], np.linalg.inv(matrix)[:, 0], rtol=0, atol=1e-12)


# -- dense algebra --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_dense_cholesky(n):
    rng = np.random.default_rng(n)
    root = rng.normal(size=(n, n))
    matrix = root @ root.T + np.eye(n)
    flat, right = matrix.ravel().copy(), rng.normal(size=n)
    assert cholesky_root(flat, n, np.zeros(n), True)
    np.testing.assert_allclose(np.tril(flat.reshape(n, n)), np.linalg.cholesky(matrix), atol=1e-12)
    x = right.copy()
    cholesky_solve(flat, n, x)
    np.testing.assert_allclose(matrix @ x, right, atol=1e-10)
    cholesky_inverse(flat, n)
    np.testing.assert_allclose(flat.reshape(n, n), np.linalg.inv(matrix), atol=1e-12)


def test_dense_cholesky_without_a_pivot():
    """Raised to the least one, dropped, or refused."""
    matrix = np.array([1.0, 0.0, 1.0, 1.0])  # the lower triangle of a singular matrix
    least = np.full(2, 1e-8)
    raised, dropped, refused = matrix.copy(), matrix.copy(), matrix.copy()
    assert cholesky_root(raised, 2, least, True)
    assert raised[3] == pytest.approx(1e-4)
    assert cholesky_root(dropped, 2, least, False)
    x = np.array([2.0, 5.0])
    cholesky_solve(dropped, 2, x)
    np.testing.assert_array_equal(x, [2.0, 0.0])
    assert not cholesky_root(refused, 2, np.zeros(2), True)


def test_conjugate_gradients_on_a_sparse_matrix():
    indptr, indices = np.array([0, 1, 3, 5]), np.array([0, 0, 1, 1, 2], dtype=np.int32)
    values = np.array([4.0, 1.0, 3.0, -1.0, 2.0])
    dense = np.array([[4.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 2.0]])
    x = np.array([1.0, -2.0, 0.5])
    assert solve_by_conjugate_gradients(indptr, indices, values, 1e-14, 20, x) in (3, 4)
    np.testing.assert_allclose(dense @ x, [1.0, -2.0, 0.5], atol=1e-12)
    values[3] = -4.0  # indefinite
    x = np.array([1.0, -2.0, 0.5])
    assert solve_by_conjugate_gradients(indptr, indices, values, 1e-14, 20, x) == -1


@pytest.mark.parametrize("n", [3, 5, 8])
def test_beliefs_are_a_minimum_below_the_known_threshold(n):
    """Ising spins that are all joined: uniform beliefs turn into a saddle at tanh J = 1/(d - 1)."""
    edges = [(i, j) for i in range(n) for j in range(i)]
    graph = ff.FactorGraph.from_edges(n, edges, 2)
    threshold = 1.0 / (n - 2) if n > 3 else 1.0  # one cycle has none
    for t in (0.5 * threshold, 0.98 * threshold, min(1.02 * threshold, 0.999)):
        alike, other = (1.0 + t) / 4.0, (1.0 - t) / 4.0
        tables = np.tile([alike, other, other, alike], len(edges))
        beliefs = Beliefs(graph, np.full(2 * n, 0.5), tables)
        response = LinearResponse(graph, beliefs, ff.Bethe().counting_numbers(graph))
        assert response.is_minimum == (t < threshold)
