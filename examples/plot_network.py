"""
A symptom network with standard errors
======================================

An `IsingModel` learned from yes-or-no answers, some of them missing.  Every coupling comes with a
standard error and an interval.
"""

import matplotlib.pyplot as plt
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


# %%
# The exact likelihood of eight symptoms is cheap; ``objective="pseudolikelihood"`` serves
# hundreds.

answers = simulated_answers(1500, np.random.default_rng(1))
model = ff.IsingModel("likelihood").fit(answers)
print(model.summary(names=SYMPTOMS))

# %%
# The network was simulated, so the errors can be checked.

true = np.zeros((len(SYMPTOMS), len(SYMPTOMS)))
for (a, b), link in LINKS.items():
    i, j = SYMPTOMS.index(a), SYMPTOMS.index(b)
    true[i, j] = true[j, i] = link
pairs = np.triu_indices(len(SYMPTOMS), 1)
away = abs(model.couplings_ - true)[pairs] / model.coupling_errors_[pairs]
print(f"largest error: {away.max():.1f} standard errors")

# %%
# Couplings whose 95 % interval leaves out zero: blue together, red apart.

model.plot_network(names=SYMPTOMS, level=0.95)
plt.show()
