"""The report of ``wainwright-fig3``: the paper's claims beside ours, losses, checks, bounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.tables import markdown_table, text_table
from experiments.wainwright2005.summary import Summary
from experiments.wainwright2005.trial import COMPONENTS, METHODS, SMOOTHING, VARIANTS

#: Differences of losses below this (in points of percent) are rounding: the methods agree.
ROUNDING = 1e-6
#: Differences above this are worth counting: sampling noise makes about 0.01.
VISIBLE = 0.1

WHAT_WAS_DONE = """
## What was done

A grid of {size} x {size} spins with `th_s = 0` and `th_st ~ U[0, coupling]`: {n_trials} random
fields for each of {n_couplings} couplings. Each field is learned from {n_samples} independent exact
samples (drawn from a clique tree; smoothing: {smoothing} imaginary sample) and, in the limit of
infinitely many, from its exact marginals. In every trial {n_observations} signals are drawn and
predicted for each of {n_alphas} signal-to-noise ratios `alpha` and both ensembles: bimodal, means
-1 and 1, variances 0.5; heavy-tailed, means 0, variances 1 and 9. IND has no edges, BP is moment
matching and message passing with Bethe's entropy (from uniform messages), TRW the same with
`rho = 1/2` on every edge, as in the paper.

The loss is the increase of the mean squared error over the Bayes estimator (true field, junction
tree), in percent of the latter, both averaged over all trials. It is computed as the mean of
`(z - z_Bayes)^2`, which equals the increase in expectation because `z_Bayes` is the conditional
mean, and has much less noise; the difference of the plain squared errors is in the column
`loss_percent_plain`. Standard errors are over trials.
"""


def terminal_table(summary: Summary) -> str:
    """Loss by coupling and alpha, for each ensemble and method."""
    alphas = [f"{alpha:g}" for alpha in summary.design.alphas]
    parts = []
    for ensemble in COMPONENTS:
        for method in METHODS:
            loss, _ = summary.loss(ensemble, method)
            rows = [
                [f"{coupling:g}", *(f"{value:.2f}" for value in line)]
                for coupling, line in zip(summary.design.couplings, loss, strict=True)
            ]
            header = ["coupling \\ alpha", *alphas]
            parts.append(f"{ensemble}, {method}: loss in percent\n{text_table(header, rows)}")
    return "\n\n".join(parts)


def headline(summary: Summary) -> dict[str, float]:
    """The figures at the corner where the methods differ most, and the largest of each surface."""
    c, a = _strong_and_noisy(summary)
    figures = {}
    for ensemble in COMPONENTS:
        for method in METHODS:
            loss, _ = summary.loss(ensemble, method)
            figures[f"{ensemble} {method} strong and noisy"] = float(loss[c, a])
            figures[f"{ensemble} {method} largest"] = float(loss.max())
    return figures


def _strong_and_noisy(summary: Summary) -> tuple[int, int]:
    """The strongest coupling, and the alpha nearest to 0.1."""
    alphas = np.array(summary.design.alphas)
    return len(summary.design.couplings) - 1, int(np.argmin(np.abs(alphas - 0.1)))


def report(summary: Summary) -> str:
    """Markdown of the whole."""
    design = summary.design
    parts = [
        WHAT_WAS_DONE.format(
            size=design.size,
            n_trials=design.n_trials,
            n_couplings=len(design.couplings),
            n_samples=f"{design.n_samples:,}",
            smoothing=f"{SMOOTHING:g}",
            n_observations=design.n_observations,
            n_alphas=len(design.alphas),
        ).strip(),
        f"## The paper beside ours\n\n{_claims(summary)}",
        "![Loss of the three methods over signal-to-noise and coupling](surfaces.png)",
        "![Loss against signal-to-noise at three couplings](curves.png)\n\n"
        "Bars are two standard errors, dashed lines fields learned from exact marginals.",
        f"## Losses\n\n{_losses(summary)}",
        f"## Samples, weights, convergence\n\n{_checks(summary)}",
        f"## The computable bound (Theorem 1)\n\n{_bounds(summary)}",
    ]
    return "\n\n".join(parts)


def _claims(summary: Summary) -> str:
    """What the paper says of its figure (it prints no numbers), and what we got."""
    design = summary.design
    c, a = _strong_and_noisy(summary)
    corner = []
    for method in METHODS:
        loss, error = summary.loss("bimodal", method)
        corner.append(f"{method} {loss[c, a]:.1f} ± {error[c, a]:.1f}")
    weak = np.array(design.couplings) <= 0.5 + 1e-9
    most = {
        (ensemble, method): float(summary.loss(ensemble, method)[0].max())
        for ensemble in COMPONENTS
        for method in METHODS
    }
    weakest = {
        method: max(float(summary.loss(e, method)[0][weak].max()) for e in COMPONENTS)
        for method in METHODS
    }
    beaten = [
        f"{int((summary.difference(ensemble, 'BP', 'IND')[0] > VISIBLE).sum())} of "
        f"{len(design.couplings) * len(design.alphas)} settings ({ensemble})"
        for ensemble in COMPONENTS
    ]
    rows = [
        (
            "With weak coupling all do well; BP is better than TRW, both lose less than 1 %",
            f"coupling up to 0.5: BP loses at most {weakest['BP']:.2f} %, TRW {weakest['TRW']:.2f} "
            f"%, IND {weakest['IND']:.2f} %; BP against TRW: {_weak_contest(summary, weak, '')}; "
            f"learned from exact marginals: {_weak_contest(summary, weak, ' limit')}",
        ),
        (
            "With strong coupling and low or intermediate SNR, BP deteriorates, to worse than IND",
            f"bimodal, coupling {design.couplings[c]:g}, alpha {design.alphas[a]:g}: "
            f"{', '.join(corner)} %; BP is worse than IND by more than "
            f"{VISIBLE:g} points in {' and '.join(beaten)}",
        ),
        (
            "BP loses up to about 50 % (bimodal) and 5 % (heavy-tailed), by the axes",
            f"at most {most['bimodal', 'BP']:.1f} % and {most['heavy', 'BP']:.1f} %",
        ),
        (
            "TRW is stable everywhere",
            f"at most {most['bimodal', 'TRW']:.1f} % (bimodal), {most['heavy', 'TRW']:.1f} % "
            "(heavy-tailed)",
        ),
    ]
    return (
        f"{markdown_table(('paper', 'here'), rows)}\n\n"
        "Where there is next to no coupling, BP can lose more than TRW because of the samples "
        "alone: it takes the noise in the learned couplings at face value, TRW damps it. The "
        "difference is gone when the field is learned from exact marginals."
    )


def _weak_contest(summary: Summary, weak: NDArray[np.bool_], suffix: str) -> str:
    """Where BP is at least as good as TRW with weak coupling, and by how much it is not."""
    design = summary.design
    n_settings, n_lost = 0, 0
    most, where = 0.0, ""
    for ensemble in COMPONENTS:
        gap, error = summary.difference(ensemble, f"BP{suffix}", f"TRW{suffix}")
        gap = np.where(weak[:, None], gap, -np.inf)
        n_settings += int(weak.sum()) * len(design.alphas)
        n_lost += int((gap > ROUNDING).sum())
        c, a = np.unravel_index(int(np.argmax(gap)), gap.shape)
        if gap[c, a] > max(most, ROUNDING):
            most = float(gap[c, a])
            where = (
                f", by at most {most:.2g} ± {error[c, a]:.1g} points ({ensemble}, coupling "
                f"{design.couplings[c]:g}, alpha {design.alphas[a]:g})"
            )
    return f"worse in {n_lost} of {n_settings} settings{where}"


def _losses(summary: Summary) -> str:
    design = summary.design
    parts = []
    for ensemble in COMPONENTS:
        for method in METHODS:
            loss, _ = summary.loss(ensemble, method)
            limit, _ = summary.loss(ensemble, f"{method} limit")
            rows = [
                [f"{coupling:g}", *(f"{x:.2f} ({y:.2f})" for x, y in zip(*lines, strict=True))]
                for coupling, *lines in zip(design.couplings, loss, limit, strict=True)
            ]
            table = markdown_table(
                ["coupling \\ alpha", *(f"{alpha:g}" for alpha in design.alphas)], rows
            )
            parts.append(f"{method}, {ensemble}, percent (from exact marginals):\n\n{table}")
    return "\n\n".join(parts)


def _checks(summary: Summary) -> str:
    design = summary.design
    methods = [*METHODS, *(f"{m} limit" for m in METHODS)]
    methods += list(VARIANTS) if design.has_variants else []
    c, a = _strong_and_noisy(summary)
    rows = []
    for method in methods:
        corner, error = summary.loss("bimodal", method)
        cells = [f"{corner[c, a]:.2f} ± {error[c, a]:.2f}"]
        cells += [f"{summary.loss(ensemble, method)[0].max():.2f}" for ensemble in COMPONENTS]
        shares = [summary.converged(ensemble, method) for ensemble in COMPONENTS]
        cells.append(f"{100 * np.mean(shares):.2f} %")
        cells.append(f"{100 * min(float(share.min()) for share in shares):.1f} %")
        rows.append([method, *cells])
    table = markdown_table(
        [
            "method",
            f"loss at coupling {design.couplings[c]:g}, alpha {design.alphas[a]:g} (bimodal)",
            "largest loss, bimodal",
            "largest loss, heavy",
            "converged",
            "least converged setting",
        ],
        rows,
    )
    return (
        f"{table}\n\n`limit`: learned from exact marginals. Predictions that did not converge "
        "within 1000 sweeps are used as they are."
    )


def _bounds(summary: Summary) -> str:
    design = summary.design
    rows = []
    for c, coupling in enumerate(design.couplings):
        cells = [f"{coupling:g}"]
        for ensemble in COMPONENTS:
            bound, theorem = summary.bound(ensemble)
            loss, _ = summary.loss(ensemble, "TRW limit")
            cells += [f"{loss[c].max():.2f}", f"{bound[c].max():.1f}", f"{theorem[c].max():.1f}"]
        rows.append(cells)
    violations = sum(summary.n_violations(ensemble) for ensemble in COMPONENTS)
    n_cases = design.n_trials * len(design.couplings) * len(design.alphas) * len(COMPONENTS)
    header = ["coupling"]
    for ensemble in COMPONENTS:
        header += [f"{ensemble}: loss", "bound", "Theorem 1 alone"]
    return (
        "For TRW in the limit, the largest over `alpha` of the measured loss, of the bound, and of "
        "Theorem 1 without the interval of log-odds, in percent of the Bayes risk:\n\n"
        f"{markdown_table(header, rows)}\n\n"
        f"The bound was below the measured increase in {violations} of {n_cases:,} cases (trials "
        "and settings). It is a guarantee, not an estimate. Theorem 1 alone soon has to allow for "
        "beliefs that are wrong altogether, which is more than 100 percent; the interval of "
        "log-odds makes the bound useful for weak couplings. Both vanish as alpha goes to 0 or 1."
    )
