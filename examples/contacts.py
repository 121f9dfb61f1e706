"""Which columns of a sequence family touch: a Potts model against plain mutual information.

python examples/contacts.py

The family is simulated from chains of touching columns, where columns that do not touch are
correlated as well: couplings tell direct from indirect.
"""

import numpy as np

import fieldfit as ff

N_COLUMNS, N_LABELS, N_SEQUENCES = 24, 5, 2000


def simulated_family(rng):
    """Three chains of eight columns; neighbours prefer some pairs of letters, more or less."""
    order = rng.permutation(N_COLUMNS).reshape(3, 8)
    edges = np.concatenate([np.stack([row[:-1], row[1:]], axis=1) for row in order])
    graph = ff.FactorGraph.from_edges(N_COLUMNS, edges, N_LABELS)
    tables = np.array([np.eye(N_LABELS)[rng.permutation(N_LABELS)] for _ in edges])
    tables *= rng.uniform(0.8, 4.0, (len(edges), 1, 1))
    potentials = ff.Potentials(graph, factors=tables)
    gibbs = ff.Gibbs(n_chains=100, burn_in=300, random_state=rng)
    return gibbs.sample(graph, potentials, N_SEQUENCES, n_sweeps_between=20), edges


def mutual_information(labels):
    """Between all pairs of columns."""
    chosen = (labels[:, :, None] == np.arange(N_LABELS)).reshape(len(labels), -1).astype(float)
    pairs = (chosen.T @ chosen / len(labels)).reshape(N_COLUMNS, N_LABELS, N_COLUMNS, N_LABELS)
    single = np.einsum("ikik->ik", pairs)
    ratio = pairs / np.einsum("ik,jl->ikjl", single, single)
    return np.einsum("ikjl,ikjl->ij", pairs, np.log(np.maximum(ratio, 1e-12)))


def found(scores, edges):
    """Share of true contacts among as many best pairs as there are contacts."""
    rows, columns = np.triu_indices(N_COLUMNS, 1)
    best = np.argsort(-scores[rows, columns])[: len(edges)]
    true = {frozenset(edge) for edge in edges.tolist()}
    return np.mean([frozenset((int(rows[k]), int(columns[k]))) in true for k in best])


def main():
    labels, edges = simulated_family(np.random.default_rng(0))
    model = ff.PottsModel(l2=20.0).fit(labels)
    answer = {
        "couplings": found(model.contact_scores(), edges),
        "mutual information": found(mutual_information(labels), edges),
    }
    for method, share in answer.items():
        print(f"{method:<20} {100 * share:.0f} % of the contacts")
    return answer


if __name__ == "__main__":
    main()
