"""MAP of frustrated models: score and bound against seconds, with toulbar2 beside fieldfit.

FIELDFIT_DATA=folder python -m benchmarks.map_search [--write docs/benchmarks-map.md]

Every row is kept in bench-results/map_search.jsonl as soon as it is finished, and a rerun goes on
with what is missing.  toulbar2 is installed from PyPI into an environment of its own; its columns
are left out where that fails.  Models of UAI 2014 need the folder of the data sets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import fieldfit as ff
from benchmarks.pages import replace_section, stamp
from experiments.tables import markdown_table

ROOT = Path(__file__).parent.parent
STORE = ROOT / "bench-results" / "map_search.jsonl"
ENVIRONMENT = ROOT / ".venv-toulbar2"
PACKAGE = "pytoulbar2==1.4.0.1"
SPINS = np.array([[1.0, -1.0], [-1.0, 1.0]])

Model = tuple[ff.FactorGraph, ff.Potentials, object]


# -- Models --------------------------------------------------------------------------------


def glass(n_spins: int, ends: np.ndarray, seed: int, field: float) -> Model:
    """A spin glass with normal couplings and fields."""
    rng = np.random.default_rng(seed)
    graph = ff.FactorGraph.from_edges(n_spins, ends, 2)
    unary = field * rng.normal(size=(n_spins, 1)) * np.array([[1.0, -1.0]])
    return graph, ff.Potentials(graph, unary, rng.normal(size=(len(ends), 1, 1)) * SPINS), None


def lattice(side: int, n_axes: int, seed: int, field: float) -> Model:
    """A periodic square or cubic lattice."""
    site = np.arange(side**n_axes).reshape((side,) * n_axes)
    ends = [np.stack([site, np.roll(site, -1, k)], axis=-1).reshape(-1, 2) for k in range(n_axes)]
    return glass(side**n_axes, np.concatenate(ends), seed, field)


def regular(n_spins: int, degree: int, seed: int, field: float) -> Model:
    """A union of random perfect matchings, without repeated pairs."""
    rng = np.random.default_rng(seed)
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < degree * n_spins // 2:
        matching = np.sort(rng.permutation(n_spins).reshape(-1, 2), axis=1)
        new = {(int(i), int(j)) for i, j in matching}
        if not new & pairs:
            pairs |= new
    return glass(n_spins, np.array(sorted(pairs)), seed, field)


def labelled_torus(side: int, n_labels: int, seed: int) -> Model:
    """Normal tables of several labels on a periodic square lattice."""
    rng = np.random.default_rng(seed)
    ends = lattice(side, 2, seed, 0.0)[0].slot_variables.reshape(-1, 2)
    graph = ff.FactorGraph.from_edges(side * side, ends, n_labels)
    tables = rng.normal(size=(len(ends), n_labels, n_labels))
    return graph, ff.Potentials(graph, rng.normal(size=(side * side, n_labels)), tables), None


def uai(name: str) -> Model:
    path = Path(os.environ["FIELDFIT_DATA"]) / "uai2014" / "map" / f"{name}.uai"
    graph, potentials = ff.read_uai(path)
    return graph, potentials, ff.io.read_evidence(f"{path}.evid")


UAI = (
    *("Grids_26", "Grids_29", "Promedas_64", "Promedas_70"),
    *("Segmentation_12", "Segmentation_14", "Segmentation_18"),
)
MODELS: dict[str, Callable[[], Model]] = {
    **{
        f"torus 20 x 20, seed {seed}": lambda seed=seed: lattice(20, 2, seed, 0.5)
        for seed in range(3)
    },
    "torus 40 x 40, weak field": lambda: lattice(40, 2, 0, 0.1),
    "cube 10 x 10 x 10": lambda: lattice(10, 3, 0, 0.5),
    "3-regular, 500 spins": lambda: regular(500, 3, 0, 0.1),
    "torus 12 x 12, 3 labels": lambda: labelled_torus(12, 3, 0),
    **{name: lambda name=name: uai(name) for name in UAI},
}


# -- Methods -------------------------------------------------------------------------------


def relaxation(graph: ff.FactorGraph) -> object:
    binary = graph.cardinalities.max() <= 2 and graph.arities.max() <= 2
    return ff.RoofDuality() if binary else ff.LinearProgram()


METHODS: dict[str, Callable[[ff.FactorGraph], object]] = {
    "MaxProduct": lambda _: ff.MaxProduct(),
    "MaxProduct, TRW": lambda _: ff.MaxProduct(ff.TreeReweighted()),
    "RoofDuality or LinearProgram": relaxation,
    "LocalSearch": lambda _: ff.LocalSearch(),
    "Map()": lambda _: ff.Map(),
    **{
        f"Map(time_limit={seconds})": lambda _, seconds=seconds: ff.Map(time_limit=seconds)
        for seconds in (1, 5, 30)
    },
    "ExactMap, integer, 30 s": lambda _: ff.ExactMap(method="integer", time_limit=30),
}
#: Rows of toulbar2: seconds, and its option ``vns``: none is branch and bound, -4 is its
#: decomposition-guided variable neighbourhood search, which looks for good labels.
PEERS = {
    "toulbar2, 1 s": (1, "none"),
    "toulbar2, 5 s": (5, "none"),
    "toulbar2, 30 s": (30, "none"),
    "toulbar2, VNS, 5 s": (5, "-4"),
}

CHILD = """
import json, sys, time
import pytoulbar2
model, seconds = json.load(open(sys.argv[1])), int(sys.argv[2])
vns = None if sys.argv[3] == "none" else int(sys.argv[3])
start = time.process_time()
network = pytoulbar2.CFN(resolution=6, vns=vns)
for k, size in enumerate(model["cardinalities"]):
    network.AddVariable(f"x{k}", range(size))
