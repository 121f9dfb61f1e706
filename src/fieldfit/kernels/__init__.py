"""Numba kernels on plain arrays; no classes, no validation.

Compiled kernels are cached on disk beside their sources.  Numba notices when the file of a kernel
changes, but not when a kernel that it calls does, in another file; the old code would then run on.
So a change of any file in this folder discards all of the folder's compiled kernels.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path


def discard_outdated_kernels(folder: Path) -> None:
    """Remove the compiled kernels of a folder if any of its sources has changed since."""
    digest = hashlib.blake2b()  # of the contents: installers do not agree on file times
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    stamp = folder / "__pycache__" / "kernels.stamp"
    with contextlib.suppress(OSError):  # a read-only installation never changes
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        for pattern in ("*.nbi", "*.nbc"):
            for compiled in stamp.parent.glob(pattern):
                compiled.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest.hexdigest())


discard_outdated_kernels(Path(__file__).parent)
