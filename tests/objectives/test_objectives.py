"""What is particular to one objective: blocks, missing groups, closed forms, oracles, names."""

from __future__ import annotations

import numpy as np
import pytest
from problems import PROBLEMS, ising, random_graph, random_tables, random_tree
from reference import objectives as twin

import fieldfit as ff
from fieldfit._registry import OBJECTIVES
from fieldfit.inference.map.base import MapSearch
from fieldfit.objectives.base import Objective, default_prediction
from fieldfit.objectives.block_likelihood import Conditioned, MissingGroups, tree_blocks
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.max_margin import MaxMargin, Perceptron, default_oracle
from fieldfit.objectives.moment_matching import MomentMatching
from fieldfit.objectives.piecewise import Piecewise
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood
from fieldfit.objectives.registry import make_objective


def flat(vector):
    return np.concatenate([vector.unary_values, vector.factor_values])


def random_labels(rng, graph, missing=0.0):
    labels = rng.integers(0, graph.cardinalities)
    labels[rng.random(graph.n_variables) < missing] = -1
    return labels.astype(np.int32)


def random_case(seed, missing=0.0):
    rng = np.random.default_rng(seed)
    makers = (
        lambda: ff.FactorGraph.grid(3, 4, 2),
        lambda: random_graph(rng, 7, 8, max_labels=3),
        lambda: random_tree(rng, 8, max_arity=3),
        lambda: ff.FactorGraph.from_edges(6, [(i, j) for i in range(6) for j in range(i)], 2),
    )
    graph = makers[seed % len(makers)]()
    return graph, random_tables(rng, graph, 0.7), random_labels(rng, graph, missing)


# -- pseudo-likelihood --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_single_variables_by_the_kernel_and_by_derived_graphs(seed):
    graph, potentials, labels = random_case(seed, missing=0.3 if seed % 3 else 0.0)
    value, gradient = PseudoLikelihood().value_and_grad(graph, potentials, labels)
    single = PseudoLikelihood([[i] for i in range(graph.n_variables)])
    again, same = single.value_and_grad(graph, potentials, labels)
    assert value == pytest.approx(again, rel=1e-12)
    np.testing.assert_allclose(flat(gradient), flat(same), atol=1e-12)


def tree_terms(graph, labels, max_missing=8):
    batch = ff.graph.Batch.of([graph])
    missing = MissingGroups.of(graph, labels, max_missing)
    return batch, missing, tree_blocks(batch, missing)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_tree_blocks(seed, missing):
    """They hold every variable with a label once, have no cycles, and give the right value."""
    graph, potentials, labels = random_case(seed, missing)
    batch, groups, terms = tree_terms(graph, labels, max_missing=20)
    assert sorted(terms.variables) == np.flatnonzero(labels >= 0).tolist()
    parts = Conditioned.of(batch, labels, groups, terms)
    if not missing:
        assert all(part.batch.graph.is_acyclic for part in parts)
        assert all(isinstance(part.inference, ff.SumProduct) for part in parts)
    blocks = np.split(terms.variables, terms.offsets[1:-1])
    expected = twin.block_likelihood(graph, potentials, labels, blocks)
    value, _ = PseudoLikelihood("tree", max_missing=20).value_and_grad(graph, potentials, labels)
    assert value == pytest.approx(expected, rel=1e-11)


def test_two_tree_blocks_cover_a_grid():
    graph = ff.FactorGraph.grid(20, 30, 3)
    _, _, terms = tree_terms(graph, np.zeros(600, dtype=np.int32))
    assert len(terms.examples) == 2
    assert np.diff(terms.offsets).max() > 350


def test_one_tree_block_is_the_likelihood_of_a_tree():
    rng = np.random.default_rng(0)
    graph = random_tree(rng, 9, max_arity=4)
    potentials, labels = random_tables(rng, graph), random_labels(rng, graph)
    value, gradient = PseudoLikelihood("tree").value_and_grad(graph, potentials, labels)
    exact, expected = Likelihood().value_and_grad(graph, potentials, labels)
    assert value == pytest.approx(exact, rel=1e-12)
    np.testing.assert_allclose(flat(gradient), flat(expected), atol=1e-12)


def ring_of_missing(max_missing):
    """A 3 x 4 grid whose first four pixels (a square) are missing: a group with a cycle."""
    rng = np.random.default_rng(1)
    graph = ff.FactorGraph.grid(3, 4, 2)
    labels = random_labels(rng, graph)
    labels[[0, 1, 4, 5]] = -1
    return graph, random_tables(rng, graph), labels, {"max_missing": max_missing}


