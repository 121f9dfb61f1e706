"""The ``fieldfit`` command: answers, exit states, and one clear line for every mistake."""

import gzip
import io
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fieldfit._registry import INFERENCE_METHODS, MAP_METHODS
from fieldfit.cli import infer as infer_command
from fieldfit.cli.main import main
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.potentials import Beliefs, Potentials
from fieldfit.graph.result import InferenceResult, MapResult
from fieldfit.inference.base import Inference
from fieldfit.inference.map.base import MapSearch
from fieldfit.io import read_answer, read_uai, write_evidence, write_fg, write_uai

LOG_10 = math.log(10.0)


@pytest.fixture
def model(tmp_path):
    """A loop of three variables with a hard zero and a unary part, written to a file."""
    graph = FactorGraph([2, 3, 2], [(0, 1), (1, 2), (2, 0)])
    rng = np.random.default_rng(7)
    factors = [rng.normal(size=graph.table_shape(a)) for a in range(3)]
    factors[0][0, 0] = -np.inf
    potentials = Potentials(graph, unary=[rng.normal(size=2), None, None], factors=factors)
    path = tmp_path / "model.uai"
    write_uai(path, graph, potentials)
    return SimpleNamespace(graph=graph, potentials=potentials, path=path, name=str(path))


def enumerate_model(model, observed=()):
    """All labellings that agree with the evidence, and their scores."""
    observed = dict(observed)
    labellings = [
        labels
        for labels in itertools.product(*map(range, model.graph.cardinalities.tolist()))
        if all(labels[i] == y for i, y in observed.items())
    ]
    return np.array(labellings), np.array([model.potentials.score(y) for y in labellings])


def exact_marginals(model, observed=()):
    labellings, scores = enumerate_model(model, observed)
    weights = np.exp(scores - np.logaddexp.reduce(scores))
    return [
        np.bincount(labellings[:, i], weights=weights, minlength=k)
        for i, k in enumerate(model.graph.cardinalities)
    ]


def exact_log10(model, observed=()):
    return np.logaddexp.reduce(enumerate_model(model, observed)[1]) / LOG_10


def assert_one_error_line(captured, *parts):
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert "error: " in lines[0]
    assert captured.out == ""
    for part in parts:
        assert part in lines[0]


# -- answers ------------------------------------------------------------------------------


def test_marginals_on_standard_output(model, capsys):
    assert main(["infer", model.name]) == 0
    captured = capsys.readouterr()
    answer = read_answer(io.BytesIO(captured.out.encode()))
    for actual, expected in zip(answer.marginals, exact_marginals(model), strict=True):
        assert_allclose(actual, expected, rtol=0, atol=1e-12)
    assert "3 variables" in captured.err
    assert "method: " in captured.err
    assert "(exact)" in captured.err


@pytest.mark.parametrize("method", ["auto", "exact", "brute-force"])
def test_partition_function_with_evidence(model, method, tmp_path, capsys):
    evidence = tmp_path / "some.evid"
    write_evidence(evidence, {1: 2})
    status = main(
        ["infer", model.name, "--task", "pr", "--method", method, "--evidence", str(evidence)]
    )
    assert status == 0
    captured = capsys.readouterr()
    answer = read_answer(io.BytesIO(captured.out.encode()))
    assert_allclose(answer.log10_partition, exact_log10(model, {1: 2}), rtol=0, atol=1e-10)
    assert ", 1 observed" in captured.err


