"""Unrolled sweeps against a plain twin, and their derivatives against finite differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from problems import PROBLEMS
from reference.sum_product import SumProductTwin

import fieldfit as ff
from fieldfit.entropy.counting_numbers import CountingNumbers, Entropy
from fieldfit.inference.messages.unrolled_plans import _slots_and_levels, batch_plan
from fieldfit.inference.messages.unrolled_sum_product import UnrolledSumProduct

ENTROPIES = {
    "Bethe": ff.Bethe(),
    "tree-reweighted": ff.TreeReweighted(),
    "convex": ff.Convex(unary=0.2, factor=0.7),
}
SCHEDULES = ("sequential", "flooding", "tree")
STEP = 1e-5
SIZED = [p for p in PROBLEMS if p.graph.n_variables]

by_entropy = pytest.mark.parametrize("entropy", list(ENTROPIES))
by_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
by_damping = pytest.mark.parametrize("damping", [0.0, 0.4])


def flat(vector):
    return np.concatenate([vector.unary_values, vector.factor_values])


def unflat(graph, values):
    cut = int(graph.unary_offsets[-1])
    return ff.Potentials.from_flat(graph, values[:cut].copy(), values[cut:].copy())


def random_direction(graph, rng, like=None):
    """Normal numbers in the layout of potentials, zero where ``like`` is infinite."""
    values = rng.normal(size=int(graph.unary_offsets[-1] + graph.table_offsets[-1]))
    return values if like is None else np.where(np.isfinite(like), values, 0.0)


def random_potentials(graph, rng, scale=1.0):
    return unflat(graph, scale * random_direction(graph, rng))


def beliefs_of(sweeps, graph, potentials, observed=None):
    return sweeps.record(ff.graph.Batch.of([graph]), potentials, observed).beliefs()


def vjp_of(sweeps, graph, potentials, direction, observed=None, entropy=False):
    run = sweeps.record(ff.graph.Batch.of([graph]), potentials, observed)
    return run.vjp(unflat(graph, direction), run.beliefs(), entropy=entropy)


# -- forward ------------------------------------------------------------------------------


@by_damping
@by_schedule
@by_entropy
def test_forward_is_the_plain_twin(entropy, schedule, damping):
    rule = ENTROPIES[entropy]
    sweeps = UnrolledSumProduct(3, entropy=rule, schedule=schedule, damping=damping)
    for problem in SIZED:
        graph, counting = problem.graph, rule.counting_numbers(problem.graph)
        twin = SumProductTwin(graph, problem.potentials, counting, problem.observed)
        plan = batch_plan(ff.graph.Batch.of([graph]), schedule, None, counting)
        slots, levels = _slots_and_levels(graph, plan)
        slots = slots[np.argsort(levels, kind="stable")]
        for _ in range(3):
            if schedule == "flooding":
                twin.flooding_sweep(damping)
            else:
                twin.slot_sweep(slots, damping)
        actual = beliefs_of(sweeps, graph, problem.potentials, problem.observed)
        np.testing.assert_allclose(
            flat(actual), flat(twin.beliefs()), rtol=0, atol=1e-11, err_msg=problem.name
        )
        result = sweeps.run(graph, problem.potentials, problem.observed)
        np.testing.assert_allclose(flat(result.beliefs), flat(actual), rtol=0, atol=1e-13)


def test_a_result_claims_nothing():
    graph = ff.FactorGraph.grid(4, 4, 2)
    potentials = random_potentials(graph, np.random.default_rng(0))
    result = UnrolledSumProduct(2).run(graph, potentials)
    assert not result.converged
    assert result.bound is None
    assert result.converged_examples is None  # nothing to warn of: this is what was asked for
    assert result.n_iter == 2
    assert result.residual > 0.0
    assert result.status.startswith("stopped after 2 sweeps, as asked")
    assert UnrolledSumProduct(1).run(graph, potentials).status.startswith("stopped after 1 sweep,")


def test_many_sweeps_are_a_fixed_point():
    graph = ff.FactorGraph.grid(5, 4, 3)
    potentials = random_potentials(graph, np.random.default_rng(1), 0.5)
    expected = ff.SumProduct(tol=1e-12).run(graph, potentials)
    actual = UnrolledSumProduct(100).run(graph, potentials)
    np.testing.assert_allclose(flat(actual.beliefs), flat(expected.beliefs), atol=1e-10)
    assert actual.log_partition == pytest.approx(expected.log_partition, rel=1e-12)


def test_contradictions_raise():
    graph = ff.FactorGraph.chain(2, 2)
    only = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    potentials = ff.Potentials(graph, [[-np.inf, 0.0], None], [only])
    with pytest.raises(ff.errors.ZeroWeightError):
        UnrolledSumProduct(2).run(graph, potentials)


# -- derivatives --------------------------------------------------------------------------


@by_damping
@by_schedule
@by_entropy
def test_transposed_product(entropy, schedule, damping):
    """``<u, J v>`` by finite differences is ``<J^T u, v>``, for every problem."""
    rng = np.random.default_rng(2)
    sweeps = UnrolledSumProduct(3, entropy=ENTROPIES[entropy], schedule=schedule, damping=damping)
    for problem in SIZED:
        if problem.scale > 100:
            continue  # beliefs are 0 or 1 and so are differences
        graph, start = problem.graph, flat(problem.potentials)
        for _ in range(3):
            u, v = random_direction(graph, rng), random_direction(graph, rng, start)
            ends = [
                flat(beliefs_of(sweeps, graph, unflat(graph, start + s * v), problem.observed))
                for s in (STEP, -STEP)
            ]
            expected = np.dot(u, ends[0] - ends[1]) / (2 * STEP)
            (gradient,) = vjp_of(sweeps, graph, problem.potentials, u, problem.observed).potentials
            found = flat(gradient)
            assert np.isfinite(found).all(), problem.name
            assert np.all(found[np.isneginf(start)] == 0.0), problem.name
            scale = max(1.0, float(np.abs(found).max()) * np.sqrt(len(v)))
            assert np.dot(found, v) == pytest.approx(expected, abs=1e-6 * scale), problem.name


@by_schedule
@pytest.mark.parametrize("kind", ["binary grid", "five labels", "arity three"])
def test_every_entry_of_a_gradient(kind, schedule):
    rng = np.random.default_rng(3)
    graph = {
        "binary grid": ff.FactorGraph.grid(3, 3, 2),
        "five labels": ff.FactorGraph([5] * 4, [(0, 1), (1, 2), (2, 0), (2, 3)]),
        "arity three": ff.FactorGraph([2, 3, 2, 3], [(0, 1, 2), (1, 3), (2, 3, 0), (3,)]),
    }[kind]
    sweeps = UnrolledSumProduct(2, entropy=ff.TreeReweighted(), schedule=schedule, damping=0.2)
    start, u = random_direction(graph, rng), random_direction(graph, rng)
    (gradient,) = vjp_of(sweeps, graph, unflat(graph, start), u).potentials
    for z in range(len(start)):
        ends = []
        for sign in (1.0, -1.0):
            moved = start.copy()
            moved[z] += sign * STEP
            ends.append(flat(beliefs_of(sweeps, graph, unflat(graph, moved))))
        expected = np.dot(u, ends[0] - ends[1]) / (2 * STEP)
        assert flat(gradient)[z] == pytest.approx(expected, abs=1e-6)


def test_the_transposed_product_can_fail():
    rng = np.random.default_rng(4)
    graph = ff.FactorGraph.grid(3, 3, 2)
    sweeps = UnrolledSumProduct(3)
    start, u, v = (random_direction(graph, rng) for _ in range(3))
    (right,) = vjp_of(sweeps, graph, unflat(graph, start), u).potentials
    (wrong,) = vjp_of(UnrolledSumProduct(2), graph, unflat(graph, start), u).potentials
    assert np.dot(flat(right), v) != pytest.approx(np.dot(flat(wrong), v), rel=1e-3)


@pytest.mark.parametrize("n_labels", [2, 4])
@by_entropy
def test_huge_potentials_and_hard_zeros(entropy, n_labels):
    """Sums that underflow are computed again in logarithms: same derivative as a twin's."""
    rng = np.random.default_rng(5)
    graph = ff.FactorGraph.grid(3, 3, n_labels)
    start = random_direction(graph, rng)
    tables = start[graph.unary_offsets[-1] :].reshape(-1, n_labels, n_labels)
    tables[:, 0, 0] -= 2000.0  # a table entry that vanishes in the linear domain ...
    tables[:, :, 0] -= 1500.0  # ... and sums of nothing but such entries
    tables[2, 1, 1] = -np.inf
    sweeps = UnrolledSumProduct(2, entropy=ENTROPIES[entropy])
    for _ in range(4):
        u, v = random_direction(graph, rng), random_direction(graph, rng, start)
        ends = [
            flat(beliefs_of(sweeps, graph, unflat(graph, start + s * v))) for s in (STEP, -STEP)
        ]
        expected = np.dot(u, ends[0] - ends[1]) / (2 * STEP)
        (gradient,) = vjp_of(sweeps, graph, unflat(graph, start), u).potentials
        assert np.dot(flat(gradient), v) == pytest.approx(expected, abs=1e-6)


