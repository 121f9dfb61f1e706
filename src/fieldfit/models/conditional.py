"""Conditional fields over lists of examples: what grids and graphs have in common.

Every example becomes a factor graph with features on its variables and factors.  Examples are
gathered in parts of a few megabytes; each part is one batch with one template, so that a training
pass is a handful of kernel calls, and tables exist for one part at a time.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._typing import FloatArray, LabelArray
from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.template import Block
from fieldfit.learners.base import Validation
from fieldfit.learners.problem import Part, TemplateProblem
from fieldfit.learners.stochastic import SGD, Adam
from fieldfit.models.base import (
    FieldEstimator,
    Path,
    accuracy,
    checked_labels,
    count_labels,
    example_weights,
    require_features,
    require_list,
    require_pairs,
    start_weights,
)
from fieldfit.models.parts import (
    Example,
    beliefs_of,
    best_labels,
    block_shapes,
    bounds_of,
    draw_labels,
    even_groups,
    make_parts,
    mini_batches,
)
from fieldfit.objectives.base import Objective
from fieldfit.objectives.mle_struct import MLEStruct

__all__ = ["ConditionalEstimator", "example_weights"]

Examples = Sequence[Any]

_example_weights = example_weights


class ConditionalEstimator(FieldEstimator):
    """Abstract base: subclasses measure and read one example, and name the blocks of its tables.

    Options besides those of `FieldEstimator`: ``fit_intercept``, ``decode``, ``n_labels`` and
    ``batch_size``.
    """

    _takes_weight_sets = True

    fit_intercept: bool
    decode: str | None
    n_labels: int | None
    batch_size: int | None

    n_labels_: int
    n_features_in_: int

    # -- the public methods -------------------------------------------------------------------

    def fit(
        self,
        X: Examples,
        Y: Examples,
        *,
        sample_weight: ArrayLike | None = None,
        checkpoint: Path | None = None,
        validation: tuple[Examples, Examples] | None = None,
        start: ArrayLike | None = None,
    ) -> Any:
        """Learn the weights.

        Parameters
        ----------
        X, Y
            Examples and their labels; ``-1`` is a missing label.
        sample_weight
            One factor for each example's share of the objective.
        checkpoint
            File to resume from if it exists, and to write progress to.
        validation
            Held-out ``(X, Y)``: its accuracy is put in the trace, and the fit ends when it has
            stopped rising.
        start
            Weights to begin with, such as ``weights_`` of a fit with a convex objective; zeros if
            ``None``.  Where every sweep has its own weights, those of one are repeated; where the
            entropy is fitted, it begins as given.
        """
        self._check_options()
        objective = self._objective()
        self._decoding(objective)
        require_pairs(X, Y)
        weights = example_weights(sample_weight, len(X))
        self._forget()
        labels = self._labels(X, Y, None)
        self.n_labels_ = count_labels(labels, self.n_labels)
        if self._is_stochastic(objective):
            groups = mini_batches(len(X), self.batch_size)
        elif isinstance(objective, MLEStruct):
            # an example is a block of the dual
            groups = mini_batches(len(X), 1 if self.batch_size is None else self.batch_size)
        else:
            groups = self._groups(X)
        parts = list(make_parts(groups, self._reader(X), self._blocks, labels, weights))
        template = parts[0].template
        self._block_shapes = block_shapes(objective.templates(template))
        problem = TemplateProblem(objective, parts, self.n_jobs)
        self._learn(
            problem,
            start_weights(start, objective.templates(template)),
            checkpoint=checkpoint,
            validation=self._validation(objective, validation),
        )
        return self

    def predict(self, X: Examples) -> list[NDArray[Any]]:
        """Labels of each example: of largest belief, or jointly best with ``decode="map"``."""
        self._require_fit()
        found, n_failed = self._predict_parts(self._parts(X))
        self._warn(n_failed, len(X))
        return [self._shown(x, labels) for x, labels in zip(X, found, strict=True)]

    def predict_marginals(self, X: Examples) -> list[FloatArray]:
        """Beliefs of each example's variables, labels along the last axis.

        They come from the inference that the objective was trained with.
        """
        self._require_fit()
        parts = self._parts(X)
        found, n_failed = beliefs_of(self._objective(), parts, self.weights_, self.n_jobs)
        self._warn(n_failed, len(X))
        return [self._shown(x, beliefs) for x, beliefs in zip(X, found, strict=True)]

    def score(self, X: Examples, Y: Examples) -> float:
        """Share of labelled variables whose label `predict` finds."""
        self._require_fit()
        require_pairs(X, Y)
        labels = self._labels(X, Y, self.n_labels_)
        found, n_failed = self._predict_parts(self._parts(X))
        self._warn(n_failed, len(X))
        return accuracy(labels, found)

    def log_likelihood_bounds(self, X: Examples, Y: Examples) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on ``log p(y | x)`` of each example's known labels.

        Exact (both the same) where that is cheap; otherwise by tree-reweighted message passing and
        mean field, whatever objective the weights were learned with.
        """
        self._require_fit()
        self._require_potentials("log_likelihood_bounds")
        require_pairs(X, Y)
        labels = self._labels(X, Y, self.n_labels_)
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
        if n_samples < 0:
            raise InvalidInputError(f"n_samples must be at least 0, got {n_samples}")
        generators = np.random.default_rng(random_state).spawn(len(X))
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

    @abstractmethod
    def _measure(self, index: int, x: Any) -> tuple[tuple[int, ...], int]:
        """Shape of an example's labels and the number of its edges; refuses other shapes."""

    @abstractmethod
    def _example(self, index: int, x: Any) -> Example:
        """Graph (with ``n_labels_`` labels) and features of one example; refuses bad input."""

    @abstractmethod
    def _edge_blocks(self, graph: FactorGraph, edge_features: FloatArray | None) -> list[Block]:
        """Blocks of the tables of a union graph."""

    def _shown(self, x: Any, values: NDArray[Any]) -> NDArray[Any]:
        """Values of one example's variables (along the first axis) in the user's shape."""
        return values

    # -- from examples to parts ---------------------------------------------------------------

    def _check_options(self) -> None:
        super()._check_options()
        size = self.batch_size
        if size is not None and not (isinstance(size, (int, np.integer)) and size >= 1):
            raise InvalidInputError(
                f"batch_size must be an integer of at least 1 or None, got {size!r}"
            )

    def _forget(self) -> None:
        """Drop what an earlier fit has left, so that a fit that fails leaves no mixture."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _is_stochastic(self, objective: Objective) -> bool:
        """Whether the learner takes its steps part by part."""
        if self.learner is None:
            return not objective.is_smooth
        return isinstance(self.learner, (Adam, SGD)) or self.learner in ("adam", "sgd")

    def _labels(self, X: Examples, Y: Examples, n_labels: int | None) -> list[LabelArray]:
        return [
            checked_labels(f"Y[{index}]", y, self._measure(index, x)[0], n_labels)
            for index, (x, y) in enumerate(zip(X, Y, strict=True))
        ]

    def _groups(self, X: Examples) -> list[NDArray[Any]]:
        entries = []
        for index, x in enumerate(X):
            shape, n_edges = self._measure(index, x)
            entries.append(int(np.prod(shape)) * self.n_labels_ + n_edges * self.n_labels_**2)
        return even_groups(entries, self.batch_size)

    def _reader(self, X: Examples) -> Callable[[int], Example]:
        """A function that reads one example; the first one of a fit says how many features."""

        def read(index: int) -> Example:
            example = self._example(index, X[index])
            require_features(f"X[{index}]", example.features, self.n_features_in_)
            return example

        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = int(self._example(0, X[0]).features.shape[1])
        return read

    def _blocks(
        self, graph: FactorGraph, features: Any, edge_features: FloatArray | None
    ) -> list[Block]:
        blocks = [Block.unary(graph, features, name="unary")]
        if self.fit_intercept:
            blocks.append(Block.unary(graph, name="intercept"))
        return blocks + self._edge_blocks(graph, edge_features)

    def _parts(self, X: Examples, labels: list[LabelArray] | None = None) -> Iterator[Part]:
        """Parts for prediction, one after the other: only a few exist at a time."""
        require_list("X", X)
        return make_parts(self._groups(X), self._reader(X), self._blocks, labels)

    # -- prediction ---------------------------------------------------------------------------

    def _decoding(self, objective: Objective) -> str:
        decode = objective.decode if self.decode is None else self.decode
        if decode not in ("marginals", "map"):
            raise InvalidInputError(f"decode must be 'marginals', 'map' or None, got {decode!r}")
        if decode == "map" and objective.n_weight_sets > 1:
            raise InvalidInputError(
                "decode must be 'marginals' with several sets of weights, got 'map'"
            )
        return decode

    def _require_potentials(self, method: str) -> None:
        """Refuse models that are a procedure for beliefs and nothing else."""
        if self._objective().n_weight_sets > 1:
            raise InvalidInputError(
                f"{method} needs one set of weights, got an objective with several"
            )

    def _predict_parts(self, parts: Iterator[Part]) -> tuple[list[LabelArray], int]:
        objective = self._objective()
        return best_labels(objective, self._decoding(objective), parts, self.weights_, self.n_jobs)

    def _warn(self, n_unconverged: int, count: int) -> None:
        if n_unconverged:
            warnings.warn(
                f"{type(self).__name__}: the inference of {n_unconverged} of {count} examples did "
                "not converge; their beliefs are the last ones reached",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _validation(
        self, objective: Objective, given: tuple[Examples, Examples] | None
    ) -> Validation | None:
        if given is None:
            return None
        if not (isinstance(given, (tuple, list)) and len(given) == 2):
            raise InvalidInputError("validation must be a pair (X, Y) of held-out examples")
        X, Y = given
        try:
            require_pairs(X, Y)
            labels = self._labels(X, Y, self.n_labels_)
            parts = list(self._parts(X))
        except InvalidInputError as error:
            raise InvalidInputError(f"validation: {error}") from None
        decoding = self._decoding(objective)

        def held_out(weights: FloatArray) -> float:
            found, _ = best_labels(objective, decoding, parts, weights, self.n_jobs)
            return accuracy(labels, found)

        return held_out

    # -- files --------------------------------------------------------------------------------

    def _model_metadata(self) -> dict[str, Any]:
        return {"n_labels": self.n_labels_, "n_features_in": self.n_features_in_}

    def _restore_model(self, metadata: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.n_labels_ = int(metadata["n_labels"])
        self.n_features_in_ = int(metadata["n_features_in"])
