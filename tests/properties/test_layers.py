"""Layers on any problem, from any start: they never expand, never raise the dual, and every executor has the same ones.

**Rounding.** A head computes log(S/a) from sums of u, v, C, over λ: with N = n + m terms, off by at most (N + 16) ε
(1 + size/λ), size = max|u| + max|v| + max|C| (for the literal network the largest of its products instead). A step
γ tanh(½ ·), γ ≤ 2λ, is off by λ times that, and the new u by one rounding more: `rounding` below, of one layer. Layers do
not expand, so errors of layers add (docs/theorems.md, G.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import otformer as of
from helpers.certificates import EPS
from helpers.strategies import Case, cases, matrices, numbers, orders, weights
from helpers.streams import stream_of
from otformer.network.schedule import Layer
from otformer.transport.costs.absorbed import Absorbed
from otformer.transport.costs.matrix import Dense
from otformer.transport.costs.ranks import Sharded
from otformer.transport.solvers.network import run

Point = tuple[Tensor, Tensor]
DEPTH = 12
SCALES = (2.0**-30, 1.0, 1.0, 2.0**12)  # of points: the network's squares and λ end at 1e15
steps = st.sampled_from((0.0, 1.0, 2.0, 2.0))  # γ in units of λ, the longest that does not expand


@pytest.fixture(autouse=True, scope="module")
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@st.composite
def problems(draw: st.DrawFn, scales: tuple[float, ...] = (2.0**-30, 1.0, 2.0**30)) -> tuple[Dense, float]:
    """A cost of any sign with positive weights, and λ."""
    C = draw(matrices(scales=scales))
    a, b = (torch.from_numpy(draw(weights(k, zeros=False))) for k in C.shape)
    reg = float(np.abs(C).max() or 1.0) / draw(st.sampled_from((0.1, 1.0, 10.0, 100.0)))
    return Dense(torch.from_numpy(C), a.log(), b.log()), reg


@st.composite
def starts(draw: st.DrawFn, problem: Dense, reg: float) -> Point:
    """From an eighth of λ to 8·64 λ, farther than tanh and exp see, away from (0, 0), or from the solution."""
    far = draw(st.sampled_from((reg / 64, 4 * reg, 64 * reg)))
    middle: tuple[Any, Any] = torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b)
    if draw(st.booleans()):
        middle = of.solve(problem.C, problem.log_a.exp(), problem.log_b.exp(), reg=reg).potentials
    u, v = (t + far * torch.from_numpy(draw(numbers(len(t)))) for t in middle)
    return u, v


def size(problem: Dense, *points: Point) -> float:
    return float(problem.C.abs().max()) + max(float(u.abs().max() + v.abs().max()) for u, v in points)


def rounding(problem: Dense, reg: float, *points: Point) -> float:
    """Of one layer, see the head of this file; weights add |log a| to log(S/a)."""
    N, logs = sum(problem.C.shape), float(torch.cat([problem.log_a, problem.log_b]).abs().max())
    return (N + 16) * EPS * (reg * (1 + logs) + size(problem, *points))


def layer(problem: Dense, reg: float, start: Point, rows: float, columns: float) -> Point:
    *_, last = run(problem, [Layer(reg, rows * reg, columns * reg)], start)
    return last


def sup(p: Point, q: Point) -> float:
    """‖(u, −v) − (u', −v')‖_∞."""
    return max(float((s - t).abs().max()) for s, t in zip(p, q, strict=True))


@given(st.data())
def test_a_layer_does_not_expand(data):
    problem, reg = data.draw(problems())
    one, other = data.draw(starts(problem, reg)), data.draw(starts(problem, reg))
    how = data.draw(st.sampled_from(("far", "near", "against")))
    if how == "near":  # for the slope of a layer
        other = tuple(t + reg / 64 * torch.from_numpy(data.draw(numbers(len(t)))) for t in one)
    if how == "against":  # at the solution, along u + t and v + t, a longer step than 2λ does expand
        one = of.solve(problem.C, problem.log_a.exp(), problem.log_b.exp(), reg=reg).potentials
        other = tuple(t + reg / 64 for t in one)
    rows, columns = data.draw(steps), data.draw(steps)
    after = [layer(problem, reg, start, rows, columns) for start in (one, other)]
    assert sup(*after) <= sup(one, other) + 2 * rounding(problem, reg, one, other)


@given(st.data())
def test_the_networks_own_layer_does_not_expand_and_is_that_of_the_formula(data):
    """The matrices of the prompt. A query's product with a key has C from one-hot features, so sizes are those of C."""
    problem, reg = data.draw(problems(SCALES))
    schedule = data.draw(st.sampled_from((of.Gradient(reg), of.Gradient(2 * reg), of.Relaxed(0.7), of.Alternating())))
    n, m = problem.C.shape
    net = of.AligningTransformer(n, reg, 2, schedule)
    prompt, r = net.prompt(of.cost_matrix(problem.C), a=problem.log_a.exp(), b=problem.log_b.exp()), net.registers
    ends = []
    begun = [data.draw(starts(problem, reg)) for _ in range(2)]
    for start in begun:
        Z = prompt.Z.clone()
        Z[0, :n, r.column("u")], Z[0, :m, r.column("v")] = start
        for k in range(net.depth):
            Z = net.block(Z, k)
        ends.append((Z[0, :n, r.column("u")], Z[0, :m, r.column("v")]))
    room = net.depth * rounding(problem, reg, *begun, *ends)
    assert sup(*ends) <= sup(*begun) + 2 * room
    *_, formula = run(problem, schedule.layers(reg, net.depth), begun[0])
    assert sup(ends[0], formula) <= 2 * room


