"""Other processes: forked or spawned, before and after kernels ran, and joblib's workers."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bad_input import data_of
from fields import images
from sklearn.model_selection import GridSearchCV

import fieldfit as ff


@pytest.mark.parametrize(
    ("method", "when"), [("fork", "before"), ("fork", "after"), ("spawn", "after")]
)
def test_forked_and_spawned_processes_find_the_same_bits(method, when):
    """OpenMP ends a process that was forked after its threads were started and asks for more."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("processes.py")), method, when],
        capture_output=True,
        text=True,
        timeout=300,
        # a fork in a process with threads is what is tested, whatever newer Pythons say about it
        env={**os.environ, "NUMBA_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == (4 if when == "after" else 3)
    assert len(set(lines)) == 1


def chains():
    data = data_of("ChainCRF")
    return data["X"], data["Y"]


SEARCHES = {
    "GridCRF": (ff.GridCRF("trw", max_iter=20), images),
    "GridCRF in threads": (ff.GridCRF("pseudolikelihood", n_jobs=2), images),
    "ChainCRF": (ff.ChainCRF(), chains),
    "IsingModel": (
        ff.IsingModel(),
        lambda: (np.random.default_rng(0).integers(0, 2, (60, 4)), None),
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_a_grid_search_in_two_processes_finds_what_one_finds(name):
    estimator, data = SEARCHES[name]
    X, Y = data()
    one, two = (
        GridSearchCV(estimator, {"l2": [0.1, 10.0]}, cv=2, n_jobs=n_jobs, error_score="raise")
        for n_jobs in (1, 2)
    )
    one.fit(X, Y)
    two.fit(X, Y)
    for split in ("split0_test_score", "split1_test_score"):
        np.testing.assert_allclose(two.cv_results_[split], one.cv_results_[split], rtol=1e-12)
    assert two.best_params_ == one.best_params_
    np.testing.assert_array_equal(two.best_estimator_.weights_, one.best_estimator_.weights_)
