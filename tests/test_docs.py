"""The README, the pages in docs/ and the examples: their code runs, their links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from learning_files import write_archive, write_columns, write_matchings, write_table

import fieldfit as ff
from experiments.__main__ import main as run_experiments
from experiments.catalogue import EXPERIMENTS
from fieldfit.cli.main import main
from fieldfit.demo.demo_page import FIRST_PROGRAM

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
OPENED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(
    not (ROOT / "README.md").exists(), reason="the package is tested without its repository"
)


def code_blocks(page, language):
    return [code for found, code in OPENED.findall(page.read_text()) if found == language]


def page_name(page):
    return page.relative_to(ROOT).as_posix()


# -- code ---------------------------------------------------------------------------------


#: The program of the README has a test of its own.
WITH_CODE = [page for page in PAGES if code_blocks(page, "python") and page.name != "README.md"]


@pytest.mark.parametrize("page", WITH_CODE, ids=page_name)
def test_code_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for code in code_blocks(page, "python"):
        exec(compile(code, str(page), "exec"), names)


def test_most_pages_have_code():
    """Otherwise `test_code_runs` would pass when the pattern finds nothing."""
    assert len(WITH_CODE) >= 8


def test_first_program_is_that_of_the_demo_and_learns_to_restore(capsys):
    program, *_ = code_blocks(ROOT / "README.md", "python")
    assert program == FIRST_PROGRAM
    assert sum(bool(line.strip()) for line in program.splitlines()) <= 12
    names = {}
    exec(program, names)
    truth, seen = names["Y"][10:], names["X"][10:]
    before = ((seen > 0.5) != truth).mean()
    after = (np.array(names["crf"].predict(seen)) != truth).mean()
    assert after < before / 2
    told = capsys.readouterr().out
    assert f"error per pixel: {before} -> " in told
    assert "converged" in told


def test_five_first_jobs(tmp_path, monkeypatch, capsys):
    """At most ten lines of Python and one command each, on files of the formats that are named."""
    monkeypatch.chdir(tmp_path)
    write_columns(tmp_path / "train.txt")
    write_archive(tmp_path / "pictures.npz")
    write_table(tmp_path / "answers.csv")
    write_matchings(tmp_path / "pairs.npz")
    graph = ff.FactorGraph.chain(3, 2)
    ff.write_uai("model.uai", graph, ff.Potentials(graph, np.eye(3, 2), np.eye(2)))
    jobs = (ROOT / "README.md").read_text().split("## Five first jobs")[1].split("\n## ")[0]
    blocks = OPENED.findall(jobs)
    assert [language for language, _ in blocks] == ["python", "sh"] * 5
    for language, code in blocks:
        lines = [line for line in code.splitlines() if line.strip()]
        if language == "python":
            assert len(lines) <= 10
            exec(compile(code, "README.md", "exec"), {})
        else:
            (line,) = lines
            assert main([*line.split()[1:]]) == 0, line
    assert (tmp_path / "tags.html").exists()
    assert "standard errors" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_have_the_options_that_are_shown(page, capsys):
    for block in code_blocks(page, "sh"):
        for line in re.findall(r"^fieldfit .*$", block, re.MULTILINE):
            command, *words = line.split("#")[0].split()[1:]
            kind = (
                words[:1] if command in ("fit", "shard", "compare") else []
            )  # each has options of its own
            assert main([command, *kind, "--help"]) == 0
            known = capsys.readouterr().out
            for word in words:
                assert not word.startswith("--") or word in known, f"{line}: {word}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_experiments_exist_with_the_options_that_are_shown(page, capsys):
    assert run_experiments(["--help"]) == 0
    known = capsys.readouterr().out
    for line in re.findall(r"^python -m experiments .*$", page.read_text(), re.MULTILINE):
        name, *words = line.split("#")[0].split()[3:]
        assert name.startswith("-") or name in EXPERIMENTS, line
        for word in words:
            assert not word.startswith("--") or word in known, f"{line}: {word}"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_page_with_its_command(name):
    pages = [page.read_text() for page in ROOT.glob("docs/papers/*.md")]
    assert sum(f"python -m experiments {name} " in text for text in pages) == 1


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_make_targets_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    used = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    assert set(used) <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_public_names_exist(page):
    for name in re.findall(r"\bff\.(\w+)", page.read_text()):
        assert hasattr(ff, name), name


# -- links --------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_named_files_exist(page):
    """Files that a page names in back quotes, relative to the root or to the package."""
    for name in re.findall(r"`((?:[\w.]+/)+[\w.]+\.py)`", page.read_text()):
        assert (ROOT / name).exists() or (ROOT / "src/fieldfit" / name).exists(), name


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/index.md").read_text()
    for page in ROOT.glob("docs/**/*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "index.md" or f"({name})" in index


def test_pictures_are_small():
    pictures = list(ROOT.glob("docs/images/*"))
    assert pictures
    assert all(picture.stat().st_size < 150_000 for picture in pictures)


# -- examples -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_draws(path, tmp_path, monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.setattr(pyplot, "show", lambda: None)
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(path))
    assert capsys.readouterr().out
    assert pyplot.get_fignums()
    pyplot.close("all")
    if path.stem == "many_graphs":
        assert names["worst"] < 1e-6
    if path.stem == "parity_code":
        assert names["wrong"]["best word"][0] < names["wrong"]["line"][0]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short_and_have_a_title(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 85
    title, line = text.splitlines()[1:3]
    assert line == "=" * len(title), "the gallery needs a title"
    assert "\n# %%\n" in text


def test_examples_are_listed_in_the_readme():
    assert "(examples)" in (ROOT / "README.md").read_text()


# -- the index of the design --------------------------------------------------------------


def index_rows():
    """Rows (search, file) of the table "From a formula to its file"."""
    text = (ROOT / "docs/design.md").read_text().split("## From a formula to its file")[1]
    return re.findall(r"^\| ([^|`]+) \| `([^`]+)` \|$", text, re.MULTILINE)


def plain(text):
    return re.sub(r"[\s_-]+", " ", text.lower())


@pytest.mark.parametrize(("search", "file"), index_rows())
def test_a_search_finds_its_file_by_name_or_first_line(search, file):
    path = Path(ff.__file__).parent / file
    assert path.exists(), f"docs/design.md names {file}"
    first = path.read_text().lstrip('r"').split("\n")[0]
    for words in search.split(","):
        where = f"{plain(path.stem)} | {plain(first)}"
        assert plain(words.strip()) in where, f"{file}: {words.strip()!r} not in {where!r}"


def test_the_index_is_long_enough():
    assert len(index_rows()) >= 30


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_files_that_are_named_exist(page):
    source = Path(ff.__file__).parent
    for name in re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*/[a-z_0-9]+\.py)`", page.read_text()):
        assert any((folder / name).exists() for folder in (ROOT, source, source / "inference")), (
            f"{page_name(page)} names {name}"
        )
