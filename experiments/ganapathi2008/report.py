"""What the reports of the three experiments of Ganapathi et al. (2008) share."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.ganapathi2008.methods import METHODS
from experiments.tables import Column

#: What a report says of the columns that describe a training.
HOW_TO_READ = """
*Outer loops* are rounds of CCCP, and one for methods that have none; for LBP they are starts of the
learner, which begins afresh where propagation has changed to another fixed point.
*Inner iterations* are iterations of L-BFGS in all loops together, without those of the piecewise
warm start; *seconds* are wall time of training with it. Every method predicts with residual belief
propagation. Figures in brackets are standard deviations over folds.
"""


def printed(*cells: str) -> dict[str, str]:
    """A column of the paper's table, by method."""
    return dict(zip(METHODS, cells, strict=True))


def training_columns(
    outer_loops: Mapping[str, str] | None = None,
    inner_iterations: Mapping[str, str] | None = None,
    seconds: Mapping[str, str] | None = None,
) -> list[Column]:
    """Columns that say how a training went, with what the paper prints for them (if it does)."""
    return [
        Column("converged", "converged, %", digits=0),
        Column("outer_loops", "outer loops", outer_loops or {}, scale=1.0),
        Column("inner_iterations", "inner iterations", inner_iterations or {}, scale=1.0, digits=0),
        Column("seconds", "seconds", seconds or {}, scale=1.0, digits=0),
    ]
