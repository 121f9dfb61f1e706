"""Contrastive free energies: never negative, twins, limits, hidden labels, learning."""

from itertools import pairwise

import numpy as np
import pytest
from reference.contrastive import relaxed_twin

import fieldfit as ff
from fieldfit.errors import InvalidInputError, ZeroWeightError
from fieldfit.graph.batch import Batch
from fieldfit.inference.junction_tree.exact import sample_exactly
from fieldfit.objectives.contrastive import ContrastiveFreeEnergy

FAMILIES = ("bethe", "mean-field")


def random_graph(rng, *, binary=False):
    """A few variables with pairs, sometimes a triple, sometimes a variable without factors."""
    n = int(rng.integers(2, 8))
    cardinalities = np.full(n, 2) if binary else rng.integers(1, 5, n)
    pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.5]
    scopes = [tuple(map(int, scope)) for scope in pairs]
    if n > 2 and not binary and rng.random() < 0.4:
        scopes.append(tuple(map(int, rng.choice(n, 3, replace=False))))
    if rng.random() < 0.3:
        scopes.append((int(rng.integers(n)),))
    return ff.FactorGraph(cardinalities, scopes)


def random_potentials(rng, graph, scale):
    unary = scale * rng.normal(size=graph.unary_offsets[-1])
    return ff.Potentials.from_flat(graph, unary, scale * rng.normal(size=graph.table_offsets[-1]))


def random_labels(rng, graph, missing=0.0):
    labels = rng.integers(0, graph.cardinalities).astype(np.int32)
    labels[rng.random(len(labels)) < missing] = -1
    return labels


# -- never negative -----------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_no_value_is_negative(family):
    """2,400 random models, data and numbers of steps for each family; a third have missing labels.

    Weak, ordinary and very strong potentials; pairs, triples, one to four labels.
    """
    rng = np.random.default_rng(0)
    n_cases = 0
    for number in range(24):
        graphs = [random_graph(rng, binary=number % 2 == 0) for _ in range(100)]
        batch = Batch.of(graphs)
        scale = (0.3, 1.0, 3.0, 8.0)[number % 4]
        potentials = random_potentials(rng, batch.graph, scale)
        labels = random_labels(rng, batch.graph, 0.3 if number % 3 == 0 else 0.0)
        objective = ContrastiveFreeEnergy(family, n_steps=int(rng.integers(1, 30)))
        found = objective.evaluate(batch, potentials, labels)
        assert np.all(found.values >= 0.0)
        assert np.all(np.isfinite(found.gradient.unary_values))
        assert np.all(np.isfinite(found.gradient.factor_values))
        n_cases += len(found.values)
    assert n_cases == 2400


@pytest.mark.parametrize("family", FAMILIES)
def test_more_steps_go_further_down(family):
    rng = np.random.default_rng(1)
    batch = Batch.of([random_graph(rng) for _ in range(40)])
    potentials = random_potentials(rng, batch.graph, 1.5)
    labels = random_labels(rng, batch.graph)
    values = [
        ContrastiveFreeEnergy(family, n_steps=n_steps).evaluate(batch, potentials, labels).values
        for n_steps in (1, 2, 5, 20, 100)
    ]
    for fewer, more in pairwise(values):
        assert np.all(more >= fewer)
    assert np.all(values[-1].sum() > values[0].sum() + 0.1)


