"""Objectives (loss functions) of learning: values and gradients on potentials.

    values_m = L(th_m, y_m),    gradient = d sum_m L / d th

``base`` says what an objective is and declares, ``registry`` has the names.  Likelihoods:
``likelihood`` (exact and surrogate), ``camel``, ``mle_struct``, ``moment_matching``.  Composite
likelihoods: ``pseudo_likelihood`` (with ``block_likelihood`` and ``block_conditioning``),
``piecewise``.  Contrastive: ``contrastive`` (free energies), ``contrastive_divergence``.  Margins:
``max_margin``.  Losses on marginals: ``marginal_losses``, trained by ``implicit_loss`` or
``procedural_loss``.
"""

from fieldfit._registry import exports

__all__, __getattr__, __dir__ = exports(__name__)
