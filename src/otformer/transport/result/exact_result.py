"""What an exact solve returns: a sparse plan, potentials that prove it, and the gap between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from otformer.show.coarse import Array, blocks_of_pairs
from otformer.transport.result.result import Result


@dataclass(frozen=True, eq=False, repr=False)
class ExactResult(Result):
    r"""An optimal plan of min Σ P C, with its proof.

    Attributes
    ----------
    plan : sparse (n, m)
        scipy CSR, or a sparse COO tensor for tensor input; ``dense()`` gives a matrix.
    pairs : (rows (E,), columns (E,), masses (E,))
        The same plan as a list: E ≤ n + m − 1 unless ties were cut short.
    permutation : array (n,) or None
        The column of every row, if n = m and all weights are equal.
    potentials : (f (n,), g (m,))
        f_i + g_j ≤ C_ij for *all* pairs, to the rounding of float64; −inf where a weight is 0.
    value, value_linear : number
        Σ P C; differentiable in points, costs and weights by the potentials, where the optimum is unique.
    bound : float
        Σ a f + Σ b g: no plan costs less.
    gap : float
        value − bound, computed as Σ P_ij (C_ij − f_i − g_j) over the plan, with f_i the least C_ij − g_j of all pairs, in
        float64.
    error, converged
        The gap, and whether it is at most tol·|value| (or what rounding makes of costs that cancel).
    rounds : int
        The number of scans of all pairs.
    """

    gap: float = 0.0
    bound: float = 0.0
    rounds: int = 0
    permutation: Any = None
    pairs: tuple[Any, Any, Any] = ()  # type: ignore[assignment]

    def rounded(self) -> NoReturn:
        """Raise: an exact plan needs no rounding."""
        raise ValueError("rounded is for results with reg > 0: this plan is exact, with value, bound and gap of its own")

    def dense(self) -> Any:
        """The plan as a matrix (n, m).

        >>> import otformer as of
        >>> of.solve([[0.0, 1.0], [1.0, 0.0]], reg=0).dense().tolist()
        [[0.5, 0.0], [0.0, 0.5]]
        """
        return self.plan.to_dense() if isinstance(self.plan, Tensor) else self.plan.toarray()

    @property
    def status(self) -> str:
        """One line: whether the plan is proved optimal, and the gap."""
        return f"{'optimal' if self.converged else 'NOT proved optimal'}: gap {self.gap:.2g}"

    @property
    def _rounds(self) -> str:
        return "one scan of all pairs" if self.rounds == 1 else f"{self.rounds} scans of all pairs"

    def __repr__(self) -> str:
        n, m = len(self.potentials[0]), len(self.potentials[1])
        return f"ExactResult({n}×{m} plan, value {float(self.value):.6g}, {self.status}, {self.method}; {self._rounds})"

    def _effort(self) -> dict[str, str]:
        proof = {"no plan costs less than": f"{self.bound:.8g}", "pairs with mass": f"{len(self.pairs[0]):,}"}
        return proof | {"found by": f"{self.method}; {self._rounds}"}

    _kind = "Exact"

    def _row(self, i: int) -> Array:
        rows, columns, masses = (np.asarray(t.detach().cpu() if isinstance(t, Tensor) else t) for t in self.pairs)
        here = rows == i
        return np.bincount(columns[here], masses[here], len(self.potentials[1]))

    def _drawn(self, cells: int) -> Array | None:
        shape = len(self.potentials[0]), len(self.potentials[1])
        return blocks_of_pairs(self.pairs, shape, cells)

    def _sums(self, axis: int) -> Any:
        sums = self.plan.sum(axis)
        return sums.to_dense() if isinstance(sums, Tensor) else np.asarray(sums).ravel()


def sparse(i: Any, j: Any, masses: Any, shape: tuple[int, int]) -> Any:
    """A list of pairs as a scipy CSR array, or a sparse tensor."""
    if isinstance(masses, Tensor):
        pairs = torch.stack([i, j])
        return torch.sparse_coo_tensor(pairs, masses, shape, device=masses.device, check_invariants=False).coalesce()
    from scipy.sparse import csr_array

    return csr_array((masses, (i, j)), shape=shape)
