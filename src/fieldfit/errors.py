"""Errors and warnings that fieldfit raises on purpose.

Every message is one sentence: which argument, what is required, what was received.  An error about
one example of a data set also carries its place as attributes, so that a program that knows where
the example came from (a file and a line) can say that instead.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CheckpointWarning",
    "ConvergenceWarning",
    "FileFormatError",
    "FileWriteError",
    "InvalidInputError",
    "MissingDependencyError",
    "NoGainWarning",
    "Place",
    "TooLargeError",
    "WorkersLostError",
    "ZeroWeightError",
]


@dataclass(frozen=True)
class Place:
    """Where in the data something is wrong.

    Attributes
    ----------
    argument
        ``"X"``, ``"Y"`` or ``"samples"``.
    example
        Index of the example (the row of ``samples``); ``None``: it is about all of them.
    position
        Index of a token or variable in the example.
    column, name
        Variable of ``samples``: its number, and its name if it has one.
    is_validation
        It is about the examples that were given for validation.

    Examples
    --------
    >>> Place("X", 3).say("features must be finite, got nan")
    'X[3]: features must be finite, got nan'
    >>> Place("Y", 3, 1).say("must be a label, got 'x'")
    "Y[3][1] must be a label, got 'x'"
    >>> Place("samples", 2, column=4).say("must be 0 or 1, got 7")
    'samples must be 0 or 1, got 7 in row 2, column 4'
    >>> Place("samples", 2, column=4, name="sleep").say("must be 0 or 1, got 7")
    "samples must be 0 or 1, got 7 in row 2, column 'sleep'"
    """

    argument: str
    example: int | None = None
    position: int | None = None
    column: int | None = None
    name: str | None = None
    is_validation: bool = False

    def say(self, requirement: str) -> str:
        """The sentence with its place; ``requirement`` begins with "must" or its own subject."""
        text = self._samples(requirement) if self.argument == "samples" else self._item(requirement)
        return f"validation: {text}" if self.is_validation else text

    def _item(self, requirement: str) -> str:
        indices = (self.example, self.position)
        name = self.argument + "".join(f"[{index}]" for index in indices if index is not None)
        return (
            f"{name} {requirement}" if requirement.startswith("must") else f"{name}: {requirement}"
        )

    def _samples(self, requirement: str) -> str:
        column = self.column if self.name is None else repr(self.name)
        indices = (("row", self.example), ("column", column))
        where = ", ".join(f"{word} {index}" for word, index in indices if index is not None)
        subject = "samples " if requirement.startswith("must") else ""
        return f"{subject}{requirement}" + (f" in {where}" if where else "")


class InvalidInputError(ValueError):
    """An argument breaks its requirement.

    Parameters
    ----------
    requirement
        What is required and what was received, in one sentence.
    place
        Which example it is about, if it is about one.

    Attributes
    ----------
    requirement, place
        As given; ``str(error)`` is both in one sentence.
    """

    def __init__(self, requirement: str, place: Place | None = None) -> None:
        super().__init__(requirement if place is None else place.say(requirement))
        self.requirement = requirement
        self.place = place


class ZeroWeightError(InvalidInputError):
    """The model (with its evidence) gives every configuration weight zero."""


class FileFormatError(InvalidInputError):
    """A file does not follow its format; the message names the file and the place."""


class FileWriteError(OSError):
    """A file could not be written; the message names it, and ``__cause__`` is the system's error.

    An earlier file of the same name is unchanged.
    """


class TooLargeError(InvalidInputError):
    """The computation would need more memory than the stated budget."""


class WorkersLostError(RuntimeError):
    """No worker answers any more; the message says what is lost and how to go on."""


class MissingDependencyError(ImportError):
    """An optional package is needed for this call; the message says how to install it."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; learning goes on without it."""


class ConvergenceWarning(UserWarning):
    """An iterative method stopped before it met its tolerance."""


class NoGainWarning(UserWarning):
    """A field does not label held-out examples better than independent variables."""
