"""
Bounds on log Z from above and below
====================================

Mean field is below the true log-partition, tree-reweighting above it, at every coupling; belief
propagation is an estimate without a side.  The grid is small enough for the exact value.
"""

import matplotlib.pyplot as plt
import numpy as np

import fieldfit as ff

SIDE = 10
METHODS = {
    "tree-reweighted, optimised": ff.SumProduct(entropy=ff.TreeReweighted(rho="optimized")),
    "tree-reweighted": ff.SumProduct(entropy=ff.TreeReweighted()),
    "belief propagation": ff.SumProduct(),
    "mean field": ff.MeanField(n_restarts=5, random_state=0),
}

# %%
# Spins on a grid, with couplings of both signs that grow from 0 to 2.

rng = np.random.default_rng(0)
graph = ff.FactorGraph.grid(SIDE, SIDE, 2)
spin = np.array([-1.0, 1.0])
field = rng.uniform(-0.5, 0.5, (graph.n_variables, 1)) * spin
signs = rng.uniform(-1.0, 1.0, (graph.n_factors, 1, 1)) * np.outer(spin, spin)
couplings = np.linspace(0.0, 2.0, 9)
errors = {name: [] for name in METHODS}
for coupling in couplings:
    potentials = ff.Potentials(graph, field, coupling * signs)
    exact = ff.Exact().run(graph, potentials).log_partition
    for name, method in METHODS.items():
        result = method.run(graph, potentials)
        assert result.bound != "upper" or result.log_partition >= exact - 1e-6
        assert result.bound != "lower" or result.log_partition <= exact + 1e-6
        errors[name].append((result.log_partition - exact) / graph.n_variables)

# %%

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
axis.axhline(0.0, color="gray", linewidth=1)
for name, values in errors.items():
    axis.plot(couplings, values, marker="o", markersize=3, label=name)
    print(f"{name:<28} error at coupling 2: {values[-1]:+.4f} per variable")
axis.set(xlabel="largest coupling", ylabel="error of log Z per variable")
axis.legend(frameon=False)
plt.show()
