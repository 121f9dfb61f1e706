"""Tables that a command writes into a page, between two marks that name it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def replace_section(page: Path, name: str, lines: list[str]) -> None:
    """Put lines between ``<!-- name:begin -->`` and ``<!-- name:end -->``."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{page} must have {begin!r} and {end!r} once each")
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    page.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + after)


def stamp(command: str) -> str:
    """Which command wrote a table, and when."""
    return f"Written by `{command}` on {time.strftime('%Y-%m-%d')}."


@contextmanager
def written_section(page: Path, name: str, command: str) -> Iterator[Callable[[str], None]]:
    """Lines are printed as they come, and put into the page when all are there."""
    lines = [stamp(command), ""]

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    yield say
    replace_section(page, name, lines)
