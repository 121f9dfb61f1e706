"""Find Chromium, or install it from the system's packages where we are root: `make browser`.

    python .ci/chromium.py

Ends with status 0 if there is a browser in the end, and says which.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

#: As in `tests/report/test_browser.py`.
BINARIES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Package managers, what each needs first, and how it installs the browser.
MANAGERS = (
    ("apt-get", ("update",), ("install", "-y", "--no-install-recommends", "chromium")),
    ("dnf", (), ("install", "-y", "chromium")),
    ("apk", (), ("add", "chromium")),
)


def find() -> str | None:
    """The browser that tests would take."""
    given = os.environ.get("FIELDFIT_CHROMIUM")
    return given or next(filter(None, map(shutil.which, BINARIES)), None)


def install() -> None:
    """Ask the first package manager that there is."""
    for name, before, arguments in MANAGERS:
        if shutil.which(name) is None:
            continue
        quiet = {"stdout": subprocess.DEVNULL, "check": False}
        if subprocess.run([name, *arguments], **quiet).returncode and before:
            # lists of packages may be missing or old
            subprocess.run([name, *before], **quiet)
            subprocess.run([name, *arguments], **quiet)
        return


def main() -> int:
    """Find or install, and say what came of it."""
    if find() is None and hasattr(os, "geteuid") and os.geteuid() == 0:
        print("installing Chromium from the packages of the system")
        install()
    found = find()
    if found is None:
        print(
            "there is no Chromium, and it could not be installed: install the package "
            "'chromium', or name a binary by FIELDFIT_CHROMIUM",
            file=sys.stderr,
        )
        return 1
    print(f"Chromium: {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
