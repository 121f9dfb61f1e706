"""
Data larger than memory, and several machines
=============================================

Pictures are written to disk once and learned from shard by shard.  Dask's workers, or anything
else with ``submit``, may evaluate the shards; the weights are the same to the last bit.
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


# %%
# Write, fit, predict: the estimator takes shards wherever it takes lists.

folder = tempfile.TemporaryDirectory()
crf = ff.GridCRF("trw", l2=1.0)
shards = ff.shards.write(Path(folder.name, "shards"), crf, pictures(16), shard_size=2_000)
print(shards)
crf.fit(shards)
print(f"{crf.n_iter_} iterations, accuracy {crf.score(shards):.3f}")
crf.predict(shards).write(Path(folder.name, "labels"))
answers = list(ff.shards.read_answers(Path(folder.name, "labels")))
print(f"{len(answers)} pictures restored, one file for each shard")

# %%
# Threads of this process stand for a cluster here; ``LocalCluster(n_workers=2)`` makes processes.

try:
    from distributed import Client, LocalCluster
except ImportError:
    print("pip install 'fieldfit[dask]' for this part")
else:
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        there = ff.GridCRF("trw", l2=1.0).fit(shards, client=client)
    print("same weights, to the last bit:", np.array_equal(there.weights_, crf.weights_))

# %%
# Learning from shards is learning from the whole: the objective after each iteration.

import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.semilogy([row["gradient_norm"] for row in crf.trace_ if "gradient_norm" in row])
left.set(xlabel="iteration", ylabel="norm of the gradient")
x, y = next(pictures(1))
gap = np.full((12, 1), np.nan)
right.imshow(np.hstack([x, gap, answers[0], gap, y]), cmap="gray_r", vmin=0, vmax=1)
right.set(title="seen, restored, true", xticks=[], yticks=[])
folder.cleanup()
plt.show()
