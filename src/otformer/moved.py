"""Old names of modules that have moved, most to the laboratory: importing one still works, and warns with the new name."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from otformer.extras import installed, lacks

MOVED = {f"otformer.{name}": f"otformer.lab.{name}" for name in ("experiments", "report", "benchmarks")}
MOVED |= {"otformer.words.training": "otformer.lab.translators", "otformer.explorer.make_data": "otformer.lab.explorer_data"}
MOVED |= {"otformer.words.align.align": "otformer.words.aligning"}
TRAINING = ("evaluate", "initialisation", "recipes", "train")
MOVED |= {f"otformer.learning.{name}": f"otformer.lab.training.{name}" for name in TRAINING}


class OldNames(MetaPathFinder, Loader):
    """Python asks it last: for a module that nothing else has found."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if _moved(name) else None

    def exec_module(self, module: ModuleType) -> None:
        """Give the old name every attribute of the new module."""
        name = module.__name__
        if _moved(name).startswith("otformer.lab") and not installed("lab"):
            raise ImportError(lacks(name, "lab"))
        warnings.warn(f"{name} is now {_moved(name)}", DeprecationWarning, stacklevel=2)
        module.__getattr__ = partial(getattr, import_module(_moved(name)))  # type: ignore[method-assign]


def _moved(name: str) -> str:
    """The new name of a module, or "" if it has not moved.

    >>> _moved("otformer.experiments.general_costs")
    'otformer.lab.experiments.general_costs'
    """
    return next((new + name[len(old) :] for old, new in MOVED.items() if f"{name}.".startswith(f"{old}.")), "")


def answer_to_old_names() -> None:
    """Let Python find modules by their old names."""
    sys.meta_path.append(OldNames())
