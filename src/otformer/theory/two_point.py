r"""2 × 2 problems with weights 1: why one λ is slow on the list x = (0, 1), y = (½, 3/2), and a network with many λ is not.

The list has C = [[¼, 9/4], [¼, ¼]]. M_12 M_21/(M_11 M_22) = ρ², ρ = e^{−1/λ}, in every layer. With α = M_11/M_21 and κ =
M_22/M_21 the error E = Σ|S − 1| + Σ|S' − 1| is at least 2(1 − ρ²ακ)/(1 + min(α, κ)), and a layer with steps up to 2λ lets
max(α, κ) grow by 1 at most: after k layers E is no less than about 2/k for k ≪ e^{1/λ} (theorem D of docs/limits.md).

For every 2 × 2 cost the quantities that are slow at small λ, u_1 − u_2 and v_2 − v_1, have the same solution at every λ. No
layer takes them further from it. At a λ of 8 times the largest cost each layer after the second divides the distance of
one of them by 12. So a network corrects them there and then lets λ fall (theorem E).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from otformer import checks
from otformer.network.schedule import Layer

Cost = tuple[tuple[float, float], tuple[float, float]]
X, Y = (0.0, 1.0), (0.5, 1.5)
COST: Cost = ((0.25, 2.25), (0.25, 0.25))  # (x − y)²
HOTTEST, FACTOR = 8, 12  # theorem E: the first λ over the largest cost, and what a layer there divides the distance by
FIRST, LAST = 3, 4  # theorem E: layers before that factor counts, and layers at the network's own λ


class State(NamedTuple):
    """(u, v) at some λ: a plan [[M_11, M_12], [M_21, M_22]]."""

    u: tuple[float, float]
    v: tuple[float, float]
    reg: float
    cost: Cost = COST

    def log_plan(self, i: int, j: int) -> float:
        """log M_ij = (u_i + v_j − C_ij)/λ − 1."""
        return (self.u[i] + self.v[j] - self.cost[i][j]) / self.reg - 1

    def rows(self) -> tuple[float, float]:
        """log S_1, log S_2."""
        return _log_add(self.log_plan(0, 0), self.log_plan(0, 1)), _log_add(self.log_plan(1, 0), self.log_plan(1, 1))

    def columns(self) -> tuple[float, float]:
        """log S'_1, log S'_2."""
        return _log_add(self.log_plan(0, 0), self.log_plan(1, 0)), _log_add(self.log_plan(0, 1), self.log_plan(1, 1))

    @property
    def error(self) -> float:
        """E = Σ|S − 1| + Σ|S' − 1|."""
        return sum(abs(math.expm1(z)) for z in (*self.rows(), *self.columns()))

    @property
    def corner(self) -> float:
        """M_21, on the list the entry that has to go."""
        return math.exp(self.log_plan(1, 0))

    @property
    def slow(self) -> tuple[float, float]:
        """e = u_1 − u_2 − e* and f = v_2 − v_1 − f*: 0 at the solution of every λ (theorem E)."""
        (c11, c12), (c21, c22) = self.cost
        turn = c12 - c21
        return self.u[0] - self.u[1] - (turn + c11 - c22) / 2, self.v[1] - self.v[0] - (turn - c11 + c22) / 2


def path(layers: Iterable[Layer], start: State | None = None, cost: Cost = COST) -> Iterator[State]:
    """A 2 × 2 problem's state before the first layer and after each, in plain floats (20,000 layers in a blink).

    The problem sorts the list unless ``cost`` gives another cost. Of ``start`` only u and v count.

    >>> from otformer.network.schedule import Alternating
    >>> *_, last = path(Alternating().layers(0.05, 1000))
    >>> round(1000 * last.error, 2)
    2.0
    """
    u, v = ((0.0, 0.0), (0.0, 0.0)) if start is None else start[:2]
    for k, layer in enumerate(layers):
        now = State(u, v, layer.reg, cost)
        if k == 0:
            yield now
        if layer.rows:
            u = _moved(u, now.rows(), layer.rows)
        if layer.columns:
            v = _moved(v, now.columns(), layer.columns)
        yield State(u, v, layer.reg, cost)


def sinkhorn_path(reg: float, half_steps: int) -> Iterator[State]:
    """The same for Sinkhorn: rows exact, then columns exact, …

    >>> [round(1 / state.corner) for state in sinkhorn_path(0.05, 4)][1:]      # 1/M_21 = k + 1
    [2, 3, 4, 5]
    """
    now = State((0.0, 0.0), (0.0, 0.0), checks.positive("reg", reg))
    yield now
    for k in range(half_steps):
        u, v = now.u, now.v
        if k % 2 == 0:
            u = (u[0] - reg * now.rows()[0], u[1] - reg * now.rows()[1])
        else:
            v = (v[0] - reg * now.columns()[0], v[1] - reg * now.columns()[1])
        now = State(u, v, reg)
        yield now


