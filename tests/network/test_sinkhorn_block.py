"""Attention + feed-forward is Sinkhorn: at every layer with atanh, at the fixed point with a ReLU network."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from oracles import pot_plan
from otformer import AligningTransformer
from otformer.network.features import cosine
from otformer.network.sinkhorn_block import LEAST_WIDTH, REACH, SinkhornTransformer, relu_atanh
from otformer.transport import reference


def problem(n: int, m: int, dim: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Points in the unit cube, random weights of mass 1, and the cost matrix."""
    g = torch.Generator().manual_seed(seed)
    x, y = (torch.rand(k, dim, generator=g, dtype=torch.float64) for k in (n, m))
    a, b = (torch.rand(k, generator=g, dtype=torch.float64) + 0.2 for k in (n, m))
    return x, y, a / a.sum(), b / b.sum(), torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist") ** 2


def relu(t: Tensor, width: int) -> Tensor:
    w, b, c = relu_atanh(width)
    return torch.relu(t[:, None] * w + b) @ c


@pytest.mark.parametrize("reg", [0.1, 0.5, 2.0])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (8, 8), (33, 33), (7, 12), (12, 5), (1, 6)])
def test_exact_block_is_log_domain_sinkhorn_at_every_layer(n: int, m: int, reg: float) -> None:
    x, y, a, b, C = problem(n, m)
    trace = SinkhornTransformer(2, reg, depth=60)(x, y, a, b)
    for layer, (u, v) in zip(range(61), reference.sinkhorn_half_steps(C, reg, a, b), strict=False):
        mine = trace.potentials(layer)
        torch.testing.assert_close(mine[0], u, atol=1e-12, rtol=0)
        torch.testing.assert_close(mine[1], v, atol=1e-12, rtol=0)


