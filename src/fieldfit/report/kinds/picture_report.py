"""Reports of grids: what was seen, truth, prediction, confidence and mistakes as pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.report.kinds.field_weights import field_weights
from fieldfit.report.kinds.labelled_report import LabelledReport, Shown
from fieldfit.report.label_colors import label_pixels
from fieldfit.report.page_parts import cards, panel

__all__ = ["PictureReport", "seen_pixels"]

#: Longest side of a picture on the page; larger ones show every second, third, ... pixel.
MAX_SIDE = 256
RIGHT, WRONG = (235, 237, 240), (190, 30, 25)


class PictureReport(LabelledReport):
    """Of `GridCRF`."""

    unit = "pixels"
    example = "Picture"

    def about_examples(self) -> str:
        return (
            "Seen: the first feature in grey, or the first three as red, green and blue. "
            "Confidence: the probability of the predicted label, from black (as likely as any "
            "other) to white (sure). Mistakes are red."
        )

    def draw(self, shown: Shown) -> str:
        height, width = np.shape(shown.x)[:2]
        stride = -(-max(height, width) // MAX_SIDE)
        n_labels = self.n_labels()

        def as_picture(flat: Any) -> Any:
            return np.asarray(flat).reshape(height, width)[::stride, ::stride]

        floor = 1.0 / n_labels
        grey = np.clip((as_picture(shown.confidence) - floor) / (1.0 - floor), 0.0, 1.0)
        panels = [panel(seen_pixels(np.asarray(shown.x)[::stride, ::stride]), "seen")]
        if shown.given is not None:
            panels.append(panel(label_pixels(as_picture(shown.given), n_labels), "truth"))
        panels.append(panel(label_pixels(as_picture(shown.predicted), n_labels), "predicted"))
        panels.append(panel(np.round(255.0 * grey).astype(np.uint8), "confidence"))
        if shown.given is not None:
            wrong = as_picture(shown.wrong)
            marked = np.where(wrong[..., None], WRONG, RIGHT).astype(np.uint8)
            panels.append(panel(marked, "mistakes"))
        return f'<div class="panels">{"".join(panels)}</div>'

    def weights(self) -> list[str]:
        return [cards(*field_weights(self.estimator, self.label_names(), self.feature_names()))]


def seen_pixels(features: NDArray[Any], limits: Any = None) -> NDArray[np.uint8]:
    """Features as a picture: three channels or more in colour, fewer in grey.

    Each channel to its own range, but for ``limits`` (of black and of white).
    """
    values = features.astype(np.float64)
    if values.ndim == 3:
        values = values[..., :3] if values.shape[2] >= 3 else values[..., 0]
    low, high = np.percentile(values, (1.0, 99.0), axis=(0, 1)) if limits is None else limits
    span = np.where(high > low, high - low, 1.0)
    return np.round(255.0 * np.clip((values - low) / span, 0.0, 1.0)).astype(np.uint8)
