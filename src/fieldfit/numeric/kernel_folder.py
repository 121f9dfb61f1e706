"""Where compiled kernels are kept on disk.

Beside their sources, in ``__pycache__``, if that can be written to; otherwise, as in an
installation by an administrator, in the cache folder of the user (``~/.cache/fieldfit``).
``NUMBA_CACHE_DIR`` comes before both.  Where nothing can be written, kernels are compiled by every
process anew.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
from pathlib import Path

__all__ = ["kernel_folder"]

#: Has no handler of its own: warnings go to standard error, and are never errors.
LOGGER = logging.getLogger("fieldfit")


def kernel_folder(root: Path, given: str = "") -> Path | None:
    """The folder of the compiled kernels of a package.

    Parameters
    ----------
    root
        Folder of the package.  As the answer it means ``__pycache__`` beside each source.
    given
        The folder that the user wants.

    Returns
    -------
    The folder, or ``None`` if there is none that can be written to.
    """
    key = f"fieldfit-{hashlib.blake2b(os.fsencode(root), digest_size=8).hexdigest()}"
    if given and _is_writable(Path(given, key)):
        return Path(given, key)
    if _is_writable(root / "__pycache__"):
        return root
    base = _user_cache()
    if base is None:
        _say_there_is_none(root)
        return None
    folder = base / "fieldfit" / key
    is_new = not folder.is_dir()
    if not _is_writable(folder):
        _say_there_is_none(root)
        return None
    # once, when the folder is made: later processes only say it to those who ask
    level = logging.WARNING if is_new else logging.INFO
    LOGGER.log(level, "fieldfit: %s cannot be written to, compiled kernels go to %s", root, folder)
    return folder


def _say_there_is_none(root: Path) -> None:
    LOGGER.warning(
        "fieldfit: neither %s nor the user's cache folder can be written to, so every process "
        "compiles its kernels anew; NUMBA_CACHE_DIR may name a folder for them",
        root,
    )


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _user_cache() -> Path | None:
    """The folder for what programs keep for a user and can make again."""
    given = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    if given:
        return Path(given)
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home
        return None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache")
