"""One trial: draw a field, learn it in several ways, predict noisy signals.

The mean squared error of a prediction ``z`` exceeds that of the Bayes estimate ``z*`` by exactly
the mean of ``(z - z*)^2``, because ``z*`` is the conditional expectation.  A trial records this
mean; it has far less noise than the difference of two errors against the signal, which is recorded
too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit import (
    Beliefs,
    Bethe,
    Exact,
    FactorGraph,
    MixtureField,
    MomentMatching,
    Potentials,
    TreeReweighted,
)
from fieldfit.inference import sample_exactly
from fieldfit.models import error_bound

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Components:
    """Means and variances of the signal, given the label."""

    means: tuple[float, float]
    variances: tuple[float, float]

    def draw(
        self, labels: NDArray[np.int32], alpha: FloatArray, generator: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Signals, and observations of them with a signal-to-noise ratio ``alpha``."""
        noise = generator.normal(size=(2, *labels.shape))
        means, variances = np.array(self.means), np.array(self.variances)
        signal = means[labels] + np.sqrt(variances[labels]) * noise[0]
        return signal, alpha * signal + np.sqrt(1.0 - alpha**2) * noise[1]


#: The two ensembles.
COMPONENTS = {
    "bimodal": Components((-1.0, 1.0), (0.5, 0.5)),
    "heavy": Components((0.0, 0.0), (1.0, 9.0)),
}
#: Imaginary samples added to the frequencies, so that no pair of labels has frequency zero.
SMOOTHING = 1.0
#: Labels 0 and 1 are the spins -1 and +1; this is the table of their product.
SPINS = np.array([[1.0, -1.0], [-1.0, 1.0]])


@dataclass(frozen=True)
class Method:
    """How a field is learned: which surrogate, whether with edges, from which moments."""

    matching: MomentMatching
    has_edges: bool = True
    n_samples: int | None = None  # other than the design's

    def learn(self, samples: NDArray[np.int32]) -> MixtureField:
        """From samples of labels, shape ``(n_samples, size, size)``."""
        model = MixtureField(objective=self.matching)
        return model.fit(samples[: self.n_samples], edges=None if self.has_edges else [])

    def limit(self, graph: FactorGraph, moments: Beliefs) -> MixtureField:
        """From the exact marginals, i.e. from infinitely many samples."""
        if not self.has_edges:
            graph = _without_edges(graph.n_variables)
            moments = Beliefs(graph, moments.unary_values, np.zeros(0))
        model = MixtureField(objective=self.matching)
        return model.assume(graph, self.matching.potentials(graph, moments))


#: The three methods of the paper; its tree-reweighted one has weight 1/2 on every edge.
METHODS = {
    "IND": Method(MomentMatching(Bethe(), smoothing=SMOOTHING), has_edges=False),
    "BP": Method(MomentMatching(Bethe(), smoothing=SMOOTHING)),
    "TRW": Method(MomentMatching(TreeReweighted(rho=0.5), smoothing=SMOOTHING)),
}
#: What else one might have done, for comparison.
VARIANTS = {
    "TRW, spanning-tree weights": Method(MomentMatching(TreeReweighted(), smoothing=SMOOTHING)),
    "BP, 1,000 samples": Method(MomentMatching(Bethe(), smoothing=SMOOTHING), n_samples=1000),
    "TRW, 1,000 samples": Method(
        MomentMatching(TreeReweighted(rho=0.5), smoothing=SMOOTHING), n_samples=1000
    ),
}


@dataclass(frozen=True)
class Design:
    """Sizes of the experiment."""

    size: int
    couplings: tuple[float, ...]
    alphas: tuple[float, ...]
    n_trials: int
    n_samples: int
    n_observations: int  # for each trial, ensemble and alpha
    has_variants: bool = True

    def graph(self) -> FactorGraph:
        """The grid of labels."""
        return _grid(self.size)


