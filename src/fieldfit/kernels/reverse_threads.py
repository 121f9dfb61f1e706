"""Recorded sweeps and the way back in threads: chunks of one level, same numbers bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fieldfit.kernels.recorded_sweeps import record_sweep, reverse_sweep

def sweep_kernels(n_jobs: int | None) -> tuple[Callable[..., int], Callable[..., None]]:
    return record_sweep, reverse_sweep
