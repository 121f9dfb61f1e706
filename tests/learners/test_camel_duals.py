"""The duals of CAMEL: values against NumPy, gradients against differences, slopes, threads."""

from __future__ import annotations

import numpy as np
import pytest
from camel_problems import TiedModel, conditional
from reference import camel as twin
from reference.template import dense_matrix
from scipy.optimize import minimize

import fieldfit as ff
from fieldfit.errors import ZeroWeightError
from fieldfit.learners.camel_dual import JointDual, PiecewiseDual, WeightDual
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.learners.problem import TemplateProblem

#: Factors of arity zero to four, repeated scopes, two factors of arity one, an isolated variable,
#: one label only, and pairs of every kind that the kernel treats differently.
AWKWARD = ff.FactorGraph(
    [3, 2, 3, 1, 3, 2, 4],
    [(0, 2), (), (2, 0), (1,), (4, 2, 1), (0, 3), (5, 0, 1, 2), (1, 5), (4,), (5, 1), (4, 0), (1,)],
)


class Table:
    """Potentials as weights: the most general model there is."""

    def __init__(self, graph):
        self.graph, self.n_unary = graph, int(graph.unary_offsets[-1])
        self.n_weights = self.n_unary + int(graph.table_offsets[-1])

    def potentials(self, weights):
        return ff.Potentials.from_flat(self.graph, *np.split(weights, [self.n_unary]))

    def gradient(self, vector):
        return np.concatenate([vector.unary_values, vector.factor_values])


def awkward_model(seed=0):
    """Two examples, the first of which counts for more; statistics of random labels."""
    rng = np.random.default_rng(seed)
    batch = ff.graph.Batch.of([AWKWARD, ff.FactorGraph([2, 2], [(0, 1)])])
    table = Table(batch.graph)
    labels = rng.integers(0, batch.graph.cardinalities)
    indicators = ff.Beliefs.from_labels(batch.graph, labels)
    part = LinearPart(batch, table, indicators.unary_values, np.array([2.5, 0.7]))
    return LinearModel([part], rng.normal(size=table.n_weights), 2)


MODELS = {
    "awkward": awkward_model,
    "conditional": lambda: conditional(n_examples=5, n_parts=2).linear_model(),
    "generative": lambda: TiedModel().linear_model(),
}


def random_beliefs(model, rng):
    """Distributions of all variables, part by part."""
    found = []
    for part in model.parts:
        sizes = part.batch.graph.cardinalities
        found.append(np.concatenate([rng.dirichlet(np.full(k, 2.0)) for k in sizes]))
    return found


def make_dual(kind, model, rng, *, with_slopes=True, on_both_sides=True):
    if kind == "weights":
        dual = WeightDual(model, tol=1e-13)
    else:
        dual = JointDual(model, on_both_sides=on_both_sides)
    if with_slopes:
        dual.linearise_at(random_beliefs(model, rng))
    return PiecewiseDual(dual) if kind == "pieces" else dual


def dense_map(part):
    """``Phi`` of a part as a matrix, without the package's template kernels where there are any."""
    if isinstance(part.mapping, ff.graph.Template):
        return dense_matrix(part.mapping)
    return np.eye(part.mapping.n_weights)


