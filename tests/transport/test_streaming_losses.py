"""Losses between clouds without matrices, against those with them, finite differences and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradgradcheck

from helpers.streams import close, cubes, masses
from oracles import problem, slope
from otformer.transport.compat import like_geomloss
from otformer.transport.compat.like_geomloss import SamplesLoss, divergence
from otformer.transport.costs.tiles import Stream
from otformer.transport.variants import debiased


def weighted(seed: int, n: int, m: int, d: int = 2) -> list[Tensor]:
    """α, x, β, y."""
    x, y, a, b = problem(seed, n, m, d)
    return [torch.tensor(t) for t in (a, x, b, y * 0.7)]


@pytest.mark.slow
@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize(
    ("p", "blur", "reach"), [(2, 0.5, None), (2, 0.05, None), (1, 0.05, None), (2, 0.1, 0.5), (1, 0.1, 0.4)]
)
def test_without_matrices_all_is_the_same(
    p: int, blur: float, reach: float | None, debias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, gradients and potentials, in a batch, with a point without mass and far from the origin."""
    batch = [torch.stack(t) for t in zip(weighted(1, 150, 140, 3), weighted(2, 150, 140, 3), strict=True)]
    batch[0][1, 3] = 0
    batch[0][1] /= batch[0][1].sum()
    batch[1], batch[3] = batch[1] + 20, batch[3] + 20
    expected, inputs = None, [t.requires_grad_() for t in batch]
    for backend in ("tensorized", "online", "multiscale"):
        if backend != "tensorized":
            monkeypatch.setattr(like_geomloss, "matrix_losses", None)  # a matrix would be an error
        options = {"p": p, "blur": blur, "reach": reach, "debias": debias, "backend": backend, "tol": 1e-11}
        losses = SamplesLoss("sinkhorn", **options)(*inputs)
        potentials = SamplesLoss("sinkhorn", **options, potentials=True)(*inputs)
        found = [losses, *potentials, *torch.autograd.grad((losses * torch.tensor([1.0, 3.0])).sum(), inputs)]
        expected = expected or [t.detach() for t in found]
        for ours, theirs in zip(found, expected, strict=True):
            loose = (batch[0] == 0) * 1e-7 if ours.shape == batch[0].shape else torch.tensor(0.0)  # no mass, no error
            assert bool(((ours - theirs).abs() <= 1e-9 + 1e-8 * theirs.abs() + loose).all())


@pytest.mark.slow
def test_auto_forms_no_matrix_for_many_points(monkeypatch: pytest.MonkeyPatch) -> None:
    a, x, b, y = weighted(3, 150, 140, 3)
    dense = SamplesLoss()(a, x, b, y), divergence(x, y, a, b, reg=0.05)
    monkeypatch.setattr(like_geomloss, "ONLINE_ABOVE", 140**2)
    monkeypatch.setattr(like_geomloss, "matrix_losses", None)
    np.testing.assert_allclose((SamplesLoss()(a, x, b, y), divergence(x, y, a, b, reg=0.05)), dense, rtol=1e-8)
    assert SamplesLoss()(a.float(), x.float(), b.float(), y.float()).dtype == torch.float32
    with pytest.raises(TypeError):  # a cost of one's own needs one
        SamplesLoss(cost=lambda x, y: torch.cdist(x, y))(a, x, b, y)
    inputs = [t.requires_grad_() for t in weighted(2, 4, 3)]
    monkeypatch.setattr(like_geomloss, "ONLINE_ABOVE", 1)

    def function(a: Tensor, x: Tensor, b: Tensor, y: Tensor) -> Tensor:
        return divergence(x, y, a.softmax(0), b.softmax(0), reg=0.1, tol=1e-12)

    assert torch.autograd.gradcheck(function, inputs, eps=1e-5, atol=1e-6)


@pytest.mark.slow
def test_second_derivatives_of_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(like_geomloss, "ONLINE_ABOVE", 1)

    def function(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return divergence(x + 3, y, a.softmax(0), b.softmax(0), reg=0.1, tol=1e-13)

    inputs = [t.requires_grad_() for t in (*cubes(6, 5, 2), masses(6, 1), masses(5, 2))]
    assert gradgradcheck(function, inputs, eps=1e-5, atol=1e-6)
    once, twice = grad(function(*inputs), inputs), grad(function(*inputs), inputs, create_graph=True)
    close(twice, once, 1e-12)


def test_the_forward_pass_makes_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are paid for when they are asked for, and those only."""
    products: list[Any] = []
    found = debiased.cost_slope
    monkeypatch.setattr(debiased, "cost_slope", lambda *args: products.append(args) or found(*args))
    x, y = cubes(60, 50)
    loss = SamplesLoss(backend="online")(x.requires_grad_(), y)
    assert len(products) == 0
    loss.backward()
    assert len(products) == 2  # with the plans of OT(α, β) and OT(α, α)


@pytest.mark.parametrize("options", [{}, {"p": 1}, {"reach": 0.3}])
def test_float32_has_the_digits_it_is_asked_for(options: dict[str, Any]) -> None:
    """At the default tol of float32 the loss is right to six digits, its gradient to three and more."""
    x, y = cubes(150, 120)
    exact, rough = ([t.to(dtype).requires_grad_() for t in (x, y + 0.2)] for dtype in (torch.float64, torch.float32))
    loss = SamplesLoss(backend="online", blur=0.1, **options)
    ours, theirs = loss(*rough), loss(*exact)
    assert ours.dtype == torch.float32
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)
    for one, other in zip(grad(ours, rough), grad(theirs, exact), strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 1e-3


@pytest.mark.parametrize("reach", [None, 0.5])
def test_only_float32_input_is_led_by_passes_in_float32(reach: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    made, original = [], Stream.rough
    monkeypatch.setattr(Stream, "rough", lambda *given: made.append(original(*given)) or made[-1])
    for dtype, streams in ((torch.float64, 0), (torch.float32, 3)):  # between x and y, within x, within y
        x, y = (t.to(dtype) for t in cubes(40, 30))
        SamplesLoss(blur=0.3, reach=reach, backend="online")(x, y)
        assert len([t for t in made if t is not None]) == streams


@pytest.mark.parametrize("options", [{}, {"p": 1}, {"reach": 0.3}, {"p": 1, "reach": 0.3}])
@pytest.mark.parametrize("backend", ["online", "tensorized"])
def test_the_error_of_a_loss_is_of_second_order(backend: str, options: dict[str, Any]) -> None:
    x, y = cubes(150, 120)
    for debias in (True, False):
        rough, exact = (
            SamplesLoss(backend=backend, blur=0.1, debias=debias, tol=tol, **options)(x, y + 0.2).item()
            for tol in (3e-3, 1e-10)
        )
        assert abs(rough - exact) < 3e-3**2


def test_slopes_of_a_streamed_loss_along_a_direction() -> None:
    x, y = cubes(130, 110)
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).double()
    for options in ({"p": 1}, {"p": 2, "reach": 0.5}, {"p": 1, "reach": 0.5, "debias": False}):
        loss = SamplesLoss(backend="online", blur=0.2, tol=1e-11, **options)
        (g,) = grad(loss(at := x.clone().requires_grad_(), y), at)
        expected = slope(lambda z, loss=loss: loss(z, y), x, direction)
        assert float((g * direction).sum()) == pytest.approx(expected, rel=1e-6)
