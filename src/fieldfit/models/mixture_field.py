"""Coupled mixtures of Gaussians: labels from a random field, a signal given the labels, noise.

    X ~ p(x) ∝ exp(sum_s th_s(x_s) + sum_st th_st(x_s, x_t))          labels
    Z_s | X_s = j  ~  N(nu_j, sig_j^2)                                  signal
    Y_s = alpha Z_s + sqrt(1 - alpha^2) W_s,   W_s ~ N(0, 1)           observations

Given ``y``, the field gets ``log p(y_s | x_s)`` added to its unary potentials; with its beliefs
``tau`` the signal is predicted as

    z_s = sum_j tau_s(j) [nu_j + om_j (y_s - alpha nu_j)],
    om_j = alpha sig_j^2 / (alpha^2 sig_j^2 + 1 - alpha^2),

which is the Bayes estimate (of least mean squared error) if the field and ``tau`` are exact.  Where
they cannot be, learning and predicting with the *same* surrogate lets the errors of the two cancel
in part: a field that was learned with one inference must not be used with another.

Reference: Wainwright, "Estimating the 'wrong' graphical model: benefits in the computation-limited
setting", J. Machine Learning Research 7 (2006).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit._arrays import real_numbers
from fieldfit._parallel import n_threads, ordered_map
from fieldfit._random_state import random_generator
from fieldfit._typing import FloatArray
from fieldfit._validation import require_number, shown
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials, require_graph
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.io.stored import Stored
from fieldfit.models.base import FieldEstimator, Path
from fieldfit.models.dispatch import make_problem
from fieldfit.models.mixture_problem import Components, MixtureSample, as_field, field_graph
from fieldfit.models.pairwise.pairwise_parameters import PottsParameters
from fieldfit.models.pairwise.pairwise_problems import SampleData
from fieldfit.models.pairwise.sample_data import Samples
from fieldfit.models.parts import draw_labels
from fieldfit.models.weight_names import potts_name
from fieldfit.objectives.base import Inference, Objective
from fieldfit.objectives.moment_matching import MomentMatching
from fieldfit.report.kinds.base import Request
from fieldfit.report.report_page import write_report

__all__ = ["MixtureField", "MixturePosterior"]

#: Gibbs sweeps before the first sample of a chain and between two of them, where samples of a field
#: cannot be exact.
BURN_IN, SWEEPS_BETWEEN = 1000, 20
#: Observations that are predicted together: as many as have about this many table entries.
ENTRIES_PER_PART = 2**20


@dataclass(frozen=True)
class MixturePosterior:
    """What a fitted field says about some observations; the first axes are those of ``Y``.

    Attributes
    ----------
    marginals
        Beliefs about the labels, components along the last axis.
    signal
        Expected signal, the prediction.
    variance
        Variance of the signal around it.
    converged
        For each observed field whether the inference converged.
    """

    marginals: FloatArray
    signal: FloatArray
    variance: FloatArray
    converged: NDArray[np.bool_]


class MixtureField(FieldEstimator):
    """A mixture of Gaussians whose labels form a random field.

    Parameters
    ----------
    objective
        How the field is learned and, therefore, which inference predicts: ``"trw"``,
        ``"bethe"``, ``"likelihood"`` (exact), ..., or an object such as
        ``MomentMatching(TreeReweighted(rho=0.5))``.  Surrogates of message passing have a closed
        form if there is no penalty and no label is missing.
    means, variances
        ``nu_j`` and ``sig_j^2`` of each component; their number is the number of labels.
    smoothing
        For the closed form: so many imaginary samples, spread evenly over all configurations,
        are added to the given ones.  A `MomentMatching` object brings its own.
    l2, l1
        Penalties on all potentials; with one of them the field is learned iteratively.
    learner, max_iter, tol
        How the iterative learner runs; ``None`` chooses one.
    random_state, n_jobs, verbose
        Seed, threads (the result does not depend on their number), progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, size=(500, 1, 1)) ^ (rng.random((500, 3, 3)) < 0.2)
    >>> field = MixtureField(means=(-1, 1), variances=(0.1, 0.1)).fit(labels)
    >>> alone = MixtureField(means=(-1, 1), variances=(0.1, 0.1)).fit(labels, edges=[])
    >>> _, signal, observations = field.sample(200, alpha=0.5, random_state=1)
    >>> field.score(signal, observations, alpha=0.5) > alone.score(signal, observations, alpha=0.5)
    True
    """

    graph_: FactorGraph
    potentials_: Potentials
    shape_: tuple[int, ...]

    def __init__(
        self,
        objective: str | Objective = "trw",
        *,
        means: ArrayLike = (-1.0, 1.0),
        variances: ArrayLike = (1.0, 1.0),
        smoothing: float = 1.0,
        l2: float = 0.0,  # without a penalty surrogates have a closed form
        l1: float = 0.0,
        learner: Any = None,
        max_iter: int = 200,
        tol: float = 1e-5,
        random_state: int | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.means = means
        self.variances = variances
        self.smoothing = smoothing
        self.l2 = l2
        self.l1 = l1
        self.learner = learner
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # -- learning -----------------------------------------------------------------------------

    def fit(
        self,
        labels: ArrayLike,
        edges: ArrayLike | None = None,
        shape: tuple[int, int] | None = None,
        *,
        checkpoint: Path | None = None,
        start: ArrayLike | None = None,
    ) -> MixtureField:
        """Learn the field of the labels.

        Parameters
        ----------
        labels
            Samples ``(M, N)``, or ``(M, height, width)`` for a grid; ``-1`` is a missing label.
        edges
            ``(E, 2)`` pairs of variables; an empty list makes the variables independent.  If
            ``None``, the graph is a grid with four neighbours.
        shape
            ``(height, width)`` of the grid, if ``labels`` has shape ``(M, N)``.
        checkpoint
            File to resume an iterative fit from if it exists, and to write progress to.
        start
            Weights (potentials) that an iterative fit begins with; zeros if ``None``.
        """
        self._check_options()
        components = self._components()
        samples, graph, field_shape = field_graph(labels, edges, shape, components.n_components)
        self._reset_fit()
        self.shape_ = field_shape
        self._block_shapes = _block_shapes(graph)
        rows = Samples.of(samples.astype(np.int16), np.ones(len(samples)))
        objective = self._solved(self._objective(), is_complete=rows.n_complete == rows.n_rows)
        data = SampleData(PottsParameters.on(graph), [rows], self.n_jobs)
        problem = make_problem("samples", objective, data)
        self._learn(problem, start, checkpoint=checkpoint)
        self._set_graph(graph)
        return self

    def assume(self, graph: FactorGraph, potentials: Potentials) -> MixtureField:
        """Take the field as known instead of learning it.

        With ``objective="likelihood"`` the predictions are then those of the Bayes estimator.
        """
        self._check_options()
        require_graph(graph, potentials)
        if graph.uniform_cardinality != self._components().n_components:
            raise InvalidInputError(
                f"graph must have {self._components().n_components} labels for each variable, as "
                f"many as there are means, got {graph!r}"
            )
        if not bool(np.all(graph.arities == 2)):
            raise InvalidInputError(f"graph must have pairwise factors only, got {graph!r}")
        self.shape_ = (graph.n_variables,)
        self._block_shapes = _block_shapes(graph)
        self._set_weights(potentials, "the field was given")
        self._set_graph(graph)
        return self

    def _set_weights(self, potentials: Potentials, status: str) -> None:
        self.weights_ = np.concatenate([potentials.unary_values, potentials.factor_values])
        self.n_iter_ = 0
        self.converged_ = True
        self.status_ = status
        self.trace_ = []

    def _set_graph(self, graph: FactorGraph) -> None:
        self.graph_ = graph
        split = int(graph.unary_offsets[-1])
        self.potentials_ = Potentials.from_flat(graph, self.weights_[:split], self.weights_[split:])

    def _solved(self, objective: Objective, *, is_complete: bool) -> Objective:
        """The objective, or the moment matching that solves it at once.

        Surrogate likelihoods of message passing are solved by the moments of complete samples, if
        there is no penalty and no learner was asked for.
        """
        is_plain = self.l2 == 0.0 and self.l1 == 0.0
        if objective.problem_kind == "moments":
            if not is_plain:
                raise InvalidInputError(
                    "l2 and l1 must be 0 for objective 'moment-matching', whose closed form has no "
                    f"penalty, got l2={self.l2}, l1={self.l1}"
                )
            if self.objective != "moment-matching":
                return objective  # an object, with a smoothing of its own
            return MomentMatching(smoothing=self.smoothing)
        inference = getattr(objective, "inference", None)
        if (
            objective.problem_kind != "likelihood"
            or not (is_plain and is_complete and self.learner is None)
            or not isinstance(inference, SumProduct)
            or inference.entropy.is_optimized
        ):
            return objective
        return MomentMatching(inference.entropy, smoothing=self.smoothing)

    # -- prediction ---------------------------------------------------------------------------

    def predict(self, Y: ArrayLike, alpha: ArrayLike) -> FloatArray:
        """Predicted signal, in the shape of ``Y``; see `infer`."""
        found = self.infer(Y, alpha)
        self._warn(int((~found.converged).sum()), found.converged.size)
        return found.signal

    def predict_marginals(self, Y: ArrayLike, alpha: ArrayLike) -> FloatArray:
        """Beliefs about the labels, in the shape of ``Y`` with the components behind it."""
        found = self.infer(Y, alpha)
        self._warn(int((~found.converged).sum()), found.converged.size)
        return found.marginals

    def score(self, Z: ArrayLike, Y: ArrayLike, alpha: ArrayLike) -> float:
        """Minus the mean squared error of the predicted signal, so that larger is better."""
        signal = real_numbers("Z", Z)
        found = self.predict(Y, alpha)
        if signal.shape != found.shape:
            raise InvalidInputError(f"Z must have the shape {found.shape} of Y, got {signal.shape}")
        if signal.size == 0 or not np.isfinite(signal).all():
            raise InvalidInputError("Z must hold at least one number and only finite ones")
        return -float(np.mean((signal - found) ** 2))

    def infer(self, Y: ArrayLike, alpha: ArrayLike) -> MixturePosterior:
        """Beliefs, signal and convergence for noisy observations.

        Parameters
        ----------
        Y
            One or more observed fields: ``(N,)`` or ``(n, N)``, for a grid also ``(height,
            width)`` or ``(n, height, width)``.  NaN is "not observed".
        alpha
            Share of the signal in the observations, in [0, 1]; a number, or an array that
            broadcasts to ``Y`` (for instance one for each observed field).
        """
        self._require_fit()
        given, shares = as_field("Y", Y, alpha, self.shape_)
        likelihood, mean, spread = self._components().condition(given, shares)
        marginals, converged = self._beliefs(likelihood)
        signal = np.sum(marginals * mean, axis=-1)
        variance = np.sum(marginals * (spread + (mean - signal[..., None]) ** 2), axis=-1)
        shape = np.shape(Y)
        return MixturePosterior(
            marginals.reshape(*shape, marginals.shape[-1]),
            signal.reshape(shape),
            variance.reshape(shape),
            converged,
        )

    def _beliefs(self, likelihood: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Unary beliefs ``(n, N, K)`` of the field with a log-likelihood added, part by part."""
        count, graph = len(likelihood), self.graph_
        inference = self._objective().prediction(graph)
        entries = int(graph.unary_offsets[-1]) + int(graph.table_offsets[-1])
        size = max(1, ENTRIES_PER_PART // max(entries, 1))
        parts = [likelihood[begin : begin + size] for begin in range(0, count, size)]
        found = ordered_map(
            lambda part: run_copies(inference, self.potentials_, part),
            parts,
            n_threads(self.n_jobs),
        )
        if not found:
            return np.zeros_like(likelihood), np.zeros(0, dtype=bool)
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    def report(  # type: ignore[override]
        self,
        path: Path,
        Y: Any = None,
        Z: Any = None,
        *,
        alpha: ArrayLike = 1.0,
        n_examples: int = 4,
        label_names: Sequence[Any] | None = None,
    ) -> None:
        """Write a report of the fit: one HTML page that needs no network.

        Parameters
        ----------
        path
            Of the HTML file.
        Y, alpha
            Observed fields to show predictions for, and the share of the signal in them, as `infer`
            takes them.
        Z
            The true signal, in the shape of ``Y``.
        n_examples
            Observed fields that are shown one by one.
        label_names
            What the components are called on the page.
        """
        self._require_fit()
        write_report(path, Request(self, Y, Z, n_examples, label_names, alpha=alpha))

    # -- sampling -----------------------------------------------------------------------------

    def sample(
        self, n_samples: int, alpha: ArrayLike = 1.0, random_state: int | None = None
    ) -> MixtureSample:
        """Labels, signal and observations drawn from the fitted field.

        Labels are independent exact samples where the treewidth allows it, otherwise taken from
        a Gibbs sampler.  Note that a field learned with a surrogate reproduces the moments of
        the data under that surrogate, not under its own exact distribution.
        """
        self._require_fit()
        generator = random_generator(self.random_state if random_state is None else random_state)
        labels = draw_labels(
            self.graph_, self.potentials_, n_samples, generator, BURN_IN, SWEEPS_BETWEEN
        )
        _, shares = as_field("Y", np.zeros(labels.shape), alpha, self.shape_)
        return self._components().draw(labels, shares, generator).reshaped(self.shape_)

    # -- options and files --------------------------------------------------------------------

    def _components(self) -> Components:
        return Components.checked(self.means, self.variances)

    def _check_options(self) -> None:
        super()._check_options()
        self._components()
        require_number("smoothing", self.smoothing, at_least=0)

    def _weight_namer(self) -> Callable[[int], str]:
        places = list(np.ndindex(*self.shape_))
        names = [f"variable {place if len(place) > 1 else place[0]}" for place in places]
        edges = self.graph_.slot_variables.reshape(-1, 2)
        n_labels = int(self.graph_.uniform_cardinality or 0)
        return lambda position: potts_name(position, names, edges, n_labels)

    def _model_metadata(self) -> dict[str, Any]:
        return {"shape": list(self.shape_), "n_variables": self.graph_.n_variables}

    def _model_arrays(self) -> dict[str, NDArray[Any]]:
        return {"edges": self.graph_.slot_variables.reshape(-1, 2).astype(np.int32)}

    def _restore_model(self, stored: Stored) -> None:
        n_variables = stored.integer("n_variables", 1, max(len(self.weights_), 1))
        self.shape_ = tuple(stored.items("shape", int))
        if math.prod(self.shape_) != n_variables or len(self.shape_) not in (1, 2):
            raise FileFormatError(
                f"expected 'shape' of {n_variables} variables, found {shown(self.shape_)}"
            )
        edges = stored.indices("edges", (None, 2), 0, n_variables - 1)
        graph = FactorGraph.from_edges(n_variables, edges, self._components().n_components)
        if graph.unary_offsets[-1] + graph.table_offsets[-1] != len(self.weights_):
            raise FileFormatError(
                f"expected a weight for each entry of {graph!r}, found {len(self.weights_)}"
            )
        self._set_graph(graph)

    def _shapes_of_model(self) -> dict[str, tuple[int, ...]]:
        return _block_shapes(self.graph_)


def run_copies(
    inference: Inference, potentials: Potentials, likelihood: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Beliefs of as many copies of a field as there are rows of log-likelihoods."""
    batch = _copies(potentials.graph, len(likelihood))
    unary = potentials.unary_matrix() + likelihood
    tables = np.tile(potentials.factor_values, len(likelihood))
    result = inference.run_batch(
        batch, Potentials.from_flat(batch.graph, unary.reshape(-1), tables)
    )
    converged = result.converged_examples
    if converged is None:
        converged = np.full(len(likelihood), result.converged)
    return result.beliefs.unary_values.reshape(likelihood.shape), converged


@lru_cache(maxsize=8)
def _copies(graph: FactorGraph, count: int) -> Batch:
    """The union of copies; predicting again with the same number finds all plans made."""
    return Batch.of([graph] * count)


def _block_shapes(graph: FactorGraph) -> dict[str, tuple[int, ...]]:
    n_labels = graph.uniform_cardinality or 0
    return {
        "unary": (graph.n_variables, n_labels),
        "tables": (graph.n_factors, n_labels, n_labels),
    }
