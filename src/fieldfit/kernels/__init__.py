"""Numba kernels on plain arrays; no classes, no validation.

Compiled kernels are cached on disk beside their sources.  Numba notices when the file of a kernel
changes, but not when a kernel that it calls does, in another file; the old code would then run on.
So a change of any file in this folder discards all of the folder's compiled kernels.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


def _discard_outdated_kernels() -> None:
    folder = Path(__file__).parent
    newest = max(path.stat().st_mtime_ns for path in folder.glob("*.py"))
    stamp = folder / "__pycache__" / "kernels.stamp"
    with contextlib.suppress(OSError):  # a read-only installation never changes
        if stamp.exists() and stamp.read_text() == str(newest):
            return
        for pattern in ("*.nbi", "*.nbc"):
            for compiled in stamp.parent.glob(pattern):
                compiled.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(str(newest))


_discard_outdated_kernels()
