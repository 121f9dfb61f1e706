"""What notebooks show of fitted estimators, beside scikit-learn's table of their options."""

from __future__ import annotations

from typing import Any

from fieldfit.report.page_parts import small_table

__all__ = ["fit_view"]


def fit_view(estimator: Any) -> str:
    """How the fit ended, as a small table; nothing before the fit."""
    if not hasattr(estimator, "weights_"):
        return ""
    rows: dict[str, Any] = {
        "status": estimator.status_,
        "converged": bool(estimator.converged_),
        "iterations": int(estimator.n_iter_),
        "weights": len(estimator.weights_),
    }
    last = estimator.trace_[-1] if estimator.trace_ else {}
    for key, name in (
        ("objective", "objective"),
        ("gradient_norm", "gradient norm"),
        ("gap", "gap"),
    ):
        if last.get(key) is not None:
            rows[name] = float(last[key])
    return small_table(f"{type(estimator).__name__}, fitted", rows)
