"""What a refusal says: the argument, what was expected, what came; and, where it helps, why or what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self


class ArgumentError(ValueError):
    """A ValueError of one line, whose parts can be read and renamed.

    ``argument`` is the name of an argument, or the path of a file. ``expected`` begins with the verb after "must". ``got``
    and ``advice`` are empty where there is nothing to say.

    >>> error = ArgumentError("tol", "be a positive number", -1, "leave it out")
    >>> print(error)
    tol must be a positive number, got -1: leave it out
    >>> print(error.renamed({"tol": "--tol"}))
    --tol must be a positive number, got -1: leave it out
    """

    rule = "must"

    def __init__(self, argument: str | Path, expected: str, got: object = "", advice: str = "") -> None:
        self.argument, self.expected, self.advice = argument, expected, advice
        self.got = " ".join(str(got).splitlines())  # of a tensor, say, on one line
        came, reason = f", got {self.got}" if self.got else "", f": {advice}" if advice else ""
        super().__init__(f"{argument} {self.rule} {expected}{came}{reason}")

    def __reduce__(self) -> tuple[type[Self], tuple[str | Path, str, str, str]]:
        return type(self), (self.argument, self.expected, self.got, self.advice)

    def renamed(self, names: Mapping[str, str]) -> Self:
        """The same error with another name for the argument, as on the command line. Files keep theirs."""
        argument = names.get(self.argument, self.argument) if isinstance(self.argument, str) else self.argument
        return type(self)(argument, names.get(self.expected, self.expected), self.got, self.advice)


class ConflictError(ArgumentError):
    """Two arguments that exclude each other; ``expected`` is what the first cannot be combined with.

    >>> print(ConflictError("executor='stream'", "schedule, solver or mask"))
    executor='stream' cannot be combined with schedule, solver or mask
    """

    rule = "cannot be combined with"
