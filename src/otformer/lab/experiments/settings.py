"""The named settings of an experiment: constants of its module that a run may have otherwise, ``--set n=16 --set reg=0.02``.

An entry of experiments.toml says which, each with the least and the largest value: ``settings = { n = [2, 64] }`` is the
constant N. The kind is that of the constant: a whole number, a number, or a list of one of them. Functions of the module
read the constant when they run (a test sees to it), so that its sentences have the new number too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from otformer.errors import ArgumentError
from otformer.lab.experiments.experiment import Experiment

Value = int | float | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True)
class Setting:
    """A constant by its name in lower case: its value in the standard run, and its bounds."""

    name: str
    standard: Value
    least: float
    most: float

    @property
    def kind(self) -> str:
        """What a value is, in words.

        >>> Setting("regs", (0.1, 0.2), 1e-3, 10).kind
        'numbers from 0.001 to 10, with commas between them'
        """
        several = isinstance(self.standard, tuple)
        whole = isinstance(self.standard[0] if isinstance(self.standard, tuple) else self.standard, int)
        kind = ("whole numbers" if several else "a whole number") if whole else ("numbers" if several else "a number")
        return f"{kind} from {self.least:g} to {self.most:,g}" + (", with commas between them" if several else "")

    def read(self, text: str) -> Value:
        """The value that a text says.

        >>> Setting("n", 9, 2, 64).read("16"), Setting("regs", (0.1, 0.2), 1e-3, 10).read("0.5,1")
        (16, (0.5, 1.0))
        """
        if not isinstance(self.standard, tuple):
            return self._number(text, self.standard)
        values = tuple(self._number(part, self.standard[0]) for part in text.split(","))
        if len(set(values)) < len(values):
            raise ArgumentError(f"--set {self.name}", "have every value once", repr(text))
        return values

    def _number(self, text: str, standard: float) -> float:
        try:
            value = type(standard)(text)
        except ValueError:
            raise ArgumentError(f"--set {self.name}", f"be {self.kind}", repr(text)) from None
        if not self.least <= value <= self.most:
            raise ArgumentError(f"--set {self.name}", f"be {self.kind}", repr(text))
        return value


def settings(experiment: Experiment) -> dict[str, Setting]:
    """The settings of an experiment, by name; its module is imported for the standard values."""
    if not experiment.settings:
        return {}
    module = import_module(experiment.module)
    found = {name: (getattr(module, name.upper()), *bounds) for name, bounds in experiment.settings.items()}
    return {name: Setting(name, _plain(value), least, most) for name, (value, least, most) in found.items()}


def chosen_settings(experiments: Sequence[Experiment], given: Iterable[str]) -> dict[str, Value]:
    """The values of ``NAME=VALUE`` texts, each of a setting that all the experiments have."""
    known = {experiment.name: settings(experiment) for experiment in experiments}
    values: dict[str, Value] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise ArgumentError("--set", "be NAME=VALUE, say n=16", repr(text))
        if name in values:
            raise ArgumentError(f"--set {name}", "be given once", f"it again: {text}")
        for experiment, own in known.items():
            if name not in own:
                names = f"name a setting of {experiment}: {', '.join(own)}"
                raise ArgumentError("--set", names if own else f"be left out: {experiment} has no settings", repr(name))
            values[name] = own[name].read(value)
    return values


def changed(experiment: Experiment, values: Mapping[str, Value]) -> dict[str, Value]:
    """Those of the values that are not the standard ones."""
    return {name: value for name, value in values.items() if settings(experiment)[name].standard != value}


@contextmanager
def applied(experiment: Experiment, values: Mapping[str, Value]) -> Iterator[None]:
    """The constants of the experiment's module at these values inside this block."""
    if not values:  # a module without settings need not be one
        yield
        return
    module = import_module(experiment.module)
    before = {name.upper(): getattr(module, name.upper()) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name.upper(), value)
        yield
    finally:
        for constant, value in before.items():
            setattr(module, constant, value)


def said(value: Any) -> str:
    """A value as ``--set`` takes it."""
    return (
        ",".join(map(said, value))
        if isinstance(value, (tuple, list))
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, (tuple, list)) else value
