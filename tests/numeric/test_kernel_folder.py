"""Compiled kernels of an installation that cannot be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fieldfit as ff

PROGRAM = """
import numpy as np
from fieldfit.numeric.heap import sift_down_probe as probe

assert probe(np.arange(3.0)) == 3.0
print(sum(probe.stats.cache_misses.values()), sum(probe.stats.cache_hits.values()))
"""
#: A kernel that is compiled in no time, and one in another file that it uses.
PROBE = """

from fieldfit.numeric.random_numbers import probe_total

@kernel
def sift_down_probe(values):
    return probe_total(values)
"""
TOTAL = """

@kernel
def probe_total(values):
    return values.sum() + 0.0
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the sources; where ``__pycache__`` is a file, nobody can write to the folder."""
    root = tmp_path / "site" / "fieldfit"
    shutil.copytree(
        Path(ff.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__", "demo")
    )
    for name, text in (("heap.py", PROBE), ("random_numbers.py", TOTAL)):
        with (root / "numeric" / name).open("a") as file:
            file.write(text)
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("")
    return root


def run(package, **environment):
    """Misses and hits of the cache, and what was said."""
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env={**kept, "PYTHONPATH": str(package.parent), **environment},
        cwd=package.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return tuple(map(int, done.stdout.split())), done.stderr.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="sets the cache folder as on Unix")
def test_kernels_go_to_the_cache_folder_of_the_user(package, tmp_path):
    user = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    counts, said = run(package, **user)
    assert counts == (1, 0)
    assert len(said) == 1  # once, in a sentence that names both places
    assert f"{package} cannot be written to" in said[0]
    assert str(tmp_path / "cache" / "fieldfit") in said[0]
    assert run(package, **user) == ((0, 1), [])
    # what a kernel uses of another file has changed, while its own file has not
    source = package / "numeric" / "random_numbers.py"
    source.write_text(source.read_text() + "# changed\n")
    assert run(package, **user) == ((1, 0), [])


@pytest.mark.skipif(sys.platform == "win32", reason="sets the cache folder as on Unix")
def test_without_any_folder_everything_works_and_one_line_says_so(package, tmp_path):
    (tmp_path / "cache").write_text("")
    counts, said = run(package, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert counts == (1, 0)
    assert len(said) == 1
    assert "every process compiles its kernels anew" in said[0]


def test_a_folder_of_the_users_choice_comes_first(package, tmp_path):
    chosen = {"NUMBA_CACHE_DIR": str(tmp_path / "chosen")}
    assert run(package, **chosen) == ((1, 0), [])
    assert run(package, **chosen) == ((0, 1), [])
    assert list((tmp_path / "chosen").glob("fieldfit-*/*/*.nbi"))
