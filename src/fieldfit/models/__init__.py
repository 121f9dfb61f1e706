"""Estimators: models of the scikit-learn kind, from data to fitted weights and predictions.

    p(y | x) ∝ exp(<Phi(x) w, y>)

`base.py` has what all of them share; `conditional.py` the conditional random fields (grids, graphs
in `graphs/` and chains in `chain/`); `pairwise/` the Markov random fields that are learned from
samples (Ising, Potts); `mixture_field.py` coupled mixtures; `matching_crf.py` distributions over
matchings.  `dispatch.py` is the one table from (family of models, objective) to the problem that a
learner solves, and `parts.py` makes batches of examples.
"""

from fieldfit._registry import exports

__all__, __getattr__, __dir__ = exports(__name__)
