"""The page that ``fieldfit demo`` writes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfit.cli._page import Series, line_chart, page, picture, text
from fieldfit.cli.demo_methods import METHODS, Outcome, Study
from fieldfit.cli.demo_picture import NOISE, Restoration

__all__ = ["FIRST_PROGRAM", "Report", "bound_words", "demo_page"]

#: The program on the page and in the README (a test runs it and compares the two).
FIRST_PROGRAM = """\
import numpy as np
import fieldfit as ff

clean = np.zeros((40, 60), dtype=int)
clean[10:30, 15:45] = 1                                      # a box of label 1 on label 0
noisy = clean + np.random.default_rng(0).normal(scale=0.8, size=clean.shape)

graph = ff.FactorGraph.grid(40, 60, n_labels=2)              # pixels and their neighbours
unary = -0.5 * ((noisy[..., np.newaxis] - [0, 1]) / 0.8) ** 2  # log p(pixel | label)
agree = np.eye(2)                                            # neighbours like to agree
result = ff.SumProduct().run(graph, ff.Potentials(graph, unary, agree))

restored = result.beliefs.argmax().reshape(clean.shape)
print("wrong before:", ((noisy > 0.5) != clean).sum(), " after:", (restored != clean).sum())
print(result.status)
"""

COLORS = {
    "belief propagation": "#3b82f6",
    "tree-reweighted": "#d97706",
    "mean field": "#10a37f",
    "Gibbs sampling": "#a855f7",
    "exact": "#8b94a3",
}
INVENTED, LOST = (220, 60, 50), (50, 110, 235)  # ink that is not there, ink that was missed


@dataclass(frozen=True)
class Report:
    """Everything that the demo found."""

    problem: Restoration
    outcomes: Sequence[Outcome]
    study: Study
    seed: int
    version: str


def bound_words(outcome: Outcome) -> str:
    """What ``log_partition`` proves, in words."""
    if math.isnan(outcome.log_partition):
        return ""
    words = {"exact": "exact", "upper": "upper bound", "lower": "lower bound"}
    return words.get(outcome.bound or "", "estimate")


def demo_page(report: Report) -> str:
    """The whole page as HTML."""
    problem, study = report.problem, report.study
    height, width = problem.clean.shape
    patch_height, patch_width = study.patch.clean.shape
    command = f"fieldfit demo --size {height} --seed {report.seed}"
    cards = [_input_card(problem), *(_method_card(problem, o) for o in report.outcomes)]
    body = f"""
