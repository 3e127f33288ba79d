"""The values that pass between the rooms: a problem, its cost, what a solver is to reach and what it returns.

    read ─▶ Problem ─▶ solver ─▶ Solved ─▶ Result

Every stage speaks to the verbs of a `Cost` only (costs/cost.py): which kind of cost a problem has, no stage asks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks

if TYPE_CHECKING:
    from otformer.transport.costs.cost import Cost

Array = Any  # numpy.ndarray or Tensor; within one problem always the same
ABSENT_WEIGHT = 1e-30  # share of the mass that stands for 0 where all points of a batch must have some: far below rounding
Pair = tuple[Array, Array]  # one array for the rows [n], one for the columns [m]


class Form(NamedTuple):
    """Record the device and precision of the input, which results share."""

    device: torch.device | None  # of tensors; None for numpy arrays and lists
    single: bool  # float32, otherwise float64

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.single else torch.float64

    def give(self, t: Array, double: bool = False) -> Any:
        """An array in this form, differentiably.

        ``double`` is for potentials: float64 whatever the input is, for they are the plan, and the start of another solve.
        """
        if self.device is None:
            t = t.detach().cpu().numpy() if isinstance(t, Tensor) else t
            return t.astype(np.float32) if self.single and not double else t
        t = torch.from_numpy(t) if isinstance(t, np.ndarray) else t
        dtype = torch.float64 if double else self.dtype
        return t if t.dtype == dtype and t.device == self.device else t.to(self.device, dtype)

    def place(self, t: np.ndarray) -> Any:
        """Convert an integer array to the caller's array type."""
        return t if self.device is None else torch.from_numpy(t).to(self.device)

    def number(self, value: Any) -> Any:
        """A float, or a tensor without axes where tensors were given, differentiably."""
        return float(value) if self.device is None else torch.as_tensor(value, dtype=self.dtype, device=self.device)

    def numbers(self, values: Array) -> Any:
        """A list of such numbers, of an array [B]."""
        return values.tolist() if self.device is None else self.give(values).unbind()


class Inputs(NamedTuple):
    """Tensors in which a gradient is wanted of this problem (some of them), in float64, with their graphs.

    ``cost`` is what the cost is a function of (`Cost`); points without mass are left out. ``b`` is scaled to the mass of
    ``a``.
    """

    cost: tuple[Tensor, ...]
    a: Tensor
    b: Tensor
    reg: Tensor


class Support(NamedTuple):
    """The points that have mass, by their indices among all that were given."""

    rows: Array
    columns: Array
    shape: tuple[int, int]

    def as_tensors(self, device: torch.device | None = None) -> Support:
        rows, columns = (torch.as_tensor(at, device=device or "cpu") for at in self[:2])
        return Support(rows, columns, self.shape)


class Penalty(NamedTuple):
    """The penalty of an inexact marginal, ρ KL(P1|a) and ρ KL(Pᵀ1|b); infinite where the marginal must be exact."""

    rho_a: float
    rho_b: float
    relative: bool = True  # the entropy is λ KL(P|a bᵀ), otherwise λ KL(P|1)


class Solved(NamedTuple):
    """Potentials u [n], v [m] of a problem; layers run, and which they were.

    If at hand: the plan, or the kernel it is known by; and the error, where the solver has measured or bounded it.
    """

    u: Array
    v: Array
    depth: int
    method: str
    plan: Any = None
    error: float | None = None


class Answer(NamedTuple):
    """Hold the computed facts of a solution, in the caller's array type; ``parts`` may be functions that make them."""

    potentials: tuple[Any, Any]
    value: Any
    mass: float
    marginal_error: float
    parts: dict[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """min Σ P C + λ Σ P log P over plans P with row sums a and column sums b, all weights positive, in float64.

    Small problems in memory are numpy arrays (for twenty points a call of torch costs more than the work in it), all others
    tensors. The arrays are the problem's own: nothing the caller does later changes them.
    """

    cost: Cost
    a: Array  # [n]
    b: Array  # [m], scaled to the mass of a
    target: Array  # [m], b as given: errors are measured against it
    reg: float | None  # λ; None for the optimum of Σ P C itself
    mass: float
    form: Form
    support: Support | None = None  # None: every point has mass
    wanted: Inputs | None = None
    start: Pair | None = None  # potentials to begin with, of the cost less what belongs to one side (`Cost.gauge`)
    penalty: Penalty | None = None  # None: the marginals are a and b

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the plan, points without mass included."""
        return (len(self.a), len(self.b)) if self.support is None else self.support.shape

    @property
    def entropy(self) -> float:
        """λ of a problem that is solved with entropy; a caller may have given None."""
        if self.reg is None:
            raise checks.ArgumentError("reg", "be a positive number", "None")
        return self.reg

    def as_tensors(self) -> Problem:
        """The same problem with tensors in place of numpy arrays."""
        if not isinstance(self.a, np.ndarray):
            return self
        arrays: dict[str, Any] = {name: torch.from_numpy(getattr(self, name)) for name in ("a", "b", "target")}
        start = None if self.start is None else (torch.from_numpy(self.start[0]), torch.from_numpy(self.start[1]))
        support = None if self.support is None else self.support.as_tensors()
        return replace(self, cost=self.cost.as_tensors(), start=start, support=support, **arrays)

    def whole(self, t: Array, side: int, fill: float = -math.inf) -> Array:
        """Numbers of all points: ``fill`` for those without mass, which are absent; −inf is that of a potential."""
        if self.support is None:
            return t
        size, at = self.support.shape[side], (self.support.rows, self.support.columns)[side]
        if isinstance(t, Tensor):
            return t.new_full((size,), fill).index_copy(0, at, t)
        out = np.full(size, fill)
        out[to_numpy(at)] = t  # one index as a tensor would be a whole number, not a list of one
        return out

    def whole_plan(self, P: Array) -> Array:
        """The plan of all points: zeros where one has no mass."""
        if self.support is None:
            return P
        rows, columns, shape = self.support
        if isinstance(P, Tensor):
            return P.new_zeros(shape).index_put((rows[:, None], columns[None]), P)
        out = np.zeros(shape)
        out[np.ix_(rows, columns)] = P
        return out


class Goal(NamedTuple):
    """When to stop: at a marginal error below ``tol``, or after ``max_depth`` layers."""

    tol: float
    max_depth: int

    @classmethod
    def read(cls, tol: Any, max_depth: Any, mass: float = 1.0) -> Goal:
        """Checked: tol ≥ 0 and a step of two layers at least. tol is relative for total mass below 1."""
        if not (type(tol) is float and 0 <= tol < math.inf and type(max_depth) is int and max_depth >= 2):
            tol, max_depth = checks.not_negative("tol", tol), checks.count("max_depth", max_depth, least=2)
        return cls(tol * min(1.0, mass), max_depth)


def to_numpy(t: Array) -> Any:
    return t.detach().cpu().numpy() if isinstance(t, Tensor) else t


def to_double(t: Array) -> Any:
    return t.double() if isinstance(t, Tensor) else t.astype(np.float64, copy=False)
