"""Run the numerical tests as other processors would: `make test-cpus`.

    python .ci/cpus.py [--numba] [--list] [ARGUMENT OF PYTEST ...]

Results differ in their last bits between processors: OpenBLAS and NumPy choose their routines when
they are loaded, and Numba compiles for the processor at hand.  This program makes each choose as
older or newer processors make it, one setting after the other, and says which settings this machine
cannot take.  ``--numba`` adds kernels compiled for processors without AVX and FMA, which takes some
minutes more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Names that OPENBLAS_CORETYPE takes; several may choose the same routines.
CORE_TYPES = ("Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX", "Sapphirerapids")

#: Files that hold no numerical tests, or only ones that others hold too.
LEFT_OUT = ("assertions", "cli", "demo", "docs", "fg", "load", "model_file", "package", "uai")

#: The routines in use; products and factorisations first, which end here if they cannot run.
PROBE = """
import json
import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_info

matrix = np.random.default_rng(0).normal(size=(100, 100))
for linalg in (np.linalg, scipy.linalg):
    linalg.eigh(matrix @ matrix.T)
    linalg.solve(matrix, matrix)
    linalg.svd(matrix.astype(np.float32))
try:
    from numpy._core import _multiarray_umath as core
except ImportError:
    from numpy.core import _multiarray_umath as core
print(json.dumps({
    "blas": [row.get("architecture", "") for row in threadpool_info() if row["user_api"] == "blas"],
    "numpy": [name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)],
}))
"""


def probe(settings: dict[str, str]) -> dict[str, list[str]] | str:
    """What is in use under some settings; a sentence if they do not work."""
    command, environment = [sys.executable, "-c", PROBE], {**os.environ, **settings}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}: this processor lacks the instructions"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def choose(with_numba: bool, cache: str) -> dict[str, dict[str, str]]:
    """Name -> environment of every setting that makes a difference here; the others are printed."""
    here = probe({})
    if isinstance(here, str):
        raise SystemExit(here)
    print(f"this machine: OpenBLAS {' '.join(here['blas'])}; NumPy {' '.join(here['numpy'])}")
    chosen: dict[str, dict[str, str]] = {}
    seen = [here["blas"]]
    for core_type in CORE_TYPES:
        settings = {"OPENBLAS_CORETYPE": core_type}
        found = probe(settings)
        if isinstance(found, str):
            print(f"cannot set OPENBLAS_CORETYPE={core_type}: {found}")
        elif found["blas"] in seen:
            print(f"nothing new in OPENBLAS_CORETYPE={core_type}: {' '.join(found['blas'])} again")
        else:
            seen.append(found["blas"])
            chosen[f"OpenBLAS for {core_type}"] = settings
    settings = {"NPY_DISABLE_CPU_FEATURES": " ".join(here["numpy"])}
    found = probe(settings)
    if isinstance(found, str) or found["numpy"]:
        print(f"cannot set NPY_DISABLE_CPU_FEATURES={settings['NPY_DISABLE_CPU_FEATURES']}")
    else:
        chosen["NumPy without its dispatched features"] = settings
    if with_numba:
        chosen["Numba for x86-64-v2"] = {
            "NUMBA_CPU_NAME": "x86-64-v2",
            "NUMBA_CPU_FEATURES": "",
            "NUMBA_CACHE_DIR": cache,
        }
    return chosen


def numerical_files() -> list[str]:
    """Paths of the test files, wherever they are below ``tests``."""
    names = {f"test_{name}.py" for name in LEFT_OUT}
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if path.name not in names]


def main() -> int:
    """Run all settings; 1 if tests failed under any."""
    parser = argparse.ArgumentParser(description="Run numerical tests as other processors would.")
    parser.add_argument("--numba", action="store_true", help="also compile for older processors")
    parser.add_argument("--list", action="store_true", help="only say what can be set")
    options, arguments = parser.parse_known_args()
    if not any((ROOT / argument.split("::")[0]).exists() for argument in arguments):
        arguments += numerical_files()
    failed = []
    with tempfile.TemporaryDirectory() as cache:
        chosen = choose(options.numba, cache)
        for name, settings in chosen.items():
            print(f"\n{name}: " + " ".join(f"{k}={v!r}" for k, v in settings.items()), flush=True)
            if options.list:
                continue
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
                env={"OPENBLAS_NUM_THREADS": "1", **os.environ, **settings},
                cwd=ROOT,
            )
            failed += [name] * bool(done.returncode)
    if not options.list:
        print(f"\n{len(chosen) - len(failed)} of {len(chosen)} settings passed")
        for name in failed:
            print(f"failed: {name}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
