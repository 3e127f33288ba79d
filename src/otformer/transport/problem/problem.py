"""A transport problem as a value, read once (problem/read.py): whatever solves it, and however, starts from this."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.executors.clouds import PLAIN, Rule

Array = Any  # numpy.ndarray or Tensor; within one problem always the same
ABSENT_WEIGHT = 1e-30  # share of the mass that stands for 0 where all points of a batch must have some: far below rounding
Pair = tuple[Array, Array]  # one array for the rows [n], one for the columns [m]


class Form(NamedTuple):
    """What the caller gave, and therefore what is returned."""

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
        """Whole numbers in this form."""
        return t if self.device is None else torch.from_numpy(t).to(self.device)

    def number(self, value: Any) -> Any:
        """A float, or a tensor without axes where tensors were given, differentiably."""
        return float(value) if self.device is None else torch.as_tensor(value, dtype=self.dtype, device=self.device)


class Wanted(NamedTuple):
    """Tensors in which a gradient is wanted of this problem (some of them), in float64, with their graphs.

    ``cost`` is the matrix, or x, y, p, q of `Sides`; points without mass are left out. ``b`` is scaled to the mass of ``a``.
    """

    cost: tuple[Tensor, ...]
    a: Tensor
    b: Tensor
    reg: Tensor


class Sides(NamedTuple):
    """The cost C_ij = c_ij + p_i + q_j between points x [n, d] and y [m, d], never formed; what c is, ``rule`` says."""

    x: Tensor
    y: Tensor
    p: Tensor
    q: Tensor
    rule: Rule = PLAIN


class Kept(NamedTuple):
    """Where the points that have mass stand among all that were given."""

    rows: Array  # indices
    columns: Array
    shape: tuple[int, int]

    def as_tensors(self, device: torch.device | None = None) -> Kept:
        rows, columns = (torch.as_tensor(at, device=device or "cpu") for at in self[:2])
        return Kept(rows, columns, self.shape)


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """min Σ P C + λ Σ P log P over plans P with row sums a and column sums b, all weights positive, in float64.

    Small problems in memory are numpy arrays (for twenty points a call of torch costs more than the work in it), all others
    tensors. The arrays are the problem's own: nothing the caller does later changes them.
    """

    cost: Any  # an array C − low [n, m], inf where a pair is forbidden; or the `Sides` of a stream
    a: Array  # [n]
    b: Array  # [m], scaled to the mass of a
    target: Array  # [m], b as given: errors are measured against it
    reg: float
    mass: float
    low: float  # the least cost: only differences of costs matter
    spread: float  # the greatest cost that is not infinite, less the least one
    form: Form
    kept: Kept | None = None  # None: every point has mass
    wanted: Wanted | None = None
    start: Pair | None = None  # potentials of an earlier, similar problem

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the plan, points without mass included."""
        return (len(self.a), len(self.b)) if self.kept is None else self.kept.shape

    def as_tensors(self) -> Problem:
        """The same problem with tensors in place of numpy arrays."""
        if not isinstance(self.cost, np.ndarray):
            return self
        arrays: dict[str, Any] = {name: torch.from_numpy(getattr(self, name)) for name in ("cost", "a", "b", "target")}
        start = None if self.start is None else (torch.from_numpy(self.start[0]), torch.from_numpy(self.start[1]))
        return replace(self, **arrays, start=start, kept=None if self.kept is None else self.kept.as_tensors())

    def whole(self, t: Array, side: int) -> Array:
        """A potential of all points: −inf for those without mass, which are absent."""
        if self.kept is None:
            return t
        size, at = self.kept.shape[side], (self.kept.rows, self.kept.columns)[side]
        if isinstance(t, Tensor):
            return t.new_full((size,), -math.inf).index_copy(0, at, t)
        out = np.full(size, -math.inf)
        out[to_numpy(at)] = t  # one index as a tensor would be a whole number, not a list of one
        return out

    def whole_plan(self, P: Array) -> Array:
        """The plan of all points: zeros where one has no mass."""
        if self.kept is None:
            return P
        rows, columns, shape = self.kept
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
        """Checked: tol ≥ 0 and a step of two layers at least. Of less mass than 1 tol is a share: little is no excuse."""
        if not (type(tol) is float and 0 <= tol < math.inf and type(max_depth) is int and max_depth >= 2):
            tol, max_depth = checks.not_negative("tol", tol), checks.count("max_depth", max_depth, least=2)
        return cls(tol * min(1.0, mass), max_depth)


def squared_distances(x: Array, y: Array) -> Array:
    """‖x_i − y_j‖² [..., n, m] of points [..., n, d] and [..., m, d], by differences: no cancellation."""
    n, m, d = x.shape[-2], y.shape[-2], x.shape[-1]
    if isinstance(x, np.ndarray) and x.ndim == 2 and n * m * d > 2**18:  # below, importing it takes longer
        from scipy.spatial.distance import cdist

        return cdist(x, y, "sqeuclidean")
    if n * m * d <= 2**12 or (d > 8 and n * m * d <= 2**22):  # one array of all differences: fewer calls
        difference = x[..., :, None, :] - y[..., None, :, :]
        return (torch if isinstance(x, Tensor) else np).einsum("...k,...k->...", difference, difference)
    C = x[..., :, None, 0] - y[..., None, :, 0]
    C *= C
    for k in range(1, d):  # no n × m × d array
        difference = x[..., :, None, k] - y[..., None, :, k]
        difference *= difference
        C += difference
    return C


def to_numpy(t: Array) -> Any:
    return t.detach().cpu().numpy() if isinstance(t, Tensor) else t
