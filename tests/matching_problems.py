"""Models of matchings with random tables, for the matching oracles."""

from __future__ import annotations

import numpy as np

import fieldfit as ff


def decorated(rng, graph, potentials):
    """Random numbers in place of the zeros of the tables: the support stays."""
    values = potentials.factor_values
    noise = np.where(values > -np.inf, values + rng.normal(size=values.shape), -np.inf)
    return ff.Potentials.from_flat(graph, potentials.unary_values, noise)
