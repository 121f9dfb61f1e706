"""Learning Markov and conditional random fields whose exact inference is out of reach.

An example is a factor graph with tied log-linear potentials; an inference turns potentials into
beliefs; an objective turns beliefs and labels into a value and a gradient; a learner moves the
weights.  Start with an estimator such as `GridCRF` or `ChainCRF`, or with `FactorGraph`,
`Potentials` and `infer`.

The names that most programs need are here; the others are in ``fieldfit.graph``, ``entropy``,
``inference``, ``objectives``, ``learners``, ``models``, ``io`` and ``errors``.  All are imported
when they are first used, and listed in one table, `fieldfit._registry`.
"""

from importlib import import_module as _import_module
from typing import Any

from fieldfit._registry import NAMESPACES, PUBLIC, exports

__version__ = "0.1.0"

__all__, _find, __dir__ = exports(__name__)


def __getattr__(name: str) -> Any:
    if name in NAMESPACES:
        return _import_module(f"fieldfit.{name}")
    if name in PUBLIC and not PUBLIC[name].top:
        return _moved(name)
    value = globals()[name] = _find(name)
    return value


def _moved(name: str) -> Any:
    """A name that was here in version 0.1 and has moved to a sub-namespace."""
    import warnings

    entry = PUBLIC[name]
    warnings.warn(
        f"fieldfit.{name} is now fieldfit.{entry.namespace}.{name}; the old name will go in the "
        "next release",
        DeprecationWarning,
        stacklevel=3,
    )
    return entry.load()
