"""Small models with shared features for the tests of CAMEL, and ways to run its rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import fieldfit as ff
from fieldfit.learners.base import Penalty
from fieldfit.learners.camel_rounds import CamelRounds, Rounds
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.learners.linear_model import LinearModel, LinearPart
from fieldfit.learners.problem import Part, Problem, TemplateProblem

SOLVERS = ("joint", "double-loop")
VARIANTS = ("camel0", "cccp", "cccp-empirical")

#: Rounds to the last digit: what is compared is then the optimum, and not where a run stopped.
EXACTLY = LBFGS(max_iter=3000, tol=1e-7, value_tol=0.0, history=30)


def camel(variant="cccp", solver="joint", **options):
    """The objective with rounds to the last digit."""
    tight = {"round_tol": 1e-6, "tol": 1e-12, "max_rounds": 400, **options}
    return ff.Camel(variant, solver=solver, **tight)


# -- the example of the paper -------------------------------------------------------------


def three_clusters(objective):
    """Binary A, B, C in a triangle; ``f00`` and ``f11`` shared by all pairs; three samples."""
    graph = ff.FactorGraph.from_edges(3, [(0, 1), (1, 2), (0, 2)], 2)
    batch = ff.graph.Batch.of([graph] * 3)
    starts = batch.graph.table_offsets[:-1].astype(np.int64)
    block = ff.graph.Block("pairs", "factors", starts, np.array([0, -1, -1, 1]))
    labels = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0]], dtype=np.int32).ravel()
    return TemplateProblem(
        objective, [Part(batch, ff.graph.Template(batch.graph, [block]), labels)]
    )


# -- random models ------------------------------------------------------------------------

#: Tables of 2 x 2 x 3 labels: one weight for each third label, used if the first two agree.
AGREEING = np.where(np.eye(2, dtype=bool)[:, :, None], np.arange(3), -1).ravel()


@dataclass(frozen=True)
class Example:
    """A graph whose variables have two labels (the first ``n_binary``) or three."""

    graph: ff.FactorGraph
    n_binary: int
    features: np.ndarray
    labels: np.ndarray

    def kinds(self):
        """Every factor's table shape."""
        return [self.graph.table_shape(a) for a in range(self.graph.n_factors)]


def random_example(rng):
    """Loops of pairs and of a factor of arity three, one of arity one, an isolated variable."""
    n_binary, n_ternary = int(rng.integers(3, 5)), int(rng.integers(2, 4))
    binary, ternary = list(range(n_binary)), list(range(n_binary, n_binary + n_ternary))
    scopes = [(i, (i + 1) % n_binary) for i in binary]
    scopes += [(j % n_binary, j) for j in ternary]
    scopes += [(0, 1, ternary[0]), (1,)]
    order = rng.permutation(len(scopes))
    cardinalities = [2] * n_binary + [3] * n_ternary + [3]  # the last one has no factor
    graph = ff.FactorGraph(cardinalities, [scopes[k] for k in order])
    features = np.column_stack([np.ones(graph.n_variables), rng.normal(size=graph.n_variables)])
    return Example(graph, n_binary, features, rng.integers(0, graph.cardinalities))


def part_of(examples, example_weights=None):
    """One block for each kind of table: five kinds, three arities, two numbers of labels."""
    batch = ff.graph.Batch.of([example.graph for example in examples])
    graph = batch.graph
    features = np.concatenate([example.features for example in examples])
    binary, ternary = (np.flatnonzero(graph.cardinalities == k) for k in (2, 3))
    kinds = [kind for example in examples for kind in example.kinds()]

    def factors(*shape):
        return np.flatnonzero([kind == shape for kind in kinds])

    starts = graph.table_offsets[factors(2, 2, 3)].astype(np.int64)
    blocks = [
        ff.graph.Block.unary(graph, features[binary], variables=binary, name="binary"),
        ff.graph.Block.unary(graph, features[ternary], variables=ternary, name="ternary"),
        ff.graph.Block.tables(graph, "symmetric", factors=factors(2, 2), name="pairs"),
        ff.graph.Block.tables(graph, factors=factors(2, 3), name="mixed pairs"),
        ff.graph.Block("triples", "factors", starts, AGREEING),
        ff.graph.Block.tables(graph, factors=factors(2), name="single"),
    ]
    labels = np.concatenate([example.labels for example in examples]).astype(np.int32)
    return Part(batch, ff.graph.Template(graph, blocks), labels, example_weights)