@given(st.data())
def test_a_layer_commutes_with_the_gauge(data):
    """u + c, v − c is the same plan, so every layer moves both by as much as before."""
    problem, reg = data.draw(problems())
    u, v = data.draw(starts(problem, reg))
    c, rows, columns = 8 * reg * data.draw(st.integers(-8, 8)), data.draw(steps), data.draw(steps)
    after, moved = (layer(problem, reg, at, rows, columns) for at in ((u, v), (u + c, v - c)))
    assert sup((after[0] + c, after[1] - c), moved) <= 2 * rounding(problem, reg, (u, v), (u + c, v - c))


def dual(problem: Dense, reg: float, at: Point) -> float:
    """L = λ Σ M − Σ a u − Σ b v."""
    u, v = at
    return float(reg * problem.plan(u, v, reg).sum() - problem.log_a.exp() @ u - problem.log_b.exp() @ v)


@given(st.data())
def test_the_dual_falls_in_every_layer_up_to_omega_1_8(data):
    """Alternating heads with γ = 2λω, and both with γ = λω (docs/theory.md, 5.4 and 5.6).

    L sums N numbers, and its exponentials are off by their exponents' rounding: ε (N + 16)(1 + size/λ) of λ Σ M. It falls
    by its own gradient times the error of the step besides, (Σ S + mass) times the rounding of a layer.
    """
    problem, reg = data.draw(problems())
    at = data.draw(starts(problem, reg))
    omega = data.draw(st.sampled_from((0.2, 1.0, 1.5, 1.8)))
    rows, columns = data.draw(st.sampled_from(((2 * omega, 0.0), (0.0, 2 * omega), (omega, omega))))
    after = layer(problem, reg, at, rows, columns)
    before, now = dual(problem, reg, at), dual(problem, reg, after)
    if np.isfinite(before):
        mass = max(float(problem.plan(*t, reg).sum()) for t in (at, after)) + 2
        assert now <= before + 2 * mass * rounding(problem, reg, at, after)


EXECUTORS = {
    "absorbed": lambda x, y, problem: Absorbed(problem.C, problem.log_a, problem.log_b),
    "stream": lambda x, y, problem: stream_of(x, y, problem.log_a.exp(), problem.log_b.exp()),
    "stream, one entry at a time": lambda x, y, problem: stream_of(x, y, problem.log_a.exp(), problem.log_b.exp(), block=1),
    "sharded": lambda x, y, problem: Sharded(problem),
}
SCHEDULES = {"gradient": of.Gradient, "alternating": of.Alternating, "relaxed": lambda: of.Relaxed(1.0)}


def dense(case: Case) -> Dense:
    return Dense(*(torch.from_numpy(t) for t in (case.C, np.log(case.a), np.log(case.b))))


