"""Reports of coupled mixtures: couplings along directions, observed and predicted signals."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fieldfit._arrays import real_numbers
from fieldfit._typing import FloatArray
from fieldfit.errors import InvalidInputError
from fieldfit.report.charts import Series, line_chart
from fieldfit.report.heat_maps import heat_map
from fieldfit.report.kinds.base import KindReport, strongest_first, weight_table
from fieldfit.report.kinds.picture_report import seen_pixels
from fieldfit.report.network_drawing import MAX_NODES, network
from fieldfit.report.page_parts import Section, card, cards, panel, table, tally, words

__all__ = ["MixtureReport"]


class MixtureReport(KindReport):
    """Of `MixtureField`; ``Y`` is what was observed, ``Z`` the true signal."""

    arguments = ("Y", "Z")
    fitted_on = "labels"

    def n_labels(self) -> int:
        return len(np.atleast_1d(self.estimator.means))

    def figures(self) -> dict[str, Any]:
        graph = self.estimator.graph_
        return {
            "components": self.n_labels(),
            "variables": graph.n_variables,
            "couplings": graph.n_factors,
        }

    # -- weights ----------------------------------------------------------------------------

    def weights(self) -> list[str]:
        model, names = self.estimator, self.label_names()
        means, variances = np.atleast_1d(model.means), np.atleast_1d(model.variances)
        rows = [(name, float(means[k]), float(variances[k])) for k, name in enumerate(names)]
        components = card(
            table(("component", "mean", "variance"), rows, caption="Components"), title="Components"
        )
        return [cards(components, self._fields()), cards(*self._couplings())]

    def _fields(self) -> str:
        """Log-odds of the last component against the first, at their places on a grid."""
        unary = self.estimator.weight_blocks_["unary"]
        odds = unary[:, -1] - unary[:, 0]
        title = "Log-odds of the last component against the first"
        return card(self._on_field(odds, title, "variable"), title=title)

    def _on_field(self, values: FloatArray, title: str, what: str) -> str:
        shape = self.estimator.shape_
        if len(shape) == 2:
            return heat_map(values.reshape(shape), range(shape[0]), range(shape[1]), caption=title)
        rows = [(f"{what} {k}", float(values[k])) for k in strongest_first(values)]
        return weight_table(what, rows, title)

    def _couplings(self) -> list[str]:
        """How much equal labels are favoured over different ones, by direction on a grid."""
        tables = self.estimator.weight_blocks_["tables"]
        n_labels = tables.shape[1]
        equal = np.trace(tables, axis1=1, axis2=2) / n_labels
        other = (tables.sum(axis=(1, 2)) - equal * n_labels) / max(n_labels * (n_labels - 1), 1)
        values = equal - other
        edges = np.array([self.estimator.graph_.scope(a) for a in range(len(tables))])
        edges = edges.reshape(-1, 2)
        note = "Mean potential of equal labels minus that of different ones."
        shape = self.estimator.shape_
        if len(shape) == 2 and shape[1] > 1:
            apart = np.abs(edges[:, 1] - edges[:, 0])
            boxes = []
            for name, step in (("Horizontal", 1), ("Vertical", shape[1])):
                matrix = np.full(shape, np.nan)
                chosen = apart == step
                matrix.reshape(-1)[edges[chosen].min(axis=1, initial=edges.size)] = values[chosen]
                title = f"{name} couplings"
                drawn = heat_map(matrix, range(shape[0]), range(shape[1]), caption=title)
                boxes.append(card(drawn, title=title, note=note))
            return boxes
        names = [f"{i}, {j}" for i, j in edges.tolist()]
        rows = [(names[k], float(values[k])) for k in strongest_first(values)]
        boxes = [card(weight_table("pair", rows, "Couplings"), title="Couplings", note=note)]
        n = self.estimator.graph_.n_variables
        if n <= MAX_NODES and len(edges):
            matrix = np.zeros((n, n))
            matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = values
            drawn = network(matrix, range(n), caption=f"Network of {n} variables")
            boxes.append(card(drawn, title="Network"))
        return boxes

    # -- data -------------------------------------------------------------------------------

    def check_data(self) -> None:
        found = self._found
        if self.request.Y is None:
            return
        signal = real_numbers("Z", self.request.Y)
        if signal.shape != found.signal.shape or not np.isfinite(signal).all():
            raise InvalidInputError(
                f"Z must be finite numbers in the shape {found.signal.shape} of Y, got shape "
                f"{signal.shape}"
            )

    @cached_property
    def _found(self) -> Any:
        return self.estimator.infer(self.request.X, self.request.alpha)

    def data_sections(self) -> list[Section]:
        size = int(np.prod(self.estimator.shape_))
        observed = np.asarray(self.request.X, dtype=np.float64).reshape(-1, size)
        signal = self._found.signal.reshape(-1, size)
        truth = None if self.request.Y is None else np.asarray(self.request.Y, dtype=np.float64)
        truth = None if truth is None else truth.reshape(-1, size)
        beliefs = self._found.marginals.reshape(len(signal), size, -1)
        drawn = "".join(
            f'<div class="example"><h3>Field {k}</h3>'
            f"{self._draw(observed[k], signal[k], beliefs[k], None if truth is None else truth[k])}"
            "</div>"
            for k in range(min(self.request.n_examples, len(signal)))
        )
        note = "Last component: its probability, from black (0) to white (1)."
        shown = card(drawn) + (words(note) if len(self.estimator.shape_) == 2 else "")
        sections = [Section("Predictions", shown)] if drawn else []
        return [*sections, self._scores(observed, signal, truth)]

    def _scores(
        self, observed: FloatArray, signal: FloatArray, truth: FloatArray | None
    ) -> Section:
        converged = self._found.converged
        figures: dict[str, Any] = {
            "observed fields": len(signal),
            "without convergence": int((~converged).sum()),
            "mean variance": float(np.mean(self._found.variance)),
        }
        note = "Variance: of the signal around its prediction, as the model sees it."
        if truth is not None:
            figures["mean squared error"] = float(np.mean((signal - truth) ** 2))
            figures["of the observations"] = float(np.nanmean((observed - truth) ** 2))
            note += (
                " A calibrated model has a mean squared error like its mean variance. Beside it: "
                "the error of the observations as they are."
            )
        return Section("Scores", tally(figures) + words(note))

    def _draw(
        self, observed: FloatArray, signal: FloatArray, beliefs: FloatArray, truth: Any
    ) -> str:
        shape = self.estimator.shape_
        if len(shape) == 2:
            named = [("observed", observed), ("predicted signal", signal)]
            named += [] if truth is None else [("true signal", truth)]
            limits = np.nanpercentile(np.concatenate([v for _, v in named]), (1.0, 99.0))
            panels = [
                panel(seen_pixels(np.nan_to_num(values.reshape(shape)), limits), name)
                for name, values in named
            ]
            grey = np.round(255.0 * beliefs[:, -1].reshape(shape)).astype(np.uint8)
            panels.append(panel(grey, "last component"))
            return f'<div class="panels">{"".join(panels)}</div>'
        lines = [("observed", observed), ("predicted signal", signal)]
        lines += [] if truth is None else [("true signal", truth)]
        series = [Series(name, "", list(enumerate(values.tolist()))) for name, values in lines]
        return line_chart(series, "variable", "value")