def test_going_back_twice_gives_the_same():
    rng = np.random.default_rng(6)
    graph = ff.FactorGraph.grid(4, 4, 3)
    run = UnrolledSumProduct(3).record(ff.graph.Batch.of([graph]), random_potentials(graph, rng))
    beliefs, u = run.beliefs(), unflat(graph, random_direction(graph, rng))
    first, second = (run.vjp(u, beliefs).potentials[0] for _ in range(2))
    np.testing.assert_array_equal(flat(first), flat(second))


# -- counting numbers ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Given(Entropy):
    """Any counting numbers of factors and any totals of variables."""

    factor: np.ndarray
    total: np.ndarray

    def compute(self, graph):
        variable = self.total - np.bincount(
            graph.slot_variables, self.factor[graph.slot_factors], graph.n_variables
        )
        # read-only, as entropies make them: kernels are compiled for that
        self.factor.flags.writeable = self.total.flags.writeable = False
        return CountingNumbers(
            self.factor, variable, self.total, bound=None, concave=False, reason="given"
        )


@by_damping
@by_schedule
@pytest.mark.parametrize("name", ["grid of two labels", "mixed cardinalities", "arity four",
                                  "zeros on a grid", "isolated variables"])  # fmt: skip
def test_derivative_by_counting_numbers(name, schedule, damping):
    (problem,) = (p for p in PROBLEMS if p.name == name)
    graph, rng = problem.graph, np.random.default_rng(7)
    is_linking = graph.arities >= 2
    factor = np.where(is_linking, rng.uniform(0.5, 1.5, graph.n_factors), 0.0)
    total = rng.uniform(0.7, 2.0, graph.n_variables)
    u = random_direction(graph, rng)

    def value(factor, total):
        sweeps = UnrolledSumProduct(
            3, entropy=Given(factor, total), schedule=schedule, damping=damping
        )
        return np.dot(u, flat(beliefs_of(sweeps, graph, problem.potentials, problem.observed)))

    sweeps = UnrolledSumProduct(3, entropy=Given(factor, total), schedule=schedule, damping=damping)
    found = vjp_of(sweeps, graph, problem.potentials, u, problem.observed, entropy=True)
    for actual, which in ((found.factor, 0), (found.variable_total, 1)):
        for z in range(len(actual)):
            if which == 0 and not is_linking[z]:
                assert actual[z] == 0.0
                continue
            ends = []
            for sign in (1.0, -1.0):
                numbers = [factor.copy(), total.copy()]
                numbers[which][z] += sign * STEP
                ends.append(value(*numbers))
            expected = (ends[0] - ends[1]) / (2 * STEP)
            assert actual[z] == pytest.approx(expected, abs=1e-6), (which, z)
    (plain,) = vjp_of(sweeps, graph, problem.potentials, u, problem.observed).potentials
    np.testing.assert_array_equal(flat(plain), flat(found.potentials[0]))


