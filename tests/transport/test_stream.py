"""The streaming executor against the dense one, POT and float64; its memory."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.streams import COSTS, centred, clouds, duals, pair, stream_of, weights
from oracles import pot_plan, squared_cost
from otformer.network.features import Features, squared_euclidean
from otformer.network.schedule import named
from otformer.transport.costs.clouds import morton
from otformer.transport.costs.matrix import Dense
from otformer.transport.costs.tiles import Stream
from otformer.transport.solvers.blocks import annealed, least_error
from otformer.transport.solvers.network import run


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(
    ("n", "m", "d", "reg"), [(1, 1, 1, 1.0), (7, 300, 2, 0.1), (301, 517, 3, 0.01), (129, 128, 20, 0.05)]
)
def test_a_pass_in_float64_equals_the_dense_one(cost: str, n: int, m: int, d: int, reg: float) -> None:
    dense, stream = pair(COSTS[cost](*clouds(n, m, d)), block=5000)
    u, v = duals(dense, reg)
    for rows in (True, False):
        ours, theirs = stream.log_ratio(u, v, reg, rows), dense.log_ratio(u, v, reg, rows)
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_leaving_tiles_out_changes_nothing(spread: float) -> None:
    """At λ = 0.001 most tiles go, with smooth and with rough potentials; the sums stay."""
    dense, stream = pair(squared_euclidean(*clouds(1500, 1300, 2)))
    v = spread * torch.randn(1300, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    u = -0.001 * dense.log_ratio(torch.zeros(1500, dtype=torch.float64), v, 0.001, rows=True)
    for rows in (True, False):
        ours, theirs = stream.log_ratio(u, v, 0.001, rows), dense.log_ratio(u, v, 0.001, rows)
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("cost", COSTS)
def test_float32_stays_near_float64(cost: str) -> None:
    dense, stream = pair(COSTS[cost](*clouds(301, 217, 3)), torch.float32)
    u, v = duals(dense, 0.1, torch.float32)
    for rows in (True, False):
        expected = dense.log_ratio(u.double(), v.double(), 0.1, rows)
        torch.testing.assert_close(stream.log_ratio(u, v, 0.1, rows).double(), expected, rtol=0, atol=1e-5)


def test_float32_points_far_from_the_origin_lose_nothing() -> None:
    """(x + 1000 as float32 numbers) against the same numbers in float64: norms of 10⁶ would leave no digit at λ = 0.01."""
    x, y = (points.float() + 1000 for points in clouds(200, 150, 3))
    stream = stream_of(x, y)
    C = squared_cost(x.double(), y.double())
    dense = Dense(C, stream.log_a.double(), stream.log_b.double())
    u, v = duals(dense, 0.01, torch.float32)
    expected = dense.log_ratio(u.double(), v.double(), 0.01, rows=False)
    torch.testing.assert_close(stream.log_ratio(u, v, 0.01, rows=False).double(), expected, rtol=0, atol=5e-5)


def test_centred_clouds_have_the_same_costs() -> None:
    """In exact arithmetic, Python's fractions; the points lose no digit, whatever their offsets and sizes."""
    x, y = clouds(5, 4, 3)
    for x_at, y_at, x_size, y_size in ((0.0, 0.0, 1.0, 1.0), (3e4, -1e6, 1.0, 1e-3), (0.1, 1e9, 1e5, 1e-2)):
        given = x_at + x_size * x, y_at + y_size * y
        near_x, near_y, p, q = centred(*given, torch.zeros(5, dtype=torch.float64), torch.zeros(4, dtype=torch.float64))
        assert float(near_x.abs().max()) < 0.51 * x_size + 1e-9 * abs(x_at)
        assert float(near_y.abs().max()) < 0.51 * y_size + 1e-9 * abs(y_at)
        far, near = (
            [[sum((Fraction(s) - Fraction(t)) ** 2 for s, t in zip(i, j, strict=True)) for j in right] for i in left]
            for left, right in ((s.tolist(), t.tolist()) for s, t in (given, (near_x, near_y)))
        )
        gaps = torch.tensor([[float(far[i][j] - near[i][j]) for j in range(4)] for i in range(5)], dtype=torch.float64)
        torch.testing.assert_close(p[:, None] + q, gaps, rtol=1e-14, atol=1e-14)


