"""Matchings on the command line: who goes with whom, given features of every pair."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fieldfit._registry import OBJECTIVES_OF
from fieldfit.cli._options import number
from fieldfit.cli.kinds.base import Answer, Data, Kind, Reader, Report, Table, open_source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MatchingKind"]

#: Nodes on a side up to which scores have the exact likelihood, by sums over subsets.
MAX_EXACT = 12


class Examples(list[Any]):
    """Features of the examples with the names of everybody in them."""

    names: list[str]
    row_names: list[list[str]]
    column_names: list[list[str]]


@dataclass(frozen=True)
class MatchingReader(Reader):
    """Archives and tables of edges; ``features`` are the names of those that were learned from."""

    general: bool = False
    several: bool = False
    features: tuple[str, ...] | None = None

    def read(self, paths: Sequence[str], *, with_labels: bool = True) -> tuple[Self, Data]:
        from fieldfit.errors import FileFormatError
        from fieldfit.io.matchings import read_matchings

        examples = Examples()
        examples.names, examples.row_names, examples.column_names = [], [], []
        labels: list[Any] = []
        places: list[str] = []
        n_edges = 0
        wanted = self.features
        for path in paths:
            found = read_matchings(open_source(path), general=self.general, with_labels=with_labels)
            wanted = found.feature_names if wanted is None else wanted
            if set(found.feature_names) != set(wanted):
                raise FileFormatError(
                    f"{found.places[0].split(',')[0]}: expected the features {', '.join(wanted)}, "
                    f"found {', '.join(found.feature_names)}"
                )
            order = [found.feature_names.index(name) for name in wanted]
            examples.extend(array[..., order] for array in found.features)
            examples.names += found.names
            examples.row_names += found.row_names
            examples.column_names += found.column_names
            places += found.places
            n_edges += sum(_n_edges(array, self.general) for array in found.features)
            for place, matrix in zip(found.places, found.matched or (), strict=False):
                labels.append(self._labels(place, matrix))
        data = Data(
            files=paths,
            examples=examples,
            labels=labels if with_labels else None,
            place=lambda index, position=None: places[index],
            summary=f"{len(examples)} matchings, {n_edges} edges",
        )
        return replace(self, features=wanted), data

    def _labels(self, place: str, matrix: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Partners, or the matrix itself where there may be several."""
        import numpy as np

        from fieldfit.errors import InvalidInputError

        if self.several:
            return matrix.astype(np.int32)
        counts = matrix.sum(axis=1)
        if counts.max(initial=0) > 1:
            raise InvalidInputError(
                f"{place}: row {int(np.argmax(counts))} must have at most one partner, got "
                f"{counts.max()}; for several see --capacity"
            )
        return np.where(counts == 1, matrix.argmax(axis=1), -1).astype(np.int32)

    @classmethod
    def from_notes(cls, notes: dict[str, Any]) -> Self:
        reader = super().from_notes(notes)
        return replace(reader, features=None if reader.features is None else tuple(reader.features))


def _n_edges(features: NDArray[np.float64], general: bool) -> int:
    import numpy as np

    exists = ~np.isnan(features).any(axis=2)
    return int(np.triu(exists, 1).sum() if general else exists.sum())


def _capacity(text: str) -> int | tuple[int, int]:
    """One integer, or two of rows and columns separated by a comma."""
    try:
        found = [int(entry) for entry in text.split(",")]
    except ValueError:
        found = []
    if len(found) not in (1, 2) or min(found) < 1:
        raise argparse.ArgumentTypeError(
            f"must be an integer of at least 1, or two separated by a comma, got {text!r}"
        )
    return found[0] if len(found) == 1 else (found[0], found[1])


