"""The page that ``fieldfit demo`` writes: every number and every comparison is of that run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.demo.demo_digits import N_KINDS
from fieldfit.demo.demo_methods import Level, Outcome
from fieldfit.demo.demo_words import findings, percent
from fieldfit.report.charts import Series, line_chart
from fieldfit.report.page_parts import Cell, code, page, picture, png_bytes, table, text

__all__ = ["FIRST_PROGRAM", "Report", "demo_page", "digits_png"]

#: The program on the page and in the README (a test runs it and compares the two).
FIRST_PROGRAM = """\
import numpy as np
from scipy.ndimage import gaussian_filter
import fieldfit as ff

rng = np.random.default_rng(0)
noise = rng.normal(size=(20, 32, 32))
Y = (gaussian_filter(noise, sigma=(0, 2, 2)) > 0).astype(int)      # twenty pictures of blobs
X = Y + rng.normal(size=Y.shape)                                   # what the camera saw

crf = ff.GridCRF(objective="trw", l2=0.1).fit(X[:10], Y[:10])
print("error per pixel:", ((X[10:] > 0.5) != Y[10:]).mean(), "->", 1 - crf.score(X[10:], Y[10:]))
print(crf.status_)
"""

#: Ink that is not there is dark like ink, ink that was missed is pale like paper: seen from afar,
#: marked pictures look like what was restored.
INVENTED, LOST = (190, 30, 25), (165, 200, 255)
#: Distances from the lowest objective, per pixel, that are not just rounding.
SMALLEST_DISTANCE = 1e-9
PAPER = 255
COLUMNS = (
    "method",
    "seconds",
    "iterations",
    "converged",
    "error",
    "confidence",
    "log-loss",
    "pixel weight",
    "coupling across",
    "coupling down",
)
#: Of ``digits.png``: pixels for each pixel, and between pictures.
ENLARGEMENT, GAP = 3, 2


@dataclass(frozen=True)
class Report:
    """Everything that the demo found; ``noise`` is the level that pictures and table are for."""

    levels: Sequence[Level]
    noise: float
    seed: int
    is_quick: bool
    version: str

    @property
    def main(self) -> Level:
        return next(level for level in self.levels if level.noise == self.noise)

    @property
    def command(self) -> str:
        quick = " --quick" if self.is_quick else ""
        return f"fieldfit demo --noise {self.noise:g} --seed {self.seed}{quick}"


def demo_page(report: Report) -> str:
    """The whole page as HTML."""
    main = report.main
    digits = main.digits
    sentences = "".join(f"<p>{text(words)}</p>" for words in findings(report.levels, main))
    body = f"""
