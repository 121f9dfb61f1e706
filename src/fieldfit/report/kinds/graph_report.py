"""Reports of graphs: nodes drawn with the colour of their label, or listed where there are many."""

from __future__ import annotations

from typing import Any

import numpy as np

from fieldfit.report.kinds.field_weights import field_weights
from fieldfit.report.kinds.labelled_report import LabelledReport, Shown
from fieldfit.report.label_colors import css_color
from fieldfit.report.network_drawing import MAX_NODES, network
from fieldfit.report.page_parts import cards, table

__all__ = ["GraphReport"]

#: Nodes of a table.
MAX_ROWS = 40
#: Colours of nodes, so that names can be read on them.
OPACITY = 0.75


class GraphReport(LabelledReport):
    """Of `GraphCRF`."""

    unit = "nodes"
    example = "Graph"

    def about_examples(self) -> str:
        return (
            "Nodes have the colour of their predicted label; a dashed ring is a mistake. Tables "
            "list the nodes that the model is least sure of."
        )

    def draw(self, shown: Shown) -> str:
        drawn = self._drawing(shown) if len(shown.predicted) <= MAX_NODES else ""
        return cards(f"<div>{drawn}</div>" if drawn else "", f"<div>{self._table(shown)}</div>")

    def _drawing(self, shown: Shown) -> str:
        n_nodes = len(shown.predicted)
        matrix = np.zeros((n_nodes, n_nodes))
        edges = self.estimator._drawn_pairs(shown.index, shown.x)
        matrix[edges[:, 0], edges[:, 1]] = matrix[edges[:, 1], edges[:, 0]] = 1.0
        return network(
            matrix,
            range(n_nodes),
            colors=[css_color(label, OPACITY) for label in shown.predicted.tolist()],
            wrong=shown.wrong.tolist(),
            caption=f"Graph {shown.index} with {n_nodes} nodes",
            plain=True,
        )

    def _table(self, shown: Shown) -> str:
        names, confidence = self.label_names(), shown.confidence
        rows: list[list[Any]] = []
        for node in np.argsort(confidence, kind="stable")[:MAX_ROWS].tolist():
            row: list[Any] = [node, names[shown.predicted[node]], float(confidence[node])]
            if shown.given is not None:
                label = int(shown.given[node])
                row.append(names[label] if label >= 0 else None)
            rows.append(row)
        header = ["node", "predicted", "probability", *(["truth"] * (shown.given is not None))]
        return table(header, rows, caption=f"Nodes of graph {shown.index}")

    def weights(self) -> list[str]:
        return [cards(*field_weights(self.estimator, self.label_names(), self.feature_names()))]
