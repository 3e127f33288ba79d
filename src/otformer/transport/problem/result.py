"""What a solve returns. It never needs its solver again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks


@dataclass(frozen=True, eq=False)
class Result:
    """An entropic transport plan with everything needed to trust it.

    Attributes
    ----------
    plan : P [n, m]. Arrays are numpy if the input was, tensors if it was tensors. If it was streamed, a `StreamedPlan`,
        with products, sums and rows, but no matrix.
    potentials : (u [n], v [m]) with P_ij = exp((u_i + v_j − C_ij)/λ − 1); −inf where a weight is 0.
    value : Σ P C + λ Σ P log P.   value_linear : Σ P C. Floats, or tensors without axes if the input was tensors.
    marginal_error : Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j|, computed in float64 from the plan above.
    converged : marginal_error < tol (times the mass, where that is below 1), and nothing else.
    depth : layers run (one pass over the cost each).   network : which network they belong to.
    """

    plan: Any
    potentials: tuple[Any, Any]
    value: Any
    value_linear: Any
    marginal_error: float
    converged: bool
    depth: int
    network: str

    def to(self, dtype: torch.dtype) -> Result:
        """The same with its arrays in ``dtype``, differentiably."""
        if dtype == torch.float64:
            return self

        def cast(t: Any) -> Any:
            return t.to(dtype) if isinstance(t, Tensor) else t.astype(np.float32) if isinstance(t, np.ndarray) else t

        u, v = self.potentials
        changed = {"plan": cast(self.plan), "value": cast(self.value), "value_linear": cast(self.value_linear)}
        return replace(self, potentials=(cast(u), cast(v)), **changed)

    def apply(self, vector: Any) -> Any:
        """P @ vector, for a vector [m] or columns [m, k]; numpy or tensor, as the plan."""
        return self.plan @ self._columns("vector", vector)

    def map(self, values: Any) -> Any:
        """The barycentric map Σ_j P_ij values_j / Σ_j P_ij, values [m] or [m, k]; 0 for points without mass.

        >>> from otformer import solve
        >>> solve([[0.0, 1.0], [1.0, 0.0]], reg=0.01).map([[5.0, 6.0], [7.0, 8.0]]).tolist()
        [[5.0, 6.0], [7.0, 8.0]]
        """
        columns = self._columns("values", values)
        kind: Any = torch if isinstance(columns, Tensor) else np
        ones = kind.ones_like(columns.sum(-1) if columns.ndim == 2 else columns)
        sums = self.plan @ kind.column_stack([columns, ones])  # values and masses in one product
        mass = sums[:, -1:]
        mapped = sums[:, :-1] / (mass + (mass == 0))
        return mapped if columns.ndim == 2 else mapped[:, 0]

    def _columns(self, name: str, given: Any) -> Any:
        m, like = self.plan.shape[1], self.plan
        array: Any = np.asarray(given) if isinstance(like, np.ndarray) else checks.tensor(name, given)
        if array.ndim not in (1, 2) or len(array) != m:
            raise ValueError(f"{name} must have shape ({m},) or ({m}, k), got {tuple(array.shape)}")
        return array.to(like) if isinstance(like, Tensor) else array

    def __repr__(self) -> str:
        n, m = self.plan.shape
        state = "converged" if self.converged else "NOT converged"
        return (
            f"Result({n}×{m} plan, value {self.value:.6g}, {state}: marginal error {self.marginal_error:.2g} "
            f"after {self.depth} layers of {self.network})"
        )
