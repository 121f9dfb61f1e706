"""The package as a whole: public names, layers, import time, no recompilation."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest
from problems import random_graph, random_tables

import fieldfit as ff
from fieldfit import kernels

ROOT = Path(ff.__file__).parent

#: The parts of the public contract that exist so far: name -> arguments that users may rely on.
CONTRACT = {
    "FactorGraph": ("cardinalities", "scopes"),
    "FactorGraph.grid": ("height", "width", "n_labels"),
    "FactorGraph.chain": ("n_variables", "n_labels"),
    "FactorGraph.from_edges": ("n_variables", "edges", "n_labels"),
    "Potentials": ("graph", "unary", "factors"),
    "SumProduct": ("entropy", "schedule", "damping", "tol", "max_iter"),
    "SumProduct.run": ("graph", "potentials", "observed"),
    "MeanField.run": ("graph", "potentials", "observed"),
    "Exact.run": ("graph", "potentials", "observed"),
    "BruteForce.run": ("graph", "potentials", "observed"),
    "Gibbs": ("n_sweeps", "burn_in", "random_state"),
    "Gibbs.run": ("graph", "potentials", "observed"),
    "Bethe": (),
    "TreeReweighted": ("rho",),
    "Convex": ("unary", "factor"),
    "MaxProduct.run": ("graph", "potentials"),
    "ExactMap.run": ("graph", "potentials"),
    "infer": ("graph", "potentials", "method"),
    "read_uai": (),
    "read_fg": (),
    "write_uai": ("path", "graph", "potentials"),
    "write_fg": ("path", "graph", "potentials"),
}

RESULT_FIELDS = {
    ff.InferenceResult: (
        "beliefs", "log_partition", "bound", "converged", "n_iter", "residual", "status",
    ),
    ff.MapResult: ("labels", "score", "upper_bound", "optimal", "status"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRACT)
def test_contract_names_and_arguments(name):
    target = ff
    for part in name.split("."):
        target = getattr(target, part)
    given = set(inspect.signature(target).parameters)
    missing = [argument for argument in CONTRACT[name] if argument not in given]
    assert not missing, f"ff.{name} lacks {missing}, has {sorted(given)}"


@pytest.mark.parametrize("result", RESULT_FIELDS, ids=lambda c: c.__name__)
def test_contract_fields_of_results(result):
    assert set(RESULT_FIELDS[result]) <= {field.name for field in fields(result)}


def test_public_names_exist_and_are_sorted():
    assert list(ff.__all__) == sorted(ff.__all__, key=lambda name: (not name.isupper(), name))
    for name in ff.__all__:
        assert getattr(ff, name).__doc__, f"{name} has no docstring"


def test_options_and_results_are_frozen():
    for name in ("SumProduct", "MeanField", "Exact", "BruteForce", "Gibbs", "MaxProduct",
                 "ExactMap", "Bethe", "Convex", "TreeReweighted", "InferenceResult",
                 "MapResult"):  # fmt: skip
        target = getattr(ff, name)
        assert is_dataclass(target), name
        assert target.__dataclass_params__.frozen, name


# -- layers -------------------------------------------------------------------------------

#: What each layer may import; `errors` is open to all.
LAYERS = {
    "kernels": {"kernels"},
    "core": {"kernels", "core"},
    "inference": {"kernels", "core", "inference"},
    "oracle": {"kernels", "core", "inference", "oracle"},
    "adjoint": {"kernels", "core", "inference", "oracle", "adjoint"},
    "io": {"kernels", "core", "io"},
    "features": {"features"},
    "objective": {"kernels", "core", "inference", "oracle", "adjoint", "objective"},
    "learner": {"kernels", "core", "inference", "oracle", "adjoint", "io", "objective", "learner"},
    "estimators": {
        *("kernels", "core", "inference", "oracle", "adjoint", "io", "objective", "learner"),
        *("estimators", "metrics", "plot"),
    },
}


def imported_layers(source: str) -> set[str]:
    """Sub-packages of fieldfit that a file imports, anywhere in it."""
    layers = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "fieldfit":
                layers.add(parts[1] if len(parts) > 1 else "the package itself")
    return layers - {"errors"}


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_one_way(layer):
    files = sorted((ROOT / layer).glob("*.py"))
    assert files
    for path in files:
        wrong = imported_layers(path.read_text()) - LAYERS[layer]
        assert not wrong, f"{layer}/{path.name} imports {sorted(wrong)}"


def test_nothing_below_the_command_imports_the_command():
    for path in ROOT.rglob("*.py"):
        if path.parent.name != "cli" and path.name != "__main__.py":
            assert "cli" not in imported_layers(path.read_text()), path


def test_nothing_in_the_package_imports_the_experiments():
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "experiments" for name in names), path


def test_the_import_check_can_fail():
    assert imported_layers("from fieldfit.cli.main import main") == {"cli"}
    assert imported_layers("def f():\n    import fieldfit.inference.auto") == {"oracle"}
    assert imported_layers("import fieldfit") == {"the package itself"}
    assert imported_layers("from fieldfit import kernels, errors") == {"kernels"}
    assert imported_layers("import numpy") == set()


# -- import time --------------------------------------------------------------------------

MEASURE = """
import sys, time
start = time.process_time()
import fieldfit
print(time.process_time() - start)
# Numba imports the top of scipy by itself, which is cheap; its sub-packages are not
parts = {name.split(".")[1] for name in sys.modules if name.startswith("scipy.")}
heavy = {part for part in parts if not part.startswith("_") and part != "version"}
heavy |= {name for name in ("sklearn", "matplotlib", "tqdm", "safetensors") if name in sys.modules}
print(*sorted(heavy))
"""


def test_import_is_quick_and_light():
    """Processor time, best of three, beside that of Numba alone: machines differ, and vary."""
    seconds, alone = [], []
    for _ in range(3):
        numba = subprocess.run(
            [sys.executable, "-c", MEASURE.split("print")[0].replace("fieldfit", "numba")
             + "print(time.process_time() - start)"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        alone.append(float(numba))
        answer = subprocess.run(
            [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True
        ).stdout.split("\n")
        assert answer[1] == "", f"import fieldfit also imports {answer[1]}"
        seconds.append(float(answer[0]))
    limit = max(0.7, 2.0 * min(alone))
    assert min(seconds) < limit, f"import fieldfit takes {min(seconds):.2f} s"


# -- compilation --------------------------------------------------------------------------


def count_signatures() -> dict[str, int]:
    """Number of compiled versions of every kernel that has been loaded."""
    counts = {}
    prefix = kernels.__name__ + "."
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(prefix):
            for name, value in vars(module).items():
                if hasattr(value, "signatures") and hasattr(value, "py_func"):
                    counts[f"{module_name}.{name}"] = len(value.signatures)
    return counts


def run_everything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(
        rng, int(rng.integers(2, 6)), int(rng.integers(1, 7)), max_arity=3, max_labels=4
    )
    potentials = random_tables(rng, graph, zeros=0.2 * (seed % 2))
    schedule = ("flooding", "sequential", "tree", "residual")[seed % 4]
    entropy = (ff.Bethe(), ff.TreeReweighted(), ff.Convex())[seed % 3]
    if seed % 7 == 0:
        potentials.unary_values.flags.writeable = False
        potentials.factor_values.flags.writeable = False
    ff.SumProduct(entropy=entropy, schedule=schedule, max_iter=50).run(graph, potentials)
    ff.MaxProduct(max_iter=20).run(graph, potentials)
    if seed % 10 == 0:
        ff.MeanField(max_iter=20).run(graph, potentials)
        ff.Exact().run(graph, potentials)


def test_new_graphs_compile_nothing():
    """Kernels are compiled by number of labels and never by graph."""
    chain = ff.FactorGraph.chain(3, 2)
    ff.MeanField().run(chain, ff.Potentials(chain))  # binary pairs have sweeps of their own
    for seed in range(300):
        run_everything(seed)
    before = count_signatures()
    assert sum(before.values()) > 20
    for seed in range(300, 1300):
        run_everything(seed)
    after = count_signatures()
    new = {
        name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name)
    }
    assert not new, f"compiled again: {new}"


def test_a_changed_source_discards_all_compiled_kernels(tmp_path):
    (tmp_path / "caller.py").write_text("first")
    (tmp_path / "callee.py").write_text("second")
    kernels.discard_outdated_kernels(tmp_path)
    compiled = tmp_path / "__pycache__" / "caller.nbi"
    compiled.write_text("code")
    kernels.discard_outdated_kernels(tmp_path)
    assert compiled.exists()
    (tmp_path / "callee.py").write_text("third!")  # same size, perhaps the same time
    kernels.discard_outdated_kernels(tmp_path)
    assert not compiled.exists()
