"""Every public way to solve a problem follows the same rules: one problem, many doors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import otformer as of
from oracles import pot_plan, problem, slope, squared_cost

REG = 0.05


@dataclass(frozen=True)
class Door:
    """A public entry point: from points, weights and limits to its own result, and from that to a plan."""

    name: str
    call: Callable[..., Any]  # x, y, a, b, reg=, tol=, max_depth=
    tensors: bool = False  # takes and gives tensors only
    learns: tuple[str, ...] = ("x", "a", "b", "reg")  # inputs that its value, or its plan, has gradients in
    limits: bool = True  # has tol and max_depth

    def plan(self, *args: Any, **options: Any) -> np.ndarray:
        return matrix(self.call(*args, **options))

    def __repr__(self) -> str:
        return self.name


def matrix(found: Any) -> np.ndarray:
    plan = found.plan if isinstance(found, of.Result) else found
    return np.asarray(plan.detach() if isinstance(plan, torch.Tensor) else plan, dtype=np.float64)


def by_cost(**more: Any) -> Callable[..., Any]:
    return lambda x, y, a=None, b=None, **options: of.solve(squared_cost(x, y), a, b, **options, **more)


def by_points(**more: Any) -> Callable[..., Any]:
    return lambda x, y, a=None, b=None, **options: of.solve_sample(x, y, a, b, **options, **more)


def in_a_batch(x: Any, y: Any, a: Any = None, b: Any = None, **options: Any) -> of.Result:
    return of.solve_batch([(x, y, a, b), (np.eye(3))], **options)[0]


def like_pot(
    x: Any, y: Any, a: Any = None, b: Any = None, reg: Any = 0.1, tol: float = 1e-9, max_depth: int = 20_000
) -> Any:
    empty = np.empty(0)
    weights = (empty if w is None else w for w in (a, b))
    return of.sinkhorn(*weights, squared_cost(x, y), reg, stopThr=tol, numItermax=max_depth // 2)


def as_layer(x: Any, y: Any, a: Any = None, b: Any = None, reg: Any = 0.1, **options: Any) -> Any:
    return of.nn.Transport(reg, **options)(x, y, a, b)


def on_ranks(x: Any, y: Any, a: Any = None, b: Any = None, **options: Any) -> Any:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        found = of.solve_sharded(x, y, a, b, **options)
        found.plan  # noqa: B018  formed while the group is there
        return found
    finally:
        dist.destroy_process_group()


def all_of_the_mass(x: Any, y: Any, a: Any = None, b: Any = None, **options: Any) -> Any:
    return of.solve_partial(squared_cost(x, y), a, b, **options)


DOORS = [
    Door("solve", by_cost()),
    Door("solve, Newton", by_cost(solver=of.Newton())),
    Door("solve, Mixed", by_cost(solver=of.Mixed(memory=8))),
    Door("solve, Sinkhorn", by_cost(solver=of.Mixed(memory=0))),
    Door("solve, Network", by_cost(solver=of.Network("relaxed"))),
    Door("solve, schedule", by_cost(schedule="alternating")),
    Door("solve_sample", by_points()),
    Door("solve_sample, features", lambda x, y, *w, **o: of.solve(of.squared_euclidean(x, y), *w, **o)),
    Door("solve_sample, function", by_points(metric=squared_cost)),
    Door("solve_sample, stream", by_points(executor="stream")),
    Door("solve_streamed", of.solve_streamed),
    Door("solve_batch", in_a_batch, learns=("x", "a", "b")),
    Door("solve_sharded", on_ranks, learns=()),
    Door("solve_partial", all_of_the_mass, learns=("x", "reg")),
    Door("sinkhorn", like_pot),
    Door("nn.Transport", as_layer, tensors=True, learns=("x", "a", "b")),
]
RESULTS = [door for door in DOORS if door.name not in ("sinkhorn", "nn.Transport")]
each_door = pytest.mark.parametrize("door", DOORS, ids=repr)
each_result = pytest.mark.parametrize("door", RESULTS, ids=repr)


def given(door: Door, *arrays: np.ndarray | None, dtype: torch.dtype | None = None) -> list[Any]:
    if not door.tensors and dtype is None:
        return list(arrays)
    return [None if t is None else torch.tensor(t, dtype=dtype) for t in arrays]


def draw(seed: int = 0, n: int = 12, m: int = 9) -> tuple[np.ndarray, ...]:
    return problem(seed, n, m, 2)


def expected(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, reg: float = REG) -> np.ndarray:
    return pot_plan(squared_cost(x, y), a, b, reg)


@each_door
def test_the_same_problem_has_the_same_answer(door):
    x, y, a, b = draw()
    P = door.plan(*given(door, x, y, a, b), reg=REG, tol=1e-9)
    np.testing.assert_allclose(P, expected(x, y, a, b), atol=1e-8)


@each_door
def test_default_weights_are_uniform(door):
    x, y, *_ = draw(1)
    P = door.plan(*given(door, x, y), reg=REG, tol=1e-9)
    np.testing.assert_allclose(P, expected(x, y, np.full(12, 1 / 12), np.full(9, 1 / 9)), atol=1e-8)


@each_door
def test_float64_weights_go_with_float32_points(door):
    x, y, a, b = draw(2)
    points = given(door, x, y, dtype=torch.float32)
    weights = given(door, a, b, dtype=torch.float64)
    found = door.call(*points, *weights, reg=REG, tol=1e-5)
    plan = found.plan if isinstance(found, of.Result) else found
    np.testing.assert_allclose(matrix(found), expected(x, y, a, b), atol=1e-5)
    if not isinstance(plan, torch.Tensor):  # a stream's plan is an operator
        assert plan.shape == (12, 9)
    else:
        assert plan.dtype == torch.float32


@each_result
def test_potentials_are_float64_and_absent_points_have_none(door):
    x, y, a, b = draw(3)
    a[[0, 5]], b[2] = 0, 0
    a, b = a / a.sum(), b / b.sum()
    for dtype in (torch.float32, torch.float64):
        found = door.call(*given(door, x, y, dtype=dtype), *given(door, a, b, dtype=torch.float64), reg=REG, tol=1e-5)
        u, v = found.potentials
        assert u.dtype == v.dtype == torch.float64
        assert u.isneginf().nonzero()[:, 0].tolist() == [0, 5]
        assert v.isneginf().nonzero()[:, 0].tolist() == [2]
        P = matrix(found)
        assert P[[0, 5]].sum() == P[:, 2].sum() == 0
        np.testing.assert_allclose(P, expected(x, y, a, b), atol=1e-5)


@each_door
def test_no_points_have_an_empty_plan_and_points_on_one_side_only_none(door):
    nothing, x = np.zeros((0, 2)), draw()[0]
    if door.name != "solve_sharded":  # a rank without rows is ordinary there; none on any rank is an error
        found = door.call(*given(door, nothing, nothing), reg=REG)
        assert matrix(found).shape == (0, 0)
        if isinstance(found, of.Result):
            assert found.converged
            assert float(found.value) == float(found.value_linear) == 0
    with pytest.raises(ValueError, match=r"nowhere to go|must (both )?have points"):
        door.call(*given(door, x, nothing), reg=REG)


@each_door
def test_a_tol_of_0_is_allowed_and_never_reached(door):
    x, y, a, b = draw(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = door.call(*given(door, x, y, a, b), reg=0.5, tol=0.0, max_depth=200)
    assert not isinstance(found, of.Result) or not found.converged
    np.testing.assert_allclose(matrix(found), expected(x, y, a, b, 0.5), atol=1e-6)


@each_door
def test_two_layers_are_the_least(door):
    x, y, a, b = draw(5)
    if door.name != "sinkhorn":  # whose iterations are two layers each
        with pytest.raises(ValueError, match="max_depth must be a whole number of at least 2, got 1"):
            door.call(*given(door, x, y, a, b), max_depth=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = door.call(*given(door, x, y, a, b), reg=0.001, max_depth=2)
    assert np.isfinite(matrix(found)).all()
    assert not isinstance(found, of.Result) or found.depth <= 2


@each_door
def test_a_warning_names_the_line_of_the_caller(door):
    x, y, a, b = given(door, *draw(6))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if door.name.startswith("solve_sample,") and "stream" in door.name:
            line = sys._getframe().f_lineno + 1
            of.solve_sample(x, y, a, b, reg=1e-4, max_depth=4, executor="stream")
        elif door.name == "nn.Transport":
            layer = of.nn.Transport(1e-4, max_depth=4)
            line = sys._getframe().f_lineno + 1
            layer(x, y, a, b)
        else:
            line = None
            door.call(x, y, a, b, reg=1e-4, max_depth=4)
    told = [w for w in seen if "not converge" in str(w.message)]
    assert len(told) == 1
    assert told[0].filename == __file__
    assert line is None or told[0].lineno == line


def value(door: Door, inputs: dict[str, Any]) -> Any:
    """A number that depends on everything: the value, or a sum over the plan where there is none."""
    found = door.call(inputs["x"], inputs["y"], inputs["a"], inputs["b"], reg=inputs["reg"], tol=1e-11)
    if isinstance(found, of.Result):
        return found.value
    weights = torch.arange(found.numel(), dtype=torch.float64).reshape(found.shape).div(found.numel()).square()
    return (found * weights).sum()


@pytest.mark.parametrize("name", ["x", "y", "a", "b", "reg"])
@each_door
def test_a_gradient_is_right_or_refused_and_never_lost(door, name):
    x, y, a, b = (torch.tensor(t) for t in draw(7, 5, 4))
    inputs: dict[str, Any] = {"x": x, "y": y, "a": a, "b": b, "reg": torch.tensor(0.2, dtype=torch.float64)}
    moving = inputs[name].clone().requires_grad_()
    learns = name in door.learns or (name == "y" and "x" in door.learns)
    if not learns:
        with pytest.raises((ValueError, RuntimeError), match="gradient"):
            value(door, inputs | {name: moving}).backward()
        return
    value(door, inputs | {name: moving}).backward()
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(moving.shape, dtype=torch.float64, generator=generator)
    if name in ("a", "b"):  # along changes that keep the masses equal
        direction = direction - direction.mean()
    expected = slope(lambda moved: value(door, inputs | {name: moved}), moving.detach(), direction)
    found = float((moving.grad * direction).sum())
    assert found == pytest.approx(expected, rel=2e-4, abs=2e-7)
    assert abs(found) > 1e-6


def test_gradients_of_the_regularisation_are_refused_where_they_would_be_lost():
    reg = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    x, y, *_ = draw(8)
    calls: list[Callable[[], Any]] = [
        lambda: of.solve_batch([(x, y)], reg=reg),
        lambda: of.divergence(x, y, reg=reg),
        lambda: of.SamplesLoss(blur=reg),
        lambda: of.nn.SoftSort(reg),
        lambda: of.nn.Transport(reg),
        lambda: of.AligningTransformer(2, reg, 3),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"(reg|blur) must not require a gradient here"):
            call()


def test_what_is_read_later_is_what_was_solved():
    """The caller may write to the arrays given, and to the plan returned: value_linear is that of the problem solved."""
    x, y, a, b = draw(9)
    truth, P = (expected(x, y, a, b) * squared_cost(x, y)).sum(), expected(x, y, a, b)
    for M in (squared_cost(x, y), torch.tensor(squared_cost(x, y)), torch.tensor(squared_cost(x, y), requires_grad=True)):
        found = of.solve(M, a, b, reg=REG, tol=1e-10)
        own = M if isinstance(M, np.ndarray) else M.data
        own *= 3
        np.testing.assert_allclose(matrix(found), P, atol=1e-8)
        plan = found.plan if isinstance(found.plan, np.ndarray) else found.plan.data
        plan[:] = 7
        assert float(found.value_linear) == pytest.approx(truth, rel=1e-7)
