"""Conditional random fields over lists of examples: fit, predict, score and sample.

`ConditionalEstimator` is the part that all of them share.  `FactorGraphCRF` is for models whose
every example becomes a factor graph with features on its variables and factors (grids, graphs):

    p(y | x) ∝ exp(<Phi(x) w, y>)

Examples are gathered in parts of a few megabytes; each part is one batch with one template ``Phi``,
so that a training pass is a handful of kernel calls, and tables exist for one part at a time.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from fieldfit._random_state import random_generator
from fieldfit._typing import FloatArray, LabelArray
from fieldfit._validation import require_flag, require_integer, require_one_of, shown
from fieldfit.errors import (
    ConvergenceWarning,
    InvalidInputError,
    NoGainWarning,
    Place,
    TooLargeError,
)
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.template import Block, PairTying, Template
from fieldfit.io.stored import Stored
from fieldfit.learners.base import Learner, Validation
from fieldfit.learners.problem import WHOLE_KINDS, Part, Problem, TemplateProblem
from fieldfit.models.answer_list import AnswerList
from fieldfit.models.base import (
    FieldEstimator,
    Path,
    accuracy,
    are_log_probabilities,
    checked_labels,
    count_labels,
    example_weights,
    held_out_pair,
    require_features,
    require_list,
    require_pairs,
    with_clauses,
)
from fieldfit.models.dispatch import make_problem
from fieldfit.models.field_shards import FieldCoder, stored_labels
from fieldfit.models.parts import (
    Example,
    ExampleSize,
    FactorFeatures,
    GraphData,
    beliefs_of,
    best_labels,
    block_scales,
    block_shapes,
    bounds_of,
    draw_labels,
    even_groups,
    isolated_variables,
    make_parts,
    mini_batches,
    require_draws,
    summed_scales,
)
from fieldfit.models.penalties import (
    AUTO,
    PATH_TOL,
    Choice,
    RelativePenalty,
    Scales,
    check_l2,
    choose_penalty,
    l2_by_block,
    require_uninterrupted,
    standard_error,
)
from fieldfit.models.weight_names import template_names
from fieldfit.objectives.base import Objective
from fieldfit.shards.answers import ShardAnswers, shard_bounds, shard_score
from fieldfit.shards.cutting import SHARD_SIZE, cut_into_shards
from fieldfit.shards.reading import Shards, stored_weights
from fieldfit.shards.shard_problem import ShardProblem
from fieldfit.shards.workplace import Workplace

__all__ = ["ConditionalEstimator", "FactorGraphCRF"]

Examples = Sequence[Any]

#: Blocks of weights of single variables, which come first.
UNARY_BLOCKS = ("unary", "intercept")
#: Of independent variables: a convex problem of few weights.
INDEPENDENT_ITERATIONS = 200
#: Of the tables of one example, which are in memory at once.
MAX_TABLE_BYTES = 4e9


class ConditionalEstimator(FieldEstimator):
    """Abstract base: subclasses read examples, make problems of them, and decode.

    Options besides those of `FieldEstimator`: ``fit_intercept``, ``decode`` and ``batch_size``.
    """

    fit_intercept: bool
    decode: str | None
    batch_size: int | None

    #: Whether penalties are chosen by strengths (`fieldfit.models.penalties`).
    _has_scales = False

    # -- the public methods -------------------------------------------------------------------

    def fit(
        self,
        X: Examples | Shards,
        Y: Any = None,
        *,
        sample_weight: ArrayLike | None = None,
        checkpoint: Path | None = None,
        validation: tuple[Examples, Examples] | None = None,
        start: ArrayLike | None = None,
        client: Any = None,
    ) -> Any:
        """Learn the weights.

        Parameters
        ----------
        X, Y
            Examples and their labels, as the class describes them; ``-1`` is a missing label.  Or
            `fieldfit.shards.Shards`, which hold labels and weights of examples as well.
        sample_weight
            One factor for each example's share of the objective.
        checkpoint
            File to resume from if it exists, and to write progress to.
        validation
            Held-out ``(X, Y)``: its accuracy is put in the trace, and the fit ends when it has
            stopped rising.
        start
            Weights to begin with, such as ``weights_`` of a fit with a convex objective.  ``None``:
            those of independent variables on grids and graphs, else zeros.  Where every sweep has
            its own weights, those of one are repeated; where the entropy is fitted, it begins as
            given.
        client
            Who evaluates the shards: anything with ``submit(function, *arguments)``, such as a
            ``distributed.Client``, or `fieldfit.shards.Workers` with timeouts.  ``None``: this
            process.  The weights are the same, to the last bit.
        """
        self._check_options()
        objective = self._objective()
        self._decoding(objective)
        if isinstance(X, Shards):
            return self._fit_shards(
                objective, X, Y, sample_weight, checkpoint, validation, start, client
            )
        if client is not None:
            raise InvalidInputError(f"client must be None without shards, got {shown(client)}")
        self._require_examples(X, Y)
        weights = example_weights(sample_weight, len(X))
        self._reset_fit()
        choice = None
        if self.l2 == AUTO:
            choice = choose_penalty(self, X, Y, weights, validation, self._fixed_options(X, Y))
            self.path_ = choice.path
        l2 = self.l2 if choice is None else choice.l2
        problem = self._problem(objective, X, Y, weights)
        alone = self._independent_fit(X, Y, weights, l2, start, choice, validation)
        if choice is not None and choice.is_independent and alone is not None:
            self._take_independent(alone, problem, choice)
            warnings.warn(f"{type(self).__name__}: {self.status_}", NoGainWarning, stacklevel=2)
            return self
        first = None if alone is None else alone.weights_
        self._learn(
            problem,
            start,
            default_start=first if choice is None or choice.start is None else choice.start,
            checkpoint=checkpoint,
            validation=self._validation(objective, validation),
            l2=self._penalty_of(l2),
            clauses=() if choice is None else (choice.sentence,),
        )
        if alone is not None and choice is None and validation is not None:
            self._compare(alone, *validation)
        return self

    def _take_independent(self, alone: Any, problem: Problem, choice: Choice) -> None:
        """Become the fitted independent variables, with couplings of zero."""
        self.weights_ = problem.first_weights(alone.weights_)
        self.n_iter_, self.converged_, self.trace_ = alone.n_iter_, alone.converged_, alone.trace_
        self.status_ = with_clauses(alone.status_, [choice.sentence])

    def _compare(self, alone: Any, X: Examples, Y: Examples) -> None:
        """Say so if independent variables label held-out examples better."""
        field, sizes = self._right_labels(X, Y)
        plain, _ = alone._right_labels(X, Y)
        score, other = field.sum() / sizes.sum(), plain.sum() / sizes.sum()
        if other - score > standard_error(plain - field, sizes):
            clause = (
                "independent variables do better on the validation examples, accuracy "
                f"{other:.4f} against {score:.4f}: stronger penalties on couplings (l2='auto' "
                "chooses them) or another objective may help"
            )
            self.status_ = with_clauses(self.status_, [clause])
            warnings.warn(f"{type(self).__name__}: {self.status_}", NoGainWarning, stacklevel=3)

    def _fit_shards(
        self,
        objective: Objective,
        shards: Shards,
        Y: Any,
        sample_weight: Any,
        checkpoint: Path | None,
        validation: Any,
        start: Any,
        client: Any,
    ) -> Any:
        """`fit` on data that stay on disk."""
        for name, given in (("Y", Y), ("sample_weight", sample_weight)):
            if given is not None:
                raise InvalidInputError(
                    f"{name} must be None, because shards hold it, got {shown(given)}"
                )
        self._reset_fit()
        with ShardProblem(shards, self, objective, client) as problem:
            if self.l2 == AUTO:
                raise InvalidInputError(
                    "l2 must be a number, numbers by block or a RelativePenalty for shards: it can "
                    f"be chosen in memory on some of the examples; got {shown(self.l2)}"
                )
            if isinstance(self.l2, RelativePenalty):
                self._set_scales(objective, shards)
            alone = self._independent_fit(
                shards, None, None, self.l2, start, None, validation, client
            )
            self._learn(
                problem,
                start,
                default_start=None if alone is None else alone.weights_,
                checkpoint=checkpoint,
                validation=self._validation(objective, validation),
                l2=self._penalty_of(self.l2),
            )
        if alone is not None and validation is not None:
            self._compare(alone, *validation)
        return self

    @overload
    def predict(self, X: Shards) -> ShardAnswers: ...
    @overload
    def predict(self, X: Examples) -> list[NDArray[Any]]: ...
    def predict(self, X: Examples | Shards) -> list[NDArray[Any]] | ShardAnswers:
        """Labels of each example: of largest belief, or jointly best with ``decode="map"``.

        A list of arrays; for shards an iterable that computes them shard by shard and can write
        them (`fieldfit.shards.ShardAnswers`).
        """
        self._require_fit()
        if isinstance(X, Shards):
            return ShardAnswers(self, X, "labels")
        self._refuse_single(X)
        found, n_failed = self._best_labels(self._objective(), self._encode(X), self.weights_)
        self._warn(n_failed, len(X))
        return AnswerList(self._shown_labels(x, y) for x, y in zip(X, found, strict=True))

    @overload
    def predict_marginals(self, X: Shards) -> ShardAnswers: ...
    @overload
    def predict_marginals(self, X: Examples) -> list[FloatArray]: ...
    def predict_marginals(self, X: Examples | Shards) -> list[FloatArray] | ShardAnswers:
        """Beliefs of each example's variables, labels along the last axis.

        They come from the inference that the objective was trained with.  A list of arrays, or as
        in `predict` for shards.
        """
        self._require_fit()
        if isinstance(X, Shards):
            return ShardAnswers(self, X, "marginals")
        self._refuse_single(X)
        found, n_failed = self._beliefs(self._objective(), self._encode(X), self.weights_)
        self._warn(n_failed, len(X))
        return [self._shown(x, beliefs) for x, beliefs in zip(X, found, strict=True)]

    def score(self, X: Examples | Shards, Y: Any = None) -> float:
        """Share of labelled variables whose label `predict` finds; shards hold their labels."""
        self._require_fit()
        if isinstance(X, Shards):
            return shard_score(self, X, Y)
        self._require_examples(X, Y)
        labels = self._labels(X, Y)
        found, n_failed = self._best_labels(self._objective(), self._encode(X), self.weights_)
        self._warn(n_failed, len(X))
        return accuracy(labels, found)

    def _right_labels(self, X: Examples, Y: Examples) -> tuple[FloatArray, FloatArray]:
        """How many known labels of each example are found, and how many there are."""
        labels = self._labels(X, Y)
        found, _ = self._best_labels(self._objective(), self._encode(X), self.weights_)
        known = [y != -1 for y in labels]
        pairs = zip(labels, found, known, strict=True)
        right = [float((y[is_known] == z[is_known]).sum()) for y, z, is_known in pairs]
        return np.array(right), np.array([float(is_known.sum()) for is_known in known])

    # -- what subclasses say ------------------------------------------------------------------

    def _require_examples(self, X: Examples, Y: Any) -> None:
        """Refuse examples and labels that do not belong together."""
        self._refuse_single(X, Y)
        require_pairs(X, Y)

    def _refuse_single(self, X: Any, Y: Any = None) -> None:
        """Refuse one example where a list of them is needed."""

    def _shard_options(self) -> dict[str, Any]:
        """Options that decide how examples are stored in shards."""
        raise InvalidInputError(
            f"X must be a list of examples for {type(self).__name__}, got shards, which are for "
            "ChainCRF, GridCRF, GraphCRF, IsingModel and PottsModel"
        )

    @abstractmethod
    def _problem(
        self, objective: Objective, X: Examples, Y: Examples, weights: FloatArray | None
    ) -> Problem:
        """What the learner minimises; sets all that is known of the model before its weights."""

    @abstractmethod
    def _labels(self, X: Examples, Y: Examples) -> list[LabelArray]:
        """Labels of each example as numbers, in terms of the fitted model."""

    @abstractmethod
    def _encode(self, X: Examples, keep: bool = False) -> Any:
        """Examples as prediction takes them; ``keep``: more than once."""

    @abstractmethod
    def _best_labels(
        self, objective: Objective, encoded: Any, weights: FloatArray
    ) -> tuple[list[LabelArray], int]:
        """Labels of each example, and how many inferences did not converge."""

    @abstractmethod
    def _beliefs(
        self, objective: Objective, encoded: Any, weights: FloatArray
    ) -> tuple[list[FloatArray], int]:
        """Beliefs of each example's variables, and how many inferences did not converge."""

    def _fixed_options(self, X: Examples, Y: Examples) -> dict[str, Any]:
        """Options that fits on some of the examples take over from all of them."""
        return {}

    def _set_scales(self, objective: Objective, shards: Shards) -> None:
        """Find scales of blocks in a pass over shards, where penalties may be relative to them."""

    def _penalty_of(self, l2: Any) -> float | FloatArray:
        """The penalty of each weight."""
        if isinstance(l2, RelativePenalty):
            raise InvalidInputError(
                f"l2 must be a number or numbers by block for {type(self).__name__}, got {l2!r}"
            )
        return l2_by_block(l2, self._block_shapes)

    def _independent_fit(
        self,
        X: Examples | Shards,
        Y: Any,
        weights: FloatArray | None,
        l2: Any,
        start: Any,
        choice: Choice | None,
        validation: Any,
        client: Any = None,
    ) -> Any:
        """Fitted independent variables, where the fit needs them; else ``None``."""
        return None

    def _shown(self, x: Any, values: NDArray[Any]) -> NDArray[Any]:
        """Values of one example's variables (along the first axis) in the user's shape."""
        return values

    def _shown_labels(self, x: Any, labels: LabelArray) -> NDArray[Any]:
        """The same for labels, as the user names them."""
        return self._shown(x, labels)

    # -- options and held-out data --------------------------------------------------------------

    def _check_options(self) -> None:
        super()._check_options()
        require_integer("batch_size", self.batch_size, at_least=1, or_none=True)
        require_flag("fit_intercept", self.fit_intercept)

    def _check_l2(self) -> None:
        check_l2(self.l2)

    def _is_stochastic(self, objective: Objective) -> bool:
        """Whether the learner takes its steps part by part."""
        if self.learner is None:
            return not objective.is_smooth
        return self.learner in ("adam", "sgd") or (
            isinstance(self.learner, Learner) and self.learner.is_stochastic
        )

    def _decoding(self, objective: Objective) -> str:
        require_one_of("decode", self.decode, ("marginals", "map"), or_none=True)
        decode = objective.decode if self.decode is None else self.decode
        if decode == "map" and objective.n_weight_sets > 1:
            raise InvalidInputError(
                "decode must be 'marginals' with several sets of weights, got 'map'"
            )
        return decode

    def _held_out(self, objective: Objective, given: Any) -> Validation:
        X, Y = held_out_pair(given)
        self._require_examples(X, Y)
        labels = self._labels(X, Y)
        encoded = self._encode(X, keep=True)
        return lambda weights: accuracy(labels, self._best_labels(objective, encoded, weights)[0])


