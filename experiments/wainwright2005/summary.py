"""From the trials of ``wainwright-fig3`` to rows of tables, and lookups in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.wainwright2005.trial import COMPONENTS, METHODS, VARIANTS, Design, Trial

FloatArray = NDArray[np.float64]
Row = dict[str, Any]

#: Below this Bayes risk (only where the signal itself is observed) a percentage means nothing:
#: every prediction is the observation, and the loss is 0.
LEAST_RISK = 1e-12


@dataclass(frozen=True)
class Summary:
    """The trials of every coupling, in the order of the design."""

    design: Design
    trials: Sequence[Sequence[Trial]]

    def loss(self, ensemble: str, method: str) -> tuple[FloatArray, FloatArray]:
        """Increase of the mean squared error in percent of the Bayes risk, with standard errors.

        Both are matrices, couplings by alphas.
        """
        return self._ratio(ensemble, self._increase(ensemble, method))

    def difference(self, ensemble: str, method: str, other: str) -> tuple[FloatArray, FloatArray]:
        """Loss of one method less that of another, with the standard error of a paired sample."""
        return self._ratio(
            ensemble, self._increase(ensemble, method) - self._increase(ensemble, other)
        )

    def plain_loss(self, ensemble: str, method: str) -> FloatArray:
        """The loss from squared errors against the drawn signal itself: the same but noisier."""
        errors = self._stack(lambda trial: trial.errors[ensemble, method]).mean(axis=1)
        best = self._stack(lambda trial: trial.error[ensemble]).mean(axis=1)
        return _percent(errors - best, best)

    def bound(self, ensemble: str) -> tuple[FloatArray, FloatArray]:
        """The computable bound on TRW's loss in percent; its smaller form, and Theorem 1 alone."""
        return (
            self._ratio(ensemble, self._stack(lambda trial: trial.bound[ensemble]))[0],
            self._ratio(ensemble, self._stack(lambda trial: trial.theorem[ensemble]))[0],
        )

    def n_violations(self, ensemble: str) -> int:
        """Trials and settings in which the bound on the increase was below what was measured."""
        bound = self._stack(lambda trial: trial.bound[ensemble])
        return int((self._increase(ensemble, "TRW limit") > bound + LEAST_RISK).sum())

    def converged(self, ensemble: str, method: str) -> FloatArray:
        """Share of predictions whose inference converged, couplings by alphas."""
        shares: FloatArray = self._stack(lambda trial: trial.converged[ensemble, method]).mean(
            axis=1
        )
        return shares

    def rows(self) -> list[Row]:
        """Of ``results.csv``."""
        design = self.design
        n_predicted = len(design.alphas) * design.n_observations
        rows = []
        for ensemble in COMPONENTS:
            risk = self._risk(ensemble).mean(axis=1)
            bound, theorem = self.bound(ensemble)
            for method in METHODS:
                loss, error = self.loss(ensemble, method)
                limit, limit_error = self.loss(ensemble, f"{method} limit")
                plain = self.plain_loss(ensemble, method)
                converged = self.converged(ensemble, method)
                converged_limit = self.converged(ensemble, f"{method} limit")
                for c, coupling in enumerate(design.couplings):
                    trials = self.trials[c]
                    learning = np.mean([trial.learn_seconds[method] for trial in trials])
                    predicting = np.mean(
                        [trial.predict_seconds[ensemble, method] for trial in trials]
                    )
                    for a, alpha in enumerate(design.alphas):
                        is_trw = method == "TRW"
                        rows.append(
                            {
                                "ensemble": ensemble,
                                "coupling": coupling,
                                "alpha": alpha,
                                "method": method,
                                "loss_percent": float(loss[c, a]),
                                "standard_error": float(error[c, a]),
                                "loss_percent_limit": float(limit[c, a]),
                                "standard_error_limit": float(limit_error[c, a]),
                                "loss_percent_plain": float(plain[c, a]),
                                "bound_percent": float(bound[c, a]) if is_trw else None,
                                "theorem_percent": float(theorem[c, a]) if is_trw else None,
                                "bayes_mse": float(risk[c, a]),
                                "converged": float(converged[c, a]),
                                "converged_limit": float(converged_limit[c, a]),
                                "seconds": float(learning),
                                "seconds_per_prediction": float(predicting / n_predicted),
                                "n_trials": design.n_trials,
                                "n_samples": design.n_samples,
                            }
                        )
        return rows

    def variant_rows(self) -> list[Row]:
        """Of ``variants.csv``."""
        design = self.design
        if not design.has_variants:
            return []
        rows = []
        for ensemble in COMPONENTS:
            for variant in VARIANTS:
                loss, error = self.loss(ensemble, variant)
                converged = self.converged(ensemble, variant)
                for c, coupling in enumerate(design.couplings):
                    for a, alpha in enumerate(design.alphas):
                        rows.append(
                            {
                                "ensemble": ensemble,
                                "coupling": coupling,
                                "alpha": alpha,
                                "variant": variant,
                                "loss_percent": float(loss[c, a]),
                                "standard_error": float(error[c, a]),
                                "converged": float(converged[c, a]),
                            }
                        )
        return rows

    def _stack(self, read: Any) -> FloatArray:
        """A quantity of every trial, shape (couplings, trials, alphas)."""
        return np.array([[read(trial) for trial in trials] for trials in self.trials])

    def _increase(self, ensemble: str, method: str) -> FloatArray:
        return self._stack(lambda trial: trial.increase[ensemble, method])

    def _risk(self, ensemble: str) -> FloatArray:
        return self._stack(lambda trial: trial.risk[ensemble])

    def _ratio(self, ensemble: str, increase: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ratio of means over trials, in percent, and its standard error (delta method)."""
        risk = self._risk(ensemble)
        ratio = _percent(increase.mean(axis=1), risk.mean(axis=1))
        n_trials = increase.shape[1]
        if n_trials < 2:
            return ratio, np.full(ratio.shape, np.nan)
        rest = increase - ratio[:, None, :] / 100.0 * risk
        return ratio, _percent(rest.std(axis=1, ddof=1) / np.sqrt(n_trials), risk.mean(axis=1))


def _percent(part: FloatArray, whole: FloatArray) -> FloatArray:
    defined = whole > LEAST_RISK
    return np.where(defined, 100.0 * part / np.where(defined, whole, 1.0), 0.0)
