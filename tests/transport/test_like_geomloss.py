"""of.SamplesLoss and of.divergence against POT, finite differences, closed forms, and numbers from GeomLoss itself."""

import inspect

import geomloss
import numpy as np
import ot
import pytest
import torch

from oracles import pot_plan, problem
from otformer.transport.compat.like_geomloss import SamplesLoss, divergence
from otformer.transport.costs import matrix
from otformer.transport.costs.absorbed import Absorbed
from otformer.transport.variants import debiased


def clouds(seed=0, n=12, m=9, d=2):
    x, y, a, b = problem(seed, n, m, d)
    return [torch.tensor(t) for t in (a, x, b, y * 0.7)]


def cost(x, y, p):
    D = ot.dist(x.numpy(), y.numpy(), metric="euclidean")
    return D if p == 1 else D**2 / 2


def kl(p, q):
    return float((p * np.log(p / q) - p + q).sum())


def POT_OT(a, x, b, y, p, eps, rho):
    """OT(α, β) as GeomLoss defines it, from POT's plan."""
    M, a, b = cost(x, y, p), a.numpy(), b.numpy()
    if rho is None:
        P = pot_plan(M, a, b, eps)
        return (P * M).sum() + eps * kl(P, np.outer(a, b))
    P = ot.unbalanced.sinkhorn_unbalanced(a, b, M, eps, rho, numItermax=50_000, stopThr=1e-15)
    value = (P * M).sum() + eps * kl(P, np.outer(a, b)) + rho * kl(P.sum(1), a) + rho * kl(P.sum(0), b)
    return value + eps / 2 * (a.sum() + b.sum()) - eps * a.sum() * b.sum()  # GeomLoss leaves these masses out


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize(
    ("p", "blur", "reach"), [(2, 0.3, None), (2, 0.15, None), (1, 0.2, None), (2, 0.2, 0.5), (1, 0.2, 0.4)]
)
def test_values_equal_those_of_POTs_plans(p, blur, reach, debias):
    a, x, b, y = clouds(1)
    eps, rho = blur**p, None if reach is None else reach**p
    if reach:
        b = 1.4 * b
    expected = POT_OT(a, x, b, y, p, eps, rho)
    if debias:
        expected -= (POT_OT(a, x, a, x, p, eps, rho) + POT_OT(b, y, b, y, p, eps, rho)) / 2
    loss = SamplesLoss("sinkhorn", p=p, blur=blur, reach=reach, debias=debias)(a, x, b, y)
    assert float(loss) == pytest.approx(expected, abs=1e-9)


# From geomloss 0.3.1, SamplesLoss(..., diameter=1.00001 * blur, scaling=1 − 1e-8 or closer, backend="tensorized"): so many
# steps at the final blur that its own iteration has converged. The loss, and its gradient in x[0].
GEOMLOSS = [
    (2, 0.1, None, True, 0.06546804955167243, (0.007617430530770387, 0.03284675986434717)),
    (2, 0.1, None, False, 0.08149246018096007, (0.005293262920741818, 0.03400080518663002)),
    (2, 0.3, 0.5, True, 0.04936745726742307, (0.011926520661419969, 0.02203896712691008)),
    (2, 0.3, 0.5, False, 0.1072241087192254, (-0.002754936347741768, 0.02859324432578479)),
    (1, 0.1, None, False, 0.42478954678735525, (-0.0032678247438859553, 0.09159408176648898)),
    (1, 0.3, 0.5, False, 0.4053086258344445, (-0.013229080961378328, 0.055915430021289556)),
]


@pytest.mark.parametrize(("p", "blur", "reach", "debias", "value", "gradient"), GEOMLOSS)
def test_equals_GeomLoss(p, blur, reach, debias, value, gradient):
    a, x, b, y = clouds()
    loss = SamplesLoss("sinkhorn", p=p, blur=blur, reach=reach, debias=debias)(
        a, x.requires_grad_(), 1.3 * b if reach else b, y
    )
    assert loss.item() == pytest.approx(value, rel=1e-8)
    ours = torch.autograd.grad(loss, x)[0][0]
    # With reach, GeomLoss 0.3.1 returns (ρ + ε/2)/(ρ + ε) of the derivative: test_gradients has the derivative itself.
    short = 1.0 if reach is None else (reach**p + blur**p / 2) / (reach**p + blur**p)
    np.testing.assert_allclose(short * ours, gradient, rtol=1e-6)


