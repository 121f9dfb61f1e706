"""What every reproduction shares: the list of experiments, and the files that a run leaves behind.

An experiment is a module with ``run(settings) -> Outcome``.  It computes; this file writes:

* ``results.csv``: tidy, one row for each method and setting (and further tables as ``NAME.csv``);
* ``report.md``: the paper beside ours, the command, versions, seed and machine time;
* PNG figures.

A new experiment is a module and one line in `EXPERIMENTS`.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fieldfit.errors import InvalidInputError, MissingDependencyError

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Outcome",
    "Settings",
    "markdown_table",
    "run_experiment",
    "text_table",
]

#: ``progress(done, total, what)``.
Progress = Callable[[int, int, str], None]
Row = Mapping[str, Any]
#: What the results depend on besides fieldfit itself.
PACKAGES = ("fieldfit", "numpy", "scipy", "numba", "scikit-learn")


@dataclass(frozen=True)
class Experiment:
    """An entry of the list; the module is imported only when it runs."""

    name: str
    summary: str
    paper: str
    module: str
    needs_data: bool = False


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="wainwright-fig3",
            summary="learn and predict with independent, BP and TRW fields on an 8x8 grid",
            paper="M. J. Wainwright, \"Estimating the 'wrong' Markov random field: benefits in "
            'the computation-limited setting", Advances in Neural Information Processing Systems '
            "18, 2005, figure 3",
            module="experiments.wainwright2005.run",
        ),
        Experiment(
            name="camel-ner",
            summary="names in CoNLL-2003 articles: five ways to learn a skip-chain",
            paper='V. Ganapathi, D. Vickrey, J. Duchi and D. Koller, "Constrained approximate '
            'maximum entropy learning of Markov random fields", Uncertainty in Artificial '
            "Intelligence, 2008, table 1",
            module="experiments.ganapathi2008.ner.run",
            needs_data=True,
        ),
        Experiment(
            name="camel-seminars",
            summary="extract times, places and speakers from mails by CAMEL and its rivals",
            paper='V. Ganapathi, D. Vickrey, J. Duchi and D. Koller, "Constrained approximate '
            'maximum entropy learning of Markov random fields", Uncertainty in Artificial '
            "Intelligence, 2008, table 2",
            module="experiments.ganapathi2008.seminars.run",
            needs_data=True,
        ),
        Experiment(
            name="camel-segmentation",
            summary="label the superpixels of Corel photographs by CAMEL and its rivals",
            paper='V. Ganapathi, D. Vickrey, J. Duchi and D. Koller, "Constrained approximate '
            'maximum entropy learning of Markov random fields", Uncertainty in Artificial '
            "Intelligence, 2008, table 3",
            module="experiments.ganapathi2008.segmentation.run",
            needs_data=True,
        ),
        Experiment(
            name="contrastive-seminars",
            summary="find speakers in mails by contrastive free energies and by likelihood",
            paper='M. Welling and C. Sutton, "Learning in Markov random fields with contrastive '
            'free energies", Artificial Intelligence and Statistics, 2005, table 1',
            module="experiments.welling_sutton2005.seminars.run",
            needs_data=True,
        ),
        Experiment(
            name="contrastive-hidden",
            summary="hidden units over digits, by contrastive free energies, chains and exactly",
            paper='M. Welling and C. Sutton, "Learning in Markov random fields with contrastive '
            'free energies", Artificial Intelligence and Statistics, 2005, sections 2 to 4 (no '
            "experiment of the paper has hidden variables)",
            module="experiments.welling_sutton2005.hidden.run",
        ),
        Experiment(
            name="mle-struct-house-hotel",
            summary="match landmarks of two views by weights learned through best matchings",
            paper='K. Tang, N. Ruozzi, D. Belanger and T. Jebara, "Bethe learning of graphical '
            'models via MAP decoding", Artificial Intelligence and Statistics, 2016, section on '
            "graph matching",
            module="experiments.tang2016.house_hotel.run",
            needs_data=True,
        ),
        Experiment(
            name="mle-struct-synthetic",
            summary="likelihood of Bethe, reweighted and exact estimates of random matchings",
            paper='K. Tang, N. Ruozzi, D. Belanger and T. Jebara, "Bethe learning of graphical '
            'models via MAP decoding", Artificial Intelligence and Statistics, 2016, synthetic '
            "experiment",
            module="experiments.tang2016.synthetic.run",
        ),
        Experiment(
            name="mle-struct-segmentation",
            summary="cut horses out of photographs: MLE-Struct against double loops, over time",
            paper='K. Tang, N. Ruozzi, D. Belanger and T. Jebara, "Bethe learning of graphical '
            'models via MAP decoding", Artificial Intelligence and Statistics, 2016, the '
            "segmentation experiment",
            module="experiments.tang2016.segmentation.run",
            needs_data=True,
        ),
        Experiment(
            name="mle-struct-roommates",
            summary="who shares a room, with hidden preferences; speed dating as b-matchings",
            paper='K. Tang, N. Ruozzi, D. Belanger and T. Jebara, "Bethe learning of graphical '
            'models via MAP decoding", Artificial Intelligence and Statistics, 2016, the room-mate '
            "experiment (its data are not public; drawn rooms and speed dating stand in)",
            module="experiments.tang2016.roommates.run",
            needs_data=True,
        ),
        Experiment(
            name="domke-chains",
            summary="losses on exact chains, whose model is right, nearly right or wrong",
            paper='J. Domke, "Tractable learning and inference in high-treewidth graphical '
            'models", doctoral thesis, University of Maryland, 2009, section 3.7',
            module="experiments.domke2009.chains.run",
        ),
        Experiment(
            name="domke-digits",
            summary="digits under noise: likelihoods, implicit and procedural fitting",
            paper='J. Domke, "Tractable learning and inference in high-treewidth graphical '
            'models", doctoral thesis, University of Maryland, 2009, tables 1.1 and 6.1',
            module="experiments.domke2009.digits.run",
            needs_data=True,
        ),
        Experiment(
            name="domke-entropy",
            summary="digits by implicit fitting, with entropies that are given or fitted",
            paper='J. Domke, "Tractable learning and inference in high-treewidth graphical '
            'models", doctoral thesis, University of Maryland, 2009, section 6.3',
            module="experiments.domke2009.entropy.run",
            needs_data=True,
        ),
        Experiment(
            name="domke-iterations",
            summary="digits by procedural fitting, tested with other numbers of iterations",
            paper='J. Domke, "Tractable learning and inference in high-treewidth graphical '
            'models", doctoral thesis, University of Maryland, 2009, section 6.4',
            module="experiments.domke2009.iterations.run",
            needs_data=True,
        ),
        Experiment(
            name="domke-scenes",
            summary="street scenes with missing labels, by implicit and procedural fitting",
            paper='J. Domke, "Tractable learning and inference in high-treewidth graphical '
            'models", doctoral thesis, University of Maryland, 2009, table 6.3 (CamVid stands in '
            "for StreetScenes)",
            module="experiments.domke2009.scenes.run",
            needs_data=True,
        ),
    )
}


@dataclass(frozen=True)
class Settings:
    """How to run: ``quick`` is a smaller run of the same code, ``data`` a folder of data sets."""

    quick: bool = False
    seed: int = 0
    n_jobs: int | None = None
    data: Path | None = None
    progress: Progress = field(default=lambda done, total, what: None)


@dataclass(frozen=True)
class Outcome:
    """What an experiment found.

    Attributes
    ----------
    rows
        Of ``results.csv``; all have the same columns.
    table
        For the terminal.
    report
        Markdown: what was done, the paper's figures beside ours, what differs and why.
    tables
        Further tables, by the name of their file without ``.csv``.
    figures
        Functions that draw on a new Matplotlib figure, by the name of the file without ``.png``;
        the report refers to them by that file name.
    headline
        The figures that matter most, for ``--json``.
    """

    rows: Sequence[Row]
    table: str
    report: str
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    figures: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    headline: Mapping[str, Any] = field(default_factory=dict)


def run_experiment(name: str, out: str | os.PathLike[str], settings: Settings) -> dict[str, Any]:
    """Run one experiment and write its files; returns a summary with the paths."""
    experiment = find_experiment(name)
    if find_spec("matplotlib") is None:
        raise MissingDependencyError(
            "fieldfit reproduce draws figures with matplotlib, install it with "
            "pip install 'fieldfit[plot]'"
        )
    if experiment.needs_data and settings.data is None:
        raise InvalidInputError(f"--data must name the folder of the data sets for {name}")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    wall, processor = time.perf_counter(), time.process_time()
    outcome: Outcome = import_module(experiment.module).run(settings)
    seconds, busy = time.perf_counter() - wall, time.process_time() - processor

    written = [_write(folder / "results.csv", _csv(outcome.rows))]
    for table, rows in outcome.tables.items():
        written.append(_write(folder / f"{table}.csv", _csv(rows)))
    for figure, draw in outcome.figures.items():
        written.append(_draw(folder / f"{figure}.png", draw))
    report = _report(experiment, outcome, settings, seconds, busy)
    written.append(_write(folder / "report.md", report))
    return {
        "experiment": name,
        "quick": settings.quick,
        "seed": settings.seed,
        "seconds": seconds,
        "processor_seconds": busy,
        "files": [str(path) for path in written],
        "headline": dict(outcome.headline),
        "table": outcome.table,
    }


def find_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise InvalidInputError(
            f"NAME must be one of {', '.join(EXPERIMENTS)} (fieldfit reproduce --list), got {name}"
        )
    return EXPERIMENTS[name]


# -- text ---------------------------------------------------------------------------------


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; numbers are given as text by the caller."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def text_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns aligned for a terminal, the first to the left and the others to the right."""
    lines = [[str(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _report(
    experiment: Experiment, outcome: Outcome, settings: Settings, seconds: float, busy: float
) -> str:
    command = f"fieldfit reproduce {experiment.name} --out DIR"
    command += " --data DIR" if experiment.needs_data else ""
    command += " --quick" if settings.quick else ""
    command += f" --seed {settings.seed}" if settings.seed else ""
    command += f" --n-jobs {settings.n_jobs}" if settings.n_jobs is not None else ""
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    quick = "A quick run: smaller, and so noisier, than the one reported.\n\n" * settings.quick
    return (
        f"# {experiment.name}\n\n{experiment.paper}.\n\n{quick}"
        f"```sh\n{command}\n```\n\n"
        f"Seed {settings.seed}; {seconds:.0f} s of wall time, {busy:.0f} s of processor time, "
        f"{platform.machine()} with {os.cpu_count()} processors, Python "
        f"{platform.python_version()}, {versions}.\n\n{outcome.report.strip()}\n"
    )


# -- files --------------------------------------------------------------------------------


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    columns = list(rows[0]) if rows else []
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Numbers to seven digits, nothing for what does not apply."""
    if value is None:
        return ""
    return f"{value:.7g}" if isinstance(value, float) else value


def _write(path: Path, text: str) -> Path:
    # a reader, or a run that is killed, never sees half a file
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
    return path


#: Bytes above which a picture gets fewer colours.
LARGE_PICTURE = 120_000


def _draw(path: Path, draw: Callable[[Any], None]) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(dpi=100)
    canvas = FigureCanvasAgg(figure)
    draw(figure)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    beside = path.with_name(f".{path.name}.part")
    # a palette is a third of the size, and a line drawing has few colours; a page of noisy pictures
    # is large with many
    for n_colours in (128, 32, 16):
        picture.quantize(colors=n_colours, dither=Image.Dither.NONE).save(
            beside, format="PNG", optimize=True
        )
        if beside.stat().st_size < LARGE_PICTURE:
            break
    os.replace(beside, path)
    return path
