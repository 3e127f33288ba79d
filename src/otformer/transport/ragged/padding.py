r"""Problems of a ragged list side by side in padded arrays, with little work for each: `solve_batch` reads thousands.

A bucket is filled and emptied through the mask of the pairs that exist, mask_kij = rows_ki ∧ columns_kj: with all costs one
after the other in one vector, ``C[mask] = flat`` puts each in its place, and ``P[mask]`` is all plans one after the other.

What is not an ordinary problem (wrong shapes, tensors that require a gradient, mixed kinds, …) is not read here but left to
`solve`, which takes it or says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from otformer import checks, weight_checks
from otformer.transport.costs.distances import squared_distances
from otformer.transport.solvers.stacked import STACK_ENTRIES
from otformer.transport.types import Array, Form, to_double, to_numpy

MOST_DIFFERENCES = 10_000_000  # numbers in the array of differences between two point sets, at most


class InputKind(NamedTuple):
    """How the problems of a bucket were given: two problems of one kind can be stacked."""

    form: Form
    dimension: int  # of points; 0 for costs
    has_a: bool  # else the weights are uniform
    has_b: bool


class RaggedProblem(NamedTuple):
    """A problem of the list, n by m. Values are not checked yet."""

    place: int  # in the list
    parts: list[Any]  # C, a, b or X_a, X_b, a, b: arrays, or tensors, of one dtype; None for uniform weights
    n: int
    m: int
    kind: InputKind


class PaddedProblems(NamedTuple):
    """Problems padded to one size, as numpy arrays or tensors. Points added by padding have weight 0."""

    C: Array  # [B, n, m] from 0 up
    a: Array  # [B, n]
    b: Array  # [B, m]
    low: Array  # [B]: what was taken from the costs
    mask: Array  # [B, n, m]: False for pairs added by padding

    def take(self, chosen: Array) -> PaddedProblems:
        """The problems at the given places."""
        return PaddedProblems(*(t[chosen] for t in self))


def read(problems: Sequence[Any]) -> list[RaggedProblem]:
    """Parse the problems that can be stacked; leave the others to `solve`."""
    learning = torch.is_grad_enabled()
    kinds: dict[InputKind, InputKind] = {}  # one object for each, not one for each problem
    items = []
    for place, given in enumerate(problems):
        parts = [_array(part) for part in given] if isinstance(given, tuple) else [_array(given)]
        if isinstance(given, tuple) and not 2 <= len(parts) <= 4:
            continue
        form = _form(parts[0], learning)
        if form is None or any(part is not None and _form(part, learning) != form for part in parts[1:]):
            continue
        if len(parts) < 3:
            parts += None, None
        *matrices, a, b = parts
        sizes = _sizes(*matrices)
        if sizes is None or (a is not None and a.shape != sizes[:1]) or (b is not None and b.shape != sizes[1:2]):
            continue
        n, m, dimension = sizes
        kind = InputKind(form, dimension, a is not None, b is not None)
        items.append(RaggedProblem(place, parts, n, m, kinds.setdefault(kind, kind)))
    return items


def pack(items: Sequence[RaggedProblem], where: torch.device) -> tuple[PaddedProblems, NDArray[np.float64]]:
    """Problems of one kind side by side, and the range of costs of each [B]: nan where a problem is not valid.

    Costs are padded with an existing cost, so that their range does not change.
    """
    kind = items[0].kind
    n, m = np.array([item.n for item in items]), np.array([item.m for item in items])
    rows, columns = (to_device(np.arange(size.max()) < size[:, None], where) for size in (n, m))
    mask = rows[:, :, None] & columns[:, None, :]
    *matrices, a, b = zip(*(item.parts for item in items), strict=True)
    if kind.dimension and isinstance(mask, Tensor):
        x, y = (_flat(points, where).reshape(-1, kind.dimension) for points in matrices)
        flat = compact(_all_distances(padded(x, rows), padded(y, columns), STACK_ENTRIES[where.type]), mask)
    elif kind.dimension:
        x, y = ([to_double(to_numpy(t)) for t in points] for points in matrices)
        flat = _flat(list(map(squared_distances, x, y)), where)
    else:
        flat = _flat(matrices[0], where)
    first = flat[to_device(np.cumsum(n * m) - n * m, where)]
    C = padded(flat, mask, first[:, None, None])
    a = padded(_flat(a, where), rows) if kind.has_a else _uniform(n, rows, where)
    b = padded(_flat(b, where), columns) if kind.has_b else _uniform(m, columns, where)
    xp: Any = torch if isinstance(C, Tensor) else np
    with np.errstate(all="ignore"):
        if (kind.has_a or kind.has_b) and bool(((a == 0) & rows).any() | ((b == 0) & columns).any()):
            absent = (a == 0)[:, :, None] | (b == 0)[:, None, :]  # costs that are nobody's become the least of the others
            C = xp.where(absent, xp.amin(xp.where(absent, np.inf, C), (1, 2))[:, None, None], C)
        low, high = xp.amin(C, (1, 2)), xp.amax(C, (1, 2))
        C -= low[:, None, None]
        spread, mass_a, mass_b = (to_numpy(t) for t in (high - low, a.sum(1), b.sum(1)))
        good = to_numpy((a >= 0).all(1) & (b >= 0).all(1)) & (mass_a > 0) & (mass_b > 0)
        good &= weight_checks.masses_agree(mass_a, mass_b)
    return PaddedProblems(C, a, b, low, mask), np.where(good, spread, np.nan)


def padded(flat: Array, mask: Array, fill: Any = 0.0) -> Array:
    """The rows of ``flat`` where the mask is True, ``fill`` elsewhere."""
    shape = *mask.shape, *flat.shape[1:]
    out: Array = flat.new_empty(shape) if isinstance(flat, Tensor) else np.empty(shape)
    out[...] = fill
    out.reshape(-1, *flat.shape[1:])[mask.reshape(-1)] = flat  # flattened: a GPU makes one index, not one for each axis
    return out


def compact(array: Array, mask: Array) -> Array:
    """The entries of an array where the mask is True, in one vector."""
    return array.reshape(-1)[mask.reshape(-1)]


def to_device(array: Array, where: torch.device) -> Array:
    """For computing there: as numpy on the CPU, as a tensor elsewhere."""
    return to_numpy(array) if where.type == "cpu" else torch.as_tensor(array, device=where)


def _flat(arrays: Sequence[Any], where: torch.device) -> Array:
    """All their numbers in one vector, in float64; in one transfer."""
    if isinstance(arrays[0], Tensor):
        vectors = list(arrays) if arrays[0].ndim == 1 else [t.reshape(-1) for t in arrays]
        flat = to_device(torch.cat(vectors), where)
    else:
        flat = to_device(np.concatenate(arrays, axis=None), where)
    return to_double(flat)


def _uniform(sizes: NDArray[Any], mask: Array, where: torch.device) -> Array:
    """Weights 1/n where the mask is True, 0 elsewhere."""
    return mask * to_device(1 / sizes, where)[:, None]


def _all_distances(x: Tensor, y: Tensor, room: int) -> Tensor:
    """[B, n, m] for x [B, n, d] and y [B, m, d], from ``room`` differences at a time, or those of one problem."""
    step = max(1, room // (x.shape[1] * y.shape[1] * y.shape[2]))
    pairs = zip(x.split(step), y.split(step), strict=True)
    return torch.cat([squared_distances(*pair) for pair in pairs])


def _array(value: Any) -> Any:
    """Lists and integers as a float array; anything else as it came."""
    if isinstance(value, Tensor) or value is None:
        return value
    try:
        array = checks.plain("a problem", value, "an array")
    except ValueError:
        return value
    return array.astype(np.float64) if array.dtype.kind in "iu" and array.dtype != np.uint64 else array


def _form(value: Any, learning: bool) -> Form | None:
    """The form of a plain array in float32 or float64; None of anything else."""
    if isinstance(value, Tensor):
        dtype, device = value.dtype, value.device
        if not checks.is_plain(value) or device.type not in STACK_ENTRIES or (learning and value.requires_grad):
            return None
        if checks.has_tangent(value) or checks.is_transformed(value):
            return None
        return Form(device, dtype is torch.float32) if dtype in (torch.float64, torch.float32) else None
    if type(value) is np.ndarray and value.dtype in (np.float64, np.float32):
        return Form(None, value.dtype == np.float32)
    return None


def _sizes(x: Any, *others: Any) -> tuple[int, int, int] | None:
    """n, m and 0 for a matrix of costs; n, m and the dimension for two sets of points; None for anything else."""
    if x.ndim != 2:
        return None
    n, width = x.shape
    if not others:
        return (n, width, 0) if n * width else None
    (y,) = others
    if y is None or y.ndim != 2 or y.shape[1] != width or not 0 < n * len(y) * width <= MOST_DIFFERENCES:
        return None
    return n, len(y), width