for scope, costs in model["functions"]:
    network.AddFunction([f"x{k}" for k in scope], costs)
found = network.Solve(timeLimit=seconds)
print(json.dumps({
    "labels": None if found is None else [int(y) for y in found[0]],
    "cost_bound": network.GetDDualBound(),
    "cost": None if found is None else found[1],
    "cpu": time.process_time() - start,
}))
"""


def install() -> bool:
    """Make the environment of toulbar2 once; False (with a line on stderr) if that fails."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print(f"installing {PACKAGE} into {ENVIRONMENT.name} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=False)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", PACKAGE], check=False)
    found = subprocess.run(
        [str(python), "-c", "import pytoulbar2"], check=False, capture_output=True
    )
    if found.returncode != 0:
        print("toulbar2 cannot be installed here; its rows are left out", file=sys.stderr)
    return found.returncode == 0


#: Cost of what is excluded, above any sum of the others.
FORBIDDEN = 1e6


def by_toulbar2(model: Model, seconds: int, vns: str) -> dict[str, object]:
    """Score and bound within some seconds, by costs that are the negative potentials.

    Costs are not negative there; what is taken from each table is put back.
    """
    graph, potentials, observed = model
    unary = potentials.unary_values.copy()
    for variable, label in (observed or {}).items():
        others = np.arange(graph.cardinalities[variable]) != label
        unary[graph.unary_offsets[variable] : graph.unary_offsets[variable + 1]][others] = -np.inf
    functions, shift = [], 0.0
    tables = [((i,), unary[graph.unary_offsets[i] : graph.unary_offsets[i + 1]])
              for i in range(graph.n_variables)]  # fmt: skip
    tables += [(graph.scope(a), potentials.factor(a).ravel()) for a in range(graph.n_factors)]
    for scope, values in tables:
        top = float(values.max())
        shift += top
        functions.append((scope, np.minimum(top - values, FORBIDDEN).tolist()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        content = {"cardinalities": graph.cardinalities.tolist(), "functions": functions}
        path.write_text(json.dumps(content))
        started = time.perf_counter()
        output = subprocess.run(
            [str(ENVIRONMENT / "bin" / "python"), "-c", CHILD, str(path), str(seconds), vns],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ).stdout
        wall = time.perf_counter() - started
    found = json.loads(output.strip().splitlines()[-1])
    score = -np.inf
    if found["labels"] is not None:
        score = potentials.score(np.array(found["labels"], dtype=np.int32))
    # costs have six decimals, so bounds differ from scores by rounding
    is_proved = found["cost"] is not None and found["cost"] - found["cost_bound"] <= 1e-6
    bound = score if is_proved else shift - found["cost_bound"]
    return {"score": score, "bound": bound, "optimal": is_proved, "cpu": found["cpu"],
            "wall": wall}  # fmt: skip


def by_fieldfit(model: Model, solver: object) -> dict[str, object]:
    started, cpu = time.perf_counter(), time.process_time()
    result = solver.run(*model)
    return {
        "score": result.score,
        "bound": result.upper_bound,
        "optimal": result.optimal,
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - started,
    }


# -- Rows ----------------------------------------------------------------------------------


def stored() -> dict[tuple[str, str], dict[str, object]]:
    if not STORE.exists():
        return {}
    rows = [json.loads(line) for line in STORE.read_text().splitlines()]
    return {(row["model"], row["method"]): row for row in rows}


def computed(name: str, has_peer: bool) -> Iterator[dict[str, object]]:
    """Rows of one model that are not stored yet."""
    done = stored()
    model = MODELS[name]()
    for method, make in METHODS.items():
        if (name, method) not in done:
            yield {"model": name, "method": method} | by_fieldfit(model, make(model[0]))
    for method, options in PEERS.items() if has_peer else ():
        if (name, method) not in done:
            yield {"model": name, "method": method} | by_toulbar2(model, *options)


def compile_kernels() -> None:
    """Small models of each kind, so that no time below has a compilation in it."""
    triple = ff.FactorGraph([2] * 4, [(0, 1, 2), (1, 2, 3), (0, 3)])
    potentials = ff.Potentials(triple, [[0.0, 1.0]] * 4)
    for model in (lattice(4, 2, 0, 0.5), labelled_torus(4, 3, 0), (triple, potentials, None)):
        for make in METHODS.values():
            make(model[0]).run(*model)
        ff.Map(ff.ExactMap(max_memory=1.0, n_restarts=1), time_limit=1.0).run(*model)


def section() -> list[str]:
    """The table of all stored rows."""
    rows, best = [], {}
    for (name, _), row in stored().items():
        best[name] = max(best.get(name, -np.inf), float(row["score"]))
    for name in MODELS:
        for (other, method), row in stored().items():
            if other != name:
                continue
            behind = (best[name] - row["score"]) / max(1.0, abs(best[name]))
            gap = (row["bound"] - best[name]) / max(1.0, abs(best[name]))
            rows.append(
                [
                    name,
                    method,
                    f"{row['score']:.3f}",
                    _distance(behind),
                    _certificate(method, bool(row["optimal"]), gap),
                    f"{row['cpu']:.2f}",
                    f"{row['wall']:.2f}",
                ]
            )
    header = ["model", "method", "score", "below the best", "bound above the best", "CPU s", "s"]
    return [
        stamp("python -m benchmarks.map_search --write docs/benchmarks-map.md"),
        "",
        markdown_table(header, rows),
    ]


def _distance(behind: float) -> str:
    if behind == np.inf:
        return "breaks a hard zero"
    return "best" if behind <= 1e-9 else f"{100 * behind:.2f} %"


def _certificate(method: str, is_proved: bool, gap: float) -> str:
    """What is proved; the neighbourhood search of toulbar2 does not keep its bound up to date."""
    if "VNS" in method:
        return "not read"
    return "proved" if is_proved else f"{100 * gap:.2f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", help="models whose names contain this")
    options = parser.parse_args()
    has_peer = install()
    compile_kernels()
    STORE.parent.mkdir(exist_ok=True)
    for name in MODELS:
        if name in UAI and "FIELDFIT_DATA" not in os.environ:
            continue
        if options.only and options.only not in name:
            continue
        for row in computed(name, has_peer):
            with STORE.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    if options.write:
        replace_section(options.write, "map-search", section())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
