"""Upper bounds on the score of any labelling by a few sweeps of convex max-product."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfit.core.batch import Batch
from fieldfit.core.entropy import Convex
from fieldfit.core.potentials import Potentials
from fieldfit.inference._message_model import build_model, initial_state, raise_contradiction
from fieldfit.inference.schedule import cached_plan, common_labels
from fieldfit.kernels.arrays import CONTRADICTION
from fieldfit.kernels.max_messages import dual_bounds, run_max_sweeps

__all__ = ["message_bounds"]


def message_bounds(
    batch: Batch,
    potentials: Potentials,
    observed: dict[int, int] | ArrayLike | None,
    n_sweeps: int,
) -> NDArray[np.float64]:
    """One bound for each example; messages of any quality give a valid one.

    Convex weights need no spanning trees, and their messages are steps of block-coordinate descent
    on the dual, so that the bound does not get worse.
    """
    graph, structure = batch.graph, batch.graph.structure
    model = build_model(graph, potentials, Convex().counting_numbers(graph), observed)
    state = initial_state(graph, model, None)
    plan = cached_plan(graph, "sequential", is_bethe=False)
    labels = common_labels(graph)
    flags = run_max_sweeps(labels, structure, plan, model, state, 0.0, 1e-12, n_sweeps)[2]
    if flags & CONTRADICTION:
        raise_contradiction(graph, state)
    by_factor = np.empty((2, graph.n_factors))
    by_variable = np.empty((2, graph.n_variables))
    dual_bounds(structure, model, state, by_factor, by_variable)
    rows = [
        batch.sum_factors(by_factor[row]) + batch.sum_variables(by_variable[row])
        for row in range(2)
    ]
    bounds: NDArray[np.float64] = np.minimum(*rows)
    return bounds
