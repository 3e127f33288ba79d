"""Layers of problems with weights 1, in numpy, for all problems of a batch. Nothing here imports otformer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Array = np.ndarray


def potentials(C: Array, layers: list[tuple[Array, Array, Array]]) -> Iterator[tuple[Array, Array]]:
    """(u, v) of B problems C [B, n, m] with weights 1 from (0, 0): before the first layer (λ, γ_r, γ_c), and after each."""
    u, v = np.zeros(C.shape[:2]), np.zeros(C.shape[::2])
    yield u, v
    for reg, rows, columns in layers:
        z = (u[:, :, None] + v[:, None, :] - C) / reg[:, None, None] - 1
        row, column = (np.logaddexp.reduce(z, axis=k) for k in (2, 1))
        u, v = u - rows[:, None] * np.tanh(row / 2), v - columns[:, None] * np.tanh(column / 2)
        yield u, v


def plans(C: Array, reg: Array, at: tuple[Array, Array]) -> Array:
    return np.exp(np.minimum((at[0][:, :, None] + at[1][:, None, :] - C) / reg[:, None, None] - 1, 700))


def error(M: Array) -> Array:
    return abs(M.sum(1) - 1).sum(1) + abs(M.sum(2) - 1).sum(1)
