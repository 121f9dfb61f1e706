"""CAMEL: constrained approximate maximum-entropy learning, with the Bethe entropy and CCCP.

Maximum likelihood is the dual of maximum entropy under the moments of the data.  CAMEL replaces the
entropy by Bethe's and distributions by beliefs that agree on their variables:

    max over pi:  sum_a H(pi_a) - sum_i (d_i - 1) H(pi_i)
    so that       E_pi[f] = E_data[f],  factors agree on every variable,  tables sum to one

(with a Gaussian prior the moments need not match, and their squared distance is the penalty).  Each
example of a conditional model has its own ``pi``; only the dual variables ``w`` of the moments, the
weights, are shared.  The negative entropies are not concave.  Variants:

* ``"camel0"`` leaves them out: one concave problem;
* ``"cccp"`` (the concave-convex procedure) starts there, and then puts the tangent at the last
  ``pi`` in their place, round by round: the objective rises, and beliefs that no longer move are a
  stationary point of Bethe's free energy at the potentials ``w·f`` *and* have the moments of the
  data;
* ``"cccp-empirical"`` takes the first tangent at the labels of the training data.

`fieldfit.learners.camel_rounds` has the rounds, and how one is solved.  This file is the objective
at given potentials, ``B(th) - <th, y>``, where ``B`` is what the concave problem or the rounds,
with the potentials fixed, end with: so it can be evaluated, compared and validated like any other
objective.

Reference: Ganapathi, Vickrey, Duchi and Koller, "Constrained approximate maximum entropy learning
of Markov random fields", Uncertainty in Artificial Intelligence (2008).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fieldfit._typing import LabelArray
from fieldfit._validation import require_integer, require_number, require_one_of
from fieldfit.entropy.counting_numbers import Convex
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.free_energy.double_loop import DoubleLoop
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.objectives.base import Evaluation, Inference, Objective
from fieldfit.objectives.likelihood import Likelihood

__all__ = ["Camel"]

VARIANTS = ("camel0", "cccp", "cccp-empirical")


@dataclass(frozen=True, kw_only=True)
class Camel(Objective):
    """Constrained approximate maximum entropy.

    Parameters
    ----------
    variant
        ``"camel0"``, ``"cccp"`` or ``"cccp-empirical"``, see above.
    solver
        How a round is solved.  ``"double-loop"``: a descent over the weights, with message passing
        inside that makes factors agree.  ``"joint"``: one descent over weights and the dual
        variables that make factors agree; a step costs about as much as one of piecewise training,
        but there are as many dual variables as there are beliefs, and many more steps.
    sides
        Which beliefs a linearised entropy is a function of, where two factors meet in a variable:
        those of ``"both"``, half and half, or of ``"one"``.  They agree in the end, so the answer
        is the same.  For the joint solver; in the double loop they always agree.
    start
        ``"piecewise"`` first learns with factors that need not agree, which is quick and a good
        start; ``"given"`` starts at the weights that the learner is given.
    smoothing
        For ``"cccp-empirical"``: weight of a uniform distribution in the empirical marginals.
    max_rounds
        Most rounds; the first one is counted.
    round_tol
        Converged when beliefs move by less than this (root mean square) in a round.
    tol
        Tolerance of message passing: of the double loop, and when the objective is evaluated.

    Notes
    -----
    Rounds need complete labels.  If some are missing, learners minimise the function that this
    object evaluates, ``B(th) - B(th; known labels)``, with the inference inside.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> value, gradient = Camel("camel0").value_and_grad(graph, ff.Potentials(graph), [0, 0, 1])
    >>> round(value, 6), gradient.unary(0)
    (2.772589, array([-0.5,  0.5]))
    """

    name: ClassVar[str] = "camel"
    problem_kind: ClassVar[str] = "camel"
    learner_name: ClassVar[str] = "camel-rounds"
    variant: Literal["camel0", "cccp", "cccp-empirical"] = field(default="cccp", kw_only=False)
    solver: Literal["joint", "double-loop"] = "double-loop"
    sides: Literal["both", "one"] = "both"
    start: Literal["piecewise", "given"] = "piecewise"
    smoothing: float = 0.1
    max_rounds: int = 50
    round_tol: float = 1e-3
    tol: float = 1e-6

    def __post_init__(self) -> None:
        require_one_of("variant", self.variant, VARIANTS)
        require_one_of("solver", self.solver, ("joint", "double-loop"))
        require_one_of("sides", self.sides, ("both", "one"))
        require_one_of("start", self.start, ("piecewise", "given"))
        require_number("smoothing", self.smoothing, above=0, at_most=1)
        require_integer("max_rounds", self.max_rounds, at_least=1)
        require_number("round_tol", self.round_tol, above=0)
        require_number("tol", self.tol, above=0)

    @property
    def inference(self) -> Inference:
        """What maximises the objective's entropy at given potentials."""
        if self.variant == "camel0":
            return SumProduct(entropy=Convex(unary=0.0), tol=self.tol)
        return DoubleLoop(tol=self.tol)

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """The surrogate likelihood whose ``B`` is the maximum above at fixed potentials."""
        return Likelihood(self.inference).evaluate(batch, potentials, labels, init)

    def prediction(self, graph: FactorGraph) -> Inference:
        """Message passing with the entropy of the objective.

        After rounds this is residual belief propagation, as in the paper: where Bethe's objective
        has several stationary points, it stays nearer to those of the rounds than a cold
        `DoubleLoop`, which climbs to the highest it can reach.
        """
        if self.variant == "camel0":
            return self.inference
        return SumProduct(schedule="residual", tol=self.tol)
