"""Random numbers by position: any draw of a stream, in any order, by any thread.

The ``n``-th output of SplitMix64 is a hash of ``key + n * G``, so it needs no state: a sampler
names its draw by (stream key, counter) and gets the same number however the work is shared
out among threads.

Reference: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

import numpy as np

from fieldfit.numeric.compile import kernel

#: Odd increment (2**64 divided by the golden ratio) and the two multipliers of the finaliser.
INCREMENT = np.uint64(0x9E3779B97F4A7C15)
MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


@kernel
def random_bits(key: np.uint64, counter: int) -> np.uint64:
    """64 random bits: output number ``counter`` (from 0) of the stream ``key``."""
    # every operand is uint64: Numba turns a mixture of signed and unsigned into float64
    z = key + (np.uint64(counter) + np.uint64(1)) * INCREMENT
    z = (z ^ (z >> np.uint64(30))) * MULTIPLIER_1
    z = (z ^ (z >> np.uint64(27))) * MULTIPLIER_2
    return z ^ (z >> np.uint64(31))


@kernel
def random_uniform(key: np.uint64, counter: int) -> float:
    """A double in [0, 1), a multiple of 2**-53, from the upper bits of `random_bits`."""
    return np.float64(random_bits(key, counter) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