def room_of(case: Case, problem: Dense, points: list[Point]) -> float:
    """Of DEPTH layers between points: products of coordinates are as large as the squares of the largest, d of them."""
    squares = 4 * case.x.shape[1] * max(np.square(case.x).max(), np.square(case.y).max())
    return DEPTH * (rounding(problem, case.reg, *points) + (sum(problem.C.shape) + 16) * EPS * squares)


@pytest.mark.parametrize("name", EXECUTORS)
@given(cases(zeros=False), st.sampled_from(sorted(SCHEDULES)))
def test_every_executor_has_the_same_layers(name, case, schedule):
    problem, layers = dense(case), SCHEDULES[schedule]().layers(case.reg, DEPTH)
    expected = list(run(problem, layers))
    found = list(run(EXECUTORS[name](torch.from_numpy(case.x), torch.from_numpy(case.y), problem), layers))
    room = room_of(case, problem, expected)
    assert max(sup(p, q) for p, q in zip(expected, found, strict=True)) <= 2 * room


def read(trace: of.Trace) -> Point:
    u, v = trace.potentials()
    return u.double(), v.double()


@given(cases(zeros=False, scales=SCALES), st.sampled_from(sorted(SCHEDULES)), st.data())
def test_the_network_stock_modules_and_permuted_points(case, schedule, data):
    """The literal network is the dense executor; torch's own attention is the network; points in another order are too."""
    net = of.AligningTransformer(case.x.shape[1], case.reg, DEPTH, SCHEDULES[schedule]())
    expected = list(run(dense(case), SCHEDULES[schedule]().layers(case.reg, DEPTH)))
    rows, columns = data.draw(orders(len(case.x), len(case.y)))
    u, v = read(net(*case[:4], warn=False))
    room = room_of(case, dense(case), expected)
    assert sup((u, v), expected[-1]) <= 2 * room
    stock = of.StockTransformer(net)(*case[:4])
    assert sup(stock.potentials(), (u, v)) <= 2 * room
    there = net(case.x[rows], case.y[columns], case.a[rows], case.b[columns], warn=False)
    assert sup(read(there), (u[torch.from_numpy(rows)], v[torch.from_numpy(columns)])) <= 2 * room


@given(cases(zeros=False, scales=SCALES), st.integers(-4, 4), st.sampled_from((0.25, 2.0, 32.0)))
def test_the_network_exchanged_moved_and_scaled(case, shift, k):
    """y for x: u for v. All points moved: the same. Points times k, λ times k²: potentials times k².

    The coordinates are dyadic, so moving and scaling them rounds nothing; the moved ones are larger.
    """
    net = of.AligningTransformer(case.x.shape[1], case.reg, DEPTH)
    u, v = at = read(net(*case[:4], warn=False))
    room = 2 * room_of(case, dense(case), [at])
    swapped = read(net(case.y, case.x, case.b, case.a, warn=False))
    assert sup(swapped, (v, u)) <= room
    t = shift * max(np.abs(case.x).max(), np.abs(case.y).max())
    moved = case._replace(x=case.x + t, y=case.y + t)
    assert sup(read(net(*moved[:4], warn=False)), at) <= 2 * room_of(moved, dense(case), [at]) + room
    larger = of.AligningTransformer(case.x.shape[1], k * k * case.reg, DEPTH)(k * case.x, k * case.y, *case[2:4], warn=False)
    assert sup(tuple(t / (k * k) for t in read(larger)), at) <= room


@given(cases(scales=SCALES))
def test_a_point_without_mass_is_absent_from_the_network(case):
    net = of.AligningTransformer(case.x.shape[1], case.reg, DEPTH)
    rows, columns = case.a > 0, case.b > 0
    all_points = read(net(*case[:4], warn=False))
    less = Case(case.x[rows], case.y[columns], case.a[rows], case.b[columns], case.reg)
    at = read(net(*less[:4], warn=False))
    there = all_points[0][torch.from_numpy(rows)], all_points[1][torch.from_numpy(columns)]
    assert sup(there, at) <= 2 * room_of(case, dense(less), [at])
    assert all(bool(t[torch.from_numpy(w == 0)].isneginf().all()) for t, w in zip(all_points, case[2:4], strict=True))
