"""The columns of the prompt, by name.

A token of the engineered prompt is a row of ``2d + 9`` numbers (two more when marginals are given by prompt).
Every column has a name here, once; nothing else in the package writes ``2*d + 6``. The prompt without engineering,
Z' = [x, y, 0], has the registers x, y and spare alone.

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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

ENGINEERED = ("x", "y", "x_sq", "y_sq", "one1", "one2", "one3", "sign", "u", "v", "spare")
PLAIN = ("x", "y", "spare")


@dataclass(frozen=True, repr=False)
class Registers:
    """Layout of a token for points in ``dim`` dimensions.

    Parameters
    ----------
    dim : int
        Dimension d of the points: the width of x and of y. Every other register is one column wide.
    marginals : bool
        Whether a token has log_a and log_b.
    names : tuple of str
        The registers before them: ``ENGINEERED`` or ``PLAIN``.
    extra : tuple of str
        Registers behind all others, for what an embedding adds to the prompt (stock_encoder.py).

    Examples
    --------
    >>> r = Registers(dim=2, marginals=False)
    >>> r
    Registers(13 columns: x 0-1, y 2-3, x_sq 4, y_sq 5, one1 6, one2 7, one3 8, sign 9, u 10, v 11, spare 12)
    >>> r.width, r["x"], r.column("u"), r.span("u", "spare")
    (13, slice(0, 2, None), 10, slice(10, 13, None))
    """

    dim: int
    marginals: bool = True
    names: tuple[str, ...] = ENGINEERED
    extra: tuple[str, ...] = ()

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each register lies, by name."""
        names = (*self.names, *(("log_a", "log_b") if self.marginals else ()), *self.extra)
        stops = list(accumulate(self.dim if name in ("x", "y") else 1 for name in names))
        return {name: slice(*ends) for name, ends in zip(names, pairwise([0, *stops]), strict=True)}

    @property
    def width(self) -> int:
        """The number of columns: 2d + 9 for the engineered prompt, 2d + 11 with marginals."""
        return max(each.stop for each in self.slices.values())

    def __getitem__(self, name: str) -> slice:
        return self.slices[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.slices)

    def __repr__(self) -> str:
        ends = {name: sorted({each.start, each.stop - 1}) for name, each in self.slices.items()}
        columns = (f"{name} {'-'.join(map(str, both))}" for name, both in ends.items())
        return f"Registers({self.width} columns: {', '.join(columns)})"

    def column(self, name: str) -> int:
        """The column of a register that is one number wide."""
        found = self.slices[name]
        assert found.stop - found.start == 1, f"{name} is {found.stop - found.start} columns wide"
        return found.start

    def span(self, first: str, last: str) -> slice:
        """The columns from one register to another, both included."""
        return slice(self.slices[first].start, self.slices[last].stop)
