"""The skeletons of CONTRIBUTING.md: each copied into the package, registered, held to the laws."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fieldfit as ff

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(ff.__file__).parent
SKELETON = re.compile(r"^```python skeleton=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Where the table of the registry ends.
END = "\n]\n\n#: All public objects"
LINE = re.compile(r"Registry: `(.*?),?`")
#: Which tests of the laws each skeleton is held to, by the class that it defines.
TESTS = {
    "ToyInference": ("test_laws.py", "src/fieldfit/inference/toy_inference.py"),
    "ToySearch": ("test_laws.py",),
    "ToyEntropy": ("test_laws.py",),
    "ToyObjective": ("test_gradients.py",),
}

pytestmark = pytest.mark.skipif(
    not (ROOT / "CONTRIBUTING.md").exists(), reason="the package is tested without its repository"
)


def skeletons():
    """Path, code and registry line of each skeleton."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found, lines = SKELETON.findall(text), LINE.findall(text)
    assert len(found) == len(lines) == len(TESTS)
    return [(path, code, line) for (path, code), line in zip(found, lines, strict=True)]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package with one file and one line more for each skeleton."""
    folder = tmp_path_factory.mktemp("skeletons") / "src" / "fieldfit"
    shutil.copytree(SOURCE, folder)  # with compiled kernels: times of files are kept
    registry = folder / "_registry.py"
    for path, code, line in skeletons():
        (folder / path).write_text(code)
        text = registry.read_text()
        assert text.count(END) == 1
        registry.write_text(
            text.replace(
                "\n]\n\n#: All public objects", f"\n    {line},\n]\n\n#: All public objects"
            )
        )
    return folder.parent


def run(package, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-q",
         "-p", "no:cacheprovider", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=1800,
        env={**os.environ, "PYTHONPATH": str(package)},
    )  # fmt: skip


@pytest.mark.parametrize("name", TESTS)
def test_one_file_and_one_line_are_enough(package, name):
    for file in TESTS[name]:
        path = package.parent / file if file.startswith("src") else ROOT / "tests" / file
        found = run(package, str(path), *(() if file.startswith("src") else ("-k", name)))
        assert found.returncode == 0, found.stdout[-3000:]
        assert re.search(r"\b[1-9]\d* passed", found.stdout), found.stdout


def test_skeletons_keep_the_style(tmp_path):
    pytest.importorskip("ruff")
    for path, code, _ in skeletons():
        file = tmp_path / Path(path).name
        file.write_text(code)
        found = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--config", ROOT / "pyproject.toml", file],
            capture_output=True, text=True,
        )  # fmt: skip
        assert found.returncode == 0, found.stdout
