"""Parameters of entropy weights: a template whose potentials are logarithms of factors of weights.

    w = w0 exp(s(Psi v)),      s(x) = W tanh(x / W),      W = log 1000

``w0`` are the weights of an entropy, ``v`` the parameters, and ``Psi`` a `Template` like the one
that makes potentials: so weights stay positive, are the entropy's own at ``v = 0`` (to which a
penalty pulls them), and follow features in the same way.  ``s`` is the identity near zero and keeps
weights within a factor of 1000: a search along a line may ask for any, and beliefs under weights of
very different size are as hard to find as those of a linear program.  Multiplying all weights and
potentials with one number changes no belief; the penalty settles that, too.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fieldfit.core.entropy_weights import EntropyWeights
from fieldfit.core.potentials import Potentials
from fieldfit.core.template import Block, Template
from fieldfit.errors import InvalidInputError

__all__ = ["TIES", "EntropyTies", "entropy_gradient", "entropy_template", "scaled_weights"]

FloatArray = NDArray[np.float64]
EntropyTies = Literal["tied", "configuration", "features"]

TIES = ("tied", "configuration", "features")
#: ``W``.
WIDEST = float(np.log(1000.0))


def entropy_template(template: Template, ties: EntropyTies) -> Template:
    """Parameters for the weights of variables and of the tables that a template has.

    ``"tied"`` has one number for all variables and one for all tables of a block of factors,
    ``"configuration"`` one for each entry of these, and ``"features"`` one for each entry and
    feature of every block.  Where blocks of factors with and without features share tables,
    those without stand for both.
    """
    if ties == "features":
        chosen = list(template.blocks)
    else:
        factors = [block for block in template.blocks if block.part == "factors"]
        constant = [block for block in factors if type(block) is Block and block.features is None]
        chosen = [Block.unary(template.graph), *(constant or factors)]
    blocks = []
    for block in chosen:
        if type(block) is not Block:
            raise InvalidInputError(
                f"entropy weights need plain blocks of tables, got {type(block).__name__} "
                f"{block.name!r}"
            )
        size = len(block.groups)
        groups = np.zeros(size, dtype=np.int64) if ties == "tied" else np.arange(size)
        features = block.features if ties == "features" else None
        blocks.append(Block(f"entropy of {block.name}", block.part, block.starts, groups, features))
    return Template(template.graph, blocks)


def scaled_weights(base: EntropyWeights, logs: Potentials) -> EntropyWeights:
    """``w0 exp(s(logs))``."""
    return EntropyWeights.from_flat(
        base.graph,
        base.unary_values * np.exp(WIDEST * np.tanh(logs.unary_values / WIDEST)),
        base.factor_values * np.exp(WIDEST * np.tanh(logs.factor_values / WIDEST)),
    )


def entropy_gradient(
    weights: EntropyWeights, logs: Potentials, by_weights: Potentials
) -> Potentials:
    """The derivative by ``logs`` from that by weights."""
    return Potentials.from_flat(
        weights.graph,
        _by_logs(weights.unary_values, logs.unary_values, by_weights.unary_values),
        _by_logs(weights.factor_values, logs.factor_values, by_weights.factor_values),
    )


def _by_logs(weights: FloatArray, logs: FloatArray, by_weights: FloatArray) -> FloatArray:
    return weights * by_weights * (1.0 - np.tanh(logs / WIDEST) ** 2)
