"""Who shares a room with whom: preferences learned from rooms of earlier years.

python examples/matching.py      (needs the extra "matching")
"""

import numpy as np

import fieldfit as ff

QUESTIONS = ["sleep", "noise", "tidiness", "visitors"]
HIDDEN = np.array([-5.0, -3.0, -3.0, 0.0])  # nobody minds visitors


def simulated_rooms(n_years, n_people, rng):
    """Pairs and how much their answers differ; rooms by best matchings of noisy wishes."""
    X, Y = [], []
    for _ in range(n_years):
        answers = rng.random((n_people, len(QUESTIONS)))
        X.append(np.abs(answers[:, None] - answers[None]))
        mood = np.triu(rng.gumbel(size=(n_people, n_people)), 1)
        Y.append(ff.PerfectMatching().match(X[-1] @ HIDDEN + mood + mood.T).partners)
    return X, Y


def main():
    rng = np.random.default_rng(0)
    X, Y = simulated_rooms(30, 8, rng)
    train, test = slice(0, 20), slice(20, None)

    crf = ff.MatchingCRF(ff.MLEStruct(tol=1e-3), kind="general", l2=0.1).fit(X[train], Y[train])
    print(crf.status_)
    for name, weight, hidden in zip(QUESTIONS, crf.weights_, HIDDEN, strict=True):
        print(f"{name:10} {weight:6.2f}   (hidden {hidden:g})")

    right = crf.score(X[test], Y[test])
    print(f"room-mates found: {right:.0%}, by chance {1 / 7:.0%}")
    lower, _ = crf.log_likelihood_bounds(X[test], Y[test])
    exact = crf.log_likelihood(X[test], Y[test])
    print(f"log-likelihood of a year: {exact.mean():.2f}, proved to be at least {lower.mean():.2f}")

    chances = crf.predict_marginals(X[test][:1])[0]
    rooms = crf.predict(X[test][:1])[0]
    for i, j in enumerate(rooms):
        if i < j:
            sign = "right" if Y[20][i] == j else "wrong"
            print(f"room of {i} and {j}: probability {chances[i, j]:.2f}, {sign}")
    return right


if __name__ == "__main__":
    main()
