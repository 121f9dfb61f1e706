"""Dask workers as plain processes that are started again when they die, and tasks that kill them.

A task kills its own process the first time that it meets a marked (shard, evaluation), so the
moment does not depend on the clock.  Marks are files: whoever removes one first dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

#: Name of the variable that tells workers where marks are.
MARKS = "FIELDFIT_TEST_MARKS"
SOURCES = Path(__file__).parents[1]


def mark(folder: Path, shard: int, evaluation: int, action: str = "kill", times: int = 1) -> None:
    """Let whoever evaluates this do something, so many times."""
    for time_ in range(times):
        (folder / f"{action}-{shard}-{evaluation}-{time_}").touch()


def meet(action: str, shard: int, evaluation: int) -> bool:
    """Whether this is a marked moment; each mark is met once."""
    for path in Path(os.environ.get(MARKS, "/nowhere")).glob(f"{action}-{shard}-{evaluation}-*"):
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        return True
    return False


class Supervisor:
    """Keeps a number of workers alive, as a cluster's own supervisor would."""

    def __init__(self, address: str, count: int, environment: dict[str, str]) -> None:
        self._command = [
            *(sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_worker", address),
            *("--no-nanny", "--nthreads", "1", "--no-dashboard"),
            *("--preload", str(Path(__file__).with_name("worker_faults.py"))),
            *("--death-timeout", "300"),
        ]
        self._environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment}
        self.is_restarting = True
        self.n_deaths = 0
        self._processes = [self._start() for _ in range(count)]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _start(self) -> subprocess.Popen:
        return subprocess.Popen(
            self._command, env=self._environment, cwd=SOURCES,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            for place, process in enumerate(self._processes):
                if process.poll() is not None and self.is_restarting:
                    self.n_deaths += 1
                    self._processes[place] = self._start()

    def kill(self, place: int) -> None:
        self._processes[place].send_signal(signal.SIGKILL)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def dask_scheduler(folder: Path):
    """A scheduler in a process of its own: ``(file that names its address, process)``.

    Not a `LocalCluster`, whose watch over its own workers can trip over workers of others that
    leave before it has heard of them (a `KeyError` when it is closed).
    """
    file = folder / "scheduler.json"
    command = [
        *(sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_scheduler"),
        *("--no-show", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"),
        *("--scheduler-file", str(file)),
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **quiet)
    try:
        wait_until(lambda: file.exists() or process.poll() is not None)
        assert process.poll() is None, "Dask's scheduler did not start"
        yield file, process
    finally:
        process.kill()
        process.wait()


@contextmanager
def dask_cluster(count: int, marks: Path | None = None):
    """A scheduler, supervised workers, and a client: ``(client, supervisor)``."""
    from distributed import Client

    with (
        tempfile.TemporaryDirectory() as folder,
        dask_scheduler(Path(folder)) as (file, _),
        Client(scheduler_file=str(file), timeout=300) as client,
    ):
        environment = {} if marks is None else {MARKS: str(marks)}
        supervisor = Supervisor(client.scheduler.address, count, environment)
        try:
            client.wait_for_workers(count, timeout=300)
            yield client, supervisor
        finally:
            supervisor.stop()


def wait_until(condition, seconds: float = 300.0) -> None:
    """Wait for something that other processes do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)
