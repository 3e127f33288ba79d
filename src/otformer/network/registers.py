"""The columns of the prompt, by name.

A token of the engineered prompt is a row of ``2d + 9`` numbers (two more when marginals are given by prompt).
Every column has a name here, once; nothing else in the package writes ``2*d + 6``.

====== ===== ============ ========== ==============================================================
name   width token i      sink       what it is for
====== ===== ============ ========== ==============================================================
x, y   d, d  x_i, y_i     0          the points
x_sq   1     ‖x_i‖²       0          completes the square of the cost (any function of x_i will do)
y_sq   1     ‖y_i‖²       0          the same for y
one1   1     1            0          multiplies the squares
one2   1     1            0          multiplies a token's own dual variable
one3   1     1            0          the constant −1, and the other token's dual variable
sign   1     +1           −1         the value that both heads read: S real tokens against one sink
u, v   1, 1  0, 0         0          the memory: the dual iterates
spare  1     0            0          unused by the paper; scratch for the Sinkhorn block
log_a  1     log a_i      0          the sink's logit for row i; 0 in the paper (a = 1)
log_b  1     log b_i      0          the sink's logit for column i
====== ===== ============ ========== ==============================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Registers:
    """Layout of a token for points in ``dim`` dimensions.

    >>> r = Registers(dim=2, marginals=False)
    >>> r.width, r["x"], r["u"]
    (13, slice(0, 2, None), slice(10, 11, None))
    """

    dim: int
    marginals: bool = True

    @cached_property
    def slices(self) -> dict[str, slice]:
        widths = {"x": self.dim, "y": self.dim}
        names = ["x", "y", "x_sq", "y_sq", "one1", "one2", "one3", "sign", "u", "v", "spare"]
        if self.marginals:
            names += ["log_a", "log_b"]
        slices, start = {}, 0
        for name in names:
            stop = start + widths.get(name, 1)
            slices[name] = slice(start, stop)
            start = stop
        return slices

    @property
    def width(self) -> int:
        """2d + 9, or 2d + 11 with marginals."""
        return 2 * self.dim + (11 if self.marginals else 9)

    def __getitem__(self, name: str) -> slice:
        return self.slices[name]

    def column(self, name: str) -> int:
        """The column of a register that is one number wide."""
        found = self.slices[name]
        assert found.stop - found.start == 1, f"{name} is {found.stop - found.start} columns wide"
        return found.start

    def names(self) -> list[str]:
        """A name for every column, as figures label them: ``x[0], x[1], …, u, v, …``."""
        return [
            name if width == 1 else f"{name}[{k}]"
            for name, s in self.slices.items()
            for width in [s.stop - s.start]
            for k in range(width)
        ]