# -- potentials of their own for each sweep -----------------------------------------------


@by_damping
@by_schedule
@by_entropy
def test_each_sweep_with_its_own_potentials(entropy, schedule, damping):
    rng = np.random.default_rng(8)
    graph = ff.FactorGraph([2, 3, 2, 3], [(0, 1), (1, 2, 3), (0, 3), (2,), (0, 2)])
    batch = ff.graph.Batch.of([graph])
    sweeps = UnrolledSumProduct(3, entropy=ENTROPIES[entropy], schedule=schedule, damping=damping)
    starts = [random_direction(graph, rng) for _ in range(3)]
    u = random_direction(graph, rng)
    run = sweeps.record(batch, [unflat(graph, start) for start in starts])
    found = run.vjp(unflat(graph, u), run.beliefs()).potentials
    assert len(found) == 3
    for sweep in range(3):
        v = random_direction(graph, rng)
        ends = []
        for sign in (1.0, -1.0):
            moved = [start + sign * STEP * v * (t == sweep) for t, start in enumerate(starts)]
            again = sweeps.record(batch, [unflat(graph, values) for values in moved])
            ends.append(flat(again.beliefs()))
        expected = np.dot(u, ends[0] - ends[1]) / (2 * STEP)
        assert np.dot(flat(found[sweep]), v) == pytest.approx(expected, abs=1e-6)


