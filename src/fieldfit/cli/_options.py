"""Values of options: parsed, checked, and refused in one sentence."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

__all__ = ["choices_by_name", "count", "number", "word_pair", "words"]


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


def choices_by_name(choices: tuple[str, ...]) -> Callable[[str], dict[str, str]]:
    """Different names with one of ``choices`` each: ``NAME=CHOICE,...``."""

    def parse(text: str) -> dict[str, str]:
        pairs = [tuple(map(str.strip, one.split("=", 1))) for one in text.split(",")]
        found = {pair[0]: pair[-1] for pair in pairs if len(pair) == 2 and pair[0]}
        if len(found) < len(pairs) or not set(found.values()) <= set(choices):
            raise argparse.ArgumentTypeError(
                "must be different names with one of "
                f"{', '.join(choices)} each, as NAME={choices[-1]},..., got {text!r}"
            )
        return found

    return parse


def word_pair(text: str) -> tuple[str, str]:
    """Two different names, separated by a comma."""
    found = words(text)
    if len(found) != 2:
        raise argparse.ArgumentTypeError(f"must be two names separated by a comma, got {text!r}")
    return found[0], found[1]
