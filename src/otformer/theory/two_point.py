r"""The two-point list x = (0, 1), y = (½, 3/2): a lower bound on depth at one λ, and an annealed network that beats it.

C = [[¼, 9/4], [¼, ¼]], unit weights. M_12 M_21/(M_11 M_22) = ρ², ρ = e^{−1/λ}, in every layer, and P*_21 = ρ/(1 + ρ). Before
the layers find that, M_21 must fall to it, and while M_11, M_22 ≤ 1 a layer lets 1/M_21 grow by at most 1. So the error
E = Σ|S − 1| + Σ|S' − 1| ≥ 2(M_21 − M_12) is no less than about 2/k for k ≪ e^{1/λ} (theorem D of docs/limits.md).
The quantities that are slow, u_1 − u_2 − 1 and v_2 − v_1 − 1, have the same solution at every λ and no layer enlarges them:
an annealed network settles them at λ = 1, where they are fast (theorem E).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from otformer import checks
from otformer.network.schedule import Layer, turns

X, Y = (0.0, 1.0), (0.5, 1.5)
COST = tuple(tuple((x - y) ** 2 for y in Y) for x in X)
PAIR = 1 - (1 - math.tanh(0.5)) / math.cosh(1) ** 2  # what a pair of layers at λ = 1 leaves of the slow quantities


class State(NamedTuple):
    """(u, v) at some λ: a plan [[M_11, M_12], [M_21, M_22]]."""

    u: tuple[float, float]
    v: tuple[float, float]
    reg: float

    def log_plan(self, i: int, j: int) -> float:
        """log M_ij = (u_i + v_j − C_ij)/λ − 1."""
        return (self.u[i] + self.v[j] - COST[i][j]) / self.reg - 1

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
        """M_21, the entry that has to go."""
        return math.exp(self.log_plan(1, 0))

    @property
    def slow(self) -> tuple[float, float]:
        """e = u_1 − u_2 − 1 and f = v_2 − v_1 − 1: 0 at the solution of every λ."""
        return self.u[0] - self.u[1] - 1, self.v[1] - self.v[0] - 1


def path(layers: Iterable[Layer], start: State | None = None) -> Iterator[State]:
    """The list's state before the first layer and after each, in plain floats (20,000 layers in a blink).

    >>> from otformer.network.schedule import Alternating
    >>> *_, last = path(Alternating().layers(0.05, 1000))
    >>> round(1000 * last.error, 2)
    2.0
    """
    u, v = ((0.0, 0.0), (0.0, 0.0)) if start is None else start[:2]
    for k, layer in enumerate(layers):
        now = State(u, v, layer.reg)
        if k == 0:
            yield now
        if layer.rows:
            u = _moved(u, now.rows(), layer.rows)
        if layer.columns:
            v = _moved(v, now.columns(), layer.columns)
        yield State(u, v, layer.reg)


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


def error_bound(reg: float, depth: int) -> float:
    r"""Theorem D: after ``depth`` layers at one λ = ``reg`` with γ_r + γ_c ≤ 2λ in each, from (0, 0),

        E ≥ 2(1/D − ρ² D),   D = depth + 40,

    which is at least (3/2)/D while D ≤ ½ e^{1/λ}, and says nothing (0 is returned) from D = e^{1/λ} on.

    >>> round(1000 * error_bound(0.05, 1000), 3), error_bound(0.4, 1000)
    (1.923, 0.0)
    """
    D, rho = checks.count("depth", depth, least=0) + 40, math.exp(-1 / checks.positive("reg", reg))
    return max(0.0, 2 * (1 / D - rho * rho * D))


def sinkhorn_bounds(reg: float, half_steps: int) -> tuple[float, float]:
    """Theorem D for Sinkhorn: 2/(k+1) − 2ρ²(k+1) ≤ E_k ≤ 2/(k+1) after k ≥ 1 half-steps, for every λ.

    >>> [round(each, 4) for each in sinkhorn_bounds(0.2, 4)]
    [0.3995, 0.4]
    """
    K, rho = checks.count("half_steps", half_steps) + 1, math.exp(-1 / checks.positive("reg", reg))
    return 2 / K - 2 * rho * rho * K, 2 / K


def annealing(reg: float, tol: float) -> tuple[Layer, ...]:
    r"""Theorem E: layers with which E ≤ ``tol``, heads in turn and ω = 1, for λ = ``reg`` ≤ ½ and 1e-12 ≤ tol ≤ 1.

    λ = 1 until the slow quantities are below tol·λ/10, and one more pair; then λ = ½, ¼, … with a pair of layers each, and
    the last λ with four: 2⌈log(10/(tol λ))/log(1/q)⌉ + 2⌈log₂(1/λ)⌉ + 4 layers in all, q = 0.774.

    >>> layers = annealing(0.05, 1e-4)
    >>> *_, last = path(layers)
    >>> len(layers), last.error < 1e-4
    (128, True)
    """
    if checks.positive("reg", reg) > 0.5:
        raise checks.ArgumentError("reg", "be at most 0.5", repr(reg))
    if not 1e-12 <= checks.positive("tol", tol) <= 1:
        raise checks.ArgumentError("tol", "be from 1e-12 to 1", repr(tol))
    first = 2 * math.ceil(math.log(tol * reg / 10) / math.log(PAIR)) + 2
    halvings = math.ceil(-math.log2(reg))
    falling = [layer for k in range(1, halvings) for layer in turns(2.0**-k, 1.0, 2)]
    return (*turns(1.0, 1.0, first), *falling, *turns(reg, 1.0, 4))


def _moved(own: tuple[float, float], z: tuple[float, float], step: float) -> tuple[float, float]:
    return own[0] - step * math.tanh(z[0] / 2), own[1] - step * math.tanh(z[1] / 2)


def _log_add(p: float, q: float) -> float:
    """log(e^p + e^q)."""
    low, high = min(p, q), max(p, q)
    return high + math.log1p(math.exp(low - high))
