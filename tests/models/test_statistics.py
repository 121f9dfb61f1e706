"""Standard errors, linear response and stability: known cases, differences, simulation."""

from __future__ import annotations

import numpy as np
import pytest
from ising_problems import drawn_from, grid_model
from problems import random_graph, random_tables
from reference import pairwise_samples as twin

from fieldfit.entropy.counting_numbers import Bethe, Convex, TreeReweighted
from fieldfit.errors import InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.inference.second_order.linear_response import LinearResponse
from fieldfit.inference.second_order.stability import lipschitz_bound, stability
from fieldfit.models.loading import load
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.potts_model import PottsModel
from fieldfit.models.pairwise.sample_partition import EnumeratedPartition

# -- standard errors ----------------------------------------------------------------------


def two_variables(n00=40, n01=25, n10=15, n11=60):
    cells = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [n00, n01, n10, n11], axis=0)
    return cells, np.sqrt(1 / n00 + 1 / n01 + 1 / n10 + 1 / n11)


@pytest.mark.parametrize("objective", ["likelihood", "pseudolikelihood", "trw", "moment-matching"])
def test_log_odds_ratio_has_its_textbook_error(objective):
    """Two variables: the coupling is the log odds ratio, by every objective here."""
    samples, expected = two_variables()
    model = IsingModel(objective, l2=0.0, tol=1e-9).fit(samples)
    assert model.couplings_[0, 1] == pytest.approx(np.log(40 * 60 / (25 * 15)), abs=1e-6)
    # the pseudo-likelihood of a pair is not efficient in its thresholds, but its coupling is
    assert model.standard_errors_[2] == pytest.approx(expected, rel=1e-5)
    assert model.coupling_errors_[0, 1] == model.coupling_errors_[1, 0] == model.standard_errors_[2]
    low, high = model.confidence_intervals(0.9)[2]
    assert (high - low) / 2 == pytest.approx(1.6448536 * expected, rel=1e-5)


def test_single_thresholds_are_logits():
    samples = np.repeat([[0], [1]], [30, 70], axis=0)
    model = IsingModel("likelihood", l2=0.0, tol=1e-9).fit(samples, edges=[])
    assert model.thresholds_[0] == pytest.approx(np.log(7 / 3), abs=1e-7)
    assert model.standard_errors_[0] == pytest.approx(1 / np.sqrt(100 * 0.3 * 0.7), rel=1e-6)


def test_penalty_is_part_of_the_equation():
    samples = np.repeat([[0], [1]], [30, 70], axis=0)
    model = IsingModel("likelihood", l2=4.0, tol=1e-9).fit(samples, edges=[])
    p = 1 / (1 + np.exp(-model.thresholds_[0]))
    assert 100 * p - 70 + 4.0 * model.thresholds_[0] == pytest.approx(0.0, abs=1e-4)
    expected = np.sqrt(100 * 0.3 * 0.7) / (100 * p * (1 - p) + 4.0)
    assert model.standard_errors_[0] == pytest.approx(expected, rel=1e-6)


def test_scaling_all_weights_changes_no_error():
    samples, _ = two_variables()
    plain = IsingModel(l2=0.0).fit(samples)
    scaled = IsingModel(l2=0.0).fit(samples, sample_weight=np.full(len(samples), 3.0))
    np.testing.assert_allclose(plain.standard_errors_, scaled.standard_errors_, rtol=1e-5)


def test_information_is_the_covariance_of_statistics():
    parameters, weights = grid_model()
    unary, tables = parameters.tables(weights)
    rows = twin.configurations(9, 2)
    scores = twin.configuration_scores(unary, tables, parameters.edges, rows)
    probabilities = np.exp(scores - twin.log_sum(scores))
    statistics = parameters.statistics(rows.astype(np.int16))
    centred = statistics - probabilities @ statistics
    expected = centred.T @ (probabilities[:, None] * centred)
    found = EnumeratedPartition(parameters).hessian(weights)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("objective", ["likelihood", "pseudolikelihood"])
def test_intervals_cover_the_truth(objective):
    """A small version of ``python -m benchmarks.coverage``: 60 fits of a 3 x 3 grid."""
    parameters, truth = grid_model(scale=0.4)
    covered = []
    for seed in range(60):
        samples = drawn_from(parameters, truth, 500, seed)
        model = IsingModel(objective, l2=0.0).fit(samples, parameters.edges)
        ends = model.confidence_intervals(0.95)
        covered.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    # 60 x 21 intervals; their standard deviation is about 0.007 if they were independent
    assert 0.925 < np.mean(covered) < 0.975


def test_errors_of_a_surrogate_are_its_spread():
    parameters, truth = grid_model(scale=0.4)
    fits, errors = [], []
    for seed in range(100):
        samples = drawn_from(parameters, truth, 800, seed)
        model = IsingModel("moment-matching").fit(samples, parameters.edges)
        fits.append(model.weights_)
        errors.append(model.standard_errors_)
    ratio = np.std(fits, axis=0) / np.mean(errors, axis=0)
    assert 0.95 < ratio.mean() < 1.05
    assert 0.75 < ratio.min() < ratio.max() < 1.25


def test_potts_errors_are_those_of_the_ising_model():
    """With two labels the zero-sum coupling is w / 4; redundant directions have no variance."""
    samples, expected = two_variables()
    for l2 in (0.0, 1e-6):
        model = PottsModel("likelihood", l2=l2, tol=1e-9, max_iter=5000).fit(samples)
        errors = model.standard_errors_[4:].reshape(2, 2)
        np.testing.assert_allclose(errors, expected / 4, rtol=1e-4)
        assert model.confidence_intervals().shape == (8, 2)


