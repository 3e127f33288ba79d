"""Streaming on a GPU through the public functions: against the dense executor there, and errors that float64 finds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

import otformer as of
from helpers.streams import close, cubes, masses
from otformer.transport.compat import like_geomloss
from otformer.transport.compat.like_geomloss import SamplesLoss, divergence
from transport.test_streaming_variants import both, hessian_products

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:not converged")]


def cloud(
    n: int = 500, m: int = 400, d: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor]:
    return tuple(t.to(dtype).cuda() for t in cubes(n, m, d, seed))  # type: ignore[return-value]


def mass_of(n: int, seed: int, zeros: int = 0) -> Tensor:
    return masses(n, seed, zeros).cuda()


def stream(*args: Any, **options: Any) -> of.Result:
    return of.solve_sample(*args, executor="stream", **options)


def true_error(
    result: of.Result, x: Tensor, y: Tensor, reg: float, a: Tensor | None = None, b: Tensor | None = None
) -> float:
    """The marginal error of squared distances in float64, from the potentials."""
    u, v = result.potentials
    assert u.dtype == v.dtype == torch.float64
    C = torch.cdist(x.double(), y.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    P = ((u[:, None] + v - C) / reg - 1).exp()
    a, b = (torch.full_like(w, 1 / len(w)) if t is None else t.double() for w, t in ((u, a), (v, b)))
    return float((P.sum(1) - a).abs().sum() + (P.sum(0) - b).abs().sum())


def honest(result: of.Result, true: float, tol: float) -> None:
    """What is reported is no less than what is true, and not much more: the rounding of a pass, and of this test."""
    assert true <= result.marginal_error * (1 + 1e-9) + 1e-12
    assert result.marginal_error <= true + 2e-5
    assert result.converged == (result.marginal_error < tol)


WAYS = [
    (torch.float32, 1e-4),
    (torch.float32, 1e-7),
    (torch.float64, 1e-4),
    (torch.float64, 1e-9),
    (torch.float16, 1e-4),
    (torch.bfloat16, 1e-4),
]


@pytest.mark.parametrize("zeros", [0, 9])
@pytest.mark.parametrize(("dtype", "tol"), WAYS)
def test_equals_the_dense_executor(dtype: torch.dtype, tol: float, zeros: int) -> None:
    """Error, values, products, rows and sums; bounds are a hundred times tol, and roundings of the dtype."""
    (x, y), a, b = cloud(dtype=dtype), mass_of(500, 1, zeros), mass_of(400, 2, zeros)
    ours = stream(x, y, a, b, reg=0.05, tol=tol)
    dense = of.solve_sample(x.double(), y.double(), a, b, reg=0.05, tol=1e-11, executor="dense")
    assert ours.converged
    honest(ours, true_error(ours, x, y, 0.05, a, b), tol)
    kind = dtype if dtype == torch.float64 else torch.float32
    assert ours.value.dtype == ours.value_linear.dtype == kind
    loose, rounding = 100 * tol, 8 * torch.finfo(kind).eps
    assert float(ours.value) == pytest.approx(float(dense.value), abs=tol + rounding)
    assert float(ours.value_linear) == pytest.approx(float(dense.value_linear), abs=loose + rounding)
    points = y.to(kind)
    for one, other in (
        (ours.apply(points), dense.apply(points)),
        (a[:, None] * ours.map(points), a[:, None] * dense.map(points)),
    ):
        assert float((one - other).abs().sum()) < loose + 10 * rounding
    P = ours.plan.dense()
    assert float((P - dense.plan).abs().sum()) < loose
    torch.testing.assert_close(ours.plan.rows(3, 9), P[3:9])
    assert torch.equal(ours.plan.argmax(1), P.argmax(1))
    assert torch.equal(ours.plan.argmax(0), P.argmax(0))
    for axis in (0, 1):
        torch.testing.assert_close(ours.plan.sum(axis), P.sum(axis), rtol=1e-5, atol=1e-8)
    assert all(bool(((w == 0) == t.isneginf()).all()) for w, t in zip((a, b), ours.potentials, strict=True))


def test_the_value_is_that_of_the_dual() -> None:
    """It errs by the square of the marginal error."""
    x, y = cloud()
    rough, exact = (stream(x, y, reg=0.05, tol=tol) for tol in (3e-3, 1e-10))
    assert abs(float(rough.value - exact.value)) < 3e-3**2


@pytest.mark.parametrize("d", [3, 16])
def test_warm_starts(d: int) -> None:
    x, y = cloud(d=d)
    reg = 0.005 * d
    cold = stream(x, y, reg=reg, tol=1e-6)
    warm = stream(x, y, reg=reg, tol=1e-6, potentials=cold.potentials)
    near = stream(x + 1e-3, y, reg=reg, tol=1e-6, potentials=cold.potentials)
    useless = stream(x, y, reg=reg, tol=1e-6, potentials=(1e6 * x[:, 0], 1e9 * y[:, 0]))
    assert warm.depth < cold.depth / 2
    assert near.depth <= cold.depth
    for found, moved in ((cold, 0.0), (warm, 0.0), (near, 1e-3), (useless, 0.0)):
        assert found.converged
        honest(found, true_error(found, x + moved, y, reg), 1e-6)


def test_a_warm_start_gives_points_without_mass_their_potentials() -> None:
    (x, y), b = cloud(), mass_of(400, 2, zeros=20)
    cold = stream(x, y, None, b, reg=0.02, tol=1e-5)
    warm = stream(x, y, reg=0.02, tol=1e-5, potentials=cold.potentials)
    assert warm.converged
    honest(warm, true_error(warm, x, y, 0.02), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_more_layers_than_allowed(dtype: torch.dtype) -> None:
    x, y = cloud(dtype=dtype)
    for most in (2, 3, 5, 8, 20, 50):
        for start in (None, (torch.zeros(500).cuda(), torch.zeros(400).cuda())):
            result = stream(x, y, reg=0.002, tol=1e-8, max_depth=most, potentials=start)
            assert result.depth <= most
            assert not result.converged
            honest(result, true_error(result, x, y, 0.002), 1e-8)


def test_tol_0_ends_and_is_not_reached() -> None:
    x, y = cloud()
    result = stream(x, y, reg=0.05, tol=0.0, max_depth=300)
    assert not result.converged
    assert true_error(result, x, y, 0.05) < 1e-10


@pytest.mark.parametrize(("d", "n"), [(3, 10_000), (3, 100_000), (16, 10_000)])
def test_many_points_are_solved_to_a_true_error(d: int, n: int) -> None:
    """float32 to 10⁻⁴ at λ = 0.001 (0.01 in many dimensions), measured in float64 on some of the rows and columns."""
    reg = 0.001 if d == 3 else 0.01
    x, y = (t / d**0.5 for t in cloud(n, n, d, torch.float32))
    result = stream(x, y, reg=reg, tol=1e-4)
    assert result.converged
    errors = []
    for points, others, own, other in ((x, y, *result.potentials), (y, x, *result.potentials[::-1])):
        some = torch.arange(0, n, n // 1000, device="cuda")
        C = torch.cdist(points[some].double(), others.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
        errors.append(float((n * ((own[some, None] + other - C) / reg - 1).exp().sum(1) - 1).abs().mean()))
    assert sum(errors) < 1.2e-4


def test_many_points_take_no_matrix() -> None:
    """The matrix has 40 GB in float32; gradients take no more than points do, either."""
    x, y = (t.requires_grad_() for t in cloud(100_000, 100_000, 3, torch.float32))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = stream(x, y, reg=0.1, tol=1e-3)
    (result.value + result.value_linear).backward()
    assert torch.cuda.max_memory_allocated() - before < 2**30


LOSSES = {
    "value": lambda r, y: r.value,
    "all": lambda r, y: r.value + 2 * r.value_linear + (r.map(y) ** 2 / 10).sum() + r.apply(y[:, 0]).sum(),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("d", [3, 16])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_gradients_equal_the_dense_ones(metric: str, d: int, loss: str) -> None:
    """In points, weights and λ, with points without mass."""
    (x, y), a, b = cloud(200, 150, d), mass_of(200, 1, 7), mass_of(150, 2, 6)
    inputs = [t.requires_grad_() for t in (x, y, a, b, torch.tensor(0.05 * d, dtype=torch.float64).cuda())]
    found = [grad(LOSSES[loss](r, y), inputs) for r in both(*inputs, tol=1e-10, metric=metric)]
    present = [a > 0, b > 0, a > 0, b > 0, ...]
    close(*([g[at] for g, at in zip(side, present, strict=True)] for side in found), 1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("d", [3, 16])
def test_gradients_in_float32(d: int, loss: str) -> None:
    """At a tol that mixed passes decide: two digits and more of the gradient's size."""
    inputs = [t.requires_grad_() for t in cloud(d=d, dtype=torch.float32)]
    exact = [t.detach().double().requires_grad_() for t in inputs]
    dense = of.solve_sample(*exact, reg=0.05 * d, tol=1e-10, executor="dense")
    found = grad(LOSSES[loss](stream(*inputs, reg=0.05 * d, tol=1e-4), inputs[1]), inputs)
    for one, other in zip(found, grad(LOSSES[loss](dense, exact[1]), exact), strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 5e-3


@pytest.mark.parametrize(
    ("d", "dtype", "loose"), [(3, torch.float64, 1e-6), (16, torch.float64, 1e-6), (3, torch.float32, 1e-3)]
)
def test_hessian_vector_products_equal_the_dense_ones(d: int, dtype: torch.dtype, loose: float) -> None:
    (x, y), a, b = cloud(120, 100, d, dtype), mass_of(120, 1), mass_of(100, 2)
    reg, tol = torch.tensor(0.05 * d, dtype=torch.float64).cuda(), 1e-11 if dtype == torch.float64 else 1e-5
    inputs = [t.requires_grad_() for t in (x, y, a, b, reg)]
    directions = [torch.randn(t.shape, generator=torch.Generator().manual_seed(k)).to(t) for k, t in enumerate(inputs)]
    dense = [t.detach().double().requires_grad_() for t in inputs]
    expected = of.solve_sample(*dense, tol=1e-12, executor="dense")
    theirs = hessian_products(expected, dense, [t.double() for t in directions])
    ours = hessian_products(stream(*inputs, tol=tol), inputs, directions)
    close([t.double() for t in ours], theirs, loose)


@pytest.mark.parametrize(("metric", "rho"), [("sqeuclidean", 0.5), ("sqeuclidean", (0.5, math.inf)), ("euclidean", 0.3)])
def test_unbalanced_equals_the_dense_one(metric: str, rho: Any) -> None:
    (x, y), a, b = cloud(300, 250), mass_of(300, 1, 7), 1.4 * mass_of(250, 2, 6)
    inputs = [t.requires_grad_() for t in (x, y, a, b, torch.tensor(0.05, dtype=torch.float64).cuda())]
    ours, dense = both(*inputs, unbalanced=rho, tol=1e-9, metric=metric)
    assert ours.converged
    assert ours.mass == pytest.approx(dense.mass, abs=1e-8)
    close((ours.value, ours.value_linear, ours.plan.dense()), (dense.value, dense.value_linear, dense.plan), 1e-7)
    present = [..., ..., a > 0, b > 0, ...]
    close(*([g[at] for g, at in zip(grad(r.value, inputs), present, strict=True)] for r in (ours, dense)), 1e-6)
    single = stream(*(t.detach().float() for t in (x, y, a, b)), reg=0.05, unbalanced=rho, tol=1e-4, metric=metric)
    assert float(single.value) == pytest.approx(float(dense.value), rel=1e-4)


@pytest.mark.parametrize("allow", ["equal", "different"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
def test_labels_and_plain_distances(metric: str, allow: str, dtype: torch.dtype, tol: float) -> None:
    x, y = cloud(300, 240, dtype=dtype)
    labels = torch.arange(300).cuda() % 3, torch.arange(240).cuda() % 3
    options = {"metric": metric, "labels": labels, "allow": allow, "reg": 0.05}
    ours = stream(x, y, tol=tol, **options)
    dense = of.solve_sample(x.double(), y.double(), tol=1e-11, executor="dense", **options)
    P = ours.plan.dense()
    error = float((P.sum(1) - 1 / 300).abs().sum() + (P.sum(0) - 1 / 240).abs().sum())
    assert ours.converged
    honest(ours, error, tol)
    assert float(P[(labels[0][:, None] == labels[1]) == (allow == "different")].abs().max()) == 0
    assert float((P - dense.plan).abs().sum()) < 100 * tol
    assert float(ours.value) == pytest.approx(float(dense.value), abs=1e-6)
    assert float(ours.value_linear) == pytest.approx(float(dense.value_linear), abs=100 * tol)


@pytest.mark.parametrize("metric", ["euclidean", "inner", "cosine"])
@pytest.mark.parametrize("d", [3, 16])
def test_other_costs(metric: str, d: int) -> None:
    """Plain distances in many dimensions are roots of differences of squares: their error is known to 2⁻³⁰ C/λ only."""
    x, y = cloud(300, 240, d)
    tol, near = (1e-6, 1e-5) if metric == "euclidean" and d == 16 else (1e-9, 1e-7)
    ours, dense = both(x, y, reg=0.1, tol=tol, metric=metric)
    assert ours.converged
    close((ours.value, ours.value_linear, ours.plan.dense()), (dense.value, dense.value_linear, dense.plan), near)


@pytest.mark.parametrize(
    ("p", "blur", "reach", "d"),
    [(2, 0.1, None, 3), (1, 0.1, None, 3), (2, 0.1, 0.5, 3), (1, 0.1, 0.4, 3), (2, 0.3, None, 16), (1, 0.3, None, 16)],
)
def test_losses_equal_those_with_matrices(p: int, blur: float, reach: float | None, d: int) -> None:
    """Values and gradients in weights and points; a debiased loss has the plan of a cloud with itself."""
    x, y = (t.requires_grad_() for t in cloud(200, 150, d))
    a, b = mass_of(200, 1).requires_grad_(), mass_of(150, 2).requires_grad_()
    inputs, found = (a, x, b, y), []
    for backend in ("online", "tensorized"):
        loss = SamplesLoss(p=p, blur=blur, reach=reach, backend=backend, tol=1e-9)(*inputs)
        found.append([loss, *grad(loss, inputs)])
    close(*found, 1e-6)


def test_divergences_and_losses_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = cloud(300, 250)
    exact = divergence(x, y, reg=0.05, tol=1e-10), SamplesLoss(blur=0.1, backend="tensorized", tol=1e-10)(x, y)
    monkeypatch.setattr(like_geomloss, "ONLINE_ABOVE", 1)
    assert float(divergence(x, y, reg=0.05, tol=1e-10)) == pytest.approx(float(exact[0]), rel=1e-7)
    rough = [t.float().requires_grad_() for t in (x, y)]
    loss = SamplesLoss(blur=0.1)(*rough)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(float(exact[1]), rel=1e-4)
    assert all(bool(g.isfinite().all()) for g in grad(loss, rough))
