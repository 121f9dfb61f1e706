"""Hard constraints and factors of arity four: decode a Hamming code sent through a noisy line.

python examples/parity_code.py
"""

import itertools

import numpy as np

import fieldfit as ff

CHECKS = [(0, 1, 2, 4), (0, 1, 3, 5), (0, 2, 3, 6)]  # each must have an even number of ones
FLIP = 0.08  # probability that the line flips a bit


def main(n_words=500):
    even = np.full((2, 2, 2, 2), -np.inf)  # a hard zero: log of weight 0
    for bits in itertools.product((0, 1), repeat=4):
        if sum(bits) % 2 == 0:
            even[bits] = 0.0
    graph = ff.FactorGraph([2] * 7, CHECKS)

    rng = np.random.default_rng(0)
    words = ff.BruteForce().configurations(graph)
    legal = np.array([w for w in words if ff.Potentials(graph, None, [even] * 3).score(w) == 0])
    sent = legal[rng.integers(len(legal), size=n_words)]
    received = sent ^ (rng.random(sent.shape) < FLIP)

    wrong = {"line": 0, "best word": 0, "bits by exact marginals": 0, "bits by propagation": 0}
    for word, noisy in zip(sent, received, strict=True):
        log_likelihood = np.where(noisy[:, None] == [0, 1], np.log(1 - FLIP), np.log(FLIP))
        potentials = ff.Potentials(graph, log_likelihood, [even] * 3)
        answers = {
            "line": noisy,
            "best word": ff.ExactMap().run(graph, potentials).labels,
            "bits by exact marginals": ff.Exact().run(graph, potentials).beliefs.argmax(),
            "bits by propagation": ff.SumProduct().run(graph, potentials).beliefs.argmax(),
        }
        for name, bits in answers.items():
            wrong[name] += int((bits != word).sum())
    for name, count in wrong.items():
        print(f"{name:<25} {count / sent.size:.2%} of the bits wrong")
    return wrong


if __name__ == "__main__":
    main()