def test_file_keeps_errors_that_were_computed(tmp_path):
    samples, _ = two_variables()
    model = IsingModel().fit(samples)
    model.save(tmp_path / "without")
    errors = model.standard_errors_
    model.save(tmp_path / "with")
    np.testing.assert_array_equal(load(tmp_path / "with").standard_errors_, errors)
    again = load(tmp_path / "without")
    np.testing.assert_array_equal(again.couplings_, model.couplings_)
    assert again.log_likelihood(samples) == model.log_likelihood(samples)
    with pytest.raises(InvalidInputError, match="need the samples"):
        _ = again.standard_errors_
    potts = PottsModel().fit(samples)
    potts.save(tmp_path / "potts")
    np.testing.assert_array_equal(load(tmp_path / "potts").contact_scores(), potts.contact_scores())


# -- linear response ----------------------------------------------------------------------


def beliefs_vector(graph, entropy, unary, tables):
    result = SumProduct(entropy=entropy, tol=1e-13, max_iter=20000).run(
        graph, Potentials.from_flat(graph, unary, tables)
    )
    assert result.converged
    return result.beliefs, np.concatenate(
        [result.beliefs.unary_values, result.beliefs.factor_values]
    )


@pytest.mark.parametrize(
    "entropy", [Bethe(), TreeReweighted(), Convex(), Convex(unary=0.0)], ids=repr
)
@pytest.mark.parametrize("shape", ["grid", "mixed"])
def test_response_is_the_derivative_of_beliefs(entropy, shape):
    rng = np.random.default_rng(0)
    graph = (
        FactorGraph.grid(3, 3, 2)
        if shape == "grid"
        else FactorGraph([2, 3, 4, 2, 3], [(0, 1), (1, 2), (2, 0), (3, 1, 4), (4, 2)])
    )
    unary = 0.5 * rng.normal(size=graph.unary_offsets[-1])
    tables = 0.5 * rng.normal(size=graph.table_offsets[-1])
    beliefs, _ = beliefs_vector(graph, entropy, unary, tables)
    response = LinearResponse(graph, beliefs, entropy.counting_numbers(graph))
    for _ in range(3):
        change = rng.normal(size=response.n_entries)
        parts = np.split(change, [len(unary)])
        step = 1e-5
        above = beliefs_vector(graph, entropy, unary + step * parts[0], tables + step * parts[1])[1]
        below = beliefs_vector(graph, entropy, unary - step * parts[0], tables - step * parts[1])[1]
        np.testing.assert_allclose(response.apply(change), (above - below) / (2 * step), atol=1e-7)
    dense = response.apply(np.eye(response.n_entries))
    np.testing.assert_allclose(dense, dense.T, atol=1e-10)
    assert response.norm() == pytest.approx(np.linalg.norm(dense, 2), rel=1e-6)


def test_response_of_nearly_certain_beliefs_is_finite():
    graph = FactorGraph.chain(4, 2)
    potentials = Potentials(graph, unary=np.tile([0.0, 800.0], (4, 1)))
    result = SumProduct().run(graph, potentials)
    response = LinearResponse(graph, result.beliefs, Bethe().counting_numbers(graph))
    assert response.norm() < 1e-6


def test_response_refuses_factors_of_arity_one():
    graph = FactorGraph([2, 2], [(0,), (0, 1)])
    result = SumProduct().run(graph, Potentials(graph))
    with pytest.raises(InvalidInputError, match="arity at least 2"):
        LinearResponse(graph, result.beliefs, Bethe().counting_numbers(graph))


# -- stability ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entropy", [TreeReweighted(), Convex(), Convex(0.0), Convex(0.0, factor=0.3)], ids=repr
)
def test_beliefs_never_move_more_than_the_bound(entropy):
    rng = np.random.default_rng(1)
    graph = FactorGraph.grid(3, 3, 2)
    bound = lipschitz_bound(graph, entropy.counting_numbers(graph))
    largest = 0.0
    for scale in (0.1, 1.0, 3.0):
        unary = scale * rng.normal(size=18)
        tables = scale * rng.normal(size=48)
        found = stability(graph, Potentials.from_flat(graph, unary, tables), entropy)
        assert found.converged
        assert found.bound == bound
        largest = max(largest, found.local)
        assert found.local <= bound
    assert largest > bound / 1000  # the bound is not empty talk


def test_local_constant_of_independent_labels():
    graph = FactorGraph([2, 2], [])
    found = stability(graph, Potentials(graph), Bethe())
    assert found.local == pytest.approx(0.5)
    assert found.bound == 0.5


def test_bethe_on_a_loopy_graph_has_no_bound_and_trw_is_steadier():
    graph = FactorGraph.grid(4, 4, 2)
    potentials = Potentials(graph, factors=0.9 * np.eye(2))
    bethe = stability(graph, potentials, Bethe())
    reweighted = stability(graph, potentials, TreeReweighted())
    assert bethe.bound is None
    assert "no global bound" in bethe.status
    assert reweighted.local < bethe.local
    assert reweighted.bound is not None


def test_bound_holds_on_random_graphs():
    rng = np.random.default_rng(2)
    n_checked = 0
    for _ in range(40):
        graph = random_graph(rng, 6, 4, max_arity=3)
        if graph.arities.min() < 2:
            continue
        potentials = random_tables(rng, graph, scale=0.5)
        for entropy in (Convex(), TreeReweighted()):
            found = stability(graph, potentials, entropy)
            assert found.local <= found.bound
            n_checked += 1
    assert n_checked >= 10
