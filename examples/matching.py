"""
Who shares a room with whom
===========================

`MatchingCRF` learns what pairs prefer from rooms of earlier years, by best matchings alone
(MLE-Struct), with a proof of how far the weights are from the optimum.  Needs the extra
``matching``.
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


# %%
# Features of all pairs, and the partner of everybody.

X, Y = simulated_rooms(30, 8, np.random.default_rng(0))
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

# %%
# Probabilities of all pairs in a new year; crosses are the most probable rooms, rings the true
# ones.

import matplotlib.pyplot as plt

chances, rooms = crf.predict_marginals(X[test][:1])[0], crf.predict(X[test][:1])[0]
figure, axis = plt.subplots(figsize=(5, 4), layout="constrained")
picture = axis.imshow(chances, cmap="Blues", vmin=0)
axis.plot(range(len(rooms)), rooms, "x", color="k", label="predicted")
axis.plot(range(len(rooms)), Y[20], "o", mfc="none", mec="C3", ms=13, label="true")
axis.set(xlabel="person", ylabel="room-mate")
figure.colorbar(picture, label="probability")
figure.legend(loc="outside lower center", ncols=2)
plt.show()
