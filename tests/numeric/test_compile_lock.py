"""Processes that need the same kernel at once: one compiles, the others wait."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from fieldfit.numeric.compile import SharedCache, kernel

MODULE = """
from fieldfit.numeric.compile import kernel

@kernel
def total(values):
    result = 0.0
    for value in values:
        result += value
    return result
"""
PROGRAM = """
import numpy as np
from compiled_together import total

assert total(np.ones(3)) == 3.0
stats = total.stats
print(sum(stats.cache_misses.values()), sum(stats.cache_hits.values()))
"""


def test_one_of_three_processes_compiles(tmp_path):
    (tmp_path / "compiled_together.py").write_text(MODULE)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    counts = [tuple(map(int, process.communicate()[0].split())) for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert sorted(counts) == [(0, 1), (0, 1), (1, 0)]


def test_locks_are_given_back(tmp_path):
    sys.path.insert(0, str(tmp_path))
    (tmp_path / "compiled_alone.py").write_text(MODULE)
    try:
        from compiled_alone import total
    finally:
        sys.path.remove(str(tmp_path))
    assert isinstance(total._cache, SharedCache)
    assert total(np.ones(2)) == 2.0
    assert total._cache._locks == {}


def test_without_a_cache_there_is_no_lock():
    @kernel(cache=False)
    def same(x):
        return x

    assert not isinstance(same._cache, SharedCache)
