"""Values of options: parsed, checked, and refused in one sentence."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

__all__ = ["count", "number", "word_pair", "words"]


def number(
    requirement: str, allowed: Callable[[float], bool], words: tuple[str, ...] = ()
) -> Callable[[str], float | str]:
    """A finite number for which ``allowed`` holds, or one of ``words``."""

    def parse(text: str) -> float | str:
        if text in words:
            return text
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and allowed(value)):
            further = "".join(f" or {word!r}" for word in words)
            raise argparse.ArgumentTypeError(
                f"must be a number {requirement}{further}, got {text!r}"
            )
        return value

    return parse


def count(low: int) -> Callable[[str], int]:
    """An integer of at least ``low``."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"must be an integer of at least {low}, got {text!r}")
        return value

    return parse


def words(text: str) -> list[str]:
    """Different names, separated by commas."""
    found = [word.strip() for word in text.split(",")]
    if not all(found) or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(
            f"must be different names separated by commas, got {text!r}"
        )
    return found


def word_pair(text: str) -> tuple[str, str]:
    """Two different names, separated by a comma."""
    found = words(text)
    if len(found) != 2:
        raise argparse.ArgumentTypeError(f"must be two names separated by a comma, got {text!r}")
    return found[0], found[1]
