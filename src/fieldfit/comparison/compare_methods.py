"""``compare``: several objectives on the user's own data, within a budget of time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from fieldfit._random_state import as_seed, require_random_state
from fieldfit._validation import (
    made_folder,
    require_integer,
    require_number,
    require_verbose,
    shown,
)
from fieldfit.comparison.comparison_result import Comparison
from fieldfit.comparison.method_candidates import (
    BASELINE,
    checked_methods,
    default_methods,
    family_of,
    penalties,
)
from fieldfit.comparison.method_search import Data, Fold, MethodRow, Task, run_method
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.io._atomic_file import write_atomically
from fieldfit.models.base import held_out_pair, require_pairs
from fieldfit.models.penalties import RelativePenalty

__all__ = ["compare"]

#: Seconds for all methods together.
DEFAULT_BUDGET = 300.0
#: From so many examples on, one quarter that is held out says as much as several folds.
MANY_EXAMPLES = 40
FEW_FOLDS = 3
HELD_OUT_SHARE = 0.25
FEWEST_EXAMPLES = 4
#: Kept in ``folder``: what has been compared, and a file for each method that is done.
TASK_FILE, ROWS_FOLDER = "comparison.json", "methods"


def compare(
    estimator: Any,
    X: Any,
    Y: Any = None,
    methods: Sequence[str] | None = None,
    budget: float | None = None,
    *,
    test: Any = None,
    folds: int | None = None,
    folder: str | PathLike[str] | None = None,
    fit_options: Mapping[str, Any] | None = None,
    random_state: int | None = 0,
    verbose: int = 1,
) -> Comparison:
    """Train several objectives on the same examples, and say which one to use.

    Every method gets the same share of the time; what one leaves is for those after it.  A part of
    it searches a penalty (by successive halving, on held-out examples of the first fold), the rest
    fits and scores.  Independent variables are always compared, because a field that does worse
    than they do is of no use.

    Parameters
    ----------
    estimator
        A `ChainCRF`, `SkipChainCRF`, `GridCRF`, `GraphCRF`, `IsingModel`, `PottsModel` or
        `MatchingCRF`.  Its options hold for all methods but ``objective``, ``l2`` and ``learner``.
    X, Y
        As its ``fit`` takes them; no ``Y`` for samples.
    methods
        Names of objectives.  ``None``: what somebody who knows the field would try on data of this
        kind and size.
    budget
        Seconds for all methods together, 300 if ``None``; compilation, minutes in the first
        comparison on a machine, is not counted.  Fits end after the iteration in which
        their time is over, and then count as not converged.
    test
        Further examples ``(X, Y)``, or samples, that take no part in any choice.
    folds
        1: a quarter of the examples is held out; more: cross-validation, which takes as many times
        as long.  ``None``: 1 from 40 examples on, otherwise 3.
    folder
        Where ``results.csv`` and ``index.html`` are written, and every method that is done: the
        same call goes on after an interrupt.
    fit_options
        More arguments for ``fit``, such as ``{"edges": edges}``.
    random_state
        Seed of the cut into folds.
    verbose
        1: a progress bar.

    Returns
    -------
    comparison : Comparison
        ``print`` shows the table and the recommendation; `rows`, `best` and `code` have them for
        programs.

    Examples
    --------
    >>> import fieldfit as ff
    >>> rng = np.random.default_rng(0)
    >>> Y = [np.repeat(rng.integers(0, 2, (8, 1)), 8, axis=1) for _ in range(12)]
    >>> X = [y + rng.normal(size=y.shape) for y in Y]
    >>> found = ff.compare(ff.GridCRF(), X, Y, ["pseudolikelihood"], budget=20, verbose=0)
    >>> [row.method for row in found.methods], found.best.method
    (['independent', 'pseudolikelihood'], 'pseudolikelihood')
    """
    family = family_of(estimator)
    estimator._check_options()
    data = _checked(family, X, Y, "X")
    tested = None if test is None else _test_data(family, test)
    seconds = DEFAULT_BUDGET
    if budget is not None:
        require_number("budget", budget, above=0)
        seconds = float(budget)
    require_integer("folds", folds, at_least=1, or_none=True)
    require_random_state(random_state)
    require_verbose(verbose)
    if not (fit_options is None or isinstance(fit_options, Mapping)):
        raise InvalidInputError(
            f"fit_options must be a dictionary of arguments of fit, got {shown(fit_options)}"
        )
    names = checked_methods(
        default_methods(estimator, data.X, data.Y) if methods is None else methods
    )
    cut = _folds(data, folds, random_state)
    task = Task(
        estimator,
        cut,
        tested,
        _fixed_options(estimator, family, data),
        dict(fit_options or {}),
        "log_loss" if data.Y is None else "error",
    )
    store = _Store.open(folder, task)
    rows = _run_all(task, names, seconds, store, verbose)
    found = Comparison(estimator, tuple(rows), task.measure, _description(data, cut, seconds))
    if folder is not None:
        found.write(folder)
    return found


def _run_all(
    task: Task, names: Sequence[str], seconds: float, store: _Store, verbose: int
) -> list[MethodRow]:
    """Method by method; those that are done are read."""
    rows: list[MethodRow] = []
    left, unary = seconds, RelativePenalty().unary
    with _progress(verbose, seconds) as show:
        for index, name in enumerate(names):
            row = store.read(name)
            if row is None:
                show(name, 0.0, left, rows)
                n_learned = len(task.folds[0].train)
                candidates = penalties(task.estimator, name, n_learned, unary)
                row = run_method(task, name, candidates, max(left, 0.0) / (len(names) - index))
                store.write(row)
            if name == BASELINE and isinstance(row.l2, RelativePenalty):
                unary = row.l2.unary
            rows.append(row)
            left -= row.seconds
            show(name, row.seconds, left, rows)
    return rows


# -- data ------------------------------------------------------------------------------------


def _checked(family: str, X: Any, Y: Any, name: str) -> Data:
    """Examples with labels, or samples."""
    if family == "samples":
        if Y is not None:
            raise InvalidInputError(
                f"Y must be None for samples of one model, got {type(Y).__name__}"
            )
        if not hasattr(X, "__len__") or isinstance(X, (str, bytes, dict)):
            raise InvalidInputError(f"{name} must be a table of samples, got {shown(X)}")
        data = Data(X if hasattr(X, "iloc") else np.asarray(X))
    else:
        require_pairs(X, Y)
        data = Data(X, Y)
    if len(data) < FEWEST_EXAMPLES:
        raise InvalidInputError(
            f"{name} must hold at least {FEWEST_EXAMPLES} examples, so that some can be held out, "
            f"got {len(data)}"
        )
    return data


def _test_data(family: str, test: Any) -> Data:
    if family == "samples":
        return Data(test if hasattr(test, "iloc") else np.asarray(test))
    try:
        X, Y = held_out_pair(test)
    except InvalidInputError:
        raise InvalidInputError("test must be a pair (X, Y) of examples and labels") from None
    require_pairs(X, Y)
    return Data(X, Y)


def _fixed_options(estimator: Any, family: str, data: Data) -> dict[str, Any]:
    """The number of labels, which some of the examples may not show."""
    if family == "graphs":
        found: dict[str, Any] = estimator._fixed_options(data.X, data.Y)
        return found
    if family == "samples" and getattr(estimator, "n_labels", 0) is None:
        return {"n_labels": int(estimator._labels(data.X).max()) + 1}
    return {}


def _folds(data: Data, folds: int | None, random_state: int | None) -> list[Fold]:
    count = len(data)
    if folds is None:
        folds = 1 if count >= MANY_EXAMPLES else FEW_FOLDS
    if folds > count:
        raise InvalidInputError(
            f"folds must be at most the number of examples, {count}, got {folds}"
        )
    order = np.random.default_rng(as_seed(random_state)).permutation(count)
    if folds == 1:
        groups = [order[: max(1, round(HELD_OUT_SHARE * count))]]
    else:
        groups = np.array_split(order, folds)
    return [
        Fold(data.part(np.setdiff1d(order, group)), data.part(np.sort(group))) for group in groups
    ]


def _description(data: Data, folds: Sequence[Fold], seconds: float) -> str:
    what = "samples" if data.Y is None else "examples"
    if len(folds) == 1:
        cut = f"{len(folds[0].held_out)} of them held out"
    else:
        cut = f"{len(folds)}-fold cross-validation"
    return f"{len(data)} {what}, {cut}; at most {seconds:g} s for all methods."


# -- what is kept ----------------------------------------------------------------------------


class _Store:
    """Rows of finished methods in a folder; without one nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    @classmethod
    def open(cls, folder: str | PathLike[str] | None, task: Task) -> _Store:
        """The folder of this comparison; refuses that of another one."""
        if folder is None:
            return cls(None)
        path = made_folder("folder", folder)
        made_folder("folder", path / ROWS_FOLDER)
        options = sorted(task.estimator.get_params(deep=False).items())
        options = [pair for pair in options if pair[0] not in ("verbose", "n_jobs")]
        folds = [(fold.train.X, fold.train.Y) for fold in task.folds]
        tested = None if task.test is None else (task.test.X, task.test.Y)
        digest = joblib.hash(
            (type(task.estimator).__name__, repr(options), folds, tested, dict(task.fit_options))
        )
        kept = path / TASK_FILE
        if kept.exists() and _read_json(kept).get("digest") != digest:
            raise InvalidInputError(
                f"folder {str(path)!r} holds a comparison of other data or options: give another "
                "folder, or delete it"
            )
        write_atomically(kept, [json.dumps({"digest": digest}).encode()])
        return cls(path)

    def read(self, method: str) -> MethodRow | None:
        if self.folder is None or not self._path(method).exists():
            return None
        try:
            return MethodRow.from_json(_read_json(self._path(method)))
        except (KeyError, TypeError, ValueError):
            raise FileFormatError(
                f"{self._path(method)}: expected the row of a method, as compare writes it"
            ) from None

    def write(self, row: MethodRow) -> None:
        if self.folder is not None:
            write_atomically(self._path(row.method), [json.dumps(row.as_json()).encode()])

    def _path(self, method: str) -> Path:
        assert self.folder is not None
        return self.folder / ROWS_FOLDER / f"{method}.json"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FileFormatError(f"{path}: expected a JSON object, as compare writes it")
    return found


# -- progress --------------------------------------------------------------------------------


@contextmanager
def _progress(verbose: int, seconds: float) -> Iterator[Any]:
    """A bar over the budget: what has been used, and what is left at most."""
    if verbose <= 0:
        yield lambda name, used, left, rows: None
        return
    from tqdm import tqdm

    form = "{desc}: {percentage:3.0f}%|{bar}| {postfix}"
    begin = time.monotonic()
    with tqdm(total=seconds, bar_format=form, desc="comparing") as bar:

        def show(name: str, used: float, left: float, rows: Sequence[MethodRow]) -> None:
            bar.set_description_str(f"{name:16.16}", refresh=False)
            scored = [row.scores.error for row in rows if row.scores is not None]
            best = f", least error {min(scored):.4f}" if scored else ""
            elapsed = time.monotonic() - begin
            bar.set_postfix_str(
                f"{elapsed:.0f} s, at most {max(left, 0.0):.0f} s left{best}", refresh=False
            )
            bar.n = min(seconds - max(left, 0.0), seconds)
            bar.refresh()

        yield show
