r"""The points of a coupling: checked, the costs between them, and the pairs of an optimal plan.

Both clouds are moved to the origin, where a matrix product gives most costs (transport/costs/by_product.py). What is added
to all costs of a row, or of a column, changes no optimal plan. So clouds that lie apart are moved one by one, and costs keep
the digits by which plans differ. Clouds that do not are moved together, and the smallest costs keep their digits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.errors import ArgumentError
from otformer.nn.inputs import kind
from otformer.transport.compat.like_scipy import linear_sum_assignment
from otformer.transport.costs.by_product import FEW, squares_by_product
from otformer.transport.costs.clouds import PLAIN, Rule, ends, middles, moved
from otformer.transport.result.exact_result import ExactResult
from otformer.transport.solve import solve, solve_sample

SMALL_MATRIX = 2**18  # costs that take less time to be formed than to be avoided
LARGEST_MATRIX = 2**28  # costs, 2 GiB, that are formed in many dimensions
SAFE = 400  # of coordinates up to 2^±400, squares and their sums are ordinary numbers
LARGEST_NORM = 1e150  # of points whose squared distances are finite
ONE_PLACE = Rule(root=True)  # by which both clouds are moved alike
Labels = Tensor | None
Pairs = tuple[Tensor, Tensor, Tensor]  # i, j [E] and their masses, of sum 1
Batch = tuple[Tensor, Tensor, Labels, Labels]


def read_points(x0: Any, x1: Any) -> tuple[Tensor, Tensor]:
    """Both sides as rows [n, d] and [m, d], float64, finite, without a graph."""
    sides = []
    for name, x in (("x0", x0), ("x1", x1)):
        if not isinstance(x, Tensor) or not x.ndim:
            raise ArgumentError(name, "be a tensor of points (n, *dim)", kind(x))
        sides.append(checks.tensor(name, x.detach()).double().reshape(len(x), math.prod(x.shape[1:])))
    if x0.shape[1:] != x1.shape[1:] or not sides[0].shape[1]:
        shapes = f"shapes {tuple(x0.shape)} and {tuple(x1.shape)}"
        raise ArgumentError("x0 and x1", "have the same number of coordinates, at least one", shapes)
    if x0.device != x1.device:
        raise ArgumentError("x0 and x1", "be on one device", f"{x0.device} and {x1.device}")
    return sides[0], sides[1]


def read_labels(name: str, y: Any, size: int, device: torch.device) -> Tensor:
    if not isinstance(y, Tensor) or y.shape != (size,) or y.is_floating_point() or y.is_complex():
        raise ArgumentError(name, f"be a tensor of shape ({size},) of whole numbers", kind(y))
    return y.to(device, torch.int64)


def check_carried(x0: Any, x1: Any, y0: Any, y1: Any) -> None:
    """Check that what is carried along with points is as many."""
    for name, x, y in (("y0", x0, y0), ("y1", x1, y1)):
        if y is not None and not (isinstance(y, Tensor) and y.ndim and len(y) == len(x)):
            raise ArgumentError(name, f"be a tensor of length {len(x)}", kind(y))


def taken(x0: Tensor, x1: Tensor, y0: Labels, y1: Labels, i: Tensor, j: Tensor) -> Batch:
    return x0[i], x1[j], None if y0 is None else y0[i.to(y0.device)], None if y1 is None else y1[j.to(y1.device)]


def optimal_pairs(x: Tensor, y: Tensor) -> Pairs:
    """The pairs (i, j) [E] of an optimal plan, and their masses, of sum 1.

    Points whose squares might overflow or vanish are brought to size 1 by a power of 2, which is exact.
    """
    n, m = len(x), len(y)
    if not n:
        none = torch.zeros(0, dtype=torch.int64, device=x.device)
        return none, none, none.double()
    known = ends(x, y)
    size = math.frexp(np.abs(known).max())[1]
    if abs(size) > SAFE:
        factor = 2.0 ** -max(size, -1000)
        x, y, known = x * factor, y * factor, known * factor
    if x.is_cuda or n * m > (SMALL_MATRIX if x.shape[1] <= FEW else LARGEST_MATRIX):
        return _listed(solve_sample(x, y, reg=0))
    C = squares_by_product(*_about_origin(x, y, known, PLAIN if _lie_apart(known) else ONE_PLACE))
    # scipy solves small assignments faster
    return (*linear_sum_assignment(C), C.new_full((n,), 1 / n)) if n == m else _listed(solve(C, reg=0))


def squares(x: Tensor, y: Tensor) -> Tensor:
    """‖x_i − y_j‖² [n, m]."""
    top = max(float(torch.linalg.vector_norm(t, dim=1).amax()) if len(t) else 0.0 for t in (x, y))
    if not top < LARGEST_NORM:
        raise ArgumentError("x0 and x1", "have finite squared distances", f"points of norm {top:.3g}")
    return squares_by_product(*_about_origin(x, y, ends(x, y), ONE_PLACE) if len(x) and len(y) else (x, y))


def _about_origin(x: Tensor, y: Tensor, known: np.ndarray, rule: Rule) -> tuple[Tensor, Tensor]:
    """Both clouds, of these `ends`, less their middles by this rule: two of them, or for plain distances one."""
    none = x.new_zeros(())
    return moved(x, y, none, none, *middles(known, rule))[:2]


def _lie_apart(known: np.ndarray) -> bool:
    """Whether some coordinate of the clouds is farther apart than any coordinate of one of them ranges."""
    low_x, high_x, low_y, high_y = known
    size = max((high_x - low_x).max(), (high_y - low_y).max())
    return bool(max((low_x - high_y).max(), (low_y - high_x).max()) > size)


def _listed(result: Any) -> Pairs:
    assert isinstance(result, ExactResult)
    i, j, masses = result.pairs
    order = i.argsort()
    return i[order], j[order], masses[order]
