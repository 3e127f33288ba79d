"""otformer as the families call it: every public name that is read is counted, and the names that no family reads are known
without running any, from the families' source."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import otformer

ROOMS = ("nn", "words")  # modules among the public names
COUNTS = Counter[str]()  # reads of every public name since the last `clear`


class Counted:
    """A module whose names are counted as they are read."""

    def __init__(self, module: ModuleType, prefix: str = "") -> None:
        self._module, self._prefix = module, prefix

    def __getattr__(self, name: str) -> Any:
        if not self._prefix and name in ROOMS:
            return Counted(getattr(self._module, name), f"{name}.")
        COUNTS[self._prefix + name] += 1
        return getattr(self._module, name)


of: Any = Counted(otformer)


def names() -> list[str]:
    """All public names: of the package, and of the rooms in it as ``nn.Transport``."""
    rooms = [f"{room}.{name}" for room in ROOMS for name in getattr(otformer, room).__all__]
    return sorted([name for name in otformer.__all__ if name not in ROOMS] + rooms)


def read_by(functions: Iterable[Any]) -> set[str]:
    """The names that the source of functions reads from ``of``: ``of.solve``, ``of.nn.Transport``."""
    found = set()
    for function in functions:
        tree = ast.parse(inspect.getsource(function))
        shown = (ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        found |= {text.removeprefix("of.") for text in shown if text.startswith("of.")}
    return found
