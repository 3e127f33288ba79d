"""Hostile numbers and arrays, drawn from a generator: sizes from 0, scales to the ends of float64, odd memory, odd types."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Rng = np.random.Generator
SCALES = (1.0,) * 6 + (0.0, 1e-300, 1e-30, 1e-8, 1e3, 1e8, 1e15, 1e30, 1e160, 1e300, 1e308)
BAD_NUMBERS = (0.0, -1.0, np.nan, np.inf, -np.inf, 1e-320, 1e308, True, "a", None, [], 10**400, 1 + 2j, "0.1")


def pick(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def size(rng: Rng) -> int:
    return int(pick(rng, (0, 1, 1, 2, 2, 3, 4, 5, 7, 12)))


def number(rng: Rng, usual: tuple[Any, ...]) -> Any:
    """One of the usual values, at times a bad one."""
    return pick(rng, BAD_NUMBERS) if rng.random() < 0.08 else pick(rng, usual)


def reg(rng: Rng) -> Any:
    return number(rng, (1e-12, 1e-6, 1e-3, 0.01, 0.1, 1.0, 10, 1e6, 1e100, 1e300))


def array(rng: Rng, shape: tuple[int, ...], positive: bool = False) -> np.ndarray:
    """Numbers of some scale and kind; at times one of them is not finite."""
    kind = rng.integers(6)
    values = {0: rng.random(shape), 1: rng.standard_normal(shape), 2: rng.integers(0, 3, shape).astype(float)}.get(
        int(kind), rng.random(shape)
    )
    values = np.abs(values) if positive else values
    with np.errstate(over="ignore", invalid="ignore"):
        values = values * pick(rng, SCALES)
    if values.size and rng.random() < 0.06:
        values.flat[rng.integers(values.size)] = pick(rng, (np.nan, np.inf, -np.inf, -1.0))
    return values


def weights(rng: Rng, n: int) -> Any:
    """None, or weights that sum to 1 (at times to something else, with zeros, tiny ones or of a wrong length)."""
    kind = rng.random()
    if kind < 0.5:
        return None
    n = n + (kind > 0.97)
    w = rng.random(n) * (rng.random(n) < 0.8) if kind < 0.7 else rng.random(n) ** 20
    total = w.sum()
    w = w / total if total > 0 and kind < 0.93 else w
    return w * pick(rng, (1.0, 1.0, 1.0, 1e-12, 1e8))


def formed(rng: Rng, values: Any) -> Any:
    """The same numbers in another form: lists, other memory, other types, tensors."""
    if values is None:
        return None
    kind = int(rng.integers(14))
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == 0:
            return values.tolist()
        if kind == 1:
            return np.asfortranarray(values)
        if kind == 2:
            return values[..., ::-1][..., ::-1] if values.ndim else values
        if kind == 3:
            return np.ascontiguousarray(values[::-1])[::-1] if values.ndim else values
        if kind == 4:
            return values.astype(np.float32)
        if kind == 5:
            return torch.tensor(values)
        if kind == 6:
            return torch.tensor(values.astype(np.float32), requires_grad=bool(rng.integers(2)))
        if kind == 7:
            return values.astype(">f8")
        if kind == 8 and rng.random() < 0.3:
            return pick(rng, (values.astype(str), values.astype(complex), values.astype(object), "text", 7, {}, None))
        if kind == 9:
            fixed = values.copy()
            fixed.flags.writeable = False
            return fixed
    return values


def plain(values: Any) -> np.ndarray:
    """What an oracle computes with."""
    return np.asarray(values.detach() if isinstance(values, torch.Tensor) else values, dtype=float)