@pytest.mark.parametrize("blocks", [None, "tree", [range(6, 12), [2, 3]]])
def test_variables_next_to_a_large_missing_group_only_condition(blocks):
    graph, potentials, labels, options = ring_of_missing(3)
    value, gradient = PseudoLikelihood(blocks, **options).value_and_grad(graph, potentials, labels)
    kept = [3, 7, 10, 11]  # 2, 6, 8 and 9 touch the square
    if blocks is None:
        terms = [[i] for i in kept]
    elif blocks == "tree":
        _, _, found = tree_terms(graph, labels, 3)
        terms = np.split(found.variables, found.offsets[1:-1])
        assert sorted(found.variables) == kept
    else:
        terms = [[7, 10, 11], [3]]
    assert value == pytest.approx(
        twin.block_likelihood(graph, potentials, labels, terms), rel=1e-11
    )
    assert np.all(gradient.unary_values.reshape(-1, 2)[[2, 6, 8, 9, 0, 1, 4, 5]] == 0.0)


def test_small_missing_groups_are_summed_out_whatever_their_cycles():
    graph, potentials, labels, options = ring_of_missing(4)
    value, _ = PseudoLikelihood(**options).value_and_grad(graph, potentials, labels)
    expected = twin.pseudo_likelihood(graph, potentials, labels)
    assert value == pytest.approx(expected, rel=1e-11)


def test_long_missing_groups_without_cycles_are_summed_out():
    rng = np.random.default_rng(2)
    graph = ff.FactorGraph.chain(12, 2)
    potentials, labels = random_tables(rng, graph), random_labels(rng, graph)
    labels[1:11] = -1
    value, _ = PseudoLikelihood(max_missing=0).value_and_grad(graph, potentials, labels)
    expected = twin.pseudo_likelihood(graph, potentials, labels)
    assert value == pytest.approx(expected, rel=1e-11)


def test_what_depends_on_labels_is_kept_between_evaluations():
    graph, potentials, labels = random_case(1, missing=0.3)
    batch = ff.graph.Batch.of([graph])
    objective = PseudoLikelihood("tree")
    first = objective.evaluate(batch, potentials, labels)
    second = objective.evaluate(batch, potentials, labels, first.state)
    assert second.state.parts is first.state.parts
    other = objective.evaluate(batch, potentials, np.maximum(labels, 0), second.state)
    assert other.state.parts is not first.state.parts


def test_blocks_of_several_examples():
    """Index arrays serve graphs of one size, functions any."""
    rng = np.random.default_rng(3)
    graphs = [ff.FactorGraph.grid(2, 3, 2), ff.FactorGraph.chain(6, 3)]
    potentials = [random_tables(rng, graph) for graph in graphs]
    labels = [random_labels(rng, graph) for graph in graphs]
    batch = ff.graph.Batch.of(graphs)
    blocks = [[0, 1, 2], [3, 4, 5]]
    evaluation = PseudoLikelihood(blocks).evaluate(
        batch, batch.pack(potentials), np.concatenate(labels)
    )
    for m, graph in enumerate(graphs):
        expected = twin.block_likelihood(graph, potentials[m], labels[m], blocks)
        assert evaluation.values[m] == pytest.approx(expected, rel=1e-11)
    larger = ff.graph.Batch.of([*graphs, ff.FactorGraph.chain(7, 2)])
    with pytest.raises(ff.InvalidInputError, match="6 variables in example 0 and 7 in example 2"):
        PseudoLikelihood(blocks).evaluate(
            larger, ff.Potentials(larger.graph), np.zeros(19, dtype=np.int32)
        )


def test_a_block_that_is_too_wide_is_refused_with_its_size():
    graph = ff.FactorGraph.grid(60, 60, 4)
    with pytest.raises(ff.errors.TooLargeError, match="GB"):
        PseudoLikelihood([range(3600)]).value_and_grad(
            graph, ff.Potentials(graph), np.zeros(3600, dtype=int)
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": "rows"}, "blocks must be None, 'tree', a sequence of index arrays or a"),
        ({"blocks": 3}, "blocks must be None, 'tree', a sequence of index arrays or a"),
        ({"blocks": [["a"]]}, r"blocks\[0\] must be integers, got dtype <U1"),
        ({"blocks": [[0, 1], [2, 2]]}, r"blocks\[1\] must hold distinct variables, got \(2, 2\)"),
        ({"blocks": [[-1]]}, r"blocks\[0\] must name variables 0, got -1 to -1"),
        ({"max_missing": -1}, "max_missing must be an integer of at least 0, got -1"),
    ],
)
def test_pseudo_likelihood_options(options, message):
    with pytest.raises(ff.InvalidInputError, match=message):
        PseudoLikelihood(**options)


