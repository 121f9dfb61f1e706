"""Bad values at every public entry point: one sentence of ours that names the argument."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import bad_input
import bad_input_features
import bad_input_learners
import pytest
from bad_input import names_argument, write_examples

import fieldfit as ff
from fieldfit.errors import InvalidInputError

PACKAGE = str(Path(ff.__file__).parent)
ENTRIES = {
    entry.name: entry
    for table in (bad_input, bad_input_features, bad_input_learners)
    for entry in table.entries()
}
CASES = {
    f"{entry.name}({argument}={name})": (entry, argument, value)
    for entry in ENTRIES.values()
    for argument, name, value in entry.cases()
}


@pytest.fixture(scope="module", autouse=True)
def folder_with_examples(tmp_path_factory):
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("files"))
    write_examples()
    yield
    os.chdir(before)


def test_the_table_is_large():
    assert len(CASES) >= 1000


@pytest.mark.parametrize("name", ENTRIES)
def test_good_values_are_taken(name):
    """Otherwise the cases below would say nothing about the value that is bad."""
    ENTRIES[name].call(**ENTRIES[name].given)


@pytest.mark.parametrize("case", CASES)
def test_bad_values_are_refused_in_a_sentence(case):
    entry, argument, value = CASES[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        entry.call(**{**entry.given, argument: value})
    error, message = caught.value, str(caught.value)
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.filename.startswith(PACKAGE), f"{last.filename}: {error!r}"
    assert isinstance(error, InvalidInputError), repr(error)
    assert names_argument(message, argument), message
    assert "\n" not in message, message
