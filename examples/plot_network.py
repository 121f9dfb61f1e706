"""A symptom network from yes-or-no answers, some of them missing, with standard errors.

python examples/plot_network.py [network.png]
"""

import sys

import numpy as np

import fieldfit as ff

SYMPTOMS = ["sleep", "tired", "focus", "worry", "panic", "avoid", "mood", "guilt"]
LINKS = {("sleep", "tired"): 1.6, ("tired", "focus"): 1.2, ("worry", "panic"): 1.5,
         ("panic", "avoid"): 1.3, ("mood", "guilt"): 1.8, ("worry", "sleep"): 1.0,
         ("mood", "tired"): 1.1, ("avoid", "focus"): -0.8}  # fmt: skip


def simulated_answers(n_people, rng):
    """Answers from a known network, by Gibbs sampling, with one in thirty lost."""
    place = {name: k for k, name in enumerate(SYMPTOMS)}
    edges = [(place[a], place[b]) for a, b in LINKS]
    graph = ff.FactorGraph.from_edges(len(SYMPTOMS), edges, 2)
    potentials = ff.Potentials(
        graph,
        unary=np.tile([0.0, -1.2], (len(SYMPTOMS), 1)),
        factors=[[[0.0, 0.0], [0.0, link]] for link in LINKS.values()],
    )
    drawn = ff.Gibbs(n_chains=n_people, burn_in=200, random_state=rng).sample(
        graph, potentials, n_people
    )
    return np.where(rng.random(drawn.shape) < 1 / 30, np.nan, drawn)


def main(path="network.png"):
    rng = np.random.default_rng(1)
    answers = simulated_answers(1500, rng)
    model = ff.IsingModel("likelihood").fit(answers)
    print(model.summary(names=SYMPTOMS))
    true = np.zeros((len(SYMPTOMS), len(SYMPTOMS)))
    for (a, b), link in LINKS.items():
        i, j = SYMPTOMS.index(a), SYMPTOMS.index(b)
        true[i, j] = true[j, i] = link
    away = abs(model.couplings_ - true)[np.triu_indices(len(SYMPTOMS), 1)]
    errors = model.coupling_errors_[np.triu_indices(len(SYMPTOMS), 1)]
    print(f"largest error: {(away / errors).max():.1f} standard errors")
    axes = model.plot_network(names=SYMPTOMS, level=0.95)
    axes.figure.savefig(path, dpi=110)
    return float((away / errors).max())


if __name__ == "__main__":
    main(*sys.argv[1:])
