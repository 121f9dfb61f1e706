"""Penalties of conditional models: given, by block, or chosen on held-out examples.

    F(w) = sum over examples of objective(w) + sum over blocks b of l2_b / 2 |w_b|^2

``l2="auto"`` chooses the ``l2_b`` on examples that are held out.  Penalties are then relative to
the scale of a block's statistics, ``l2_b = c s_b`` with

    s_b = sum over tables r of x_r[d]^2,  mean over the features d,

so that a strength ``c`` means the same on 50 pictures and on 5,000, whatever the units of the
features.  The search begins with independent variables, which are a field with infinitely strong
penalties on its couplings.  From there the penalty on the couplings is lowered step by step, each
fit starting from the last one, and taken if held-out examples are labelled better by more than
chance explains.  So a field whose couplings do not help ends as the independent model, and says so.

Reference for choosing by standard errors: Breiman, Friedman, Olshen and Stone, "Classification and
regression trees" (1984), section 3.4.3.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fieldfit._random_state import as_seed
from fieldfit._typing import FloatArray
from fieldfit._validation import require_number, shown
from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.models.base import about_validation, held_out_pair

__all__ = [
    "AUTO",
    "Choice",
    "RelativePenalty",
    "Scales",
    "check_l2",
    "choose_penalty",
    "l2_by_block",
    "require_uninterrupted",
    "standard_error",
]

AUTO = "auto"

#: Shows a row of the path.
Show = Callable[[dict[str, Any]], None]
#: Name of a block -> scale of its statistics, and whether its weights couple variables.
Scales = Mapping[str, tuple[float, bool]]

#: Strengths of the penalty on the weights of single variables.  They are fitted first, alone,
#: which takes no time, and few features need more than a touch.
UNARY_STRENGTHS = (1e-2, 1e-3, 1e-4, 1e-5)
#: Strengths of the penalty on couplings: from where nothing is left of them to where one in a
#: thousand tables decides.
COUPLING_STRENGTHS = (10.0, 1.0, 0.1, 0.01, 1e-3, 1e-4)
#: Without examples to hold out.
DEFAULT_STRENGTH = 1e-3
#: Penalties of models whose features are not separate from their couplings (chains).
PLAIN_L2 = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
#: Fewer examples give no standard error worth the name.
FEWEST_EXAMPLES = 8
FEWEST_HELD_OUT = 3
HELD_OUT_SHARE = 0.25
#: Standard errors by which a weaker penalty must be better: a one-sided test at 5 %.
SIGNIFICANT = 1.645
#: Penalties in a row that are worse than the best, after which the search ends; those above 1
#: leave nothing of the couplings, and do not count.
PATIENCE = 2
#: Gradients of fits on the path: scores settle long before weights.
PATH_TOL = 1e-3


# -- penalties as options ------------------------------------------------------------------


@dataclass(frozen=True)
class RelativePenalty:
    """Penalties ``l2_b = c s_b`` relative to the scale of each block's statistics.

    Parameters
    ----------
    unary, couplings
        Strengths ``c`` of blocks of single variables, and of all others.

    Examples
    --------
    >>> RelativePenalty(1e-4, couplings=0.01)
    RelativePenalty(unary=0.0001, couplings=0.01)
    """

    unary: float = DEFAULT_STRENGTH
    couplings: float = field(default=DEFAULT_STRENGTH, kw_only=True)

    def __post_init__(self) -> None:
        require_number("unary", self.unary, at_least=0)
        require_number("couplings", self.couplings, at_least=0)

    def by_block(self, scales: Scales) -> dict[str, float]:
        """``c s_b`` by the name of the block."""
        return {
            # a block without tables has nothing to be relative to
            name: (self.couplings if couples else self.unary) * (scale or 1.0)
            for name, (scale, couples) in scales.items()
        }


def check_l2(l2: Any) -> None:
    """Refuse what is no penalty: see the head of this file."""
    if isinstance(l2, RelativePenalty):
        return
    if isinstance(l2, Mapping):
        for name, value in l2.items():
            require_number(f"l2[{name!r}]", value, at_least=0)
    elif isinstance(l2, str) and l2 != AUTO:
        raise InvalidInputError(
            "l2 must be a number of at least 0, 'auto', or numbers by the name of a block, "
            f"got {shown(l2)}"
        )
    elif not isinstance(l2, str):
        require_number("l2", l2, at_least=0)


def l2_by_block(
    l2: float | Mapping[str, float], shapes: Mapping[str, tuple[int, ...]]
) -> float | FloatArray:
    """The penalty of each weight; ``shapes`` are those of the blocks, in their order.

    Where every sweep has weights of its own, a block's name is followed by that of the sweep.

    Examples
    --------
    >>> l2_by_block({"unary": 1.0, "edges": 2.0}, {"unary": (2,), "edges": (1, 1)})
    array([1., 1., 2.])
    """
    if not isinstance(l2, Mapping):
        return float(l2)
    own = {name: name if name in l2 else name.split(", sweep ")[0] for name in shapes}
    if set(own.values()) != set(l2):
        raise InvalidInputError(
            f"l2 must have a number for each block of weights {sorted(set(own.values()))}, "
            f"got {shown(dict(l2))}"
        )
    return np.concatenate(
        [
            np.full(int(np.prod(shape, dtype=np.int64)), float(l2[own[name]]))
            for name, shape in shapes.items()
        ]
    )


# -- the search ----------------------------------------------------------------------------


@dataclass
class Choice:
    """What a search found.

    Attributes
    ----------
    l2
        The penalty.
    is_independent
        No field did better than independent variables.
    start
        Weights to begin the last fit with; ``None`` if they are not those of the same model.
    path
        One row for each fit: ``"model"`` (``"independent"`` or ``"field"``), ``"l2"`` (a strength
        or a number), ``"score"``, ``"standard_error"`` of the gain over the best fit before it,
        ``"n_iter"``, ``"converged"``, ``"seconds"``.
    sentence
        For the status of the fit.
    """

    l2: float | RelativePenalty
    is_independent: bool = False
    start: FloatArray | None = None
    path: list[dict[str, Any]] = field(default_factory=list)
    sentence: str = ""


@dataclass(frozen=True)
class _Data:
    """Examples, their labels and their weights."""

    X: Sequence[Any]
    Y: Sequence[Any]
    weights: FloatArray | None = None

    def part(self, chosen: NDArray[np.intp]) -> _Data:
        weights = None if self.weights is None else self.weights[chosen]
        return _Data([self.X[m] for m in chosen], [self.Y[m] for m in chosen], weights)


def choose_penalty(
    estimator: Any,
    X: Sequence[Any],
    Y: Sequence[Any],
    weights: FloatArray | None,
    validation: tuple[Sequence[Any], Sequence[Any]] | None,
    fixed: Mapping[str, Any],
) -> Choice:
    """Search along the path of penalties.

    ``validation`` are the held-out examples, if the user gave some; ``fixed`` are options that
    follow from all examples together (the number of labels).
    """
    data = _Data(X, Y, weights)
    if validation is not None:
        with about_validation():
            given = held_out_pair(validation)
            estimator._require_examples(*given)
        train, held_out = data, _Data(*given)
        source = f"the {len(held_out.X)} examples of validation"
    elif len(X) < FEWEST_EXAMPLES:
        return Choice(
            RelativePenalty() if estimator._has_scales else 1.0,
            sentence=(
                f"l2 was not chosen on held-out examples, which needs {FEWEST_EXAMPLES} examples, "
                f"got {len(X)}"
            ),
        )
    else:
        train, held_out = _split(data, estimator.random_state)
        source = f"{len(held_out.X)} of {len(X)} examples"
    search = _Search(estimator, train, held_out, dict(fixed))
    search.is_given = validation is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of fits that are not the last one
        choice = search.by_strength() if estimator._has_scales else search.by_number()
    choice.sentence = f"{choice.sentence} on {source} that were held out"
    return choice


def _split(data: _Data, random_state: Any) -> tuple[_Data, _Data]:
    count = len(data.X)
    order = np.random.default_rng(as_seed(random_state)).permutation(count)
    n_held_out = max(FEWEST_HELD_OUT, round(HELD_OUT_SHARE * count))
    return data.part(np.sort(order[n_held_out:])), data.part(np.sort(order[:n_held_out]))


class _Search:
    """Fits along one path, scored on held-out examples."""

    def __init__(
        self, estimator: Any, train: _Data, held_out: _Data, fixed: dict[str, Any]
    ) -> None:
        self.estimator, self.train, self.held_out = estimator, train, held_out
        self.options = {**fixed, "tol": max(PATH_TOL, estimator.tol), "verbose": 0}
        self.path: list[dict[str, Any]] = []
        self.n_labelled = np.zeros(0)
        #: Whether the user gave the held-out examples.
        self.is_given = False

    def by_strength(self) -> Choice:
        """Independent variables first, then weaker and weaker penalties on the couplings."""
        is_field = self.estimator._has_couplings(self.train.X)
        n_fits = len(UNARY_STRENGTHS) + is_field * len(COUPLING_STRENGTHS)
        with self._progress(n_fits) as show:
            unary, alone, start = self._independent(show)
            choice = Choice(
                RelativePenalty(unary, couplings=unary), is_field, start=start, path=self.path
            )
            best = self._lower_couplings(unary, choice, alone, show) if is_field else alone
        score, plain = self._share(best), self._share(alone)
        if not is_field:
            choice.sentence = (
                f"a penalty of {unary:g} of the scale of the statistics, accuracy {plain:.4f}: "
                "chosen"
            )
        elif choice.is_independent:
            choice.sentence = (
                "no field did better than independent variables, whose accuracy was "
                f"{plain:.4f}, so couplings are zero: chosen"
            )
        else:
            assert isinstance(choice.l2, RelativePenalty)
            choice.sentence = (
                f"penalties of {unary:g} (unary) and {choice.l2.couplings:g} (couplings) of the "
                f"scale of their statistics, accuracy {score:.4f} against {plain:.4f} of "
                "independent variables: chosen"
            )
        return choice

    def _independent(self, show: Show) -> tuple[float, FloatArray, FloatArray]:
        """The best strength for independent variables, what they label rightly, their weights."""
        options: dict[str, Any] = {"objective": "independent", "learner": None, "decode": None}
        found: list[tuple[float, FloatArray, FloatArray]] = []
        start = None
        for strength in UNARY_STRENGTHS:
            model = self._fit(start, **options, l2=RelativePenalty(strength, couplings=strength))
            start, right = model.weights_, self._right(model)
            show(self._note("independent", strength, model, right, found[-1][1] if found else None))
            if not found or right.sum() > found[-1][1].sum():
                found.append((strength, right, start))
        return found[-1]

    def _lower_couplings(
        self, unary: float, choice: Choice, alone: FloatArray, show: Show
    ) -> FloatArray:
        """Put the best field into ``choice``; what it labels rightly."""
        best, start, waited = alone, choice.start, 0
        for strength in COUPLING_STRENGTHS:
            l2 = RelativePenalty(unary, couplings=strength)
            model = self._fit(start, l2=l2)
            start, right = model.weights_, self._right(model)
            show(self._note("field", strength, model, right, best))
            if self._is_better(right, best):
                best, choice.l2, choice.is_independent, choice.start = right, l2, False, start
            is_worse = right.sum() < best.sum() and strength < 1.0
            waited = waited + 1 if is_worse else 0
            if waited >= PATIENCE:
                break
        return best

    def by_number(self) -> Choice:
        """One number for all weights, from large to small."""
        best, choice, start, waited = None, Choice(PLAIN_L2[0], path=self.path), None, 0
        with self._progress(len(PLAIN_L2)) as show:
            for l2 in PLAIN_L2:
                model = self._fit(start, l2=l2)
                start, right = model.weights_, self._right(model)
                show(self._note("field", l2, model, right, best))
                if best is None or right.sum() > best.sum():
                    best, choice.l2, waited = right, l2, 0
                else:
                    waited += 1
                if waited >= PATIENCE:
                    break
        assert best is not None
        choice.sentence = f"l2={choice.l2:g}, accuracy {self._share(best):.4f}: chosen"
        return choice

    def _fit(self, start: FloatArray | None = None, **options: Any) -> Any:
        model = clone(self.estimator).set_params(**{**self.options, **options})
        before = time.perf_counter()
        model.fit(self.train.X, self.train.Y, sample_weight=self.train.weights, start=start)
        require_uninterrupted(model)
        self.seconds = time.perf_counter() - before
        return model

    def _right(self, model: Any) -> FloatArray:
        """How many labels of each held-out example are found."""
        with about_validation() if self.is_given else nullcontext():
            right, self.n_labelled = model._right_labels(self.held_out.X, self.held_out.Y)
        if not self.n_labelled.any():
            raise InvalidInputError(
                f"l2='auto' needs labels in held-out examples, got none in {len(self.held_out.X)} "
                "of them; a number for l2 needs none"
            )
        return np.asarray(right)

    def _share(self, right: FloatArray) -> float:
        return float(right.sum() / self.n_labelled.sum())

    def _is_better(self, right: FloatArray, best: FloatArray) -> bool:
        gain = (right.sum() - best.sum()) / self.n_labelled.sum()
        return bool(gain > SIGNIFICANT * standard_error(right - best, self.n_labelled))

    def _note(
        self, kind: str, l2: float, model: Any, right: FloatArray, best: FloatArray | None
    ) -> dict[str, Any]:
        """A row of the path."""
        row = {
            "model": kind,
            "l2": float(l2),
            "score": self._share(right),
            "standard_error": (
                0.0 if best is None else standard_error(right - best, self.n_labelled)
            ),
            "n_iter": model.n_iter_,
            "converged": model.converged_,
            "seconds": self.seconds,
        }
        self.path.append(row)
        return row

    @contextmanager
    def _progress(self, n_fits: int) -> Iterator[Show]:
        if self.estimator.verbose <= 0:
            yield lambda row: None
            return
        from tqdm import tqdm

        with tqdm(total=n_fits, unit="penalty", desc="choosing l2") as bar:

            def show(row: dict[str, Any]) -> None:
                bar.set_postfix({"l2": row["l2"], "held out": f"{row['score']:.4f}"}, refresh=False)
                bar.update()

            yield show


def require_uninterrupted(model: Any) -> None:
    """Pass on the user's interrupt of a fit that was only a step on the way."""
    if model.status_.startswith("interrupted"):
        raise KeyboardInterrupt("interrupted while the first weights and penalties were chosen")


def standard_error(differences: FloatArray, sizes: FloatArray) -> float:
    """Of ``sum differences / sum sizes``, a ratio over examples of different sizes.

    Examples
    --------
    >>> standard_error(np.array([1.0, 3.0]), np.array([10.0, 10.0]))
    0.1
    """
    count, total = len(sizes), float(sizes.sum())
    if count < 2 or total == 0.0:
        return 0.0
    away = differences - differences.sum() / total * sizes
    return float(np.sqrt(count / (count - 1) * (away @ away))) / total
