"""What every command says, and where: answers on standard output, all talk on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Reporter", "format_bytes", "print_json"]


@dataclass(frozen=True)
class Reporter:
    """Notes and warnings on standard error; ``quiet`` drops the notes, never a warning."""

    quiet: bool = False

    def note(self, text: str) -> None:
        if not self.quiet:
            print(_one_line(text), file=sys.stderr)

    def warning(self, text: str) -> None:
        print(f"warning: {_one_line(text)}", file=sys.stderr)

    @contextmanager
    def progress(
        self, description: str, total: int | None
    ) -> Iterator[Callable[[int, float], None] | None]:
        """Yield ``update(n_iter, residual)`` of a progress bar, or ``None`` off a terminal."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from tqdm import tqdm

        # a bar that would vanish within a second is noise
        with tqdm(
            desc=description, total=total, file=sys.stderr, delay=1.0, leave=False, unit="it"
        ) as bar:

            def update(n_iter: int, residual: float) -> None:
                bar.set_postfix_str(f"residual {residual:.2e}", refresh=False)
                bar.update(n_iter - bar.n)

            yield update


def print_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON object; numbers that JSON cannot express become ``null``."""
    print(json.dumps({key: _plain(value) for key, value in fields.items()}, allow_nan=False))


def format_bytes(count: float) -> str:
    """A size for people: ``12.3 MB``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _one_line(text: str) -> str:
    return " ".join(text.split())
