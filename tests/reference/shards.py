"""The sum over shards by hand: parts of one example each, added in two levels."""

from __future__ import annotations

import numpy as np


def two_level_sum(parts, sizes, shard_size):
    """Value and gradient of the parts of each shard, then of the shards, in their order."""
    shards, room = [], 0
    for part, size in zip(parts, sizes, strict=True):
        if not shards or size > room:
            shards.append([])
            room = shard_size
        shards[-1].append(part)
        room -= size
    value, gradient = 0.0, np.zeros_like(parts[0].gradient)
    for shard in shards:
        inner, inner_gradient = 0.0, np.zeros_like(gradient)
        for part in shard:
            inner += part.value
            inner_gradient = inner_gradient + part.gradient
        value += inner
        gradient = gradient + inner_gradient
    return value, gradient
