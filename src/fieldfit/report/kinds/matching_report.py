"""Reports of matchings: probabilities of edges as a matrix beside the truth, feature weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray
from fieldfit.report.charts import Calibration, calibration_chart
from fieldfit.report.heat_maps import heat_map
from fieldfit.report.kinds.base import (
    KindReport,
    require_some_examples,
    strongest_first,
    weight_table,
)
from fieldfit.report.page_parts import Section, card, cards, tally, words
from fieldfit.report.predictions import (
    bounds_section,
    collected_warnings,
    in_chunks,
    n_affordable,
    warning_words,
)

__all__ = ["MatchingReport"]

#: Of bounds on a likelihood, in entries of tables.
COST_OF_EDGE = 10
#: Most edges of examples that are predicted for one report.
MAX_EDGES = 500_000


class MatchingReport(KindReport):
    """Of `MatchingCRF`."""

    def check_data(self) -> None:
        X, Y = self.request.X, self.request.Y
        require_some_examples(X)
        if Y is not None:
            self.estimator._scored(X, Y, None)  # refuses what is no matching
        else:
            self.estimator.predict_weights(X)

    def figures(self) -> dict[str, Any]:
        return {"matchings": self.estimator.kind, "features": self.n_features()}

    def weights(self) -> list[str]:
        names, values = self.feature_names(), self.estimator.weights_
        rows = [(names[k], float(values[k])) for k in strongest_first(values)]
        note = "By how much one unit of a feature raises the log-probability of an edge."
        return [card(weight_table("feature", rows, "Weights of features"), note=note)]

    # -- data -------------------------------------------------------------------------------

    def data_sections(self) -> list[Section]:
        X, Y = self.request.X, self.request.Y
        sizes = [int(np.shape(x)[0] * np.shape(x)[1]) for x in X]
        count = n_affordable(sizes, MAX_EDGES)
        marginals: list[FloatArray] = []
        found: list[Any] = []
        with collected_warnings() as told:
            for chunk in in_chunks(count, "predictions"):
                marginals += self.estimator.predict_marginals(X[chunk])
                found += self.estimator.predict(X[chunk])
        n_shown = min(count, self.request.n_examples)
        drawn = "".join(self._draw(k, marginals[k], found[k]) for k in range(n_shown))
        sections = []
        if n_shown:
            note = "Probability of each edge; " + (
                "true ones have a frame."
                if Y is not None
                else "those of the best matching have a frame."
            )
            body = warning_words(told) + card(drawn) + words(note)
            sections.append(Section("Predictions", body))
        if Y is None:
            return sections
        sections.append(self._scores(marginals, found, len(X)))
        reasons = "The lower one comes from the reweighted entropy; the upper one from Bethe's "
        reasons += "where that is proved (bipartite graphs), else it is 0."
        return sections + bounds_section(
            lambda chunk: self.estimator.log_likelihood_bounds(X[chunk], Y[chunk]),
            [int(np.shape(x)[0]) for x in X],
            [COST_OF_EDGE * size for size in sizes],
            "row",
            reasons,
        )

    def _draw(self, index: int, marginals: FloatArray, best: NDArray[Any]) -> str:
        Y = self.request.Y
        shown_edges = _matrix(best if Y is None else np.asarray(Y[index]), marginals.shape[1])
        marked = {(int(i), int(j)) for i, j in np.argwhere(shown_edges)}
        title = f"Example {index}"
        if Y is not None:
            right = _matrix(best, marginals.shape[1]) & shown_edges
            title += f": {int(right.sum())} of {int(shown_edges.sum())} edges found"
        drawn = heat_map(
            marginals,
            range(marginals.shape[0]),
            range(marginals.shape[1]),
            caption=f"Probabilities of edges of example {index}",
            marked=marked,
            decimals=2,
        )
        return f'<div class="example"><h3>{title}</h3>{drawn}</div>'

    def _scores(
        self, marginals: Sequence[FloatArray], found: Sequence[NDArray[Any]], n_given: int
    ) -> Section:
        """Over the edges of the predicted matchings; of a general graph each edge once."""
        confidence, right = [], []
        for one, best, y in zip(marginals, found, self.request.Y, strict=False):
            edges = _matrix(best, one.shape[1])
            if self.estimator.kind == "general":
                edges = np.triu(edges, 1)
            confidence.append(one[edges])
            right.append(_matrix(np.asarray(y), one.shape[1])[edges])
        sure, is_right = np.concatenate(confidence), np.concatenate(right)
        count = len(found)
        score = self.estimator.score(self.request.X[:count], self.request.Y[:count])
        calibration = Calibration.of(sure, is_right)
        figures = {
            "score": f"{100.0 * score:.2f} %",
            "mean confidence": f"{100.0 * float(sure.mean()):.2f} %" if len(sure) else None,
            "calibration error": f"{100.0 * calibration.error:.2f} %",
        }
        note = (
            f"Over {count} examples{'' if count == n_given else f' (the first of {n_given})'}. "
            "Score: share of rows with the right partner (with capacities, F1 of the edges). "
            "Confidence: probability of the edges of the best matching."
        )
        chart = card(
            calibration_chart(calibration, "share of edges that are right"), title="Calibration"
        )
        return Section("Scores", tally(figures) + words(note) + cards(chart))


def _matrix(matching: NDArray[Any], n_columns: int) -> NDArray[np.bool_]:
    """Partners as a matrix; a matrix as it is."""
    if matching.ndim == 2:
        return matching.astype(np.bool_)
    return np.asarray(matching[:, None] == np.arange(n_columns)[None, :])