def test_blocks_must_fit_the_graph():
    graph = ff.FactorGraph.chain(3, 2)
    for blocks in ([[0, 3]], lambda _: [[0, 3]]):
        with pytest.raises(ff.InvalidInputError, match=r"blocks\[0\] must name variables 0..2"):
            PseudoLikelihood(blocks).value_and_grad(graph, ff.Potentials(graph), [0, 0, 0])


@pytest.mark.parametrize("objective", [PseudoLikelihood(), PseudoLikelihood("tree"), Piecewise()])
def test_read_only_potentials(objective):
    graph = ff.FactorGraph.grid(2, 3, 2)
    rng = np.random.default_rng(4)
    potentials, labels = random_tables(rng, graph), random_labels(rng, graph)
    expected, _ = objective.value_and_grad(graph, potentials, labels)
    for values in (potentials.unary_values, potentials.factor_values):
        values.flags.writeable = False
    assert objective.value_and_grad(graph, potentials, labels)[0] == expected


# -- moment matching ----------------------------------------------------------------------

ENTROPIES = [
    ff.TreeReweighted(),
    ff.TreeReweighted(0.5),
    ff.Bethe(),
    ff.Convex(),
    ff.Convex(0.3, factor=2),
]


def samples_of(problem, n_samples=200):
    rng = np.random.default_rng(8)
    configurations = ff.BruteForce().configurations(problem.graph)
    weights = np.exp(ff.BruteForce().scores(problem.graph, problem.potentials))
    chosen = rng.choice(len(configurations), n_samples, p=weights / weights.sum())
    return configurations[chosen]


NAMED = {p.name: p for p in PROBLEMS}
MATCHED = [
    NAMED[name]
    for name in ("chain of five labels", "hypertree", "triangle", "grid of two labels",
                 "complete graph", "mixed cardinalities", "repeated scopes", "isolated variables",
                 "single labels", "arity four")
]  # fmt: skip


@pytest.mark.parametrize("entropy", ENTROPIES, ids=repr)
@pytest.mark.parametrize("problem", MATCHED, ids=str)
def test_beliefs_are_the_empirical_marginals(problem, entropy):
    graph = problem.graph
    matching = MomentMatching(entropy, smoothing=5.0)
    moments = matching.moments(graph, samples_of(problem))
    potentials = matching.potentials(graph, moments)
    result = ff.SumProduct(entropy, tol=1e-10, max_iter=5000).run(graph, potentials)
    assert result.converged
    np.testing.assert_allclose(result.beliefs.unary_values, moments.unary_values, atol=1e-6)
    np.testing.assert_allclose(result.beliefs.factor_values, moments.factor_values, atol=1e-6)
    assert result.log_partition == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("entropy", [ff.TreeReweighted(), ff.Convex()], ids=repr)
def test_the_closed_form_minimises_the_surrogate_likelihood(entropy):
    """The gradient over all samples vanishes, and no step from there is better."""
    problem = NAMED["complete graph"]
    samples = samples_of(problem, 60)
    matching = MomentMatching(entropy)
    batch = ff.graph.Batch.of([problem.graph] * len(samples))
    best = matching.potentials(problem.graph, matching.moments(problem.graph, samples))

    def total(potentials):
        evaluation = matching.evaluate(
            batch, batch.pack([potentials] * len(samples)), samples.ravel().astype(np.int32)
        )
        gradient = evaluation.gradient.factor_values.reshape(len(samples), -1).sum(axis=0)
        return evaluation.values.sum(), gradient

    value, gradient = total(best)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
    rng = np.random.default_rng(5)
    for _ in range(5):
        moved = best.factor_values + 0.1 * rng.normal(size=len(best.factor_values))
        assert total(ff.Potentials.from_flat(problem.graph, best.unary_values, moved))[0] > value


