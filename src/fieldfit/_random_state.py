"""What ``random_state`` means, everywhere: scikit-learn's meaning.

``None`` is another stream in every run, an integer of at least 0 is a seed, and a generator of
NumPy is used as it is, so that two calls with it go on in one stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fieldfit._validation import is_integer, shown
from fieldfit.errors import InvalidInputError

__all__ = ["as_seed", "random_generator", "require_random_state"]


def require_random_state(random_state: Any) -> None:
    """Refuse what has no meaning as a state of a random generator.

    Examples
    --------
    >>> require_random_state("a")
    Traceback (most recent call last):
    ...
    fieldfit.errors.InvalidInputError: random_state must be None, an integer of at least 0 or a \
random generator, got 'a'
    """
    is_generator = isinstance(random_state, (np.random.Generator, np.random.RandomState))
    is_seed = is_integer(random_state) and random_state >= 0
    if random_state is not None and not is_generator and not is_seed:
        raise InvalidInputError(
            "random_state must be None, an integer of at least 0 or a random generator, "
            f"got {shown(random_state)}"
        )


def random_generator(random_state: Any) -> np.random.Generator:
    """The generator that is meant."""
    require_random_state(random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(as_seed(random_state))
    return np.random.default_rng(random_state)


def as_seed(random_state: Any) -> int | None:
    """An integer for whatever ``random_state`` may be; a generator moves on."""
    require_random_state(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return None if random_state is None else int(random_state)
