"""Ten thousand small graphs of different shapes in one call, as one disjoint union.

python examples/many_graphs.py
"""

import time

import numpy as np

import fieldfit as ff


def random_example(rng):
    """A chain of 5 to 20 variables with 3 labels and a few skip edges."""
    n = int(rng.integers(5, 21))
    chain = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    skips = np.sort(rng.integers(0, n, (3, 2)), axis=1)
    edges = np.concatenate([chain, skips[skips[:, 0] < skips[:, 1]]])
    graph = ff.FactorGraph.from_edges(n, edges, 3)
    unary = rng.normal(size=(n, 3))
    return graph, ff.Potentials(graph, unary, rng.normal(size=(len(edges), 3, 3)))


def main(n_examples=10_000):
    rng = np.random.default_rng(0)
    examples = [random_example(rng) for _ in range(n_examples)]
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

    # each example gets what it would get alone
    beliefs = batch.split(result.beliefs)
    worst = 0.0
    for m in range(0, n_examples, max(1, n_examples // 20)):
        alone = solver.run(*examples[m])
        if alone.converged and result.converged_examples[m]:
            gap = np.abs(alone.beliefs.unary_values - beliefs[m].unary_values).max()
            worst = max(worst, float(gap))
    print(f"largest difference from single runs: {worst:.1e}")
    return worst


if __name__ == "__main__":
    main()
