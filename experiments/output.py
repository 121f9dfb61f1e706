"""The files that a run leaves behind: tables, report and figures."""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from experiments.base import Figure, Outcome, Row, Settings
from experiments.catalogue import Experiment

__all__ = ["csv_text", "write_outcome"]

#: What the results depend on besides fieldfit itself.
PACKAGES = ("fieldfit", "numpy", "scipy", "numba", "scikit-learn")
#: Bytes above which a picture gets fewer colours.
LARGE_PICTURE = 120_000


def write_outcome(
    folder: Path,
    experiment: Experiment,
    outcome: Outcome,
    settings: Settings,
    seconds: float,
    processor_seconds: float,
) -> list[Path]:
    """Write all files, and return their paths."""
    written = [_write(folder / "results.csv", csv_text(outcome.rows))]
    for table, rows in outcome.tables.items():
        written.append(_write(folder / f"{table}.csv", csv_text(rows)))
    for figure, draw in outcome.figures.items():
        written.append(_draw(folder / f"{figure}.png", draw))
    report = _report(experiment, outcome, settings, seconds, processor_seconds)
    written.append(_write(folder / "report.md", report))
    return written


def _report(
    experiment: Experiment, outcome: Outcome, settings: Settings, seconds: float, busy: float
) -> str:
    command = f"python -m experiments {experiment.name} --out DIR"
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


def csv_text(rows: Sequence[Row]) -> str:
    """A table with a header; numbers to seven digits, nothing for what does not apply."""
    text = io.StringIO()
    columns = list(rows[0]) if rows else []
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.7g}" if isinstance(value, float) else value


def _write(path: Path, text: str) -> Path:
    # a reader, or a run that is killed, never sees half a file
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
    return path


def _draw(path: Path, draw: Figure) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from PIL import Image

    figure = Canvas(dpi=100)
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
