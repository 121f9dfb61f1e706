"""
Contacts from aligned sequences: a Potts model
==============================================

Columns of a sequence family that touch change together; so do columns that are linked by a third
one.  Couplings of a Potts model tell direct from indirect, mutual information does not.
"""

import numpy as np

import fieldfit as ff

N_COLUMNS, N_LABELS, N_SEQUENCES = 24, 5, 2000

# %%
# A simulated family: three chains of eight columns, whose neighbours prefer some pairs of
# letters.

rng = np.random.default_rng(0)
order = rng.permutation(N_COLUMNS).reshape(3, 8)
edges = np.concatenate([np.stack([row[:-1], row[1:]], axis=1) for row in order])
graph = ff.FactorGraph.from_edges(N_COLUMNS, edges, N_LABELS)
tables = np.array([np.eye(N_LABELS)[rng.permutation(N_LABELS)] for _ in edges])
tables *= rng.uniform(0.8, 4.0, (len(edges), 1, 1))
gibbs = ff.Gibbs(n_chains=100, burn_in=300, random_state=rng)
labels = gibbs.sample(graph, ff.Potentials(graph, factors=tables), N_SEQUENCES, n_sweeps_between=20)


# %%
# Scores of all pairs of columns, by both methods.


def mutual_information(labels):
    """Between all pairs of columns."""
    chosen = (labels[:, :, None] == np.arange(N_LABELS)).reshape(len(labels), -1).astype(float)
    pairs = (chosen.T @ chosen / len(labels)).reshape(N_COLUMNS, N_LABELS, N_COLUMNS, N_LABELS)
    single = np.einsum("ikik->ik", pairs)
    ratio = pairs / np.einsum("ik,jl->ikjl", single, single)
    return np.einsum("ikjl,ikjl->ij", pairs, np.log(np.maximum(ratio, 1e-12)))


def found(scores):
    """Share of true contacts among as many best pairs as there are contacts."""
    rows, columns = np.triu_indices(N_COLUMNS, 1)
    best = np.argsort(-scores[rows, columns])[: len(edges)]
    true = {frozenset(edge) for edge in edges.tolist()}
    return np.mean([frozenset((int(rows[k]), int(columns[k]))) in true for k in best])


model = ff.PottsModel(l2=20.0).fit(labels)
scores = {"couplings": model.contact_scores(), "mutual information": mutual_information(labels)}
shares = {name: found(values) for name, values in scores.items()}
for name, share in shares.items():
    print(f"{name:<20} {100 * share:.0f} % of the contacts")

# %%
# Rings are the true contacts.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for axis, (name, values) in zip(axes, scores.items(), strict=True):
    shown = values - np.diag(np.diag(values))
    axis.imshow(shown, cmap="Blues", vmax=np.quantile(shown, 0.97))
    axis.plot(*np.concatenate([edges, edges[:, ::-1]]).T, "o", mfc="none", mec="C3", ms=7)
    axis.set(title=f"{name}: {shares[name]:.0%} found", xlabel="column", ylabel="column")
plt.show()