@dataclass
class Trial:
    """Means over the observations of one trial, one entry for each alpha.

    Keys are ``(ensemble,)`` or ``(ensemble, method)``, where a method learned from exact
    marginals has ``" limit"`` behind its name.
    """

    risk: dict[str, FloatArray] = field(default_factory=dict)  # of the Bayes estimate
    error: dict[str, FloatArray] = field(default_factory=dict)  # the same, against the signal
    bound: dict[str, FloatArray] = field(default_factory=dict)  # Theorem 1, for "TRW limit"
    theorem: dict[str, FloatArray] = field(default_factory=dict)
    increase: dict[tuple[str, str], FloatArray] = field(default_factory=dict)
    errors: dict[tuple[str, str], FloatArray] = field(default_factory=dict)
    converged: dict[tuple[str, str], FloatArray] = field(default_factory=dict)
    learn_seconds: dict[str, float] = field(default_factory=dict)
    predict_seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The same in lists, which can be stored as JSON."""
        return {
            name: [[key, np.asarray(values).tolist()] for key, values in table.items()]
            for name, table in vars(self).items()
        }

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Trial:
        """The trial that was stored."""
        tables: dict[str, Any] = {}
        for name, pairs in facts.items():
            keys = [tuple(key) if isinstance(key, list) else key for key, _ in pairs]
            values = [np.array(v) if isinstance(v, list) else v for _, v in pairs]
            tables[name] = dict(zip(keys, values, strict=True))
        return cls(**tables)


def run_trial(design: Design, coupling: float, generator: np.random.Generator) -> Trial:
    """One random field of the given coupling strength, with all methods and noise levels."""
    trial, graph = Trial(), design.graph()
    strengths = generator.uniform(0.0, coupling, graph.n_factors)
    truth = Potentials(graph, factors=strengths[:, None, None] * SPINS)
    marginals = Exact().run(graph, truth).beliefs
    alpha = np.repeat(design.alphas, design.n_observations)
    n_observed = len(alpha)
    # one call for both purposes: most of its time goes into the clique tree
    labels = sample_exactly(graph, truth, design.n_samples + n_observed, random_state=generator)
    samples = labels[: design.n_samples].reshape(-1, design.size, design.size)
    hidden = labels[design.n_samples :]

    models = {}
    for name, method in (METHODS | (VARIANTS if design.has_variants else {})).items():
        begin = time.perf_counter()
        models[name] = method.learn(samples)
        trial.learn_seconds[name] = time.perf_counter() - begin
    models |= {f"{name} limit": method.limit(graph, marginals) for name, method in METHODS.items()}
    bayes = MixtureField(objective="likelihood").assume(graph, truth)

    shape = (len(design.alphas), -1)
    for ensemble, components in COMPONENTS.items():
        signal, observations = components.draw(hidden, alpha[:, None], generator)
        options = {"means": components.means, "variances": components.variances}
        best = bayes.set_params(**options).infer(observations, alpha[:, None])
        trial.risk[ensemble] = best.variance.reshape(shape).mean(axis=1)
        trial.error[ensemble] = _squares(best.signal - signal, shape)
        for name, model in models.items():
            begin = time.perf_counter()
            found = model.set_params(**options).infer(observations, alpha[:, None])
            trial.predict_seconds[ensemble, name] = time.perf_counter() - begin
            trial.increase[ensemble, name] = _squares(found.signal - best.signal, shape)
            trial.errors[ensemble, name] = _squares(found.signal - signal, shape)
            trial.converged[ensemble, name] = found.converged.reshape(shape).mean(axis=1)
        limits = error_bound(models["TRW limit"], observations, alpha, truth)
        smaller = np.minimum(limits.theorem, limits.interval)
        trial.bound[ensemble] = smaller.reshape(shape).mean(axis=1)
        trial.theorem[ensemble] = limits.theorem.reshape(shape).mean(axis=1)
    return trial


def _squares(difference: FloatArray, shape: tuple[int, int]) -> FloatArray:
    means: FloatArray = (difference**2).reshape(shape).mean(axis=1)
    return means


@lru_cache(maxsize=4)
def _grid(size: int) -> FactorGraph:
    return FactorGraph.grid(size, size, 2)


@lru_cache(maxsize=4)
def _without_edges(n_variables: int) -> FactorGraph:
    return FactorGraph(np.full(n_variables, 2))
