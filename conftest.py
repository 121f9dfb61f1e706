"""Modules whose programs in docstrings need packages that are not installed are left out."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["src/fieldfit/torch.py"]