<h1>Learning to restore noisy digits</h1>
<p class="soft">{digits.n_train} handwritten digits with noise and without to learn from,
{len(digits.test[0])} others to restore. Each has {digits.size} &times; {digits.size} pixels, paper
is 0, ink is 1, and the noise is Gaussian with standard deviation {main.noise:g}. A random field
gives every pixel a weight for what was seen there and every pair of neighbours a coupling, a reward
for equal labels. All of them are learned.</p>
<div class="card">{_strips(main)}</div>
<p class="soft">The first test picture of each digit. Of each method, above: the probability of
ink (its marginals); below: the more probable label, with mistakes marked
(<span class="chip" style="background:{_css(INVENTED)}"></span> ink that is not there,
<span class="chip" style="background:{_css(LOST)}"></span> ink that was missed).
Percentages are over all test pictures.</p>
<h2>In numbers</h2>
<div class="card">{_table(main)}</div>
<p class="soft">Error: share of wrong test pixels, with its standard error over pictures.
Confidence: mean probability of the label that was chosen; it should be 100 % minus the error.
Log-loss: mean of &minus;log p(true label), {math.log(2):.3f} is knowing nothing, less is better.
Pixel weight: by how much one unit of grey raises the log-odds of ink (a pixel alone: 1/noise&sup2;
= {main.noise**-2:.2f}); couplings: by how much two
neighbours that agree, side by side or one above the other, raise the log-probability. Seconds are
those of training, without compilation.</p>
<h2>What happened</h2>
{sentences}
<h2>Learning curves</h2>
<div class="wide">
<div class="card"><h3>Objective per pixel</h3>{_objectives(main)}</div>
<div class="card"><h3>Objective above its lowest value, per pixel</h3>{_distances(main)}</div>
</div>
<p class="soft">Each method minimises an objective of its own, so heights of different curves are
not to be compared (MLE-Struct raises a lower bound instead, and has none here). Learning begins
with couplings of zero; a likelihood that knew nothing at all would be at
log 2 = {math.log(2):.3f}.</p>
{_other_levels(report.levels)}
<h2>In a few lines</h2>
<p>A program of its own, on pictures that it makes up:</p>
{code(FIRST_PROGRAM)}
<footer>fieldfit {text(report.version)}, <code>{text(report.command)}</code>. This page is one file
and needs no network. The digits are those of <code>sklearn.datasets.load_digits</code>, enlarged
three times and made black and white.</footer>
"""
    return page("fieldfit demo: learning to restore noisy digits", body)


# -- pictures -----------------------------------------------------------------------------


def digits_png(level: Level) -> bytes:
    """The test digits shown on the page: seen, restored by each method, the truth; one PNG."""
    seen, truth = level.digits.test
    rows = [_colored(_seen_grey(seen[:N_KINDS]))]
    rows += [_mistakes(level, outcome) for outcome in level.outcomes]
    rows.append(_colored(_grey(truth[:N_KINDS])))
    gaps = ((0, 0), (GAP, GAP), (GAP, GAP), (0, 0))
    lines = [np.concatenate(list(np.pad(row, gaps, constant_values=PAPER)), axis=1) for row in rows]
    mosaic = np.concatenate(lines, axis=0)
    return png_bytes(mosaic.repeat(ENLARGEMENT, axis=0).repeat(ENLARGEMENT, axis=1))


def _strips(level: Level) -> str:
    seen, truth = level.digits.test
    strips = [
        _strip(
            "what was seen", "", f"Noise {level.noise:g}.", [("noisy", _seen_grey(seen[:N_KINDS]))]
        ),
        _strip(
            "the truth", "", "Used only to count mistakes.", [("clean", _grey(truth[:N_KINDS]))]
        ),
    ]
    for outcome in level.outcomes:
        name = outcome.method.name
        shown = [
            (f"probability of ink by {name},", _grey(outcome.ink[:N_KINDS])),
            (f"labels by {name}, mistakes marked,", _mistakes(level, outcome)),
        ]
        share = f"{percent(level.error(outcome))} wrong"
        strips.append(_strip(name, share, outcome.method.sentence, shown))
    return "".join(strips)


def _strip(
    title: str, share: str, words: str, rows: Sequence[tuple[str, NDArray[np.uint8]]]
) -> str:
    tiles = "".join(
        f'<div class="tiles" role="img" aria-label="{text(name)} digits 0 to 9">'
        f"{''.join(picture(pixels, '') for pixels in row)}</div>"
        for name, row in rows
    )
    lines = [f"<b>{text(title)}</b>", f"<b>{text(share)}</b>" if share else "", text(words)]
    return f'<div class="strip"><p>{"".join(lines)}</p><div>{tiles}</div></div>'


def _grey(values: NDArray[np.generic], low: float = 0.0, high: float = 1.0) -> NDArray[np.uint8]:
    """Ink is dark: ``high`` becomes black."""
    share = (np.asarray(values, dtype=np.float64) - low) / (high - low)
    return np.round(255.0 * (1.0 - np.clip(share, 0.0, 1.0))).astype(np.uint8)


def _seen_grey(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    return _grey(values, -1.0, 2.0)  # usual noise reaches about one beyond both labels


def _colored(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(grey[..., None], 3, axis=-1)


def _mistakes(level: Level, outcome: Outcome) -> NDArray[np.uint8]:
    labels = outcome.ink[:N_KINDS] > 0.5
    truth = level.digits.test[1][:N_KINDS] == 1
    pixels = _colored(_grey(labels))
    pixels[labels & ~truth] = INVENTED
    pixels[~labels & truth] = LOST
    return pixels


def _css(color: tuple[int, int, int]) -> str:
    return f"rgb({color[0]} {color[1]} {color[2]})"


# -- numbers and curves -------------------------------------------------------------------


def _table(level: Level) -> str:
    rows = []
    for outcome in level.outcomes:
        spread = level.standard_error(outcome)
        error = level.error(outcome)
        shown = f"{100.0 * error:.1f}"
        if spread is not None:
            shown += f" &plusmn; {100.0 * spread:.1f}"
        couplings = outcome.couplings or (math.nan, math.nan)
        log_loss = level.digits.log_loss(outcome.ink)
        confidence = level.confidence(outcome)
        rows.append(
            [
                outcome.method.name,
                Cell(f"{outcome.seconds:.2f}", outcome.seconds),
                outcome.n_iter,
                outcome.converged,
                Cell(f"{shown} %", error),
                Cell(percent(confidence), confidence),
                Cell(f"{log_loss:.3f}", log_loss),
                Cell(f"{outcome.pixel_weight:.2f}", outcome.pixel_weight),
                *(Cell("&ndash;" if math.isnan(c) else f"{c:.2f}", c) for c in couplings),
            ]
        )
    titles = [outcome.status for outcome in level.outcomes]
    return table(COLUMNS, rows, caption="Methods in numbers", titles=titles)


def _objectives(level: Level) -> str:
    n_pixels = level.digits.train[1].size
    series = [
        Series(
            outcome.method.name,
            outcome.method.color,
            [(k + 1, value / n_pixels) for k, (_, value) in enumerate(outcome.curve)],
        )
        for outcome in level.outcomes
        if outcome.curve and outcome.method.in_time
    ]
    return line_chart(series, "iteration", "objective per pixel")


def _distances(level: Level) -> str:
    """Over seconds; what is lowest up to rounding has no place on the axis."""
    n_pixels = level.digits.train[1].size
    series = []
    for outcome in level.outcomes:
        if outcome.curve and outcome.method.in_time:
            lowest = min(value for _, value in outcome.curve)
            points = [(seconds, (value - lowest) / n_pixels) for seconds, value in outcome.curve]
            points = [point for point in points if point[1] > SMALLEST_DISTANCE]
            series.append(Series(outcome.method.name, outcome.method.color, points))
    return line_chart(series, "seconds", "above the lowest", log_x=True, log_y=True)


def _other_levels(levels: Sequence[Level]) -> str:
    if len(levels) < 2:
        return ""
    axis = "standard deviation of the noise"
    errors, losses = [], []
    for method in (outcome.method for outcome in levels[0].outcomes if outcome.method.in_study):
        found = [(level, level.find(method.objective)) for level in levels]
        shares = [(level.noise, 100.0 * level.error(o)) for level, o in found]
        errors.append(Series(method.name, method.color, shares))
        log_losses = [(level.noise, level.digits.log_loss(o.ink)) for level, o in found]
        losses.append(Series(method.name, method.color, log_losses))
    return f"""<h2>Other levels of noise</h2>
<div class="wide">
<div class="card"><h3>Error</h3>{line_chart(errors, axis, "wrong test pixels in %")}</div>
<div class="card"><h3>Log-loss</h3>{line_chart(losses, axis, "log-loss per test pixel")}</div>
</div>
<p class="soft">Everything was learned anew at every level, from the same digits. The noise is
scaled, not drawn again, so that levels differ by its strength only. The slower methods were left
out.</p>"""
