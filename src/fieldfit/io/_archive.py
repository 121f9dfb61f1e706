"""Archives of arrays (``.npz``), of which anything may be damaged."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fieldfit.errors import FileFormatError

__all__ = ["opened_archive"]

#: A RuntimeError says that the archive is encrypted, or of a later version than any.
_DAMAGES = (
    *(ValueError, OSError, EOFError, KeyError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


@contextmanager
def opened_archive(name: str, data: bytes) -> Iterator[Any]:
    """The archive of NumPy with this content; what is wrong with it is said in one sentence."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            yield archive
    except FileFormatError:
        raise
    except _DAMAGES as error:
        raise FileFormatError(
            f"{name}: the file is not a complete .npz archive of numbers ({error})"
        ) from error