# -- twins and limits ---------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [1, 4])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_steps_of_the_slow_twin(family, seed, n_steps):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    potentials = random_potentials(rng, graph, 1.0)
    labels = random_labels(rng, graph)
    value, gradient = ContrastiveFreeEnergy(family, n_steps=n_steps).value_and_grad(
        graph, potentials, labels
    )
    twin = relaxed_twin(graph, potentials, labels, family, n_steps, smoothing=1e-4)
    assert value == pytest.approx(twin.value, abs=1e-9)
    np.testing.assert_allclose(gradient.unary_values, twin.unary, atol=1e-9)
    np.testing.assert_allclose(gradient.factor_values, twin.factors, atol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_without_limit_it_is_bethes_likelihood(seed, missing):
    rng = np.random.default_rng(seed)
    graph = ff.FactorGraph.grid(3, 4, 2 + seed % 2)
    potentials = random_potentials(rng, graph, 0.5)
    labels = random_labels(rng, graph, missing)
    likelihood = ff.Likelihood(ff.SumProduct(tol=1e-12))
    value, gradient = ContrastiveFreeEnergy("bethe", n_steps=None, smoothing=1e-9).value_and_grad(
        graph, potentials, labels
    )
    expected, expected_gradient = likelihood.value_and_grad(graph, potentials, labels)
    # the smoothed data have some entropy: 1e-9 log 1e9 for each variable
    assert value == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(gradient.unary_values, expected_gradient.unary_values, atol=1e-6)
    np.testing.assert_allclose(gradient.factor_values, expected_gradient.factor_values, atol=1e-6)


def test_without_limit_products_are_stationary():
    """Mean field may have several optima: the one that is found must be one of them."""
    rng = np.random.default_rng(5)
    graph = ff.FactorGraph.grid(3, 4, 3)
    potentials = random_potentials(rng, graph, 0.7)
    labels = random_labels(rng, graph)
    objective = ContrastiveFreeEnergy("mean-field", n_steps=None, smoothing=1e-9)
    found = objective.evaluate(Batch.of([graph]), potentials, labels)
    beliefs = ff.Beliefs.from_labels(graph, labels)
    unary = found.gradient.unary_values + beliefs.unary_values
    factors = found.gradient.factor_values + beliefs.factor_values
    start = ff.Beliefs(graph, np.maximum(unary, 0.0), np.maximum(factors, 0.0))
    again = ff.MeanField(tol=1e-12).run(graph, potentials, init=start)
    np.testing.assert_allclose(again.beliefs.unary_values, unary, atol=1e-6)
    assert found.converged_examples.all()


@pytest.mark.parametrize("family", FAMILIES)
def test_in_the_limit_the_gradient_is_that_of_the_value(family):
    """What the gradient leaves out vanishes where the steps end: differences of values agree."""
    rng = np.random.default_rng(6)
    graph = ff.FactorGraph.grid(2, 3, 2)
    potentials = random_potentials(rng, graph, 0.6)
    labels = random_labels(rng, graph)
    objective = ContrastiveFreeEnergy(family, n_steps=None)
    _, gradient = objective.value_and_grad(graph, potentials, labels)
    flat = np.concatenate([gradient.unary_values, gradient.factor_values])
    size = 1e-5
    n_unary = int(graph.unary_offsets[-1])
    for entry in range(len(flat)):
        values = []
        for sign in (1.0, -1.0):
            moved = np.concatenate([potentials.unary_values, potentials.factor_values])
            moved[entry] += sign * size
            shifted = ff.Potentials.from_flat(graph, moved[:n_unary], moved[n_unary:])
            values.append(objective.value_and_grad(graph, shifted, labels)[0])
        assert flat[entry] == pytest.approx((values[0] - values[1]) / (2 * size), abs=2e-6)


# -- regions ------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_kikuchi_is_never_negative_and_goes_down(missing):
    rng = np.random.default_rng(10)
    batch = Batch.of([ff.FactorGraph.grid(3, 4, 2 + number % 2) for number in range(10)])
    for scale in (0.5, 2.0):
        potentials = random_potentials(rng, batch.graph, scale)
        labels = random_labels(rng, batch.graph, missing)
        values = [
            ContrastiveFreeEnergy("kikuchi", n_steps=n_steps)
            .evaluate(batch, potentials, labels)
            .values
            for n_steps in (1, 3, 10)
        ]
        assert np.all(values[0] >= 0.0)
        assert values[0].sum() > 1.0
        for fewer, more in pairwise(values):
            assert np.all(more >= fewer - 1e-9)


def test_kikuchi_without_limit_is_its_likelihood():
    """With plaquettes as regions, and with factors alone, which is Bethe's approximation."""
    rng = np.random.default_rng(11)
    graph = ff.FactorGraph.grid(3, 3, 2)
    potentials = random_potentials(rng, graph, 0.7)
    labels = random_labels(rng, graph)
    for regions, inference in (
        ("plaquettes", ff.GeneralizedSumProduct("plaquettes", tol=1e-8)),
        ("bethe", ff.SumProduct(tol=1e-10)),
    ):
        objective = ContrastiveFreeEnergy("kikuchi", n_steps=None, smoothing=1e-6, regions=regions)
        value, gradient = objective.value_and_grad(graph, potentials, labels)
        expected, wanted = ff.Likelihood(inference).value_and_grad(graph, potentials, labels)
        assert value == pytest.approx(expected, abs=1e-3)
        np.testing.assert_allclose(gradient.unary_values, wanted.unary_values, atol=1e-3)
        np.testing.assert_allclose(gradient.factor_values, wanted.factor_values, atol=1e-3)


# -- batches and states -------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_an_example_does_not_depend_on_its_company(family, missing):
    rng = np.random.default_rng(7)
    graphs = [random_graph(rng) for _ in range(12)]
    batch = Batch.of(graphs)
    potentials = random_potentials(rng, batch.graph, 1.5)
    labels = random_labels(rng, batch.graph, missing)
    objective = ContrastiveFreeEnergy(family, n_steps=6)
    together = objective.evaluate(batch, potentials, labels)
    for index, graph in enumerate(graphs):
        variables = slice(*batch.variable_offsets[index : index + 2])
        unary = slice(*batch.graph.unary_offsets[batch.variable_offsets[index : index + 2]])
        tables = slice(*batch.graph.table_offsets[batch.factor_offsets[index : index + 2]])
        alone = ff.Potentials.from_flat(
            graph, potentials.unary_values[unary], potentials.factor_values[tables]
        )
        value, gradient = objective.value_and_grad(graph, alone, labels[variables])
        assert together.values[index] == pytest.approx(value, abs=1e-10)
        np.testing.assert_allclose(
            together.gradient.unary_values[unary], gradient.unary_values, atol=1e-9
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_all_labels_missing_leaves_nothing_to_relax(family):
    rng = np.random.default_rng(8)
    graph = ff.FactorGraph.grid(3, 3, 2)
    potentials = random_potentials(rng, graph, 0.5)
    value, gradient = ContrastiveFreeEnergy(family, n_steps=5).value_and_grad(
        graph, potentials, np.full(9, -1)
    )
    assert value == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(gradient.unary_values, 0.0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_beliefs_may_start_from_the_last_ones(family):
    rng = np.random.default_rng(9)
    graph = ff.FactorGraph.grid(3, 3, 3)
    potentials = random_potentials(rng, graph, 0.4)
    labels = random_labels(rng, graph, 0.5)
    objective = ContrastiveFreeEnergy(family, n_steps=4)
    batch = Batch.of([graph])
    first = objective.evaluate(batch, potentials, labels)
    again = objective.evaluate(batch, potentials, labels, first.state)
    np.testing.assert_allclose(again.values, first.values, atol=1e-8)
    np.testing.assert_allclose(
        again.gradient.factor_values, first.gradient.factor_values, atol=1e-5
    )


# -- learning -----------------------------------------------------------------------------


def ising_samples(seed, n_samples):
    rng = np.random.default_rng(seed)
    edges = [(i, i + 1) for i in range(5)] + [(0, 5), (1, 4)]
    graph = ff.FactorGraph([2] * 6, edges)
    tables = [np.array([[c, -c], [-c, c]]) for c in rng.uniform(-0.6, 0.6, len(edges))]
    unary = [np.array([-f, f]) for f in rng.uniform(-0.3, 0.3, 6)]
    potentials = ff.Potentials(graph, unary=unary, factors=tables)
    return sample_exactly(graph, potentials, n_samples, random_state=seed), edges


@pytest.mark.parametrize("name", ["cf-bethe", "cf-mean-field"])
def test_it_learns_an_ising_model(name):
    samples, edges = ising_samples(2, 2000)
    exact = ff.IsingModel("likelihood", l2=1.0).fit(samples, edges=edges)
    found = ff.IsingModel(name, l2=1.0, tol=1e-4).fit(samples, edges=edges)
    assert found.converged_, found.status_
    if name == "cf-bethe":
        np.testing.assert_allclose(found.weights_, exact.weights_, atol=0.35)
    # products cannot be both in the middle and correlated: mean field makes weights too large
    assert np.corrcoef(found.weights_, exact.weights_)[0, 1] > 0.9
    assert all(row["objective"] >= 0.0 for row in found.trace_)


def test_it_learns_a_grid_and_predicts_with_its_family():
    rng = np.random.default_rng(3)
    labels = [np.repeat(rng.integers(0, 2, (4, 1)), 6, axis=1) for _ in range(12)]
    images = [grid[..., None] + 0.6 * rng.normal(size=(4, 6, 1)) for grid in labels]
    for family, inference in (("bethe", ff.SumProduct), ("mean-field", ff.MeanField)):
        objective = ContrastiveFreeEnergy(family, n_steps=5)
        crf = ff.GridCRF(objective, l2=1.0, tol=1e-3).fit(images, labels)
        assert crf.converged_
        assert crf.score(images, labels) > 0.9
        assert isinstance(objective.prediction(ff.FactorGraph.grid(2, 2, 2)), inference)


# -- refusals -----------------------------------------------------------------------------


def test_bad_options_and_data():
    with pytest.raises(InvalidInputError, match="family must be one of"):
        ContrastiveFreeEnergy("trw")
    with pytest.raises(InvalidInputError, match="n_steps must be an integer of at least 1 or None"):
        ContrastiveFreeEnergy(n_steps=0)
    with pytest.raises(InvalidInputError, match=r"smoothing must be in"):
        ContrastiveFreeEnergy(smoothing=0.5)
    graph = ff.FactorGraph([2, 2], [(0, 1)])
    potentials = ff.Potentials(graph, factors=[[[0.0, -np.inf], [0.0, 0.0]]])
    with pytest.raises(ZeroWeightError, match="those of example 0 of 1 are ruled out"):
        ContrastiveFreeEnergy().value_and_grad(graph, potentials, [0, 1])
    with pytest.raises(InvalidInputError, match="must have finite tables for a product"):
        ContrastiveFreeEnergy("mean-field").value_and_grad(graph, potentials, [0, 0])
