"""What the report of any model shows; kinds of models override what they know better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit._validation import require_integer, require_list, shown
from fieldfit.errors import InvalidInputError
from fieldfit.report.charts import bar
from fieldfit.report.heat_maps import heat_map
from fieldfit.report.page_parts import Section, card, table, words

__all__ = ["KindReport", "Request", "strongest_first", "weight_table"]

#: Rows of the tables of strongest weights.
N_STRONGEST = 60
#: Blocks that get a box of their own where nothing is known about the kind of model.
MAX_BLOCKS = 8


@dataclass(frozen=True)
class Request:
    """A fitted estimator, what the report is to show of it, and data to show it on.

    ``X`` and ``Y`` may be ``None``; ``names`` of labels, features or variables too.
    """

    estimator: Any
    X: Any = None
    Y: Any = None
    n_examples: int = 4
    label_names: Sequence[Any] | None = None
    feature_names: Sequence[Any] | None = None
    alpha: Any = None


class KindReport:
    """The general report, and the base of all others."""

    #: What ``X`` and ``Y`` are called in the lines that make the report again.
    arguments: ClassVar[tuple[str, str]] = ("X", "Y")
    #: Arguments of ``fit``.
    fitted_on: ClassVar[str] = "X, Y"

    def __init__(self, request: Request) -> None:
        self.request = request
        self.estimator = request.estimator

    def check(self) -> None:
        """Refuse, before any work, what makes no sense."""
        request, (first, second) = self.request, self.arguments
        require_integer("n_examples", request.n_examples, at_least=0)
        if request.X is None and request.Y is not None:
            raise InvalidInputError(f"{second} must come with {first}, got {second} alone")
        self.label_names()
        self.feature_names()
        if request.X is not None:
            self.check_data()

    def check_data(self) -> None:
        """Refuse data that the model cannot be shown on."""

    # -- names ------------------------------------------------------------------------------

    def n_labels(self) -> int | None:
        """How many labels there are; ``None``: the model has none."""
        return None

    def n_features(self) -> int | None:
        """How many features (or variables) have names; ``None``: none have."""
        found = getattr(self.estimator, "n_features_in_", None)
        return None if found is None else int(found)

    def label_names(self) -> list[str]:
        return _names("label_names", self.request.label_names, self.n_labels(), "{}")

    def feature_names(self) -> list[str]:
        return _names("feature_names", self.request.feature_names, self.n_features(), "feature {}")

    # -- what is shown ----------------------------------------------------------------------

    def figures(self) -> dict[str, Any]:
        """A few numbers for the top of the page."""
        found: dict[str, Any] = {}
        if self.n_labels() is not None:
            found["labels"] = self.n_labels()
        if self.n_features() is not None:
            found["features"] = self.n_features()
        return found | {"weights": len(self.estimator.weights_)}

    def weights(self) -> list[str]:
        """Boxes about the weights, block by block."""
        blocks = list(self.estimator.weight_blocks_.items())
        boxes = [card(_block(name, values), title=name) for name, values in blocks[:MAX_BLOCKS]]
        if len(blocks) > MAX_BLOCKS:
            boxes.append(words(f"{len(blocks) - MAX_BLOCKS} further blocks are not shown."))
        return boxes

    def data_sections(self) -> list[Section]:
        """Predictions, scores and certificates; called if there are data."""
        return []

    def sections(self) -> list[Section]:
        found = self.data_sections() if self.request.X is not None else []
        boxes = self.weights()
        if boxes:
            found.append(Section("Weights", "".join(boxes)))
        return found


def require_some_examples(X: Any) -> None:
    """Refuse what is no list or array of examples, and an empty one."""
    if not (isinstance(X, (list, tuple)) or hasattr(X, "shape")):
        raise InvalidInputError(f"X must be a list or an array of examples, got {shown(X)}")
    require_list("X", X, "examples")
    if len(X) == 0:
        raise InvalidInputError("X must hold at least one example, got an empty list")


def _names(argument: str, given: Any, count: int | None, pattern: str) -> list[str]:
    """Names that were given, or numbers."""
    if given is None:
        return [pattern.format(k) for k in range(count or 0)]
    if isinstance(given, (str, bytes)) or not hasattr(given, "__len__") or len(given) != count:
        expected = "None for this model" if count is None else f"{count} names"
        raise InvalidInputError(f"{argument} must be {expected}, got {shown(given)}")
    return [str(name) for name in given]


def strongest_first(values: FloatArray, count: int = N_STRONGEST) -> list[int]:
    """Positions of the largest numbers in size."""
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    return [int(k) for k in order]


def weight_table(what: str, rows: Sequence[tuple[str, float]], caption: str) -> str:
    """Names and weights with bars, as given."""
    largest = max((abs(value) for _, value in rows), default=0.0)
    cells = [(name, bar(value, largest)) for name, value in rows]
    return table((what, "weight"), cells, caption=caption)


def _block(name: str, values: FloatArray) -> str:
    """A block of which only the shape is known."""
    if values.ndim == 2:
        return heat_map(values, range(values.shape[0]), range(values.shape[1]), caption=name)
    flat = values.reshape(-1)
    rows = [(f"{name} {k}", float(flat[k])) for k in strongest_first(flat)]
    return weight_table("entry", rows, name)
