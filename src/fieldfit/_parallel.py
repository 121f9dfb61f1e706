"""Threads: what ``n_jobs`` means, an ordered map, and linear algebra that stays out of the way.

``n_jobs`` has scikit-learn's meaning everywhere: ``None`` is one thread, a positive number is that
many, ``-1`` is one for each processor, ``-2`` all processors but one, and so on; 0 is refused.
Results never depend on it: work is cut into the same parts whatever the number of threads, and what
the parts give is combined in their order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from fieldfit._validation import require_integer
from fieldfit.errors import InvalidInputError

__all__ = [
    "kernel_threads",
    "n_kernel_threads",
    "n_threads",
    "one_blas_thread",
    "ordered_map",
    "require_jobs",
    "worker_threads",
]

#: More than any machine has; beyond it a thread costs more than it does.
MAX_THREADS = 2**10

Item = TypeVar("Item")
Result = TypeVar("Result")


def require_jobs(n_jobs: Any) -> None:
    """Refuse what has no meaning as a number of jobs."""
    require_integer("n_jobs", n_jobs, or_none=True)
    if n_jobs == 0:
        raise InvalidInputError("n_jobs must not be 0; None means one thread and -1 all, got 0")


def n_threads(n_jobs: int | None) -> int:
    """Threads for ``n_jobs`` in scikit-learn's sense.

    Examples
    --------
    >>> n_threads(None), n_threads(3), n_threads(-1) == os.cpu_count()
    (1, 3, True)
    """
    require_jobs(n_jobs)
    if n_jobs is None:
        return 1
    if n_jobs > 0:
        return min(int(n_jobs), MAX_THREADS)
    return max(1, (os.cpu_count() or 1) + 1 + int(n_jobs))


def n_kernel_threads(n_jobs: int | None) -> int:
    """The same for kernels that run in threads themselves.

    Their threads do not survive a fork, and OpenMP ends a forked process that asks for them; such a
    process has one thread.
    """
    threads = n_threads(n_jobs)
    return 1 if _threads_are_lost else threads


_threads_are_lost = False


def _after_fork() -> None:
    """In the new process: see whether threads of kernels were started in the old one."""
    global _threads_are_lost
    numba = sys.modules.get("numba")
    try:
        _threads_are_lost = numba is not None and bool(numba.threading_layer())
    except ValueError:  # none has been chosen yet
        _threads_are_lost = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> list[Result]:
    """``function`` of every item, in their order; matrix products stay in their thread."""
    items = list(items)
    with one_blas_thread(), worker_threads(min(threads, len(items))) as run:
        return run(function, items)


@contextmanager
def worker_threads(threads: int) -> Iterator[Callable[..., list[Any]]]:
    """Threads that stay for many short calls; yields ``map(function, items)``, in their order."""
    if threads <= 1:
        yield lambda function, items: [function(item) for item in items]
        return
    with ThreadPoolExecutor(threads) as pool:
        yield lambda function, items: list(pool.map(function, items))


@contextmanager
def kernel_threads(n_jobs: int | None) -> Iterator[int]:
    """Let parallel kernels use this many threads, at most Numba's own number; yields it."""
    import numba

    threads = min(n_kernel_threads(n_jobs), int(numba.config.NUMBA_NUM_THREADS))
    before = numba.get_num_threads()
    numba.set_num_threads(threads)
    try:
        yield threads
    finally:
        numba.set_num_threads(before)


def one_blas_thread() -> Any:
    """A context in which matrix products stay in the thread that asks for them.

    Products with features are small and many, and parts already run in parallel: threads of the
    linear algebra library would get in the way of ours and, on a busy machine, mostly wait for each
    other.  Their number would also change the last bits of a sum.
    """
    return _blas().limit(limits=1)


@cache
def _blas() -> Any:
    # comes with scikit-learn
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
