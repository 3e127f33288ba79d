r"""`EarthMover` and `emd_batch`: exact earth mover's distances of batches of point clouds, differentiable.

    cost = min_P Σ_ij P_ij c(x_i, y_j),      P ≥ 0,  Σ_j P_ij = a_i,  Σ_i P_ij = b_j.

**Gradient.** The optimum of a linear program moves with its costs as if the plan stood still, and with its sums as the
potentials (f, g) say (envelope theorem):

    ∂cost/∂x_i = Σ_j P_ij ∂c(x_i, y_j)/∂x_i,      ∂cost/∂a_i = f_i,      ∂cost/∂b_j = g_j.

So the plan is found without derivatives, on the CPU, as a list of pairs (transport/ragged/clouds.py). The cost is the sum
over these pairs, in float64, on the device of the points, and autograd does the rest. Where the plan is unique it stays the
same near by, so second derivatives in points are right too. In weights they are refused: the plan moves with them.

Where several plans are optimal, as between points that coincide, the gradient is that of one of them. That of a distance 0
is 0.

**n ≠ m.** Without weights both sides are uniform with sum 1, as the Wasserstein distance of two samples is defined.

**Which loss.** Chamfer's distance, the mean of ‖x_i − nearest y‖² plus that of ‖y_j − nearest x‖², takes O(n²) operations or
fewer and no matching. It does not see how many points lie in a place: all of x may share one y of a cluster. Use it to begin
a training, or for clouds of more than some thousand points. The earth mover's distance sees the density, and is a metric
(with ``metric="euclidean"``): use it where points must spread as the target does, and to compare results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from otformer import checks, weight_checks
from otformer.memory import Need, needs
from otformer.nn.balance_problems import refuse
from otformer.nn.inputs import SMALLER, divisor, kind
from otformer.nn.transport import alike, point_mask, point_weights
from otformer.transport.costs.distances import root_of
from otformer.transport.derivatives.envelope import Envelope
from otformer.transport.ragged.clouds import Found, Pair, match_clouds
from otformer.transport.solve import eager
from otformer.transport.types import to_numpy

METRICS = ("sqeuclidean", "euclidean")
REDUCTIONS = ("none", "mean", "sum")
LARGEST = 1e150  # coordinates whose squares are finite
PAIR = torch.int64, torch.int64, torch.float64  # i, j and mass
Clouds = Tensor | Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class EarthMovers:
    """Earth mover's distances of a batch, their proofs, and the plans. Unbatched input gives no axes B.

    Attributes
    ----------
    cost : Tensor [B]
        Σ_ij P_ij c(x_i, y_j), differentiable. In float32 if points are float16 or bfloat16, otherwise in their dtype.
    gap : Tensor [B], float64
        The cost minus the lower bound that the potentials prove, in float64: 0 up to rounding.
    permutation : Tensor [B, n] or None
        If every problem has equally many points of equal weight on both sides: x[i] goes to y[permutation[i]], −1 for
        absent points. Otherwise None.
    pairs : list of B tuples (i, j, mass)
        The plan as pairs of points with their masses.
    """

    cost: Tensor
    gap: Tensor
    permutation: Tensor | None
    pairs: Any


@eager
@needs(lambda x, y, **_: _need(x, y))
def emd_batch(
    x: Clouds,
    y: Clouds,
    a: Clouds | None = None,
    b: Clouds | None = None,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    metric: str = "sqeuclidean",
) -> EarthMovers:
    r"""Exact earth mover's distances min Σ_ij P_ij c(x_i, y_j) between clouds, with gradients in points and weights.

    Parameters
    ----------
    x, y : Tensor (B, n, d) and (B, m, d), or (n, d) and (m, d), or lists of B tensors (n_i, d) and (m_i, d)
        Points in float16, bfloat16, float32 or float64. Computations are in float64.
    a, b : Tensor (B, n) and (B, m), or lists like x and y
        Weights, with the same sum on both sides. Default: uniform with sum 1, as in POT. So n ≠ m needs no weights: each x
        weighs 1/n and each y 1/m, and the cost is the (squared) Wasserstein distance of the two clouds. If only one is
        given, the other is uniform with the same sum.
    x_mask, y_mask : Tensor (B, n) and (B, m) of booleans
        True = present. Absent points are ignored and have gradient 0.
    metric : "sqeuclidean" or "euclidean"
        c = ‖x_i − y_j‖², or ‖x_i − y_j‖.

    Returns
    -------
    EarthMovers
        ``cost`` [B], ``gap`` [B], ``permutation`` [B, n] and ``pairs``.

    >>> x = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]], requires_grad=True)
    >>> found = emd_batch(x, torch.tensor([[[1.0, 1.0], [0.0, 0.0]]]))
    >>> found.cost.tolist(), found.permutation.tolist(), found.gap.tolist()
    ([0.5], [[1, 0]], [0.0])
    >>> found.cost.sum().backward()
    >>> x.grad.tolist()
    [[[0.0, 0.0], [0.0, -1.0]]]
    """
    root = checks.choice("metric", metric, METRICS) == "euclidean"
    batch = _read(x, y, a, b, x_mask, y_mask)
    points, others, learning = batch.x, batch.y, checks.derivative_wanted(batch.a, batch.b)
    found = _matchings(batch, root, learning)
    sizes = torch.tensor([len(one.i) for one in found], dtype=torch.int64, device="cpu")
    k = torch.arange(len(found), device="cpu").repeat_interleave(sizes).to(points.device)
    i, j, mass = (_together([one[t] for one in found], points.device, dtype) for t, dtype in enumerate(PAIR))
    terms = mass * _costs(points[k, i], others[k, j], root)
    cost = terms.new_zeros(len(found)).index_add(0, k, terms)
    if learning:
        f, g = (_filled([one[t] for one in found], mask) for t, mask in ((4, batch.rows), (5, batch.columns)))
        cost = Envelope.apply(cost.detach(), [torch.ones_like(cost), f, g], cost, batch.a, batch.b)
    cost = cost.to(torch.float32 if points.dtype in checks.LOW else points.dtype)
    refuse(~cost.detach().isfinite(), f"the cost overflows {cost.dtype}: scale the points")
    gap = torch.tensor([one.gap for one in found], dtype=torch.float64, device=points.device)
    pairs = list(zip(*(t.split(sizes.tolist()) for t in (i, j, mass)), strict=True))
    to = _permutation(found, batch.rows, batch.columns)
    if batch.lead:
        return EarthMovers(cost, gap, to, pairs)
    return EarthMovers(cost[0], gap[0], None if to is None else to[0], pairs[0])


class EarthMover(nn.Module):
    """The exact earth mover's distance of point clouds as a loss; it has no parameters.

    metric : "sqeuclidean" or "euclidean", as in `emd_batch`.
    reduction : over the batch: "mean", "sum", or "none" for all costs [B].

    >>> loss = EarthMover(metric="euclidean")
    >>> loss(torch.tensor([[[0.0], [3.0]]]), torch.tensor([[[4.0], [0.0]]])).item()
    0.5
    """

    def __init__(self, metric: str = "sqeuclidean", reduction: str = "mean") -> None:
        super().__init__()
        self.metric = checks.choice("metric", metric, METRICS)
        self.reduction = checks.choice("reduction", reduction, REDUCTIONS)

    def forward(
        self,
        x: Clouds,
        y: Clouds,
        a: Clouds | None = None,
        b: Clouds | None = None,
        x_mask: Tensor | None = None,
        y_mask: Tensor | None = None,
    ) -> Tensor:
        """Arguments as in `emd_batch`; returns the loss: a number, or [B] if the reduction is "none"."""
        cost: Tensor = emd_batch(x, y, a, b, x_mask, y_mask, metric=self.metric).cost
        if self.reduction == "mean" and not cost.numel():
            raise checks.ArgumentError("x", "have at least one problem for a mean", tuple(getattr(x, "shape", (0,))))
        return cost if self.reduction == "none" else cost.mean() if self.reduction == "mean" else cost.sum()

    def extra_repr(self) -> str:
        return f"metric={self.metric!r}, reduction={self.reduction!r}"


class _Batch(NamedTuple):
    """Points in B problems, which of them are present, and their weights in float64, 0 where absent."""

    x: Tensor  # [B, n, d]
    y: Tensor  # [B, m, d]
    rows: Tensor  # [B, n]
    columns: Tensor  # [B, m]
    a: Tensor  # [B, n]
    b: Tensor  # [B, m]
    lead: bool  # whether there was a batch axis


def _need(x: Clouds, y: Clouds) -> Need:
    """Of the largest cost, in each thread; the pairs are few."""
    n, m = (max((t.shape[-2] for t in ([c] if isinstance(c, Tensor) else c)), default=0) for c in (x, y))
    return Need(f"clouds of up to {n:,} and {m:,} points", torch.get_num_threads() * n * m, SMALLER)


def _read(x: Any, y: Any, a: Any, b: Any, x_mask: Any, y_mask: Any) -> _Batch:
    """Check everything but the metric."""
    (x, a, x_mask), (y, b, y_mask) = _padded("x", "a", x, a, x_mask), _padded("y", "b", y, b, y_mask)
    alike({"x": x, "y": y}, {"a": a, "b": b, "x_mask": x_mask, "y_mask": y_mask})
    for name, t in {"x": x, "y": y}.items():
        checks.no_transforms(name, t)
    if not x.shape[-1]:
        raise checks.ArgumentError("x and y", "have at least one coordinate", f"{tuple(x.shape)} and {tuple(y.shape)}")
    rows, columns = point_mask("x_mask", x_mask, x.shape[:-1], x), point_mask("y_mask", y_mask, y.shape[:-1], y)
    lead = x.ndim == 3
    x, y, rows, columns, w_a, w_b = (t if lead else t[None] for t in (x, y, rows, columns, *_masses(a, b, rows, columns)))
    for name, t, mask in (("x", x, rows), ("y", y, columns)):
        fine = (t.detach().isfinite() & (t.detach().abs() <= LARGEST)) | ~mask[..., None]  # LARGEST is inf in float32
        refuse(~fine.flatten(1).all(1), f"{name} must be finite and at most {LARGEST:g}, got nan, inf or more")
    return _Batch(x, y, rows, columns, w_a, w_b, lead)


def _padded(name: str, of: str, clouds: Any, weights: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Return a list of clouds, and of weights, as padded tensors with a mask; tensors as they are."""
    if not isinstance(clouds, (list, tuple)):
        if isinstance(weights, (list, tuple)):
            raise checks.ArgumentError(of, f"be a tensor, as {name} is", f"a {type(weights).__name__}")
        return clouds, weights, mask
    if mask is not None:
        raise checks.ArgumentError(f"{name}_mask", f"be left out where {name} is a list", kind(mask))
    if not clouds:
        raise checks.ArgumentError(name, "have at least one cloud", "an empty list")
    for k, t in enumerate(clouds):
        if not isinstance(t, Tensor) or t.ndim != 2 or not t.is_floating_point():
            raise checks.ArgumentError(f"{name}[{k}]", "be a tensor of floats of shape (n, d)", kind(t))
    forms = [f"dimension {t.shape[1]} in {t.dtype} on {t.device}" for t in clouds]
    if len(set(forms)) > 1:
        odd = next(form for form in forms if form != forms[0])
        raise checks.ArgumentError(name, "have one dimension, dtype and device", f"{forms[0]} and {odd}")
    sizes = torch.tensor([len(t) for t in clouds], device=clouds[0].device)
    mask = torch.arange(int(sizes.max()), device=sizes.device) < sizes[:, None]
    if weights is not None:
        if not isinstance(weights, (list, tuple)) or [tuple(w.shape) for w in weights] != [(len(t),) for t in clouds]:
            raise checks.ArgumentError(of, f"be a list of as many weights as {name} has points", kind(weights))
        weights = nn.utils.rnn.pad_sequence(list(weights), batch_first=True)
    return nn.utils.rnn.pad_sequence(list(clouds), batch_first=True), weights, mask


