"""Pairwise Markov random fields learned from samples: base of `IsingModel` and `PottsModel`.

    p(y) ∝ exp(sum_i f_i(y_i) + sum_(ij) J_ij(y_i, y_j))

The graph is the same for every sample, either given edges or all pairs.  Learning goes through the
problems of `pairwise_problems.py`; standard errors come from the same problems.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

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
from fieldfit.models.base import FieldEstimator, Path
from fieldfit.models.dispatch import make_problem
from fieldfit.models.pairwise.pairwise_parameters import PairwiseParameters, checked_edges
from fieldfit.models.pairwise.pairwise_problems import (
    LikelihoodProblem,
    PairwiseProblem,
    SampleData,
    independent_start,
)
from fieldfit.models.pairwise.sample_data import (
    Samples,
    checked_sample_weight,
    column_names,
    require_joined,
    require_labels,
    require_some_label,
)
from fieldfit.models.pairwise.standard_errors import sandwich_covariance
from fieldfit.models.parts import draw_labels
from fieldfit.objectives.base import Objective

__all__ = ["PairwiseMRF"]


class PairwiseMRF(FieldEstimator):
    """Abstract base: subclasses say how values become labels and weights become tables."""

    edges_: NDArray[np.int64]
    n_features_in_: int
    _samples: Samples | None
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
    ) -> Any:
        """Learn the weights.

        Parameters
        ----------
        samples
            ``(n_samples, n_variables)``, one joint observation in each row; missing entries are
            summed out, rows are never dropped for them.  A column that is missing everywhere is a
            hidden variable; ``edges`` must then be given.
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
        """
        self._check_options()
        objective = self._objective()
        labels = self._labels(samples)
        weights = self._weights_of_samples(sample_weight, labels)
        require_joined(labels, edges)
        require_some_label(labels)
        self._check_columns(labels)
        parameters = self._new_parameters(labels, checked_edges(edges, labels.shape[1]))
        self._reset_fit()
        names = column_names(samples)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = labels.shape[1]
        self.edges_ = parameters.edges
        self._parameters = parameters
        self._block_shapes = parameters.block_shapes
        self._samples = Samples.of(labels, weights)
        self._covariance = None
        self._learn(
            self._problem(objective, self._samples),
            start,
            default_start=independent_start(parameters, self._samples, as_seed(self.random_state)),
            checkpoint=checkpoint,
            validation=self._validation(objective, validation),
        )
        return self

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
        log-pseudo-likelihood, for ``"trw"`` a lower bound on the mean log-likelihood.
        """
        self._require_fit()
        return self._score(self._objective(), self._other_samples(samples), self.weights_)

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
            if self._samples is None:
                raise InvalidInputError(
                    "standard errors need the samples, which the model file does not hold: read "
                    "them before save, or fit again"
                )
            problem = self._problem(self._objective(), self._samples)
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

    # -- what subclasses say --------------------------------------------------------------

    @abstractmethod
    def _labels(self, samples: Any) -> LabelMatrix:
        """Labels of samples, -1 where missing; refuses bad input."""

    @abstractmethod
    def _values(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The user's values of labels."""

    @abstractmethod
    def _new_parameters(self, labels: LabelMatrix, edges: NDArray[np.int64]) -> PairwiseParameters:
        """The parametrisation for checked samples."""

    @abstractmethod
    def _stored_parameters(self, stored: Stored) -> PairwiseParameters:
        """The parametrisation of a model file, for `n_features_in_` and `edges_`."""

    def _check_columns(self, labels: LabelMatrix) -> None:
        """Refuse columns from which nothing can be learned."""

    def _weights_of_samples(self, weight: Any, labels: LabelMatrix) -> FloatArray:
        return checked_sample_weight(weight, len(labels))

    def _estimates(self) -> FloatArray:
        """What standard errors are about, flat."""
        return self.weights_

    def _of_estimates(self, covariance: FloatArray) -> FloatArray:
        """Covariance of `_estimates` from that of the weights."""
        return covariance

    # -- helpers --------------------------------------------------------------------------

    def _problem(self, objective: Objective, samples: Samples) -> PairwiseProblem:
        data = SampleData(self._parameters, samples, self.n_jobs)
        problem = make_problem("samples", objective, data)
        assert isinstance(problem, PairwiseProblem)
        return problem

    def _other_samples(self, samples: Any) -> Samples:
        labels = self._labels(samples)
        if labels.shape[1] != self.n_features_in_:
            raise InvalidInputError(
                f"must have {self.n_features_in_} columns, got {labels.shape[1]}", Place("samples")
            )
        require_labels(labels, self._parameters.n_labels)
        require_some_label(labels)
        return Samples.of(labels, np.ones(len(labels)))

    def _score(self, objective: Objective, samples: Samples, weights: FloatArray) -> float:
        value = self._problem(objective, samples).evaluate(weights).value
        if value is None:
            raise InvalidInputError(
                f"score needs an objective that has a value, got {self.objective!r}"
            )
        return -value / float(samples.weights.sum())

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
        self._samples = None

    def _shapes_of_model(self) -> dict[str, tuple[int, ...]]:
        return self._parameters.block_shapes

    def _names(self, names: Any = None) -> list[str]:
        """Names of the variables: the given ones, those of a data frame, or numbers."""
        if names is None:
            names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        if not hasattr(names, "__len__") or len(names) != self.n_features_in_:
            raise InvalidInputError(
                f"names must have {self.n_features_in_} entries, got {shown(names)}"
            )
        return [str(name) for name in names]
