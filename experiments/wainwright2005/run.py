"""Figure 3 of Wainwright (2005): learning and predicting with the same surrogate, on an 8x8 grid.

Labels form an Ising model with spins ``x in {-1, +1}``, ``p(x) ∝ exp(sum_st th_st x_s x_t)`` and
``th_st ~ U[0, coupling]``.  From samples of it three fields are learned by matching moments (no
edges; Bethe's entropy; tree-reweighted entropy with weight 1/2 on each edge), and each predicts
noisy signals of a coupled mixture of Gaussians with its own inference.  The loss is the increase of
the mean squared error over that of the Bayes estimator, which knows the field and infers exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.base import Outcome, Plan, Result, Results, Task
from experiments.wainwright2005.figures import curves, surfaces
from experiments.wainwright2005.report import headline, report, terminal_table
from experiments.wainwright2005.summary import Summary
from experiments.wainwright2005.trial import Design, Trial, run_trial
from fieldfit import Bethe, MixtureField, MomentMatching, TreeReweighted

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


class Figure3(Plan[Design]):
    """A task is one random field, with all methods and noise levels."""

    full, quick = FULL, QUICK

    @property
    def n_at_once(self) -> int:
        """Trials are independent of each other."""
        return self.settings.n_threads

    def tasks(self) -> Sequence[Task]:
        """Couplings and numbers of trials."""
        return [(c, t) for c in self.design.couplings for t in range(self.design.n_trials)]

    def run_task(self, task: Task, results: Results) -> Result:
        """One trial; each has a stream of random numbers of its own."""
        coupling, trial = float(task[0]), int(task[1])
        stream = [self.settings.seed, self.design.couplings.index(coupling), trial]
        found = run_trial(self.design, coupling, np.random.default_rng(stream))
        return Result(facts=found.facts())

    def outcome(self, results: Results) -> Outcome:
        design = self.design
        trials = [
            [Trial.of_facts(results[c, t].facts) for t in range(design.n_trials)]
            for c in design.couplings
        ]
        summary = Summary(design, trials)
        return Outcome(
            rows=summary.rows(),
            table=terminal_table(summary),
            report=report(summary),
            tables={"variants": summary.variant_rows()} if design.has_variants else {},
            figures={"surfaces": surfaces(summary), "curves": curves(summary)},
            headline=headline(summary),
        )

    def warm_up(self) -> None:
        """Compile the kernels of the surrogates."""
        samples = np.random.default_rng(0).integers(0, 2, size=(50, 3, 3))
        for entropy in (Bethe(), TreeReweighted(0.5)):
            model = MixtureField(objective=MomentMatching(entropy, smoothing=1.0)).fit(samples)
            model.predict(np.zeros((2, 3, 3)), 0.5)