def test_equal_potentials_for_each_sweep_change_nothing():
    rng = np.random.default_rng(9)
    graph = ff.FactorGraph.grid(4, 5, 3)
    batch, potentials = ff.graph.Batch.of([graph]), random_potentials(graph, rng)
    u = unflat(graph, random_direction(graph, rng))
    for checkpoints in (None, 2):
        sweeps = UnrolledSumProduct(4, checkpoints=checkpoints)
        shared, separate = sweeps.record(batch, potentials), sweeps.record(batch, [potentials] * 4)
        np.testing.assert_allclose(
            flat(shared.beliefs()), flat(separate.beliefs()), rtol=0, atol=1e-14
        )
        (expected,) = shared.vjp(u, shared.beliefs()).potentials
        found = separate.vjp(u, separate.beliefs()).potentials
        np.testing.assert_allclose(sum(flat(one) for one in found), flat(expected), atol=1e-12)


# -- checkpoints, threads, batches, orders ------------------------------------------------


def everything(sweeps, batch, potentials, u):
    run = sweeps.record(batch, potentials)
    beliefs = run.beliefs()
    found = run.vjp(u, beliefs, entropy=True)
    return np.concatenate(
        [flat(beliefs), *map(flat, found.potentials), found.factor, found.variable_total]
    )


@by_schedule
@pytest.mark.parametrize("checkpoints", [1, 2, 3, 7, 100, "sqrt"])
def test_checkpoints_give_the_same_bits(schedule, checkpoints):
    rng = np.random.default_rng(10)
    graph = ff.FactorGraph([2, 3, 2, 3, 2, 2], [(0, 1), (1, 2, 3), (0, 3), (4, 5), (0, 4), (5, 2)])
    batch = ff.graph.Batch.of([graph, ff.FactorGraph.grid(4, 4, 2)])
    potentials = random_potentials(batch.graph, rng)
    u = unflat(batch.graph, random_direction(batch.graph, rng))
    expected = everything(UnrolledSumProduct(7, schedule=schedule), batch, potentials, u)
    sweeps = UnrolledSumProduct(7, schedule=schedule, checkpoints=checkpoints)
    np.testing.assert_array_equal(everything(sweeps, batch, potentials, u), expected)


