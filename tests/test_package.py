"""The package as a whole: public names, layers, light imports, no recompilation."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest
from problems import random_graph, random_tables

import fieldfit as ff
from fieldfit._registry import NAMESPACES, find, names_of, stub
from fieldfit.numeric.compile import discard_outdated_kernels

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


@pytest.mark.parametrize("namespace", ["", *NAMESPACES])
def test_stubs_are_those_of_the_registry(namespace):
    """For editors and type checkers; ``make stubs`` writes them."""
    if (ROOT / namespace).is_dir():
        assert (ROOT / namespace / "__init__.pyi").read_text() == stub(namespace)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_namespaces_export_what_the_registry_says(namespace):
    package = getattr(ff, namespace)
    for name in names_of(namespace):
        assert getattr(package, name) is find(name)
        assert name in package.__all__
    assert package.__doc__
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = package.nonsense


def test_the_top_namespace_is_small_and_old_names_answer_with_a_warning():
    assert len(ff.__all__) <= 64
    with pytest.warns(DeprecationWarning, match=r"fieldfit\.Batch is now fieldfit\.graph\.Batch"):
        assert ff.Batch is ff.graph.Batch
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ff.nonsense


# -- layers -------------------------------------------------------------------------------

#: Packages, and modules where a folder holds several layers, in the order in which they may build
#: on each other: each imports only what stands before it.  What is not in the list fails the test.
LAYERS = (
    *("_typing", "_registry", "errors", "_validation", "_arrays", "_random_state"),
    *("_parallel", "metrics", "plot", "features"),
    *("report.page_style", "report.page_script", "report.page_parts"),
    *("numeric", "graph", "entropy", "io", "report"),
    *("inference.base", "inference.feasible", "inference.conditioning", "inference.brute_force"),
    *("inference.second_order.hessian_blocks", "inference.second_order.kkt_pattern"),
    *("inference.second_order.marginal_hessian", "inference.convex"),
    *("inference.junction_tree", "inference.messages", "inference.mean_field", "inference.gibbs"),
    *("inference.kikuchi", "inference.second_order", "inference.free_energy"),
    "inference.log_determinant",
    *("inference.map.base", "inference.map.max_update", "inference.map.max_product"),
    *("inference.map.tree_moves", "inference.map.graph_cut", "inference.map.fusion_moves"),
    *("inference.map.local_search", "inference.map.cycle_cuts", "inference.map.linear_program"),
    *("inference.map.projected_cycles", "inference.map.exact_map", "inference.map.anytime"),
    *("inference.frank_wolfe", "inference.matching", "inference.planar"),
    *("inference.likelihood_bounds", "inference.auto"),
    *("objectives", "learners", "shards", "models.dispatch"),
    *(
        "models.weight_names",
        "models.answer_list",
        "models.base",
        "models.single_examples",
        "models.parts",
    ),
    *("models.penalties", "models.field_shards", "models.conditional", "models.large_pictures"),
    *("models.pairwise", "models.chain", "models.graphs.graph_examples"),
    *("models.graphs.factor_types", "models.grid_crf"),
    *("models.graphs",),
    *("models.mixture_problem", "models.mixture_field", "models.decoding_error_bound"),
    *("models.matching_problems", "models.matching_crf", "models.loading", "torch"),
    *("comparison",),
    *("demo", "cli._options", "cli._output", "cli._evaluation", "cli.kinds"),
    *(
        "cli.infer",
        "cli.shard",
        "cli.fit",
        "cli.compare",
        "cli.predict",
        "cli.score",
        "cli.inspect",
        "cli.demo",
        "cli.main",
    ),
)
#: Packages whose `__init__` only documents and re-exports; nothing imports from them.
FACES = {"", "inference", "inference.map", "models", "cli"}


def layer_of(module: str) -> str:
    """The entry of `LAYERS` that a module, named without "fieldfit.", belongs to."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in LAYERS:
            return name
    return module


