"""``fieldfit shard`` and ``fieldfit fit --shards``: the model that the files themselves give."""

from __future__ import annotations

import builtins
import json

import numpy as np
import pytest
from learning_files import write_training

import fieldfit as ff
from fieldfit.cli.main import main


def run(*words):
    return main([str(word) for word in words])


@pytest.mark.parametrize("kind", ["chain", "grid", "graph", "ising", "potts"])
def test_shards_give_the_model_of_the_files(kind, tmp_path, capsys):
    train = write_training(kind, tmp_path)
    options = ["--max-iter", 5, "--quiet", "--l2", 0.5]
    assert run("shard", kind, "--train", train, "--out", tmp_path / "s", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["n_shards"] == 1
    assert told["n_examples"] > 1
    assert run("fit", kind, "--shards", tmp_path / "s", "--model", tmp_path / "a.ff", *options) == 0
    assert run("fit", kind, "--train", train, "--model", tmp_path / "b.ff", *options) == 0
    first, second = ff.load(tmp_path / "a.ff"), ff.load(tmp_path / "b.ff")
    np.testing.assert_array_equal(first.weights_, second.weights_)
    assert first.notes_["reader"] == second.notes_["reader"]
    capsys.readouterr()
    assert run("score", "--model", tmp_path / "a.ff", train) == 0


def test_several_files_and_shards(tmp_path, capsys):
    train = write_training("grid", tmp_path)
    command = ["shard", "grid", "--train", train, train, "--out", tmp_path / "s"]
    assert run(*command, "--shard-size", 100) == 0
    assert "examples  12" in capsys.readouterr().out
    assert len(ff.shards.Shards(tmp_path / "s")) > 2
    assert run(*command) == 2
    assert "folder must be new or empty" in capsys.readouterr().err


def test_samples_with_edges_and_what_they_refuse(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("a,b,c\n" + "0,1,1\n1,0,NA\n0,0,1\n1,1,0\n" * 3)
    (tmp_path / "u.csv").write_text("a,b,c\n0,1,1\n1,0,7\n")
    (tmp_path / "e.csv").write_text("a,b\nb,c\n")
    shard = ["shard", "ising", "--out", tmp_path / "s", "--shard-size", 9, "--train"]
    told = complaint(capsys, *shard, tmp_path / "t.csv", tmp_path / "u.csv")
    assert "u.csv, sample 2, column 'c': samples must be 0 or 1" in told
    assert run(*shard, tmp_path / "t.csv", tmp_path / "t.csv", "--quiet") == 0
    fit = ["fit", "ising", "--shards", tmp_path / "s", "--edges", tmp_path / "e.csv"]
    assert run(*fit, "--model", tmp_path / "a.ff", "--json") == 0
    assert json.loads(capsys.readouterr().out)["standard_errors"] is False
    model = ff.load(tmp_path / "a.ff")
    assert model.edges_.tolist() == [[0, 1], [1, 2]]
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    told = complaint(
        capsys, "shard", "potts", "--train", tmp_path / "t.csv", "--out", tmp_path / "p",
        "--identity", 0.8,
    )  # fmt: skip
    assert "--identity must not be given for shards" in told


def complaint(capsys, *words):
    assert run(*words) == 2
    lines = capsys.readouterr().err.splitlines()
    return lines[-1]


def test_complaints_are_one_line(tmp_path, capsys, monkeypatch):
    train = write_training("grid", tmp_path)
    out, model = tmp_path / "s", tmp_path / "m.ff"
    assert run("shard", "grid", "--train", train, "--out", out, "--quiet") == 0
    told = complaint(capsys, "fit", "graph", "--shards", out, "--model", model)
    assert "shards must be those of a GraphCRF" in told
    told = complaint(capsys, "fit", "grid", "--shards", out, "--model", model)
    assert "l2 must be a number, numbers by block or a RelativePenalty for shards" in told
    told = complaint(capsys, "fit", "grid", "--shards", tmp_path / "no", "--model", model)
    assert "expected a folder of shards with a manifest.json" in told
    told = complaint(capsys, "fit", "grid", "--train", train, "--dask", "x", "--model", model)
    assert "--dask needs --shards" in told
    given = ["fit", "grid", "--shards", out, "--dask", "nonsense://1", "--model", model]
    assert "--dask must be the address of a running scheduler" in complaint(capsys, *given)
    with np.load(train) as arrays:
        changed = {name: arrays[name].copy() for name in arrays}
    name = next(name for name, array in changed.items() if array.dtype.kind == "f")
    changed[name][0].flat[0] = np.nan
    np.savez(tmp_path / "bad.npz", **changed)
    bad = tmp_path / "bad.npz"
    told = complaint(capsys, "shard", "grid", "--train", train, bad, "--out", tmp_path / "t")
    assert "bad.npz" in told
    assert "finite" in told

    imported = builtins.__import__

    def without_dask(name, *arguments):
        if name.split(".")[0] in ("dask", "distributed"):
            raise ImportError(name)
        return imported(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_dask)
    assert "pip install 'fieldfit[dask]'" in complaint(capsys, *given)
