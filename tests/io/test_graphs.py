"""Files of graphs: what is read, and what is refused (`test_cli_fit.py` has the bad lines)."""

from __future__ import annotations

import gzip
import io

import pytest
from numpy.testing import assert_array_equal

from fieldfit.errors import FileFormatError
from fieldfit.io.graphs import read_graphs

TEXT = b"""\
{"nodes": [[0.5, 1], [0.1, 2]], "edges": [[1, 0]], "edge_features": [[0.3]], "labels": [0, null]}

{"nodes": [[3, 4]], "edges": [], "edge_features": [], "labels": [-1]}
"""


@pytest.mark.parametrize("data", [TEXT, gzip.compress(TEXT), TEXT.replace(b"\n", b"\r\n")])
def test_read(data):
    found = read_graphs(io.BytesIO(data))
    nodes, edges, features = found.graphs[0]
    assert_array_equal(nodes, [[0.5, 1.0], [0.1, 2.0]])
    assert_array_equal(edges, [[1, 0]])
    assert_array_equal(features, [[0.3]])
    assert found.graphs[1][1].shape == (0, 2)
    assert [labels.tolist() for labels in found.labels] == [[0, -1], [-1]]
    assert found.places == ["<stream>, line 1", "<stream>, line 3"]


def test_labels_are_not_needed():
    assert read_graphs(io.BytesIO(TEXT), with_labels=False).labels is None
    bare = b'{"nodes": [[1], [2]], "edges": [[0, 1]]}'
    assert len(read_graphs(io.BytesIO(bare), with_labels=False).graphs[0]) == 2
    with pytest.raises(FileFormatError, match=r"line 1.*'labels'"):
        read_graphs(io.BytesIO(bare))


@pytest.mark.parametrize(
    "line",
    [
        b'{"nodes": [[1], [2, 3]], "edges": []}',
        b'{"nodes": [1, 2], "edges": []}',
        b'{"nodes": [["a"]], "edges": []}',
        b'{"nodes": [[true]], "edges": []}',
        b'{"nodes": [[1], [2]], "edges": [[0.0, 1.5]]}',
        b'{"nodes": [[1], [2]], "edges": [[0, 1]], "edge_features": []}',
        b'{"nodes": {"a": 1}, "edges": []}',
        b'{"nodes": null, "edges": []}',
        b'{"nodes": [[1]], "edges": 0}',
        b'{"nodes": [[1]]}',
        b"null",
        b'{"nodes": [[1]], "edges": []',
        b"\xff",
    ],
)
def test_refused(line):
    with pytest.raises(FileFormatError, match="line 2: expected"):
        read_graphs(io.BytesIO(b"\n" + line), with_labels=False)
