"""What every command says, and where: answers on standard output, all talk on standard error."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Reporter",
    "format_bytes",
    "format_ending",
    "format_pairs",
    "format_table",
    "print_json",
    "require_new",
]


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
    def warnings_at_the_end(self) -> Iterator[None]:
        """Show what was warned of inside, each thing once, unless an error is more important."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")  # deprecations in libraries are not for users
            warnings.simplefilter("always", UserWarning)
            yield
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            self.warning(text)

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


def require_new(
    outputs: Mapping[str, str | None], inputs: Sequence[str], *, or_folder: bool = False
) -> None:
    """Refuse, before any work, outputs that cannot be written or that are also inputs.

    ``outputs`` are names of files by option, ``None`` where none was given.
    """
    from fieldfit._validation import may_be_written
    from fieldfit.errors import InvalidInputError

    taken = {os.path.realpath(path) for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        if os.path.realpath(path) in taken:
            raise InvalidInputError(
                f"{option} must not be a file that is read or written otherwise, got {path}"
            )
        if os.path.isdir(path) and not or_folder:
            raise InvalidInputError(f"{option} must be the name of a file, got the folder {path}")
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise InvalidInputError(f"{option} must lie in a folder that exists, got {path}")
        if not may_be_written(path):
            raise InvalidInputError(
                f"{option} must lie in a folder that may be written to, got {path}"
            )
        taken.add(os.path.realpath(path))


def print_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON object; numbers that JSON cannot express become ``null``."""
    print(json.dumps({key: _plain(value) for key, value in fields.items()}, allow_nan=False))


def format_bytes(count: float) -> str:
    """A size for people: ``12.3 MB``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def format_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows under their column names; texts to the left, numbers to the right."""
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    is_text = [any(isinstance(row[column], str) for row in rows) for column in columns]
    widths = [
        max(len(column), *(len(row[k]) for row in cells), 0) for k, column in enumerate(columns)
    ]
    return "\n".join(
        "  ".join(
            text.ljust(width) if left else text.rjust(width)
            for text, width, left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in [list(columns), *cells]
    )


def format_pairs(pairs: Mapping[str, Any]) -> str:
    """Names and values, one pair on each line."""
    width = max(map(len, pairs), default=0)
    return "\n".join(f"{name:<{width}}  {_cell(value)}" for name, value in pairs.items())


def format_ending(converged: bool, status: str) -> str:
    """How a fit ended, for a table."""
    return f"{'yes' if converged else 'NO'}, {status.removeprefix('converged: ').rstrip('.')}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4f}" if abs(value) < 1e4 else f"{value:.6g}"
    return str(value)


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
