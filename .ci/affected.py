"""Run the tests of the families that a change touches: `make check`.

    python .ci/affected.py [--base REV] [ARGUMENT OF PYTEST ...]

What counts as changed: everything since REV (default: the last commit), files that git does not
track yet included.  The tests of ``src/fieldfit/a/b/file.py`` are in ``tests/a/b``, or above if
there is no such folder.  The whole suite is `make test`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
#: Layers, names, stubs and compilation concern every change; they take seconds.
ALWAYS = TESTS / "test_package.py"
NOT_ALWAYS = "not compile_nothing"


def changed(base: str) -> list[str]:
    """Files that differ from a revision, and new ones."""
    commands = (
        ["git", "diff", "--name-only", base],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    found = [
        subprocess.run(c, cwd=ROOT, capture_output=True, text=True, check=True) for c in commands
    ]
    return sorted({line for one in found for line in one.stdout.splitlines()})


def tests_of(name: str) -> Path | None:
    """The tests of one file; ``None`` where there are none of its own."""
    parts = Path(name).parts
    if parts[0] == "tests":
        return ROOT / name if Path(name).name.startswith("test_") else None
    if parts[0] == "experiments":
        return TESTS / "experiments"
    if name.endswith(".md") or parts[0] in ("docs", "examples"):
        return TESTS / "test_docs.py"
    if parts[:2] != ("src", "fieldfit"):
        return None
    folder = TESTS.joinpath(*parts[2:-1])
    while folder != TESTS and not folder.is_dir():
        folder = folder.parent
    return None if folder == TESTS else folder


def main() -> int:
    """Find the tests and run them in two processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="HEAD", help="compare with this revision")
    args, more = parser.parse_known_args()
    files = changed(args.base)
    targets = {path for name in files if (path := tests_of(name)) is not None and path.exists()}
    chosen = [str(path.relative_to(ROOT)) for path in sorted({*targets, ALWAYS})]
    print(f"{len(files)} files changed; tests: {' '.join(chosen)}")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    return subprocess.run([*command, "-k", NOT_ALWAYS, *chosen, *more], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
