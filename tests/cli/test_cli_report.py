"""``fieldfit fit --report``: the page of every kind, from files."""

from __future__ import annotations

import json

import pytest
from learning_files import write_alignment, write_rooms, write_training
from report_cases import Page

from fieldfit.cli.kinds.registry import KINDS
from fieldfit.cli.main import main

NAMES = [kind.name for kind in KINDS]


def run(*words):
    return main([str(word) for word in words])


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", NAMES)
def test_report_on_the_training_data(kind, tmp_path, capsys):
    train, report = write_training(kind, tmp_path), tmp_path / "fit.html"
    command = ["fit", kind, "--train", train, "--l2", 1, "--model", tmp_path / "m.ff"]
    assert run(*command, "--report", report, "--json") == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(report)
    page = read(report)
    wanted = "Predictions" if kind not in ("ising", "potts") else "Score"
    assert {wanted, "Weights"} <= set(page.headings)
    assert f"fieldfit fit {kind} --train {train} --l2 1" in page.text


def test_report_on_test_data(tmp_path, capsys):
    train, report = write_training("grid", tmp_path), tmp_path / "fit.html"
    files = ["--train", train, "--test", train, train, "--model", tmp_path / "m.ff"]
    assert run("fit", "grid", *files, "--l2", 1, "--report", report) == 0
    told = capsys.readouterr()
    assert f"{report}, " in told.out
    assert "test data: " in told.err
    assert "pixels of 12 examples" in read(report).text


def test_names_of_files_are_on_the_page(tmp_path, capsys):
    report = tmp_path / "fit.html"
    train = write_alignment(tmp_path / "t.fasta")
    command = ["fit", "potts", "--train", train, "--alphabet=-ACD", "--model", tmp_path / "m.ff"]
    assert run(*command, "--report", report, "--quiet") == 0
    assert [row[0] for row in read(report).tables["Confusion matrix"].rows] == ["-", "A", "C", "D"]
    train = write_rooms(tmp_path / "rooms.csv")
    command = ["fit", "matching", "--graph", "general", "--train", train]
    assert run(*command, "--model", tmp_path / "m.ff", "--report", report, "--quiet") == 0
    names = {row[0] for row in read(report).tables["Weights of features"].rows}
    assert not any(name.startswith("feature ") for name in names)


def test_report_of_shards_is_made_without_data(tmp_path, capsys):
    train, report = write_training("grid", tmp_path), tmp_path / "fit.html"
    assert run("shard", "grid", "--train", train, "--out", tmp_path / "s", "--quiet") == 0
    command = ["fit", "grid", "--shards", tmp_path / "s", "--l2", 1, "--model", tmp_path / "m.ff"]
    assert run(*command, "--report", report, "--quiet") == 0
    assert "Predictions" not in read(report).headings
    assert run(*command, "--report", report, "--test", train, "--quiet") == 0
    assert "Predictions" in read(report).headings


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--test", "{train}"], "--test needs --report"),
        (["--report", "{train}"], "--report must not be a file that is read"),
        (["--report", "no/such/folder/fit.html"], "--report must lie in a folder that exists"),
        (["--report", "fit.html", "--test", "missing.npz"], "missing.npz"),
    ],
)
def test_mistakes_are_one_line_before_any_work(options, complaint, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = write_training("grid", tmp_path)
    words = [word.format(train=train) for word in options]
    assert run("fit", "grid", "--train", train, "--model", "m.ff", "--quiet", *words) == 2
    told = capsys.readouterr().err
    assert complaint in told
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "m.ff").exists()
