"""Every estimator with every objective: which problem and which learner it takes, or why not.

The table is written out, so that no method takes another's place without a word.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import fieldfit as ff
import fieldfit.models.base
from fieldfit.errors import InvalidInputError
from fieldfit.learners.closed_form import ClosedForm
from fieldfit.learners.registry import make_learner
from fieldfit.models.dispatch import FAMILIES
from fieldfit.objectives.registry import OBJECTIVES

RNG = np.random.default_rng(0)
PICTURES = RNG.normal(size=(3, 3, 3, 2))
SEQUENCES = [RNG.normal(size=(4, 2)) for _ in range(4)]
TAGS = [(sequence[:, 0] > 0).astype(int) for sequence in SEQUENCES]
NODES = [(RNG.normal(size=(3, 2)), [(0, 1), (1, 2)]) for _ in range(3)]
SAMPLES = RNG.integers(0, 2, size=(40, 3))
MATCHED = RNG.normal(size=(4, 3, 3, 2))
PARTNERS = [RNG.permutation(3) for _ in MATCHED]
EDGES = [(0, 1), (1, 2)]

FITS = {
    "GridCRF": lambda o, **k: ff.GridCRF(o, l2=0.1, **k).fit(PICTURES, PICTURES[..., 0] > 0),
    "GraphCRF": lambda o, **k: ff.GraphCRF(o, l2=0.1, **k).fit(NODES, [[0, 1, 1]] * 3),
    "ChainCRF": lambda o, **k: ff.ChainCRF(o, **k).fit(SEQUENCES, TAGS),
    "SkipChainCRF": lambda o, **k: ff.SkipChainCRF(o, **k).fit(
        [(sequence, [(0, 2)]) for sequence in SEQUENCES], TAGS
    ),
    "IsingModel": lambda o, **k: ff.IsingModel(o, l2=0.1, **k).fit(SAMPLES, EDGES),
    "PottsModel": lambda o, **k: ff.PottsModel(o, l2=0.1, **k).fit(SAMPLES, EDGES),
    "MixtureField": lambda o, **k: ff.MixtureField(
        o, l2=0.0 if o == "moment-matching" else 0.1, **k
    ).fit(SAMPLES, EDGES),
    "MatchingCRF": lambda o, **k: ff.MatchingCRF(o, **k).fit(list(MATCHED), PARTNERS),
}

CAMEL = ("camel0", "camel", "camel-empirical")
SURROGATES = ("bethe", "trw", "trw-kikuchi", "convex", "log-determinant", "mean-field")
#: Objectives without a problem of their own in any family.
PLAIN = ("piecewise", "independent", "cf-bethe", "cf-mean-field", "implicit", "procedural")
HINGES = ("perceptron", "max-margin")

#: Clauses of the status where a general method took the place of a special one.
COPIED = "the objective was evaluated on one copy of the model for each distinct sample"
ON_GRAPHS = "so this surrogate likelihood was evaluated on factor graphs"
NOT_CLOSED = "so its surrogate likelihood was minimised"


def _graphs() -> dict[str, tuple[str, str, str]]:
    template = "TemplateProblem"
    table = dict.fromkeys(("likelihood", *SURROGATES, *PLAIN), (template, "LBFGS", ""))
    table |= {"pseudolikelihood": (template, "LBFGS", "")}
    table |= dict.fromkeys(CAMEL, (template, "CamelRounds", ""))
    table |= dict.fromkeys(("cd", *HINGES), (template, "Adam", ""))
    table |= {"mle-struct": (template, "DualFrankWolfe", "")}
    return table | {"moment-matching": (template, "LBFGS", NOT_CLOSED)}


def _chains() -> dict[str, tuple[str, str, str]]:
    exact = dict.fromkeys(("likelihood", "bethe", "trw"), ("ChainProblem", "LBFGS", ""))
    other = dict.fromkeys(
        ("trw-kikuchi", "convex", "log-determinant", "mean-field"),
        ("TemplateProblem", "LBFGS", ON_GRAPHS),
    )
    return _graphs() | exact | other


def _samples() -> dict[str, tuple[str, str, str]]:
    shared = "LikelihoodProblem"
    table = dict.fromkeys(("likelihood", *SURROGATES), (shared, "LBFGS", ""))
    table |= {"pseudolikelihood": ("PseudoLikelihoodProblem", "LBFGS", "")}
    table |= dict.fromkeys(CAMEL, (shared, "CamelRounds", ""))
    table |= {"cd": ("GibbsChainsProblem", "Adam", "")}
    table |= {"mle-struct": (shared, "DualFrankWolfe", "")}
    table |= {"moment-matching": ("MomentMatchingProblem", "ClosedForm", "")}
    table |= dict.fromkeys(PLAIN, ("ReplicatedProblem", "LBFGS", COPIED))
    return table | dict.fromkeys(HINGES, ("ReplicatedProblem", "Adam", COPIED))


def _matchings() -> dict[str, tuple[str, str, str]]:
    return {
        "mle-struct": ("MatchingProblem", "DualFrankWolfe", ""),
        "likelihood": ("ExactMatchings", "LBFGS", ""),
        "independent": ("IndependentChoices", "LBFGS", ""),
        **dict.fromkeys(HINGES, ("MatchingHinge", "Adam", "")),
    }


TABLE = {
    **dict.fromkeys(("GridCRF", "GraphCRF", "SkipChainCRF"), _graphs()),
    "ChainCRF": _chains(),
    **dict.fromkeys(("IsingModel", "PottsModel", "MixtureField"), _samples()),
    "MatchingCRF": _matchings(),
}
CLAUSES = (COPIED, ON_GRAPHS, NOT_CLOSED)


@pytest.fixture
def chosen(monkeypatch):
    """Names of the problem and the learner of the last fit."""
    seen = []

    def remembered(learner, problem, **options):
        found = make_learner(learner, problem, **options)
        seen[:] = [type(problem).__name__, type(found).__name__]
        return found

    monkeypatch.setattr(fieldfit.models.base, "make_learner", remembered)
    return seen


def fitted(name, objective, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)
        return FITS[name](objective, max_iter=2, **options)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", FITS)
def test_problem_and_learner(name, objective, chosen):
    if objective not in TABLE[name]:
        with pytest.raises(InvalidInputError, match="objective must be 'mle-struct', 'likelihood'"):
            fitted(name, objective)
        return
    problem, learner, clause = TABLE[name][objective]
    model = fitted(name, objective)
    assert chosen == [problem, learner]
    found = [one for one in CLAUSES if one in model.status_]
    assert found == ([clause] if clause else []), model.status_


def test_refusals_name_what_works():
    with pytest.raises(
        InvalidInputError,
        match="objective must be 'mle-struct', 'likelihood', 'independent', 'max-margin' or "
        "'perceptron' for matchings, got PseudoLikelihood",
    ):
        fitted("MatchingCRF", "pseudolikelihood")
    with pytest.raises(InvalidInputError, match="matchings is exact"):
        fitted("MatchingCRF", "trw")
    assert FAMILIES["matchings"].works == (*tuple(_matchings())[:3], "max-margin", "perceptron")


@pytest.mark.parametrize("objective", ["camel", "mle-struct"])
@pytest.mark.parametrize("name", ["GridCRF", "IsingModel", "MixtureField"])
def test_missing_labels_are_left_to_l_bfgs_and_the_status_says_so(name, objective, chosen):
    samples = SAMPLES.copy()
    samples[0, 0] = -1
    labels = (PICTURES[..., 0] > 0).astype(int)
    labels[0, 0, 0] = -1
    fits = {
        "GridCRF": lambda: ff.GridCRF(objective, max_iter=2).fit(PICTURES, labels),
        "IsingModel": lambda: ff.IsingModel(objective, max_iter=2).fit(samples, EDGES),
        "MixtureField": lambda: ff.MixtureField(objective, l2=0.1, max_iter=2).fit(samples, EDGES),
    }
    with pytest.warns(ff.ConvergenceWarning, match="labels are missing, so L-BFGS minimised"):
        model = fits[name]()
    assert chosen[1] == "LBFGS"
    assert "needs complete labels" in model.status_


@pytest.mark.parametrize("name", ["IsingModel", "PottsModel", "MixtureField"])
def test_camel_and_mle_struct_reach_what_l_bfgs_reaches(name):
    """The methods that once were replaced without a word have the same optimum, on a tree."""
    reference = FITS[name]("trw", max_iter=500)
    for objective in ("camel", ff.MLEStruct(tol=1e-7)):
        found = FITS[name](objective, max_iter=2000)
        assert found.converged_, found.status_
        np.testing.assert_allclose(found.weights_, reference.weights_, atol=2e-3)


def test_mle_struct_needs_a_penalty():
    with pytest.raises(InvalidInputError, match="l2 must be positive for mle-struct"):
        ff.MixtureField("mle-struct").fit(SAMPLES, EDGES)


def test_weights_and_blocks_of_a_pseudo_likelihood(chosen):
    model = fitted("IsingModel", ff.PseudoLikelihood(blocks="tree"))
    assert chosen == ["ReplicatedProblem", "LBFGS"]
    assert "serve single variables, not blocks" in model.status_


def test_a_closed_form_has_no_learner_and_no_penalty():
    with pytest.raises(InvalidInputError, match="learner must be None for a closed form"):
        fitted("IsingModel", "moment-matching", learner="lbfgs")
    model = fitted("IsingModel", "moment-matching")
    assert "closed form" in model.status_
    assert "the penalty is not part of it" in model.status_
    assert not ClosedForm.uses_start


@pytest.mark.parametrize("name", ["PottsModel", "MatchingCRF"])
def test_a_start_that_makes_no_difference_is_mentioned(name):
    model = fitted(name, "mle-struct")
    data = (SAMPLES, EDGES) if name == "PottsModel" else (list(MATCHED), PARTNERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ff.ConvergenceWarning)
        model.fit(*data, start=model.weights_)
    assert "start was not used, because DualFrankWolfe needs none" in model.status_


def test_an_objective_of_ones_own_takes_the_general_path(chosen):
    @dataclass(frozen=True)
    class Doubled(ff.Piecewise):
        name: ClassVar[str] = "doubled"

    fitted("GridCRF", Doubled())
    assert chosen == ["TemplateProblem", "LBFGS"]
    fitted("IsingModel", Doubled())
    assert chosen == ["ReplicatedProblem", "LBFGS"]
