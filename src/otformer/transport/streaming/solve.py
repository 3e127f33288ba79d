r"""Solving between points without the n × m matrix: memory O(n + m), time per layer O(nm) or less
(transport/executors/stream.py).

The layers are those of `solve` (transport/solvers/annealing.py). They see the costs ‖x' − y'‖² of `stream.centred`
alone: a plan with
given marginals is the same for C_ij + p_i + q_j, whose potentials are u + p and v + q. So neither clouds far apart nor costs
that one side bears cost digits or layers, and the plan returned is made of the very numbers whose error is reported.

**Precision.** Everything a result says is computed in float64: its potentials, its value and its marginal error. For float32
input, and for any on a GPU, layers run in float32 as far as that leads, and a float64 finish, two passes at least, goes on
from there. Float32 leads to a true marginal error of about 2⁻²⁶ (max C − min C)/λ, measured over dimensions, costs and λ:
1.5e-5 for λ = 0.001 max C; its own passes may claim thirty times less. A ``tol`` beyond that costs float64 passes.

**Depth.** Layers are passes over the cost that lead to the potentials, ``max_depth`` at most, the one that gives a potential
to new points of a warm start included. The two products that measure the marginals and values of the end are not counted.

**Costs.** All with features, C_ij = ‖x_i − y_j‖² + p_i + q_j: one matrix product for each block. The distance ‖x − y‖ is
none of them. It has no finite features; a root for each entry and other bounds on tiles would be a second executor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.network.features import Features, cosine, inner_product, squared_euclidean
from otformer.transport.executors.stream import Stream, centred, own_costs
from otformer.transport.fast_path import warn_not_converged
from otformer.transport.problem.problem import like_input, read_potentials
from otformer.transport.problem.result import Result
from otformer.transport.solvers.annealing import Pair, State, warm
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.streaming.coarse_to_fine import coarse_to_fine
from otformer.transport.streaming.plan import Operator, Parts, Product, StreamedPlan, StreamedPotentials, StreamedValue

NETWORK = "Sinkhorn blocks, Anderson-mixed, streamed"
COSTS = {"sqeuclidean": squared_euclidean, "inner": inner_product, "cosine": cosine}
PATIENCE = 20  # float32 layers without a better error before float64 takes over
CRUDEST = 1e-2  # of the mass: an error of float32 beyond which there is no use in it
LARGEST = 1e30  # costs, and 1/λ, up to where float32 has room for them
FARTHEST = 10.0  # times what potentials of a plan can differ by: a warm start beyond that has lost its digits


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
    sides, dtype = _sides(X_a, X_b, cost)
    lam, tol = checks.positive("reg", reg.detach() if isinstance(reg, Tensor) else reg), checks.not_negative("tol", tol)
    checks.count("max_depth", max_depth, least=LAYERS)
    a, b, target = _weights(sides, a, b)
    start = None if potentials is None else read_potentials(potentials, *sides[2:])

    rows, columns = (w.detach().nonzero()[:, 0] for w in (a, b))
    sides = centred(*(t[at] for t, at in zip(sides, (rows, columns, rows, columns), strict=True)))
    x, y, p, q = (t.detach() for t in sides)
    stream = _stream(x, y, *(w.detach()[at].log() for w, at in ((a, rows), (b, columns))))
    if not math.isfinite(stream.spread + float(p.abs().max() + q.abs().max())):
        names = ("X_a and X_b", "points") if isinstance(cost, str) else ("cost.x and cost.y", "features")
        raise ValueError(f"{names[0]} must have finite squared distances, got {names[1]} too far apart")
    if lam > 1e300:
        raise ValueError(f"reg must be at most 1e300, got {lam:g}")
    if not math.isfinite(stream.spread / lam):
        raise ValueError(f"reg is too small: cost/reg overflows, got reg = {lam:g}, costs {stream.spread:g} apart")
    tol = tol * min(1.0, float(a.detach().sum()))  # little mass is no excuse
    single = dtype == torch.float32 or x.is_cuda
    with torch.no_grad():
        first, taken = None, 0
        if start is not None:
            first, taken = _first_v(stream, start[0][rows] - p, start[1][columns] - q, lam, max_depth)
        u, v, _, depth = _potentials(stream, lam, tol, max_depth - taken, first, single)

    learned = torch.as_tensor(reg, dtype=u.dtype, device=u.device)
    operator = Operator(stream, (x, y, *_norms(x, y), u, v, learned.detach()))
    value, linear, sums, parts = _values(operator, sides, learned, a[rows], b[columns])
    pairs = (sums[0], a.detach()[rows]), (sums[1], target.detach()[columns])
    error, depth, u, v = float(sum((s - w).abs().sum() for s, w in pairs)), depth + taken, u + p, v + q
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
        network=f"{NETWORK}, in float32 with a float64 finish" if single else NETWORK,
    )


def _sides(X_a: Any, X_b: Any, cost: Any) -> tuple[Parts, torch.dtype]:
    """x [n, d], y [m, d], p [n] and q [m] with C_ij = ‖x_i − y_j‖² + p_i + q_j, float64, differentiable; the dtype given."""
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
    if not x.numel() or not y.numel():
        raise ValueError(f"X_a and X_b must have points and coordinates, got shapes {tuple(x.shape)} and {tuple(y.shape)}")
    dtype, x, y = x.dtype, x.double(), y.double()
    if cost == "sqeuclidean":  # no norms that would have to cancel
        return (x, y, torch.zeros_like(x[:, 0]), torch.zeros_like(y[:, 0])), dtype
    features = COSTS[cost](x, y) if isinstance(cost, str) else Features(x, y, p.double(), q.double())
    return (features.x, features.y, *own_costs(features)), dtype


def _weights(sides: Parts, a: Any, b: Any) -> tuple[Tensor, Tensor, Tensor]:
    """a, b scaled to the mass of a, and b as given, as in `Problem`; float64, from either precision."""
    weights = []
    for name, given, points in (("a", a, sides[0]), ("b", b, sides[1])):
        n = len(points)
        given = given.double() if isinstance(given, Tensor) and given.dtype == torch.float32 else given
        w = checks.weights(name, given, (n,), points) if given is not None else points.new_full((n,), 1 / n)
        weights.append(w)
        if float(w.detach().sum()) <= 0:
            raise ValueError(f"{name} must have a positive sum, got all zeros")
    checks.same_mass(*weights)
    a, target = weights
    return a, target * (a.sum() / target.sum()), target


def _first_v(stream: Stream, u: Tensor, v: Tensor, reg: float, max_depth: int) -> tuple[Tensor | None, int]:
    """The v of a warm start, None where it can be of no use, and the layers this took.

    (u + t, v − t) is the same plan: t makes the mean of v 0. Potentials of plans differ by no more than costs and λ log b.
    """
    known = v.isfinite()
    if not bool(known.any()):
        return None, 0
    middle, layers = v[known].mean(), 0
    u, v = u + middle, v - middle
    if not bool(known.all()):  # points that had no mass then: a column block gives them their potentials
        layers = min(1, max_depth - LAYERS)
        block = -reg * stream.excess(u, torch.zeros_like(v), reg, rows=False) if layers else torch.zeros_like(v)
        v = torch.where(known, v, block)
    reach = stream.spread + reg * (1 + float(stream.log_b.max() - stream.log_b.min()))
    return v if float(v.max() - v.min()) <= FARTHEST * reach else None, layers


def _stream(x: Tensor, y: Tensor, log_a: Tensor, log_b: Tensor) -> Stream:
    return Stream(Features(x, y, *_norms(x, y)), log_a, log_b)


def _norms(x: Tensor, y: Tensor) -> Pair:
    return (x * x).sum(-1), (y * y).sum(-1)


def _potentials(stream: Stream, reg: float, tol: float, max_depth: int, start: Tensor | None, single: bool) -> State:
    """u, v, their error and the layers they took, from v = ``start`` or cold; if ``single``, in float32 first.

    What did not converge from ``start`` is tried again without it, on the layers left.
    """
    spread, mass, v, depth = stream.spread, float(stream.log_b.exp().sum()), start, 0
    floor = mass * (2**-26 * spread / reg + 2**-23)
    if single and floor < CRUDEST * mass and max(spread, 1 / reg) < LARGEST and max_depth >= 2 * LAYERS:
        x, y = (side.points[side.order.argsort()].float() for side in (stream.x, stream.y))
        rough = _stream(x, y, stream.log_a.float(), stream.log_b.float())
        _, v, _, depth = _least(_states(rough, v, spread, reg, max(tol, floor), max_depth - LAYERS), PATIENCE)
        v = v.double()
    u, v, error, more = _least(_states(stream, v, spread, reg, tol, max_depth - depth))
    depth += more
    if start is None or error < tol or depth + LAYERS > max_depth:
        return u, v, error, depth
    cold = _potentials(stream, reg, tol, max_depth - depth, None, single)
    u, v, error = min((u, v, error), cold[:3], key=lambda found: found[2])
    return u, v, error, depth + cold[3]


def _states(stream: Stream, v: Tensor | None, spread: float, reg: float, tol: float, max_depth: int) -> Iterator[State]:
    if v is None:
        return coarse_to_fine(stream, reg, tol, max_depth)
    return warm(stream, v.to(stream.log_b), spread, reg, tol, max_depth)


def _least(states: Iterator[State], patience: float = math.inf) -> State:
    """The state of the least error, but with all the layers run: until none has been better for ``patience`` of them."""
    u, v, least, depth = next(states)
    at = depth
    for state in states:
        depth = state[3]
        if state[2] <= least:
            u, v, least, at = state
        elif depth - at >= patience:
            break
    return u, v, least, depth


def _values(operator: Operator, sides: Parts, reg: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Pair, Parts]:
    """Value, value_linear, the plan's row and column sums r and c, and its parts, differentiable where ``sides`` are.

    Σ P C = Σ_i (p_i + ‖x_i‖²) r_i + (P(q + ‖y‖²))_i − 2 x_i·(Py)_i is one pass; Σ P C + λ Σ P log P = Σ r (u + p) +
    Σ c (v + q) − λ Σ P, where p and q, which do not change the plan, have no other part.
    """
    x, y, p, q = sides
    alone = (x, y, *_norms(x, y), reg)  # the problem without p and q
    u, v = StreamedPotentials.apply(operator, a, b, *alone)
    parts = (*alone[:4], u, v, reg)
    sums = Product.apply(operator, torch.cat([torch.ones_like(q)[:, None], (alone[3] + q)[:, None], y], 1), *parts)
    linear = ((alone[2] + p) * sums[:, 0] + sums[:, 1] - 2 * (x * sums[:, 2:]).sum(1)).sum()
    with torch.no_grad():
        r, c = sums[:, 0].detach(), operator.left(torch.ones_like(u))
        value, left_a, left_b = r @ u + c @ v - reg * r.sum(), r - a, c - b
    value = StreamedValue.apply(operator, value, a, b, *alone)
    return value + (a + left_a) @ p + (b + left_b) @ q, linear, (r, c), parts


def _fill(potential: Tensor, at: Tensor, size: int) -> Tensor:
    """−inf for the points without mass: they are absent."""
    return potential if len(at) == size else potential.new_full((size,), -torch.inf).index_copy(0, at, potential)
