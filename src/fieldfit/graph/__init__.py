"""."""

from fieldfit._registry import exports

__all__, __getattr__, __dir__ = exports(__name__)
