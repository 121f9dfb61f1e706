"""Turn variables round so that all pairs become submodular, where no cycle is frustrated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fieldfit.kernels.cuts import Pairs, four_entries, is_submodular
from fieldfit.kernels.max_flow import Network


@njit(cache=True, nogil=True, error_model="numpy")
def turn_round(structure: Any, network: Network, pairs: Pairs) -> bool:
    """Swap first and second labels until every pair is submodular; False if that is impossible.

    A search from any variable of a component decides for all others (Harary's balance of signed
    graphs, 1953); pairs without interaction do not matter.  Labels are unchanged if it fails.
    """
    n_variables = len(structure.cardinalities)
    turns = np.full(n_variables, -1, dtype=np.int8)
    queue = np.empty(n_variables, dtype=np.int32)
    for root in range(n_variables):
        if turns[root] >= 0:
            continue
        turns[root] = 0
        queue[0] = root
        n_seen, n_done = 1, 0
        while n_done < n_seen:
            i = queue[n_done]
            n_done += 1
            for arc in range(network.offsets[i], network.offsets[i + 1]):
                factor = structure.slot_factors[structure.variable_slots[arc]]
                t00, t01, t10, t11 = four_entries(structure, pairs, factor)
                agrees = is_submodular(t00, t01, t10, t11)
                if agrees and is_submodular(t01, t00, t11, t10):
                    continue
                j = network.heads[arc]
                turn = turns[i] if agrees else 1 - turns[i]
                if turns[j] < 0:
                    turns[j] = turn
                    queue[n_seen] = j
                    n_seen += 1
                elif turns[j] != turn:
                    return False
    for i in range(n_variables):
        if turns[i] == 1:
            pairs.first[i], pairs.second[i] = pairs.second[i], pairs.first[i]
    return True
