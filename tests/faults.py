"""Disks that fill up and folders that may not be written to."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from fieldfit.io import _atomic_file

#: Why a test with a real folder is left out for the user whom permissions do not bind.
needs_permissions = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind this user"
)


class _FullDisk:
    """A file that takes so many bytes and no more."""

    def __init__(self, file, n_bytes):
        self.file, self.n_bytes = file, n_bytes

    def write(self, chunk):
        chunk = memoryview(chunk).cast("B")
        taken, self.n_bytes = self.file.write(chunk[: self.n_bytes]), self.n_bytes - len(chunk)
        if self.n_bytes < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return taken

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


@contextmanager
def full_disk(n_bytes=50):
    """Inside, no file that is replaced as a whole takes more bytes than these."""

    def open_full(path, mode):
        return _FullDisk(Path(path).open(mode), n_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_atomic_file, "open", open_full, raising=False)
        yield


@contextmanager
def failing(function):
    """Inside, a function of `os` says that the disk is full."""

    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, function, fail)
        yield


@contextmanager
def limited_file_size(n_bytes=50):
    """Inside, the system itself refuses to let files grow beyond these bytes."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