def _masses(a: Tensor | None, b: Tensor | None, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights of one sum in float64, those of y scaled to that of x; uniform where none are given."""
    w_a, w_b = point_weights("a", a, rows, math.inf), point_weights("b", b, columns, math.inf)
    if a is None and b is not None:
        w_a = w_a * w_b.sum(-1, keepdim=True)
    elif a is not None:
        if b is not None:
            weight_checks.same_mass(w_a, w_b)
        w_b = w_b * (w_a.sum(-1, keepdim=True) / divisor(w_b))
    return w_a, w_b


def _matchings(batch: _Batch, root: bool, learning: bool) -> list[Found]:
    """Solve all problems. Pairs are those of the padded clouds; potentials those of the points present."""
    clouds = list(zip(*(to_numpy(t.detach().double()) for t in (batch.x, batch.y, batch.a, batch.b)), strict=True))
    rows, columns = (to_numpy(t) for t in (batch.rows, batch.columns))
    if rows.all() and columns.all():
        return match_clouds([Pair(*given) for given in clouds], root, learning)
    places = [(i.nonzero()[0], j.nonzero()[0]) for i, j in zip(rows, columns, strict=True)]
    there = [Pair(x[i], y[j], a[i], b[j]) for (x, y, a, b), (i, j) in zip(clouds, places, strict=True)]
    found = match_clouds(there, root, learning)
    return [one._replace(i=i[one.i], j=j[one.j]) for one, (i, j) in zip(found, places, strict=True)]


def _costs(x: Tensor, y: Tensor, root: bool) -> Tensor:
    """Return c of pairs of points [E, d] in float64; a distance is computed in units of its largest coordinate."""
    difference = x.double() - y.double()
    if not root:
        return difference.square().sum(1)
    size = difference.detach().abs().amax(1)
    size = torch.where(size > 0, size, 1.0)
    return root_of((difference / size[:, None]).square().sum(1)) * size


def _together(parts: list[Any], device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.cat([torch.empty(0, dtype=dtype, device="cpu"), *map(torch.from_numpy, parts)]).to(device)


def _filled(parts: list[Any], mask: Tensor) -> Tensor:
    """Return potentials at the points that are present, 0 at others."""
    there = _together(parts, mask.device, torch.float64)
    return torch.zeros(mask.shape, dtype=torch.float64, device=mask.device).masked_scatter(mask, there)


def _permutation(found: list[Found], rows: Tensor, columns: Tensor) -> Tensor | None:
    """Return the column of every row [B, n], −1 for absent ones, where every problem is an assignment."""
    counts = zip(rows.sum(1).tolist(), columns.sum(1).tolist(), strict=True)
    for one, (n, m) in zip(found, counts, strict=True):
        if not n == m == len(one.i) or one.mass.min() != one.mass.max():
            return None
    to = torch.full(rows.shape, -1, device="cpu")
    for k, one in enumerate(found):
        to[k, torch.from_numpy(one.i)] = torch.from_numpy(one.j)
    return to.to(rows.device)
