"""The public API as text: every public name with its signature, one on each line.

``python tests/public_api.py`` writes it to ``tests/public_api.txt`` after a change on purpose.
"""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import fieldfit
from fieldfit._registry import public_paths

FILE = Path(__file__).with_suffix(".txt")


def signature(target: Any) -> str:
    """Arguments and defaults, without types."""
    try:
        found = inspect.signature(target)
    except (TypeError, ValueError):
        return ""
    plain = []
    for each in found.parameters.values():
        shown = Ellipsis if isinstance(each.default, frozenset) else each.default  # has no order
        plain.append(each.replace(annotation=inspect.Parameter.empty, default=shown))
    return str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def members(path: str, owner: type) -> list[str]:
    """Public methods and properties that classes of fieldfit define."""
    lines = []
    for name in dir(owner):
        home = next((base for base in owner.__mro__ if name in vars(base)), object)
        if name.startswith("_") or not home.__module__.startswith("fieldfit"):
            continue
        value = inspect.getattr_static(owner, name)
        if isinstance(value, (classmethod, staticmethod)):
            lines.append(f"{path}.{name}{signature(getattr(owner, name))}")
        elif inspect.isfunction(value):
            lines.append(f"{path}.{name}{signature(value)}")
        elif isinstance(value, property):
            lines.append(f"{path}.{name}")
    return lines


def torch_names() -> list[str]:
    """Of `fieldfit.torch`, which may not be importable here."""
    tree = ast.parse((Path(fieldfit.__file__).parent / "torch.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [f"fieldfit.torch.{name}" for name in ast.literal_eval(node.value)]
    raise AssertionError("fieldfit.torch has no __all__")


def public_api() -> str:
    """All lines, sorted."""
    lines = torch_names()
    for path in public_paths():
        module, _, name = path.rpartition(".")
        if module == "fieldfit.torch":
            continue
        target = getattr(import_module(module), name)
        if inspect.isclass(target):
            lines += [path + signature(target), *members(path, target)]
        else:
            lines.append(path + (signature(target) if inspect.isfunction(target) else ""))
    return "\n".join(sorted(lines)) + "\n"


if __name__ == "__main__":
    FILE.write_text(public_api())
