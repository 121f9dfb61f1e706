"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import settings
from numba.core.caching import NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None

# No deadline: the first call of a kernel may compile it.  The same examples in every run, so that
# a failure can be seen again.
settings.register_profile("fieldfit", deadline=None, derandomize=True)
settings.load_profile("fieldfit")


def compile_once():
    """Let one of several test processes compile a kernel, and the others load what it compiled.

    Otherwise all compile the same kernels at the same time, which is most of the processor time of
    a first run.  The lock of a kernel is that of its source file.  Modules of kernels do not import
    each other in circles, so no two processes wait for each other.
    """
    original, held = Dispatcher.compile, set()

    def compile_or_load(dispatcher, signature):
        path = dispatcher.py_func.__code__.co_filename
        with global_compiler_lock:  # first: another thread may hold it and wait for the file
            if isinstance(dispatcher._cache, NullCache) or path in held:
                return original(dispatcher, signature)
            held.add(path)
            try:
                with open(path) as file:
                    fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
                    return original(dispatcher, signature)
            finally:
                held.remove(path)

    Dispatcher.compile = compile_or_load


if fcntl is not None and "PYTEST_XDIST_WORKER" in os.environ:
    compile_once()