def test_moments_count_smooth_and_weigh():
    graph = ff.FactorGraph([2, 3], [(1, 0), (0,), ()])
    samples = [[0, 2], [0, 2], [1, 0]]
    moments = MomentMatching().moments(graph, samples)
    np.testing.assert_allclose(moments.unary(1), [1 / 3, 0, 2 / 3])
    np.testing.assert_allclose(moments.factor(0), [[0, 1 / 3], [0, 0], [2 / 3, 0]])
    np.testing.assert_allclose(moments.factor(1), [2 / 3, 1 / 3])
    assert moments.factor(2) == pytest.approx(1.0)
    smooth = MomentMatching(smoothing=3.0).moments(graph, samples)
    np.testing.assert_allclose(smooth.factor(0), (np.array([[0, 1], [0, 0], [2, 0]]) + 0.5) / 6)
    np.testing.assert_allclose(smooth.factor(0).sum(axis=0), smooth.unary(0))
    weighted = MomentMatching().moments(graph, [[0, 2], [1, 0]], weights=[2.0, 1.0])
    np.testing.assert_allclose(flat(weighted), flat(moments))


def test_moment_matching_errors():
    graph = ff.FactorGraph.chain(2, 2)
    matching = MomentMatching()
    with pytest.raises(ff.InvalidInputError, match=r"got 0 in factors\[0\] \(entry 1\); use smoo"):
        matching.potentials(graph, matching.moments(graph, [[0, 0], [1, 1], [1, 0]]))
    with pytest.raises(ff.InvalidInputError, match=r"got 0 in unary\[0\] \(entry 1\)"):
        matching.potentials(graph, matching.moments(graph, [[0, 0], [0, 1]]))
    with pytest.raises(ff.InvalidInputError, match=r"samples\[1\]: the label of variable 0 must"):
        matching.moments(graph, [[0, 0], [-1, 0]])
    with pytest.raises(ff.InvalidInputError, match="samples must hold at least one row, got none"):
        matching.moments(graph, np.zeros((0, 2), dtype=int))
    with pytest.raises(ff.InvalidInputError, match=r"samples must be an integer array of shape"):
        matching.moments(graph, [[0.5, 0.0]])
    with pytest.raises(ff.InvalidInputError, match="weights must be 1 finite numbers"):
        matching.moments(graph, [[0, 0]], weights=[-1.0])
    uneven = ff.Beliefs(graph, np.full(4, 0.5), np.array([0.4, 0.2, 0.2, 0.2]))
    with pytest.raises(ff.InvalidInputError, match="margins are the unary ones, got a difference"):
        matching.potentials(graph, uneven)
    with pytest.raises(ff.InvalidInputError, match="moments must belong to the given graph"):
        matching.potentials(ff.FactorGraph.chain(3, 2), uneven)
    with pytest.raises(ff.InvalidInputError, match="weights that do not depend on the potentials"):
        MomentMatching(ff.TreeReweighted("optimized"))
    with pytest.raises(ff.InvalidInputError, match="smoothing must be at least 0"):
        MomentMatching(smoothing=-1.0)
    with pytest.raises(ff.InvalidInputError, match="entropy must be an object"):
        MomentMatching("trw")


# -- perceptron and max-margin ------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_default_oracle(seed, missing):
    """Right wherever it calls itself converged, and never above the truth or negative."""
    graph, potentials, labels = random_case(seed, missing)
    batch = ff.graph.Batch.of([graph])
    for objective, margin in ((Perceptron(), 0.0), (MaxMargin(), 1.0)):
        evaluation = objective.evaluate(batch, potentials, labels)
        expected = twin.hinge(graph, potentials, labels, margin)
        if graph.is_acyclic:
            assert evaluation.converged_examples.all()
        if evaluation.converged_examples.all():
            assert evaluation.values[0] == pytest.approx(expected, abs=1e-9)
        assert evaluation.values[0] >= 0.0


def test_unproved_maxima_count_as_unconverged():
    """Max-product with one sweep on frustrated couplings; the union knows which examples."""
    rng = np.random.default_rng(6)
    hard, potentials = ising(rng, 6, 6, coupling=3.0)
    easy = ff.FactorGraph.chain(36, 2)
    batch = ff.graph.Batch.of([easy, hard, easy])
    joined = batch.pack([random_tables(rng, easy), potentials, random_tables(rng, easy)])
    labels = random_labels(rng, batch.graph)
    evaluation = MaxMargin().evaluate(batch, joined, labels)
    assert not evaluation.converged_examples[1]
    assert np.all(evaluation.values >= 0.0)


def test_labels_better_than_what_the_search_found_are_the_maximum():
    class Bad(MapSearch):
        """Always finds the first label."""

        def run_batch(self, batch, potentials, observed=None, progress=None):
            labels = np.zeros(batch.graph.n_variables, dtype=np.int32)
            scores = batch.scores(potentials, labels)
            unproved = np.zeros(batch.n_examples, dtype=bool)
            return ff.MapResult(
                labels, 0.0, np.inf, False, "", scores=scores, optimal_examples=unproved
            )

    graph = ff.FactorGraph.chain(2, 2)
    potentials = ff.Potentials(graph, [[0.0, 3.0], [0.0, 3.0]])
    evaluation = MaxMargin(Bad()).evaluate(ff.graph.Batch.of([graph]), potentials, np.array([1, 1]))
    assert evaluation.values == [0.0]
    assert np.all(flat(evaluation.gradient) == 0.0)
    assert not evaluation.converged_examples[0]


