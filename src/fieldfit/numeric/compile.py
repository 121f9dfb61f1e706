"""The decorator of all kernels, and compiled kernels on disk.

A kernel is a module-level function on arrays and named tuples of arrays.  It works in the caller's
buffers, releases the interpreter lock, returns flags instead of raising, and divides by zero as
NumPy does.

Numba caches compiled kernels beside their sources.  It notices when the file of a kernel changes,
but not when a kernel that it calls does, in another file; the old code would then run on.
Therefore a change of any source file of the package discards all of its compiled kernels.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload

from numba import njit

__all__ = ["discard_outdated_kernels", "kernel"]

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def kernel(function: Function) -> Function: ...
@overload
def kernel(*, cache: bool = ..., **options: Any) -> Callable[[Function], Function]: ...
def kernel(function: Any = None, *, cache: bool = True, **options: Any) -> Any:
    """Compile a function on first use and keep the result on disk.

    ``options`` are Numba's: ``fastmath`` (with `fieldfit.numeric.simd.SAFE_FASTMATH` where sums may
    be reordered), ``parallel``, ``inline``, ``forceinline``.  Tiny functions that are only ever
    inlined into other kernels have ``cache=False``.
    """
    compiled = njit(cache=cache, nogil=True, error_model="numpy", **options)
    return compiled if function is None else compiled(function)


def discard_outdated_kernels(folder: Path) -> None:
    """Remove the compiled kernels below a folder if any of its sources has changed since."""
    digest = hashlib.blake2b()  # of the contents: installers do not agree on file times
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    stamp = folder / "__pycache__" / "kernels.stamp"
    with contextlib.suppress(OSError):  # a read-only installation never changes
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        for pattern in ("*.nbi", "*.nbc"):
            for compiled in folder.rglob(f"__pycache__/{pattern}"):
                compiled.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest.hexdigest())


discard_outdated_kernels(Path(__file__).resolve().parent.parent)
