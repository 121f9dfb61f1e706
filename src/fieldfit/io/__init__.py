"""Files: models and answers in UAI and libDAI form, sequences, samples, pictures, fitted models.

One format, one module.  Readers refuse a damaged file in one sentence with file, line and token,
before they allocate what it announces; writers replace a file only when the new one is complete.
"""

from fieldfit._registry import exports

__all__, __getattr__, __dir__ = exports(__name__)
