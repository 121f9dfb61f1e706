"""`MixtureField` against enumeration: closed forms, files, samples, the bound on its error."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fieldfit.entropy.counting_numbers import Bethe, Convex, TreeReweighted
from fieldfit.errors import ConvergenceWarning, InvalidInputError, TooLargeError, ZeroWeightError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.inference.brute_force import BruteForce
from fieldfit.inference.junction_tree.exact import Exact, sample_exactly
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.models.decoding_error_bound import error_bound, exact_stability, surrogate_stability
from fieldfit.models.loading import load
from fieldfit.models.mixture_field import MixtureField
from fieldfit.models.mixture_problem import Components
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.moment_matching import MomentMatching

SPINS = np.array([[1.0, -1.0], [-1.0, 1.0]])
CYCLE = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
TREE = [(0, 1), (1, 2), (1, 3)]


def ising(graph, strengths):
    strengths = np.broadcast_to(strengths, graph.n_factors)
    return Potentials(graph, factors=strengths[:, None, None] * SPINS)


def random_potentials(rng, graph, scale=1.0):
    return Potentials.from_flat(
        graph,
        scale * rng.normal(size=graph.unary_offsets[-1]),
        scale * rng.normal(size=graph.table_offsets[-1]),
    )


def bayes_by_enumeration(potentials, means, variances, y, alpha):
    """Expected signal and its variance by summing over all labellings, written out slowly."""
    graph = potentials.graph
    total, first, second = 0.0, np.zeros(len(y)), np.zeros(len(y))
    for labels in itertools.product(*map(range, graph.cardinalities)):
        weight = np.exp(potentials.score(np.array(labels)))
        mean, square = np.empty(len(y)), np.empty(len(y))
        for s, j in enumerate(labels):
            spread = alpha**2 * variances[j] + 1 - alpha**2
            mean[s], left = means[j], variances[j]
            if not np.isnan(y[s]):
                rest = y[s] - alpha * means[j]
                weight *= np.exp(-0.5 * rest**2 / spread) / np.sqrt(2 * np.pi * spread)
                mean[s] += alpha * variances[j] / spread * rest
                left -= (alpha * variances[j]) ** 2 / spread
            square[s] = left + mean[s] ** 2
        total, first, second = total + weight, first + weight * mean, second + weight * square
    return first / total, second / total - (first / total) ** 2


# -- prediction ---------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 1.0])
def test_exact_inference_gives_the_bayes_estimate(alpha):
    rng = np.random.default_rng(0)
    means, variances = [-1.0, 0.5, 2.0], [0.5, 1.0, 3.0]
    graph = FactorGraph.from_edges(4, CYCLE, 3)
    potentials = random_potentials(rng, graph)
    model = MixtureField("likelihood", means=means, variances=variances).assume(graph, potentials)
    observations = rng.normal(size=(5, 4))
    observations[2, 1] = observations[3] = np.nan
    posterior = model.infer(observations, alpha)
    for row, y in enumerate(observations):
        mean, variance = bayes_by_enumeration(potentials, means, variances, y, alpha)
        assert_allclose(posterior.signal[row], mean, rtol=1e-9)
        assert_allclose(posterior.variance[row], variance, rtol=1e-7, atol=1e-12)
    assert posterior.converged.all()
    assert_array_equal(model.predict(observations, alpha), posterior.signal)
    assert_array_equal(model.predict_marginals(observations, alpha), posterior.marginals)
    assert posterior.marginals.shape == (5, 4, 3)


@pytest.mark.parametrize("objective", ["bethe", "trw"])
def test_message_passing_is_exact_on_a_tree(objective):
    rng = np.random.default_rng(1)
    graph = FactorGraph.from_edges(4, TREE, 2)
    potentials = random_potentials(rng, graph)
    options = {"means": (0.0, 1.0), "variances": (1.0, 4.0)}
    exact = MixtureField("likelihood", **options).assume(graph, potentials)
    model = MixtureField(objective, **options).assume(graph, potentials)
    observations = rng.normal(size=(6, 4))
    assert_allclose(model.predict(observations, 0.6), exact.predict(observations, 0.6), atol=1e-7)


def test_each_observation_may_have_its_own_noise_and_shape():
    rng = np.random.default_rng(2)
    graph = FactorGraph.grid(2, 3, 2)
    model = MixtureField("likelihood").fit(rng.integers(0, 2, (50, 2, 3)))
    observations, alphas = rng.normal(size=(4, 2, 3)), np.array([0.0, 0.3, 0.7, 1.0])
    together = model.predict(observations, alphas[:, None, None])
    assert together.shape == (4, 2, 3)
    assert_allclose(together[3], observations[3], rtol=1e-12)  # nothing was added
    for row, alpha in enumerate(alphas):
        assert_allclose(model.predict(observations[row], alpha), together[row], atol=1e-12)
        flat = model.predict(observations[row].reshape(1, -1), alpha)
        assert_allclose(flat.reshape(2, 3), together[row], atol=1e-12)
    assert graph.has_structure_of(model.graph_)


def test_prediction_does_not_depend_on_parts_and_threads(monkeypatch):
    rng = np.random.default_rng(3)
    model = MixtureField().fit(rng.integers(0, 2, (200, 3, 3)))
    observations = rng.normal(size=(23, 3, 3))
    whole = model.predict(observations, 0.5)
    monkeypatch.setattr("fieldfit.models.mixture_field.ENTRIES_PER_PART", 200)
    assert_array_equal(model.predict(observations, 0.5), whole)
    assert_array_equal(model.set_params(n_jobs=3).predict(observations, 0.5), whole)


def test_unconverged_predictions_are_announced():
    graph = FactorGraph.grid(3, 3, 2)
    inference = SumProduct(entropy=Bethe(), max_iter=1, damping=0.9)
    model = MixtureField(Likelihood(inference)).assume(graph, ising(graph, 1.0))
    observations = np.random.default_rng(0).normal(size=(2, 9))
    assert not model.infer(observations, 0.5).converged.any()
    with pytest.warns(ConvergenceWarning, match="2 of 2 examples did not converge"):
        model.predict(observations, 0.5)


# -- learning -----------------------------------------------------------------------------


def test_independent_variables_have_the_logarithms_of_their_frequencies():
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, size=(40, 5))
    options = {"means": (-1.0, 0.0, 1.0), "variances": (1.0, 1.0, 1.0)}
    model = MixtureField("trw", smoothing=3.0, **options).fit(labels, edges=[])
    counts = np.array([(labels == j).sum(axis=0) for j in range(3)]).T
    assert_allclose(model.weight_blocks_["unary"], np.log((counts + 1.0) / 43.0))
    y = rng.normal(size=5)
    likelihood = -0.5 * (y[:, None] - 0.8 * np.array(options["means"])) ** 2
    tau = (counts + 1.0) * np.exp(likelihood / (0.64 + 0.36))
    tau /= tau.sum(axis=1, keepdims=True)
    assert_allclose(model.predict_marginals(y, 0.8), tau, rtol=1e-10)


@pytest.mark.parametrize(
    "objective", ["trw", "bethe", "convex", MomentMatching(TreeReweighted(rho=0.5), smoothing=1.0)]
)
def test_closed_form_reproduces_the_frequencies_under_its_own_inference(objective):
    rng = np.random.default_rng(5)
    graph = FactorGraph.grid(3, 3, 2)
    labels = sample_exactly(graph, ising(graph, 0.3), 500, random_state=rng)
    model = MixtureField(objective).fit(labels, shape=(3, 3))
    assert model.converged_
    assert "closed form" in model.status_
    expected = MomentMatching(smoothing=1.0).moments(graph, labels)
    inference = model._objective().prediction(graph)
    beliefs = inference.run(graph, model.potentials_).beliefs
    assert_allclose(beliefs.unary_values, expected.unary_values, atol=1e-6)
    assert_allclose(beliefs.factor_values, expected.factor_values, atol=1e-6)
    # without observations the prediction is the mean of the signal
    mean = model.predict(np.full(9, np.nan), 0.5)
    assert_allclose(mean, expected.unary_matrix() @ [-1.0, 1.0], atol=1e-6)


def test_iterative_learning_ends_at_the_closed_form():
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 2, size=(300, 4))
    labels[:, 1] = np.where(rng.random(300) < 0.6, labels[:, 0], labels[:, 1])
    closed = MixtureField("trw", smoothing=0.0).fit(labels, edges=CYCLE)
    learned = MixtureField("trw", l2=1e-6, tol=1e-8).fit(labels, edges=CYCLE)
    assert learned.n_iter_ > 0
    assert closed.n_iter_ == 0
    y = rng.normal(size=(10, 4))
    # tables have a gauge, which the penalty chooses: compare what they say
    gap = np.abs(closed.predict_marginals(y, 0.7) - learned.predict_marginals(y, 0.7)).max()
    assert gap < 1e-3


def test_missing_labels_are_learned_from_iteratively():
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 2, size=(400, 3))
    labels[:, 1] = np.where(rng.random(400) < 0.9, labels[:, 0], 1 - labels[:, 0])
    full = MixtureField("likelihood", l2=1e-3).fit(labels, edges=TREE[:2])
    labels[rng.random(labels.shape) < 0.1] = -1
    part = MixtureField("likelihood", l2=1e-3).fit(labels, edges=TREE[:2])
    y = rng.normal(size=(20, 3))
    gap = np.abs(full.predict(y, 0.6) - part.predict(y, 0.6)).max()
    assert 0.0 < gap < 0.1
    with pytest.raises(
        InvalidInputError, match=r"samples must be complete for moment matching.*in row 4, column 0"
    ):
        MixtureField("moment-matching").fit(labels, edges=TREE[:2])


@pytest.mark.parametrize("objective", ["pseudolikelihood", "piecewise"])
def test_any_objective_can_learn_the_field(objective):
    rng = np.random.default_rng(8)
    graph = FactorGraph.grid(2, 3, 2)
    truth = ising(graph, 0.4)
    labels = sample_exactly(graph, truth, 2000, random_state=rng)
    model = MixtureField(objective, l2=0.1).fit(labels, shape=(2, 3))
    tables = model.weight_blocks_["tables"]
    odds = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    assert np.all(odds > 0.8)  # 1.6 in truth
    assert model.predict(rng.normal(size=6), 0.5).shape == (6,)


def test_better_than_independent_variables():
    rng = np.random.default_rng(9)
    graph = FactorGraph.grid(4, 4, 2)
    labels = sample_exactly(graph, ising(graph, 0.5), 3000, random_state=rng)
    field = MixtureField("trw", variances=(0.5, 0.5)).fit(labels[:2000], shape=(4, 4))
    alone = clone(field).fit(labels[:2000], edges=[], shape=(4, 4))
    drawn = field._components().draw(labels[2000:], np.full((1000, 16), 0.6), rng)
    z, y = drawn.signal.reshape(-1, 4, 4), drawn.observations.reshape(-1, 4, 4)
    assert field.score(z, y, 0.6) > alone.score(z, y, 0.6) + 0.05


# -- conventions --------------------------------------------------------------------------


def test_save_and_load(tmp_path):
    rng = np.random.default_rng(10)
    objective = MomentMatching(TreeReweighted(rho=0.5), smoothing=1.0)
    model = MixtureField(objective, means=np.array([0.0, 0.0]), variances=[1.0, 9.0])
    model.fit(rng.integers(0, 2, (50, 3, 4)))
    model.save(tmp_path / "model.ff")
    again = load(tmp_path / "model.ff")
    y = rng.normal(size=(3, 4))
    assert_array_equal(again.predict(y, 0.4), model.predict(y, 0.4))
    assert again.status_ == model.status_
    assert_array_equal(again.weight_blocks_["tables"], model.weight_blocks_["tables"])


def test_scikit_learn_conventions():
    model = MixtureField("bethe", means=(0, 1), variances=(1, 2), smoothing=0.5)
    again = clone(model)
    assert again.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        again.predict(np.zeros(3), 0.5)


def test_blocks_are_views_of_the_weights():
    model = MixtureField().fit(np.random.default_rng(0).integers(0, 2, (30, 2, 2)))
    blocks = model.weight_blocks_
    assert {name: block.shape for name, block in blocks.items()} == {
        "unary": (4, 2),
        "tables": (4, 2, 2),
    }
    assert all(np.shares_memory(block, model.weights_) for block in blocks.values())
    assert np.shares_memory(model.potentials_.factor_values, model.weights_)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"means": (1.0,), "variances": (1.0,)}, {}, "means must hold at least two"),
        ({"means": (1.0, np.nan)}, {}, "means must hold at least two finite"),
        ({"variances": (1.0, 0.0)}, {}, "variances must be finite and positive"),
        ({"variances": (1.0,)}, {}, "variances must hold 2 numbers"),
        ({"smoothing": -1.0}, {}, "smoothing must be"),
        ({"objective": "nonsense"}, {}, "objective must be one of"),
        ({"l2": -1.0}, {}, "l2 must be"),
        ({}, {"labels": np.zeros((0, 4), dtype=int)}, "labels must have shape"),
        ({}, {"labels": np.zeros((3, 4))}, "labels must be integers"),
        ({}, {"labels": np.array([[0, 1, 0, 1], [0, 2, 0, 0]])}, r"labels\[1\].*0..1.*got 2"),
        ({}, {"shape": None}, "edges or shape must be given"),
        ({}, {"shape": (2, 3)}, "shape must have 4 pixels"),
        ({}, {"shape": None, "edges": [(0, 9)]}, "edges must name variables 0..3"),
        ({}, {"shape": None, "edges": [(0, 1), (1, 0)]}, "edges must name every pair once"),
        ({"smoothing": 0.0}, {"labels": np.zeros((3, 4), dtype=int)}, "smoothing above 0"),
    ],
)
def test_bad_input_to_fit(options, arguments, message):
    given = {"labels": np.array([[0, 1, 0, 1], [1, 1, 0, 0]]), "shape": (2, 2)} | arguments
    with pytest.raises(InvalidInputError, match=message):
        MixtureField(**options).fit(**given)


@pytest.mark.parametrize(
    ("y", "alpha", "message"),
    [
        (np.zeros(5), 0.5, "Y must be one field of shape"),
        (np.zeros((2, 3)), 0.5, "Y must be one field of shape"),
        (np.array([0.0, np.inf, 0.0, 0.0]), 0.5, "Y must be finite"),
        (np.zeros(4), 1.5, "alpha must be in"),
        (np.zeros(4), np.nan, "alpha must be in"),
        (np.zeros((3, 4)), np.array([0.1, 0.2, 0.3]), "alpha must be a number or an array that"),
    ],
)
def test_bad_input_to_predict(y, alpha, message):
    model = MixtureField().fit(np.array([[0, 1, 0, 1], [1, 1, 0, 0]]), shape=(2, 2))
    with pytest.raises(InvalidInputError, match=message):
        model.predict(y, alpha)


def test_no_observation_at_all():
    model = MixtureField().fit(np.array([[0, 1, 0, 1], [1, 1, 0, 0]]), shape=(2, 2))
    assert model.predict(np.zeros((0, 4)), 0.5).shape == (0, 4)


# -- sampling -----------------------------------------------------------------------------


@pytest.mark.parametrize("observed", [None, {0: 1, 4: 0}])
def test_exact_samples_have_the_distribution(observed):
    rng = np.random.default_rng(11)
    graph = FactorGraph([2, 3, 1, 2, 2], [(0, 1), (1, 3), (0, 3, 4), (2, 4), (3,)])
    potentials = random_potentials(rng, graph)
    potentials.factor_values[1] = -np.inf
    labels = sample_exactly(graph, potentials, 40_000, random_state=1, observed=observed)
    exact = BruteForce().run(graph, potentials, observed)
    counts = np.zeros(graph.table_offsets[-1])
    for row, number in zip(*np.unique(labels, axis=0, return_counts=True), strict=True):
        assert potentials.score(row) > -np.inf
        counts += number * Beliefs.from_labels(graph, row).factor_values
    # five standard errors of a frequency
    assert_allclose(counts / 40_000, exact.beliefs.factor_values, atol=5 * 0.5 / 200)
    for variable, label in (observed or {}).items():
        assert np.all(labels[:, variable] == label)


def test_exact_samples_of_a_strongly_coupled_grid():
    """Where a Gibbs sampler would hardly ever change the sign of the whole."""
    graph = FactorGraph.grid(6, 6, 2)
    potentials = ising(graph, 1.0)
    labels = sample_exactly(graph, potentials, 4000, random_state=2)
    exact = Exact().run(graph, potentials).beliefs
    magnetisation = (2 * labels - 1).mean(axis=1)
    assert abs((magnetisation > 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(4000)
    pairs = graph.slot_variables.reshape(-1, 2)
    equal = (labels[:, pairs[:, 0]] == labels[:, pairs[:, 1]]).mean(axis=0)
    expected = exact.factor_values.reshape(-1, 4)[:, [0, 3]].sum(axis=1)
    assert_allclose(equal, expected, atol=0.02)


def test_exact_samples_are_independent_of_chunks(monkeypatch):
    graph = FactorGraph.grid(3, 3, 2)
    potentials = ising(graph, 0.5)
    whole = sample_exactly(graph, potentials, 100, random_state=3)
    monkeypatch.setattr("fieldfit.inference.junction_tree.exact.ENTRIES_PER_CHUNK", 16)
    assert_array_equal(sample_exactly(graph, potentials, 100, random_state=3), whole)
    assert sample_exactly(graph, potentials, 0).shape == (0, 9)


def test_exact_sampling_refuses_what_it_cannot_do():
    graph = FactorGraph.grid(3, 3, 2)
    with pytest.raises(InvalidInputError, match="n_samples"):
        sample_exactly(graph, Potentials(graph), -1)
    with pytest.raises(TooLargeError, match="sample_exactly needs"):
        sample_exactly(graph, Potentials(graph), 1, limits=Exact(max_memory=100.0))
    nothing = Potentials(graph, factors=np.full((2, 2), -np.inf))
    with pytest.raises(ZeroWeightError):
        sample_exactly(graph, nothing, 1)


def test_samples_of_the_model(monkeypatch):
    graph = FactorGraph.grid(3, 3, 2)
    options = {"means": (-1.0, 2.0), "variances": (0.5, 1.0)}
    model = MixtureField("likelihood", **options).assume(graph, ising(graph, 0.3))
    drawn = model.sample(4000, alpha=0.6, random_state=0)
    assert drawn.labels.shape == drawn.signal.shape == drawn.observations.shape == (4000, 9)
    for label, (mean, variance) in enumerate(zip(*options.values(), strict=True)):
        chosen = drawn.labels == label
        assert abs(drawn.signal[chosen].mean() - mean) < 0.05
        assert abs(drawn.signal[chosen].var() - variance) < 0.05
    noise = (drawn.observations - 0.6 * drawn.signal) / 0.8
    assert abs(noise.mean()) < 0.03
    assert abs(noise.var() - 1.0) < 0.03
    # the mean squared error of the Bayes estimate is what it says it is
    posterior = model.infer(drawn.observations, 0.6)
    error = np.mean((posterior.signal - drawn.signal) ** 2)
    assert_allclose(error, posterior.variance.mean(), rtol=0.05)
    monkeypatch.setattr("fieldfit.models.parts.EXACT_SAMPLING", Exact(max_memory=100.0))
    assert model.sample(5, random_state=0).labels.shape == (5, 9)


# -- the bound ----------------------------------------------------------------------------


def limit_model(truth, entropy, components):
    """The field that infinitely many samples would give."""
    graph = truth.graph
    marginals = Exact().run(graph, truth).beliefs
    matching = MomentMatching(entropy)
    model = MixtureField(matching, means=components.means, variances=components.variances)
    return model.assume(graph, matching.potentials(graph, marginals))


@pytest.mark.parametrize("entropy", [TreeReweighted(rho=0.5), TreeReweighted(), Convex(0.5)])
@pytest.mark.parametrize("coupling", [0.05, 0.3, 1.0])
def test_bound_is_never_below_the_increase(entropy, coupling):
    rng = np.random.default_rng(int(100 * coupling))
    graph = FactorGraph.grid(4, 4, 2)
    alphas = np.repeat([0.0, 0.05, 0.3, 0.7, 0.95], 8)
    for centres, spreads in (((-1.0, 1.0), (0.5, 0.5)), ((0.0, 0.0), (1.0, 9.0))):
        components = Components.checked(centres, spreads)
        truth = ising(graph, rng.uniform(0.0, coupling, graph.n_factors))
        truth.unary_values[:] = 0.3 * rng.normal(size=32)
        model = limit_model(truth, entropy, components)
        options = {"means": centres, "variances": spreads}
        bayes = MixtureField("likelihood", **options).assume(graph, truth)
        labels = sample_exactly(graph, truth, len(alphas), random_state=rng)
        y = components.draw(labels, alphas[:, None], rng).observations
        best = bayes.infer(y, alphas[:, None])
        increase = np.mean((model.infer(y, alphas[:, None]).signal - best.signal) ** 2, axis=1)
        limits = error_bound(model, y, alphas, truth)
        assert np.all(increase <= limits.theorem + 1e-12)
        assert np.all(increase <= limits.interval + 1e-12)
        distance = model.infer(y, alphas[:, None]).marginals - best.marginals
        rms = np.sqrt(np.mean(distance[..., 1] ** 2, axis=1))
        assert np.all(rms <= limits.distance + 1e-8)
        assert limits.bound == np.minimum(limits.theorem, limits.interval).mean()
        assert limits.theorem[0] < 1e-12  # no signal in the observations: nothing to lose


def test_bound_with_finitely_many_samples():
    """The difference without observations is then not zero, and has to be given."""
    rng = np.random.default_rng(15)
    graph = FactorGraph.grid(4, 4, 2)
    truth = ising(graph, rng.uniform(0.0, 0.15, graph.n_factors))
    labels = sample_exactly(graph, truth, 60, random_state=rng)
    model = MixtureField("trw").fit(labels, shape=(4, 4))
    before = model.predict_marginals(np.full(16, np.nan), 0.0)[:, 1] - 0.5
    offset = np.sqrt(np.mean(before**2))
    assert offset > 0.02
    bayes = MixtureField("likelihood").assume(graph, truth)
    observed = bayes.sample(40, alpha=0.05, random_state=0).observations
    best = bayes.predict(observed, 0.05)
    increase = np.mean((model.predict(observed, 0.05) - best) ** 2, axis=1)
    limits = error_bound(model, observed, 0.05, truth, offset=offset)
    assert np.all(increase <= np.minimum(limits.theorem, limits.interval))
    # without the offset the theorem does not apply, and would be wrong
    assert np.any(increase > error_bound(model, observed, 0.0, truth).theorem)


def test_bound_says_something():
    """For weak couplings it is far below the error itself."""
    rng = np.random.default_rng(12)
    graph = FactorGraph.grid(5, 5, 2)
    components = Components.checked((-1.0, 1.0), (0.5, 0.5))
    truth = ising(graph, rng.uniform(0.0, 0.1, graph.n_factors))
    model = limit_model(truth, TreeReweighted(), components)
    y = components.draw(
        sample_exactly(graph, truth, 50, random_state=rng), np.full((50, 25), 0.5), rng
    ).observations
    limits = error_bound(model, y, 0.5, truth)
    assert limits.bound < 0.1 * model.infer(y, 0.5).variance.mean()
    assert 0.25 <= limits.stability_surrogate < 0.5
    assert 0.25 <= limits.stability_exact < 0.5


@pytest.mark.parametrize("coupling", [0.1, 0.3, 2.0])
def test_stability_bounds_the_derivative(coupling):
    """Against finite differences of beliefs at random unary potentials."""
    rng = np.random.default_rng(13)
    graph = FactorGraph.grid(3, 3, 2)
    step = 1e-4

    def largest(run, potentials):
        columns = []
        for i in range(graph.n_variables):
            ends = []
            for sign in (1.0, -1.0):
                moved = potentials.unary_values.copy()
                moved[2 * i + 1] += sign * step
                beliefs = run(Potentials.from_flat(graph, moved, potentials.factor_values))
                ends.append(beliefs.unary_matrix()[:, 1])
            columns.append((ends[0] - ends[1]) / (2.0 * step))
        return np.linalg.norm(np.array(columns), 2)

    for _ in range(4):
        potentials = ising(graph, coupling * rng.uniform(-1.0, 1.0, graph.n_factors))
        potentials.unary_values[:] = coupling * rng.normal(size=18)
        norm = largest(lambda p: Exact().run(graph, p).beliefs, potentials)
        assert norm <= exact_stability(graph, potentials) + 1e-6
        for entropy in (TreeReweighted(), TreeReweighted(rho=0.5), Convex(0.3)):
            solver = SumProduct(entropy=entropy, tol=1e-12, max_iter=5000)
            norm = largest(lambda p, s=solver: s.run(graph, p).beliefs, potentials)
            assert norm <= surrogate_stability(graph, potentials, entropy) + 1e-6


def test_stability_is_a_quarter_without_coupling_and_never_above_the_size():
    graph = FactorGraph.grid(3, 3, 2)
    assert_allclose(exact_stability(graph, ising(graph, 0.0)), 0.25)
    assert_allclose(exact_stability(graph, ising(graph, 5.0)), 9 / 4)
    assert_allclose(surrogate_stability(graph, ising(graph, 5.0), TreeReweighted()), 9 / 4)
    single = FactorGraph([2, 2])
    assert_allclose(exact_stability(single, Potentials(single)), 0.25)


def test_correlation_of_a_pair_is_largest_at_even_margins():
    """The step of `surrogate_stability` from odds ratios to correlations."""
    rng = np.random.default_rng(14)
    for _ in range(200):
        coupling = rng.uniform(-2.0, 2.0)
        table = np.exp(coupling * SPINS + rng.normal(size=(2, 1)) + rng.normal(size=(1, 2)))
        table /= table.sum()
        p, q = table.sum(axis=1)[1], table.sum(axis=0)[1]
        correlation = (table[1, 1] - p * q) / np.sqrt(p * (1 - p) * q * (1 - q))
        assert abs(correlation) <= np.tanh(abs(coupling)) + 1e-12


def test_bound_refuses_what_it_does_not_cover():
    graph = FactorGraph.grid(3, 3, 2)
    truth = ising(graph, 0.2)
    y = np.zeros((2, 9))
    with pytest.raises(InvalidInputError, match="strongly concave"):
        error_bound(MixtureField("bethe").assume(graph, truth), y, 0.5, truth)
    with pytest.raises(InvalidInputError, match="must predict with SumProduct"):
        error_bound(MixtureField("likelihood").assume(graph, truth), y, 0.5, truth)
    model = MixtureField("trw").assume(graph, truth)
    with pytest.raises(InvalidInputError, match="completely observed"):
        error_bound(model, np.full((2, 9), np.nan), 0.5, truth)
    three = FactorGraph.grid(2, 2, 3)
    options = {"means": (0, 1, 2), "variances": (1, 1, 1)}
    model = MixtureField("trw", **options).assume(three, Potentials(three))
    with pytest.raises(InvalidInputError, match="two components"):
        error_bound(model, np.zeros((2, 4)), 0.5, Potentials(three))
