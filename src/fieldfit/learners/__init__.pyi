"""Written by make stubs from fieldfit._registry."""

from fieldfit.learners.base import Fit as Fit
from fieldfit.learners.base import Learner as Learner
from fieldfit.learners.base import Penalty as Penalty
from fieldfit.learners.base import Validation as Validation
from fieldfit.learners.camel_rounds import CamelRounds as CamelRounds
from fieldfit.learners.closed_form import ClosedForm as ClosedForm
from fieldfit.learners.dual_frank_wolfe import DualFrankWolfe as DualFrankWolfe
from fieldfit.learners.lbfgs import LBFGS as LBFGS
from fieldfit.learners.loop import time_limit as time_limit
from fieldfit.learners.problem import Part as Part
from fieldfit.learners.problem import Problem as Problem
from fieldfit.learners.problem import ProblemValue as ProblemValue
from fieldfit.learners.problem import TemplateProblem as TemplateProblem
from fieldfit.learners.problem import potentials_of as potentials_of
from fieldfit.learners.stochastic import Adam as Adam
from fieldfit.learners.stochastic import SGD as SGD

__all__ = [
    "LBFGS",
    "SGD",
    "Adam",
    "CamelRounds",
    "ClosedForm",
    "DualFrankWolfe",
    "Fit",
    "Learner",
    "Part",
    "Penalty",
    "Problem",
    "ProblemValue",
    "TemplateProblem",
    "Validation",
    "potentials_of",
    "time_limit",
]
