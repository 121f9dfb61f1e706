"""Written by make stubs from fieldfit._registry."""

from fieldfit.objectives.base import Evaluation as Evaluation
from fieldfit.objectives.base import Objective as Objective
from fieldfit.objectives.camel import Camel as Camel
from fieldfit.objectives.contrastive import ContrastiveFreeEnergy as ContrastiveFreeEnergy
from fieldfit.objectives.contrastive_divergence import ContrastiveDivergence as ContrastiveDivergence
from fieldfit.objectives.implicit_loss import ImplicitLoss as ImplicitLoss
from fieldfit.objectives.independent import Independent as Independent
from fieldfit.objectives.likelihood import Likelihood as Likelihood
from fieldfit.objectives.marginal_losses import MarginalLoss as MarginalLoss
from fieldfit.objectives.max_margin import MaxMargin as MaxMargin
from fieldfit.objectives.max_margin import Perceptron as Perceptron
from fieldfit.objectives.mle_struct import MLEStruct as MLEStruct
from fieldfit.objectives.moment_matching import MomentMatching as MomentMatching
from fieldfit.objectives.piecewise import Piecewise as Piecewise
from fieldfit.objectives.procedural_loss import ProceduralLoss as ProceduralLoss
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood as PseudoLikelihood

__all__ = [
    "Camel",
    "ContrastiveDivergence",
    "ContrastiveFreeEnergy",
    "Evaluation",
    "ImplicitLoss",
    "Independent",
    "Likelihood",
    "MLEStruct",
    "MarginalLoss",
    "MaxMargin",
    "MomentMatching",
    "Objective",
    "Perceptron",
    "Piecewise",
    "ProceduralLoss",
    "PseudoLikelihood",
]
