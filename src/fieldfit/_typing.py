"""Array types, one name for each element type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BoolArray",
    "ByteArray",
    "FloatArray",
    "Index",
    "IntArray",
    "LabelArray",
    "LabelMatrix",
    "LongArray",
]

FloatArray = NDArray[np.float64]
#: One index, of Python or of NumPy; kernels are given either.
Index = int | np.integer[Any]
#: Indices and offsets of graphs; 32 bits, half the memory traffic.
IntArray = NDArray[np.int32]
#: Indices that may exceed 2^31, and whatever NumPy returns as an index.
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
ByteArray = NDArray[np.uint8]
#: One label for each variable, -1 = unobserved.
LabelArray = NDArray[np.int32]
#: One row for each sample of a generative model.
LabelMatrix = NDArray[np.int16]
