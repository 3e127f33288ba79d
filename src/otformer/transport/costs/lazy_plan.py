"""What a caller can do with a plan that is never formed, whatever it is known by."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.memory import Need, matrices, needs

ENTRIES = 2**22  # entries of the plan held at once where the plan itself is read


class LazyPlan:
    """An n × m plan that is not formed; nothing below but `dense` takes O(nm) memory, and all of it is float64.

    ``plan @ w``, ``plan.T``, ``plan.sum(axis)``; ``plan.rows(i, j)`` is rows i to j as a matrix, ``plan.dense()`` or
    ``numpy.asarray(plan)`` all of them.
    """

    shape: tuple[int, int]
    numpy: bool  # arrays in and out, instead of tensors
    ndim = 2
    __array_ufunc__ = None  # so that numpy leaves products to this class

    @property
    def T(self) -> Any:
        raise NotImplementedError

    def _product(self, w: Tensor) -> Tensor:
        """P @ w, for w [m] or [m, k] on any device."""
        raise NotImplementedError

    def _rows(self, start: int, stop: int) -> Tensor:
        """Rows start to stop, 0 ≤ start ≤ stop ≤ n."""
        raise NotImplementedError

    def __matmul__(self, w: Any) -> Any:
        """P @ w for w [m] or [m, k]."""
        if self.numpy:
            checks.no_tangents("this result is numpy's", vector=w)
        given = checks.tensor("vector", w)
        checks.vectors("vector", given, self.shape[1])
        return self._out(self._product(given))

    def sum(self, axis: int) -> Any:
        """Column sums [m] (axis 0) or row sums [n] (axis 1)."""
        over = self if checks.choice("axis", axis, (0, 1)) else self.T
        return over @ torch.ones(over.shape[1], dtype=torch.float64, device="cpu")

    def rows(self, start: int, stop: int) -> Any:
        """Rows start to stop, a matrix [stop − start, m]."""
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        return self._out(self._rows(start, max(start, stop)))

    @needs(lambda self: Need(matrices("plan", *self.shape), 2 * math.prod(self.shape), "plan.rows(i, j) is a part of it"))
    def dense(self) -> Any:
        """The whole matrix [n, m]."""
        return self.rows(0, self.shape[0])

    def argmax(self, axis: int = 1) -> Any:
        """Where each row [n] (axis 1) or column [m] (axis 0) is greatest, a block of rows at a time."""
        over = self if checks.choice("axis", axis, (0, 1)) else self.T
        n, step = over.shape[0], max(1, ENTRIES // max(over.shape[1], 1))
        with torch.no_grad():
            return over._out(torch.cat([over._rows(i, min(i + step, n)).argmax(1) for i in range(0, n, step)]))

    def _out(self, t: Tensor) -> Any:
        return t.detach().cpu().numpy() if self.numpy else t

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._rows(0, self.shape[0]).detach().cpu().numpy(), dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]}×{self.shape[1]}, not formed)"