def test_at_zero_weights_the_perceptron_begins():
    graph = ff.FactorGraph.chain(3, 2)
    value, gradient = Perceptron().value_and_grad(graph, ff.Potentials(graph), [1, 0, 1])
    assert value == 0.0
    assert np.any(flat(gradient) != 0.0)


def test_the_margin_counts_only_labelled_variables():
    graph = ff.FactorGraph.chain(4, 3)
    value, _ = MaxMargin().value_and_grad(graph, ff.Potentials(graph), [1, -1, 2, -1])
    assert value == pytest.approx(2.0)


def test_margin_options():
    with pytest.raises(ff.InvalidInputError, match="loss must be one of 'hamming', got 'zero-one'"):
        MaxMargin(loss="zero-one")
    for objective in (MaxMargin, Perceptron):
        with pytest.raises(ff.InvalidInputError, match="oracle must be an object such as"):
            objective("exact")
        assert not objective.is_smooth
        assert objective.decode == "map"


@pytest.mark.parametrize("solver", [ff.MaxProduct(), ff.MaxProduct(ff.TreeReweighted()),
                                    ff.ExactMap()], ids=repr)  # fmt: skip
@pytest.mark.parametrize("with_evidence", [False, True])
def test_map_of_a_batch(solver, with_evidence):
    problems = [p for p in PROBLEMS if p.graph.n_variables and not p.has_zeros and p.scale < 100]
    batch = ff.graph.Batch.of([p.graph for p in problems])
    joined = batch.pack([p.potentials for p in problems])
    observed = np.full(batch.graph.n_variables, -1)
    if with_evidence:
        observed[batch.variable_offsets[:-1]] = 0
    result = solver.run_batch(batch, joined, observed)
    np.testing.assert_allclose(result.scores, batch.scores(joined, result.labels))
    assert result.score == pytest.approx(result.scores.sum())
    assert result.optimal == result.optimal_examples.all()
    for m, problem in enumerate(problems):
        best = twin.scores(problem.graph, problem.potentials,
                           {0: 0} if with_evidence else None).max()  # fmt: skip
        assert result.scores[m] <= best + 1e-9
        if result.optimal_examples[m]:
            assert result.scores[m] == pytest.approx(best)
        if problem.graph.is_acyclic and result.converged:
            assert result.optimal_examples[m]
    assert result.upper_bound >= result.score - 1e-9


# -- names and predictions ----------------------------------------------------------------


def test_names():
    for name in OBJECTIVES:
        objective = make_objective(name)
        assert isinstance(objective, Objective)
        assert make_objective(objective) is objective
    for kind in (Likelihood, PseudoLikelihood, Piecewise, MomentMatching, Perceptron, MaxMargin):
        assert isinstance(make_objective(kind.name), kind)
    assert isinstance(make_objective("trw").inference.entropy, ff.TreeReweighted)
    assert isinstance(make_objective("bethe").inference.entropy, ff.Bethe)
    assert isinstance(make_objective("convex").inference.entropy, ff.Convex)
    assert isinstance(make_objective("mean-field").inference, ff.MeanField)
    for wrong in ("pseudo", 3, None):
        with pytest.raises(ff.InvalidInputError, match=r"objective must be one of 'likelihood',"):
            make_objective(wrong)


def test_predictions():
    tree, grid = ff.FactorGraph.chain(4, 2), ff.FactorGraph.grid(2, 2, 2)
    assert default_prediction(tree) == ff.SumProduct()
    assert default_prediction(grid) == ff.SumProduct(ff.TreeReweighted())
    for name in ("pseudolikelihood", "piecewise", "perceptron", "max-margin"):
        assert make_objective(name).prediction(grid) == default_prediction(grid)
    assert MomentMatching(ff.Bethe()).prediction(grid) == ff.SumProduct(ff.Bethe())
    assert default_oracle(tree) == ff.MaxProduct()
    for name in OBJECTIVES:
        objective = make_objective(name)
        result = objective.prediction(grid).run_batch(
            ff.graph.Batch.of([grid]), ff.Potentials(grid)
        )
        np.testing.assert_allclose(result.beliefs.unary_values, 0.5)