def imported_modules(source: str) -> set[str]:
    """Modules of fieldfit that a file imports, anywhere in it, without "fieldfit."."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            names = [node.module]
            if is_package(node.module):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
        modules |= {
            name.removeprefix("fieldfit").lstrip(".")
            for name in names
            if name.split(".")[0] == "fieldfit"
        }
    return modules


def is_package(module: str) -> bool:
    parts = module.split(".")
    return parts[0] == "fieldfit" and ROOT.joinpath(*parts[1:]).is_dir()


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=module_name)
def test_imports_point_one_way(path):
    own = layer_of(module_name(path))
    if own in FACES:
        return  # re-exports what lies below it
    assert own in LAYERS, f"{path.relative_to(ROOT)} has no place in LAYERS"
    for module in imported_modules(path.read_text()):
        other = layer_of(module)
        assert other in LAYERS, f"{module_name(path)} imports from the face {module!r}"
        assert LAYERS.index(other) <= LAYERS.index(own), f"{module_name(path)} imports {module}"


def test_the_import_check_can_fail():
    assert imported_modules("from fieldfit.cli.main import main") == {"cli.main"}
    assert imported_modules("def f():\n    import fieldfit.inference.auto") == {"inference.auto"}
    assert imported_modules("import fieldfit") == {""}
    assert imported_modules("from fieldfit import numeric") == {"numeric"}
    assert imported_modules("import numpy") == set()
    assert layer_of("inference.messages.schedule") == "inference.messages"
    assert layer_of("inference.map.max_product") == "inference.map.max_product"
    assert layer_of("inference") not in LAYERS
    assert layer_of("kernels.simd") not in LAYERS


def test_nothing_in_the_package_imports_the_experiments():
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "experiments" for name in names), path


#: Modules that are public as they are, beside the namespaces of the registry.
PUBLIC_MODULES = {
    "fieldfit",
    "fieldfit.features.image",
    "fieldfit.features.text",
    "fieldfit.metrics",
}
PUBLIC_MODULES |= {"fieldfit.plot", *(f"fieldfit.{namespace}" for namespace in NAMESPACES)}


def test_experiments_use_public_names_only():
    paths = sorted((Path(__file__).parents[1] / "experiments").rglob("*.py"))
    if not paths:
        pytest.skip("the package is tested without its repository")
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fieldfit"):
                assert node.module in PUBLIC_MODULES, f"{path}: {node.module}"
                private = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert not private, f"{path}: {private}"


def test_every_layer_exists():
    for layer in LAYERS:
        path = ROOT.joinpath(*layer.split("."))
        assert path.is_dir() or path.with_suffix(".py").exists(), layer


def test_folders_stay_small_and_names_unique():
    """At most 20 modules in a folder; a file name says what is in it, so it occurs once."""
    paths = [path for path in ROOT.rglob("*.py") if path.name != "__init__.py"]
    folders = Counter(path.parent for path in paths)
    assert max(folders.values()) <= 20, folders.most_common(1)
    stems = Counter(path.stem for path in paths)
    shared = {stem for stem, count in stems.items() if count > 1}
    assert shared <= {"base", "registry"}, shared  # the same role in each family


# -- imports ------------------------------------------------------------------------------

HEAVY = """
import sys
import fieldfit
# Numba imports the top of scipy by itself, which is cheap; its sub-packages are not
parts = {name.split(".")[1] for name in sys.modules if name.startswith("scipy.")}
heavy = {part for part in parts if not part.startswith("_") and part != "version"}
heavy |= {name for name in ("sklearn", "matplotlib", "tqdm", "safetensors") if name in sys.modules}
print(*sorted(heavy))
"""


def heavy_imports(program: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()


def test_import_is_light():
    """`python -m benchmarks.run --only start` measures its time."""
    assert heavy_imports(HEAVY) == []


def test_the_check_of_heavy_imports_can_fail():
    assert "optimize" in heavy_imports(HEAVY.replace("import fieldfit", "import scipy.optimize"))


# -- compilation --------------------------------------------------------------------------


def count_signatures() -> dict[str, int]:
    """Number of compiled versions of every kernel that has been loaded."""
    counts = {}
    prefix = "fieldfit."
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(prefix):
            for name, value in vars(module).items():
                if hasattr(value, "signatures") and hasattr(value, "py_func"):
                    counts[f"{module_name}.{name}"] = len(value.signatures)
    return counts


def run_everything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(
        rng, int(rng.integers(2, 6)), int(rng.integers(1, 7)), max_arity=3, max_labels=3
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
    for seed in range(300, 720):
        run_everything(seed)
    after = count_signatures()
    new = {
        name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name)
    }
    assert not new, f"compiled again: {new}"


PACKAGE = {
    "__init__.py": "",
    "caller.py": "from {root}.callee import helper\n\n@kernel\ndef call(): helper()\n",
    "callee.py": "from {root}.limits import TINY\n\n@kernel\ndef helper(): return TINY\n",
    "limits.py": "TINY = 1\n",
    "other.py": "@kernel\ndef other(): pass\n",
    "plain.py": "from {root}.callee import helper\n",
}


@pytest.mark.parametrize(
    ("changed", "discarded"),
    [
        ("plain.py", set()),
        ("other.py", {"other"}),
        ("caller.py", {"caller"}),
        ("callee.py", {"caller", "callee"}),
        ("limits.py", {"caller", "callee"}),
    ],
)
def test_kernels_are_discarded_when_what_they_use_has_changed(tmp_path, changed, discarded):
    root = tmp_path / "package"
    (root / "__pycache__").mkdir(parents=True)
    for name, text in PACKAGE.items():
        (root / name).write_text(text.format(root="package"))
    discard_outdated_kernels(root)
    compiled = {stem: root / "__pycache__" / f"{stem}.f-3.py311.nbi"
                for stem in ("caller", "callee", "other")}  # fmt: skip
    for path in compiled.values():
        path.write_text("code")
    discard_outdated_kernels(root)
    assert all(path.exists() for path in compiled.values())
    (root / changed).write_text((root / changed).read_text() + "# changed")
    discard_outdated_kernels(root)
    assert {stem for stem, path in compiled.items() if not path.exists()} == discarded


def kernels_of(module):
    """Python functions of the kernels that a module defines."""
    functions = (getattr(value, "py_func", None) for value in vars(module).values())
    return [f for f in functions if f is not None and f.__module__ == module.__name__]


def test_whatever_kernels_use_of_other_files_counts_as_a_dependency():
    """Names of fieldfit that kernels read are kernels, intrinsics, named tuples or constants."""
    paths = [path for path in sorted(ROOT.rglob("*.py")) if "\n@kernel" in path.read_text()]
    assert len(paths) > 50
    for path in paths:
        module = importlib.import_module(f"fieldfit.{module_name(path)}")
        for function in kernels_of(module):
            for name in set(function.__code__.co_names) & set(vars(module)):
                used = vars(module)[name]
                origin = getattr(used, "__module__", None) or ""
                if not origin.startswith("fieldfit.") or origin == module.__name__:
                    continue
                source = Path(sys.modules[origin].__file__).read_text()
                compiled = rf"^@(kernel|intrinsic)[^\n]*\ndef {name}\(|^class {name}\(NamedTuple"
                assert re.search(compiled, source, re.MULTILINE), (
                    f"{module.__name__}.{function.__name__} uses {origin}.{name}"
                )
