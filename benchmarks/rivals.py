"""What fieldfit is measured against in this process: our own C++ (the limit) and NumPy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems import Problem

FLAGS = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
SOURCE = Path(__file__).with_name("limit.cpp")


def compile_limit(n_labels: int) -> Any | None:
    """The C++ kernels for a number of labels, or None without a compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    target = Path(tempfile.mkdtemp()) / f"limit{n_labels}.so"
    subprocess.run(
        [compiler, *FLAGS, f"-DLABELS={n_labels}", str(SOURCE), "-o", str(target)], check=True
    )
    library = ctypes.CDLL(str(target))
    library.sweep_blocked.restype = ctypes.c_double
    library.sweep_plain.restype = ctypes.c_double
    return library


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Limit:
    """The two C++ sweeps on one problem, fed with the plan that fieldfit itself runs."""

    def __init__(self, problem: Problem, plan: Any, structure: Any) -> None:
        self.library = compile_limit(problem.n_labels)
        n_labels, n_edges = problem.n_labels, len(problem.edges)
        self.plan, self.structure = plan, structure
        self.unary = np.ascontiguousarray(problem.unary).ravel()
        top = problem.pairwise.max(axis=(1, 2), keepdims=True)
        self.exp_table = np.exp(problem.pairwise - top).ravel()
        self.message = np.zeros(2 * n_edges * n_labels)
        self.following = np.zeros_like(self.message)
        self.log_belief = (problem.unary - problem.unary.max(axis=1, keepdims=True)).ravel()
        self.sources = np.ascontiguousarray(problem.edges[:, ::-1]).ravel().astype(np.int32)

    def blocked(self) -> float:
        plan, structure = self.plan, self.structure
        arrays = [
            plan.pair_offsets, plan.pair_target, plan.pair_source, plan.pair_factor,
            plan.variable_offsets, plan.variables, structure.variable_slot_offsets,
            structure.variable_slots, self.unary, self.exp_table, self.message, self.log_belief,
        ]  # fmt: skip
        n_levels = ctypes.c_int64(len(plan.variable_offsets) - 1)
        return float(self.library.sweep_blocked(n_levels, *map(_pointer, arrays)))

    def plain(self) -> float:
        structure = self.structure
        arrays = [
            self.sources, structure.variable_slot_offsets, structure.variable_slots, self.unary,
            self.exp_table, self.message, self.following,
        ]  # fmt: skip
        count = ctypes.c_int64(len(self.sources))
        change = float(self.library.sweep_plain(count, *map(_pointer, arrays)))
        self.message, self.following = self.following, self.message
        return change


class NumpyFlooding:
    """Vectorised flooding in the log domain, the way NumPy libraries of the field write it.

    One column for each directed edge, a sparse matrix product to sum incoming messages, and a full
    log-sum-exp over the K x K x 2E array of tables.
    """

    def __init__(self, problem: Problem) -> None:
        from scipy.sparse import csr_matrix

        n, n_edges = len(problem.unary), len(problem.edges)
        ends = problem.edges
        self.sender = np.concatenate([ends[:, 0], ends[:, 1]])
        receiver = np.concatenate([ends[:, 1], ends[:, 0]])
        self.reverse = np.concatenate([np.arange(n_edges, 2 * n_edges), np.arange(n_edges)])
        ones = np.ones(2 * n_edges)
        self.incidence = csr_matrix((ones, (receiver, np.arange(2 * n_edges))), (n, 2 * n_edges))
        tables = problem.pairwise.transpose(1, 2, 0)
        self.tables = np.concatenate([tables, tables.transpose(1, 0, 2)], axis=2)
        self.unary = np.ascontiguousarray(problem.unary.T)
        self.message = np.zeros((problem.n_labels, 2 * n_edges))

    def sweep(self) -> float:
        beliefs = self.unary + self.incidence.dot(self.message.T).T
        incoming = beliefs[:, self.sender] - self.message[:, self.reverse]
        joint = self.tables + incoming[:, None, :]
        top = joint.max(axis=0)
        new = np.log(np.exp(joint - top).sum(axis=0)) + top
        new -= new.max(axis=0)
        change = float(np.abs(new - self.message).max())
        self.message = new
        return change

    def marginals(self) -> NDArray[np.float64]:
        beliefs = self.unary + self.incidence.dot(self.message.T).T
        weights = np.exp(beliefs - beliefs.max(axis=0))
        return (weights / weights.sum(axis=0)).T
