"""The ways in which ``fieldfit demo`` learns to restore pictures.

All but the first fit the same model, which has four weights that matter,

    p(y | x) ∝ exp(sum_s y_s (a x_s + b) + sum_{s ~ t} c_d [y_s = y_t]),

with the *pixel weight* ``a`` and a *coupling* ``c_d`` for each of the two directions ``d``; they
differ in the objective.  Without couplings it is logistic regression of a pixel's label on what
was seen there, which is the first method.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.demo.demo_compilation import compile_elsewhere
from fieldfit.demo.demo_digits import NoisyDigits
from fieldfit.entropy.counting_numbers import TreeReweighted
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.models.grid_crf import GridCRF
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood

__all__ = [
    "METHODS",
    "STUDY_NOISE",
    "Level",
    "Method",
    "Outcome",
    "learn",
    "study_levels",
    "warm_up",
]

#: Weak: the training pictures weigh some thousand pixels against it.
L2 = 1.0
#: More than three times what most fits need.
MAX_ITER = 60
#: Objectives that a second process prepares while the first one compiles belief propagation.
COMPILED_ELSEWHERE = ("pseudolikelihood", "trw")
#: From noise that hardly matters to noise that drowns the strokes.
STUDY_NOISE = (0.4, 0.6, 0.8, 1.0, 1.2)


@dataclass(frozen=True)
class Method:
    """A name, its colour, one sentence for the page, and the objective of `GridCRF` (or none).

    ``in_study``: it is quick enough to be learned at several levels of noise.
    """

    name: str
    color: str
    sentence: str
    objective: str | None
    in_study: bool = True
    max_iter: int = MAX_ITER

    @property
    def in_time(self) -> bool:
        """Whether it is expected to converge here; the page says so of the others."""
        return self.max_iter >= MAX_ITER


METHODS: tuple[Method, ...] = (
    Method(
        "independent pixels",
        "#8b94a3",
        "Logistic regression on the pixel alone; neighbours are ignored.",
        None,
    ),
    Method(
        "pseudo-likelihood",
        "#3b82f6",
        "Learns to predict every pixel from the true labels of its neighbours: fast, no inference.",
        "pseudolikelihood",
    ),
    Method(
        "TRW surrogate",
        "#d97706",
        "Likelihood with the tree-reweighted upper bound on log Z: convex, so one optimum.",
        "trw",
    ),
    Method(
        "Bethe surrogate",
        "#10a37f",
        "Likelihood with log Z of belief propagation: an estimate, and not convex.",
        "bethe",
    ),
    Method(
        "CAMEL",
        "#7c3aed",
        "Maximum entropy with the data's moments, as a concave problem (Ganapathi et al., 2008).",
        "camel0",
        in_study=False,
    ),
    Method(
        "contrastive free energy",
        "#0891b2",
        "A few steps of belief optimisation away from the data (Welling and Sutton, 2005).",
        "cf-bethe",
        in_study=False,
    ),
    Method(
        "MLE-Struct",
        "#be185d",
        "Likelihood by searches for best labellings alone, with a certified gap (Tang et al., "
        "2016); it would go on for minutes, and is stopped after some iterations.",
        "mle-struct",
        in_study=False,
        max_iter=35,
    ),
    Method(
        "implicit fitting",
        "#4d7c0f",
        "Weights for the marginals of a concave surrogate, by implicit differentiation (Domke).",
        "implicit",
        in_study=False,
    ),
    Method(
        "procedural fitting",
        "#9a3412",
        "Weights for the beliefs that a few sweeps give, by back-propagation (Domke).",
        "procedural",
    ),
)


@dataclass(frozen=True)
class Outcome:
    """What one method learned, and its restorations of the test pictures."""

    method: Method
    ink: FloatArray  # probability of ink, (pictures, height, width)
    seconds: float  # of training
    n_iter: int
    converged: bool
    status: str
    pixel_weight: float
    couplings: tuple[float, float] | None  # horizontal, vertical
    curve: tuple[tuple[float, float], ...] = ()  # seconds and objective of every iteration
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Level:
    """All methods at one level of noise."""

    digits: NoisyDigits
    outcomes: tuple[Outcome, ...]

    @property
    def noise(self) -> float:
        return self.digits.noise

    def error(self, outcome: Outcome) -> float:
        """Share of wrong test pixels."""
        return float(self.digits.errors(outcome.ink).mean())

    def standard_error(self, outcome: Outcome) -> float | None:
        """Standard error of `error` over test pictures; ``None`` if there is only one."""
        errors = self.digits.errors(outcome.ink)
        return float(errors.std(ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else None

    def confidence(self, outcome: Outcome) -> float:
        """Mean probability of the more probable label of a test pixel."""
        return float(np.maximum(outcome.ink, 1.0 - outcome.ink).mean())

    def find(self, objective: str | None) -> Outcome:
        """The outcome of the method with an objective."""
        return next(o for o in self.outcomes if o.method.objective == objective)


def learn(
    method: Method, digits: NoisyDigits, *, max_iter: int | None = None, show_progress: bool = False
) -> Outcome:
    """Learn from the training pictures, then restore the test pictures."""
    if method.objective is None:
        return _independent(method, digits)
    crf = GridCRF(
        objective=method.objective,
        pairwise="potts",
        l2=L2,
        max_iter=method.max_iter if max_iter is None else max_iter,
        n_jobs=-1,
        verbose=int(show_progress),
    )
    noisy, clean = digits.train
    unseen, _ = digits.test
    # what did not converge is told with the results; a warning in between would break the bars
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        crf.fit(list(noisy), list(clean))
        seconds = time.perf_counter() - begin
        if crf.status_.startswith("interrupted"):  # which a fit survives, and the demo should not
            raise KeyboardInterrupt
        beliefs = np.stack(crf.predict_marginals(list(unseen)))
    blocks = crf.weight_blocks_
    paper, ink = blocks["unary"].ravel()
    return Outcome(
        method=method,
        ink=beliefs[..., 1],
        seconds=seconds,
        n_iter=crf.n_iter_,
        converged=crf.converged_,
        status=crf.status_,
        pixel_weight=float(ink - paper),
        couplings=(float(blocks["horizontal"].item()), float(blocks["vertical"].item())),
        curve=tuple((row["seconds"], row["objective"]) for row in crf.trace_),
        warnings=tuple(str(warning.message) for warning in caught),
    )


def _independent(method: Method, digits: NoisyDigits) -> Outcome:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0 / L2)
    noisy, clean = digits.train
    begin = time.perf_counter()
    model.fit(noisy.reshape(-1, 1), clean.ravel())
    seconds = time.perf_counter() - begin
    seen, _ = digits.test
    ink = model.predict_proba(seen.reshape(-1, 1))[:, 1].reshape(seen.shape)
    n_iter = int(model.n_iter_.max())
    converged = n_iter < model.max_iter
    return Outcome(
        method=method,
        ink=ink,
        seconds=seconds,
        n_iter=n_iter,
        converged=converged,
        status="converged." if converged else f"stopped at max_iter={model.max_iter}.",
        pixel_weight=float(model.coef_.item()),
        couplings=None,
    )


def study_levels(digits: NoisyDigits, levels: Sequence[float]) -> Iterator[Level]:
    """All methods at several levels of noise, one level after the other."""
    for noise in levels:
        noisier = digits.with_noise(noise)
        yield Level(noisier, tuple(learn(method, noisier) for method in METHODS if method.in_study))


def warm_up() -> None:
    """Compile every kernel that the demo uses (about a second if they are in the disk cache).

    A second process compiles what two methods need beyond the others.
    """
    compile_elsewhere(_compile_the_rest)
    few = NoisyDigits.load(1, 1, noise=0.5, seed=0).small()
    for method in sorted(METHODS, key=lambda method: method.objective in COMPILED_ELSEWHERE):
        learn(method, few, max_iter=2)


def _compile_the_rest() -> None:
    """What the objectives in `COMPILED_ELSEWHERE` need beyond belief propagation."""
    graph = FactorGraph.grid(3, 3, n_labels=2)
    TreeReweighted().counting_numbers(graph)
    potentials = Potentials(graph, np.zeros((9, 2)), np.eye(2))
    PseudoLikelihood().value_and_grad(graph, potentials, np.zeros(9, dtype=np.int32))
