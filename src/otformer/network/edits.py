"""Change a prompt, register by register: blank, scale, add to or copy one, and run the network on what is left.

An edit changes the prompt alone. The weights stay as they are, so a register that layers write (u and v) starts from the
edit and is written again. Edits return a new prompt, which remembers the one before all edits as ``original``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from torch import Tensor

from otformer import checks
from otformer.network.registers import Registers

if TYPE_CHECKING:
    from otformer.network.prompt import Prompt

Where = Literal["all", "tokens", "sink"]
WHERE = {"all": slice(None), "tokens": slice(None, -1), "sink": slice(-1, None)}  # rows of Z


class Editable:
    """The verbs of a prompt. ``where`` says which rows are changed: all, the real tokens, or the sink alone.

    >>> from otformer import AligningTransformer
    >>> net = AligningTransformer(dim=1, reg=0.1, depth=100, schedule="relaxed")
    >>> prompt = net.prompt([[0.9], [0.1], [0.5]], [[0.0], [0.5], [1.0]])
    >>> net(prompt.blank("x_sq")).converged                  # u takes over what x_sq said
    True
    >>> print(f"{net(prompt.blank('y')).remains:.3f}")       # without y every place looks alike
    0.483
    """

    Z: Tensor
    registers: Registers
    edits: tuple[str, ...]
    original: Prompt | None

    def __getitem__(self, name: str) -> Tensor:
        """The numbers of a register, [B, T+1, width], the sink's last."""
        return self.Z[..., self._place(name)]

    def blank(self, *names: str, where: Where = "all") -> Self:
        """Set registers to 0."""
        places = [self._place(name) for name in names]
        if not places:
            raise checks.ArgumentError("names", f"name registers to blank, of {', '.join(self.registers)}", "none")
        Z, rows = self.Z.clone(), self._rows(where)
        for place in places:
            Z[:, rows, place] = 0
        return self._edited(Z, f"{', '.join(names)} blanked", where)

    def scale(self, name: str, factor: float, where: Where = "all") -> Self:
        """Multiply a register by a number."""
        place, rows, Z, factor = self._place(name), self._rows(where), self.Z.clone(), _number("factor", factor)
        Z[:, rows, place] *= factor
        return self._edited(Z, f"{name} times {factor:g}", where)

    def add(self, name: str, value: float, where: Where = "all") -> Self:
        """Add a number to a register."""
        place, rows, Z, value = self._place(name), self._rows(where), self.Z.clone(), _number("value", value)
        Z[:, rows, place] += value
        return self._edited(Z, f"{name} plus {value:g}", where)

    def copy(self, source: str, target: str, where: Where = "all") -> Self:
        """Write the numbers of a register into another of the same width."""
        read, written, rows = self._place(source, "source"), self._place(target, "target"), self._rows(where)
        wide, room = (place.stop - place.start for place in (read, written))
        if wide != room:
            raise checks.ArgumentError("target", f"be as wide as {source}: {wide} columns", f"{target} with {room}")
        Z = self.Z.clone()
        Z[:, rows, written] = self.Z[:, rows, read]
        return self._edited(Z, f"{source} copied to {target}", where)

    def _place(self, name: Any, argument: str = "name") -> slice:
        return self.registers[checks.choice(argument, name, list(self.registers))]

    @staticmethod
    def _rows(where: Any) -> slice:
        return WHERE[checks.choice("where", where, WHERE)]

    def _edited(self, Z: Tensor, what: str, where: Where) -> Any:
        if not bool(Z.isfinite().all()):
            raise checks.ArgumentError("the edited prompt", "hold finite numbers only", what)
        said = what if where == "all" else f"{what} in {'the tokens' if where == 'tokens' else 'the sink'}"
        first = self if self.original is None else self.original
        return replace(self, Z=Z, edits=(*self.edits, said), original=first)  # type: ignore[type-var]


def _number(name: str, value: Any) -> float:
    """A finite number."""
    found = checks.tensor(name, value)
    if found.ndim:
        raise checks.ArgumentError(name, "be one number", f"shape {tuple(found.shape)}")
    return float(found)
