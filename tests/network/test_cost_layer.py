"""A frozen ReLU layer computes the features of other costs: error against width, and what it does to plan and value."""

import math
from collections.abc import Callable

import numpy as np
import ot
import pytest
import torch
from torch import Tensor

from oracles import points, pot_plan
from otformer import AligningTransformer
from otformer.network.cost_layer import CostLayer, EuclideanDistance, SmoothCost, unit_directions
from otformer.network.features import Features

WIDTHS = [8, 16, 32, 64, 128]
GRID = torch.linspace(0, 1, 1201, dtype=torch.float64)[:, None]
SMOOTH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cubed": lambda x, y: (x - y).abs() ** 3,
    "fourth": lambda x, y: (x - y) ** 4,
    "cosine": lambda x, y: 1 - torch.cos(x - y),
}
CURVATURE = {"cubed": 12.0, "fourth": 24.0, "cosine": 2.0}  # max|C_xx| + max|C_yy| on the unit square


def approximation_error(layer: CostLayer, x: Tensor, y: Tensor) -> float:
    """max_ij |C̃_ij − C_ij|."""
    return float((layer(x, y).cost() - layer.exact(x, y)).abs().max())


def order(widths: list[int], errors: list[float]) -> float:
    return float(np.polyfit(np.log(widths), np.log(errors), 1)[0])


def test_distance_on_the_line_has_order_minus_one_and_error_half_a_cell() -> None:
    errors = [approximation_error(EuclideanDistance(1, W, 0, 1), GRID, GRID) for W in WIDTHS]
    np.testing.assert_allclose(errors, [1 / (2 * W) for W in WIDTHS], rtol=1e-3)
    assert -1.01 < order(WIDTHS, errors) < -0.99


