"""What was made for a graph (plans, counting numbers), kept as long as the graph lives.

Modules that make such things have a `Memo` each; `memos_of` takes out all of them, for whoever
stores a graph and wants it back as it was.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from fieldfit.graph.factor_graph import FactorGraph

__all__ = ["Memo", "give_memos", "memos_of"]


class Memo(WeakKeyDictionary[FactorGraph, Any]):
    """Things of one kind by graph; they must not refer to the graph, which would never go."""

    def __init__(self, name: str) -> None:
        super().__init__()
        _MEMOS[name] = self


_MEMOS: dict[str, Memo] = {}


def memos_of(graph: FactorGraph) -> dict[str, Any]:
    """All that is kept for a graph, by the name of the memo."""
    return {name: memo[graph] for name, memo in _MEMOS.items() if graph in memo}


def give_memos(graph: FactorGraph, found: dict[str, Any]) -> None:
    """Keep it for another graph of the same structure."""
    for name, kept in found.items():
        _MEMOS[name][graph] = kept
