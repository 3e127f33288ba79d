"""Hostile numbers and arrays, drawn from a generator: sizes from 0, scales to the ends of float64, odd memory, odd types.

Every second case is mild: of sizes from 1, ordinary scale and valid settings, in odd memory and types still. Most of what is
hostile is refused; mild input is answered, and what is wrong with an answer is seen there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

SCALES = (1.0,) * 6 + (0.0, 1e-300, 1e-30, 1e-8, 1e3, 1e8, 1e15, 1e30, 1e160, 1e300, 1e308)
MILD_SCALES = (1.0, 1.0, 1.0, 0.1, 10.0)
BAD_NUMBERS = (0.0, -1.0, np.nan, np.inf, -np.inf, 1e-320, 1e308, True, "a", None, [], 10**400, 1 + 2j, "0.1")


class Rng(np.random.Generator):
    """The generator of one case, which is mild or not."""

    mild = False


def drawn(family: str, seed: int) -> Rng:
    """The generator of a family's case."""
    rng = Rng(np.random.PCG64([sum(map(ord, family)), seed]))
    rng.mild = seed % 2 == 1
    return rng


def pick(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def size(rng: Rng) -> int:
    return int(pick(rng, (1, 2, 3, 4, 5, 7, 12) if rng.mild else (0, 1, 1, 2, 2, 3, 4, 5, 7, 12)))


def number(rng: Rng, usual: tuple[Any, ...]) -> Any:
    """One of the usual values, at times a bad one."""
    return pick(rng, BAD_NUMBERS) if rng.random() < 0.08 and not rng.mild else pick(rng, usual)


def reg(rng: Rng) -> Any:
    return number(rng, (0.01, 0.1, 1.0, 10) if rng.mild else (1e-12, 1e-6, 1e-3, 0.01, 0.1, 1.0, 10, 1e6, 1e100, 1e300))


def array(rng: Rng, shape: tuple[int, ...], positive: bool = False) -> np.ndarray:
    """Numbers of some scale and kind; at times one of them is not finite."""
    kind = int(rng.integers(6))
    values = {1: rng.standard_normal(shape), 2: rng.integers(0, 3, shape).astype(float)}.get(kind, rng.random(shape))
    values = np.abs(values) if positive else values
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(values * pick(rng, MILD_SCALES if rng.mild else SCALES))
    if values.size and rng.random() < 0.06 and not rng.mild:
        values.flat[rng.integers(values.size)] = pick(rng, (np.nan, np.inf, -np.inf, -1.0))
    return values


def weights(rng: Rng, n: int) -> Any:
    """None, or weights that sum to 1 (at times to something else, with zeros, tiny ones or of a wrong length)."""
    kind = rng.random() * (0.93 if rng.mild else 1.0)
    if kind < 0.5:
        return None
    n = n + (kind > 0.97)
    w = rng.random(n) * (rng.random(n) < 0.8) if kind < 0.7 else rng.random(n) ** 20
    total = w.sum()
    w = w / total if total > 0 and kind < 0.93 else w
    return w * (1.0 if rng.mild else pick(rng, (1.0, 1.0, 1.0, 1e-12, 1e8)))


def formed(rng: Rng, values: Any) -> Any:
    """The same numbers in another form: lists, other memory, other types (which round them), tensors."""
    if values is None:
        return None
    kind = int(rng.integers(18))
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == 8 and rng.random() < 0.3 and not rng.mild:
            tensor, others = torch.tensor(values), (str, complex, object)
            odd = (*(values.astype(kind) for kind in others), tensor.to("meta"), tensor.to_sparse(), [[1.0], [2.0, 3.0]])
            odd += ("text", 7, {}, None, iter([1.0]), set(), lambda: 1, np.datetime64("2020-01-01"))
            return pick(rng, odd)
        forms = {
            0: lambda: values.tolist(),
            1: lambda: np.asfortranarray(values),
            2: lambda: values[..., ::-1][..., ::-1] if values.ndim else values,
            3: lambda: np.ascontiguousarray(values[::-1])[::-1] if values.ndim else values,
            4: lambda: values.astype(np.float32),
            5: lambda: torch.tensor(values),
            6: lambda: torch.tensor(values.astype(np.float32), requires_grad=bool(rng.integers(2))),
            7: lambda: values.astype(">f8"),
            9: lambda: _read_only(values),
            10: lambda: values.astype(np.float16),
            11: lambda: torch.tensor(values).to(pick(rng, (torch.float16, torch.bfloat16))),
            12: lambda: torch.tensor(values, requires_grad=True),
            13: lambda: np.broadcast_to(values.ravel()[:1], values.shape) if values.size else values,
        }
        return forms.get(kind, lambda: values)()


def alike(rng: Rng, *arrays: np.ndarray) -> list[Any]:
    """Arrays in one form, as most callers have them; at times each in its own."""
    if rng.random() < 0.2 and not rng.mild:
        return [formed(rng, values) for values in arrays]
    seed, made = int(rng.integers(2**32)), []
    for values in arrays:
        again = Rng(np.random.PCG64(seed))
        again.mild = True
        made.append(formed(again, values))
    return made


def _read_only(values: np.ndarray) -> np.ndarray:
    fixed = values.copy()
    fixed.flags.writeable = False
    return fixed


def tensor(rng: Rng, values: np.ndarray, dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)) -> torch.Tensor:
    """A tensor that wants a gradient, of one of these types, in odd memory at times."""
    made = torch.tensor(values).to(pick(rng, dtypes))
    if rng.random() < 0.2 and made.ndim > 1:
        made = made.mT.contiguous().mT
    return made.requires_grad_()


def plain(values: Any) -> np.ndarray:
    """What an oracle computes with."""
    return np.asarray(values.detach().double() if isinstance(values, torch.Tensor) else values, dtype=float)