def test_distance_on_the_line_is_exact_between_cells() -> None:
    x, y = points(0, (60, 1), (50, 1))
    C, layer = (x - y.T).abs(), EuclideanDistance(1, 16, 0, 1)
    cells = (x * 16).floor() != (y * 16).floor().T
    assert cells.sum() > 2000
    torch.testing.assert_close(layer(x, y).cost()[cells], C[cells], atol=1e-13, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_costs_have_order_minus_two(name: str) -> None:
    errors = [approximation_error(SmoothCost(SMOOTH[name], W, 0, 1), GRID, GRID) for W in WIDTHS]
    assert -2.05 < order(WIDTHS, errors) < -1.9
    for W, error in zip(WIDTHS, errors, strict=True):
        assert 0.75 < error / (CURVATURE[name] / 8 / W**2) <= 1


def test_bilinear_interpolation_against_scipy() -> None:
    from scipy.interpolate import RegularGridInterpolator

    layer = SmoothCost(lambda x, y: torch.exp(x) * torch.sin(3 * y) + x, width=9, low=-1.0, high=2.0)  # not symmetric
    knots = np.linspace(-1, 2, 10)
    table = np.exp(knots)[:, None] * np.sin(3 * knots) + knots[:, None]
    x, y = (3 * each - 1 for each in points(0, (20, 1), (30, 1)))
    pairs = np.stack(np.broadcast_arrays(x.numpy(), y.numpy().T), axis=-1)
    expected = RegularGridInterpolator((knots, knots), table)(pairs)
    np.testing.assert_allclose(layer(x, y).cost().numpy(), expected, atol=1e-12)


def test_interpolating_the_distance_gives_the_threshold_numbers() -> None:
    x, y = points(0, (30, 1), (40, 1))
    smooth, threshold = SmoothCost(lambda s, t: (s - t).abs(), 24, 0, 1), EuclideanDistance(1, 24, 0, 1)
    torch.testing.assert_close(smooth(x, y).cost(), threshold(x, y).cost(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("count", [3, 8, 20])
def test_equal_angles_are_off_by_the_stated_factor(count: int) -> None:
    phi = torch.linspace(0, math.pi, 4801, dtype=torch.float64)
    z = torch.stack([phi.cos(), phi.sin()], dim=1)
    mean = math.pi / 2 * (z @ unit_directions(2, count).T).abs().mean(1)
    half = math.pi / (2 * count)
    assert float(mean.max()) == pytest.approx(half / math.sin(half), rel=1e-6)
    assert float(mean.min()) == pytest.approx(half / math.tan(half), rel=1e-6)
    assert float((mean - 1).abs().max()) < 1.05 * math.pi**2 / (12 * count**2)


@pytest.mark.parametrize(("dim", "limit"), [(3, 0.02), (5, 0.06)])
def test_repelled_lines_beat_random_ones(dim: int, limit: float) -> None:
    z = torch.nn.functional.normalize(points(0, (3000, dim), (1, dim))[0] - 0.5, dim=1)
    constant = math.sqrt(math.pi) * math.gamma((dim + 1) / 2) / math.gamma(dim / 2)

    def worst(theta: Tensor) -> float:
        return float((constant * (z @ theta.T).abs().mean(1) - 1).abs().max())

    assert worst(unit_directions(dim, 64)) < min(limit, worst(unit_directions(dim, 64, steps=0)) / 2)


@pytest.mark.parametrize(("dim", "expected"), [(2, -2 / 3), (3, -5 / 9)])
def test_distance_in_space_has_the_predicted_order(dim: int, expected: float) -> None:
    x, y = points(0, (200, dim), (200, dim))
    x, y = torch.cat([x, y]), torch.cat([y, x])
    layers = [EuclideanDistance(dim, W, 0, 1) for W in (32, 64, 128, 256, 512, 1024)]
    errors = [approximation_error(layer, x, y) for layer in layers]
    assert abs(order([layer.width for layer in layers], errors) - expected) < 0.12


def test_a_box_with_its_own_side_per_coordinate() -> None:
    x, y = points(0, (40, 2), (40, 2))
    scale, shift = torch.tensor([10.0, 0.1]).double(), torch.tensor([-3.0, 5.0]).double()
    layer = EuclideanDistance(2, 400, shift, shift + scale)
    assert approximation_error(layer, x * scale + shift, y * scale + shift) < 0.02 * float(scale.norm())


@pytest.mark.slow
@pytest.mark.parametrize("reg", [0.02, 0.1])
@pytest.mark.parametrize(("dim", "width"), [(1, 32), (2, 128)])
def test_network_on_the_layer_solves_the_true_problem_within_the_bound(dim: int, width: int, reg: float) -> None:
    x, y = points(0, (30, dim), (20, dim))
    a, b = (torch.full((k,), 1 / k, dtype=torch.float64) for k in (30, 20))
    layer = EuclideanDistance(dim, width, 0, 1)
    C = torch.as_tensor(ot.dist(x.numpy(), y.numpy(), metric="euclidean"))
    error = float((layer(x, y).cost() - C).abs().max())
    trace = AligningTransformer(layer.features, reg, 800, "relaxed")(layer(x, y), a=a, b=b, keep="last")
    assert float(trace.marginal_error) < 1e-8
    P, best = trace.plan(), float(ot.emd2(a, b, C))
    assert best - 1e-8 < float((C * P).sum()) < best + 2 * error + reg * math.log(30)  # entropy: at most λ log n more
    Q = pot_plan(C, a, b, reg)
    values = [float((c * p).sum() + reg * torch.special.xlogy(p, p).sum()) for c, p in ((layer(x, y).cost(), P), (C, Q))]
    assert abs(values[0] - values[1]) < error
    assert float((P - Q).abs().sum() / 2) < 0.1


@pytest.mark.slow
def test_error_table_orders() -> None:
    from otformer.lab.experiments.general_costs import error_table

    x, y = points(0, (40, 1), (40, 1))
    for layers, expected in (
        ([EuclideanDistance(1, W, 0, 1) for W in WIDTHS], (-1, -2, -1.6)),  # one pair in W shares a cell
        ([SmoothCost(SMOOTH["fourth"], W, 0, 1) for W in WIDTHS], (-2, -2, -2)),
    ):
        rows = error_table(layers, x, y, reg=0.05)
        assert [row.width for row in rows] == WIDTHS
        assert all(row.value_error <= row.max_error for row in rows)
        for name, slope in zip(("max_error", "value_error", "plan_error"), expected, strict=True):
            assert abs(order(WIDTHS, [getattr(row, name) for row in rows]) - slope) < 0.25


def test_the_layer_is_position_wise_batched_frozen_and_in_the_state_dict() -> None:
    x, y = points(0, (6, 2), (4, 2))
    layer = EuclideanDistance(2, 40, 0, 1)
    assert not list(layer.parameters())
    assert layer.state_dict()["W_1"].shape == (2, layer.width)
    swapped = layer(x.flip(0), y).x
    torch.testing.assert_close(swapped.flip(0), layer(x, y).x, atol=1e-14, rtol=0)
    torch.testing.assert_close(layer(x[None], y[None]).cost()[0], layer(x, y).cost())
    assert isinstance(layer(x.float(), y.float()), Features)
    torch.testing.assert_close(layer(x.float(), y.float()).cost().double(), layer(x, y).cost(), atol=1e-5, rtol=0)
    other = EuclideanDistance(2, 40, -7, 9)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x, y).cost(), layer(x, y).cost())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: EuclideanDistance(0, 8, 0, 1), "dim must be"),
        (lambda: EuclideanDistance(3, 5, 0, 1), "width must be a whole number of at least 6, got 5"),
        (lambda: EuclideanDistance(1, 8, 1, 0), "low must be below high"),
        (lambda: EuclideanDistance(2, 8, [0.0, 0.0, 0.0], 1), "low must be a number or 2 numbers"),
        (lambda: EuclideanDistance(1, 8, 0, float("inf")), "high must be finite"),
        (lambda: SmoothCost(lambda x, y: x, 8, 0, 1), "cost_function must broadcast"),
        (lambda: SmoothCost(lambda x, y: 1 / (x - y), 8, 0, 1), r"cost_function\(x, y\) must be finite"),
        (lambda: EuclideanDistance(1, 8, 0, 1)([[0.5]], [[1.5]]), "y must lie in the layer's box"),
        (lambda: EuclideanDistance(2, 8, 0, 1)([[0.5]], [[0.5]]), "x must have 2 coordinates"),
    ],
)
def test_bad_input(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
