"""Docstrings of the public names, which the reference shows: summary, parameters, returns."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from fieldfit._registry import public_paths

docscrape = pytest.importorskip("numpydoc.docscrape", reason="needs pip install 'fieldfit[docs]'")

PATHS = sorted(public_paths())


def load(path):
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def documented(path):
    target = load(path)
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        pytest.skip("a constant or an alias")
    return target, docscrape.NumpyDocString(inspect.getdoc(target) or "")


def names_in(sections):
    return {name.strip(" *") for row in sections for name in row.name.split(",")}


@pytest.mark.parametrize("path", PATHS)
def test_summary_and_parameters(path):
    target, doc = documented(path)
    assert doc["Summary"], "no summary"
    assert len(" ".join(doc["Summary"])) < 200, "the summary is one sentence"
    if inspect.isclass(target) and issubclass(target, BaseException):
        return
    known = names_in(doc["Parameters"]) | names_in(doc["Attributes"])
    taken = [name for name in inspect.signature(target).parameters if not name.startswith("_")]
    missing = [name for name in taken if name not in known | {"self", "args", "kwargs"}]
    assert not missing, f"Parameters lacks {missing}"
    assert all(row.desc for row in doc["Parameters"])
    assert all(row.desc or row.type for row in doc["Attributes"])


@pytest.mark.parametrize("path", PATHS)
def test_functions_say_what_they_return(path):
    target, doc = documented(path)
    if inspect.isfunction(target):
        returns = inspect.signature(target).return_annotation not in (None, "None")
        assert bool(doc["Returns"] or doc["Yields"]) == returns


@pytest.mark.parametrize("path", [path for path in PATHS if path.count(".") == 1])
def test_names_of_the_package_itself_have_an_example(path):
    target, doc = documented(path)
    if inspect.isclass(target) and issubclass(target, BaseException):
        pytest.skip("raised, not called")
    assert doc["Examples"] or path == "fieldfit.InferenceResult"
