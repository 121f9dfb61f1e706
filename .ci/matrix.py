"""Run a short selection of the tests with the oldest and newest versions allowed: `make matrix`.

    python .ci/matrix.py [--keep FOLDER] [--only WORDS] [--write PAGE] [ARGUMENT OF PYTEST ...]

For each Python from 3.11 on that is found, an environment with the newest versions of all
dependencies; for the oldest of them also one with the lower bounds of ``pyproject.toml``, exactly.
The package is built and installed as a user would have it, so kernels are compiled afresh.  Prints
a table; what is missing on this machine is said.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MINORS = (11, 12, 13, 14)
SELECTION = ["tests/test_smoke.py"]
#: What the selection needs besides the package.
TOOLS = ("pytest", "hypothesis")
#: Shown in the table.
SHOWN = ("numpy", "scipy", "numba", "scikit-learn", "safetensors", "tqdm")


@dataclass(frozen=True)
class Environment:
    """A Python, and versions that are asked for."""

    python: str
    minor: int
    kind: str
    requirements: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"3.{self.minor}, {self.kind}"


def lower_bounds() -> tuple[str, ...]:
    """``name==version`` for every ``name>=version`` of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", entry) for entry in project["dependencies"]]
    return tuple(f"{match[1]}=={match[2]}" for match in found if match)


def pythons() -> dict[int, str]:
    """Minor version -> program, on the path or among those of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = {}
    for minor in MINORS:
        named = [shutil.which(f"python3.{minor}")]
        named += [str(path) for path in sorted(versions.glob(f"3.{minor}.*/bin/python"))]
        for program in filter(None, named):
            question = [program, "-c", "import sys, venv; print(sys.version_info[1])"]
            answer = subprocess.run(question, capture_output=True, text=True)
            if answer.returncode == 0 and int(answer.stdout) == minor:
                found[minor] = program
                break
    return found


def environments() -> list[Environment]:
    """What can be tried here."""
    found = pythons()
    if not found:
        raise SystemExit("no Python that the package allows was found")
    oldest = min(found)
    return [
        Environment(found[oldest], oldest, "oldest", lower_bounds()),
        *(Environment(program, minor, "newest", ()) for minor, program in found.items()),
    ]


def run(environment: Environment, folder: Path, arguments: list[str]) -> tuple[str, str]:
    """Versions that were installed, and how it ended."""
    log = folder / "log.txt"
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = [*(environment.requirements or ("--upgrade",)), *TOOLS, str(ROOT)]
    steps = {
        "no environment": [environment.python, "-m", "venv", str(folder)],
        "not installed": [*install, "--prefer-binary", *wanted],
        "failed": [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
    }
    begin = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        for failure, command in steps.items():
            settings = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
            done = subprocess.run(
                command, cwd=ROOT, env=settings, stdout=file, stderr=subprocess.STDOUT
            )
            if done.returncode:
                lines = log.read_text().strip().splitlines()
                print("\n".join(lines[-15:]))
                return installed(python), failure
    return installed(python), f"passed in {time.monotonic() - begin:.0f} s"


def installed(python: str) -> str:
    """Versions of what is shown."""
    program = (
        "from importlib.metadata import version; "
        f"print(*(f'{{n}} {{version(n)}}' for n in {SHOWN}), sep=', ')"
    )
    answer = subprocess.run([python, "-c", program], capture_output=True, text=True)
    return answer.stdout.strip() or "nothing"


def main() -> int:
    """Run all environments; 1 if any did not pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="keep environments in this folder")
    parser.add_argument("--only", default="", help="environments whose name has these words")
    parser.add_argument("--write", type=Path, help="page with a section 'matrix'")
    options, arguments = parser.parse_known_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        base = options.keep.resolve() if options.keep else Path(temporary)
        for one in environments():
            if options.only in one.name:
                print(f"Python {one.name} ...", flush=True)
                folder = base / one.name.replace(", ", "-")
                rows.append((one.name, *run(one, folder, arguments or SELECTION)))
    lines = ["| Python | versions | result |", "|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    missing = [f"3.{minor}" for minor in MINORS if minor not in pythons()]
    if missing:
        lines += ["", f"Not on the machine: Python {' and '.join(missing)}."]
    print("", *lines, sep="\n")
    if options.write:
        sys.path.insert(0, str(ROOT))
        from benchmarks.pages import replace_section, stamp

        replace_section(options.write, "matrix", [stamp("make matrix"), "", *lines])
    return int(any("passed" not in row[-1] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
