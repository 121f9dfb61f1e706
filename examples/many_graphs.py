"""
Thousands of small graphs in one call
=====================================

Graphs of different shapes become one disjoint union, so that a single call serves them all; each
gets what it would get alone.
"""

import time

import numpy as np

import fieldfit as ff

N_EXAMPLES = 3_000


def random_example(rng):
    """A chain of 5 to 20 variables with 3 labels and a few skip edges."""
    n = int(rng.integers(5, 21))
    chain = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    skips = np.sort(rng.integers(0, n, (3, 2)), axis=1)
    edges = np.concatenate([chain, skips[skips[:, 0] < skips[:, 1]]])
    graph = ff.FactorGraph.from_edges(n, edges, 3)
    unary = rng.normal(size=(n, 3))
    return graph, ff.Potentials(graph, unary, rng.normal(size=(len(edges), 3, 3)))


# %%
# Pack, run, split.

rng = np.random.default_rng(0)
examples = [random_example(rng) for _ in range(N_EXAMPLES)]
batch = ff.graph.Batch.of([graph for graph, _ in examples])
potentials = batch.pack([potentials for _, potentials in examples])
solver = ff.SumProduct()
solver.run(*examples[0])  # so that the time below does not include compilation

begin = time.perf_counter()
result = solver.run_batch(batch, potentials)
seconds = time.perf_counter() - begin
print(f"{batch.n_examples} graphs, {batch.graph.n_variables} variables: {seconds:.2f} s")
print(result.status)
print(f"converged: {result.converged_examples.mean():.1%} of the examples")

beliefs = batch.split(result.beliefs)
worst = 0.0
for m in range(0, N_EXAMPLES, N_EXAMPLES // 20):
    alone = solver.run(*examples[m])
    if alone.converged and result.converged_examples[m]:
        gap = np.abs(alone.beliefs.unary_values - beliefs[m].unary_values).max()
        worst = max(worst, float(gap))
print(f"largest difference from single runs: {worst:.1e}")

# %%
# The approximate marginals beside exact ones, for a hundred of the graphs.

import matplotlib.pyplot as plt

exact = [ff.Exact().run(*example).beliefs.unary_values for example in examples[:100]]
found = [part.unary_values for part in beliefs[:100]]
figure, axis = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
axis.plot([0, 1], [0, 1], color="gray", linewidth=1)
axis.plot(np.concatenate(exact), np.concatenate(found), ".", markersize=2)
axis.set(xlabel="exact marginal", ylabel="belief propagation")
plt.show()
