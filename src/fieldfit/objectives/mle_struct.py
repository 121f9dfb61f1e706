"""MLE-Struct: likelihood with a concave entropy, learned by Frank-Wolfe in the dual (MAP oracles).

    minimise over w   sum_m [ B(Phi_m w) - <w, phi(y_m)> ] + lambda/2 |w|^2
    B(th) = max over tau of <th, tau> + H_c(tau)

Maximum over beliefs and minimum over weights change places, and the best weights for given beliefs
are ``w(tau) = 1/lambda sum_m (phi(y_m) - phi(tau_m))``.  What is left is a concave function of the
beliefs of all examples,

    maximise over tau   sum_m H_c(tau_m) - 1/(2 lambda) |sum_m phi(y_m) - phi(tau_m)|^2

over a product of polytopes, whose linear problems are MAP searches, one for each example.  There is
no inference inside a loop, and `fieldfit.learners.dual_frank_wolfe` maximises it (block-coordinate
and pairwise Frank-Wolfe) with a certificate: the duality gap bounds how far the weights are from
the optimum.

References: Tang, Ruozzi, Belanger and Jebara, "Bethe learning of graphical models via MAP
decoding", AISTATS (2016); Lacoste-Julien, Jaggi, Schmidt and Pletscher, "Block-coordinate
Frank-Wolfe optimization for structural SVMs", ICML (2013).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from fieldfit._typing import LabelArray
from fieldfit._validation import require_instance, require_number, require_one_of
from fieldfit.entropy.counting_numbers import Entropy, TreeReweighted
from fieldfit.errors import InvalidInputError
from fieldfit.graph.batch import Batch
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Potentials
from fieldfit.inference.frank_wolfe.frank_wolfe import FrankWolfe, concave_counting_numbers
from fieldfit.inference.map.base import MapSearch, require_oracle
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.objectives.base import Evaluation, Inference, Objective
from fieldfit.objectives.likelihood import Likelihood

__all__ = ["MLEStruct"]

#: Tolerance of message passing, where the objective is evaluated by that.
MESSAGE_TOL = 1e-10


@dataclass(frozen=True, kw_only=True)
class MLEStruct(Objective):
    """Likelihood with a concave entropy, for Frank-Wolfe steps in the dual.

    Parameters
    ----------
    entropy
        Must be concave on every graph: `TreeReweighted()`, or `Bethe()` on trees.
    oracle
        A MAP search.  ``None`` picks one over the local polytope: `MaxProduct`
        on trees, `RoofDuality` for binary pairs, `LinearProgram` otherwise.  Only for
        ``points="vertices"``.
    step
        ``"line-search"``: the best step.  ``"fixed"``: ``2 / (t + 2)`` for batches of all examples
        and ``2M / (t + 2M)`` for blocks, without looking.  ``"quasi-newton"``: L-BFGS moves the
        weights, blocks follow by messages, and MAP searches certify
        (`learners/dual_quasi_newton.py`); needs ``points="marginals"``; ``mode``, ``directions``
        and ``start`` do not matter.
    mode
        ``"block"``: weights move after every example.  ``"batch"``: after a search for every
        example.
    directions
        ``"pairwise"`` keeps the points that were found as atoms of an active set, and moves weight
        between them before the next search.  ``"frank-wolfe"`` moves towards the new point and
        forgets it: many more searches, but hardly any memory.
    points
        ``"vertices"``: MAP searches find them, and nothing else is needed.  ``"marginals"``: the
        beliefs at the current weights, by message passing, are the next point, and MAP searches
        only certify.  Few of these do where many vertices are needed, so this is much faster for
        large examples.  For bipartite matchings the weights move by Newton's method
        (`learners/dual_newton.py`).
    start
        ``"uniform"`` beliefs, or nearly those of the ``"labels"``.  Then weights start near zero
        and grow from example to example, which is faster where the penalty is large; from uniform
        beliefs they start at ``1 / l2`` times the first gradient.
    tol
        Converged when the gap is below this fraction of the objective.

    Notes
    -----
    Needs ``l2 > 0`` and complete labels.  If some are missing, learners minimise
    ``B(th) - B(th; known labels)`` by message passing with the same entropy.

    Examples
    --------
    >>> import fieldfit as ff
    >>> graph = ff.FactorGraph.chain(3, 2)
    >>> value, gradient = MLEStruct().value_and_grad(graph, ff.Potentials(graph), [0, 0, 1])
    >>> round(value, 6), gradient.unary(0)
    (2.079442, array([-0.5,  0.5]))
    """

    name: ClassVar[str] = "mle-struct"
    problem_kind: ClassVar[str] = "dual"
    learner_name: ClassVar[str] = "dual-frank-wolfe"
    entropy: Entropy = field(default_factory=TreeReweighted, kw_only=False)
    oracle: MapSearch | None = None
    step: Literal["line-search", "fixed", "quasi-newton"] = "line-search"
    mode: Literal["block", "batch"] = "block"
    directions: Literal["pairwise", "frank-wolfe"] = "pairwise"
    points: Literal["vertices", "marginals"] = "vertices"
    start: Literal["uniform", "labels"] = "uniform"
    tol: float = 1e-4

    def __post_init__(self) -> None:
        require_instance("entropy", self.entropy, Entropy, "TreeReweighted() or Bethe()")
        require_oracle(self.oracle)
        require_one_of("step", self.step, ("line-search", "fixed", "quasi-newton"))
        require_one_of("mode", self.mode, ("block", "batch"))
        require_one_of("directions", self.directions, ("pairwise", "frank-wolfe"))
        require_one_of("points", self.points, ("vertices", "marginals"))
        require_one_of("start", self.start, ("uniform", "labels"))
        require_number("tol", self.tol, above=0)
        if self.step == "quasi-newton" and self.points != "marginals":
            raise InvalidInputError(
                "points must be 'marginals' for step='quasi-newton', whose beliefs come from "
                f"messages, got {self.points!r}"
            )
        if self.points == "marginals" and self.oracle is not None:
            # an oracle of labellings searches a smaller polytope: its gap would prove nothing
            raise InvalidInputError(
                "oracle must be None for points='marginals', whose messages stay in the local "
                f"polytope, got {self.oracle!r}"
            )
        if self.step == "fixed" and self.directions == "pairwise":
            raise InvalidInputError(
                "step must be 'line-search' for pairwise directions, got 'fixed'; fixed steps go "
                "with directions='frank-wolfe'"
            )

    def evaluate(
        self, batch: Batch, potentials: Potentials, labels: LabelArray, init: Any = None
    ) -> Evaluation:
        """The surrogate likelihood, by message passing."""
        concave_counting_numbers(self.entropy, batch.graph)
        inference = SumProduct(entropy=self.entropy, tol=MESSAGE_TOL)
        return Likelihood(inference).evaluate(batch, potentials, labels, init)

    def prediction(self, graph: FactorGraph) -> Inference:
        """Message passing with the same entropy; by the oracle, where one was given.

        Over the local polytope both have the same answer.  An oracle of labellings stands for a
        smaller polytope, which message passing does not see.
        """
        if self.oracle is None:
            return SumProduct(entropy=self.entropy)
        return FrankWolfe(self.oracle, entropy=self.entropy)