def error_bound(reg: float, depth: int, step: float | None = None) -> float:
    r"""Theorem D (i): on the list, after ``depth`` layers at one λ = ``reg`` with γ_r, γ_c ≤ 2λ in each, from (0, 0),

        E ≥ 2(1 − ρ²(1 + W)²)/(2 + W),   W = Σ over the layers of max(γ_r, γ_c)/2λ   (0 is returned where that is negative).

    ``step`` is the mean of max(γ_r, γ_c), by default 2λ: then W = depth. It is λ for `gradient`.

    >>> round(1000 * error_bound(0.05, 1000), 3), round(1000 * error_bound(0.05, 1000, step=0.05), 3)
    (1.996, 3.984)
    >>> error_bound(0.4, 1000)
    0.0
    """
    rho = math.exp(-1 / checks.positive("reg", reg))
    share = 1.0 if step is None else checks.not_negative("step", step) / (2 * reg)
    if share > 1:
        raise checks.ArgumentError("step", f"be at most 2λ = {2 * reg:g}", f"{step:g}", "theorem D has no longer steps")
    W = share * checks.count("depth", depth, least=0)
    return max(0.0, 2 * (1 - (rho * (1 + W)) ** 2) / (2 + W))


def sinkhorn_bounds(reg: float, half_steps: int) -> tuple[float, float]:
    """Theorem D (ii) for Sinkhorn: 2/(k+1) − 2ρ²k ≤ E_k ≤ 2/(k+1) after k ≥ 1 half-steps, for every λ.

    The lower bound also holds for alternating heads with ω ≤ 1.

    >>> [round(each, 4) for each in sinkhorn_bounds(0.2, 4)]
    [0.3996, 0.4]
    """
    k, rho = checks.count("half_steps", half_steps), math.exp(-1 / checks.positive("reg", reg))
    return 2 / (k + 1) - 2 * rho * rho * k, 2 / (k + 1)


def local_bound(reg: float, depth: int) -> float:
    r"""Theorem D (iii): the share of some small perturbation that ``depth`` layers of one λ leave, on one list.

    The lists are (0, t), (½, ½ + t) with 0 ≤ t ≤ 1. The share is at least

        1/T_k(coth(1/2λ)) = 2q^k/(1 + q^{2k}),   q = tanh(1/4λ),   whatever the steps, even above 2λ.

    >>> local_bound(0.1, 0), round(local_bound(0.1, 100), 3), round(local_bound(0.1, 1000), 6)
    (1.0, 0.487, 3e-06)
    """
    q = math.tanh(1 / (4 * checks.positive("reg", reg))) ** checks.count("depth", depth, least=0)
    return 2 * q / (1 + q * q)


def annealing(reg: float, tol: float, largest: float = COST[0][1]) -> tuple[Layer, ...]:
    r"""Theorem E: layers that solve every 2 × 2 problem with weights 1 and costs in [0, L], L = ``largest``, to E ≤ ``tol``.

    Alternating heads, ω = 1, λ = ``reg`` ≤ L and 1e-12 ≤ tol ≤ 1. λ is 8L in 3 + ⌈log_12(L/(4 tol λ))⌉ layers, then 4L,
    2L, … (all above ``reg``) in one layer each, and ``reg`` in four: ⌈log_12(L/(4 tol λ))⌉ + ⌈log_2(L/λ)⌉ + 9 layers in all.

    >>> layers = annealing(0.05, 1e-4)
    >>> *_, last = path(layers)
    >>> len(layers), last.error < 1e-4
    (20, True)
    """
    checks.positive("largest", largest)
    if checks.positive("reg", reg) > largest:
        raise checks.ArgumentError("reg", f"be at most the largest cost, {largest:g}", f"{reg:g}")
    if not 1e-12 <= checks.positive("tol", tol) <= 1:
        raise checks.ArgumentError("tol", "be from 1e-12 to 1", repr(tol))
    halvings = math.log2(largest) - math.log2(reg)
    first = FIRST + math.ceil((halvings - math.log2(4 * tol)) / math.log2(FACTOR))
    falling = range(1, math.ceil(math.log2(HOTTEST) + halvings))
    regs = [*[HOTTEST * largest] * first, *(HOTTEST * largest * 0.5**k for k in falling), *[reg] * LAST]
    return tuple(Layer(r, 2 * r, 0.0) if k % 2 == 0 else Layer(r, 0.0, 2 * r) for k, r in enumerate(regs))


def _moved(own: tuple[float, float], z: tuple[float, float], step: float) -> tuple[float, float]:
    return own[0] - step * math.tanh(z[0] / 2), own[1] - step * math.tanh(z[1] / 2)


def _log_add(p: float, q: float) -> float:
    """log(e^p + e^q)."""
    low, high = min(p, q), max(p, q)
    return high + math.log1p(math.exp(low - high))
