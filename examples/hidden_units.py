"""Hidden units: what six coins have in common, learned without ever seeing it.

Two hidden bits decide about three coins each, with some noise.  The samples hold the coins only; a
layer of two hidden variables is learned by contrastive free energies, and by the exact likelihood,
which such a small model allows.

    python examples/hidden_units.py
"""

import numpy as np

import fieldfit as ff


def coins(n_samples, rng):
    """Each bit is copied three times, and one copy in ten is wrong."""
    bits = rng.integers(0, 2, (n_samples, 2))
    copies = np.repeat(bits, 3, axis=1)
    return copies ^ (rng.random(copies.shape) < 0.1)


def main():
    rng = np.random.default_rng(0)
    training, test = coins(1000, rng), coins(1000, rng)
    hidden = np.full((1000, 2), np.nan)  # columns that are missing everywhere
    edges = [(coin, 6 + unit) for coin in range(6) for unit in range(2)]

    independent = training.mean(axis=0)
    alone = np.log(np.where(test == 1, independent, 1.0 - independent)).sum(axis=1).mean()
    print(f"independent coins: {alone:.3f} nats for a sample")
    for name in ("cf-bethe", "cd", "likelihood"):
        model = ff.IsingModel(name, l2=1.0, tol=1e-2, random_state=0)
        model.fit(np.hstack([training, hidden]), edges=edges)
        value = model.log_likelihood(np.hstack([test, hidden])) / len(test)
        couplings = model.weight_blocks_["couplings"].reshape(6, 2)
        print(f"{name}: {value:.3f} nats; couplings of the first unit {couplings[:, 0].round(1)}")


if __name__ == "__main__":
    main()