def dual_by_twin(model, weights, slopes):
    """Value and gradient of the joint dual, example by example, in NumPy."""
    n_shared = model.n_weights
    value, gradient = -weights[:n_shared] @ model.statistics, -model.statistics
    deltas, first = [], n_shared
    for part, part_slopes in zip(model.parts, slopes, strict=True):
        batch, matrix = part.batch, dense_map(part)
        n_unary = int(batch.graph.unary_offsets[-1])
        unary, tables = np.split(matrix @ weights[:n_shared], [n_unary])
        potentials = batch.split(ff.Beliefs(batch.graph, unary, tables))
        bounds = batch.graph.message_offsets[batch.graph.scope_offsets[batch.factor_offsets]]
        given = np.ones(batch.n_examples)
        if part.example_weights is not None:
            given = part.example_weights
        unary_beliefs, table_beliefs = [], []
        for m, graph in enumerate(batch.graphs):
            place = slice(bounds[m], bounds[m + 1])
            delta = weights[first : first + bounds[-1]][place]
            slope = part_slopes[place] if len(part_slopes) else np.zeros(len(delta))
            own = ff.Potentials.from_flat(
                graph, potentials[m].unary_values, potentials[m].factor_values
            )
            found = twin.local_models(graph, own, delta, slope)
            value += given[m] * found.value
            unary_beliefs += [given[m] * beliefs for beliefs in found.unary]
            table_beliefs += [given[m] * beliefs.ravel() for beliefs in found.factors]
            for slot, (a, _, i) in enumerate(twin.slots_of(graph)):
                is_linking = len(graph.scope(a)) >= 2
                gap = found.margins[slot] - found.unary[i] if is_linking else found.margins[slot]
                deltas.append(given[m] * gap)
        gradient = gradient + matrix.T @ np.concatenate(unary_beliefs + table_beliefs)
        first += bounds[-1]
    return value, np.concatenate([gradient, *deltas])


# -- values and gradients -----------------------------------------------------------------


@pytest.mark.parametrize("with_slopes", [False, True], ids=["flat", "slopes"])
@pytest.mark.parametrize("name", MODELS)
def test_the_joint_dual_is_that_of_the_twin(name, with_slopes):
    rng = np.random.default_rng(1)
    model = MODELS[name]()
    dual = make_dual("joint", model, rng, with_slopes=with_slopes)
    weights = rng.normal(size=dual.n_weights)
    found = dual.evaluate(weights)
    value, gradient = dual_by_twin(model, weights, dual.slopes)
    assert found.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found.gradient, gradient, rtol=0, atol=1e-12 * model.n_weights)
    assert (found.n_unconverged, found.n_examples) == (0, model.n_examples)


