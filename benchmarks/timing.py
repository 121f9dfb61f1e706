"""Timing: CPU seconds of this process, the least of several interleaved repeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best_of(functions: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """Least CPU seconds of each function; repeats interleaved, so that load hits all alike."""
    least = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()  # compile, warm the caches
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.process_time()
            function()
            least[name] = min(least[name], time.process_time() - start)
    return least


def best_wall(functions: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """Least wall-clock seconds, for what runs in threads."""
    least = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            least[name] = min(least[name], time.perf_counter() - start)
    return least