def test_map_to_a_file(model, tmp_path, capsys):
    out = tmp_path / "model.uai.MAP"
    assert main(["infer", model.name, "--task", "MAP", "--out", str(out), "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    labellings, scores = enumerate_model(model)
    assert_array_equal(read_answer(out).labels, labellings[np.argmax(scores)])


@pytest.mark.parametrize("method", ["bp", "trw", "convex", "mean-field"])
def test_approximations_agree_with_what_they_prove(model, method, capsys):
    assert main(["infer", model.name, "--task", "PR", "--method", method, "--json"]) == 0
    captured = capsys.readouterr()
    fields = json.loads(captured.out)
    if fields["bound"] == "upper":
        assert fields["log10_partition"] >= exact_log10(model) - 1e-9
    if fields["bound"] == "lower":
        assert fields["log10_partition"] <= exact_log10(model) + 1e-9
    assert {"trw": "upper", "mean-field": "lower"}.get(method, fields["bound"]) == fields["bound"]


def test_gibbs_is_repeatable_with_a_seed(model, capsys):
    outputs = []
    for _ in range(2):
        assert main(["infer", model.name, "--method", "gibbs", "--seed", "3", "--quiet"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_evidence_beside_the_model_is_used_and_named(model, capsys):
    write_evidence(f"{model.name}.evid", {0: 1})
    assert main(["infer", model.name, "--task", "PR"]) == 0
    captured = capsys.readouterr()
    answer = read_answer(io.BytesIO(captured.out.encode()))
    assert_allclose(answer.log10_partition, exact_log10(model, {0: 1}), rtol=0, atol=1e-10)
    assert f"{model.name}.evid" in captured.err

    assert main(["infer", model.name, "--task", "PR", "--no-evidence"]) == 0
    captured = capsys.readouterr()
    answer = read_answer(io.BytesIO(captured.out.encode()))
    assert_allclose(answer.log10_partition, exact_log10(model), rtol=0, atol=1e-10)
    assert ".evid" not in captured.err


def test_fg_gzip_and_standard_input(model, tmp_path, capsys, monkeypatch):
    fg = tmp_path / "model.fg"
    write_fg(fg, model.graph, model.potentials)
    zipped = tmp_path / "zipped.uai.gz"
    zipped.write_bytes(gzip.compress(model.path.read_bytes()))
    streams = {"-": model.path.read_bytes(), " -": fg.read_bytes(), "  -": zipped.read_bytes()}
    for name in (str(fg), str(zipped), *streams):
        if name in streams:
            stdin = SimpleNamespace(buffer=io.BytesIO(streams[name]))
            monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["infer", name.strip(), "--task", "PR", "--quiet"]) == 0
        answer = read_answer(io.BytesIO(capsys.readouterr().out.encode()))
        assert_allclose(answer.log10_partition, exact_log10(model), rtol=0, atol=1e-10)


# -- JSON ---------------------------------------------------------------------------------

COMMON_KEYS = {
    "model", "task", "method", "converged", "status", "bound", "log_partition",
    "log10_partition", "n_iter", "residual", "seconds",
}  # fmt: skip


def strict_json(text):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_of_marginals(model, capsys):
    assert main(["infer", model.name, "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    fields = strict_json(captured.out)
    assert fields.keys() >= COMMON_KEYS
    assert fields["bound"] == "exact"
    assert fields["converged"] is True
    assert_allclose(fields["log_partition"], exact_log10(model) * LOG_10, rtol=0, atol=1e-10)
    for actual, expected in zip(fields["marginals"], exact_marginals(model), strict=True):
        assert_allclose(actual, expected, rtol=0, atol=1e-12)


def test_json_of_a_labelling(model, tmp_path, capsys):
    out = tmp_path / "model.uai.MAP"
    assert main(["infer", model.name, "--task", "MAP", "--json", "--out", str(out)]) == 0
    fields = strict_json(capsys.readouterr().out)
    assert fields.keys() >= COMMON_KEYS | {"labels", "score", "upper_bound", "optimal"}
    assert_allclose(fields["score"], enumerate_model(model)[1].max(), rtol=0, atol=1e-12)
    assert fields["optimal"] is True
    assert_array_equal(read_answer(out).labels, fields["labels"])


@pytest.fixture
def spins(tmp_path):
    """A planar loop without field whose pairs would rather agree."""
    graph = FactorGraph.from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)], 2)
    potentials = Potentials(graph, factors=[k * np.eye(2) for k in (1.0, 0.5, 2.0, 0.3)])
    path = tmp_path / "spins.uai"
    write_uai(path, graph, potentials)
    return SimpleNamespace(graph=graph, potentials=potentials, path=path, name=str(path))


@pytest.mark.parametrize(
    "method",
    ["auto", "map", "exact", "integer", "max-product", "trw", "max-flow", "roof-duality", "lp"],
)
def test_searches_by_name(method, spins, capsys):
    assert main(["infer", spins.name, "--task", "MAP", "--method", method, "--json"]) == 0
    fields = strict_json(capsys.readouterr().out)
    assert_allclose(fields["score"], enumerate_model(spins)[1].max(), rtol=0, atol=1e-9)
    if method in ("auto", "map"):
        assert fields["status"].startswith("MaxFlow, because")


def test_search_on_a_planar_graph(spins, capsys):
    pytest.importorskip("rustworkx")
    pytest.importorskip("networkx")
    assert main(["infer", spins.name, "--task", "MAP", "--method", "planar", "--json"]) == 0
    fields = strict_json(capsys.readouterr().out)
    assert_allclose(fields["score"], 3.8, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["max-flow", "assignment", "planar"])
def test_searches_that_do_not_fit_say_why(method, model, capsys):
    if method == "planar":
        pytest.importorskip("rustworkx")
    assert main(["infer", model.name, "--task", "MAP", "--method", method, "--quiet"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert main(["infer", model.name, "--task", "MAP", "--method", "lp", "--tol", "1"]) == 2
    assert "tol must be left out for method 'lp'" in capsys.readouterr().err


def test_marginals_by_search(spins, capsys):
    command = ["infer", spins.name, "--method", "frank-wolfe", "--json"]
    assert main([*command, "--tol", "1e-6"]) == 0
    fields = strict_json(capsys.readouterr().out)
    assert fields["bound"] == "upper"
    assert fields["converged"] is True
    assert fields["log10_partition"] >= exact_log10(spins)
    assert_allclose(fields["marginals"], 0.5, rtol=0, atol=1e-3)
    assert main([*command, "--damping", "0.5"]) == 2
    assert "damping must be left out for method 'frank-wolfe'" in capsys.readouterr().err
    assert main([*command, "--task", "MAP"]) == 2
    assert "--method with --task MAP" in capsys.readouterr().err


# -- stand-ins: what the command makes of a result ----------------------------------------


def stand_in(monkeypatch, *, infer=None, decode=None):
    monkeypatch.setitem(
        sys.modules, "fieldfit.inference.auto", SimpleNamespace(infer=infer, decode=decode)
    )


def uniform_result(graph, **changes):
    unary = np.concatenate([np.full(k, 1 / k) for k in graph.cardinalities])
    beliefs = Beliefs(graph, unary, np.ones(int(graph.table_offsets[-1])))
    fields = {
        "log_partition": 1.5, "bound": None, "converged": True, "n_iter": 7, "residual": 1e-9,
        "status": "converged", "method": "StandIn",
    }  # fmt: skip
    return InferenceResult(beliefs=beliefs, **(fields | changes))


def test_options_reach_the_method(model, monkeypatch, capsys):
    seen = {}

    def infer(graph, potentials, **options):
        seen.update(options)
        return uniform_result(graph)

    stand_in(monkeypatch, infer=infer)
    options = "--method bp --schedule tree --damping 0.25 --tol 1e-6 --max-iter 12 --seed 5"
    assert main(["infer", model.name, *options.split(), "--max-memory", "0.5"]) == 0
    assert seen == {
        "method": "bp", "observed": {}, "max_memory": 5e8, "schedule": "tree", "damping": 0.25,
        "tol": 1e-6, "max_iter": 12, "random_state": 5, "progress": None,
    }  # fmt: skip
    capsys.readouterr()


def test_a_run_that_did_not_converge_is_an_answer_with_a_warning(model, monkeypatch, capsys):
    stand_in(
        monkeypatch,
        infer=lambda graph, potentials, **options: uniform_result(
            graph, converged=False, residual=math.nan, status="stopped after 7 sweeps"
        ),
    )
    assert main(["infer", model.name, "--method", "bp", "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    fields = strict_json(captured.out)
    assert fields["converged"] is False
    assert fields["residual"] is None
    assert captured.err == "warning: StandIn did not converge: stopped after 7 sweeps\n"


def test_an_infinite_upper_bound_is_null_in_json(model, monkeypatch, capsys):
    labels = np.zeros(3, dtype=np.int32)
    stand_in(
        monkeypatch,
        decode=lambda graph, potentials, **options: MapResult(
            labels=labels, score=1.0, upper_bound=math.inf, optimal=False, status="no proof"
        ),
    )
    assert main(["infer", model.name, "--task", "MAP", "--json"]) == 0
    fields = strict_json(capsys.readouterr().out)
    assert fields["upper_bound"] is None
    assert fields["optimal"] is False


def test_a_method_without_partition_function_cannot_answer_pr(model, monkeypatch, capsys):
    stand_in(
        monkeypatch,
        infer=lambda graph, potentials, **options: uniform_result(graph, log_partition=math.nan),
    )
    assert main(["infer", model.name, "--task", "PR", "--method", "gibbs", "--quiet"]) == 2
    assert_one_error_line(capsys.readouterr(), "gibbs does not estimate the partition function")
    assert main(["infer", model.name, "--method", "gibbs", "--json", "--quiet"]) == 0
    assert strict_json(capsys.readouterr().out)["log_partition"] is None


def test_progress_is_shown_on_a_terminal_only(model, monkeypatch, capsys):
    calls = []

    def infer(graph, potentials, progress, **options):
        calls.append(progress)
        if progress is not None:
            progress(3, 0.5)
            progress(10, 0.25)
        return uniform_result(graph)

    stand_in(monkeypatch, infer=infer)
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["infer", model.name, "--max-iter", "10"]) == 0
    assert main(["infer", model.name, "--quiet"]) == 0
    assert callable(calls[0])
    assert calls[1] is None
    capsys.readouterr()


def test_interrupt(model, monkeypatch, capsys):
    def infer(graph, potentials, **options):
        raise KeyboardInterrupt

    stand_in(monkeypatch, infer=infer)
    assert main(["infer", model.name, "--quiet"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


# -- mistakes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["COMMAND"]),
        (["nonsense"], ["nonsense"]),
        (["infer"], ["MODEL"]),
        (["infer", "m.uai", "--task", "SUM"], ["--task", "SUM"]),
        (["infer", "m.uai", "--method", "magic"], ["--method", "magic"]),
        (["infer", "m.uai", "--schedule", "magic"], ["--schedule", "magic"]),
        (["infer", "m.uai", "--damping", "1"], ["--damping", "below 1", "'1'"]),
        (["infer", "m.uai", "--damping", "nan"], ["--damping", "'nan'"]),
        (["infer", "m.uai", "--tol", "zero"], ["--tol", "above 0", "'zero'"]),
        (["infer", "m.uai", "--max-iter", "0"], ["--max-iter", "at least 1", "'0'"]),
        (["infer", "m.uai", "--max-memory", "-1"], ["--max-memory", "above 0", "'-1'"]),
        (["infer", "m.uai", "--seed", "1.5"], ["--seed", "'1.5'"]),
        (["infer", "m.uai", "--evidence", "e", "--no-evidence"], ["--no-evidence", "--evidence"]),
        (["infer", "m.uai", "--unknown"], ["--unknown"]),
        (["infer", "m.uai", "--task", "PR", "--method", "max-product"], ["PR", "max-product"]),
        (["infer", "m.uai", "--task", "MAP", "--method", "gibbs"], ["MAP", "gibbs"]),
        (["infer", "no/such/model.uai"], ["no/such/model.uai: No such file"]),
    ],
)
def test_bad_usage(arguments, parts, capsys):
    assert main(arguments) == 2
    assert_one_error_line(capsys.readouterr(), *parts)


def test_bad_files(model, tmp_path, capsys):
    bad = tmp_path / "bad.uai"
    bad.write_text("MARKOV\n2\n2 0\n0\n")
    assert main(["infer", str(bad)]) == 2
    assert_one_error_line(capsys.readouterr(), f"{bad}, line 3, token 4: expected", "found '0'")

    evidence = tmp_path / "bad.evid"
    evidence.write_text("1 1 7")
    assert main(["infer", model.name, "--evidence", str(evidence)]) == 2
    assert_one_error_line(capsys.readouterr(), f"{evidence}, line 1, token 3", "found '7'")

    assert main(["infer", model.name, "--evidence", str(tmp_path / "none")]) == 2
    assert_one_error_line(capsys.readouterr(), "none: No such file")

    assert main(["infer", str(tmp_path)]) == 2
    assert_one_error_line(capsys.readouterr(), "Is a directory")

    assert main(["infer", model.name, "--quiet", "--out", str(tmp_path / "no" / "file")]) == 2
    assert_one_error_line(capsys.readouterr(), "--out must lie in a folder that exists")


def test_evidence_of_weight_zero(model, tmp_path, capsys):
    evidence = tmp_path / "zero.evid"
    evidence.write_text("2 0 0 1 0")
    for task in ("MAR", "PR", "MAP"):
        options = ["--evidence", str(evidence), "--task", task, "--quiet"]
        assert main(["infer", model.name, *options]) == 2
        assert_one_error_line(capsys.readouterr(), "zero")


def test_exact_refuses_beyond_its_memory(tmp_path, capsys):
    graph = FactorGraph.grid(24, 24, 2)
    write_uai(tmp_path / "grid.uai", graph, Potentials(graph))
    name = str(tmp_path / "grid.uai")
    limit = ["--max-memory", "0.01", "--quiet"]
    assert main(["infer", name, "--method", "exact", *limit]) == 2
    assert_one_error_line(capsys.readouterr(), "GB")
    assert main(["infer", name, "--task", "PR", "--json", *limit]) == 0
    fields = strict_json(capsys.readouterr().out)
    assert fields["bound"] != "exact"
    # all weights are one: 2 ** 576 configurations, and every method finds that
    assert_allclose(fields["log10_partition"], 576 * math.log10(2), rtol=1e-9)


# -- the command itself -------------------------------------------------------------------


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    assert "fieldfit infer model.uai" in capsys.readouterr().out
    assert main(["infer", "--help"]) == 0
    text = capsys.readouterr().out
    for option in ("--evidence", "--task", "--method", "--max-memory", "--json", "examples:"):
        assert option in text
    assert main(["--version"]) == 0
    name, version = capsys.readouterr().out.split()
    assert name == "fieldfit"
    assert version[0].isdigit()


def test_methods_in_the_help_are_those_of_the_library():
    assert set(infer_command.METHODS) == {*INFERENCE_METHODS, *MAP_METHODS}
    for name in INFERENCE_METHODS:
        assert isinstance(INFERENCE_METHODS[name].make(), Inference)
    for name in MAP_METHODS:
        assert isinstance(MAP_METHODS[name].make(), MapSearch)


def test_in_a_process_of_its_own(model):
    command = [sys.executable, "-m", "fieldfit.cli.main", "infer"]
    good = subprocess.run(
        [*command, "-", "--task", "PR"],
        input=model.path.read_bytes(),
        capture_output=True,
        check=False,
    )
    assert good.returncode == 0, good.stderr
    answer = read_answer(io.BytesIO(good.stdout))
    assert_allclose(answer.log10_partition, exact_log10(model), rtol=0, atol=1e-10)
    bad = subprocess.run(
        [*command, "-"], input=b"MARKOV 1 0 0", capture_output=True, text=False, check=False
    )
    assert bad.returncode == 2
    assert bad.stdout == b""
    assert len(bad.stderr.decode().splitlines()) == 1
    assert b"Traceback" not in bad.stderr


# -- real models --------------------------------------------------------------------------

SMALL = ["Grids_11", "Promedus_30", "Pedigree_12", "CSP_12"]


@pytest.mark.data
@pytest.mark.skipif("FIELDFIT_DATA" not in os.environ, reason="FIELDFIT_DATA is not set")
@pytest.mark.parametrize("name", SMALL)
def test_real_answers(name, capsys):
    path = Path(os.environ["FIELDFIT_DATA"], "uai2014", "mar_pr", f"{name}.uai")
    assert main(["infer", str(path), "--json", "--quiet"]) == 0
    fields = strict_json(capsys.readouterr().out)
    assert fields["bound"] == "exact"
    # the stored answers have six significant digits
    reference = read_answer(f"{path}.PR").log10_partition
    assert_allclose(fields["log10_partition"], reference, rtol=2e-6, atol=1e-4)
    for actual, expected in zip(
        fields["marginals"], read_answer(f"{path}.MAR").marginals, strict=True
    ):
        assert_allclose(actual, expected, rtol=0, atol=1e-4)
    assert len(fields["marginals"]) == read_uai(path)[0].n_variables


def test_out_never_replaces_what_is_read(model, tmp_path, capsys):
    """Neither the model, nor the evidence, given or found beside it, by whatever name."""
    evidence = tmp_path / "given.evid"
    write_evidence(evidence, {1: 2})
    beside = tmp_path / "model.uai.evid"
    write_evidence(beside, {0: 1})
    link = tmp_path / "link"
    link.symlink_to(model.path)
    before = {path: path.read_bytes() for path in (model.path, evidence, beside)}
    for options in (
        ["--out", model.name],
        ["--out", str(link)],
        ["--evidence", str(evidence), "--out", str(evidence)],
        ["--out", str(beside)],
    ):
        assert main(["infer", model.name, "--quiet", *options]) == 2
        assert_one_error_line(capsys.readouterr(), "--out must not be a file that is read")
    assert main(["infer", model.name, "--quiet", "--out", str(tmp_path)]) == 2
    assert_one_error_line(capsys.readouterr(), "--out must be the name of a file")
    assert {path: path.read_bytes() for path in before} == before


def test_a_byte_order_mark_on_standard_input(model, monkeypatch, capsys):
    data = b"\xef\xbb\xbf" + model.path.read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert main(["infer", "-", "--task", "PR", "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("PR")