@by_schedule
@pytest.mark.parametrize("n_labels", [2, 3])
def test_threads_give_the_same_bits(schedule, n_labels):
    rng = np.random.default_rng(11)
    scopes = [(i, i + 1, i + 2) for i in range(0, 1500, 3)]
    mixed = ff.FactorGraph([n_labels] * 1500 + [5] * 3, [*scopes[:-1], (1500, 1501), (1502, 0)])
    batch = ff.graph.Batch.of([ff.FactorGraph.grid(50, 60, n_labels), mixed])
    potentials = random_potentials(batch.graph, rng)
    u = unflat(batch.graph, random_direction(batch.graph, rng))
    one, two = (
        everything(
            UnrolledSumProduct(3, schedule=schedule, damping=0.1, n_jobs=n_jobs),
            batch, potentials, u,
        )
        for n_jobs in (None, 2)
    )  # fmt: skip
    np.testing.assert_array_equal(two, one)


@by_schedule
@by_entropy
def test_an_example_does_not_depend_on_its_company(entropy, schedule):
    """Not even where the plan of a union would be another one: runs, cycles, forests."""
    rng = np.random.default_rng(12)
    graphs = [
        ff.FactorGraph.grid(40, 50, 5), ff.FactorGraph.chain(9, 5), ff.FactorGraph.grid(3, 3, 2),
        ff.FactorGraph([]), ff.FactorGraph([2, 2, 3], [(0, 1, 2), (2,)]),
    ]  # fmt: skip
    potentials = [random_potentials(graph, rng) for graph in graphs]
    sweeps = UnrolledSumProduct(2, entropy=ENTROPIES[entropy], schedule=schedule)
    for chosen in ([0, 2], [2, 0, 1, 3, 4], [1, 4]):
        batch = ff.graph.Batch.of([graphs[m] for m in chosen])
        result = sweeps.run_batch(batch, batch.pack([potentials[m] for m in chosen]))
        for m, part in zip(chosen, batch.split(result.beliefs), strict=True):
            alone = sweeps.run(graphs[m], potentials[m])
            np.testing.assert_allclose(flat(part), flat(alone.beliefs), rtol=0, atol=1e-13)


def test_orders():
    rng = np.random.default_rng(13)
    graphs = [ff.FactorGraph.grid(4, 6, 3), ff.FactorGraph.grid(4, 6, 3)]
    batch = ff.graph.Batch.of(graphs)
    potentials = [random_potentials(graph, rng) for graph in graphs]
    joined = batch.pack(potentials)
    for order, expected_order in (
        ("grid", ff.inference.grid_clique_order(4, 6)),
        (ff.inference.grid_clique_order(4, 6), ff.inference.grid_clique_order(4, 6)),
        (np.arange(24)[::-1], np.arange(24)[::-1]),
    ):
        sweeps = UnrolledSumProduct(2, order=order)
        together = batch.split(sweeps.record(batch, joined).beliefs())
        for graph, one, part in zip(graphs, potentials, together, strict=True):
            exact = ff.SumProduct(order=expected_order, damping=0.0, tol=1e-300, max_iter=2)
            np.testing.assert_allclose(
                flat(part), flat(exact.run(graph, one).beliefs), rtol=0, atol=1e-12
            )
        u, v = (random_direction(batch.graph, rng) for _ in range(2))
        start = flat(joined)
        ends = [
            flat(sweeps.record(batch, unflat(batch.graph, start + s * v)).beliefs())
            for s in (STEP, -STEP)
        ]
        run = sweeps.record(batch, joined)
        (gradient,) = run.vjp(unflat(batch.graph, u), run.beliefs()).potentials
        expected = np.dot(u, ends[0] - ends[1]) / (2 * STEP)
        assert np.dot(flat(gradient), v) == pytest.approx(expected, abs=1e-6)
    sizes = ff.graph.Batch.of([ff.FactorGraph.grid(2, 5, 2), ff.FactorGraph.grid(7, 1, 2)])
    found = UnrolledSumProduct(2, order="grid").record(sizes, ff.Potentials(sizes.graph)).beliefs()
    np.testing.assert_allclose(found.unary_values, 0.5)


