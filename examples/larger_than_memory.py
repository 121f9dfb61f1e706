"""Pictures that stay on disk: written once, learned from shard by shard, here and by Dask.

python examples/larger_than_memory.py
"""

import tempfile
from pathlib import Path

import numpy as np

import fieldfit as ff


def pictures(n_pictures):
    """Noisy stripes, made one by one: they are never all in memory."""
    rng = np.random.default_rng(0)
    for _ in range(n_pictures):
        y = np.repeat(rng.integers(0, 2, size=(12, 1)), 12, axis=1)
        yield y + 0.8 * rng.normal(size=y.shape), y


def main(n_pictures=24):
    with tempfile.TemporaryDirectory() as root:
        crf = ff.GridCRF("trw", l2=0.1)
        shards = ff.shards.write(Path(root) / "shards", crf, pictures(n_pictures), shard_size=2_000)
        print(shards)
        crf.fit(shards)
        print(f"{crf.n_iter_} iterations, accuracy {crf.score(shards):.3f}")
        crf.predict(shards).write(Path(root) / "labels")
        restored = sum(1 for _ in ff.shards.read_answers(Path(root) / "labels"))
        print(f"{restored} pictures restored, one file for each shard")

        try:
            from distributed import Client, LocalCluster
        except ImportError:
            print("pip install 'fieldfit[dask]' for the second half")
            return
        # threads of this process, to be quick; LocalCluster(n_workers=2) makes processes
        with (
            LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            there = ff.GridCRF("trw", l2=0.1).fit(shards, client=client)
        print("same weights, to the last bit:", np.array_equal(there.weights_, crf.weights_))


if __name__ == "__main__":
    main()
