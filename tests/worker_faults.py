"""Loaded by workers under test: faults at marked evaluations of shards."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from worker_processes import meet

from fieldfit.shards import workplace

#: Dask loads this file twice.
evaluate = getattr(workplace, "evaluate_without_faults", workplace.Workplace.evaluate)
workplace.evaluate_without_faults = evaluate


def evaluate_with_faults(self, request):
    moment = (request.shard, request.serial)
    if meet("kill", *moment):
        os.kill(os.getpid(), signal.SIGKILL)
    if meet("hang", *moment):
        time.sleep(600)
    if meet("unreadable", *moment):
        raise OSError("the disk of this worker is gone")
    if meet("refuse", *moment):
        raise ValueError("the objective is not defined here")
    if meet("kill-late", *moment):  # the answer is complete, and on its way
        import threading

        threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    return evaluate(self, request)


workplace.Workplace.evaluate = evaluate_with_faults
