"""Errors and warnings that fieldfit raises on purpose.

Every message is one sentence: which argument, what is required, what was received.
"""

from __future__ import annotations

__all__ = [
    "ConvergenceWarning",
    "FileFormatError",
    "InvalidInputError",
    "MissingDependencyError",
    "TooLargeError",
    "ZeroWeightError",
]


class InvalidInputError(ValueError):
    """An argument breaks its requirement."""


class ZeroWeightError(InvalidInputError):
    """The model (with its evidence) gives every configuration weight zero."""


class FileFormatError(InvalidInputError):
    """A file does not follow its format; the message names the file and the place."""


class TooLargeError(InvalidInputError):
    """The computation would need more memory than the stated budget."""


class MissingDependencyError(ImportError):
    """An optional package is needed for this call; the message says how to install it."""


class ConvergenceWarning(UserWarning):
    """An iterative method stopped before it met its tolerance."""
