"""Libraries from PyPI, measured in an environment of their own beside the project's.

PGMax 0.6.1 (discrete factor graphs on JAX, float32) floods; it needs jax < 0.5, and only the few
packages that its factor graphs and inference really import are installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.problems import Problem

ENVIRONMENT = Path(__file__).parent.parent / ".venv-peers"
PACKAGES = [
    "pgmax==0.6.1", "jax==0.4.38", "jaxlib==0.4.38", "numpy==1.26.4", "scipy", "ml_dtypes",
    "opt_einsum", "numba", "llvmlite", "tqdm", "jaxopt",
]  # fmt: skip

CHILD = """
import json, sys, time
import numpy as np, jax, jax.numpy as jnp
from pgmax import fgraph, fgroup, infer, vgroup

data = np.load(sys.argv[1])
n_sweeps = int(sys.argv[2])
unary, edges, pairwise = data["unary"], data["edges"], data["pairwise"]
variables = vgroup.NDVarArray(num_states=unary.shape[1], shape=(len(unary),))
graph = fgraph.FactorGraph(variable_groups=variables)
graph.add_factors(fgroup.PairwiseFactorGroup(
    variables_for_factors=[[variables[int(a)], variables[int(b)]] for a, b in edges],
    log_potential_matrix=pairwise))
inferer = infer.build_inferer(graph.bp_state, backend="bp")
arrays = inferer.init(evidence_updates={variables: jnp.asarray(unary)})
run = jax.jit(lambda state: inferer.run(state, num_iters=n_sweeps, damping=0.0, temperature=1.0))
jax.block_until_ready(run(arrays).ftov_msgs)
least = np.inf
for _ in range(5):
    start = time.process_time()
    jax.block_until_ready(run(arrays).ftov_msgs)
    least = min(least, time.process_time() - start)
print(json.dumps(least / n_sweeps))
"""


def install() -> bool:
    """Make the environment once; False (with a line on stderr) if that fails."""
    python = ENVIRONMENT / "bin" / "python"
    if python.exists():
        return True
    print("installing PGMax into .venv-peers ...", file=sys.stderr)
    commands = [
        [sys.executable, "-m", "venv", str(ENVIRONMENT)],
        [str(python), "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES],
    ]
    for command in commands:
        if subprocess.run(command, check=False).returncode != 0:
            print("PGMax cannot be installed here; its column is left out", file=sys.stderr)
            return False
    return True


def pgmax_seconds_per_sweep(problem: Problem, n_sweeps: int) -> float:
    """CPU seconds of one flooding sweep in PGMax."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        np.savez(path, unary=problem.unary, edges=problem.edges, pairwise=problem.pairwise)
        output = subprocess.run(
            [str(ENVIRONMENT / "bin" / "python"), "-c", CHILD, str(path), str(n_sweeps)],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ).stdout
    return float(json.loads(output.strip().splitlines()[-1]))
