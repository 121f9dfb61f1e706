"""Data that ``fieldfit demo`` draws: sentences, a questionnaire, people who are to be matched.

Each is drawn from a model in which neighbours matter, so that a field has something to learn, and
what is true is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit.comparison.method_search import Data
from fieldfit.inference.matching.assignment import Assignment
from fieldfit.models.chain.chain_crf import ChainCRF
from fieldfit.models.matching_crf import MatchingCRF
from fieldfit.models.pairwise.ising_model import IsingModel

__all__ = ["DRAWN", "Drawn", "DrawnDemo"]


@dataclass(frozen=True)
class Drawn:
    """Examples to learn from and to test on; ``truth`` has rows of a table about what is true."""

    train: Data
    test: Data
    truth: tuple[str, tuple[tuple[str, float], ...]] = ("", ())
    report_options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DrawnDemo:
    """What a demonstration on drawn data is about.

    ``draw(generator, is_quick)`` gives the data, ``learned(model)`` the weights that can be
    compared with the true ones, by the same names.
    """

    name: str
    title: str
    about: str
    estimator: Callable[[], Any]
    methods: tuple[str, ...]
    draw: Callable[[np.random.Generator, bool], Drawn]
    learned: Callable[[Any], dict[str, float]]


# -- sentences -----------------------------------------------------------------------------------

#: Words by their class; many belong to two, and only their neighbours tell which.
WORDS = {
    "article": "the a this every no",
    "adjective": "old light green small cool fair dry",
    "noun": "duck fish light watch saw can man run cool bank ship",
    "verb": "duck fish light watch saw can man run sees likes dry ship",
    "preposition": "with near by like",
    "pronoun": "she he they",
}
#: What may follow: class, and how often.
FOLLOWS = {
    "": {"article": 5, "pronoun": 4, "adjective": 1},
    "article": {"adjective": 3, "noun": 7},
    "adjective": {"adjective": 1, "noun": 9},
    "noun": {"verb": 6, "preposition": 2, "": 2},
    "pronoun": {"verb": 10},
    "verb": {"article": 5, "pronoun": 1, "preposition": 2, "adjective": 1, "": 1},
    "preposition": {"article": 7, "pronoun": 1, "adjective": 2},
}
LONGEST = 14


def _sentence(rng: np.random.Generator) -> tuple[list[dict[str, str]], list[str]]:
    classes: list[str] = []
    while len(classes) < LONGEST:
        choices = FOLLOWS[classes[-1] if classes else ""]
        shares = np.array(list(choices.values()), dtype=float)
        drawn = str(rng.choice(list(choices), p=shares / shares.sum()))
        if not drawn:
            break
        classes.append(drawn)
    words = [str(rng.choice(WORDS[one].split())) for one in classes]
    return [{"word": word} for word in words], classes


def _draw_text(rng: np.random.Generator, is_quick: bool) -> Drawn:
    n_train, n_test = (40, 20) if is_quick else (120, 60)
    sentences = [_sentence(rng) for _ in range(n_train + n_test)]
    whole = Data([tokens for tokens, _ in sentences], [classes for _, classes in sentences])
    order = np.arange(len(whole))
    return Drawn(whole.part(order[:n_train]), whole.part(order[n_train:]))


def _transitions(model: Any) -> dict[str, float]:
    """The strongest weights, which are not to be compared: the grammar has no weights."""
    return {name: value for value, name in model.top_weights(16)}


# -- a questionnaire -----------------------------------------------------------------------------

QUESTIONS = (
    *("sleep", "tired", "worry", "tense", "sad", "interest"),
    *("appetite", "focus", "guilt", "restless"),
)
#: Which answers hang together, and how strongly.
COUPLINGS = {
    ("sleep", "tired"): 1.6,
    ("tired", "focus"): 1.2,
    ("worry", "tense"): 1.8,
    ("tense", "restless"): 1.3,
    ("worry", "sleep"): 0.8,
    ("sad", "interest"): 1.7,
    ("sad", "guilt"): 1.1,
    ("interest", "appetite"): 0.9,
    ("focus", "restless"): 0.7,
    ("guilt", "worry"): -0.6,
}


def _draw_network(rng: np.random.Generator, is_quick: bool) -> Drawn:
    n_train, n_test = (150, 50) if is_quick else (500, 200)
    place = {name: k for k, name in enumerate(QUESTIONS)}
    states = np.array(list(product((0, 1), repeat=len(QUESTIONS))))
    scores = -1.0 * states.sum(axis=1).astype(float)
    for (one, other), coupling in COUPLINGS.items():
        scores += coupling * states[:, place[one]] * states[:, place[other]]
    shares = np.exp(scores - scores.max())
    drawn = states[rng.choice(len(states), n_train + n_test, p=shares / shares.sum())]
    rows = tuple((f"{one} - {other}", value) for (one, other), value in COUPLINGS.items())
    return Drawn(
        Data(drawn[:n_train]),
        Data(drawn[n_train:]),
        ("coupling", rows),
        {"feature_names": list(QUESTIONS)},
    )


def _couplings(model: Any) -> dict[str, float]:
    place = {name: k for k, name in enumerate(QUESTIONS)}
    return {
        f"{one} - {other}": float(model.couplings_[place[one], place[other]])
        for one, other in COUPLINGS
    }


# -- matchings -----------------------------------------------------------------------------------

TRAITS = {"shared interests": 3.0, "distance": -2.0, "difference of age": -1.0}
N_PEOPLE = 7


def _draw_matchings(rng: np.random.Generator, is_quick: bool) -> Drawn:
    n_train, n_test = (20, 10) if is_quick else (50, 30)
    features: NDArray[np.float64] = rng.normal(
        size=(n_train + n_test, N_PEOPLE, N_PEOPLE, len(TRAITS))
    )
    liked = features @ np.array(list(TRAITS.values()))
    noise = rng.gumbel(size=liked.shape)
    partners = [Assignment().match(one).partners for one in liked + noise]
    return Drawn(
        Data(features[:n_train], partners[:n_train]),
        Data(features[n_train:], partners[n_train:]),
        ("trait", tuple(TRAITS.items())),
        {"feature_names": list(TRAITS)},
    )


def _traits(model: Any) -> dict[str, float]:
    return dict(zip(TRAITS, map(float, model.weights_), strict=True))


DRAWN = {
    "text": DrawnDemo(
        "text",
        "Learning the classes of words",
        "Sentences are drawn from a small grammar in which most words belong to two classes: a "
        "duck may be a bird, and to duck is what one does. A word alone does not tell, its "
        "neighbours do. A chain learns which class follows which, and how likely each is for a "
        "word.",
        ChainCRF,
        ("likelihood", "pseudolikelihood", "piecewise", "perceptron", "max-margin"),
        _draw_text,
        _transitions,
    ),
    "network": DrawnDemo(
        "network",
        "Learning a network from a questionnaire",
        "Yes or no to ten questions, by people who are drawn from an Ising model: answers hang "
        "together by ten couplings, and all others are zero. The network is learned from the "
        "answers alone; every answer is then predicted from the other nine of the same person.",
        IsingModel,
        ("pseudolikelihood", "likelihood", "trw", "bethe", "camel0", "cf-bethe"),
        _draw_network,
        _couplings,
    ),
    "matching": DrawnDemo(
        "matching",
        "Learning who is matched with whom",
        f"Evenings of {N_PEOPLE} and {N_PEOPLE} people, each of whom ends up with one partner: the "
        "matching that is best by what they have in common, by distance and age, and by chance. "
        "How much each trait counts is learned from the matchings.",
        MatchingCRF,
        ("mle-struct", "likelihood", "max-margin", "perceptron"),
        _draw_matchings,
        _traits,
    ),
}
