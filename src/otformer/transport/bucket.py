r"""Problems of a ragged list as padded numpy arrays, with little work for each: `solve_batch` reads thousands of them.

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

Array = NDArray[Any]
FLOATS = (torch.float32, torch.float64)
LARGEST = 10_000_000  # numbers in the array of differences between two point sets, at most


class Kind(NamedTuple):
    """What a problem was given as, and so what its result is: numpy arrays (``device`` None) or tensors."""

    dtype: np.dtype[Any]
    device: torch.device | None


class Item(NamedTuple):
    """A problem of the list: C [n, m], weights a [n] and b [m], None for uniform ones. Values are not checked yet."""

    place: int  # in the list
    C: Array
    a: Array | None
    b: Array | None
    kind: Kind


class Bucket(NamedTuple):
    """Problems padded to one size: C [B, n, m], a [B, n], b [B, m]. Weights of points that are not there are 0."""

    C: Array
    a: Array
    b: Array
    good: Array  # [B]: finite costs, weights not negative, of equal, positive mass


def read(problems: Sequence[Any]) -> list[Item]:
    """The ordinary problems of the list."""
    parts = (part for given in problems for part in (given if isinstance(given, tuple) else (given,)))
    host = _fetch([part for part in parts if isinstance(part, Tensor) and part.is_cuda])
    items = (_item(place, given, host) for place, given in enumerate(problems))
    return [item for item in items if item is not None]


def pack(items: Sequence[Item]) -> Bucket:
    """The problems side by side. Costs are padded with one of their own, so that their range stays what it is."""
    n, m = (max(item.C.shape[axis] for item in items) for axis in (0, 1))
    C, a, b = np.empty((len(items), n, m)), np.zeros((len(items), n)), np.zeros((len(items), m))
    for k, item in enumerate(items):
        rows, columns = item.C.shape
        C[k] = item.C[0, 0]
        C[k, :rows, :columns] = item.C
        a[k, :rows] = item.kind.dtype.type(1 / rows) if item.a is None else item.a
        b[k, :columns] = item.kind.dtype.type(1 / columns) if item.b is None else item.b
    with np.errstate(all="ignore"):
        mass_a, mass_b = a.sum(1), b.sum(1)
        good = np.isfinite(C.max((1, 2)) - C.min((1, 2))) & (a.min(1) >= 0) & (b.min(1) >= 0) & (mass_a > 0)
        good &= (mass_b > 0) & (abs(mass_a - mass_b) <= 1e-5 * np.maximum(mass_a, mass_b))  # as checks.same_mass
    return Bucket(C, a, b, good)


def _item(place: int, given: Any, host: dict[int, Array]) -> Item | None:
    parts = given if isinstance(given, tuple) else (given,)
    if not 1 <= len(parts) <= 4 or (len(parts) == 1 and parts is given):
        return None
    arrays = [None if part is None else _array(part, host) for part in parts]
    first = arrays[0]
    if first is None or any(array is None and part is not None for array, part in zip(arrays, parts, strict=True)):
        return None
    kind = Kind(first.dtype, parts[0].device if isinstance(parts[0], Tensor) else None)
    for part, array in zip(parts, arrays, strict=True):
        if array is not None and (array.dtype, part.device if isinstance(part, Tensor) else None) != kind:
            return None
    C = first if len(parts) in (1, 3) else _squared_distances(first, arrays[1])
    a, b = (None, None) if len(parts) < 3 else arrays[-2:]
    if C is None or C.ndim != 2 or not C.size:
        return None
    if (a is not None and a.shape != C.shape[:1]) or (b is not None and b.shape != C.shape[1:]):
        return None
    return Item(place, C, a, b, kind)


def _array(value: Any, host: dict[int, Array]) -> Array | None:
    """As float32 or float64, or None where that is not plainly what it is."""
    if isinstance(value, Tensor):
        if value.dtype not in FLOATS or value.layout != torch.strided or (value.requires_grad and torch.is_grad_enabled()):
            return None
        array = value.detach().numpy() if value.device.type == "cpu" else host.get(id(value))
    elif isinstance(value, np.ndarray):
        array = value
    else:
        try:
            array = np.asarray(value)
        except (TypeError, ValueError):
            return None
    if array is None or array.dtype in (np.float64, np.float32):
        return array
    return array.astype(np.float64) if array.dtype.kind in "iu" and array.dtype != np.uint64 else None


def _squared_distances(x: Array, y: Array | None) -> Array | None:
    """‖x_i − y_j‖² by differences: no cancellation."""
    if y is None or x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or len(x) * y.size > LARGEST:
        return None
    difference = x[:, None, :] - y[None, :, :]
    C: Array = np.einsum("ijk,ijk->ij", difference, difference)
    return C


def _fetch(tensors: Sequence[Tensor]) -> dict[int, Array]:
    """CUDA tensors as numpy arrays, by id; in one transfer for each device and dtype."""
    groups: dict[tuple[Any, ...], list[Tensor]] = {}
    for t in tensors:
        if t.dtype in FLOATS and t.layout == torch.strided:
            groups.setdefault((t.device, t.dtype), []).append(t)
    host: dict[int, Array] = {}
    for group in groups.values():
        flat = torch.cat([t.detach().reshape(-1) for t in group]).cpu().numpy()
        ends = np.cumsum([t.numel() for t in group])
        for t, end in zip(group, ends, strict=True):
            host[id(t)] = flat[end - t.numel() : end].reshape(tuple(t.shape))
    return host
