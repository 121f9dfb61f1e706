"""Factor graphs, their numbers, batches of them, and the map from weights to potentials.

    s(y) = sum_i th_i(y_i) + sum_a th_a(y_a),        p(y) = exp(s(y) - A(th)),        th = Phi w

`factor_graph` holds the structure in flat index arrays (`structure`), `potentials` the numbers
``th`` and the beliefs in the same layout, `batch` the disjoint union of many graphs, `template` the
linear map ``Phi``, `spanning_forests` the trees that schedules and entropies are made of, `ragged`
the arithmetic of rows of different lengths, and `result` what inferences return.
"""

from fieldfit._registry import exports

__all__, __getattr__, __dir__ = exports(__name__)
