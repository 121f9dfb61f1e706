"""One thing of each kind, in a minute: what `make matrix` runs in every environment."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from bad_input import FIT_OPTIONS, data_of

import fieldfit as ff
from benchmarks.laws import broken_by_inference, broken_by_search, random_model
from fieldfit._registry import MODELS, PUBLIC, find

INFERENCES = [ff.SumProduct(), ff.SumProduct(ff.TreeReweighted()), ff.MeanField(), ff.Exact()]
SEARCHES = [ff.MaxProduct(), ff.ExactMap(), ff.LinearProgram()]
MODELS_OF = {number: random_model(0, number) for number in range(6)}


def test_every_public_name_is_there():
    for name in PUBLIC:
        assert find(name) is not None


@pytest.mark.parametrize("number", MODELS_OF)
@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_laws_hold_on_a_few_models(number):
    graph, potentials, observed = MODELS_OF[number]
    exact = ff.BruteForce().run(graph, potentials, observed).log_partition
    best = ff.ExactMap().run(graph, potentials, observed).score
    for inference in INFERENCES:
        result = inference.run(graph, potentials, observed)
        assert broken_by_inference(graph, observed, exact, result) is None, inference
    for search in SEARCHES:
        result = search.run(graph, potentials, observed)
        assert broken_by_search(potentials, observed, best, result) is None, search


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_estimators_fit_save_and_load(name, tmp_path):
    model = find(name)(**FIT_OPTIONS[name]).fit(**data_of(name))
    assert np.isfinite(model.weights_).all()
    model.save(tmp_path / "model.ff")
    np.testing.assert_array_equal(ff.load(tmp_path / "model.ff").weights_, model.weights_)


def test_the_command_answers(tmp_path):
    path = tmp_path / "model.uai"
    path.write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n")
    command = [sys.executable, "-m", "fieldfit.cli.main", "infer", str(path), "--task", "PR"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["PR", "1.0"]
