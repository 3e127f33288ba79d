"""Warm starts of a solve without the matrix, and its depth."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.streams import clouds as clouds_of
from helpers.streams import weights
from otformer.transport.costs.tiles import Stream
from otformer.transport.solve import solve_streamed
from otformer.transport.solvers import precision as streamed


def clouds() -> tuple[Tensor, Tensor]:
    return clouds_of(130, 90, 3)


def test_a_warm_start_saves_layers_and_a_wrong_one_does_no_harm() -> None:
    x, y = clouds()
    a = weights(130)
    a[::14] = 0
    a /= a.sum()
    cold = solve_streamed(x, y, a, reg=0.01, tol=1e-9)
    for dtype in (torch.float64, torch.float32):
        again = solve_streamed(x.to(dtype), y.to(dtype), a, reg=0.01, tol=1e-6, potentials=cold.potentials)
        assert again.depth <= 8
    other = a + 1e-3 * (a == 0)  # points absent before are present now
    other /= other.sum()
    swapped = solve_streamed(y, x, None, other, reg=0.01, tol=1e-9, potentials=cold.potentials[::-1])
    assert swapped.converged
    assert swapped.depth < solve_streamed(y, x, None, other, reg=0.01, tol=1e-9).depth
    wrong = solve_streamed(x, y, reg=0.01, tol=1e-9, potentials=(cold.potentials[0], 100 * weights(90, 4)))
    assert wrong.converged


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_warm_start_of_any_gauge(dtype: torch.dtype) -> None:
    """(u − c, v + c) is the same plan; c = 10⁹ leaves seven of its digits, 10¹⁵ none. What has no digits is not used."""
    x, y = (t.to(dtype) for t in clouds())
    cold = solve_streamed(x, y, reg=0.01)
    u, v = cold.potentials
    for c, most in ((-1e3, 8), (1e9, 8), (1e15, cold.depth + 4), (1e308, cold.depth)):
        again = solve_streamed(x, y, reg=0.01, potentials=(u - c, v + c))
        assert again.converged
        assert again.depth <= most
        assert float(again.value) == pytest.approx(float(cold.value), abs=1e-7)


@pytest.mark.parametrize("of_u", [1.0, -torch.inf])
@pytest.mark.parametrize("of_v", [-torch.inf, 1e9, 1e300])
def test_potentials_of_no_plan_are_left_out(of_u: float, of_v: float) -> None:
    x, y = clouds()
    cold = solve_streamed(x, y, reg=0.01)
    start = torch.full((130,), of_u, dtype=torch.float64), torch.full((90,), of_v, dtype=torch.float64)
    start[1][::2] *= torch.arange(1, 46)
    again = solve_streamed(x, y, reg=0.01, potentials=start)
    assert again.converged
    assert again.depth == cold.depth
    some = torch.where(torch.arange(90) < 30, -torch.inf, cold.potentials[1])
    assert solve_streamed(x, y, reg=0.01, potentials=(start[0], some)).converged


def test_what_does_not_converge_from_a_warm_start_is_solved_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clouds()
    cold = solve_streamed(x, y, reg=0.01)
    stuck = lambda stream, v, *_: iter([(torch.zeros_like(stream.log_a), v, 1.0, 2)])  # noqa: E731
    monkeypatch.setattr(streamed, "direct_then_annealed", stuck)
    again = solve_streamed(x, y, reg=0.01, potentials=cold.potentials)
    assert again.converged
    assert again.depth == cold.depth + 2


def count_passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the passes over the cost, as they are made."""
    passes: list[str] = []
    for name in ("log_ratio", "products"):

        def counted(self: Stream, *args: Any, name: str, method: Any, **options: Any) -> Tensor:
            passes.append(name)
            return method(self, *args, **options)

        monkeypatch.setattr(Stream, name, partialmethod(counted, name=name, method=getattr(Stream, name)))
    return passes


def test_depth_counts_every_pass_but_those_that_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = count_passes(monkeypatch)
    for dtype in (torch.float64, torch.float32):
        passes.clear()
        result = solve_streamed(*(t.to(dtype) for t in clouds()), reg=0.02)
        assert passes == ["log_ratio"] * result.depth + ["products"] * 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_more_layers_than_allowed(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cold, from potentials far away, and from some that lack points."""
    x, y = (t.to(dtype) for t in clouds())
    passes, v = count_passes(monkeypatch), y.double().sum(1)
    starts = (None, (x[:, 0], 3 * v), (x[:, 0], torch.where(v < 1.5, -torch.inf, v)))
    for most in (2, 3, 4, 5, 8, 61, 150):
        for start in starts:
            passes.clear()
            depth = solve_streamed(x, y, reg=0.001, tol=1e-13, max_depth=most, potentials=start).depth
            assert most - 2 <= depth == len(passes) - 2 <= most


def test_what_has_not_converged_is_said() -> None:
    x, y = clouds()
    for dtype in (torch.float64, torch.float32):
        with pytest.warns(RuntimeWarning, match="not converged: marginal error .* after 4 layers"):
            result = solve_streamed(x.to(dtype), y.to(dtype), reg=0.001, tol=1e-9, max_depth=4)
        assert not result.converged
