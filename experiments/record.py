"""Keep the report of a run, with its figures, beside the experiment: ``--record DIR``."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from experiments.catalogue import EXPERIMENTS
from fieldfit import InvalidInputError

__all__ = ["UNPUBLISHED", "record"]

#: Figures that show data which may not be passed on, by experiment.
UNPUBLISHED = {
    "camel-segmentation": ("pictures.png",),
    "domke-scenes": ("scenes.png",),
    "mle-struct-segmentation": ("pictures.png",),
}


def record(folder: Path, results: Path | None = None) -> list[Path]:
    """Copy ``report.md`` and its figures from the folder of a run; returns the copies.

    They go to ``results/`` beside the experiment, unless another folder is given.
    """
    report = folder / "report.md"
    if not report.is_file():
        raise InvalidInputError(
            f"--record must name the folder of a finished run, got {folder} without report.md"
        )
    text = report.read_text(encoding="utf-8")
    name = text.splitlines()[0].removeprefix("# ").strip()
    if name not in EXPERIMENTS:
        raise InvalidInputError(f"{report}: expected the name of an experiment, found {name!r}")
    target = EXPERIMENTS[name].folder / "results" if results is None else results
    target.mkdir(parents=True, exist_ok=True)
    written = []

    def kept(match: re.Match[str]) -> str:
        title, picture = match.groups()
        if picture in UNPUBLISHED.get(name, ()):
            return f"({title}: `{picture}` in DIR.)"
        written.append(Path(shutil.copyfile(folder / picture, target / picture)))
        return match[0]

    text = re.sub(r"!\[([^\]]*)\]\(([^)]+)\)", kept, text)
    (target / "report.md").write_text(text, encoding="utf-8")
    return [target / "report.md", *written]
