"""One training run on CoNLL-2000 in a process of its own, by fieldfit or by CRFsuite.

Both children read the same text file (label and attributes, separated by tabs), take the time of
every iteration of L-BFGS, and print one JSON object.  CRFsuite runs in the environment of `peers`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers import ENVIRONMENT

CRFSUITE = "python-crfsuite==0.9.12"

#: What both children begin with.  ``peak`` is the largest resident memory since ``reset_peak``.
SHARED = """
import gc, json, sys, time
def read(path):
    X, Y = [[]], [[]]
    for line in open(path, encoding="utf-8", newline="\\n"):
        label, *attributes = line.rstrip("\\n").split("\\t")
        if not label:
            X.append([])
            Y.append([])
            continue
        X[-1].append(attributes)
        Y[-1].append(label)
    return X[:-1], Y[:-1]
def memory(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) / 1024
def reset_peak():
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")
    return memory("VmRSS")
train, test, l2, n_iterations, n_jobs, output = sys.argv[1:7]
l2, n_iterations, n_jobs = float(l2), int(n_iterations), int(n_jobs)
"""

CHILD_CRFSUITE = (
    SHARED
    + """
import os, tempfile
import pycrfsuite
class Trainer(pycrfsuite.Trainer):
    ticks = []
    def on_iteration(self, log, info):
        self.ticks.append((time.perf_counter(), time.process_time()))
X, Y = read(train)
before = reset_peak()
trainer = Trainer(algorithm="lbfgs", verbose=True)
trainer.set_params({"c1": 0.0, "c2": l2 / 2.0, "max_iterations": n_iterations,
                    "epsilon": 1e-6, "delta": 1e-7})
start = time.perf_counter()
for x, y in zip(X, Y):
    trainer.append(x, y)
reading = time.perf_counter() - start
model = tempfile.mktemp()
trainer.train(model)
peak = memory("VmHWM")
last = trainer.logparser.last_iteration
ticks = trainer.ticks
answer = {"wall": [b[0] - a[0] for a, b in zip(ticks, ticks[1:])],
          "cpu": [b[1] - a[1] for a, b in zip(ticks, ticks[1:])],
          "reading": reading, "objective": last["loss"], "n_iter": last["num"],
          "n_weights": last["active_features"], "increase": peak - before, "peak": peak}
if test != "-":
    tagger = pycrfsuite.Tagger()
    tagger.open(model)
    answer["predicted"] = [tagger.tag(x) for x in read(test)[0]]
os.unlink(model)
json.dump(answer, open(output, "w"))
"""
)

CHILD_FIELDFIT = (
    SHARED
    + """
import warnings
from fieldfit.models.chain.chain_crf import ChainCRF
from fieldfit.learners.lbfgs import LBFGS
X, Y = read(train)
warnings.simplefilter("ignore")
# loads the compiled kernels for this number of labels
ChainCRF(max_iter=2).fit(X[:600], Y[:600]).predict(X[:2])
before = reset_peak()
class Timed(LBFGS):
    def minimize(self, problem, start, **options):
        begin = time.perf_counter(), time.process_time()
        fit = super().minimize(problem, start, **options)
        spent.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
        return fit
spent = []
begin = time.perf_counter()
crf = ChainCRF(l2=l2, learner=Timed(max_iter=n_iterations, tol=1e-6), n_jobs=n_jobs)
crf.fit(X, Y)
reading = time.perf_counter() - begin - spent[0][0]
peak = memory("VmHWM")
seconds = [row["seconds"] for row in crf.trace_]
wall = [b - a for a, b in zip(seconds, seconds[1:])]
cpu = spent[0][1] / len(seconds)
answer = {"wall": wall, "cpu": [cpu], "reading": reading,
          "objective": crf.trace_[-1]["objective"], "n_iter": crf.n_iter_,
          "n_weights": len(crf.weights_), "increase": peak - before, "peak": peak,
          "status": crf.status_}
if test != "-":
    Xt = read(test)[0]
    for decode in ("marginals", "map"):
        found = crf.set_params(decode=decode).predict(Xt)
        answer[f"predicted {decode}"] = [labels.tolist() for labels in found]
json.dump(answer, open(output, "w"))
"""
)


def install_crfsuite() -> bool:
    """Put CRFsuite into the environment of the peers; False if that fails."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    installed = subprocess.run([str(python), "-c", "import pycrfsuite"], stderr=subprocess.DEVNULL)
    if installed.returncode == 0:
        return True
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", CRFSUITE]
    return subprocess.run(command, check=False).returncode == 0


def run(
    library: str, train: Path, *, n_iterations: int, l2: float, n_jobs: int = 1, test: Path | None
) -> dict[str, Any]:
    """Train in a new process; ``library`` is ``"crfsuite"`` or ``"fieldfit"``."""
    python = str(ENVIRONMENT / "bin" / "python") if library == "crfsuite" else sys.executable
    child = CHILD_CRFSUITE if library == "crfsuite" else CHILD_FIELDFIT
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "answer.json"
        arguments = [train, test or "-", l2, n_iterations, n_jobs, output]
        subprocess.run(
            [python, "-c", child, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL
        )
        answer: dict[str, Any] = json.loads(output.read_text())
    return answer