<h1>Restoring a noisy picture with a random field</h1>
<p class="soft">{width} &times; {height} pixels, each with a hidden label (paper or ink), seen
through Gaussian noise of standard deviation {NOISE:g}. Two neighbours that agree get a
log-potential of {problem.coupling:g}. What is computed is the probability of ink at every pixel,
given the whole noisy picture.</p>
<div class="row">
{"".join(cards)}
</div>
<p class="soft">Of each method: left the probability of ink, right the more probable label, with
mistakes marked
(<span class="chip" style="background:{_css(INVENTED)}"></span> ink that is not there,
<span class="chip" style="background:{_css(LOST)}"></span> ink that was missed).</p>
<h2>In numbers</h2>
<div class="card scroll">{_table(problem, report.outcomes)}</div>
<p class="soft">Log-loss is the mean of &minus;log p(true label): {math.log(2):.3f} is knowing
nothing, less is better, and being sure and wrong costs most. All methods were given the same
coupling by hand; with another one the ranking changes, which is why a coupling should be learned
with the method that will use it. The seconds leave out compilation, once for each machine.</p>
<h2>Does it converge, and what does it prove?</h2>
<div class="wide">
<div class="card"><b>Largest change in a sweep</b>{_convergence(report.outcomes)}</div>
<div class="card"><b>Error of log Z per pixel</b>{_bounds(study)}</div>
</div>
<p class="soft">Right: on a patch of {patch_width} &times; {patch_height} pixels, where exact
inference is cheap, mean field never exceeds the exact log Z and tree-reweighted propagation never
falls below it. Belief propagation is often closer, and proves nothing.</p>
<h2>The same in a few lines</h2>
<pre>{text(FIRST_PROGRAM)}</pre>
<footer>fieldfit {text(report.version)}, <code>{text(command)}</code>. This page is one file and
needs no network.</footer>
"""
    return page("fieldfit demo", body)


def _input_card(problem: Restoration) -> str:
    seen = picture(_grey(problem.noisy, -1.0, 2.0), "noisy picture")
    truth = picture(_grey(problem.clean, 0.0, 1.0), "clean picture")
    words = "Left the input, right the picture that it came from, used only to count mistakes."
    return _figure(seen + truth, "what was seen, what was there", "", words)


def _method_card(problem: Restoration, outcome: Outcome) -> str:
    ink = picture(_grey(outcome.ink, 0.0, 1.0), f"probability of ink by {outcome.name}")
    labels = picture(_mistakes(problem, outcome.ink), f"labels by {outcome.name}, mistakes marked")
    share = f"{100.0 * problem.n_wrong(outcome.ink) / problem.clean.size:.1f} % wrong"
    sentences = {method.name: method.sentence for method in METHODS}
    words = sentences.get(outcome.name, "The truth about this model, by a clique tree.")
    return _figure(ink + labels, outcome.name, share, words)


def _figure(pictures: str, title: str, figure: str, words: str) -> str:
    return (
        f'<figure><div class="pair">{pictures}</div><figcaption><b>{text(title)}'
        f"<span>{text(figure)}</span></b>{text(words)}</figcaption></figure>"
    )


def _table(problem: Restoration, outcomes: Sequence[Outcome]) -> str:
    rows = []
    for outcome in outcomes:
        value = outcome.log_partition
        cells = [
            f"<td>{text(outcome.name)}</td>",
            f"<td>{problem.n_wrong(outcome.ink)}</td>",
            f"<td>{problem.log_loss(outcome.ink):.4f}</td>",
            f"<td>{outcome.seconds:.3f}</td>",
            f"<td>{'yes' if outcome.converged else 'no'}</td>",
            f"<td>{'&ndash;' if math.isnan(value) else f'{value:.1f}'}</td>",
            f'<td class="words">{bound_words(outcome)}</td>',
        ]
        rows.append(f'<tr title="{text(outcome.status)}">{"".join(cells)}</tr>')
    names = ("method", "pixels wrong", "mean log-loss", "seconds", "converged", "log Z", "")
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _convergence(outcomes: Sequence[Outcome]) -> str:
    series = [Series(o.name, COLORS[o.name], o.curve) for o in outcomes if o.curve]
    return line_chart(series, "sweeps", "largest change", log_y=True)


def _bounds(study: Study) -> str:
    series = [
        Series(name, COLORS[name], list(zip(study.couplings, study.errors(name), strict=True)))
        for name in study.approximate
    ]
    exact = Series("exact", COLORS["exact"], [(c, 0.0) for c in study.couplings])
    return line_chart([exact, *series], "coupling", "error of log Z per pixel")


def _grey(values: NDArray[np.generic], low: float, high: float) -> NDArray[np.uint8]:
    """Ink is dark: ``high`` becomes black."""
    share = (np.asarray(values, dtype=np.float64) - low) / (high - low)
    return np.round(255.0 * (1.0 - np.clip(share, 0.0, 1.0))).astype(np.uint8)


def _mistakes(problem: Restoration, ink: NDArray[np.float64]) -> NDArray[np.uint8]:
    labels, truth = ink > 0.5, problem.clean == 1
    pixels = np.repeat(_grey(labels, 0.0, 1.0)[:, :, None], 3, axis=2)
    pixels[labels & ~truth] = INVENTED
    pixels[~labels & truth] = LOST
    return pixels


def _css(color: tuple[int, int, int]) -> str:
    return f"rgb({color[0]} {color[1]} {color[2]})"