def test_paper_convention_without_marginal_registers() -> None:
    x, y, _, _, C = problem(6, 6)
    net = SinkhornTransformer(2, 0.3, depth=21, marginals=False)
    assert net.registers.width == 2 * 2 + 9
    states = reference.sinkhorn_half_steps(C, 0.3)
    u, v = [next(states) for _ in range(22)][-1]
    mine = net(x, y).potentials()
    torch.testing.assert_close(mine[0], u, atol=1e-12, rtol=0)
    torch.testing.assert_close(mine[1], v, atol=1e-12, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("width", [None, 8, 32, 256])
@pytest.mark.parametrize(("n", "m"), [(9, 9), (6, 11)])
def test_plan_and_attention_at_convergence_are_pots(n: int, m: int, width: int | None) -> None:
    x, y, a, b, C = problem(n, m, seed=1)
    trace = SinkhornTransformer(2, 0.1, depth=600, width=width)(x, y, a, b, keep="last")
    P = pot_plan(C.numpy(), a, b, 0.1)
    np.testing.assert_allclose(trace.plan().numpy(), P, atol=1e-10)
    np.testing.assert_allclose(trace.attention().numpy(), P / P.sum(1, keepdims=True), atol=1e-10)
    np.testing.assert_allclose(trace.attention(head="columns").numpy(), (P / P.sum(0)).T, atol=1e-10)
    assert float(trace.marginal_error) < 1e-12


def test_batch_absent_points_and_other_costs() -> None:
    x, y, a, b, _ = problem(5, 5, seed=2)
    net = SinkhornTransformer(2, 0.2, depth=300, width=32)
    solo = net(x[:3], y[:4]).plan()
    both = net([x[:3], x], [y[:4], y]).plan()  # ragged
    torch.testing.assert_close(both[0, :3, :4], solo, atol=1e-12, rtol=0)
    assert bool((both[0, 3:] == 0).all())
    P = pot_plan(cosine(x, y).cost(), a, b, 0.2)
    torch.testing.assert_close(net(cosine(x, y), a=a, b=b).plan(), P, atol=1e-10, rtol=0)


def test_relu_error_has_order_minus_two_and_the_predicted_constant() -> None:
    s = torch.linspace(-REACH, REACH, 50_001, dtype=torch.float64)
    widths = [16, 32, 64, 128, 256]
    errors = [float((relu(torch.tanh(s), W) - s).abs().max()) for W in widths]
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert -2.03 < slope < -1.97
    for W, error in zip(widths, errors, strict=True):
        assert 0.95 < error / (REACH / W) ** 2 <= 1
        piece = s.abs() < 1  # the factor |t|: smaller near 0
        assert float((relu(torch.tanh(s[piece]), W) - s[piece]).abs().max()) < 0.9 * error


@pytest.mark.parametrize("width", [8, 10, 32, 256])
def test_relu_interpolant_is_odd_zero_at_zero_and_over_relaxed_by_less_than_two(width: int) -> None:
    t = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    phi = relu(t, width)
    torch.testing.assert_close(phi, -relu(-t, width), atol=1e-12, rtol=0)
    assert float(relu(torch.zeros(1, dtype=torch.float64), width)) == 0
    assert bool((phi[t > 0] > 0).all())
    step = 2 * REACH / width
    assert float(relu(torch.tensor([1e-9], dtype=torch.float64), width)) == pytest.approx(1e-9 * step / math.tanh(step))
    assert step / math.tanh(step) < 2
    assert float(phi.max()) <= REACH + 0.5


@pytest.mark.parametrize("width", [8, 16, 64])
def test_the_dual_falls_from_any_start(width: int) -> None:
    """A row's part of the dual, e^{ℓ−θ} − e^ℓ + θ with θ = 2φ(tanh(ℓ/2)), is negative for every ℓ ≠ 0."""
    ell = torch.linspace(-50, 50, 20_000, dtype=torch.float64)  # 0 is not among them
    theta = 2 * relu(torch.tanh(ell / 2), width)
    change = (ell - theta).exp() - ell.exp() + theta
    assert bool((change < 0).all())
    x, y, a, b, C = problem(10, 10, seed=3)
    trace = SinkhornTransformer(2, 0.02, depth=100, width=width)(x, y, a, b, warn=False)
    duals = torch.stack([reference.dual(C, *trace.potentials(k), 0.02, a, b) for k in range(101)])
    assert bool((duals.diff() <= 1e-14).all())
    assert float(duals[0] - duals[-1]) > 1e-3


def test_relu_path_approaches_sinkhorn_with_order_minus_two() -> None:
    x, y, a, b, _ = problem(8, 8, seed=4)
    u, v = SinkhornTransformer(2, 0.2, depth=10)(x, y, a, b).potentials()
    widths, gaps = [16, 32, 64, 128, 256], []
    for W in widths:
        mine = SinkhornTransformer(2, 0.2, depth=10, width=W)(x, y, a, b).potentials()
        gaps.append(max(float((mine[0] - u).abs().max()), float((mine[1] - v).abs().max())))
    assert -2.4 < np.polyfit(np.log(widths), np.log(gaps), 1)[0] < -1.6


@pytest.mark.slow
@pytest.mark.parametrize("width", [None, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturation_stays_finite_and_converges(width: int | None, dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0], [2.0], [4.0], [6.0]], dtype=dtype)
    y = torch.tensor([[2.9], [0.9], [6.9], [4.9]], dtype=dtype)
    net = SinkhornTransformer(1, 1e-3, depth=600, width=width)
    trace = net(x, y)
    assert float(trace.attention(0, sink=True)[0, :-1].sum()) < 1e-15  # every e^{−C/λ} underflows beside the sink: t = −1
    for layer in range(601):
        u, v = trace.potentials(layer)
        assert bool(torch.isfinite(u).all() and torch.isfinite(v).all())
    tolerance = 1e-10 if dtype == torch.float64 else 0.05  # float32: costs of 10 are known to 1e-6, and λ = 1e-3
    C = (x - y.T).double() ** 2
    P = torch.zeros(4, 4)
    P[torch.arange(4), reference.assignment(C)] = 1
    torch.testing.assert_close(trace.plan(), P.to(dtype), atol=tolerance, rtol=0)
    longest = 2e-3 * (REACH + 0.5 if width else math.atanh(1 - torch.finfo(dtype).eps))
    moved = max(float((trace.potentials(k + 1)[0] - trace.potentials(k)[0]).abs().max()) for k in range(20))
    assert 0.5 * longest < moved <= longest * (1 + 1e-5)


def test_weights_are_in_the_state_dict_and_spare_is_cleared(tmp_path) -> None:  # type: ignore[no-untyped-def]
    x, y, a, b, _ = problem(5, 7)
    net = SinkhornTransformer(2, 0.1, depth=9, width=16)
    assert {"W_1", "b_1", "W_2"} <= set(net.state_dict())
    assert net.W_1.shape == (15, 18)
    assert net.W_2.shape == (2, 18, 15)
    Z = net.prompt(x, y, a, b).Z
    for layer in range(9):
        Z = net.block(Z, layer)
        assert bool((Z[..., net.registers.column("spare")] == 0).all())
    torch.testing.assert_close(Z[0], net(x, y, a, b, warn=False).Z(), atol=0, rtol=0)
    net.save(tmp_path / "weights.safetensors")
    other = SinkhornTransformer(2, 5.0, depth=9, width=16).load(tmp_path / "weights.safetensors")
    assert torch.equal(other(x, y, a, b, warn=False).plan(), net(x, y, a, b, warn=False).plan())


def test_a_tanh_layer_without_feed_forward_is_not_sinkhorn() -> None:
    """The feed-forward layer is needed: the alternating schedule alone takes shorter steps away from the solution."""
    x, y, a, b, _ = problem(6, 6)
    with_ff, without = SinkhornTransformer(2, 0.1, 4), AligningTransformer(2, 0.1, 4, "alternating")
    u, other = (net(x, y, a, b, warn=False).potentials(1)[0] for net in (with_ff, without))
    assert float((u - other).abs().max()) > 0.01


@pytest.mark.parametrize("width", [0, 6, 9, 16.0, "16", True])
def test_bad_width(width: object) -> None:
    with pytest.raises(ValueError, match=r"^width must be"):
        SinkhornTransformer(1, 0.1, 3, width=width)  # type: ignore[arg-type]
    assert LEAST_WIDTH == 8
