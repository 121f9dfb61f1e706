"""Reports of Ising models: the network of couplings, estimates with their standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.report.charts import bar
from fieldfit.report.heat_maps import heat_map
from fieldfit.report.kinds.base import strongest_first
from fieldfit.report.kinds.samples_report import SamplesReport
from fieldfit.report.network_drawing import MAX_NODES, network
from fieldfit.report.page_parts import card, cards, table

__all__ = ["NetworkReport"]

#: Rows of the table of couplings.
MAX_ROWS = 300
#: Half of a normal distribution's middle 95 % in standard errors.
HALF_WIDTH = 1.959964


class NetworkReport(SamplesReport):
    """Of `IsingModel`."""

    def label_names(self) -> list[str]:
        if self.request.label_names is None:
            return ["-1", "1"] if self.estimator.encoding == "spin" else ["0", "1"]
        return super().label_names()

    def weights(self) -> list[str]:
        names, couplings = self.feature_names(), self.estimator.couplings_
        boxes = []
        if 2 <= len(names) <= MAX_NODES and couplings.any():
            clear, note = self._clear(couplings)
            drawn = network(clear, names, caption=f"Network of {len(names)} variables")
            boxes.append(card(drawn, title="Network", note=note))
        matrix = np.where(np.eye(len(names), dtype=bool), np.nan, couplings)
        boxes.append(
            card(heat_map(matrix, names, names, caption="Couplings"), title="Couplings as a matrix")
        )
        explained = self.errors[1] or (
            "Standard errors are those of the sandwich estimator; z is the estimate in units of "
            "its error; intervals hold 95 %."
        )
        return [
            cards(*boxes),
            card(self._table("coupling"), title="Couplings", note=explained),
            card(self._table("threshold"), title="Thresholds"),
        ]

    def _clear(self, couplings: FloatArray) -> tuple[FloatArray, str]:
        """Couplings whose interval does not hold 0, where errors are known and there are any."""
        note = "Blue: positive; red and dashed: negative; the thicker, the stronger."
        errors, edges = self.errors[0], self.estimator.edges_
        if errors is None:
            return couplings, note
        n = self.estimator.n_features_in_
        clear = np.abs(self.estimator.weights_[n:]) > HALF_WIDTH * errors[n:]
        if not clear.any():
            return couplings, note
        shown = np.zeros_like(couplings)
        first, second = edges[clear].T
        shown[first, second] = couplings[first, second]
        shown[second, first] = couplings[second, first]
        said = f" Drawn: the {int(clear.sum())} of {len(edges)} whose 95 % interval excludes 0."
        return shown, note + said

    def _table(self, what: str) -> str:
        """Estimates with errors where there are any; couplings strongest first."""
        model, names = self.estimator, self.feature_names()
        errors = self.errors[0]
        n = model.n_features_in_
        if what == "threshold":
            chosen = list(range(n))[:MAX_ROWS]
            labels = names
        else:
            chosen = [n + k for k in strongest_first(model.weights_[n:], MAX_ROWS)]
            labels = names + [f"{names[i]}, {names[j]}" for i, j in model.edges_.tolist()]
        largest = float(np.abs(model.weights_[chosen]).max(initial=0.0))
        rows = []
        for k in chosen:
            value = float(model.weights_[k])
            row: list[Any] = [labels[k], bar(value, largest)]
            if errors is not None:
                error = float(errors[k])
                ends = (value - HALF_WIDTH * error, value + HALF_WIDTH * error)
                row += [error, value / error if error > 0 else None, *ends]
            rows.append(row)
        header = [what, "estimate"]
        if errors is not None:
            header += ["error", "z", "from", "to"]
        return table(header, rows, caption=f"Table of {what}s")
