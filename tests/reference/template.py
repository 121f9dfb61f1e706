"""A template as one dense matrix, entry by entry."""

from __future__ import annotations

import numpy as np


def dense_features(block):
    if block.features is None:
        return np.ones((len(block.starts), 1))
    return block.features.toarray() if hasattr(block.features, "toarray") else block.features


def dense_matrix(template):
    """``Phi``: rows are unary entries, then table entries; columns are weights."""
    graph = template.graph
    n_unary = int(graph.unary_offsets[-1])
    matrix = np.zeros((n_unary + int(graph.table_offsets[-1]), template.n_weights))
    first = 0
    for block in template.blocks:
        features = dense_features(block)
        shift = 0 if block.part == "unary" else n_unary
        for table, start in enumerate(block.starts):
            for entry, group in enumerate(block.groups):
                if group < 0:
                    continue
                for feature in range(features.shape[1]):
                    column = first + feature * block.n_groups + group
                    matrix[shift + start + entry, column] += features[table, feature]
        first += block.n_weights
    return matrix
