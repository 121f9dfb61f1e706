"""The driver of experiments: files, the log of finished tasks, interrupted runs, the command."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import fake_experiment
import numpy as np
import pytest
from fake_experiment import Design, Fake

from experiments import driver
from experiments.__main__ import main
from experiments.base import Result, Settings
from experiments.catalogue import EXPERIMENTS
from experiments.domke2009.chains import run as chains
from experiments.domke2009.iterations import run as iterations
from experiments.driver import plan_of, run_experiment, run_plan
from experiments.log import RunLog, header_of
from experiments.record import record
from experiments.tang2016.synthetic import run as synthetic
from experiments.wainwright2005 import run as wainwright
from fieldfit import InvalidInputError
from fieldfit.errors import MissingDependencyError

pytest.importorskip("matplotlib")

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "fake", None)
    fake_experiment.register()
    monkeypatch.setattr(Fake, "computed", [])
    return Fake


def read_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def without_times(rows):
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]


def without_clock(report):
    return re.sub(r"Seed .*? processor time", "", report)


# -- files --------------------------------------------------------------------------------


def test_a_run_leaves_tables_report_and_figures(fake, tmp_path):
    summary = run_experiment("fake", tmp_path, Settings())
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["arrays", "more.csv", "report.md", "results.csv", "rows.jsonl", "values.png"]
    first, second = (tmp_path / "results.csv").read_text().splitlines()[:2]
    assert first == "method,number,value,none,ok"
    assert second == "a,0,0.3333333,,True"
    report = (tmp_path / "report.md").read_text()
    assert report.startswith("# fake\n\nNobody (1901).\n")
    assert "python -m experiments fake --out DIR\n" in report
    assert "numpy " in report
    assert (tmp_path / "values.png").read_bytes().startswith(b"\x89PNG")
    assert summary["headline"]["total"] > 0.0
    assert summary["tasks"] == 6
    assert not list(tmp_path.glob(".*"))


def test_the_log_has_all_digits(fake, tmp_path):
    run_experiment("fake", tmp_path, Settings())
    header, first, *_ = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert header["experiment"] == "fake"
    assert header["design"] == {"n_tasks": 6, "factor": 1 / 3, "methods": ["a", "b"]}
    assert header["seed"] == 0
    assert header["version"]
    assert first["task"] == [0, "a"]
    assert first["rows"][0]["value"] == 1 / 3


def test_every_plan_has_sizes_and_tasks_that_differ():
    for experiment in EXPERIMENTS.values():
        for quick in (True, False):
            plan = plan_of(experiment, Settings(quick=quick))
            tasks = plan.tasks()
            assert len(set(tasks)) == len(tasks) > 0
            assert all(plan.describe(task) for task in tasks)


def test_plans_are_where_their_names_say():
    for experiment in EXPERIMENTS.values():
        assert (experiment.folder / "run.py").exists()


def test_experiments_are_distributed_with_the_sources_but_not_installed():
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    assert targets["wheel"]["packages"] == ["src/fieldfit"]
    assert "experiments" in targets["sdist"]["include"]


def test_no_folder_has_many_modules_and_imports_are_absolute():
    for folder in {path.parent for path in (ROOT / "experiments").rglob("*.py")}:
        assert len(list(folder.glob("*.py"))) <= 20, folder
    for path in (ROOT / "experiments").rglob("*.py"):
        assert not re.search(r"^\s*from \.", path.read_text(), re.MULTILINE), path


def test_missing_matplotlib_is_said_before_the_work(fake, monkeypatch, tmp_path):
    monkeypatch.setattr(driver, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"fieldfit\[plot,images\]"):
        run_experiment("fake", tmp_path / "out", Settings())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [e.name for e in EXPERIMENTS.values() if e.needs_data])
def test_data_must_be_given_where_needed(name, tmp_path, capsys):
    with pytest.raises(InvalidInputError, match=f"--data must name .* for {name}"):
        run_experiment(name, tmp_path, Settings())
    assert main([name, "--out", str(tmp_path)]) == 2
    assert "--data must name" in capsys.readouterr().err


# -- interrupted runs ---------------------------------------------------------------------


def run_killed(folder, at):
    """Run the fake experiment in a process that kills itself before one of its tasks."""
    code = (
        "import sys, fake_experiment; fake_experiment.register(); "
        "from experiments.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    path = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code, "fake", "--out", str(folder)],
        env={**os.environ, "FAKE_KILLED_AT": str(at), "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_run_that_was_killed_goes_on(fake, tmp_path):
    killed = run_killed(tmp_path / "killed", at=3)
    assert killed.returncode < 0
    assert not (tmp_path / "killed" / "results.csv").exists()
    assert len((tmp_path / "killed" / "rows.jsonl").read_text().splitlines()) == 1 + 3
    summary = run_experiment("fake", tmp_path / "killed", Settings())
    assert summary["tasks_found"] == 3
    assert fake.computed == [(3, "b"), (4, "a"), (5, "b")]
    run_experiment("fake", tmp_path / "whole", Settings())
    for name in ("results.csv", "more.csv", "values.png"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    reports = [(tmp_path / run / "report.md").read_text() for run in ("killed", "whole")]
    assert without_clock(reports[0]) == without_clock(reports[1])


def test_arrays_stay_with_their_tasks_when_a_plan_gets_more_of_them(fake, tmp_path):
    header = header_of("fake", Design(), 0, "1")
    given = {("old", n): Result([], arrays={"values": np.full(2, float(n))}) for n in range(3)}
    with RunLog(tmp_path, header, list(given)) as log:
        for task, result in given.items():
            log.add(task, result, 0.0, 0.0)
    with RunLog(tmp_path, header, [("new", 0), *given]) as log:
        for task, result in given.items():
            np.testing.assert_array_equal(log[task].arrays["values"], result.arrays["values"])
        assert ("new", 0) not in log


def test_a_task_that_fails_loses_only_itself(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_FAILS_AT", "4")
    with pytest.raises(RuntimeError, match="out of luck"):
        run_experiment("fake", tmp_path, Settings())
    monkeypatch.delenv("FAKE_FAILS_AT")
    fake.computed.clear()
    run_experiment("fake", tmp_path, Settings())
    assert fake.computed == [(4, "a"), (5, "b")]


def test_a_finished_run_computes_nothing_again(fake, tmp_path):
    run_experiment("fake", tmp_path, Settings())
    (tmp_path / "results.csv").unlink()
    fake.computed.clear()
    run_experiment("fake", tmp_path, Settings())
    assert not fake.computed
    assert len(read_rows(tmp_path / "results.csv")) == 6


@pytest.mark.parametrize("torn", [1, 30, 200])
def test_a_torn_last_line_is_computed_again(fake, tmp_path, torn):
    run_experiment("fake", tmp_path, Settings())
    wanted = (tmp_path / "results.csv").read_text()
    log = tmp_path / "rows.jsonl"
    log.write_bytes(log.read_bytes()[:-torn])
    fake.computed.clear()
    run_experiment("fake", tmp_path, Settings())
    assert fake.computed == [(5, "b")]
    assert (tmp_path / "results.csv").read_text() == wanted
    assert len(log.read_text().splitlines()) == 1 + 6


def test_a_torn_header_is_no_run(fake, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"experiment": "fa')
    run_experiment("fake", tmp_path, Settings())
    assert len(fake.computed) == 6


def test_a_damaged_line_is_refused(fake, tmp_path):
    run_experiment("fake", tmp_path, Settings())
    log = tmp_path / "rows.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:2], lines[2][:10], *lines[3:]]) + "\n")
    with pytest.raises(InvalidInputError, match=r"rows\.jsonl, line 3: expected a finished task"):
        run_experiment("fake", tmp_path, Settings())


def test_other_settings_are_refused_in_one_sentence(fake, tmp_path, monkeypatch, capsys):
    run_experiment("fake", tmp_path, Settings())
    assert main(["fake", "--out", str(tmp_path), "--seed", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "seed was 0, is 1" in line
    assert "--fresh" in line
    assert "--out" in line
    with pytest.raises(InvalidInputError, match="design n_tasks was 6, is 2"):
        run_experiment("fake", tmp_path, Settings(quick=True))
    monkeypatch.setattr(driver.fieldfit, "__version__", "99")
    with pytest.raises(InvalidInputError, match=r'version was ".*", is "99"'):
        run_experiment("fake", tmp_path, Settings())


def test_fresh_discards_what_is_there(fake, tmp_path):
    run_experiment("fake", tmp_path, Settings())
    fake.computed.clear()
    run_experiment("fake", tmp_path, Settings(seed=1), fresh=True)
    assert len(fake.computed) == 6
    assert json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])["seed"] == 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs file locks")
def test_two_runs_do_not_share_a_folder(fake, tmp_path, monkeypatch):
    def again(self, task, results):
        run_experiment("fake", tmp_path, Settings())

    monkeypatch.setattr(Fake, "run_task", again)
    with pytest.raises(InvalidInputError, match="another run is writing"):
        run_experiment("fake", tmp_path, Settings())


def test_threads_store_what_is_finished_first(fake, tmp_path, monkeypatch):
    original = Fake.run_task

    def slow_first(self, task, results):
        time.sleep(0.2 if task[0] == 0 else 0.0)
        return original(self, task, results)

    monkeypatch.setattr(Fake, "n_threads", 2)
    monkeypatch.setattr(Fake, "run_task", slow_first)
    run_experiment("fake", tmp_path, Settings())
    stored = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()[1:]]
    assert stored[0]["task"] != [0, "a"]
    assert [row["number"] for row in read_rows(tmp_path / "results.csv")] == list("012345")


SMALL = {
    "domke-chains": (
        chains.Chains,
        chains.Design(length=12, n_train=(2, 4), n_test=10, n_repeats=1, max_iter=5),
    ),
    "mle-struct-synthetic": (
        synthetic.RandomMatchings,
        synthetic.Design(sizes=(3,), n_samples=(5, 20), n_repeats=2),
    ),
    "wainwright-fig3": (
        wainwright.Figure3,
        wainwright.Design(3, (0.0, 1.0), (0.0, 0.1, 1.0), 2, 300, 2, has_variants=False),
    ),
    "domke-iterations": (
        iterations.Iterations,
        iterations.Design(n_each=1, n_repeats=1, trained=(1, 2), tested=(1, 3)),
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_experiments_go_on_after_an_interrupt(name, tmp_path, monkeypatch):
    """As with Ctrl-C after two tasks; the second part knows only what is on the disk."""
    from test_domke_digits import write_digits

    plan, design = SMALL[name]
    monkeypatch.setattr(plan, "quick", design)
    (tmp_path / "data").mkdir()
    data = write_digits(tmp_path / "data")

    def stop(done, total, what):
        if done == 2:
            raise KeyboardInterrupt

    cut, whole = tmp_path / "cut", tmp_path / "whole"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(name, cut, Settings(quick=True, data=data, progress=stop))
    found = run_experiment(name, cut, Settings(quick=True, data=data))
    assert found["tasks_found"] == 2
    run_experiment(name, whole, Settings(quick=True, data=data))
    tables = [without_times(read_rows(folder / "results.csv")) for folder in (cut, whole)]
    assert tables[0] == tables[1]


def test_an_outcome_without_files(fake):
    outcome = run_plan(Fake(Design(n_tasks=2), Settings()))
    assert [row["number"] for row in outcome.rows] == [0, 1]


# -- the command --------------------------------------------------------------------------


def test_list(capsys):
    assert main(["--list"]) == 0
    assert re.search(r"^wainwright-fig3 +\w+", capsys.readouterr().out, re.MULTILINE)
    assert main(["--list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["experiments"]
    assert set(found[0]) == {"name", "summary", "paper", "data"}
    assert [entry["name"] for entry in found] == list(EXPERIMENTS)


def test_help_teaches_and_imports_nothing_heavy():
    code = (
        "import sys; from experiments.__main__ import main; status = main(['--help']); "
        "print('numpy' in sys.modules, file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "examples:" in done.stdout
    assert "interrupted goes on" in done.stdout
    assert done.stderr.strip() == "False"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "NAME must be given"),
        (["nonsense"], "NAME must be one of wainwright-fig3"),
        (["wainwright-fig3", "--data", "/no/such/folder"], "--data must be a folder"),
        (["wainwright-fig3", "--seed", "-1"], "must be an integer of at least 0"),
        (["wainwright-fig3", "--n-jobs", "0"], "--n-jobs must not be 0"),
        (["--record", "/no/such/folder"], "folder of a finished run"),
        (["wainwright-fig3", "--nonsense"], "unrecognized arguments"),
    ],
)
def test_bad_usage_is_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("experiments: error: ")
    assert message in line


def test_progress_and_table(fake, tmp_path, capsys):
    assert main(["fake", "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == "6 rows\n"
    assert "fake: 50 %, 3 of 6 tasks, about 0 s left; 3, b" in captured.err
    assert "fake: 100 %, 6 of 6 tasks; writing the report" in captured.err
    assert "written:" in captured.err
    assert main(["fake", "--out", str(tmp_path)]) == 0
    assert "fake: 6 of 6 tasks found" not in capsys.readouterr().err
    assert main(["fake", "--out", str(tmp_path / "quiet"), "--quiet", "--json", "--quick"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out)["tasks"] == 2


def test_an_interrupt_says_how_to_go_on(fake, tmp_path, monkeypatch, capsys):
    def stop(self, task, results):
        raise KeyboardInterrupt

    monkeypatch.setattr(Fake, "run_task", stop)
    assert main(["fake", "--out", str(tmp_path), "--quiet"]) == 130
    assert "the same command goes on" in capsys.readouterr().err


# -- recorded reports ---------------------------------------------------------------------


def test_a_report_is_recorded_without_pictures_that_may_not_be_shown(tmp_path):
    (tmp_path / "a.png").write_bytes(b"a")
    (tmp_path / "scenes.png").write_bytes(b"secret")
    text = "# domke-scenes\n\n![A](a.png)\n\n![Scenes](scenes.png)\n"
    (tmp_path / "report.md").write_text(text)
    written = record(tmp_path, tmp_path / "kept")
    assert sorted(path.name for path in written) == ["a.png", "report.md"]
    kept = (tmp_path / "kept" / "report.md").read_text()
    assert "![A](a.png)" in kept
    assert "(Scenes: `scenes.png` in DIR.)" in kept
    assert not (tmp_path / "kept" / "scenes.png").exists()


def test_every_experiment_has_a_recorded_report():
    for name, experiment in EXPERIMENTS.items():
        report = experiment.folder / "results" / "report.md"
        assert report.read_text().startswith(f"# {name}\n"), name
        for picture in re.findall(r"\]\(([^)]+\.png)\)", report.read_text()):
            assert (report.parent / picture).stat().st_size < 150_000, picture
