"""Errata of the claims, and what is ambiguous in them (docs/errata.md, by number)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from oracles import pot_plan, squared_cost, uniform
from otformer import AligningTransformer, solve
from otformer.network.schedule import Paper
from otformer.theory import bounds, hilbert
from otformer.transport import reference


def points(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """x, y [n, d] and C_ij = ‖x_i − y_j‖²."""
    x, y = uniform(seed, 2, n, d)
    return x, y, squared_cost(x, y)


def permutation(C: Tensor) -> Tensor:
    """P* by scipy, a 0-1 matrix."""
    return torch.eye(len(C), dtype=torch.float64)[linear_sum_assignment(C.numpy())[1]]


def plan(C: Tensor, reg: float) -> Tensor:
    """P*_λ with unit marginals, by POT."""
    ones = torch.ones(len(C), dtype=torch.float64)
    return pot_plan(C, ones, ones, reg)


@pytest.mark.slow
def test_08_the_papers_step_depends_on_n_and_on_the_solution() -> None:
    weights = [AligningTransformer(1, 0.5, 1, Paper(n=n)).W_O for n in (4, 8)]
    assert not torch.allclose(*weights)
    radii = []
    for seed in (0, 1):
        _, _, C = points(4, 1, seed)
        zero = torch.zeros(4, dtype=torch.float64)
        radii.append(bounds.lemma_radius((zero, zero), reference.sinkhorn(C, 1.0)))
    assert bounds.lemma_step(4, 1.0, radii[0]) != pytest.approx(bounds.lemma_step(4, 1.0, radii[1]), rel=0.05)
    net = AligningTransformer(1, 0.5, 2000)  # ours: the same weights for two sizes, both right
    for n in (4, 8):
        x, y, C = points(n, 1)
        assert torch.allclose(net(x, y).attention(), reference.plan(C, *reference.sinkhorn(C, 0.5), 0.5), atol=1e-8)


def test_09_two_powers_of_n_and_vacuous_bounds() -> None:
    informal = [bounds.informal_bound(n, 1.0, 100) for n in (10, 1000)]
    formal = [bounds.formal_bound(n, 1.0, 1.0, 100, 1.0) for n in (10, 1000)]
    assert math.log10(informal[1] / informal[0]) == pytest.approx(3)  # n^{3/2} over two decades
    assert math.log10(formal[1] / formal[0]) == pytest.approx(1)  # n^{1/2}
    reg, n = 0.1, 8
    x, _, _ = points(n, 1)
    C = torch.cdist(x, torch.arange(1, n + 1, dtype=torch.float64)[:, None] / n) ** 2
    solution, zero = reference.sinkhorn(C, reg), torch.zeros(n, dtype=torch.float64)
    start = float(bounds.distances([(zero, zero)], solution, reg)[0])
    radius = bounds.theorem_radius((zero, zero), solution, reg)
    assert bounds.formal_bound(n, reg, radius, 600, hilbert.log_phi(C, reg)) > 1e10 * start
    assert bounds.informal_bound(n, reg, 600) > 1e3 * start


def test_10_squared_error_on_the_list_does_not_need_the_permutation() -> None:
    """Every row of A mixes the least and the largest token: A x is the sorted list exactly, 2 of 7 rows point right."""
    n = 7
    x = (torch.randperm(n, generator=torch.Generator().manual_seed(0)) + 1).double() / n
    y = torch.arange(1, n + 1).double() / n
    share = (y - y[0]) / (y[-1] - y[0])
    A = torch.zeros(n, n, dtype=torch.float64)
    A[:, x.argmin()], A[:, x.argmax()] = 1 - share, share
    P = torch.eye(n, dtype=torch.float64)[:, (x * n).round().long() - 1]  # P x = y
    assert torch.allclose(P @ x, y, atol=1e-15)
    assert torch.allclose(A.sum(1), torch.ones(n, dtype=torch.float64), atol=1e-15)
    assert float((A @ x - y).square().sum()) < 1e-30  # no loss at all
    assert int((A.argmax(1) == P.argmax(1)).sum()) == 2  # and 29 % right
    assert float((A - P).square().sum()) > 1  # the error on the attention itself sees it


def test_27_the_limit_is_the_regularised_plan() -> None:
    """A list of 6 numbers, λ = 0.1. More layers bring the attention to P*_λ, not to P*, and the list read from it is not
    sorted to any depth; a smaller λ is what brings both."""
    n, reg = 6, 0.1
    x, y = uniform(0, n, 1), torch.arange(1, n + 1, dtype=torch.float64)[:, None] / n
    C = squared_cost(x, y)
    trace = AligningTransformer(1, reg, 3000)(x, y, keep=(300, 3000))
    regularised, exact, wanted = plan(C, reg), permutation(C), x.flatten().sort().values

    def off(A: Tensor, P: Tensor) -> float:
        return float((A - P).abs().max())

    def list_error(A: Tensor) -> float:
        return float((A.T @ x.flatten() - wanted).abs().max())

    near = [off(trace.attention(k), regularised) for k in (300, 3000)]
    assert near[0] < 1e-4
    assert near[1] < 1e-9
    for k in (300, 3000):
        assert off(trace.attention(k), exact) > 0.5
        assert list_error(trace.attention(k)) > 0.1
    smaller = [solve(C, torch.ones(n), torch.ones(n), each, 1e-8).plan for each in (0.1, 0.03, 0.01, 0.003)]
    for errors in ([off(P, exact) for P in smaller], [list_error(P) for P in smaller]):
        assert errors == sorted(errors, reverse=True)
        assert errors[-1] < 0.1 * errors[0]


@pytest.mark.parametrize("sink", ["frozen", "token"])
def test_28_the_weights_of_the_softmax_tend_to_half_the_plan(sink: str) -> None:
    reg, (x, y, C) = 0.3, points(5, 2)
    trace = AligningTransformer(2, reg, 800, sink=sink)(x, y, keep="last")  # type: ignore[arg-type]
    weights, P = trace.attention(sink=True), plan(C, reg)
    assert torch.allclose(weights[:, :-1], P / 2, atol=1e-8)
    assert torch.allclose(weights[:, -1], torch.full_like(weights[:, -1], 0.5), atol=1e-8)
    assert torch.allclose(trace.attention(), P, atol=1e-8)  # (eq A): the sum without the sink


def test_29_the_parameters_depend_on_d_but_serve_every_smaller_d() -> None:
    reg, depth = 0.3, 20
    small, large = (AligningTransformer(d, reg, depth) for d in (1, 3))
    assert small.W_Q.shape[2] + 4 == large.W_Q.shape[2]  # 2d + 11 rows, marginals included
    x, y, _ = points(5, 1)
    with pytest.raises(ValueError, match="x must have 3 coordinates"):
        large(x, y)
    padded = [torch.cat([t, torch.zeros(5, 2, dtype=torch.float64)], 1) for t in (x, y)]
    for layer in range(depth + 1):
        same = [net(*given, warn=False).attention(layer) for net, given in ((small, (x, y)), (large, padded))]
        assert torch.allclose(*same, atol=1e-13)


def test_30_with_a_tie_the_limit_is_no_permutation() -> None:
    """The corners of a square, x on one diagonal, y on the other: all costs are 1, both permutations are optimal, and the
    plan is ½ for every λ. It solves the linear program too, which so has more than one solution."""
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    y = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    C = squared_cost(x, y)
    for reg in (1.0, 0.1, 0.02):
        A = AligningTransformer(2, reg, 3000)(x, y, keep="last").attention()
        assert torch.allclose(A, torch.full_like(A, 0.5), atol=1e-9)
        assert float((A * C).sum()) == pytest.approx(float((permutation(C) * C).sum()))
    y[0, 0] -= 0.1  # no tie: one solution, and the plan tends to it as λ falls, by sigmoid((C_12 + C_21 − C_11 − C_22)/2λ)
    C = squared_cost(x, y)
    gap = float(C[0, 1] + C[1, 0] - C[0, 0] - C[1, 1])
    for reg in (0.1, 0.05, 0.02):
        A = AligningTransformer(2, reg, 3000)(x, y, keep="last").attention()
        assert float((A - permutation(C)).abs().max()) == pytest.approx(1 / (1 + math.exp(gap / (2 * reg))), abs=1e-9)
    assert math.exp(-gap / (2 * 0.02)) < 0.01


def test_34_the_duals_are_unique_up_to_a_constant() -> None:
    """u*, v* may be shifted, p*, q* scaled; a multiple of u*, v* is no solution."""
    reg, (_, _, C) = 0.5, points(4, 2)
    u, v = reference.sinkhorn(C, reg)
    for c in (-1.0, 0.3):
        assert hilbert.doubly_stochastic_gap(reference.plan(C, u + c, v - c, reg)) < 1e-12
    for pair in ((1.1 * u, 1.1 * v), (1.1 * u, v / 1.1)):
        assert hilbert.doubly_stochastic_gap(reference.plan(C, *pair, reg)) > 0.01


def right_by_nearest(C: Tensor) -> float:
    """The share of rows of C whose smallest entry is where the optimal permutation goes."""
    return float((C.argmin(1) == permutation(C).argmax(1)).double().mean())


def test_35_the_training_data_are_described_twice() -> None:
    """n = 7. On permutations of the grid (appendix A) matching each x_i to its nearest y_j is optimal; on standard normal
    draws (section 1.2) it has less than two thirds of the rows. The two are different tasks."""
    generator, grid = torch.Generator().manual_seed(0), torch.arange(1, 8, dtype=torch.float64)[:, None] / 7
    shares = {"grid": 0.0, "normal": 0.0}
    for _ in range(200):
        x, y = torch.randn(2, 7, 1, generator=generator, dtype=torch.float64)
        shares["normal"] += right_by_nearest(squared_cost(x, y)) / 200
        shares["grid"] += right_by_nearest(squared_cost(grid[torch.randperm(7, generator=generator)], grid)) / 200
    assert shares["grid"] == pytest.approx(1)
    assert shares["normal"] < 2 / 3


@pytest.mark.parametrize("n", [7, 9, 15])
def test_36_on_permutations_of_the_grid_the_prompt_is_enough(n: int) -> None:
    """The sizes of figures 2 and 9. The attention of layer 0, before any iteration, points to P* in every row; on a list of
    other numbers it does not."""
    net = AligningTransformer(1, 0.01, 1)
    grid = torch.arange(1, n + 1, dtype=torch.float64)[:, None] / n

    def right(x: Tensor) -> float:
        found = net(x, grid, warn=False).attention(0).argmax(1)
        return float((found == permutation(squared_cost(x, grid)).argmax(1)).double().mean())

    assert all(right(grid[uniform(seed, n).argsort()]) == 1 for seed in range(20))
    assert sum(right(uniform(seed, n, 1)) for seed in range(20)) / 20 < 0.7


def test_40_the_radius_depends_on_where_the_count_starts() -> None:
    """r from θ_0 = 0, or from θ_1, the iterate after one layer (γ = λ): 10 % apart and more."""
    reg, (_, _, C) = 1.0, points(4, 2)
    first, second = itertools.islice(reference.gradient_descent(C, reg, reg), 2)
    solution = reference.sinkhorn(C, reg)
    for radius in (lambda start: bounds.theorem_radius(start, solution, reg), lambda s: bounds.lemma_radius(s, solution)):
        assert radius(first) > 1.1 * radius(second)


def test_42_what_the_logarithm_hides() -> None:
    """x = (0, 1), y = (½, 3/2), λ = 0.05. Sinkhorn's own L1 marginal error is 2/k after k half-steps, the paper's layers'
    4/k, for k far below e^{1/λ} = 5e8. At λ = 1 both arrive."""
    C = squared_cost(*torch.tensor([[[0.0], [1.0]], [[0.5], [1.5]]], dtype=torch.float64))

    def errors(iterates: Iterator[tuple[Tensor, Tensor]], reg: float) -> dict[int, float]:
        found = {}
        for k, (u, v) in enumerate(itertools.islice(iterates, 4001)):
            if k in (1000, 4000):
                P = reference.plan(C, u, v, reg)
                found[k] = float((P.sum(0) - 1).abs().sum() + (P.sum(1) - 1).abs().sum())
        return found

    for k, error in errors(reference.sinkhorn_half_steps(C, 0.05), 0.05).items():
        assert k * error == pytest.approx(2, rel=0.01)
    for k, error in errors(reference.gradient_descent(C, 0.05, 0.05), 0.05).items():
        assert k * error == pytest.approx(4, rel=0.01)
    assert errors(reference.sinkhorn_half_steps(C, 1.0), 1.0)[1000] < 1e-12
    assert errors(reference.gradient_descent(C, 1.0, 1.0), 1.0)[1000] < 1e-12
