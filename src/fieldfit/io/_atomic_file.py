"""Files that are replaced as a whole: at every moment there is the old content or the new.

The new content is written beside its place, flushed to the disk and then renamed.  What fails on
the way (a full disk, a folder that may not be written to) leaves the old file as it was, removes
the new one, and is said in one sentence (`FileWriteError`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fieldfit.errors import FileWriteError

__all__ = ["write_atomically"]


def write_atomically(path: str | os.PathLike[str], chunks: Iterable[bytes | memoryview]) -> None:
    """Replace a file as a whole: whoever looks finds the old content or the new, never a part.

    The new content is on the disk before it takes the name, so this holds for a power cut too.  A
    link stays a link.  What is no ordinary file, such as a pipe, is written to as it is.
    """
    try:
        target = Path(os.path.realpath(path))
        if _is_ordinary(target):
            _replace(target, chunks)
        else:
            with open(target, "wb") as file:
                file.writelines(chunks)
    except OSError as error:
        raise FileWriteError(
            f"{os.fspath(path)} could not be written: {error.strerror or error}"
        ) from error


def _is_ordinary(path: Path) -> bool:
    """Whether a path is that of an ordinary file, or free."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True


def _replace(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    # the name itself is on the disk only when its folder is; not every file system can say so
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
