"""Reports of Potts models: the strongest pairs, their tables, and the map of all scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from fieldfit.report.charts import bar
from fieldfit.report.heat_maps import heat_map
from fieldfit.report.kinds.samples_report import SamplesReport
from fieldfit.report.network_drawing import network
from fieldfit.report.page_parts import card, cards, table

__all__ = ["PottsReport"]

#: Pairs of the table, of the drawing, and pairs whose tables are shown.
MAX_ROWS, MAX_DRAWN, N_TABLES = 100, 60, 4
#: Variables whose fields are shown.
MAX_FIELDS = 60


class PottsReport(SamplesReport):
    """Of `PottsModel`."""

    def figures(self) -> dict[str, Any]:
        return {"labels": self.n_labels(), **super().figures()}

    def weights(self) -> list[str]:
        model, names = self.estimator, self.feature_names()
        scores = model.contact_scores()
        edges = model.edges_
        strength = scores[edges[:, 0], edges[:, 1]]
        order = np.argsort(-strength, kind="stable")
        boxes = [
            self._network(scores, edges[order[:MAX_DRAWN]]),
            card(
                heat_map(scores, names, names, caption="Scores of pairs"),
                title="Scores of pairs",
                note="Frobenius norms of tables in the zero-sum gauge, with the average-product "
                "correction.",
            ),
        ]
        pairs = card(self._pairs(scores, order[:MAX_ROWS]), title="Strongest pairs")
        return [cards(*boxes), pairs, self._tables(order[:N_TABLES]), self._fields()]

    def _network(self, scores: Any, pairs: Any) -> str:
        """The variables of the strongest pairs, and these pairs."""
        if not len(pairs):
            return ""
        used, places = np.unique(pairs, return_inverse=True)
        places = places.reshape(-1, 2)
        matrix = np.zeros((len(used), len(used)))
        values = scores[pairs[:, 0], pairs[:, 1]]
        matrix[places[:, 0], places[:, 1]] = matrix[places[:, 1], places[:, 0]] = values
        names = self.feature_names()
        drawn = network(matrix, [names[k] for k in used], caption="Network of the strongest pairs")
        return card(drawn, title="Network", note=f"The {len(pairs)} strongest pairs, by score.")

    def _pairs(self, scores: Any, chosen: Any) -> str:
        model, names = self.estimator, self.feature_names()
        norms = model.contact_scores(correction=None)
        largest = float(np.abs(scores).max(initial=0.0))
        rows = []
        for e in chosen.tolist():
            i, j = model.edges_[e].tolist()
            pair = (names[i], names[j])
            rows.append((*pair, bar(float(scores[i, j]), largest), float(norms[i, j])))
        return table(("first", "second", "score", "norm"), rows, caption="Strongest pairs")

    def _tables(self, chosen: Any) -> str:
        """Couplings of the strongest pairs, label by label."""
        model, names, labels = self.estimator, self.feature_names(), self.label_names()
        couplings = model.zero_sum_couplings_
        errors = self.errors[0]
        n_fields = model.n_features_in_ * self.n_labels()
        boxes = []
        for e in chosen.tolist():
            i, j = model.edges_[e].tolist()
            title = f"{names[i]} (rows) and {names[j]} (columns)"
            note = "Zero-sum gauge."
            if errors is not None:
                size = self.n_labels() ** 2
                own = errors[n_fields + e * size : n_fields + (e + 1) * size]
                note += f" Standard errors from {own.min():.3g} to {own.max():.3g}."
            drawn = heat_map(couplings[e], labels, labels, caption=title)
            boxes.append(card(drawn, title=title, note=note))
        return cards(*boxes)

    def _fields(self) -> str:
        names, labels = self.feature_names()[:MAX_FIELDS], self.label_names()
        fields = self.estimator.zero_sum_fields_[:MAX_FIELDS]
        note = "Log-frequencies that couplings do not explain, in the zero-sum gauge."
        if self.estimator.n_features_in_ > MAX_FIELDS:
            note += f" The first {MAX_FIELDS} of {self.estimator.n_features_in_} variables."
        return card(heat_map(fields, names, labels, caption="Fields"), title="Fields", note=note)