def conditional(objective=None, *, seed=1, n_examples=6, n_parts=1, weighted=True, n_jobs=None):
    """Examples with graphs and features of their own, labels at random: all moments are inside."""
    rng = np.random.default_rng(seed)
    examples = [random_example(rng) for _ in range(n_examples)]
    weights = rng.uniform(0.2, 2.0, n_examples)
    parts = [
        part_of([examples[m] for m in rows], weights[rows] if weighted else None)
        for rows in np.array_split(np.arange(n_examples), n_parts)
    ]
    return TemplateProblem(camel() if objective is None else objective, parts, n_jobs)


class TiedModel(Problem):
    """A generative model with tied weights: one graph stands for all samples."""

    n_parts = 1
    is_complete = True

    def __init__(self, objective=None, *, seed=0, n_samples=60):
        rng = np.random.default_rng(seed)
        edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4), (4, 0)]
        self.objective = camel() if objective is None else objective
        self.graph = ff.FactorGraph.from_edges(5, edges, 2)
        samples = rng.integers(0, 2, (n_samples, 5))
        for i in range(1, 5):  # neighbours that agree more often than not
            copied = rng.random(n_samples) < 0.5
            samples[:, i] = np.where(copied, samples[:, i - 1], samples[:, i])
        blocks = [
            ff.graph.Block.unary(self.graph),
            ff.graph.Block.tables(self.graph, "potts", factors=[0, 1, 2, 3], name="ring"),
            ff.graph.Block.tables(self.graph, "potts-labels", factors=[4, 5, 6], name="chords"),
        ]
        self.template = ff.graph.Template(self.graph, blocks)
        self.n_weights = self.template.n_weights
        indicators = [ff.Beliefs.from_labels(self.graph, row) for row in samples]
        self.frequencies = np.mean([given.unary_values for given in indicators], axis=0)
        self.statistics = sum(self.template.gradient(given) for given in indicators)
        self.n_samples = n_samples

    def evaluate(self, weights):
        raise NotImplementedError("the rounds need statistics only")

    def evaluate_part(self, weights, part):
        return self.evaluate(weights)

    def linear_model(self):
        batch, weight = ff.graph.Batch.of([self.graph]), np.array([float(self.n_samples)])
        part = LinearPart(batch, self.template, self.frequencies, weight)
        return LinearModel([part], self.statistics, self.n_samples)


# -- runs ---------------------------------------------------------------------------------


def learn(problem, l2=0.0, l1=0.0, inner=EXACTLY, **options):
    """A whole run from zero."""
    learner = CamelRounds(problem.objective, inner=inner)
    penalty = Penalty(l2=l2, l1=l1)
    return learner.minimize(problem, np.zeros(problem.n_weights), penalty=penalty, **options)


def run_rounds(problem, l2=0.0, inner=EXACTLY):
    """The rounds in their last state, with what only they know: beliefs and multipliers."""
    rounds = Rounds(problem.objective, inner, problem.linear_model(), Penalty(l2=l2))
    rounds.begin(np.zeros(problem.n_weights))
    rows = []
    while rounds.outcome is None:
        rows.append(rounds.step())
    assert rounds.outcome.converged, rounds.outcome.status
    return rounds, rows


def round_ends(trace):
    """The last row of every round: ``objective`` is ``D_t``, ``entropy`` is ``L_t``."""
    return [row for row in trace if "entropy" in row]