def test_orders_that_do_not_fit():
    chain = ff.FactorGraph.chain(4, 2)
    ring = ff.FactorGraph([2] * 4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    with pytest.raises(ff.InvalidInputError, match="order='grid' needs graphs of FactorGraph"):
        UnrolledSumProduct(1, order="grid").run(ring, ff.Potentials(ring))
    batch = ff.graph.Batch.of([chain, ff.FactorGraph.chain(5, 2)])
    with pytest.raises(ff.InvalidInputError, match="order must hold for every example"):
        UnrolledSumProduct(1, order=[0, 1, 2, 3]).run_batch(batch, ff.Potentials(batch.graph))
    with pytest.raises(ff.InvalidInputError, match="order must name every variable"):
        UnrolledSumProduct(1, order=[0, 1, 2]).run(chain, ff.Potentials(chain))


def test_memory_of_the_tape():
    graph = ff.FactorGraph.grid(10, 10, 3)
    messages = int(graph.message_offsets[-1])
    whole = UnrolledSumProduct(49, schedule="flooding").tape_bytes(graph)
    assert whole == 49 * 8 * messages
    root = UnrolledSumProduct(49, schedule="flooding", checkpoints="sqrt").tape_bytes(graph)
    assert root == 8 * (7 * messages + 6 * (messages + 300))
    run = UnrolledSumProduct(49, schedule="flooding", checkpoints="sqrt").record(
        ff.graph.Batch.of([graph]), ff.Potentials(graph)
    )
    kept = sum(one.message.nbytes + one.log_belief.nbytes for one in run._kept)
    assert kept + sum(tape.pair.nbytes + tape.slot.nbytes for tape in run._tapes) == root


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_sweeps": 0}, "n_sweeps must be an integer of at least 1, got 0"),
        ({"n_sweeps": 2.0}, "n_sweeps must be an integer of at least 1"),
        ({"entropy": "bethe"}, "entropy must be an object with fixed counting numbers"),
        ({"entropy": ff.TreeReweighted("optimized")}, "entropy must be an object with fixed"),
        ({"schedule": "residual"}, "schedule must be one of"),
        ({"damping": 1.0}, r"damping must be in \[0, 1\)"),
        ({"checkpoints": 0}, "checkpoints must be an integer of at least 1"),
        ({"order": "rows"}, "order must be an array, 'grid' or None"),
        ({"order": [0, 1], "schedule": "flooding"}, "order needs schedule='sequential'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ff.InvalidInputError, match=message):
        UnrolledSumProduct(**options)


def test_bad_potentials():
    graph = ff.FactorGraph.chain(3, 2)
    batch, potentials = ff.graph.Batch.of([graph]), ff.Potentials(graph)
    with pytest.raises(ff.InvalidInputError, match="one for all sweeps or 3, one for each, got 2"):
        UnrolledSumProduct(3).record(batch, [potentials] * 2)
    other = ff.FactorGraph.chain(4, 2)
    run = UnrolledSumProduct(3).record(batch, potentials)
    with pytest.raises(ff.InvalidInputError, match="potentials must belong to the given graph"):
        run.vjp(ff.Potentials(other), run.beliefs())


@by_schedule
def test_rounding_does_not_grow(schedule):
    """Constants in a table change nothing, so derivatives sum to zero, on long paths as well.

    Each derivative by a message sums to zero too, but for rounding, which a variable would hand on
    to all its messages; without a remedy it reaches 1e-5 here after three sweeps along trees.
    """
    rng = np.random.default_rng(14)
    graph = ff.FactorGraph.grid(50, 60, 3)
    u = random_direction(graph, rng)
    sweeps = UnrolledSumProduct(3, schedule=schedule, damping=0.1)
    (gradient,) = vjp_of(sweeps, graph, random_potentials(graph, rng), u).potentials
    for values, offsets in (
        (gradient.unary_values, graph.unary_offsets),
        (gradient.factor_values, graph.table_offsets),
    ):
        np.testing.assert_allclose(np.add.reduceat(values, offsets[:-1]), 0.0, atol=1e-12)