class MatchingKind(Kind):
    """``fieldfit fit matching``."""

    name = "matching"
    estimator = "MatchingCRF"
    sentence = "who is matched with whom, given features of all pairs"
    data = (
        "a CSV table of edges (example,row,column,matched,FEATURE,...; what is not listed does not "
        "exist),\nor an .npz archive with features (examples, rows, columns, features) and "
        "partners (examples, rows), -1 for none"
    )
    example = "fieldfit fit matching --train rooms.csv --graph general --model rooms.ff"
    objectives = OBJECTIVES_OF["matching"]
    defaults: ClassVar[dict[str, Any]] = {
        "objective": "mle-struct", "l2": 1.0, "l1": 0.0, "max_iter": 200, "tol": 1e-4,
        "kind": "bipartite", "perfect": True, "rho": None, "capacity": None,
    }  # fmt: skip

    def add_options(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(
            "--graph",
            choices=("bipartite", "general"),
            default="bipartite",
            help="rows are matched with columns (default), or nodes with nodes",
        )
        parser.add_argument(
            "--not-perfect", action="store_true", help="anybody may stay alone (default: nobody)"
        )
        parser.add_argument(
            "--capacity",
            metavar="N[,M]",
            type=_capacity,
            help="partners of each (of rows, of columns), at most so many with --not-perfect "
            "(default: 1)",
        )
        parser.add_argument(
            "--rho",
            metavar="X",
            type=number("between 0 and 1", lambda x: 0 <= x <= 1),
            help="entropy: 1 is Bethe's (default), 0.5 bounds the likelihood from below",
        )

    def parameters(self, args: argparse.Namespace, reader: Any) -> dict[str, Any]:
        return {
            "kind": args.graph,
            "perfect": not args.not_perfect,
            "capacity": args.capacity,
            "rho": args.rho,
        }

    def reader(self, args: argparse.Namespace) -> MatchingReader:
        return MatchingReader(args.graph == "general", args.capacity is not None)

    def stored_reader(self, model: Any) -> MatchingReader:
        reader = MatchingReader.from_notes(getattr(model, "notes_", {}).get("reader", {}))
        return replace(reader, general=model.kind == "general", several=model.capacity is not None)

    def predict(self, model: Any, data: Data, args: argparse.Namespace) -> Answer:
        import numpy as np

        found = [_matrix(one, x.shape[1]) for one, x in _pairs(model, data)]
        marginals = model.predict_marginals(data.examples) if args.marginals else None
        fields: dict[str, Any] = {
            "matched": [np.argwhere(_once(one, model)).tolist() for one in found]
        }
        if marginals is not None:
            fields["marginals"] = [one.tolist() for one in marginals]
        lines = ["example,row,column" + (",matched,probability" if args.marginals else "") + "\n"]
        names = data.examples
        for index, matrix in enumerate(found):
            shown = _once(matrix, model)
            if marginals is not None:
                shown = _once(~np.isnan(names[index]).any(axis=2), model)
            for i, j in np.argwhere(shown):
                ends = (names.names[index], names.row_names[index][i], names.column_names[index][j])
                line = ",".join(map(_quoted, ends))
                if marginals is not None:
                    line += f",{int(matrix[i, j])},{marginals[index][i, j]:.6g}"
                lines.append(line + "\n")
        return Answer.of_text(fields, "".join(lines))

    def score(self, model: Any, data: Data) -> Report:
        from fieldfit.cli._output import format_pairs

        assert data.labels is not None
        given = [
            _matrix(one, x.shape[1]) for one, x in zip(data.labels, data.examples, strict=True)
        ]
        found = [_matrix(one, x.shape[1]) for one, x in _pairs(model, data)]
        pairs = list(zip(given, found, strict=True))
        n_given = sum(int(_once(one, model).sum()) for one in given)
        n_found = sum(int(_once(one, model).sum()) for one in found)
        n_right = sum(int(_once(a & b, model).sum()) for a, b in pairs)
        lower, upper = model.log_likelihood_bounds(data.examples, data.labels)
        largest = max(max(x.shape[:2]) for x in data.examples)
        if exact := model.capacity is None and largest <= MAX_EXACT:
            lower = upper = model.log_likelihood(data.examples, data.labels)
        fields = {
            "n_examples": len(given),
            "n_matched": n_given,
            "n_predicted": n_found,
            "accuracy": model.score(data.examples, data.labels),
            "precision": n_right / n_found if n_found else None,
            "recall": n_right / n_given if n_given else None,
            "log_likelihood_lower": float(lower.mean()),
            "log_likelihood_upper": float(upper.mean()),
            "exact": exact,
        }
        shown = {
            "examples": f"{len(given)}, {n_given} matches given, {n_found} predicted",
            "accuracy" if model.capacity is None else "F1": fields["accuracy"],
            "precision": fields["precision"],
            "recall": fields["recall"],
            "log-likelihood": float(lower.mean())
            if exact
            else f"between {lower.mean():.4f} and {upper.mean():.4f}",
        }
        return Report(fields, f"{format_pairs(shown)}\n(log-likelihood: mean over examples)")

    def describe(self, model: Any) -> dict[str, Any]:
        return {"graph": model.kind, "n_features": model.n_features_in_}

    def report_names(self, model: Any) -> dict[str, Any]:
        return {"feature_names": self.stored_reader(model).features}

    def strongest(self, model: Any, count: int) -> list[Table]:
        import numpy as np

        names = self.stored_reader(model).features
        if names is None:
            return super().strongest(model, count)
        order = np.argsort(-np.abs(model.weights_), kind="stable")[:count]
        rows = [{"weight": float(model.weights_[k]), "of": names[k]} for k in order]
        return [Table("strongest weights", rows, len(model.weights_))]


def _pairs(model: Any, data: Data) -> list[tuple[Any, Any]]:
    """Predictions and features of each example."""
    return list(zip(model.predict(data.examples), data.examples, strict=True))


def _matrix(matching: NDArray[np.int32], n_columns: int) -> NDArray[np.bool_]:
    """Partners as a matrix; a matrix as it is."""
    import numpy as np

    if matching.ndim == 2:
        return matching.astype(np.bool_)
    is_partner: NDArray[np.bool_] = matching[:, None] == np.arange(n_columns)[None, :]
    return is_partner


def _once(matrix: NDArray[np.bool_], model: Any) -> NDArray[np.bool_]:
    """Every edge at one place."""
    import numpy as np

    return np.triu(matrix, 1) if model.kind == "general" else matrix


def _quoted(text: str) -> str:
    """As a field of a CSV file."""
    if any(letter in text for letter in ',"\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
