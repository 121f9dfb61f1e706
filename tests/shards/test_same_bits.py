"""The same bits in memory, over shards, and with one, two and three workers of a local cluster."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from fields import graphs, images
from worker_processes import wait_until

import fieldfit as ff
from fieldfit.models import conditional
from fieldfit.models.chain import chain_crf
from fieldfit.models.pairwise import pairwise_mrf

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

#: Variables and edges of a shard, on disk and in memory.
SIZE = 40
#: Iterations, with a checkpoint after every second.
MAX_ITER = 5


@cache
def sequences():
    rng = np.random.default_rng(0)
    X = [[{"w": str(k)} for k in rng.integers(0, 6, length)] for length in (7, 3, 9, 8, 5, 10)]
    return X, [["AB"[int(token["w"]) % 2] for token in x] for x in X]


@cache
def pictures():
    return images(sizes=((3, 3), (3, 4), (4, 3), (2, 3), (3, 5), (3, 3)))


@cache
def samples():
    return np.random.default_rng(0).integers(0, 3, (40, 5))


CASES = {
    "ChainCRF-likelihood": lambda: (ff.ChainCRF("likelihood"), *sequences()),
    "GridCRF-trw": lambda: (ff.GridCRF("trw"), *pictures()),
    "GraphCRF-cf-bethe": lambda: (ff.GraphCRF("cf-bethe"), *graphs(count=12)),
    "GridCRF-procedural": lambda: (ff.GridCRF("procedural"), *pictures()),
    "PottsModel-pseudolikelihood": lambda: (ff.PottsModel("pseudolikelihood"), samples(), None),
}


@pytest.fixture(scope="module", autouse=True)
def small_shards():
    """Data in memory are cut as finely as the files."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (conditional, chain_crf, pairwise_mrf):
            patch.setattr(module, "SHARD_SIZE", SIZE)
        yield


@pytest.fixture(scope="module")
def cluster():
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as local,
        distributed.Client(local) as client,
    ):
        yield local, client


@pytest.fixture(scope="module", params=[1, 2, 3], ids="workers={}".format)
def client(request, cluster):
    """The same cluster, with more and more workers."""
    local, client = cluster
    local.scale(request.param)
    wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == request.param)
    return client


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Shards of each case, and fits in memory; each is made once."""

    @cache
    def shards(name):
        estimator, X, Y = CASES[name]()
        examples = X if Y is None else zip(X, Y, strict=True)
        found = ff.shards.write(
            tmp_path_factory.mktemp("shards"), estimator, examples, shard_size=SIZE
        )
        assert len(found) >= 3  # each worker has one
        return found

    @cache
    def in_memory(name, has_checkpoint):
        _, X, Y = CASES[name]()
        given = (X,) if Y is None else (X, Y)
        checkpoint = tmp_path_factory.mktemp("here") / "checkpoint" if has_checkpoint else None
        return estimator_of(name).fit(*given, checkpoint=checkpoint)

    return shards, in_memory


def estimator_of(name):
    learner = ff.LBFGS(max_iter=MAX_ITER, checkpoint_every=2)
    return CASES[name]()[0].set_params(l2=0.1, learner=learner)


def same_fit(first, second):
    np.testing.assert_array_equal(first.weights_, second.weights_)
    seen = [[row["objective"] for row in one.trace_] for one in (first, second)]
    assert seen[0] == seen[1]
    assert len(seen[0]) > 2
    return True


@pytest.mark.parametrize("has_checkpoint", [False, True], ids=["", "checkpoints"])
@pytest.mark.parametrize("name", CASES)
def test_shards_give_the_bits_of_memory(written, tmp_path, name, has_checkpoint):
    shards, in_memory = written
    checkpoint = tmp_path / "checkpoint" if has_checkpoint else None
    found = estimator_of(name).fit(shards(name), checkpoint=checkpoint)
    assert same_fit(in_memory(name, has_checkpoint), found)


@pytest.mark.parametrize("has_checkpoint", [False, True], ids=["", "checkpoints"])
@pytest.mark.parametrize("name", CASES)
def test_workers_give_the_bits_of_memory(client, written, tmp_path, name, has_checkpoint):
    shards, in_memory = written
    checkpoint = tmp_path / "checkpoint" if has_checkpoint else None
    found = estimator_of(name).fit(shards(name), client=client, checkpoint=checkpoint)
    assert same_fit(in_memory(name, has_checkpoint), found)
    assert found.trace_[-1]["workers"] == len(client.scheduler_info(n_workers=-1)["workers"])


def test_checkpoints_reset_messages(written):
    """So the two kinds of fits are really different where there are messages."""
    _, in_memory = written
    name = "GridCRF-trw"
    assert not np.array_equal(in_memory(name, True).weights_, in_memory(name, False).weights_)
