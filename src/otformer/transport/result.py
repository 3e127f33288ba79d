"""What a solve returns. It never needs its solver again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """An entropic transport plan with everything needed to trust it.

    Attributes
    ----------
    plan : P [n, m]. Arrays are numpy if the input was, tensors if it was tensors.
    potentials : (u [n], v [m]) with P_ij = exp((u_i + v_j − C_ij)/λ − 1); −inf where a weight is 0.
    value : Σ P C + λ Σ P log P.   value_linear : Σ P C.
    marginal_error : Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j|, computed in float64 from the plan above.
    converged : marginal_error < tol, and nothing else.
    depth : layers run (one pass over the cost each).   network : which network they belong to.
    """

    plan: Any
    potentials: tuple[Any, Any]
    value: float
    value_linear: float
    marginal_error: float
    converged: bool
    depth: int
    network: str

    def __repr__(self) -> str:
        n, m = self.plan.shape
        state = "converged" if self.converged else "NOT converged"
        return (
            f"Result({n}×{m} plan, value {self.value:.6g}, {state}: marginal error {self.marginal_error:.2g} "
            f"after {self.depth} layers of {self.network})"
        )