class FactorGraphCRF(ConditionalEstimator):
    """Abstract base: subclasses measure and read one example, and name the blocks of its tables.

    Options besides those of `ConditionalEstimator`: ``pairwise``, ``n_labels`` and
    ``ignore_label``.
    """

    _takes_weight_sets = True
    _has_scales = True

    unary: str
    pairwise: PairTying | Literal["auto"]
    n_labels: int | None
    ignore_label: int | None

    n_labels_: int
    n_features_in_: int
    #: What ``unary`` has become: ``"full"`` or ``"scale"``.
    unary_: str
    _block_scales: Scales

    # -- further public methods -----------------------------------------------------------------

    def log_likelihood_bounds(
        self, X: Examples | Shards, Y: Any = None
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on ``log p(y | x)`` of each example's known labels.

        Exact (both the same) where that is cheap; otherwise by tree-reweighted message passing and
        mean field, whatever objective the weights were learned with.
        """
        self._require_fit()
        self._require_potentials("log_likelihood_bounds")
        if isinstance(X, Shards):
            return shard_bounds(self, X, Y)
        self._require_examples(X, Y)
        return self._bounds(X, self._labels(X, Y))

    def _bounds(self, X: Examples, labels: list[LabelArray]) -> tuple[FloatArray, FloatArray]:
        return bounds_of(self._parts(X, labels), self.weights_, self.n_jobs)

    def sample(
        self,
        X: Examples,
        n_samples: int = 1,
        random_state: int | np.random.Generator | None = None,
        *,
        burn_in: int = 1000,
        n_sweeps_between: int = 10,
    ) -> list[NDArray[Any]]:
        """Labellings of each example from the model, samples along the first axis.

        Samples are exact and independent where that is cheap.  Otherwise Gibbs chains run for
        ``burn_in`` sweeps, and each gives a sample every ``n_sweeps_between``.
        """
        self._require_fit()
        self._require_potentials("sample")
        self._refuse_single(X)
        require_list("X", X)
        require_draws(n_samples, burn_in, n_sweeps_between)
        generators = random_generator(random_state).spawn(len(X))
        drawn = []
        groups = [np.array([index]) for index in range(len(X))]
        parts = make_parts(groups, self._reader(X), self._blocks)
        for x, part, generator in zip(X, parts, generators, strict=True):
            potentials = part.template.potentials(self.weights_)
            labels = draw_labels(
                part.batch.graph, potentials, n_samples, generator, burn_in, n_sweeps_between
            )
            drawn.append(np.moveaxis(self._shown(x, labels.T), -1, 0))
        return drawn

    # -- what subclasses say ------------------------------------------------------------------

    @property
    @abstractmethod
    def _plain_tables(self) -> PairTying:
        """Constant tables of edges, where ``pairwise="auto"``."""

    @abstractmethod
    def _measure(self, index: int, x: Any) -> ExampleSize:
        """How large an example is; refuses other shapes."""

    @abstractmethod
    def _example(self, index: int, x: Any) -> Example:
        """Graph (with ``n_labels_`` labels) and features of one example; refuses bad input."""

    @abstractmethod
    def _factor_blocks(self, graph: FactorGraph, features: FactorFeatures) -> list[Block]:
        """Blocks of the tables of a union graph."""

    def _learn_structure(self, X: Examples) -> None:
        """Set what the examples say of the model's factors, before they are read one by one."""

    def _check_options(self) -> None:
        super()._check_options()
        require_one_of("unary", self.unary, ("auto", "full", "scale"))
        require_one_of("pairwise", self.pairwise, ("auto", *get_args(PairTying)))
        require_integer("n_labels", self.n_labels, at_least=2, or_none=True)
        require_integer("ignore_label", self.ignore_label, or_none=True)

    # -- from examples to parts ---------------------------------------------------------------

    def _problem(
        self, objective: Objective, X: Examples, Y: Examples, weights: FloatArray | None
    ) -> Problem:
        labels = self._checked_labels(X, Y, None)
        self.n_labels_ = count_labels(labels, self.n_labels)
        self._learn_structure(X)
        self._require_memory(X)
        groups, shard_parts = self._parts_of_shards(objective, X)
        parts = list(make_parts(groups, self._reader(X), self._blocks, labels, weights))
        self._block_shapes = block_shapes(objective.templates(parts[0].template))
        ends = np.cumsum(shard_parts).tolist()
        own = (parts[begin:end] for begin, end in pairwise([0, *ends]))
        self._block_scales = summed_scales(block_scales(objective, some) for some in own)
        return make_problem("graphs", objective, GraphData(parts, self.n_jobs, shard_parts))

    def _parts_of_shards(
        self, objective: Objective, X: Examples
    ) -> tuple[list[NDArray[Any]], list[int]]:
        """Examples of each part, and parts of each shard: the cut that data on disk have."""
        if objective.problem_kind in WHOLE_KINDS:
            groups = self._part_groups(objective, X, len(X))
            return groups, [len(groups)]
        groups, shard_parts = [], []
        for chosen in cut_into_shards(self._sizes(X), SHARD_SIZE):
            own = self._part_groups(objective, [X[index] for index in chosen], len(X))
            groups += [chosen[group] for group in own]
            shard_parts.append(len(own))
        return groups, shard_parts

    def _part_groups(
        self, objective: Objective, X: Examples, n_examples: int
    ) -> list[NDArray[Any]]:
        """Parts of one shard, of ``n_examples`` in all."""
        if self._is_stochastic(objective):
            return mini_batches(len(X), self.batch_size, n_examples)
        if objective.problem_kind == "dual":
            # an example is a block of the dual
            return mini_batches(len(X), 1 if self.batch_size is None else self.batch_size)
        return self._groups(X)

    def _sizes(self, X: Examples) -> list[int]:
        """Variables and edges of each example, by which data are cut into shards."""
        measured = (self._measure(index, x) for index, x in enumerate(X))
        return [size.n_variables + size.n_edges for size in measured]

    # -- learning: independent variables first --------------------------------------------------

    def _fixed_options(self, X: Examples, Y: Examples) -> dict[str, Any]:
        labels = self._checked_labels(X, Y, None)
        return {"n_labels": count_labels(labels, self.n_labels)}

    def _set_scales(self, objective: Objective, shards: Shards) -> None:
        workplace = Workplace(shards, self, objective)
        problems = (workplace.load(shard) for shard in range(len(shards)))
        self._block_scales = summed_scales(
            block_scales(objective, problem.parts)
            for problem in problems
            if isinstance(problem, TemplateProblem)
        )

    def _penalty_of(self, l2: Any) -> float | FloatArray:
        if isinstance(l2, RelativePenalty):
            l2 = l2.by_block(self._block_scales)
        return l2_by_block(l2, self._block_shapes)

    def _independent_fit(
        self,
        X: Examples | Shards,
        Y: Any,
        weights: FloatArray | None,
        l2: Any,
        start: Any,
        choice: Choice | None,
        validation: Any,
        client: Any = None,
    ) -> Any:
        objective = self._objective()
        is_chosen = choice is not None and choice.is_independent
        is_start = start is None and (choice is None or choice.start is None)
        is_compared = choice is None and validation is not None
        if self._is_independent() or not (is_chosen or is_start or is_compared):
            return None
        if not is_chosen and (objective.is_homogeneous or not objective.is_smooth):
            return None  # margins have their own scale
        if isinstance(l2, Mapping):
            l2 = {name: value for name, value in l2.items() if name in UNARY_BLOCKS}
        options = {"objective": "independent", "learner": None, "decode": None, "l1": 0.0}
        options |= {"l2": l2, "unary": self.unary_, "verbose": 0}
        if not isinstance(X, Shards):  # these know it
            options |= {"n_labels": self.n_labels_}
        options |= {"tol": self.tol if is_chosen else max(PATH_TOL, self.tol)}
        model = clone(self).set_params(**options, max_iter=INDEPENDENT_ITERATIONS)
        with warnings.catch_warnings():
            if not is_chosen:
                warnings.simplefilter("ignore", ConvergenceWarning)  # it is only a start
            held_out = validation if is_chosen else None
            model.fit(X, Y, sample_weight=weights, validation=held_out, client=client)
        require_uninterrupted(model)
        return model

    def _has_couplings(self, X: Examples) -> bool:
        """Whether any variables of the examples are neighbours."""
        if self._is_independent():
            return False
        return any(self._measure(index, x).n_edges > 0 for index, x in enumerate(X))

    def _is_independent(self) -> bool:
        """Whether there are no couplings at all."""
        return self._objective().name == "independent"

    def _labels(self, X: Examples, Y: Examples) -> list[LabelArray]:
        return self._checked_labels(X, Y, self.n_labels_)

    def _checked_labels(self, X: Examples, Y: Examples, n_labels: int | None) -> list[LabelArray]:
        return [
            checked_labels(
                Place("Y", index), y, self._measure(index, x).shape, n_labels, self.ignore_label
            )
            for index, (x, y) in enumerate(zip(X, Y, strict=True))
        ]

    def _groups(self, X: Examples) -> list[NDArray[Any]]:
        return even_groups(self._entries(X), self.batch_size)

    def _entries(self, X: Examples) -> list[int]:
        """Numbers of unary and table entries of each example."""
        entries = []
        for index, x in enumerate(X):
            size = self._measure(index, x)
            tables = 0 if self._is_independent() else size.table_entries(self.n_labels_)
            entries.append(size.n_variables * self.n_labels_ + tables)
        return entries

    def _require_memory(self, X: Examples) -> None:
        """Refuse tables that no machine would like to hold, before they are made."""
        entries = self._entries(X)
        largest = int(np.argmax(entries))
        if 8.0 * entries[largest] > MAX_TABLE_BYTES:
            raise TooLargeError(
                f"{self.n_labels_} labels need tables of {8e-9 * entries[largest]:.3g} GB for this "
                f"example, at most {1e-9 * MAX_TABLE_BYTES:.3g} GB are allowed: are these classes?",
                Place("Y", largest),
            )

    def _reader(self, X: Examples) -> Callable[[int], Example]:
        """A function that reads one example; the first one of a fit says how many features."""

        def read(index: int) -> Example:
            example = self._example(index, X[index])
            require_features(Place("X", index), example.features, self.n_features_in_)
            if self._is_independent():
                graph = isolated_variables(example.graph.n_variables, self.n_labels_)
                return Example(graph, example.features)
            return example

        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = int(self._example(0, X[0]).features.shape[1])
            self.unary_ = self._form_of_unary(
                lambda: all(are_log_probabilities(read(index).features) for index in range(len(X)))
            )
        return read

    def _form_of_unary(self, are_given: Callable[[], bool]) -> str:
        """``"full"`` or ``"scale"``, as asked for or as the features are.

        ``are_given``: whether those of all examples are log-probabilities.
        """
        if self.unary == "scale" and self.n_features_in_ != self.n_labels_:
            raise InvalidInputError(
                f"unary='scale' needs one feature for each of the {self.n_labels_} labels, "
                f"got {self.n_features_in_} features"
            )
        if self.unary != "auto":
            return self.unary
        if self.n_features_in_ != self.n_labels_:
            return "full"
        return "scale" if are_given() else "full"

    def _tyings(self) -> tuple[PairTying, PairTying]:
        """The form of constant tables, and of those of edge features."""
        if self.pairwise == "auto":
            return self._plain_tables, "potts"
        return self.pairwise, self.pairwise

    def _blocks(
        self, graph: FactorGraph, features: Any, factor_features: FactorFeatures
    ) -> list[Block]:
        blocks = [
            Block.scaled(graph, features, name="unary")
            if self.unary_ == "scale"
            else Block.unary(graph, features, name="unary")
        ]
        if self.fit_intercept:
            blocks.append(Block.unary(graph, name="intercept"))
        if self._is_independent():
            return blocks
        return blocks + self._factor_blocks(graph, factor_features)

    def _parts(self, X: Examples, labels: list[LabelArray] | None = None) -> Iterator[Part]:
        """Parts for prediction, one after the other: only a few exist at a time."""
        require_list("X", X)
        return make_parts(self._groups(X), self._reader(X), self._blocks, labels)

    # -- shards -------------------------------------------------------------------------------

    @abstractmethod
    def _stored_example(self, index: int, x: Any, coder: FieldCoder) -> dict[str, Any]:
        """What a shard stores of an example, checked."""

    @abstractmethod
    def _stored_examples(self, stored: Stored) -> list[Any]:
        """Examples of a shard."""

    def _stored_labels(self, stored: Stored) -> list[LabelArray]:
        return stored_labels(stored, self.n_labels_)

    def _shard_coder(self) -> FieldCoder:
        return FieldCoder(self)

    def _type_coder(self) -> Any:
        """What learns types of factors while examples are written; ``None``: they have no names."""
        return None

    def _shard_options(self) -> dict[str, Any]:
        given = {"ignore_label": self.ignore_label, "n_labels": self.n_labels}
        return {name: None if value is None else int(value) for name, value in given.items()}

    def _open_shards(self, shards: Shards) -> None:
        """Set all that is known of the model before its weights."""
        model = shards.model()
        self.n_labels_ = model.integer("n_labels", 2)
        self.n_features_in_ = model.integer("n_features_in", 1)
        self.unary_ = self._form_of_unary(lambda: model.flag("log_probabilities"))
        self._block_shapes = self._shapes_of_model()

    def _shard_problem(
        self,
        objective: Objective,
        stored: Stored | None,
        n_examples: int,
        unions: dict[tuple[int, ...], Batch],
    ) -> Problem:
        """The sum over a shard of data with ``n_examples``; ``None``: over one empty example."""
        if stored is None:
            template = self._smallest_template()
            unknown = np.full(template.graph.n_variables, -1, dtype=np.int32)
            part = Part(Batch.of([template.graph]), template, unknown)
            return make_problem("graphs", objective, GraphData([part], self.n_jobs))
        X, labels = self._stored_examples(stored), self._stored_labels(stored)
        self._require_memory(X)
        groups = self._part_groups(objective, X, n_examples)
        weights = stored_weights(stored)
        parts = make_parts(groups, self._reader(X), self._blocks, labels, weights, unions)
        return make_problem("graphs", objective, GraphData(list(parts), self.n_jobs))

    def _shard_mini_batches(self, objective: Objective, n_own: int, n_examples: int) -> int | None:
        """Mini-batches of a shard; ``None``: it is evaluated as a whole."""
        if not self._is_stochastic(objective):
            return None
        return len(mini_batches(n_own, self.batch_size, n_examples))

    def _shard_bytes(self, n_variables: int, n_edges: int) -> int:
        """Memory of a shard's graphs and messages, about."""
        return (200 + 24 * self.n_labels_) * n_variables + (200 + 32 * self.n_labels_) * n_edges

    # -- prediction ---------------------------------------------------------------------------

    def _encode(self, X: Examples, keep: bool = False) -> Iterable[Part]:
        return list(self._parts(X)) if keep else self._parts(X)

    def _best_labels(
        self, objective: Objective, encoded: Iterable[Part], weights: FloatArray
    ) -> tuple[list[LabelArray], int]:
        return best_labels(objective, self._decoding(objective), encoded, weights, self.n_jobs)

    def _beliefs(
        self, objective: Objective, encoded: Iterable[Part], weights: FloatArray
    ) -> tuple[list[FloatArray], int]:
        return beliefs_of(objective, encoded, weights, self.n_jobs)

    def _require_potentials(self, method: str) -> None:
        """Refuse models that are a procedure for beliefs and nothing else."""
        if self._objective().n_weight_sets > 1:
            raise InvalidInputError(
                f"{method} needs one set of weights, got an objective with several"
            )

    # -- names and files ------------------------------------------------------------------------

    def _weight_namer(self) -> Callable[[int], str]:
        templates = self._objective().templates(self._smallest_template())
        return template_names(templates, self.n_labels_).__getitem__

    def _model_metadata(self) -> dict[str, Any]:
        return {
            "n_labels": self.n_labels_,
            "n_features_in": self.n_features_in_,
            "unary": self.unary_,
        }

    def _restore_model(self, stored: Stored) -> None:
        most = max(len(self.weights_), 1)
        self.n_features_in_ = stored.integer("n_features_in", 1, most)
        self.n_labels_ = stored.integer("n_labels", 2, max(most // self.n_features_in_, 2))
        self.unary_ = "full"
        if "unary" in stored.numbers:  # not in files of version 0.1
            self.unary_ = stored.text("unary")
            require_one_of("unary", self.unary_, ("full", "scale"))

    def _shapes_of_model(self) -> dict[str, tuple[int, ...]]:
        return block_shapes(self._objective().templates(self._smallest_template()))

    def _smallest_template(self) -> Template:
        graph, factor_features = self._smallest()
        features = np.zeros((graph.n_variables, self.n_features_in_))
        return Template(graph, self._blocks(graph, features, factor_features))

    @abstractmethod
    def _smallest(self) -> tuple[FactorGraph, FactorFeatures]:
        """A graph that has all kinds of factors of the model, and their features."""
