"""Table of objectives by name: what ``objective=`` of the estimators and of the command takes."""

from __future__ import annotations

from collections.abc import Callable

from fieldfit.entropy.counting_numbers import Bethe, Convex, TreeReweighted
from fieldfit.errors import InvalidInputError
from fieldfit.inference.junction_tree.exact import Exact
from fieldfit.inference.mean_field.mean_field import MeanField
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.objectives.base import Objective
from fieldfit.objectives.camel import Camel
from fieldfit.objectives.contrastive import ContrastiveFreeEnergy
from fieldfit.objectives.contrastive_divergence import ContrastiveDivergence
from fieldfit.objectives.implicit_loss import ImplicitLoss
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.max_margin import MaxMargin, Perceptron
from fieldfit.objectives.mle_struct import MLEStruct
from fieldfit.objectives.moment_matching import MomentMatching
from fieldfit.objectives.piecewise import Piecewise
from fieldfit.objectives.procedural_loss import ProceduralLoss
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood

__all__ = ["OBJECTIVES", "make_objective"]

#: Messages to a millionth: the value is then right to rounding (it is stationary in the messages),
#: the gradient to about this, and a pass costs half of one to 1e-8.
LEARNING_TOL = 1e-6

_TABLE: dict[str, Callable[[], Objective]] = {
    "likelihood": lambda: Likelihood(Exact()),
    "bethe": lambda: Likelihood(SumProduct(entropy=Bethe(), tol=LEARNING_TOL)),
    "trw": lambda: Likelihood(SumProduct(entropy=TreeReweighted(), tol=LEARNING_TOL)),
    "convex": lambda: Likelihood(SumProduct(entropy=Convex(), tol=LEARNING_TOL)),
    "mean-field": lambda: Likelihood(MeanField()),
    "pseudolikelihood": PseudoLikelihood,
    "piecewise": Piecewise,
    "camel0": lambda: Camel("camel0"),
    "camel": lambda: Camel("cccp"),
    "camel-empirical": lambda: Camel("cccp-empirical"),
    "cd": ContrastiveDivergence,
    "cf-bethe": lambda: ContrastiveFreeEnergy("bethe"),
    "cf-mean-field": lambda: ContrastiveFreeEnergy("mean-field"),
    "mle-struct": MLEStruct,
    "implicit": ImplicitLoss,
    "procedural": ProceduralLoss,
    "moment-matching": MomentMatching,
    "perceptron": Perceptron,
    "max-margin": MaxMargin,
}

#: The names that `make_objective` knows.
OBJECTIVES = tuple(_TABLE)


def make_objective(objective: str | Objective) -> Objective:
    """The objective of a name, or the object itself.

    Examples
    --------
    >>> make_objective("trw").inference.entropy
    TreeReweighted(rho=None)
    """
    if isinstance(objective, Objective):
        return objective
    if not isinstance(objective, str) or objective not in _TABLE:
        names = ", ".join(repr(name) for name in OBJECTIVES)
        raise InvalidInputError(
            f"objective must be one of {names} or an object such as PseudoLikelihood(), "
            f"got {objective!r}"
        )
    return _TABLE[objective]()
