"""Pairwise Markov random fields learned from samples: base of `IsingModel` and `PottsModel`.

    p(y) ∝ exp(sum_i f_i(y_i) + sum_(ij) J_ij(y_i, y_j))

The graph is the same for every sample, either given edges or all pairs.  Learning goes through the
problems of `pairwise_problems.py`; standard errors come from the same problems.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._random_state import as_seed, random_generator
from fieldfit._typing import FloatArray, LabelMatrix
from fieldfit._validation import require_number, shown
from fieldfit.entropy.counting_numbers import TreeReweighted
from fieldfit.errors import ConvergenceWarning, InvalidInputError, Place, TooLargeError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.io.stored import Stored
from fieldfit.learners.base import Validation
from fieldfit.learners.problem import Problem
from fieldfit.models.base import FieldEstimator, Path
from fieldfit.models.dispatch import make_problem
from fieldfit.models.pairwise.missing_values import row_beliefs
from fieldfit.models.pairwise.pairwise_parameters import PairwiseParameters, checked_edges
from fieldfit.models.pairwise.pairwise_problems import (
    LikelihoodProblem,
    PairwiseProblem,
    SampleData,
    independent_start,
)
from fieldfit.models.pairwise.sample_counts import SampleCounts
from fieldfit.models.pairwise.sample_data import (
    Samples,
    checked_sample_weight,
    column_names,
    columns_by_name,
    labels_seen,
    require_joined,
    require_labels,
    require_some_label,
)
from fieldfit.models.pairwise.sample_shards import (
    SampleCoder,
    shard_sum,
    stored_counts,
    stored_samples,
)
from fieldfit.models.pairwise.standard_errors import sandwich_covariance
from fieldfit.models.parts import draw_labels
from fieldfit.objectives.base import Objective
from fieldfit.shards.cutting import SHARD_SIZE, rows_of_shards
from fieldfit.shards.reading import Shards

__all__ = ["Edge", "PairwiseMRF"]


class Edge(NamedTuple):
    """A row of `PairwiseMRF.edge_list`."""

    source: str
    target: str
    weight: float
    standard_error: float | None


class PairwiseMRF(FieldEstimator):
    """Abstract base: subclasses say how values become labels and weights become tables."""

    edges_: NDArray[np.int64]
    n_features_in_: int
    #: The samples of the fit, if they were in memory.
    _data: SampleData | None
    _covariance: FloatArray | None

    def fit(
        self,
        samples: Any,
        edges: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        checkpoint: Path | None = None,
        validation: Any = None,
        start: ArrayLike | None = None,
        client: Any = None,
    ) -> Any:
        """Learn the weights.

        Parameters
        ----------
        samples
            ``(n_samples, n_variables)``, one joint observation in each row; missing entries are
            summed out, rows are never dropped for them.  A column that is missing everywhere is a
            hidden variable; ``edges`` must then be given.  Or `fieldfit.shards.Shards`, which hold
            weights of samples as well.
        edges
            ``(n_edges, 2)`` pairs of variables that may have a coupling; all pairs if ``None``.
        sample_weight
            One factor for each sample's share of the objective.
        checkpoint
            File to resume from if it exists, and to write progress to.
        validation
            Held-out samples: their `score` is put in the trace, and the fit ends when it has
            stopped rising.
        start
            Weights to begin with; by default those of independent variables.
        client
            Who evaluates the shards, as in `GridCRF.fit`; ``None``: this process.
        """
        self._check_options()
        objective = self._objective()
        if isinstance(samples, Shards):
            return self._fit_shards(
                objective, samples, edges, sample_weight, checkpoint, validation, start, client
            )
        if client is not None:
            raise InvalidInputError(f"client must be None without shards, got {shown(client)}")
        with columns_by_name(samples):
            labels = self._labels(samples)
            weights = self._weights_of_samples(sample_weight, labels)
            n_labels = self._n_labels(int(labels.max()) + 1)
            seen = labels_seen(labels, n_labels)
            require_joined(seen, edges)
            require_some_label(seen)
            self._check_columns(seen)
        pairs = checked_edges(edges, labels.shape[1])
        self._reset_fit()
        self._set_model(labels.shape[1], pairs, n_labels, column_names(samples))
        shards = []
        for rows in rows_of_shards(len(labels), labels.shape[1], SHARD_SIZE):
            shards.append(replace(Samples.of(labels[rows], weights[rows]), first=rows.start))
        self._data = SampleData(self._parameters, shards, self.n_jobs)
        self._covariance = None
        self._learn(
            make_problem("samples", objective, self._data),
            start,
            default_start=self._independent_start(SampleCounts.of(shards, n_labels, pairs[:0])),
            checkpoint=checkpoint,
            validation=self._validation(objective, validation),
        )
        return self

    def _set_model(
        self, n_variables: int, edges: NDArray[np.int64], n_labels: int, names: list[str] | None
    ) -> None:
        """All that is known before the weights."""
        self._parameters = self._new_parameters(n_variables, edges, n_labels)
        self.n_features_in_ = n_variables
        self.edges_ = edges
        self._block_shapes = self._parameters.block_shapes
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _independent_start(self, counts: SampleCounts) -> FloatArray:
        return independent_start(self._parameters, counts, as_seed(self.random_state))

    # -- the model ------------------------------------------------------------------------

    def to_model(self) -> tuple[FactorGraph, Potentials]:
        """Graph and log-potentials, for any inference of this package."""
        self._require_fit()
        return self._parameters.graph, self._parameters.potentials(self.weights_)

    def sample(
        self,
        n_samples: int = 1,
        random_state: int | np.random.Generator | None = None,
        *,
        burn_in: int = 1000,
        n_sweeps_between: int = 10,
    ) -> NDArray[np.int64]:
        """Samples from the model, in the values that `fit` takes.

        Exact and independent where a clique tree is small enough (a dense model of up to about 20
        binary variables, or a sparse one).  Otherwise Gibbs chains run for ``burn_in`` sweeps, and
        each gives a sample every ``n_sweeps_between``.
        """
        self._require_fit()
        generator = random_generator(random_state)
        drawn = draw_labels(*self.to_model(), n_samples, generator, burn_in, n_sweeps_between)
        return self._values(drawn.astype(np.int64))

    def log_likelihood(self, samples: Any) -> float:
        """Sum of the exact log-probabilities of samples (of their known entries).

        Raises `TooLargeError` if the exact log-partition is out of reach; `log_likelihood_bounds`
        then still brackets it.
        """
        self._require_fit()
        problem = LikelihoodProblem(self._parameters, self._other_samples(samples), Exact())
        try:
            value = problem.evaluate(self.weights_).value
        except TooLargeError as error:
            raise TooLargeError(
                f"log_likelihood needs the exact log-partition, use log_likelihood_bounds: {error}"
            ) from None
        assert value is not None
        return -value

    def log_likelihood_bounds(self, samples: Any) -> tuple[float, float]:
        """Proved lower and upper bounds on `log_likelihood`.

        An upper bound on the log-partition (tree-reweighted) gives the lower bound, a lower bound
        on it (mean field) the upper one.
        """
        self._require_fit()
        given = self._other_samples(samples)
        problem = LikelihoodProblem(self._parameters, given, Exact())
        known, _, _ = problem.known_part(self.weights_)
        total = float(given.weights.sum())
        graph, potentials = self.to_model()
        above = SumProduct(entropy=TreeReweighted()).run(graph, potentials)
        if above.bound not in ("upper", "exact"):
            above = SumProduct(entropy=TreeReweighted(), damping=0.5, max_iter=10000).run(
                graph, potentials
            )
        upper = above.log_partition if above.bound in ("upper", "exact") else np.inf
        if upper == np.inf:
            warnings.warn(
                f"log_likelihood_bounds: {above.status}", ConvergenceWarning, stacklevel=2
            )
        below = MeanField(n_restarts=10, random_state=0).run(graph, potentials)
        return known - total * upper, known - total * below.log_partition

    def score(self, samples: Any, y: Any = None) -> float:
        """Minus the objective that the model was fitted with, per sample, without the penalty.

        For ``"likelihood"`` it is the mean log-likelihood, for ``"pseudolikelihood"`` the mean
        log-pseudo-likelihood, for ``"trw"`` a lower bound on the mean log-likelihood.  Of shards it
        is the mean with the weights that they hold.
        """
        self._require_fit()
        if isinstance(samples, Shards):
            return self._score_shards(samples)
        return self._score(self._objective(), self._other_samples(samples), self.weights_)

    # -- missing values -------------------------------------------------------------------

    def predict(self, samples: Any) -> NDArray[np.int64]:
        """The samples with every missing entry filled in, in the values that `fit` takes.

        An entry gets its most probable value given the known entries of its row (the largest of
        `predict_marginals`); known entries stay.
        """
        self._require_fit()
        labels = self._given_labels(samples)
        beliefs, converged = self._beliefs(labels)
        self._warn(int((~converged).sum()), len(labels))
        filled = np.where(labels < 0, beliefs.argmax(axis=2), labels)
        return self._values(filled.astype(np.int64))

    def predict_marginals(self, samples: Any) -> FloatArray:
        """Probabilities of the values of every entry, given the known entries of its row.

        Shape ``(n_samples, n_variables, n_labels)``; the value of a known entry has probability 1.
        Exact where that is affordable, else by message passing; a model that was learned with a
        surrogate (``"bethe"``, ``"trw"``, ...) predicts with the same.
        """
        self._require_fit()
        labels = self._given_labels(samples)
        beliefs, converged = self._beliefs(labels)
        self._warn(int((~converged).sum()), len(labels))
        return beliefs

    def _beliefs(self, labels: LabelMatrix) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Beliefs about all entries of checked samples, and whether those of a row converged."""
        return row_beliefs(self._parameters, self.weights_, self._objective(), labels)

    # -- statistics -----------------------------------------------------------------------

    @property
    def covariance_(self) -> FloatArray:
        """Sandwich covariance of the estimates (see `standard_errors_`)."""
        self._require_fit()
        if self._covariance is None:
            if self.l1 > 0.0:
                raise InvalidInputError(
                    f"standard errors need l1 = 0, because weights at zero have no normal "
                    f"distribution, got l1 = {self.l1}"
                )
            if not self._objective().is_conservative:
                raise InvalidInputError(
                    "standard errors need an objective with a gradient of its own, got "
                    f"{self.objective!r}, which leaves a term out or draws it"
                )
            if self._data is None:
                raise InvalidInputError(
                    "standard errors need the samples in memory, got a model file, which does not "
                    "hold them (read standard errors before save), or a fit over shards"
                )
            problem = self._problem(self._objective(), self._data.samples)
            # a closed form knows no penalty
            l2 = 0.0 if problem.learner_name == "closed-form" else float(self.l2)
            self._covariance = self._of_estimates(sandwich_covariance(problem, self.weights_, l2))
        return self._covariance

    @property
    def standard_errors_(self) -> FloatArray:
        """Standard errors of the estimates, by the sandwich covariance."""
        return np.sqrt(np.maximum(np.diag(self.covariance_), 0.0))

    def confidence_intervals(self, level: float = 0.95) -> FloatArray:
        """Lower and upper ends, one row for each estimate: estimate -+ z standard errors."""
        from scipy.special import ndtri

        require_number("level", level, above=0, below=1)
        half = float(ndtri(0.5 + level / 2.0)) * self.standard_errors_
        estimates = self._estimates()
        return np.stack([estimates - half, estimates + half], axis=1)

    def edge_list(self, names: Any = None, minimum: float = 0.0) -> list[Edge]:
        """The network as rows ``(source, target, weight, standard_error)``, strongest first.

        ``weight`` is the coupling of an `IsingModel`, and the corrected score of a `PottsModel`
        (`contact_scores`); ``standard_error`` is ``None`` where there is none.  Pairs of weight 0
        are left out, and with ``minimum > 0`` those below it (couplings by size).  NetworkX::

            network.add_weighted_edges_from(edge[:3] for edge in model.edge_list())
        """
        self._require_fit()
        require_number("minimum", minimum, at_least=0)
        shown = self._names(names)
        weights, strengths, errors = self._edge_strengths()
        kept = weights != 0.0
        if minimum > 0.0:
            kept &= strengths >= minimum
        order = [e for e in np.argsort(-strengths, kind="stable") if kept[e]]
        return [
            Edge(
                shown[self.edges_[e, 0]],
                shown[self.edges_[e, 1]],
                float(weights[e]),
                None if errors is None else float(errors[e]),
            )
            for e in order
        ]

    def _errors(self) -> tuple[FloatArray | None, str]:
        """Standard errors, or ``None`` and the reason why there are none."""
        try:
            return self.standard_errors_, ""
        except InvalidInputError as error:
            return None, str(error)

    # -- what subclasses say --------------------------------------------------------------

    @abstractmethod
    def _labels(self, samples: Any) -> LabelMatrix:
        """Labels of samples, -1 where missing; refuses bad input."""

    @abstractmethod
    def _values(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The user's values of labels."""

    @abstractmethod
    def _n_labels(self, n_seen: int) -> int:
        """Labels of each variable, of samples that have those below ``n_seen``."""

    @abstractmethod
    def _new_parameters(self, n_variables: int, edges: Any, n_labels: int) -> PairwiseParameters:
        """The parametrisation for checked samples."""

    @abstractmethod
    def _stored_parameters(self, stored: Stored) -> PairwiseParameters:
        """The parametrisation of a model file, for `n_features_in_` and `edges_`."""

    def _check_columns(self, seen: NDArray[np.bool_]) -> None:
        """Refuse columns from which nothing can be learned; ``seen`` are the labels of each."""

    @abstractmethod
    def _shard_options(self) -> dict[str, Any]:
        """Options that decide how samples are stored in shards."""

    def _weights_of_samples(self, weight: Any, labels: LabelMatrix) -> FloatArray:
        return checked_sample_weight(weight, len(labels))

    @abstractmethod
    def _edge_strengths(self) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Weight of each edge for `edge_list`, how strong that is, and standard errors."""

    def _estimates(self) -> FloatArray:
        """What standard errors are about, flat."""
        return self.weights_

    def _of_estimates(self, covariance: FloatArray) -> FloatArray:
        """Covariance of `_estimates` from that of the weights."""
        return covariance

    # -- shards -----------------------------------------------------------------------------

    def _fit_shards(
        self,
        objective: Objective,
        shards: Shards,
        edges: Any,
        sample_weight: Any,
        checkpoint: Path | None,
        validation: Any,
        start: Any,
        client: Any,
    ) -> Any:
        """`fit` on samples that stay on disk."""
        if sample_weight is not None:
            raise InvalidInputError(
                f"sample_weight must be None, because shards hold it, got {shown(sample_weight)}"
            )
        counts, seen = stored_counts(shards, self)
        require_joined(seen, edges)
        self._check_columns(seen)
        self._reset_fit()
        self._given_edges = edges
        with shard_sum(self, objective, shards, client) as problem:
            self._data = self._covariance = None
            self._learn(
                problem,
                start,
                default_start=self._independent_start(counts),
                checkpoint=checkpoint,
                validation=self._validation(objective, validation),
            )
        return self

    def _score_shards(self, shards: Shards) -> float:
        model = self._for_workers()
        model._given_edges = self.edges_
        with shard_sum(model, self._objective(), shards, None) as problem:
            if model._shapes_of_model() != self._block_shapes:
                raise InvalidInputError(
                    f"shards must have been written with this fitted model, or be those that it "
                    f"learned from, got {model.n_features_in_} variables with "
                    f"{model._parameters.n_labels} labels"
                )
            value = problem.evaluate(self.weights_).value
        return self._mean_score(value, stored_counts(shards, self)[0].total)

    def _for_workers(self) -> Any:
        made = super()._for_workers()
        made._given_edges = getattr(self, "_given_edges", None)
        return made

    def _shard_coder(self) -> SampleCoder:
        return SampleCoder(self)

    def _open_shards(self, shards: Shards) -> None:
        """Set all that is known of the model before its weights."""
        model = shards.model()
        n_variables = model.integer("n_variables", 1)
        n_seen = model.array("labels_seen", (n_variables, None), "b").shape[1]
        names = None
        if model.value("names") is not None:
            names = model.items("names", str, length=n_variables)
        edges = checked_edges(self._given_edges, n_variables)
        self._set_model(n_variables, edges, self._n_labels(n_seen), names)

    def _shard_problem(
        self, objective: Objective, stored: Stored | None, n_examples: int, unions: Any
    ) -> Problem:
        """The sum over a shard; ``None``: over one sample."""
        given = self._parameters
        if stored is None:
            labels = np.zeros((1, given.n_variables), dtype=np.int16)
            samples = Samples.of(labels, np.ones(1))
        else:
            samples = stored_samples(stored, given.n_variables, given.n_labels)
        return make_problem("samples", objective, SampleData(given, [samples], self.n_jobs))

    def _shard_mini_batches(self, objective: Objective, n_own: int, n_examples: int) -> int | None:
        """A shard is evaluated as a whole; stochastic learners take it for a mini-batch."""
        return None

    def _shard_bytes(self, n_variables: int, n_edges: int) -> int:
        """Memory of a shard's rows; of copies of the model with messages, where there are any."""
        if self._objective().problem_kind == "pseudolikelihood":
            return 4 * n_variables
        graph = self._parameters.graph
        entries = int(graph.unary_offsets[-1] + graph.table_offsets[-1])
        return 32 * entries * (n_variables // self.n_features_in_)

    # -- helpers --------------------------------------------------------------------------

    def _problem(self, objective: Objective, samples: Samples) -> PairwiseProblem:
        data = SampleData(self._parameters, [samples], self.n_jobs)
        problem = make_problem("samples", objective, data)
        assert isinstance(problem, PairwiseProblem)
        return problem

    def _given_labels(self, samples: Any) -> LabelMatrix:
        """Checked labels of samples for the model, -1 where missing."""
        with columns_by_name(samples):
            labels = self._labels(samples)
            if labels.shape[1] != self.n_features_in_:
                raise InvalidInputError(
                    f"must have {self.n_features_in_} columns, got {labels.shape[1]}",
                    Place("samples"),
                )
            require_labels(labels, self._parameters.n_labels)
        return labels

    def _other_samples(self, samples: Any) -> Samples:
        labels = self._given_labels(samples)
        require_some_label(labels_seen(labels, self._parameters.n_labels))
        return Samples.of(labels, np.ones(len(labels)))

    def _score(self, objective: Objective, samples: Samples, weights: FloatArray) -> float:
        value = self._problem(objective, samples).evaluate(weights).value
        return self._mean_score(value, float(samples.weights.sum()))

    def _mean_score(self, value: float | None, total: float) -> float:
        if value is None:
            raise InvalidInputError(
                f"score needs an objective that has a value, got {self.objective!r}"
            )
        return -value / total

    def _held_out(self, objective: Objective, given: Any) -> Validation:
        samples = self._other_samples(given)
        problem = self._problem(objective, samples)
        total = float(samples.weights.sum())

        def score(weights: FloatArray) -> float:
            value = problem.evaluate(weights).value
            return -np.inf if value is None else -value / total

        return score

    def _model_metadata(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {
            "n_variables": self.n_features_in_,
            "names": None if names is None else [str(name) for name in names],
        }

    def _model_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"edges": self.edges_}
        if self._covariance is not None:
            arrays["covariance"] = self._covariance
        return arrays

    def _restore_model(self, stored: Stored) -> None:
        n_variables = stored.integer("n_variables", 1, max(len(self.weights_), 1))
        self.n_features_in_ = n_variables
        if stored.value("names") is not None:
            names = stored.items("names", str, length=n_variables)
            self.feature_names_in_ = np.array(names, dtype=object)
        self.edges_ = checked_edges(stored.array("edges", (None, 2), "i"), n_variables)
        self._parameters = self._stored_parameters(stored)
        self._covariance = None
        if "covariance" in stored.arrays:
            n_estimates = len(self._estimates())
            self._covariance = stored.array("covariance", (n_estimates, n_estimates))
        self._data = None

    def _shapes_of_model(self) -> dict[str, tuple[int, ...]]:
        return self._parameters.block_shapes

    def _variable_names(self) -> list[str]:
        """Names of the variables in words: those of a data frame, or ``variable 0``, ..."""
        if hasattr(self, "feature_names_in_"):
            return self._names()
        return [f"variable {name}" for name in self._names()]

    def _names(self, names: Any = None) -> list[str]:
        """Names of the variables: the given ones, those of a data frame, or numbers."""
        if names is None:
            names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        if not hasattr(names, "__len__") or len(names) != self.n_features_in_:
            raise InvalidInputError(
                f"names must have {self.n_features_in_} entries, got {shown(names)}"
            )
        return [str(name) for name in names]
