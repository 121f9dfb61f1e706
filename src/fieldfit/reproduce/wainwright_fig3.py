"""Figure 3 of Wainwright (2005): learning and predicting with the same surrogate, on an 8x8 grid.

Labels form an Ising model with spins ``x in {-1, +1}``, ``p(x) ∝ exp(sum_st th_st x_s x_t)`` and
``th_st ~ U[0, coupling]``.  From samples of it three fields are learned by matching moments (no
edges; Bethe's entropy; tree-reweighted entropy with weight 1/2 on each edge), and each predicts
noisy signals of a coupled mixture of Gaussians with its own inference.  The loss is the increase of
the mean squared error over that of the Bayes estimator, which knows the field and infers exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fieldfit._parallel import n_threads
from fieldfit.entropy.counting_numbers import Bethe, TreeReweighted
from fieldfit.models.mixture_field import MixtureField
from fieldfit.objectives.moment_matching import MomentMatching
from fieldfit.reproduce._base import Outcome, Settings
from fieldfit.reproduce._compilation import compile_elsewhere
from fieldfit.reproduce._wainwright_figures import curves, surfaces
from fieldfit.reproduce._wainwright_report import headline, report, terminal_table
from fieldfit.reproduce._wainwright_summary import Summary
from fieldfit.reproduce._wainwright_trial import Design, Trial, run_trial

__all__ = ["FULL", "QUICK", "run", "run_design"]

TENTHS = tuple(round(0.1 * step, 1) for step in range(11))
FULL = Design(
    size=8,
    couplings=TENTHS,
    alphas=TENTHS,
    n_trials=100,
    n_samples=10_000,
    n_observations=10,
)
QUICK = Design(
    size=8,
    couplings=(0.0, 0.25, 0.5, 0.75, 1.0),
    alphas=(0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    n_trials=12,
    n_samples=2_000,
    n_observations=6,
    has_variants=False,
)


def run(settings: Settings) -> Outcome:
    """The experiment of ``fieldfit reproduce wainwright-fig3``."""
    compile_elsewhere(_compile_messages)
    return run_design(QUICK if settings.quick else FULL, settings)


def run_design(design: Design, settings: Settings) -> Outcome:
    """All trials, in threads if asked; the figures do not depend on the number of threads."""
    tasks = [(c, t) for c in range(len(design.couplings)) for t in range(design.n_trials)]

    def trial(task: tuple[int, int]) -> Trial:
        # every trial has its own stream, whatever else is run
        generator = np.random.default_rng([settings.seed, *task])
        return run_trial(design, design.couplings[task[0]], generator)

    found: list[Trial] = []
    for result in _mapped(trial, tasks, n_threads(settings.n_jobs)):
        coupling = design.couplings[tasks[len(found)][0]]
        found.append(result)
        settings.progress(len(found), len(tasks), f"coupling {coupling:g}")
    n = design.n_trials
    summary = Summary(design, [found[c * n : (c + 1) * n] for c in range(len(design.couplings))])
    return Outcome(
        rows=summary.rows(),
        table=terminal_table(summary),
        report=report(summary),
        tables={"variants": summary.variant_rows()} if design.has_variants else {},
        figures={"surfaces": surfaces(summary), "curves": curves(summary)},
        headline=headline(summary),
    )


def _compile_messages() -> None:
    """Kernels of the surrogates, while the first trial compiles those of exact inference."""
    samples = np.random.default_rng(0).integers(0, 2, size=(50, 3, 3))
    for entropy in (Bethe(), TreeReweighted(0.5)):
        model = MixtureField(objective=MomentMatching(entropy, smoothing=1.0)).fit(samples)
        model.predict(np.zeros((2, 3, 3)), 0.5)


def _mapped(
    function: Callable[[tuple[int, int]], Trial], tasks: Sequence[tuple[int, int]], threads: int
) -> Iterator[Trial]:
    """Results in the order of the tasks; an interrupt drops what has not begun."""
    if threads <= 1:
        yield from map(function, tasks)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(function, tasks)
    finally:
        pool.shutdown(cancel_futures=True)
