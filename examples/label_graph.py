"""Label the people of a network: weak features, and acquaintances who agree if they live close.

python examples/label_graph.py
"""

import numpy as np

import fieldfit as ff


def network(rng, n_people=60):
    """People in a square who know two neighbours and two others; groups live in three stripes."""
    places = rng.random((n_people, 2))
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1:3]
    others = (np.arange(n_people)[:, None] + rng.integers(1, n_people, (n_people, 2))) % n_people
    known = np.concatenate([nearest, others], axis=1)
    pairs = np.stack([np.repeat(np.arange(n_people), 4), known.ravel()], axis=1)
    edges = np.unique(np.sort(pairs, axis=1), axis=0)
    labels = np.minimum((places[:, 0] * 3).astype(int), 2)
    features = np.eye(3)[labels] + rng.normal(size=(n_people, 3))
    closeness = np.exp(-3 * distances[edges[:, 0], edges[:, 1]])[:, None]
    return (features, edges, closeness), labels


def main(n_networks=40):
    rng = np.random.default_rng(0)
    X, Y = map(list, zip(*(network(rng) for _ in range(n_networks)), strict=True))
    half = n_networks // 2
    hidden = [
        np.where(rng.random(len(y)) < 0.3, -1, y) for y in Y
    ]  # 30 % of the labels are missing
    kinds = {
        "features alone": [(x[0], []) for x in X],
        "and who knows whom": [x[:2] for x in X],
        "and how close": X,
    }
    accuracies = {}
    for name, given in kinds.items():
        crf = ff.GraphCRF("trw", pairwise="potts", l2=0.1).fit(given[:half], hidden[:half])
        accuracies[name] = crf.score(given[half:], Y[half:])
        print(f"{name:18} {accuracies[name]:.1%} of the people are labelled right")

    low, high = crf.log_likelihood_bounds(X[half:], Y[half:])
    print(f"log-likelihood of the new networks: {low.mean():.1f} to {high.mean():.1f}, on average")
    drawn = crf.sample(X[half : half + 1], n_samples=200, random_state=0)[0]
    sure = np.mean(drawn == crf.predict(X[half : half + 1])[0], axis=0)
    print(f"person {sure.argmin()} of the first network is the hardest to tell: {sure.min():.0%}")
    return accuracies


if __name__ == "__main__":
    main()
