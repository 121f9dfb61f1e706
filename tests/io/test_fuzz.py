"""Files that were tampered with are read or refused; none crashes a reader."""

from __future__ import annotations

import pytest

from benchmarks.fuzz import fuzz, tried
from benchmarks.fuzz_corpus import Format, formats
from fieldfit.errors import FileFormatError

N_MUTANTS = 2000


def test_examples_are_read(tmp_path):
    """Otherwise their mutants would say nothing."""
    for one in formats(tmp_path):
        for example in one.examples:
            assert tried(one, example) == "read", one.name


def test_mutants_are_read_or_refused():
    report = fuzz(N_MUTANTS, seed=0)
    assert report.crashes == {}
    assert report.n_mutants == N_MUTANTS
    # most mutants break something, and some are as good as the original
    assert report.refused.total() > N_MUTANTS / 2
    assert report.read.total() > N_MUTANTS / 50


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        (lambda data: None, "read"),
        (lambda data: _raise(FileFormatError("file: expected a number, found 'x'")), "refused"),
        (lambda data: _raise(FileFormatError("two\nlines")), "no sentence"),
        (lambda data: {}["x"], "KeyError"),
        (lambda data: _raise(MemoryError()), "MemoryError"),
        (lambda data: bytearray(data) * 2**62, "MemoryError"),
    ],
)
def test_what_counts_as_a_crash(read, verdict):
    one = Format("toy", (b"0",), lambda data, rng, other: data, read)
    assert tried(one, b"0").startswith(verdict)


def _raise(error):
    raise error
