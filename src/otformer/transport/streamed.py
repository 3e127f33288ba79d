r"""Solving between points without the n × m matrix: memory O(n + m), time per layer O(nm) or less (transport/stream.py).

The layers are those of `solve` (transport/stages.py).

**Precision.** Everything a result says is computed in float64: its potentials, its value and its marginal error. For float32
input, and for any on a GPU, layers run in float32 as far as that leads, and a float64 finish, two passes at least, goes on
from there. Float32 leads to a true marginal error of about 2⁻²⁶ (max C − min C)/λ, measured over dimensions, costs and λ:
1.5e-5 for λ = 0.001 max C; its own passes may claim thirty times less. A ``tol`` beyond that costs float64 passes.

**Costs.** All with features, C_ij = p_i + q_j − 2 x_i·y_j: one matrix product for each block. The distance ‖x − y‖ (p = 1)
is none of them. It has no finite features; a root for each entry and other bounds on tiles would be a second executor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.network.features import Features, cosine, inner_product, squared_euclidean
from otformer.transport.blocks import LAYERS
from otformer.transport.coarse import coarse_to_fine
from otformer.transport.lazy import Operator, Parts, Potentials, Product, StreamedPlan, Value
from otformer.transport.problem import like_input
from otformer.transport.result import Result
from otformer.transport.small import warn_not_converged
from otformer.transport.stages import Pair, State, best, warm
from otformer.transport.stream import Stream

NETWORK = "Sinkhorn blocks, Anderson-mixed, streamed"
COSTS = {"sqeuclidean": squared_euclidean, "inner": inner_product, "cosine": cosine}
PATIENCE = 20  # float32 layers without a better error before float64 takes over
CRUDEST = 1e-2  # of the mass: an error of float32 beyond which there is no use in it


def solve_streamed(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    reg: float | Tensor = 0.1,
    tol: float = 1e-6,
    max_depth: int = 10_000,
    potentials: tuple[Any, Any] | None = None,
    cost: str | Features = "sqeuclidean",
) -> Result:
    """`solve_sample` in O(n + m) memory: ``plan`` is a `StreamedPlan`, an operator, not a matrix.

    Parameters as of `solve_sample`, and cost: ``"sqeuclidean"`` ‖x − y‖², ``"inner"`` −x·y, ``"cosine"`` 1 − cos(x, y), or
    `Features` of any other, with X_a and X_b None. Potentials are float64 also for float32 input: they are the plan.

    ``value``, ``value_linear`` and products (``result.apply``, ``result.map``, ``result.plan @ w``) are differentiable as in
    `solve`, but once only, in X_a, X_b (or the features), a, b, reg and the vectors, in O(n + m) memory.

    >>> r = solve_streamed([[0.0], [1.0]], [[0.1], [0.9]], reg=0.01)
    >>> r.plan.argmax(1).tolist(), r.map([5.0, 7.0]).round(6).tolist()
    ([0, 1], [5.0, 7.0])
    """
    features, dtype = _features(X_a, X_b, cost)
    lam, tol = checks.positive("reg", reg.detach() if isinstance(reg, Tensor) else reg), checks.not_negative("tol", tol)
    checks.count("max_depth", max_depth, least=LAYERS)
    a, b, target = _weights(features, a, b)
    start = None if potentials is None else _start(potentials, features)

    rows, columns = (w.detach().nonzero()[:, 0] for w in (a, b))
    sides = features.x[rows], features.y[columns], features.x_sq[rows], features.y_sq[columns]
    numbers = tuple(t.detach().clone() for t in sides)
    stream = Stream(Features(*numbers), *(w.detach()[at].log() for w, at in ((a, rows), (b, columns))))
    if not math.isfinite(stream.spread / lam):
        raise ValueError(f"reg is too small: cost/reg overflows, got reg = {lam:g}, costs {stream.spread:g} apart")
    tol = tol * min(1.0, float(a.detach().sum()))  # little mass is no excuse
    start = None if start is None else (start[0][rows], start[1][columns])
    single = dtype == torch.float32 or numbers[0].is_cuda
    u, v, depth, network = _potentials(stream, numbers, lam, tol, max_depth, start, single)

    learned = torch.as_tensor(reg, dtype=u.dtype, device=u.device)
    operator = Operator(stream, (*numbers, u, v, learned.detach()))
    value, linear, sums, parts = _values(operator, (*sides, learned), a[rows], b[columns])
    pairs = (sums[0], a.detach()[rows]), (sums[1], target.detach()[columns])
    error, depth = float(sum((s - w).abs().sum() for s, w in pairs)), depth + 2
    if not error < tol:
        warn_not_converged(error, depth, tol, lam, 3)
    given = value if value.requires_grad else X_a if isinstance(cost, str) else u
    shape = len(a), len(b)
    return Result(
        plan=StreamedPlan(operator, parts, (rows, columns), shape, numpy=not isinstance(given, Tensor)),
        potentials=(like_input(given, _fill(u, rows, shape[0])), like_input(given, _fill(v, columns, shape[1]))),
        value=value.to(dtype) if isinstance(given, Tensor) else float(value),
        value_linear=linear.to(dtype) if isinstance(given, Tensor) else float(linear),
        marginal_error=error,
        converged=error < tol,
        depth=depth,
        network=network,
    )


def _features(X_a: Any, X_b: Any, cost: Any) -> tuple[Features, torch.dtype]:
    """Features in float64, differentiable, and the dtype that was given."""
    if isinstance(cost, Features):
        if X_a is not None or X_b is not None:
            raise ValueError("X_a and X_b must be None where cost is Features: they have the points already")
        fields = {name: checks.tensor(f"cost.{name}", getattr(cost, name)) for name in ("x", "y", "x_sq", "y_sq")}
        x, y, p, q = fields.values()
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or (p.shape, q.shape) != (x.shape[:1], y.shape[:1]):
            raise ValueError(f"cost must be Features of one problem, got shapes {[tuple(t.shape) for t in fields.values()]}")
    elif not isinstance(cost, str) or cost not in COSTS:
        raise ValueError(f"cost must be one of {', '.join(COSTS)}, or Features, got {cost!r}")
    else:
        x, y = checks.points("X_a", X_a), checks.points("X_b", X_b)
        if x.shape[1] != y.shape[1]:
            raise ValueError(f"X_a and X_b must have the same dimension, got {tuple(x.shape)} and {tuple(y.shape)}")
    if x.dtype != y.dtype or x.device != y.device:
        raise ValueError(f"X_a and X_b must agree, got {x.dtype} on {x.device} and {y.dtype} on {y.device}")
    if not len(x) or not len(y):
        raise ValueError(f"X_a and X_b must have points, got {len(x)} and {len(y)}")
    if isinstance(cost, Features):
        return Features(*(t.double() for t in (x, y, p, q))), x.dtype
    middle = y.detach().double().mean(0) if cost == "sqeuclidean" else 0  # of differences only: less cancellation
    return COSTS[cost](x.double() - middle, y.double() - middle), x.dtype


def _weights(features: Features, a: Any, b: Any) -> tuple[Tensor, Tensor, Tensor]:
    """a, b scaled to the mass of a, and b as given, as in `Problem`; float64."""
    weights = []
    for name, given, points in (("a", a, features.x), ("b", b, features.y)):
        n = len(points)
        weights.append(points.new_full((n,), 1 / n) if given is None else checks.weights(name, given, (n,), points))
        if float(weights[-1].detach().sum()) <= 0:
            raise ValueError(f"{name} must have a positive sum, got all zeros")
    checks.same_mass(*weights)
    a, target = weights
    return a, target * (a.sum() / target.sum()), target


def _start(potentials: Any, features: Features) -> Pair:
    """Potentials of an earlier result, checked."""
    try:
        u, v = (torch.as_tensor(t).detach().to(features.x) for t in potentials)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"potentials must be a pair of arrays (u, v), got {type(potentials).__name__}") from None
    if u.shape != features.x_sq.shape or v.shape != features.y_sq.shape:
        shapes = f"{tuple(features.x_sq.shape)} and {tuple(features.y_sq.shape)}, got {tuple(u.shape)} and {tuple(v.shape)}"
        raise ValueError(f"potentials must have shapes {shapes}")
    if not all(bool((t < torch.inf).all()) for t in (u, v)):  # −inf is what an absent point has
        raise ValueError("potentials must be numbers, got nan or +inf among them")
    return u, v


@torch.no_grad()
def _potentials(
    stream: Stream, numbers: Parts, reg: float, tol: float, max_depth: int, start: Pair | None, single: bool
) -> tuple[Tensor, Tensor, int, str]:
    """u, v, the layers they took and which they were; if ``single``, in float32 first."""
    spread, depth, v = stream.spread, 0, None
    if start is not None:
        v = start[1]
        if bool(v.isneginf().any()):  # a point that had no mass then: a column block gives it its potential
            block = -reg * stream.excess(start[0], torch.zeros_like(v), reg, rows=False)
            v, depth = torch.where(v.isneginf(), block.nan_to_num(0.0, 0.0, 0.0), v), 1
    mass = float(stream.log_b.exp().sum())
    floor = mass * (2**-26 * spread / reg + 2**-23)
    if single and floor < CRUDEST * mass and max_depth >= 2 * LAYERS:
        rough = Stream(Features(*(t.float() for t in numbers)), stream.log_a.float(), stream.log_b.float())
        enough, limit = max(tol, floor), max_depth - LAYERS
        v, more = _until_it_stays(_states(rough, v, spread, reg, enough, limit))
        v, depth = v.double(), depth + more
    left = max(LAYERS, max_depth - depth)
    u, v, more = best(_states(stream, v, spread, reg, tol, left))
    network = f"{NETWORK}, in float32 with a float64 finish" if single else NETWORK
    return u, v, depth + more, network


def _states(stream: Stream, v: Tensor | None, spread: float, reg: float, tol: float, max_depth: int) -> Iterator[State]:
    if v is None:
        return coarse_to_fine(stream, reg, tol, max_depth)
    return warm(stream, v.to(stream.log_b), spread, reg, tol, max_depth)


def _until_it_stays(states: Iterator[State]) -> tuple[Tensor, int]:
    """The v of the least error, and the layers run, until none has been better for ``PATIENCE`` layers."""
    _, kept, least, at = next(states)
    depth = at
    for _, v, error, depth in states:
        if error < least:
            kept, least, at = v, error, depth
        elif depth - at >= PATIENCE:
            break
    return kept, depth


def _values(operator: Operator, sides: Parts, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Pair, Parts]:
    """Value, value_linear, the plan's row and column sums, and the parts of the plan, differentiable where ``sides`` are.

    Σ P C = Σ_i p_i (P1)_i + (Pq)_i − 2 x_i·(Py)_i is one pass; Σ P C + λ Σ P log P = Σ r u + Σ c v − λ Σ P, sums r and c.
    """
    x, y, p, q, lam = sides
    u, v = Potentials.apply(operator, a, b, *sides)
    parts = (x, y, p, q, u, v, lam)
    sums = Product.apply(operator, torch.cat([torch.ones_like(q)[:, None], q[:, None], y], 1), *parts)
    linear = (p * sums[:, 0] + sums[:, 1] - 2 * (x * sums[:, 2:]).sum(1)).sum()
    with torch.no_grad():
        rows, columns = sums[:, 0].detach(), operator.left(torch.ones_like(u))
        value = rows @ u + columns @ v - lam * rows.sum()
    return Value.apply(operator, value, a, b, *sides), linear, (rows, columns), parts


def _fill(potential: Tensor, at: Tensor, size: int) -> Tensor:
    """−inf for the points without mass: they are absent."""
    return potential if len(at) == size else potential.new_full((size,), -torch.inf).index_copy(0, at, potential)
