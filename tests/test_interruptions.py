"""Signals whose handlers raise: they cut a run off, at whatever moment, and never the process."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import fieldfit as ff

SOURCES = Path(ff.__file__).parent


def test_signals_cut_runs_off_and_not_the_process():
    """Before kernels were kept from it, about one signal in a thousand ended the process."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interruptions.py")), "1"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    counts = [int(n) for n in re.findall(r"(\d+) cut off", done.stdout)]
    assert len(counts) == 8
    assert sum(counts) > 100  # else nothing has been tried


def test_no_kernel_returns_named_tuples_to_python():
    """Numba makes them by calling Python, and goes on with a null pointer if that raises."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCES.rglob("*.py")}
    kernels, named = {}, set()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(
                ast.unparse(base) == "NamedTuple" for base in node.bases
            ):
                named.add(node.name)
            if is_kernel(node):
                kernels[node.name] = ast.unparse(node.returns)
    assert len(kernels) > 300
    returning = {name for name, type_ in kernels.items() if named & set(re.findall(r"\w+", type_))}
    called = {
        f"{path.relative_to(SOURCES)}: {name}"
        for path, tree in trees.items()
        for name in calls_from_python(tree) & returning & visible_kernels(tree, returning)
    }
    assert not called


def is_kernel(node):
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(mark).startswith("kernel") for mark in node.decorator_list
    )


def calls_from_python(node):
    """Names that are called outside kernels."""
    if is_kernel(node):
        return set()
    names = set().union(*map(calls_from_python, ast.iter_child_nodes(node)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        names.add(node.func.id)
    return names


def visible_kernels(tree, names):
    """Which of the names are imported in a module, or are kernels of its own."""
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return names & (imported | {node.name for node in ast.walk(tree) if is_kernel(node)})
