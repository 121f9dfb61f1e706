"""Learners: from an objective on potentials to weights.

    weights = argmin over w of  sum over examples of objective(Phi w, y) + l2/2 |w|^2 + l1 |w|_1

A `Problem` (`problem.py`) is the sum as a function of the weights, with its gradient, part by part;
problems with complete labels also show their sufficient statistics (`linear_model.py`) or the
blocks of their dual (`dual_blocks.py`).  A `Learner` (`base.py`) minimises it: `LBFGS` (OWL-QN with
an L1 penalty), `Adam` and `SGD` over mini-batches, CAMEL's rounds, Frank-Wolfe and Newton on the
dual, and closed forms.  All iterate in one loop (`loop.py`) with one trace, one rule for early
stopping and checkpoints that resume bit by bit (`checkpoint.py`).  `registry.py` picks the learner.
"""

from fieldfit._registry import exports

__all__, __getattr__, __dir__ = exports(__name__)
