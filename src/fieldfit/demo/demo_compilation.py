"""Compiling kernels in a second process, for commands whose first run should be short."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

__all__ = ["compile_elsewhere"]


def compile_elsewhere(use_kernels: Callable[[], None]) -> None:
    """Let a second process call a module-level function, and do not wait for it.

    Numba compiles one function at a time in a process, and leaves it in the disk cache; whatever
    the second process has not compiled, this one does when it gets there.
    """
    # spawned, not forked: a fork would inherit locks of threads that it does not have;
    # an interrupt from the keyboard goes to both processes, and one of them has to report it
    pool = ProcessPoolExecutor(
        max_workers=1,
        mp_context=get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_DFL),
    )
    pool.submit(use_kernels)
    pool.shutdown(wait=False)