@pytest.mark.parametrize("with_slopes", [False, True], ids=["flat", "slopes"])
@pytest.mark.parametrize("kind", ["joint", "pieces", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_differences(name, kind, with_slopes):
    rng = np.random.default_rng(2)
    dual = make_dual(kind, MODELS[name](), rng, with_slopes=with_slopes)
    weights = 0.5 * rng.normal(size=dual.n_weights)
    gradient = dual.evaluate(weights).gradient.copy()
    step = 1e-5
    # along random directions: every entry counts, and nothing is lost in a small one
    for direction in rng.normal(size=(6, dual.n_weights)):
        ahead, behind = (dual.evaluate(weights + s * direction).value for s in (step, -step))
        assert gradient @ direction == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_the_other_dual_is_the_minimum_over_the_multipliers(name):
    """So it is never above the joint one, and has its gradient where the factors agree."""
    rng = np.random.default_rng(3)
    model = MODELS[name]()
    beliefs = random_beliefs(model, rng)
    joint, outer = JointDual(model), WeightDual(model, tol=1e-13)
    joint.linearise_at(beliefs)
    outer.linearise_at(beliefs)
    weights = np.zeros(joint.n_weights)
    weights[: model.n_weights] = 0.3 * rng.normal(size=model.n_weights)
    lowest = outer.evaluate(weights[: model.n_weights])
    for _ in range(5):
        weights[model.n_weights :] = rng.normal(size=joint.n_weights - model.n_weights)
        assert joint.evaluate(weights).value > lowest.value

    def function(delta):
        weights[model.n_weights :] = delta
        found = joint.evaluate(weights)
        return found.value, found.gradient[model.n_weights :].copy()

    found = minimize(
        function, np.zeros(joint.n_weights - model.n_weights), jac=True, method="L-BFGS-B",
        tol=1e-15, options={"maxiter": 5000, "gtol": 1e-9, "maxcor": 50},
    )  # fmt: skip
    assert found.fun == pytest.approx(lowest.value, rel=1e-9)
    function(found.x)
    np.testing.assert_allclose(
        joint.evaluate(weights).gradient[: model.n_weights], lowest.gradient, rtol=0, atol=1e-5
    )


def test_multipliers_that_favour_all_factors_alike_change_nothing():
    """The mean over the factors of a variable is taken away from them."""
    rng = np.random.default_rng(4)
    model = awkward_model()
    dual, graph = make_dual("joint", model, rng), model.parts[0].batch.graph
    weights = rng.normal(size=dual.n_weights)
    before = dual.evaluate(weights)
    value, gradient = before.value, before.gradient.copy()
    shift = rng.normal(size=int(graph.unary_offsets[-1]))
    for slot, i in enumerate(graph.slot_variables):
        place = slice(*(dual.n_shared + graph.message_offsets[slot : slot + 2]))
        weights[place] += shift[graph.unary_offsets[i] : graph.unary_offsets[i + 1]]
    after = dual.evaluate(weights)
    assert after.value == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(after.gradient, gradient, rtol=0, atol=1e-12)


def test_pieces_are_piecewise_training_with_shared_unary_potentials():
    problem = conditional(n_examples=5, n_parts=2)
    piecewise = TemplateProblem(ff.Piecewise(unary="shared"), problem.parts)
    dual = PiecewiseDual(JointDual(problem.linear_model()))
    weights = np.random.default_rng(5).normal(size=problem.n_weights)
    found, expected = dual.evaluate(weights), piecewise.evaluate(weights)
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    np.testing.assert_allclose(found.gradient, expected.gradient, rtol=0, atol=1e-11)
    assert found.n_examples == expected.n_examples


def test_extreme_weights_give_finite_answers():
    rng = np.random.default_rng(6)
    model = awkward_model()
    for kind in ("joint", "weights"):
        dual = make_dual(kind, model, rng)
        found = dual.evaluate(300.0 * rng.normal(size=dual.n_weights))
        assert np.isfinite(found.value)
        assert np.isfinite(found.gradient).all()


def test_a_factor_without_weight_is_an_error():
    model = awkward_model()
    weights = np.zeros(JointDual(model).n_weights)
    part = model.parts[0]
    weights[part.mapping.n_unary :][:9] = -np.inf  # the table of the first factor
    with pytest.raises(ZeroWeightError, match="factor 0"), np.errstate(invalid="ignore"):
        JointDual(model).evaluate(weights)


# -- moving the tangent -------------------------------------------------------------------


@pytest.mark.parametrize("on_both_sides", [True, False], ids=["both", "one"])
@pytest.mark.parametrize("name", MODELS)
def test_slopes_are_those_of_the_twin(name, on_both_sides):
    """From margins that do not agree, as in a round that was stopped early."""
    rng = np.random.default_rng(7)
    model = MODELS[name]()
    dual = make_dual("joint", model, rng, with_slopes=False, on_both_sides=on_both_sides)
    weights = rng.normal(size=dual.n_weights)
    dual.relinearise(weights)
    for index, part in enumerate(model.parts):
        graph = part.batch.graph
        delta = weights[dual.offsets[index] : dual.offsets[index + 1]]
        potentials = part.mapping.potentials(weights[: model.n_weights])
        found = twin.local_models(graph, potentials, delta, np.zeros(len(delta)))
        expected = twin.slopes_at(graph, found.margins, on_both_sides=on_both_sides)
        np.testing.assert_allclose(dual.slopes[index], expected, rtol=0, atol=1e-11)
        np.testing.assert_allclose(
            dual.centres[index], np.concatenate(found.unary), rtol=0, atol=1e-12
        )


def test_slopes_are_derivatives_of_minus_the_entropies():
    """The sign: ``-H(p)`` rises with slope ``log p`` (plus one), so it is *added* to potentials."""
    rng = np.random.default_rng(8)
    graph = ff.FactorGraph([2, 2, 2], [(0, 1), (1, 2)])
    part = LinearPart(ff.graph.Batch.of([graph]), Table(graph), np.zeros(6))
    dual = JointDual(LinearModel([part], np.zeros(Table(graph).n_weights), 1), on_both_sides=False)
    beliefs = np.concatenate([rng.dirichlet([2.0, 2.0]) for _ in range(3)])
    dual.linearise_at([beliefs])

    def minus_entropy(p):
        return float(np.sum(p * np.log(p)))

    away = np.array([1e-6, -1e-6])
    middle = beliefs[2:4]
    derivative = (minus_entropy(middle + away) - minus_entropy(middle - away)) / 2e-6
    slopes = twin.by_slot(graph, dual.slopes[0])[1]  # of the first factor at the middle variable
    assert slopes @ [1.0, -1.0] == pytest.approx(derivative, rel=1e-6)


@pytest.mark.parametrize("kind", ["joint", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_gap_and_change(name, kind):
    """``(d_i - 1) KL(new, old)``, and the root mean square distance, both over the examples."""
    rng = np.random.default_rng(9)
    model = MODELS[name]()
    dual = make_dual(kind, model, rng)
    old = [centre.copy() for centre in dual.centres]
    slopes = [slope.copy() for slope in dual.slopes]
    weights = 0.3 * rng.normal(size=dual.n_weights)
    found = dual.relinearise(weights)
    gap = squares = count = 0.0
    for index, part in enumerate(model.parts):
        graph = part.batch.graph
        examples = part.batch.variable_examples()
        new = dual.centres[index]
        for i in range(graph.n_variables):
            place = slice(graph.unary_offsets[i], graph.unary_offsets[i + 1])
            number = max(len(twin.linking_slots(graph, i)) - 1, 0)
            weight = number * part.weight_of_examples()[examples[i]]
            p, q = new[place], old[index][place]
            gap += weight * float(np.sum(p * np.log(p)))
            squares += weight * float(np.sum((p - q) ** 2))
            count += weight
            if kind == "weights":
                gap -= weight * float(np.sum(p * np.log(q)))
        if kind == "joint":  # factors do not agree yet: the line is a function of every margin
            delta = weights[dual.offsets[index] : dual.offsets[index + 1]]
            potentials = part.mapping.potentials(weights[: model.n_weights])
            margins = twin.local_models(graph, potentials, delta, slopes[index]).margins
            by_slot = twin.by_slot(graph, slopes[index])
            for slot, (_, _, i) in enumerate(twin.slots_of(graph)):
                weight = part.weight_of_examples()[examples[i]]
                gap -= weight * float(margins[slot] @ by_slot[slot])
    assert found.gap == pytest.approx(gap, rel=1e-9)
    assert found.change == pytest.approx(np.sqrt(squares / count), rel=1e-9)


def test_where_nothing_is_linearised_nothing_changes():
    """Single pairs and lone variables have no entropy to put a line in place of."""
    graph = ff.FactorGraph([2, 2, 3], [(0, 1)])
    part = LinearPart(ff.graph.Batch.of([graph]), Table(graph), np.zeros(7))
    model = LinearModel([part], np.zeros(Table(graph).n_weights), 1)
    for dual in (JointDual(model), WeightDual(model)):
        found = dual.relinearise(np.ones(dual.n_weights))
        assert (found.gap, found.change) == (0.0, 0.0)


# -- threads ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["joint", "weights"])
def test_threads_do_not_change_a_bit(kind):
    answers = []
    for n_jobs in (1, 2, 3):
        model = conditional(n_examples=7, n_parts=4, n_jobs=n_jobs).linear_model()
        assert model.n_jobs == n_jobs
        dual = make_dual(kind, model, np.random.default_rng(0))
        weights = np.random.default_rng(1).normal(size=dual.n_weights)
        found = dual.evaluate(weights)
        answers.append((found.value, found.gradient.copy(), dual.relinearise(weights), dual.slopes))
    for value, gradient, moved, slopes in answers[1:]:
        assert value == answers[0][0]
        assert moved == answers[0][2]
        np.testing.assert_array_equal(gradient, answers[0][1])
        for one, other in zip(slopes, answers[0][3], strict=True):
            np.testing.assert_array_equal(one, other)


def test_parts_add_up_to_one_batch():
    weights = np.random.default_rng(11).normal(size=conditional().n_weights)
    whole, cut = (
        WeightDual(conditional(n_parts=n).linear_model(), tol=1e-13).evaluate(weights)
        for n in (1, 3)
    )
    assert cut.value == pytest.approx(whole.value, rel=1e-12)
    np.testing.assert_allclose(cut.gradient, whole.gradient, rtol=0, atol=1e-9)
