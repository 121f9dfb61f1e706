"""Put the reports of reproductions into the documentation.

python -m benchmarks.reproductions DIR... [--write docs/reproductions.md]

Each DIR is the ``--out`` of a ``fieldfit reproduce`` run.  Its report becomes a section (and
replaces the section of that experiment, if the page has one already); its pictures go to
``docs/images``.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

HEAD = """\
# Reproductions

`fieldfit reproduce NAME --out DIR` runs an experiment of a paper again and writes `results.csv`,
`report.md` and figures to `DIR`; `--quick` is a smaller run of the same code. The sections below
are the reports of runs, full ones unless the command that is shown has `--quick`, put here by
`python -m benchmarks.reproductions DIR`.
"""

#: Figures that show data which may not be passed on.
UNPUBLISHED = (
    "camel-segmentation/pictures.png",
    "domke-scenes/scenes.png",
    "mle-struct-segmentation/pictures.png",
)


def section(report: Path, images: Path) -> tuple[str, str]:
    """Name and text of a report as a section, with its pictures copied."""
    text = report.read_text(encoding="utf-8")
    name = text.splitlines()[0].removeprefix("# ").strip()

    def moved(match: re.Match[str]) -> str:
        if f"{name}/{match[2]}" in UNPUBLISHED:
            return f"({match[1]}: `{match[2]}` in DIR.)"
        target = f"{name}-{match[2]}"
        images.mkdir(exist_ok=True)
        shutil.copyfile(report.parent / match[2], images / target)
        return f"![{match[1]}](images/{target})"

    text = re.sub(r"!\[([^\]]*)\]\(([^)]+)\)", moved, text)
    return name, re.sub(r"^#", "##", text, flags=re.MULTILINE).strip() + "\n"


def page(old: str, sections: dict[str, str]) -> str:
    """The page with these sections added or replaced, others kept."""
    kept = re.split(r"^(?=## )", old, flags=re.MULTILINE)[1:]
    merged = {part.splitlines()[0].removeprefix("## ").strip(): part for part in kept} | sections
    return "\n".join([HEAD, *(text.strip() + "\n" for text in merged.values())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--write", type=Path, default=Path("docs/reproductions.md"))
    args = parser.parse_args()
    images = args.write.parent / "images"
    sections = dict(section(folder / "report.md", images) for folder in args.folders)
    old = args.write.read_text(encoding="utf-8") if args.write.exists() else ""
    args.write.write_text(page(old, sections), encoding="utf-8")
    print(f"{args.write}: {', '.join(sections)}")


if __name__ == "__main__":
    main()
