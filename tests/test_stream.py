"""The streaming executor against the dense one, POT and float64; its memory; and, on a GPU, its kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from otformer.network.features import Features, cosine, inner_product, mahalanobis, squared_euclidean
from otformer.network.schedule import named
from otformer.transport.dense import Dense, run
from otformer.transport.solve import annealed
from otformer.transport.stream import Stream, morton

COSTS = {
    "squared Euclidean": squared_euclidean,
    "inner product": inner_product,
    "cosine": cosine,
    "Mahalanobis": lambda x, y: mahalanobis(x, y, torch.eye(x.shape[1], dtype=x.dtype) + 0.3),
}


def clouds(n: int, m: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Uniform points, scaled so that costs are about 1 in every dimension."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.rand(k, d, generator=generator, dtype=torch.float64) / (d / 3) ** 0.5 for k in (n, m))


def weights(n: int, seed: int = 1) -> Tensor:
    w = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    return w / w.sum()


def cast(features: Features, dtype: torch.dtype, device: str = "cpu") -> Features:
    return Features(*(t.to(dtype).to(device) for t in (features.x, features.y, features.x_sq, features.y_sq)))


def pair(
    features: Features, dtype: torch.dtype = torch.float64, device: str = "cpu", **options: Any
) -> tuple[Dense, Stream]:
    """The same problem for both executors: dense always in float64, from the very numbers the stream is given."""
    log_a, log_b = weights(len(features.x)).log(), weights(len(features.y), 2).log()
    given = cast(features, dtype, device)
    stream = Stream(given, log_a.to(given.x), log_b.to(given.x), **options)
    rounded = cast(given, torch.float64)
    cost = rounded.x_sq[:, None] + rounded.y_sq[None, :] - 2 * rounded.x @ rounded.y.mT
    return Dense(cost, stream.log_a.double().cpu(), stream.log_b.double().cpu()), stream


def duals(dense: Dense, reg: float, dtype: torch.dtype = torch.float64, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Potentials of a plan whose rows are nearly right: what a solver asks about."""
    generator = torch.Generator().manual_seed(seed)
    v = 0.1 * torch.rand(len(dense.log_b), generator=generator, dtype=torch.float64).to(dtype).double()
    u = -reg * dense.excess(torch.zeros_like(dense.log_a), v, reg, rows=True)
    return u.to(dtype), v.to(dtype)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(
    ("n", "m", "d", "reg"), [(1, 1, 1, 1.0), (7, 300, 2, 0.1), (301, 517, 3, 0.01), (129, 128, 20, 0.05)]
)
def test_a_pass_in_float64_equals_the_dense_one(cost: str, n: int, m: int, d: int, reg: float) -> None:
    dense, stream = pair(COSTS[cost](*clouds(n, m, d)), block=5000)
    u, v = duals(dense, reg)
    for rows in (True, False):
        torch.testing.assert_close(stream.excess(u, v, reg, rows), dense.excess(u, v, reg, rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_leaving_tiles_out_changes_nothing(spread: float) -> None:
    """At λ = 0.001 most tiles go, with smooth and with rough potentials; the sums stay."""
    dense, stream = pair(squared_euclidean(*clouds(1500, 1300, 2)))
    v = spread * torch.randn(1300, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    u = -0.001 * dense.excess(torch.zeros(1500, dtype=torch.float64), v, 0.001, rows=True)
    for rows in (True, False):
        torch.testing.assert_close(stream.excess(u, v, 0.001, rows), dense.excess(u, v, 0.001, rows), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("cost", COSTS)
def test_float32_stays_near_float64(cost: str) -> None:
    dense, stream = pair(COSTS[cost](*clouds(301, 217, 3)), torch.float32)
    u, v = duals(dense, 0.1, torch.float32)
    for rows in (True, False):
        expected = dense.excess(u.double(), v.double(), 0.1, rows)
        torch.testing.assert_close(stream.excess(u, v, 0.1, rows).double(), expected, rtol=0, atol=1e-5)


def test_float32_points_far_from_the_origin_lose_nothing() -> None:
    """(x + 1000 as float32 numbers) against the same numbers in float64: norms of 10⁶ would leave no digit at λ = 0.01."""
    x, y = (points.float() + 1000 for points in clouds(200, 150, 3))
    stream = Stream.from_points(x, y)
    C = (x.double()[:, None] - y.double()[None]).square().sum(-1)
    dense = Dense(C, stream.log_a.double(), stream.log_b.double())
    u, v = duals(dense, 0.01, torch.float32)
    expected = dense.excess(u.double(), v.double(), 0.01, rows=False)
    torch.testing.assert_close(stream.excess(u, v, 0.01, rows=False).double(), expected, rtol=0, atol=5e-5)


def test_a_point_of_infinite_cost_is_absent() -> None:
    features = squared_euclidean(*clouds(30, 40, 2))
    few = Features(features.x, features.y[:33], features.x_sq, features.y_sq[:33])
    far = Features(features.x, features.y, features.x_sq, torch.cat([features.y_sq[:33], torch.full((7,), 1e30)]))
    log_a = weights(30).log()
    u, v = torch.zeros(30, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    all_of_them = Stream(far, log_a, v).excess(u, v, 0.1, rows=True)
    torch.testing.assert_close(all_of_them, Stream(few, log_a, v[:33]).excess(u, v[:33], 0.1, rows=True))


def test_what_is_not_a_number_is_not_hidden() -> None:
    """A solver that has lost its way must see it: no tile with a NaN is left out."""
    stream = Stream.from_points(*clouds(400, 300, 2))
    u, v = stream.start()
    v[7] = torch.nan
    assert bool(stream.excess(u, v, 0.001, rows=True).isnan().all())


def test_a_plan_of_nothing_moves_nothing() -> None:
    stream = Stream.from_points(*clouds(400, 300, 2))
    u, v = stream.start()
    assert float(stream.apply(u - 1, v, 0.001, v + 1).abs().max()) < 1e-70


def test_blocks_on_a_stream_reach_the_plan_of_pot() -> None:
    import ot  # the GPU machine, which runs this file too, may be without it

    x, y = clouds(60, 45, 3)
    a, b = weights(60), weights(45, 2)
    stream = Stream.from_points(x, y, a, b)
    for u, v, error, _ in annealed(stream, stream.spread, 0.005, 1e-11, 4000):  # noqa: B007
        pass
    assert error < 1e-11
    M = (x[:, None] - y[None]).square().sum(-1).numpy()
    expected = ot.sinkhorn(a.numpy(), b.numpy(), M, 0.005, method="sinkhorn_log", stopThr=1e-13, numItermax=100_000)
    P = stream.apply(u, v, 0.005, torch.eye(45, dtype=torch.float64))
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
        torch.testing.assert_close(stream.apply(u, v, reg, right).double(), P @ right.double(), rtol=0, atol=atol)
        torch.testing.assert_close(
            stream.apply_transposed(u, v, reg, left).double(), P.mT @ left.double(), rtol=0, atol=atol
        )
    for sums, expected in zip(stream.marginals(u, v, reg), (P.sum(1), P.sum(0)), strict=True):
        torch.testing.assert_close(sums.double(), expected, rtol=0, atol=atol)


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


def test_memory_is_linear_and_few_tiles_are_looked_at() -> None:
    n, m = 20_000, 15_000
    x, y = clouds(n, m, 3)
    with Sizes() as sizes:
        stream = Stream.from_points(x, y)
        u, v = stream.start()
        stream.excess(u, v, 0.001, rows=True)
        stream.apply(u - 0.01, v - 0.01, 0.001, y)
    assert sizes.largest <= max(stream.block, 3 * n)  # n × m is 3·10⁸
    assert sizes.products < n * m  # of 2 n m in two passes


def test_spread_bounds_the_costs() -> None:
    for cost in COSTS.values():
        dense, stream = pair(cost(*clouds(100, 80, 3)))
        spread = float(dense.C.max() - dense.C.min())
        assert spread <= stream.spread < 12 * spread


def test_neighbours_on_the_curve_are_neighbours_in_space() -> None:
    x, _ = clouds(4096, 1, 3)
    steps = x[morton(x)].diff(dim=0).norm(dim=1).mean()
    assert float(steps) < 0.25 * float(x.diff(dim=0).norm(dim=1).mean())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: Stream(squared_euclidean(x[None], x[None]), w, w), r"of one problem, x \(n, d\), got .*\(1, 3, 2\)"),
        (lambda x, w: Stream(squared_euclidean(x, x), w[:2], w), r"log_a must be .* of shape \(3,\) .* got .* \(2,\)"),
        (lambda x, w: Stream(squared_euclidean(x, x), w, w.float()), r"log_b must be torch.float64 .* got torch.float32"),
        (lambda x, w: Stream(squared_euclidean(x, x[:0]), w, w[:0]), r"points on both sides, got 3 and 0"),
        (lambda x, w: Stream(squared_euclidean(x, x), w, w, block=0), r"block must be a whole number of at least 1, got 0"),
        (lambda x, w: Stream.from_points(x, x, a=[1.0, 0.0, 1.0]), r"a must be positive"),
        (
            lambda x, w: Stream.from_points(x, x).apply(w, w, 1.0, w[:2]),
            r"values must have shape \(3,\) or \(3, k\), got \(2,\)",
        ),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))


@pytest.mark.gpu
@pytest.mark.parametrize("cost", ["squared Euclidean", "inner product"])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 9, 16, 64, 100])
@pytest.mark.parametrize("reg", [1.0, 0.03, 0.001])
def test_a_gpu_stays_near_float64(cost: str, d: int, reg: float) -> None:
    """A few roundings of the cost, 2⁻²³ (1 + max C)/λ, besides those of the sum itself; small, wide and long problems."""
    for n, m in ((1, 3), (1001, 3333), (5003, 517)):
        dense, stream = pair(COSTS[cost](*clouds(n, m, d)), torch.float32, "cuda")
        u, v = duals(dense, reg, torch.float32)
        atol = 2e-6 + 8 * 2**-23 * (1 + float(dense.C.abs().max())) / reg
        for rows in (True, False):
            expected = dense.excess(u.double(), v.double(), reg, rows)
            got = stream.excess(u.cuda(), v.cuda(), reg, rows).double().cpu()
            torch.testing.assert_close(got, expected, rtol=0, atol=atol)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gpu_applies_the_plan(dtype: torch.dtype) -> None:
    dense, stream = pair(squared_euclidean(*clouds(1001, 777, 3)), dtype, "cuda")
    u, v = duals(dense, 0.01, dtype)
    values = torch.randn(777, 2, generator=torch.Generator().manual_seed(7), dtype=dtype)
    expected = dense.plan(u.double(), v.double(), 0.01) @ values.double()
    got = stream.apply(u.cuda(), v.cuda(), 0.01, values.cuda()).double().cpu()
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-14 if dtype == torch.float64 else 1e-6)
