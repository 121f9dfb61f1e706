"""What a comparison found: a table, a recommendation, and the line that fits the winner."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from inspect import signature
from os import PathLike
from typing import Any

from fieldfit._validation import made_folder
from fieldfit.comparison.method_candidates import BASELINE
from fieldfit.comparison.method_search import MethodRow
from fieldfit.io._atomic_file import write_atomically
from fieldfit.models.penalties import RelativePenalty

__all__ = ["COLUMNS", "Comparison"]

#: Of the table, in their order.
COLUMNS = (
    *("method", "error", "error_se", "log_loss", "log_loss_se", "calibration_error"),
    *("gain", "gain_se", "log_likelihood_lower", "log_likelihood_upper"),
    *("test_error", "test_error_se", "test_log_loss", "l2"),
    *("seconds", "seconds_of_fit", "n_iter", "converged", "unconverged", "status"),
)

#: What the measures are called.
WORDS = {"error": "error", "log_loss": "log-loss"}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods on the same examples.

    Attributes
    ----------
    estimator
        The estimator that was given.
    methods
        One `MethodRow` for each method, independent variables first.
    measure
        What the recommendation goes by: ``"error"``, or ``"log_loss"`` for samples of one model.
    description
        The data, and how they were cut.
    command
        The line that runs the comparison again.
    """

    estimator: Any
    methods: tuple[MethodRow, ...]
    measure: str
    description: str
    command: str = ""

    # -- the answer ---------------------------------------------------------------------------

    @property
    def ranking(self) -> list[MethodRow]:
        """Methods that have scores, the best first."""
        other = "log_loss" if self.measure == "error" else "error"

        def losses(row: MethodRow) -> tuple[float, float, float]:
            assert row.scores is not None
            return row.scores.mean(self.measure), row.scores.mean(other), row.seconds

        return sorted([row for row in self.methods if row.scores is not None], key=losses)

    @property
    def best(self) -> MethodRow | None:
        """The method with the best held-out score; ``None`` if all have failed."""
        ranking = self.ranking
        return ranking[0] if ranking else None

    @property
    def baseline(self) -> MethodRow | None:
        """Independent variables, if they could be fitted."""
        rows = [row for row in self.methods if row.method == BASELINE and row.scores is not None]
        return rows[0] if rows else None

    @property
    def recommendation(self) -> str:
        """One sentence."""
        best, plain = self.best, self.baseline
        if best is None:
            reasons = "; ".join(f"{row.method}: {row.failed}" for row in self.methods)
            return f"No method could be fitted ({reasons})."
        assert best.scores is not None
        name, value = WORDS[self.measure], best.scores.mean(self.measure)
        width = best.scores.error_se if self.measure == "error" else best.scores.log_loss_se
        clauses = [
            f"{best.method} has the least {name}, {value:.4g} ± {width:.2g} on "
            f"{best.scores.n_examples} held-out examples"
        ]
        if best is plain:
            clauses.append("so couplings do not pay here")
        elif plain is not None:
            gain, error = self.gain(best)
            clauses.append(f"{gain:.2g} ± {error:.2g} less than independent variables")
            if gain <= error:
                clauses.append("which is no more than chance explains")
        close = [row.method for row in self.ranking[1:] if self._is_close(row, best)]
        if close:
            verb = "is" if len(close) == 1 else "are"
            clauses.append(f"{_listed(close)} {verb} within one standard error of it")
        if not best.converged:
            clauses.append("its fit had not converged, so a larger budget may change this")
        return f"{'; '.join(clauses)}."

    @property
    def worse(self) -> list[MethodRow]:
        """Methods that do worse than independent variables by more than a standard error."""
        rows = [row for row in self.methods if row.scores is not None and row.method != BASELINE]
        return [row for row in rows if -self.gain(row)[0] > self.gain(row)[1] > 0]

    @property
    def code(self) -> str:
        """The line of Python that fits the winner."""
        best = self.best
        if best is None:
            return ""
        defaults = signature(type(self.estimator)).parameters
        options = self.estimator.get_params(deep=False)
        options |= {"objective": best.method, "l2": best.l2, "learner": None}
        shown = [
            f"{name}={_as_code(value)}"
            for name, value in options.items()
            if name not in ("objective", "verbose")
            and (name == "l2" or repr(value) != repr(defaults[name].default))
        ]
        given = ", ".join([repr(best.method), *shown])
        data = "(X, Y)" if best.scores is not None and self.measure == "error" else "(X)"
        return f"model = ff.{type(self.estimator).__name__}({given}).fit{data}"

    def gain(self, row: MethodRow) -> tuple[float, float]:
        """How much less a method loses than independent variables, and the standard error of it."""
        plain = self.baseline
        if plain is None or plain.scores is None or row.scores is None:
            return 0.0, 0.0
        return plain.scores.excess(row.scores, self.measure)

    def _is_close(self, row: MethodRow, best: MethodRow) -> bool:
        assert row.scores is not None
        assert best.scores is not None
        excess, error = row.scores.excess(best.scores, self.measure)
        return excess <= error

    # -- tables -------------------------------------------------------------------------------

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table as records, with the columns of ``results.csv``."""
        return [self._record(row) for row in self.methods]

    def _record(self, row: MethodRow) -> dict[str, Any]:
        record: dict[str, Any] = dict.fromkeys(COLUMNS)
        record |= {
            "method": row.method,
            "seconds": round(row.seconds, 3),
            "status": row.failed or row.status,
        }
        scores = row.scores
        if scores is None:
            return record | {"converged": False}
        gain, gain_se = self.gain(row)
        record |= {
            "error": scores.error,
            "error_se": scores.error_se,
            "log_loss": scores.mean_log_loss,
            "log_loss_se": scores.log_loss_se,
            "calibration_error": scores.calibration_error,
            "gain": gain,
            "gain_se": gain_se,
            "log_likelihood_lower": scores.lower,
            "log_likelihood_upper": scores.upper,
            "l2": _as_code(row.l2, prefix=""),
            "seconds_of_fit": round(row.seconds_of_fit, 3),
            "n_iter": row.n_iter,
            "converged": row.converged,
            "unconverged": row.unconverged,
        }
        if row.test is not None:
            record |= {
                "test_error": row.test.error,
                "test_error_se": row.test.error_se,
                "test_log_loss": row.test.mean_log_loss,
            }
        return record

    def table(self) -> str:
        """The table for people."""
        header = ["method", "error", "log-loss", "calibration", "log-likelihood", "s", "converged"]
        if any(row.test is not None for row in self.methods):
            header.insert(5, "test error")
        lines = [header]
        for row in self.methods:
            lines.append(self._line(row, header))
        widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
        shown = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join(shown)

    def _line(self, row: MethodRow, header: list[str]) -> list[str]:
        scores = row.scores
        if scores is None:
            return [row.method, f"failed: {row.failed:.60}", *[""] * (len(header) - 2)]
        cells = [
            row.method + (" *" if row in self.worse else ""),
            f"{scores.error:.4f} ± {scores.error_se:.4f}",
            f"{scores.mean_log_loss:.4f}",
            f"{scores.calibration_error:.3f}",
            scores.bracket,
            f"{row.seconds:.1f}",
            "yes" if row.converged else "no",
        ]
        if "test error" in header:
            tested = "" if row.test is None else f"{row.test.error:.4f} ± {row.test.error_se:.4f}"
            cells.insert(5, tested)
        return cells

    def __str__(self) -> str:
        notes = []
        if self.worse:
            names = _listed([row.method for row in self.worse])
            verb = "does" if len(self.worse) == 1 else "do"
            notes = [f"* {names} {verb} worse than independent variables on these data."]
        parts = [self.description, "", self.table(), *notes, "", self.recommendation, self.code]
        return "\n".join(parts).rstrip()

    def _repr_html_(self) -> str:
        from fieldfit.comparison.comparison_page import comparison_table

        return comparison_table(self)

    def write(self, folder: str | PathLike[str]) -> None:
        """Write ``results.csv`` and ``index.html`` to a folder, which is made if need be.

        Parameters
        ----------
        folder
            Files of these names are replaced.
        """
        from fieldfit.comparison.comparison_page import comparison_page

        path = made_folder("folder", folder)
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_atomically(path / "results.csv", [text.getvalue().encode()])
        write_atomically(path / "index.html", [comparison_page(self).encode()])


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _as_code(value: Any, prefix: str = "ff.models.") -> str:
    if isinstance(value, RelativePenalty):
        return f"{prefix}RelativePenalty({value.unary:g}, couplings={value.couplings:g})"
    return f"{value:g}" if isinstance(value, float) else repr(value)
