"""
An error-correcting code: hard constraints and factors of arity four
====================================================================

A Hamming code sends four bits as seven, of which three groups of four have an even number of
ones. A log-potential of ``-inf`` is a hard zero, and a factor may have any number of variables.
"""

import itertools

import numpy as np

import fieldfit as ff

CHECKS = [(0, 1, 2, 4), (0, 1, 3, 5), (0, 2, 3, 6)]  # each must have an even number of ones
N_WORDS = 100

even = np.full((2, 2, 2, 2), -np.inf)
for bits in itertools.product((0, 1), repeat=4):
    if sum(bits) % 2 == 0:
        even[bits] = 0.0
graph = ff.FactorGraph([2] * 7, CHECKS)
words = ff.BruteForce().configurations(graph)
legal = np.array([w for w in words if ff.Potentials(graph, None, [even] * 3).score(w) == 0])
print(f"{len(legal)} of {len(words)} words are legal")

# %%
# Words are sent through lines that flip bits more and more often, and decoded in three ways.

DECODERS = {
    "best word": lambda potentials: ff.ExactMap().run(graph, potentials).labels,
    "bits by exact marginals": lambda p: ff.Exact().run(graph, p).beliefs.argmax(),
    "bits by belief propagation": lambda p: ff.SumProduct().run(graph, p).beliefs.argmax(),
}
rng = np.random.default_rng(0)
flips = [0.02, 0.04, 0.08, 0.12, 0.16]
wrong = {name: np.zeros(len(flips)) for name in ("line", *DECODERS)}
for k, flip in enumerate(flips):
    sent = legal[rng.integers(len(legal), size=N_WORDS)]
    received = sent ^ (rng.random(sent.shape) < flip)
    wrong["line"][k] = np.mean(received != sent)
    for word, noisy in zip(sent, received, strict=True):
        log_likelihood = np.where(noisy[:, None] == [0, 1], np.log(1 - flip), np.log(flip))
        potentials = ff.Potentials(graph, log_likelihood, [even] * 3)
        for name, decoder in DECODERS.items():
            wrong[name][k] += np.mean(decoder(potentials) != word) / N_WORDS
for name, shares in wrong.items():
    print(f"{name:<28} {shares[2]:.2%} of the bits wrong at flips of {flips[2]:.0%}")

# %%

import matplotlib.pyplot as plt

figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, shares in wrong.items():
    axis.plot(flips, shares, marker="o", label=name)
axis.set(xlabel="probability that the line flips a bit", ylabel="share of bits wrong")
axis.legend(frameon=False)
plt.show()
