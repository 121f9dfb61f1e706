"""The decorator of all kernels, and compiled kernels on disk.

A kernel is a module-level function on arrays and named tuples of arrays.  It works in the caller's
buffers, releases the interpreter lock, returns flags instead of raising, and divides by zero as
NumPy does.  To Python it returns numbers, arrays and plain tuples of them, never a named tuple:
Numba makes those by calling Python and does not look whether that failed, so that a signal whose
handler raises at that moment, such as Ctrl-C, would end the process (`_look_up_types_in_c`).

Compiled kernels are kept on disk (`kernel_folder.py` says where).  Numba notices when the file of a
kernel changes, but not when a kernel that it calls does, in another file; the old code would then
run on.  Therefore the kernels that depend on a changed file are discarded.

Processes that start together (joblib's workers, two test runs) need the same kernels at the same
time.  A lock file for each kernel lets one compile it and the others wait for the result.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, overload

from numba import config, njit
from numba.core import serialize

from fieldfit.numeric.kernel_folder import kernel_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["SharedCache", "discard_outdated_kernels", "kernel"]

#: Seconds to wait for a kernel that another process compiles; few take more than ten.
MAX_WAIT = 60.0

#: Folder of this package, and of its compiled kernels (``None``: they are not kept).
PACKAGE = Path(__file__).resolve().parent.parent
FOLDER = kernel_folder(PACKAGE, config.CACHE_DIR)

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
    cache = cache and FOLDER is not None
    compiled = njit(cache=cache, nogil=True, error_model="numpy", **options)

    def decorate(function: Any) -> Any:
        with _kept_in(FOLDER):
            dispatcher = compiled(function)
        if cache and fcntl is not None:
            dispatcher._cache = SharedCache(dispatcher._cache, function.__qualname__)
        return dispatcher

    return decorate if function is None else decorate(function)


@contextlib.contextmanager
def _kept_in(folder: Path | None) -> Iterator[None]:
    """Inside, Numba chooses this folder for the kernels that it is given."""
    before = config.CACHE_DIR
    config.CACHE_DIR = "" if folder in (PACKAGE, None) else str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


class SharedCache:
    """Numba's cache of one kernel, in which only one process compiles what is missing.

    Who finds nothing takes the lock and looks again: another process may have compiled meanwhile.
    The lock is given back when the result is saved, or the file is closed with the process.  Nobody
    waits for longer than `MAX_WAIT`: compiling twice is no error.
    """

    def __init__(self, cache: Any, name: str) -> None:
        self._cache = cache
        self._name = name
        self._locks: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._cache.load_overload(sig, target_context)
        if found is not None or str(sig) in self._locks:
            return found
        lock = _acquire(Path(self._cache.cache_path) / f"{self._name}.lock")
        found = self._cache.load_overload(sig, target_context)
        if found is None and lock is not None:
            self._locks[str(sig)] = lock
        elif lock is not None:
            _release(lock)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            self._cache.save_overload(sig, data)
        finally:
            lock = self._locks.pop(str(sig), None)
            if lock is not None:
                _release(lock)


def _acquire(path: Path) -> Any:
    """The lock file, open and locked; ``None`` if that is not possible here or takes too long."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError:
        return None
    end = time.monotonic() + MAX_WAIT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > end:
                file.close()
                return None
            time.sleep(0.02)
        except OSError:  # a file system without locks
            file.close()
            return None


def _release(lock: Any) -> None:
    fcntl.flock(lock, fcntl.LOCK_UN)  # first: a process that was forked meanwhile has it open too
    lock.close()


#: What kernels can use of another file: kernels, intrinsics and named tuples that it defines.
_COMPILED = re.compile(r"^(@kernel|@intrinsic|class \w+\(NamedTuple\))", re.MULTILINE)
#: An import at the top level of a module, in one line or in parentheses.
_IMPORT = re.compile(r"^from (\w+(?:\.\w+)*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_CONSTANT = re.compile(r"\b[A-Z_]*[A-Z][A-Z0-9_]*\b")


def discard_outdated_kernels(root: Path, folder: Path | None = None) -> None:
    """Remove compiled kernels of a package whose source, or what it depends on, has changed.

    They are in ``__pycache__`` beside their sources, or in another folder.
    """
    stamp = (folder or root / "__pycache__") / "kernels.json"
    with contextlib.suppress(OSError):  # the folder may be that of another user
        known = _read(stamp)
        touched = _touched(root)
        if known.get("touched") == touched:
            return
        digests = dict(kernel_digests(root))
        for name, digest in digests.items():
            if known.get(name) != digest:
                path = root / name
                # Numba makes a folder inside for each folder of sources
                place, inside = (folder, "*/") if folder else (path.parent / "__pycache__", "")
                for compiled in place.glob(f"{inside}{path.stem}.*.nb[ic]"):
                    compiled.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(json.dumps({"touched": touched, **digests}))


def _touched(root: Path) -> str:
    """Changes whenever a file is written or replaced; contents are read only then."""
    times = []
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".py"):
                found = os.stat(os.path.join(folder, name))
                times.append((name, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return hashlib.blake2b(repr(sorted(times)).encode(), digest_size=16).hexdigest()


def kernel_digests(root: Path) -> Iterator[tuple[str, str]]:
    """For each file with kernels a digest of all files that decide what they compile to."""
    sources = {path: path.read_bytes() for path in root.rglob("*.py")}
    texts = {path: source.decode() for path, source in sources.items()}
    has_kernels = {path: bool(_COMPILED.search(text)) for path, text in texts.items()}
    needs = {
        path: {
            other
            for module, names in _imports(text)
            if (other := _file_of(root, module)) in sources
            and (has_kernels[other] or _CONSTANT.search(names))
        }
        for path, text in texts.items()
    }
    # of the contents: installers do not agree on file times
    digest_of = {path: hashlib.blake2b(source).hexdigest() for path, source in sources.items()}
    for path in sorted(path for path, has in has_kernels.items() if has):
        closure, new = {path}, {path}
        while new:
            new = set().union(*(needs[one] for one in new)) - closure
            closure |= new
        digest = hashlib.blake2b(digest_size=16)
        for one in sorted(closure):
            digest.update(digest_of[one].encode())
        yield path.relative_to(root).as_posix(), digest.hexdigest()


def _imports(text: str) -> Iterator[tuple[str, str]]:
    for match in _IMPORT.finditer(text):
        yield match[1], match[2] or match[3]


def _file_of(root: Path, module: str) -> Path:
    return root.parent.joinpath(*module.split(".")).with_suffix(".py")


def _read(stamp: Path) -> dict[str, str]:
    try:
        known: dict[str, str] = json.loads(stamp.read_text())
    except (OSError, ValueError):
        return {}
    return known


def _look_up_types_in_c() -> None:
    """Let a signal never interrupt the return of an array from a kernel.

    For each array that a kernel returns, Numba calls a Python function which finds the array's
    type in a dictionary.  There Python looks for signals; the handler of Ctrl-C raises, Numba goes
    on with the null pointer that it gets instead of the type, and the process ends.  A cache around
    that function is in C: Python comes to see the signal when the kernel has returned.
    """
    lookup = getattr(serialize, "_numba_unpickle", None)
    if lookup is not None and not hasattr(lookup, "cache_info"):
        serialize._numba_unpickle = functools.lru_cache(maxsize=None)(lookup)


_look_up_types_in_c()
if FOLDER is not None:
    discard_outdated_kernels(PACKAGE, None if FOLDER == PACKAGE else FOLDER)
