"""The Triton kernels of the stream against float64 and the dense pass: on a GPU, and two in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers.streams import COSTS, cast, clouds, duals, pair, stream_of
from oracles import squared_cost
from otformer.network.features import squared_euclidean
from otformer.transport.executors.dense import Dense
from otformer.transport.executors.stream import Stream
from otformer.transport.streaming.coarse_to_fine import coarse_to_fine


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="there is no triton but for Linux")
@pytest.mark.parametrize(("d", "dtype", "bound"), [(3, "float64", 1e-12), (20, "float32", 2e-4)], ids=["near", "far"])
def test_a_kernel_in_the_interpreter_equals_the_dense_pass(d: int, dtype: str, bound: float) -> None:
    """Bounds as below, a few roundings of C/λ at λ = 0.01. Without triton the process fails, and the test with it."""
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    call = [sys.executable, "-m", "helpers.interpreted_kernels", str(d), dtype]
    done = subprocess.run(call, cwd=Path(__file__).parents[1], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < bound


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
            expected = dense.log_ratio(u.double(), v.double(), reg, rows)
            got = stream.log_ratio(u.cuda(), v.cuda(), reg, rows).double().cpu()
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


@pytest.mark.gpu
@pytest.mark.parametrize("d", [1, 3, 8, 20])
@pytest.mark.parametrize("reg", [1.0, 0.001, 1e-4])
def test_float64_on_a_gpu_equals_the_dense_pass(d: int, reg: float) -> None:
    """Kernels up to eight dimensions, blocks of torch operations beyond."""
    for n, m in ((1, 3), (777, 2049)):
        dense, stream = pair(squared_euclidean(*clouds(n, m, d)), torch.float64, "cuda")
        u, v = duals(dense, reg)
        for rows in (True, False):
            got = stream.log_ratio(u.cuda(), v.cuda(), reg, rows).cpu()
            torch.testing.assert_close(got, dense.log_ratio(u, v, reg, rows), rtol=1e-12, atol=1e-13 + 1e-14 / reg)


@pytest.mark.gpu
@pytest.mark.parametrize("d", [2, 3, 20])
def test_kernels_survive_rough_potentials(d: int) -> None:
    """Neighbouring potentials a thousand λ apart: the entries that matter are not the near ones."""
    dense, stream = pair(squared_euclidean(*clouds(2000, 2100, d)), torch.float32, "cuda")
    v = torch.randn(2100, generator=torch.Generator().manual_seed(5))
    expected = dense.log_ratio(torch.zeros(2000, dtype=torch.float64), v.double(), 0.001, rows=True)
    got = stream.log_ratio(torch.zeros(2000).cuda(), v.cuda(), 0.001, rows=True).double().cpu()
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("reg", [1e-4, 0.001, 0.1])
def test_kernels_see_far_clusters_copies_and_light_points(reg: float) -> None:
    """Rows far from all columns, points given many times, weights of 10⁻³⁰; the last tile holds five columns.

    Two roundings of the largest cost, 2⁻²² max C/λ: each cloud is moved by its own middle, so near pairs may become far.
    """
    x, y = clouds(1500, 1285, 3)
    x[700:] += 4.0
    y[1000:] = y[0]
    log_a = torch.linspace(-69, 0, 1500, dtype=torch.float64)
    given = cast(squared_euclidean(x, y), torch.float32, "cuda")
    stream = Stream(given, log_a.float().cuda(), torch.zeros(1285).cuda())
    C = squared_cost(given.x.double(), given.y.double()).cpu()
    v = -1 + 0.2 * torch.rand(1285, generator=torch.Generator().manual_seed(6))
    expected = Dense(C, log_a.float().double(), torch.zeros(1285)).log_ratio(torch.zeros(1500), v.double(), reg, rows=True)
    got = stream.log_ratio(torch.zeros(1500).cuda(), v.cuda(), reg, rows=True).double().cpu()
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-6 + 2**-22 * float(C.max()) / reg)


@pytest.mark.gpu
def test_kernels_do_not_hide_what_is_not_a_number() -> None:
    for d in (3, 20):
        stream = stream_of(*(points.float().cuda() for points in clouds(4000, 3000, d)))
        u, v = torch.zeros_like(stream.log_a), torch.zeros_like(stream.log_b)
        v[7] = torch.nan
        assert bool(stream.log_ratio(u, v, 0.001, rows=True).isnan().all())


@pytest.mark.gpu
@pytest.mark.parametrize("reg", [0.01, 0.001])
def test_kernels_leave_out_absent_columns(reg: float) -> None:
    dense, stream = pair(squared_euclidean(*clouds(700, 1100, 3)), torch.float32, "cuda")
    v = torch.zeros(1100)
    v[torch.randperm(1100, generator=torch.Generator().manual_seed(8))[:900]] = -torch.inf
    expected = dense.log_ratio(torch.zeros(700, dtype=torch.float64), v.double(), reg, rows=True)
    got = stream.log_ratio(torch.zeros(700).cuda(), v.cuda(), reg, rows=True).double().cpu()
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("d", [17, 64, 200])
def test_three_tf32_products_are_as_exact_as_ieee(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from otformer.transport.executors import stream_kernels as kernels

    dense, stream = pair(squared_euclidean(*clouds(1024, 2048, d)), torch.float32, "cuda")
    u, v = duals(dense, 0.001, torch.float32)
    expected = dense.log_ratio(u.double(), v.double(), 0.001, rows=True)
    errors = {}
    for precision in ("ieee", "tf32x3", "tf32"):
        monkeypatch.setattr(kernels, "PRECISION", precision)
        got = stream.log_ratio(u.cuda(), v.cuda(), 0.001, rows=True).double().cpu()
        errors[precision] = float((got - expected).abs().mean())
    assert errors["tf32x3"] < 3 * errors["ieee"] + 1e-6
    assert errors["tf32"] > 20 * errors["tf32x3"]


@pytest.mark.gpu
@pytest.mark.parametrize(("d", "n"), [(3, 10_000), (3, 150_000), (64, 10_000)])
def test_a_gpu_solves_to_a_true_error(d: int, n: int) -> None:
    """float32 to an L1 error of 10⁻⁴ at λ = 0.001, checked in float64 on some of the rows and columns."""
    x, y = (points.float().cuda() / 3**0.5 for points in clouds(n, n, d))
    stream = stream_of(x, y)
    u, v, *_ = min(coarse_to_fine(stream, 0.001, 0.95e-4, 2000), key=lambda state: state[2])
    for points, others, own, other in ((x, y, u, v), (y, x, v, u)):
        some = torch.arange(0, n, n // 1000, device="cuda")
        C = torch.cdist(points[some].double(), others.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
        sums = ((own[some, None].double() + other[None].double() - C) / 0.001 - 1).exp().sum(1)
        assert float((n * sums - 1).abs().mean()) < 1.2e-4
