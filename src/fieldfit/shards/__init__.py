"""Shards: data that stay on disk, summed by one process or by many, with the same bits.

    F(w) = sum over shards s of ( sum over parts p of s of F_p(w) ),   both sums in their order

`write` cuts an iterator of examples into files (`writing`), `Shards` opens the folder again
(`reading`, `manifest`).  `ShardProblem` (`shard_problem`) is the sum as a learner sees it.  A shard
is evaluated in a `Workplace`, which keeps warm starts in bounded memory and replays them where they
are lost; workplaces are in this process, or behind a client (`client_tasks`, `dask_homes`).
"""

from fieldfit._registry import exports

__all__, __getattr__, __dir__ = exports(__name__)
