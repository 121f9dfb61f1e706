"""Dask: the same bits, whatever happens to workers (`test_same_bits` has any number of them).

Workers are plain processes under a supervisor of our own (`worker_processes`), because the nannies
of a local cluster are not always there again after their worker was killed several times.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress

import numpy as np
import pytest
from fields import graphs, images
from worker_processes import MARKS, Supervisor, dask_cluster, dask_scheduler, mark, wait_until

import fieldfit as ff
from fieldfit.errors import InvalidInputError, WorkersLostError
from fieldfit.shards.dask_homes import DaskCrew, _Evaluation

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SIZE = 60
MAX_ITER = 6


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marks")
    yield folder
    assert not list(folder.iterdir()), "a marked moment was never met"


@pytest.fixture(scope="module")
def cluster(marks):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with dask_cluster(2, marks) as (client, supervisor):
            yield client, supervisor


@pytest.fixture
def client(cluster):
    """A client with two workers that live."""
    client, supervisor = cluster
    supervisor.is_restarting = True
    client.wait_for_workers(2, timeout=300)
    return client


def grid(objective="trw"):
    return ff.GridCRF(objective, l2=0.1, max_iter=MAX_ITER)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    X, Y = images(sizes=((3, 3), (4, 5), (3, 3), (4, 2), (5, 5), (3, 6), (4, 4)))
    examples = zip(X, Y, strict=True)
    found = ff.shards.write(tmp_path_factory.mktemp("data"), grid(), examples, shard_size=SIZE)
    assert len(found) >= 5
    return found


@pytest.fixture(scope="module")
def here(shards):
    """The fit in this process."""
    return grid().fit(shards)


def same_fit(first, second):
    np.testing.assert_array_equal(first.weights_, second.weights_)
    seen = [[row["objective"] for row in one.trace_] for one in (first, second)]
    assert seen[0] == seen[1]
    return True


# -- no faults ----------------------------------------------------------------------------


def test_workers_give_the_bits_of_one_process(client, shards, here, tmp_path):
    there = grid().fit(shards, client=client)
    assert same_fit(here, there)
    assert sum(row["replays"] for row in there.trace_) == 0  # shards stay at home
    assert there.trace_[-1]["workers"] == 2
    learner = ff.LBFGS(max_iter=MAX_ITER, checkpoint_every=2)
    crf = ff.GridCRF("trw", l2=0.1, learner=learner)
    there = crf.fit(shards, client=client, checkpoint=tmp_path / "there")
    here = ff.GridCRF("trw", l2=0.1, learner=learner).fit(shards, checkpoint=tmp_path / "here")
    assert same_fit(here, there)


def test_mini_batches_of_graphs(client, tmp_path):
    X, Y = graphs(count=6)
    made = ff.GraphCRF("cf-bethe", l2=0.1, max_iter=3, learner="adam")
    found = ff.shards.write(tmp_path / "shards", made, zip(X, Y, strict=True), shard_size=40)
    weights = made.fit(found).weights_
    np.testing.assert_array_equal(made.fit(found, client=client).weights_, weights)


# -- lost workers -------------------------------------------------------------------------


def test_killed_workers_change_no_bit(cluster, client, shards, here, marks):
    before = cluster[1].n_deaths
    mark(marks, 1, 3)
    mark(marks, 4, 5)
    there = grid().fit(shards, client=client)
    assert same_fit(here, there)
    assert sum(row["replays"] for row in there.trace_) > 0
    wait_until(lambda: cluster[1].n_deaths == before + 2)


def test_both_workers_killed_at_once(client, shards, here, marks):
    """Then Dask leaves tasks that are bound to one of them in the state "no-worker"."""
    mark(marks, 0, 2)
    mark(marks, 1, 2)
    assert same_fit(here, grid().fit(shards, client=client))


def test_killed_while_the_answer_is_on_its_way(client, shards, here, marks):
    """Then a future can be finished although its result is lost."""
    mark(marks, len(shards) - 1, 3, "kill-late")
    assert same_fit(here, grid().fit(shards, client=client))


def test_a_lost_result_is_given_up_quietly(cluster, client, caplog):
    """Dask would log an error about a future that nobody asks for any more."""
    future = client.submit(bytes, 10**7, pure=False)
    wait_until(lambda: future.status == "finished")
    evaluation = _Evaluation(
        DaskCrew(ff.shards.Workers(client), None, [1]), lambda request: request
    )
    cluster[1].is_restarting = False
    for place in range(2):
        cluster[1].kill(place)
    with suppress(TimeoutError):
        evaluation._gathered(future)
    future.cancel()
    wait_until(lambda: not client.scheduler_info()["workers"])
    for _ in range(3):  # what was left behind ends, and is collected
        client.sync(asyncio.sleep, 0.2)
        gc.collect()
    cluster[1].is_restarting = True
    assert "AllExit" not in caplog.text


def start_again(cluster):
    """New workers in place of those that hang."""
    client, supervisor = cluster
    before = set(client.scheduler_info()["workers"])
    for place in range(2):
        supervisor.kill(place)
    wait_until(lambda: not before & set(client.scheduler_info()["workers"]))
    client.wait_for_workers(2, timeout=300)


def test_a_worker_that_hangs_is_left_behind(cluster, client, shards, here, marks):
    grid().fit(shards, client=client)  # kernels are loaded, so that nothing else takes so long
    mark(marks, 2, 4, "hang")
    workers = ff.shards.Workers(client, task_seconds=15.0)
    assert same_fit(here, grid().fit(shards, client=workers))
    start_again(cluster)


def test_a_shard_that_takes_its_workers_along_is_named(client, shards, marks):
    mark(marks, 3, 1, times=3)  # the first time it is one of several
    workers = ff.shards.Workers(client, max_losses=2)
    with pytest.raises(WorkersLostError, match=r"2 workers were lost .* evaluated shard 3 alone"):
        grid().fit(shards, client=workers)


def test_unreadable_on_one_worker_is_tried_on_the_other(client, shards, here, marks):
    mark(marks, 0, 2, "unreadable")
    assert same_fit(here, grid().fit(shards, client=client))
    mark(marks, 0, 2, "unreadable", times=2)
    with pytest.raises(
        InvalidInputError, match="shard 0 must be readable by some worker, got from"
    ):
        grid().fit(shards, client=client)


def test_what_a_shard_raises_ends_the_fit_at_once(client, shards, marks):
    mark(marks, 1, 2, "refuse")
    with pytest.raises(
        InvalidInputError, match="shard 1: ValueError: the objective is not defined"
    ):
        grid().fit(shards, client=client)


def in_pieces(max_iter):
    """A fit that is made of several, with a checkpoint after every second iteration."""
    learner = ff.LBFGS(max_iter=max_iter, checkpoint_every=2)
    return ff.GridCRF("pseudolikelihood", l2=0.1, learner=learner)


def test_no_worker_is_waited_for_a_stated_time(cluster, client, shards, marks, tmp_path):
    expected = in_pieces(MAX_ITER).fit(shards, checkpoint=tmp_path / "expected")
    path = tmp_path / "checkpoint"
    in_pieces(3).fit(shards, checkpoint=path, client=client)
    cluster[1].is_restarting = False
    mark(marks, 0, 1)
    mark(marks, 1, 1)
    workers = ff.shards.Workers(client, absent_seconds=0.5)
    with pytest.raises(WorkersLostError, match=r"no worker has been there for 0\.5 seconds"):
        in_pieces(MAX_ITER).fit(shards, client=workers, checkpoint=path)
    cluster[1].is_restarting = True
    client.wait_for_workers(2, timeout=300)
    assert same_fit(expected, in_pieces(MAX_ITER).fit(shards, client=client, checkpoint=path))


def test_an_interrupt_ends_the_fit_as_in_one_process(cluster, client, shards, marks):
    mark(marks, 0, 4, "hang")

    def interrupt():
        wait_until(lambda: not list(marks.iterdir()))
        os.kill(os.getpid(), signal.SIGINT)

    # shells start programs in the background with interrupts ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        crf = grid().fit(shards, client=client)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "interrupted after" in crf.status_
    start_again(cluster)


def test_a_lost_scheduler_ends_the_fit_and_a_new_one_goes_on(
    cluster, client, shards, marks, tmp_path
):
    import dask
    from distributed import Client

    expected = in_pieces(MAX_ITER).fit(shards, checkpoint=tmp_path / "expected")
    path = tmp_path / "checkpoint"
    in_pieces(3).fit(shards, checkpoint=path)
    with (
        dask_scheduler(tmp_path) as (file, scheduler),
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        Client(scheduler_file=str(file), timeout=30) as other,
    ):
        supervisor = Supervisor(other.scheduler.address, 1, {MARKS: str(marks)})
        try:
            other.wait_for_workers(1, timeout=300)
            mark(marks, 0, 1, "hang")

            def lose():
                wait_until(lambda: not list(marks.iterdir()))
                scheduler.kill()

            threading.Thread(target=lose).start()
            with pytest.raises(WorkersLostError, match="connection to Dask's scheduler was lost"):
                in_pieces(MAX_ITER).fit(shards, client=other, checkpoint=path)
        finally:
            supervisor.stop()
    assert same_fit(expected, in_pieces(MAX_ITER).fit(shards, client=client, checkpoint=path))


# -- imports ------------------------------------------------------------------------------


def test_dask_is_not_imported_without_a_client(shards):
    program = (
        "import sys, warnings, fieldfit as ff\n"
        "warnings.simplefilter('ignore')\n"
        f"shards = ff.shards.Shards({str(shards.folder)!r})\n"
        "ff.GridCRF('pseudolikelihood', l2=0.1, max_iter=1).fit(shards)\n"
        "print('distributed' in sys.modules, 'dask' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["False", "False"]