def test_arguments_are_GeomLosss():
    """In its order and with its defaults; one of ours comes last."""
    ours, theirs = (
        [(each.name, each.default) for each in inspect.signature(kind).parameters.values()]
        for kind in (SamplesLoss, geomloss.SamplesLoss)
    )
    assert ours == [*theirs, ("tol", None)]


def test_potentials_are_GeomLosss_up_to_the_free_constant():
    a, x, b, y = clouds()
    F, G = SamplesLoss("sinkhorn", p=2, blur=0.1, potentials=True)(a, x, b, y)
    assert F.shape == a.shape
    assert G.shape == b.shape
    recorded = (-0.020922322780411166, 0.014087752315097412, 0.08319721420798096)
    np.testing.assert_allclose((F - (a * F).sum())[:3], recorded, rtol=1e-6)
    assert float((a * F).sum() + (b * G).sum()) == pytest.approx(0.06546804955167243, rel=1e-10)
    f, g = SamplesLoss("sinkhorn", p=2, blur=0.1, potentials=True, debias=False)(a, x, b, y)
    assert float((a * f).sum()) == pytest.approx(float((b * g).sum()), abs=1e-12)
    P = a[:, None] * b * ((f[:, None] + g - torch.tensor(cost(x, y, 2))) / 0.01).exp()
    np.testing.assert_allclose(P.sum(1), a, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize(("p", "blur", "reach"), [(2, 0.2, None), (1, 0.2, None), (2, 0.3, 0.5), (1, 0.3, 0.4)])
def test_gradients(p, blur, reach, debias):
    a, x, b, y = clouds(2, 4, 3)
    loss = SamplesLoss("sinkhorn", p=p, blur=blur, reach=reach, debias=debias, tol=1e-12)
    if reach:
        inputs = [t.requires_grad_() for t in (a, x, 1.3 * b, y)]
        assert torch.autograd.gradcheck(loss, inputs, eps=1e-5, atol=1e-6)
    else:  # weights of equal mass: the derivative is along changes that keep it

        def of_logits(s, x, t, y):
            return loss(s.softmax(-1), x, t.softmax(-1), y)

        inputs = [t.requires_grad_() for t in (a.log(), x, b.log(), y)]
        assert torch.autograd.gradcheck(of_logits, inputs, eps=1e-5, atol=1e-6)


def test_second_derivatives_are_refused():
    a, x, b, y = clouds(2)
    online = {"backend": "online"}
    refused = ({}, {"cost": lambda x, y: (x[:, :, None] - y[:, None]).square().sum(-1)})
    for options in (*refused, {"p": 1, **online}, {"reach": 0.5, **online}, {"debias": False, **online}):
        loss = SamplesLoss(**options)(a, x.requires_grad_(), b, y)
        with pytest.raises(RuntimeError, match="can be differentiated once only"):
            torch.autograd.grad(torch.autograd.grad(loss, x, create_graph=True)[0].square().sum(), x)


@pytest.mark.slow
def test_batches_are_the_problems_one_by_one():
    many = [clouds(seed, 14, 11, 3) for seed in range(4)]
    batch = [torch.stack(t) for t in zip(*many, strict=True)]
    batch[0][2, 3] = 0  # a point without mass
    batch[0][2] /= batch[0][2].sum()
    many[2][0] = batch[0][2]
    for options in ({"blur": 0.05}, {"blur": 0.1, "reach": 0.5}, {"p": 1, "debias": False}):
        losses = SamplesLoss("sinkhorn", **options)(*batch)
        assert losses.shape == (4,)
        np.testing.assert_allclose(losses, [SamplesLoss("sinkhorn", **options)(*one) for one in many], atol=1e-10)
    F, G = SamplesLoss(potentials=True)(*batch)
    assert (F.shape, G.shape) == ((4, 14), (4, 11))
    gone = torch.arange(14) != 3
    without = SamplesLoss()(batch[0][2][gone], batch[1][2][gone], batch[2][2], batch[3][2])
    assert float(SamplesLoss()(*many[2])) == pytest.approx(float(without), abs=1e-12)


@pytest.mark.slow
def test_shapes_and_dtypes_of_GeomLoss():
    a, x, b, y = (t.float() for t in clouds(3))
    loss = SamplesLoss(loss="sinkhorn", p=2, blur=0.05)
    assert loss(x, y).shape == ()
    assert loss(x, y).dtype == torch.float32
    assert loss(x[None], y[None]).shape == (1,)
    assert loss(a[:, None], x, b[:, None], y) == loss(a, x, b, y)
    uniform = loss(torch.full_like(a, 1 / 12), x, torch.full_like(b, 1 / 9), y)
    assert float(loss(x, y)) == pytest.approx(float(uniform), rel=1e-6)
    assert float(loss(x, y)) == pytest.approx(float(loss(x.double(), y.double())), rel=1e-6)


def test_weights_may_be_lists():
    a, x, b, y = clouds(3)
    for points in ((x, y), (x.float(), y.float())):
        α, β = a.to(points[0]), b.to(points[0])
        F, G = SamplesLoss(potentials=True)(a.tolist(), points[0], b[:, None].tolist(), points[1])
        expected = SamplesLoss(potentials=True)(α, points[0], β[:, None], points[1])
        assert (F.shape, G.shape) == ((12,), (9, 1))
        torch.testing.assert_close((F, G), expected)


def test_a_cost_of_ones_own():
    a, x, b, y = clouds(4)
    mine = SamplesLoss(cost=lambda x, y: ((x[:, :, None] - y[:, None]) ** 2).sum(-1) / 2, blur=0.2)
    assert float(mine(a, x, b, y)) == pytest.approx(float(SamplesLoss(blur=0.2)(a, x, b, y)), abs=1e-12)


@pytest.mark.slow
def test_gradient_flow_of_GeomLosss_example_is_the_exact_one():
    """Two intervals, p = 2 and a small blur: each point flows to its own target, x(t) − y shrinking by 1 − step."""
    t = torch.linspace(0, 1, 10)[:, None]
    start, y, step = 0.2 * t, 0.4 * t + 0.6, 0.2
    x, loss = start.clone().requires_grad_(), SamplesLoss("sinkhorn", p=2, blur=0.01)
    for _ in range(15):
        (g,) = torch.autograd.grad(loss(x, y), x)
        x.data -= step * len(x) * g
    torch.testing.assert_close(x.detach(), y + (start - y) * (1 - step) ** 15, atol=1e-3, rtol=0)


@pytest.mark.slow
def test_divergence_in_our_conventions():
    a, x, b, y = clouds(5)
    expected = 0.0
    for weight, (p, s, q, t) in ((1, (a, x, b, y)), (-0.5, (a, x, a, x)), (-0.5, (b, y, b, y))):
        M = ot.dist(s.numpy(), t.numpy())
        P = pot_plan(M, p, q, 0.1)
        expected += weight * ((P * M).sum() + 0.1 * (P * np.log(P)).sum())
    ours = divergence(x.numpy(), y.numpy(), a.numpy(), b.numpy(), reg=0.1)
    assert isinstance(ours, float)
    assert ours == pytest.approx(expected, abs=1e-10)
    assert ours == pytest.approx(2 * float(SamplesLoss(p=2, blur=0.05**0.5)(a, x, b, y)), abs=1e-12)
    tensors = [t.requires_grad_() for t in (x, y)]
    assert torch.autograd.gradcheck(lambda x, y: divergence(x, y, a, b, reg=0.1, tol=1e-12), tensors, eps=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("reg", [1e-3, 0.1, 10.0])
def test_divergence_is_zero_for_equal_measures_only(reg):
    a, x, _, _ = clouds(6)
    turned = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x.requires_grad_()
    nothing = divergence(x, x.detach()[turned], a, a[turned], reg=reg)
    assert abs(nothing.item()) < 1e-12
    assert float(torch.autograd.grad(nothing, x)[0].abs().max()) < 1e-6
    for size in (0.01, 0.1, 1.0):
        moved = x.detach() + size * torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
        assert divergence(x.detach(), moved, a, a, reg=reg).item() > 1e-6 * size


@pytest.mark.parametrize(("p", "blur"), [(2, 1e-3), (2, 0.05), (2, 1.0), (1, 1e-3), (1, 0.3)])
def test_self_transport_halves_its_error_at_any_blur(p, blur):
    """A crowd and one point far from it: Sinkhorn needs thousands of steps for this, the averaged step a few dozen."""
    x = torch.cat([clouds(7, 60)[1], torch.tensor([[5.0, 5.0]])])
    a = torch.full((61,), 1 / 61, dtype=x.dtype)
    C, eps = torch.tensor(cost(x, x, p))[None], blur**p
    passes = 0

    class Counting(Absorbed):
        def log_ratio(self, *args, **options):
            nonlocal passes
            passes += 1
            return super().log_ratio(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix, "Absorbed", Counting)
        kernel = matrix.MatrixCost(C, 0.0, float(C.max())).kernel(a.log()[None], a.log()[None], eps)
        f = debiased.Loss(eps, None, tol=1e-10, debias=True).within(kernel, a[None])[0]
    P = a[:, None] * a * ((f[:, None] + f - C[0]) / eps).exp()
    assert float((P.sum(1) - a).abs().sum()) < 1.1e-10
    assert passes < 50
    if blur == 1e-3 and p == 2:  # all points are far apart: the plan is the diagonal
        np.testing.assert_allclose(f, -eps / 2 * np.log(1 / 61), rtol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, x, b, y: SamplesLoss("energy"), "loss must be one of sinkhorn, got 'energy'"),
        (lambda a, x, b, y: SamplesLoss(p=3), "p must be one of 1, 2"),
        (lambda a, x, b, y: SamplesLoss(cost="Norm2(X-Y)"), "cost must be a function of two tensors"),
        (lambda a, x, b, y: SamplesLoss(blur=0), "blur must be a positive"),
        (lambda a, x, b, y: SamplesLoss(backend="cuda"), "backend must be one of"),
        (lambda a, x, b, y: SamplesLoss()(a, a, x, b, b, y), "cluster labels .* are not supported"),
        (lambda a, x, b, y: SamplesLoss()(x), "got 1 arguments"),
        (lambda a, x, b, y: SamplesLoss()(2 * a, x, b, y), "α and β must have the same sum, got 2 and 1"),
        (lambda a, x, b, y: SamplesLoss(backend="online")(2 * a, x, b, y), "α and β must have the same sum"),
        (lambda a, x, b, y: divergence(x, y, 2 * a, b), "a and b must have the same sum, got 2 and 1"),
        (lambda a, x, b, y: SamplesLoss()(x.float(), y), "x and y must have the same dtype, got torch.float32"),
        (lambda a, x, b, y: divergence(x, y.float()), "x and y must have the same dtype, got torch.float64"),
        (lambda a, x, b, y: divergence([[1e200]], [[0.0]]), "costs must be finite.* got costs up to inf, ε = 0.1"),
        (lambda a, x, b, y: SamplesLoss(backend="online")(1e200 * x, y), "costs must be finite"),
        (lambda a, x, b, y: SamplesLoss(reach=1.0)(1e200 * x, y), "costs must be finite"),
        (lambda a, x, b, y: SamplesLoss(cost=lambda x, y: torch.cdist(x, y) / 0)(x, y), "costs must be finite"),
        (lambda a, x, b, y: SamplesLoss(cost=lambda x, y: x)(x, y), r"shape \(1, 12, 9\), got \(1, 12, 2\)"),
        (lambda a, x, b, y: SamplesLoss(blur=1e-200), "blur² must be a positive"),
        (lambda a, x, b, y: SamplesLoss()(x, y[:, :1]), r"x and y must have the same dimension, got \(12, 2\) and \(9, 1\)"),
        (lambda a, x, b, y: SamplesLoss()(b, x, a, y), r"α must have shape \(12,\), got \(9,\)"),
        (lambda a, x, b, y: SamplesLoss()(0 * a, x, 0 * b, y), "α must have a positive sum"),
        (lambda a, x, b, y: SamplesLoss()(x[:0], y), "x and y must both have points, or neither, got 0 and 9"),
        (lambda a, x, b, y: divergence(x, y[:, :1]), "x and y must have the same dimension"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(*clouds())
