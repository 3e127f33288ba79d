r"""Schedules: what each layer's frozen weights are, as small values.

A layer is three numbers: its λ, and the step γ of each head (0: that head does not write). A head moves its dual by
−γ tanh(½ log(S/a)), which near the solution is −(γ/2) log(S/a); Sinkhorn's own step is −λ log(S/a). So

    γ = 2λ   is Sinkhorn's step near the solution (and never longer than 2λ),
    γ = 2λω  is Sinkhorn over-relaxed by ω.

No schedule looks at the points or (but for ``Paper``, whose step is a function of n) at their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from otformer import checks

MOST_POINTS = 2**53  # float64 counts no further


@dataclass(frozen=True)
class Layer:
    """One layer: λ and the steps of the two heads."""

    reg: float
    rows: float
    columns: float


class Schedule(Protocol):
    """Anything that lists the layers of a network of a given depth."""

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]: ...


@dataclass(frozen=True)
class Paper:
    """Both heads, γ = 1/((n+2) e^{2r/λ}): the step of the paper's lemma. It depends on n and on a radius r."""

    n: int = 8
    radius: float = 1.0

    def __post_init__(self) -> None:
        checks.count("n", self.n, most=MOST_POINTS)
        checks.not_negative("radius", self.radius)

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]:
        step = math.exp(-2 * self.radius / reg) / (self.n + 2)
        return (Layer(reg, step, step),) * depth


@dataclass(frozen=True)
class Gradient:
    """Both heads in every layer, any step; by default γ = λ. Every 0 < γ < 2λ converges from any start (docs/theory.md)."""

    step: float | None = None

    def __post_init__(self) -> None:
        if self.step is not None:
            checks.positive("step", self.step)

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]:
        step = reg if self.step is None else self.step
        return (Layer(reg, step, step),) * depth


@dataclass(frozen=True)
class Relaxed:
    """Alternating heads, γ = 2λω. The best constant ω for a problem is ``best_omega(σ)``.

    Without ω it climbs over the layers, 1 + k/(k + 12) in the k-th pair, up to 1.8: early pairs suit easy problems, late
    ones hard problems, and the weights still depend on neither. For ω ≤ 1.884013 the dual falls in every layer, from any
    start (docs/theory.md).
    """

    omega: float | None = None

    def __post_init__(self) -> None:
        if self.omega is not None:
            _omega(self.omega)

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]:
        rising = (min(1.8, 1 + k / (k + 12)) if self.omega is None else self.omega for k in range((depth + 1) // 2))
        return tuple(layer for omega in rising for layer in turns(reg, omega, 2))[:depth]


@dataclass(frozen=True)
class Alternating:
    """Alternating heads, γ = 2λ: Sinkhorn's rate."""

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]:
        return turns(reg, 1.0, depth)


@dataclass(frozen=True)
class Annealed:
    """Alternating heads. λ falls geometrically from ``start`` to the network's own, in ``stages`` steps.

    Far from the solution tanh saturates and a layer moves a potential by at most 2λω; with a large λ first, that is far.
    ``start`` should be about the largest cost (1 for points in the unit cube).
    """

    start: float = 1.0
    omega: float = 1.5
    stages: int = 36

    def __post_init__(self) -> None:
        checks.positive("start", self.start)
        _omega(self.omega)
        checks.count("stages", self.stages)

    def layers(self, reg: float, depth: int) -> tuple[Layer, ...]:
        if self.start <= reg:
            return turns(reg, self.omega, depth)
        pairs = max(1, depth // (2 * self.stages))  # a stage is this many pairs of layers; the last takes the rest
        stages = max(1, min(self.stages, depth // (2 * pairs)))
        regs = [self.start * (reg / self.start) ** (k / (stages - 1)) for k in range(stages - 1)]
        falling = [layer for each in regs for layer in turns(each, self.omega, 2 * pairs)]
        return (*falling, *turns(reg, self.omega, depth - len(falling)))


def _omega(omega: float) -> None:
    if not 0 < checks.positive("omega", omega) < 2:
        raise checks.ArgumentError("omega", "be between 0 and 2", repr(omega), "longer steps do not converge")


def turns(reg: float, omega: float, depth: int) -> tuple[Layer, ...]:
    """Rows, columns, rows, … with step 2λω."""
    step = 2 * reg * omega
    return ((Layer(reg, step, 0.0), Layer(reg, 0.0, step)) * depth)[:depth]


def best_omega(sigma: float) -> float:
    """ω* = 2/(1 + √(1−σ²)), σ the second singular value of D_a^{-1/2} P* D_b^{-1/2}; then the rate is ω* − 1 per pair.

    >>> best_omega(0.0), round(best_omega(0.99), 3)
    (1.0, 1.753)
    """
    if not 0 <= checks.not_negative("sigma", sigma) < 1:
        raise checks.ArgumentError("sigma", "be in [0, 1)", repr(sigma))
    return 2 / (1 + math.sqrt(1 - sigma * sigma))


SCHEDULES: dict[str, type] = {each.__name__.lower(): each for each in (Paper, Gradient, Alternating, Relaxed, Annealed)}


def named(schedule: str | Schedule) -> Schedule:
    """A schedule from its name (with its default settings), or the schedule itself."""
    if isinstance(schedule, str):
        found: Schedule = SCHEDULES[checks.choice("schedule", schedule, SCHEDULES)]()
        return found
    if not hasattr(schedule, "layers") or isinstance(schedule, type):
        came = f"the class {schedule.__name__}" if isinstance(schedule, type) else type(schedule).__name__
        raise checks.ArgumentError("schedule", "be a name or have a method layers(reg, depth)", came)
    return schedule
