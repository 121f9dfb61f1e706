"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# No deadline: the first call of a kernel may compile it.  The same examples in every run, so that
# a failure can be seen again.
settings.register_profile("fieldfit", deadline=None, derandomize=True)
settings.load_profile("fieldfit")