def test_a_point_of_infinite_cost_is_absent() -> None:
    features = squared_euclidean(*clouds(30, 40, 2))
    few = Features(features.x, features.y[:33], features.x_sq, features.y_sq[:33])
    far = Features(features.x, features.y, features.x_sq, torch.cat([features.y_sq[:33], torch.full((7,), 1e30)]))
    log_a = weights(30).log()
    u, v = torch.zeros(30, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    all_of_them = Stream(far, log_a, v).log_ratio(u, v, 0.1, rows=True)
    torch.testing.assert_close(all_of_them, Stream(few, log_a, v[:33]).log_ratio(u, v[:33], 0.1, rows=True))


def test_what_is_not_a_number_is_not_hidden() -> None:
    """A solver that has lost its way must see it: no tile with a NaN is left out."""
    stream = stream_of(*clouds(400, 300, 2))
    u, v = torch.zeros_like(stream.log_a), torch.zeros_like(stream.log_b)
    v[7] = torch.nan
    assert bool(stream.log_ratio(u, v, 0.001, rows=True).isnan().all())


def test_a_plan_of_nothing_moves_nothing() -> None:
    stream = stream_of(*clouds(400, 300, 2))
    u, v = torch.zeros_like(stream.log_a), torch.zeros_like(stream.log_b)
    assert float(stream.products(u - 1, v, 0.001, v + 1, rows=True).abs().max()) < 1e-70


@pytest.mark.slow
def test_blocks_on_a_stream_reach_the_plan_of_pot() -> None:
    x, y = clouds(60, 45, 3)
    a, b = weights(60), weights(45, 2)
    stream = stream_of(x, y, a, b)
    u, v, error, _ = least_error(annealed(stream, 0.005, 4000), 1e-11)
    assert error < 1e-11
    expected = pot_plan(squared_cost(x, y).numpy(), a, b, 0.005)
    P = stream.products(u, v, 0.005, torch.eye(45, dtype=torch.float64), rows=True)
    np.testing.assert_allclose(P.numpy(), expected, atol=1e-10)


def test_a_fixed_network_runs_the_same_on_both() -> None:
    dense, stream = pair(squared_euclidean(*clouds(40, 30, 2)))
    layers = named("gradient").layers(0.1, 25)
    for one, other in zip(run(dense, layers), run(stream, layers), strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("reg", [0.001, 0.1])
def test_the_plan_is_applied_without_being_formed(dtype: torch.dtype, reg: float) -> None:
    dense, stream = pair(squared_euclidean(*clouds(301, 217, 3)), dtype, block=3000)
    u, v = duals(dense, reg, dtype)
    P = dense.plan(u.double(), v.double(), reg)
    atol = 1e-13 if dtype == torch.float64 else 5e-6
    generator = torch.Generator().manual_seed(7)
    for shape in ((), (1,), (4,)):
        right, left = (torch.randn(k, *shape, generator=generator, dtype=torch.float64).to(dtype) for k in (217, 301))
        for w, M, rows in ((right, P, True), (left, P.mT, False)):
            found = stream.products(u, v, reg, w, rows)
            torch.testing.assert_close(found.double(), M @ w.double(), rtol=0, atol=atol)


class Sizes(TorchDispatchMode):
    """Records the most elements any operation returns, and those of all matrix products."""

    largest = products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        size = max(
            (t.numel() for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, Tensor)), default=0
        )
        self.largest = max(self.largest, size)
        self.products += size if "mm" in str(func) else 0
        return out


@pytest.mark.slow
def test_memory_is_linear_and_few_tiles_are_looked_at() -> None:
    n, m = 20_000, 15_000
    x, y = clouds(n, m, 3)
    with Sizes() as sizes:
        stream = stream_of(x, y)
        u, v = torch.zeros_like(stream.log_a), torch.zeros_like(stream.log_b)
        stream.log_ratio(u, v, 0.001, rows=True)
        stream.products(u - 0.01, v - 0.01, 0.001, y, rows=True)
    assert sizes.largest <= max(stream.block, 3 * n)  # n × m is 3·10⁸
    assert sizes.products < n * m  # of 2 n m in two passes


def test_spread_bounds_the_costs() -> None:
    for cost in COSTS.values():
        dense, stream = pair(cost(*clouds(100, 80, 3)))
        spread = float(dense.C.max() - dense.C.min())
        assert spread <= stream.spread < 12 * spread


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_the_curve_interleaves_the_bits_of_coordinates(d: int) -> None:
    """Keys written out bit by bit, in Python's own whole numbers, from the three widest coordinates."""
    x = clouds(200, 1, d)[0] * torch.arange(1, d + 1, dtype=torch.float64)
    low, high = x.amin(0), x.amax(0)
    axes = (high - low).argsort(descending=True)[:3].tolist()
    keys = []
    for point in x:
        cells = [int((point[k] - low[k]) / (high[k] - low[k]) * (2**20 - 1)) for k in axes]
        bits = ["".join(column) for column in zip(*(f"{cell:020b}" for cell in reversed(cells)), strict=True)]
        keys.append(int("".join(bits), 2))
    assert morton(x).tolist() == sorted(range(200), key=lambda i: keys[i])


def test_neighbours_on_the_curve_are_neighbours_in_space() -> None:
    x, _ = clouds(4096, 1, 3)
    steps = x[morton(x)].diff(dim=0).norm(dim=1).mean()
    assert float(steps) < 0.25 * float(x.diff(dim=0).norm(dim=1).mean())


def test_thinning_keeps_mass_and_mean_costs() -> None:
    """A coarse entry of the cost is the mean of the fine ones it stands for, weighted by mass."""
    for cost in COSTS.values():
        dense, stream = pair(cost(*clouds(50, 31, 2)))
        coarse = stream.thinned(8, 5)
        a, b = dense.log_a.exp(), dense.log_b.exp()
        rows, columns = (
            torch.zeros(-(-len(w) // k), len(w), dtype=torch.float64).index_put_(
                (torch.arange(len(w)) // k, cloud.order), w[cloud.order]
            )
            for cloud, w, k in ((stream.x, a, 8), (stream.y, b, 5))
        )
        torch.testing.assert_close(coarse.log_a.exp(), rows.sum(1))
        torch.testing.assert_close(coarse.log_b.exp(), columns.sum(1))
        means = (rows / rows.sum(1, keepdim=True)) @ dense.C @ (columns / columns.sum(1, keepdim=True)).mT
        v = torch.zeros(7, dtype=torch.float64)
        expected = Dense(means, coarse.log_a, coarse.log_b).log_ratio(torch.zeros_like(coarse.log_a), v, 0.1, rows=True)
        torch.testing.assert_close(coarse.log_ratio(torch.zeros_like(coarse.log_a), v, 0.1, rows=True), expected)


def test_values_of_another_length_are_refused() -> None:
    x, w = torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"values must have shape \(3,\) or \(3, k\), got \(2,\)"):
        stream_of(x, x).products(w, w, 1.0, w[:2], rows=True)
