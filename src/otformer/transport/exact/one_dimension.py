r"""Transport on a line, exactly, by sorting: its value, its plan and the proof, in O(n log n) time.

Let x and y be sorted and c_ij = |x_i − y_j|^p with p ≥ 1, a convex function of the difference. Then c is a *Monge* matrix,

    c_ij + c_kl ≤ c_il + c_kj      for i < k, j < l,

so mass never gains by crossing, and the plan that fills rows and columns in order is optimal [1]. Its pairs are a staircase:
put the cumulative weights A_1, …, A_{n−1} and B_1, …, B_{m−1} on one line; the k-th of the n + m − 1 intervals between them
is the mass of the pair (i, j) with i ends of rows and j ends of columns to its left. Points of weight 0 and ends that
coincide are pairs of mass 0: the staircase goes on through them, one step at a time.

**Potentials** are read off it. A step to the next row keeps the column, so f_i + g_j = c_ij on both of its pairs gives
f_{i+1} = f_i + c_{i+1,j} − c_ij, and a step to the next column g_{j+1} = g_j + c_{i,j+1} − c_ij. The rest s = c − f − g is
Monge as c is, and 0 on the staircase, so s_ij is the sum of s_{k,l+1} + s_{k+1,l} − s_kl − s_{k+1,l+1} ≥ 0 over the cells
between (i, j) and the staircase: f_i + g_j ≤ c_ij everywhere, also for points without weight. As all potentials that are
optimal, these are a derivative of the optimum in the weights.

**Weights as whole numbers.** Cumulative sums of floats err by ε each, and so would every mass. Shares of the total are
therefore rounded to multiples of 2⁻⁶² and added up exactly; where the two sums differ, by 1e-16 or so, the largest weight of
the second side makes up for it.

[1] A. J. Hoffman: On simple linear programming problems. Convexity, 1963.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otformer import checks, weight_checks
from otformer.memory import Need, needs, shape
from otformer.transport.types import Form

UNITS = 2.0**62  # of which all the mass on one side is made


class MonotonePlan(NamedTuple):
    """Hold the pairs of a plan on a line, with their masses, and potentials f_i + g_j ≤ c_ij, equal on these pairs."""

    rows: Any  # [k], k < n + m, whole numbers
    columns: Any  # [k]
    masses: Any  # [k], positive
    f: Any  # [n]
    g: Any  # [m]


@needs(lambda u_values, v_values, **_: _need(u_values, v_values))
def wasserstein_1d(
    u_values: Any, v_values: Any, u_weights: Any = None, v_weights: Any = None, p: float = 1, require_sort: bool = True
) -> Any:
    r"""The p-Wasserstein distance on a line, to the power p, exactly,

        W_p^p = min_P Σ_ij P_ij |x_i − y_j|^p = ∫ |F_x⁻¹(q) − F_y⁻¹(q)|^p dq,      F⁻¹ the quantile functions.

    Parameters
    ----------
    u_values, v_values : array (n, ...) and (m, ...)
        Numbers x and y; every column is a separate problem.
    u_weights, v_weights : array (n,) or (n, ...) and (m,) or (m, ...), optional
        Weights of equal sum in every column, shared by all columns or one set per column; by default uniform, with the mass
        of the other side, or 1. ``v_weights`` are scaled to the mass of ``u_weights``.
    p : float
        At least 1.
    require_sort : bool
        False if every column is already sorted.

    Returns
    -------
    number, or array (...)
        A tensor if one was given, differentiable in values and weights (where two quantiles meet, by one of the
        potentials there are).

    Examples
    --------
    >>> float(wasserstein_1d([0.0, 1.0, 3.0], [5.0, 6.0, 8.0]))
    5.0
    >>> float(wasserstein_1d([0.0, 1.0], [0.5], [0.25, 0.75], p=2))
    0.25
    """
    x, y, a, b, power, form = _read(u_values, v_values, u_weights, v_weights, p)
    x, x_order = _sorted("u_values", x, require_sort)
    y, y_order = _sorted("v_values", y, require_sort)
    a, b = a.gather(0, x_order), b.gather(0, y_order)
    steps = _staircase(a, b)
    costs = _costs(steps, x, y, power)
    value = (steps.masses * costs).sum(0)
    if not bool(value.to(form.dtype).isfinite().all()):
        most = f"below {torch.finfo(form.dtype).max:.2g}"
        raise checks.ArgumentError("u_values and v_values", f"be so near, and weights so small, that the distance is {most}")
    if checks.derivative_wanted(a, b):
        b = b * (a.sum(0) / b.sum(0))
        f, g = _potentials(steps, costs)
        value = value + ((a - a.detach()) * f).sum(0) + ((b - b.detach()) * g).sum(0)
    return form.give(value.reshape(checks.unseen("u_values", u_values).shape[1:]))[()]


def _need(x: Any, y: Any) -> Need:
    """Estimate the memory of sorting both sides, and of the staircase."""
    (n, *lead), m = shape(x, 1), shape(y, 1)[0]
    count = math.prod(lead)
    what = f"{count:,} problem{'s' * (count != 1)} of {n:,} and {m:,} numbers"
    return Need(what, 20 * count * (n + m), "give fewer columns at once")


def plan_1d(x: Any, y: Any, a: Any = None, b: Any = None, p: float = 1) -> MonotonePlan:
    r"""The optimal plan between numbers x (n,) and y (m,) for the cost |x_i − y_j|^p, and the proof that it is.

    Parameters
    ----------
    x, y : array (n,) and (m,)
        Numbers, in any order.
    a, b : array (n,) and (m,), optional
        Weights of equal sum; by default uniform, with the mass of the other side, or 1. b is scaled to the mass of a.
    p : float
        At least 1.

    Returns
    -------
    MonotonePlan
        ``rows``, ``columns`` and ``masses`` (k,) of its k < n + m pairs, and potentials ``f`` (n,), ``g`` (m,): for all
        pairs f_i + g_j ≤ |x_i − y_j|^p, for these it is equal, so Σ a f + Σ b g = Σ P c is the optimum. Tensors if one was
        given; numbers are float64.

    Examples
    --------
    >>> plan = plan_1d([3.0, 0.0], [1.0, 2.0, 7.0], [0.5, 0.5], [0.25, 0.5, 0.25])
    >>> plan.rows.tolist(), plan.columns.tolist(), plan.masses.tolist()
    ([1, 1, 0, 0], [0, 1, 1, 2], [0.25, 0.25, 0.25, 0.25])
    >>> plan.f.tolist(), plan.g.tolist()
    ([0.0, 1.0], [0.0, 1.0, 4.0])
    """
    for name, values in (("x", x), ("y", y)):
        if len(shape := tuple(checks.unseen(name, values).shape)) != 1:
            raise checks.ArgumentError(name, "have shape (n,)", shape)
    with torch.no_grad():
        first, second, a, b, power, form = _read(x, y, a, b, p, ("x", "y", "a", "b"))
        first, x_order = _sorted("x", first)
        second, y_order = _sorted("y", second)
        steps = _staircase(a.gather(0, x_order), b.gather(0, y_order))
        costs = _costs(steps, first, second, power)
        f, g = _potentials(steps, costs)
        f, g = torch.empty_like(f).scatter(0, x_order, f), torch.empty_like(g).scatter(0, y_order, g)
        used = steps.masses > 0
        rows, columns = x_order[steps.rows[used], 0], y_order[steps.columns[used], 0]
        arrays = rows, columns, steps.masses[used], f[:, 0], g[:, 0]
    return MonotonePlan(*(t.numpy() if form.device is None else t for t in arrays))


class Stairs(NamedTuple):
    """Hold pairs of places in sorted lists, from the first to the last, every column a problem."""

    rows: Tensor  # [n + m − 1, K]
    columns: Tensor
    masses: Tensor  # some of them 0
    down: Tensor  # [n + m − 2, K], which steps go to the next row; others to the next column


def _staircase(a: Tensor, b: Tensor) -> Stairs:
    """Build the staircase of weights [n, K] and [m, K] of sorted points."""
    a, b, total = a.detach(), b.detach(), a.detach().sum(0)
    first, second = ((w / w.sum(0) * UNITS).long() for w in (a, b))
    second.scatter_add_(0, b.argmax(0, keepdim=True), (first.sum(0) - second.sum(0))[None])
    steps = stairs(first, second)
    return steps._replace(masses=steps.masses.double() * (total / first.sum(0)))


def stairs(first: Tensor, second: Tensor) -> Stairs:
    """Build the staircase of whole numbers [n, K] and [m, K] of the same sums; its masses are whole numbers too."""
    ends = torch.cat([first.cumsum(0)[:-1], second.cumsum(0)[:-1]])
    ends, order = ends.sort(dim=0, stable=True)
    down = order < len(first) - 1
    none = torch.zeros_like(order[:1]) if len(order) else first.new_zeros(1, first.shape[1])
    rows, columns = (torch.cat([none, step.long().cumsum(0)]) for step in (down, ~down))
    units = torch.cat([none, ends, first.sum(0, keepdim=True)]).diff(dim=0)
    return Stairs(rows, columns, units, down)


def _costs(steps: Stairs, x: Tensor, y: Tensor, p: float) -> Tensor:
    """Return |x_i − y_j|^p of the pairs, [n + m − 1, K]."""
    apart = (x.gather(0, steps.rows) - y.gather(0, steps.columns)).abs()
    costs = apart if p == 1 else apart**p
    if not bool(costs.isfinite().all()):
        raise ValueError(f"p is too large for these values: they are up to {float(apart.max()):g} apart, to the power {p:g}")
    return costs


def _potentials(steps: Stairs, costs: Tensor) -> tuple[Tensor, Tensor]:
    """Return f [n, K] and g [m, K] of the sorted points, with f_i + g_j the cost of every pair of the staircase."""
    rises, n, m = costs.diff(dim=0), int(steps.rows[-1, 0]) + 1, int(steps.columns[-1, 0]) + 1
    f, g = costs.new_zeros(n, costs.shape[1]), costs.new_zeros(m, costs.shape[1])
    # Every step ends in a new row or a new column; the other kind of step adds 0 to where it already is.
    f = f.scatter_add(0, steps.rows[1:], torch.where(steps.down, rises, 0.0)).cumsum(0) + costs[:1]
    g = g.scatter_add(0, steps.columns[1:], torch.where(steps.down, 0.0, rises)).cumsum(0)
    return f, g


def _sorted(name: str, values: Tensor, unsorted: bool = True) -> tuple[Tensor, Tensor]:
    """Sort values [n, K]; return them and the order."""
    if unsorted:
        order = values.detach().argsort(dim=0, stable=True)
        return values.gather(0, order), order
    if bool((values.diff(dim=0) < 0).any()):
        raise checks.ArgumentError(name, "be sorted where require_sort is False", "values that fall")
    return values, torch.arange(len(values), device=values.device)[:, None].expand_as(values)


def _read(
    u_values: Any, v_values: Any, u_weights: Any, v_weights: Any, p: Any,
    names: tuple[str, str, str, str] = ("u_values", "v_values", "u_weights", "v_weights"),
) -> tuple[Tensor, Tensor, Tensor, Tensor, float, Form]:  # fmt: skip
    """Read values and weights [n, K] and [m, K] in float64, with their graphs; p; and the form of results."""
    power = checks.positive("p", p)
    if power < 1:
        raise checks.ArgumentError("p", "be at least 1", repr(p))
    given = [checks.tensor(name, values) for name, values in zip(names, (u_values, v_values), strict=False)]
    x, y = given
    for name, t in zip(names, given, strict=False):
        if not t.ndim or not len(t):
            raise checks.ArgumentError(name, "have shape (n, ...) with n ≥ 1", tuple(t.shape))
    if x.shape[1:] != y.shape[1:] or x.device != y.device:
        both = " and ".join(f"{tuple(t.shape)} on {t.device}" for t in given)
        raise checks.ArgumentError(f"{names[0]} and {names[1]}", "agree in columns and device", both)
    tensors = any(isinstance(t, Tensor) for t in (u_values, v_values, u_weights, v_weights))
    form = Form(x.device if tensors else None, single=x.dtype == y.dtype == torch.float32)
    one = x.ndim == 1
    x, y = (t.double().reshape(len(t), -1) for t in given)
    weights = [
        None if w is None else _weights(name, w, t.shape, x)
        for name, w, t in zip(names[2:], (u_weights, v_weights), given, strict=True)
    ]
    masses = [w.detach().sum(0) for w in weights if w is not None]
    mass = masses[0] if masses else torch.ones_like(x[0])
    a, b = (
        mass / len(t) + torch.zeros_like(t) if w is None else w
        for w, t in zip(weights, (x.detach(), y.detach()), strict=True)
    )
    weight_checks.same_mass(a[:, 0] if one else a.mT, b[:, 0] if one else b.mT, f"{names[2]} and {names[3]}")
    return x, y, a, b, power, form


def _weights(name: str, given: Any, shape: torch.Size, like: Tensor) -> Tensor:
    """Read the weights of one side, the same for all columns or for each, [n, K]."""
    own = tuple(shape) if len(shape) > 1 and checks.unseen(name, given).ndim > 1 else tuple(shape[:1])
    w = weight_checks.weights(name, given, own, like, axis=0).reshape(shape[0], -1)
    return w.expand_as(like.new_empty(shape[0], like.shape[1]))
