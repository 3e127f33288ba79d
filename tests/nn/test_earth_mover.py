"""EarthMover and emd_batch: values beside scipy's and POT's, gradients beside finite differences, all forms and dtypes."""

from __future__ import annotations

import re

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import otformer as of
from helpers.messages import refuses
from otformer.nn import EarthMover
from otformer.transport.ragged import clouds, listed

METRICS = ("sqeuclidean", "euclidean")


def family(name: str, n: int, m: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x, y = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    if name == "clustered":
        centres = rng.normal(size=(5, d))
        x, y = (centres[rng.integers(5, size=k)] + 0.01 * rng.normal(size=(k, d)) for k in (n, m))
    if name == "duplicates":
        x, y = x[rng.integers(1 + n // 4, size=n)], y[rng.integers(1 + m // 4, size=m)]
    if name == "grid":
        x, y = rng.integers(4, size=(n, d)).astype(float), rng.integers(4, size=(m, d)).astype(float)
    if name == "near":
        y = x[rng.permutation(n)[np.arange(m) % n]] + 1e-7 * rng.normal(size=(m, d))
    if name == "far":
        y = y + 1e4
    if name == "collapsed":
        y = 1e-5 * y
    if name == "huge":
        x, y = 1e120 * x, 1e120 * y
    if name == "tiny":
        x, y = 1e-120 * x, 1e-120 * y
    if name == "one place":
        x, y = np.ones((n, d)), np.ones((m, d))
    return x, y


FAMILIES = ["normal", "clustered", "duplicates", "grid", "near", "far", "collapsed", "huge", "tiny", "one place"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("n", "d"), [(1, 3), (2, 1), (7, 2), (130, 3), (300, 16)])
def test_costs_are_those_of_scipy_and_proved(name, metric, n, d):
    x, y = family(name, n, n, d, np.random.default_rng(n))
    C = cdist(x, y, metric)
    value = C[linear_sum_assignment(C)].mean()
    found = of.emd_batch(torch.from_numpy(x), torch.from_numpy(y), metric=metric)
    assert abs(float(found.cost) - value) <= 1e-10 * value
    assert 0 <= float(found.gap) <= 1e-10 * value
    assert sorted(found.permutation.tolist()) == list(range(n))
    assert abs(C[np.arange(n), found.permutation.numpy()].mean() - value) <= 1e-10 * value


@pytest.mark.parametrize("metric", METRICS)
def test_matrices_of_every_size_up_to_a_block_and_more(metric, monkeypatch):
    rng = np.random.default_rng(0)
    for n in (*range(1, 40), 63, 64, 65, 99, 100, 101, 257):
        monkeypatch.setattr(clouds, "STACKED_UP_TO", 300 * (n % 3 == 0))
        x, y = family("clustered" if n % 2 else "normal", n, n, 2, rng)
        C = cdist(x, y, metric)
        (found,) = clouds.match_clouds([clouds.Pair(x, y, np.ones(n), np.ones(n))], metric == "euclidean")
        value = C[linear_sum_assignment(C)].sum()
        assert abs(C[found.i, found.j].sum() - value) <= 1e-12 * value
        assert found.gap <= 1e-12 * value


def test_late_in_a_training_every_matching_is_proved_at_once(monkeypatch):
    """Rows without a list look like any others: their room holds what was there before."""
    monkeypatch.setattr(clouds, "solve_exact", None)
    rng, w = np.random.default_rng(0), np.full(256, 1 / 256)
    for _ in range(30):
        x = rng.normal(size=(256, 3))
        (found,) = clouds.match_clouds([clouds.Pair(x, x[::-1] + 0.05 * rng.normal(size=x.shape), w, w)], False)
        assert found.gap <= 1e-11


@pytest.mark.parametrize("seed", range(20))
def test_lists_and_floors_on_matrices_with_ties(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 90))
    C = rng.integers(0, 1 + seed, size=(n, n)).astype(float)
    on = listed.rows(C, np.zeros(n))
    listed.assign(on, listed.room(n))
    assert sorted(on.to) == list(range(n))
    assert C[np.arange(n), on.to].sum() == C[linear_sum_assignment(C)].sum()
    assert (on.to[on.back] == np.arange(n)).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["normal", "clustered", "duplicates", "grid", "near", "collapsed"])
@pytest.mark.parametrize("weighted", [False, True])
def test_unequal_sizes_and_weights_are_those_of_pot(name, metric, weighted):
    rng = np.random.default_rng(1)
    x, y = family(name, 40, 23, 3, rng)
    a, b = rng.dirichlet(np.ones(40)), rng.dirichlet(np.ones(23))
    a[3] = 0
    a /= a.sum()
    given = (torch.from_numpy(a), torch.from_numpy(b)) if weighted else (None, None)
    found = of.emd_batch(torch.from_numpy(x), torch.from_numpy(y), *given, metric=metric)
    w = (a, b) if weighted else (np.full(40, 1 / 40), np.full(23, 1 / 23))
    value = ot.emd2(*w, cdist(x, y, metric))
    assert abs(float(found.cost) - value) <= 1e-9 * value
    assert float(found.gap) <= 1e-10 * value
    assert found.permutation is None
    i, j, mass = (t.numpy() for t in found.pairs)
    np.testing.assert_allclose(np.bincount(i, mass, 40), w[0], atol=1e-12)
    np.testing.assert_allclose(np.bincount(j, mass, 23), w[1], atol=1e-12)


def ragged(dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    sizes = [(5, 5), (1, 4), (8, 8), (12, 3)]
    return [
        [torch.randn(k, 3, generator=g, dtype=torch.float64).to(dtype) for k in side] for side in zip(*sizes, strict=True)
    ]


def test_a_batch_a_list_and_masks_are_a_loop():
    xs, ys = ragged()
    alone = [of.emd_batch(x, y) for x, y in zip(xs, ys, strict=True)]
    together = of.emd_batch(xs, ys)
    torch.testing.assert_close(together.cost, torch.stack([one.cost for one in alone]), rtol=1e-15, atol=0)
    assert together.permutation is None
    x, y = (torch.full((4, 14, 3), torch.nan, dtype=torch.float64) for _ in range(2))
    x_mask, y_mask = torch.zeros(4, 14, dtype=torch.bool), torch.zeros(4, 14, dtype=torch.bool)
    for k in range(4):
        for full, mask, parts in ((x, x_mask, xs), (y, y_mask, ys)):
            at = torch.arange(len(parts[k])) + (k % 2)
            full[k, at], mask[k, at] = parts[k], True
    x.requires_grad_()
    masked = of.emd_batch(x, y, x_mask=x_mask, y_mask=y_mask)
    torch.testing.assert_close(masked.cost, together.cost, rtol=1e-15, atol=0)
    masked.cost.sum().backward()
    assert bool((x.grad[~x_mask] == 0).all())
    assert bool((x.grad[x_mask] != 0).any(1).all())
    for (i, j, _), k in zip(masked.pairs, range(4), strict=True):
        assert bool(x_mask[k, i].all())
        assert bool(y_mask[k, j].all())
    some = of.emd_batch(xs[::2], ys[::2]).permutation
    assert some.tolist()[0][5:] == [-1] * 3
    assert some[1].tolist() == alone[2].permutation.tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_gradients_are_those_of_finite_differences(metric):
    xs, ys = ragged()
    x, y = xs[2].requires_grad_(), ys[2].requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: of.emd_batch(x, y, metric=metric).cost, (x, y))
    assert torch.autograd.gradgradcheck(lambda x, y: of.emd_batch(x, y, metric=metric).cost, (x, y))
    x, y = xs[3].requires_grad_(), ys[3].requires_grad_()
    a, b = (torch.rand(k, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_() for k in (12, 3))

    def cost(x, y, a, b):
        return of.emd_batch(x, y, a, b * (a.sum() / b.sum()), metric=metric).cost

    assert torch.autograd.gradcheck(cost, (x, y, a, b))
    assert torch.autograd.gradcheck(lambda a: of.emd_batch(x.detach(), y.detach(), a).cost, a)
    assert torch.autograd.gradcheck(lambda b: of.emd_batch(x.detach(), y.detach(), b=b).cost, b)
    for moving in (x, a):
        with pytest.raises(RuntimeError, match="differentiated once only"):
            torch.autograd.grad(cost(x, y, a, b), moving, create_graph=True)


def test_a_weight_of_0_has_a_gradient_on_the_side_where_it_grows():
    x, y = torch.tensor([[0.0], [5.0]]).double(), torch.tensor([[1.0], [4.0]]).double()
    a = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([0.5, 0.5], dtype=torch.float64)

    def cost(a):
        return of.emd_batch(x, y, a, b).cost

    (slope,) = torch.autograd.grad(cost(a), a)
    step = torch.tensor([-1e-6, 1e-6], dtype=torch.float64)
    assert abs(float(cost(a.detach() + step) - cost(a.detach())) - float(slope @ step)) < 1e-12


@pytest.mark.parametrize("metric", METRICS)
def test_coinciding_points_have_gradient_0(metric):
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    loss = EarthMover(metric)(x, x.detach().flip(1))
    loss.backward()
    assert float(loss.detach()) == 0
    assert bool((x.grad == 0).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("metric", METRICS)
def test_every_dtype_is_computed_in_float64(dtype, metric):
    x, y = ([t.to(dtype) for t in side] for side in ragged())
    x[0].requires_grad_()
    found = of.emd_batch(x, y, metric=metric)
    exact = of.emd_batch([t.double() for t in x], [t.double() for t in y], metric=metric)
    assert found.cost.dtype == (dtype if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.cost, exact.cost.to(found.cost.dtype), rtol=0, atol=0)
    (own,) = torch.autograd.grad(found.cost.sum(), x[0])
    assert own.dtype == dtype
    assert bool(own.isfinite().all())
    half = torch.full((3, 2), 60000.0, dtype=torch.float16)
    assert float(of.emd_batch(half, -half).cost) == 2 * 120_000.0**2


def test_reductions_and_forms_of_the_module():
    x, y = torch.randn(4, 9, 2), torch.randn(4, 9, 2)
    cost = of.emd_batch(x, y).cost
    torch.testing.assert_close(EarthMover()(x, y), cost.mean())
    torch.testing.assert_close(EarthMover(reduction="sum")(x, y), cost.sum())
    torch.testing.assert_close(EarthMover(reduction="none")(x, y), cost)
    assert EarthMover()(x[0], y[0]).shape == ()
    assert of.emd_batch(x[0], y[0]).permutation.shape == (9,)
    assert not list(EarthMover().parameters())
    assert not EarthMover().state_dict()
    assert of.emd_batch(x[:0], y[:0]).cost.shape == (0,)
    assert EarthMover(reduction="sum")(x[:0], y[:0]) == 0
    assert "euclidean" in repr(EarthMover("euclidean"))


def test_no_grad_one_side_autocast_and_compile():
    x, y = torch.randn(3, 20, 3), torch.randn(3, 20, 3, requires_grad=True)
    with torch.no_grad():
        assert not EarthMover()(x, y).requires_grad
    loss = EarthMover()(x, y)
    (plain,) = torch.autograd.grad(loss, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(EarthMover()(x, y), loss)
    compiled = torch.compile(torch.nn.Sequential(torch.nn.Identity()), backend="eager")

    def step(x, y):
        return EarthMover()(compiled(x) * 1.0, y) * 2

    (twice,) = torch.autograd.grad(torch.compile(step, backend="eager")(x, y), y)
    torch.testing.assert_close(twice, 2 * plain)
    with refuses("x", "not be inside torch.func"):
        torch.func.vmap(EarthMover())(x, x)


def test_it_trains_a_cloud_onto_another():
    target = torch.randn(1, 64, 3, generator=torch.Generator().manual_seed(0))
    x = torch.zeros(1, 64, 3, requires_grad=True)
    for _ in range(30):
        loss = EarthMover(reduction="sum")(x, target)
        (slope,) = torch.autograd.grad(loss, x)
        with torch.no_grad():
            x -= 64 * 0.45 * slope
    assert float(loss.detach()) < 1e-10


NAN = torch.full((3, 4, 2), torch.nan)
GOOD = torch.randn(3, 4, 2)
BAD = torch.stack([GOOD[0], NAN[0], GOOD[2]])
NOT_THERE = torch.ones(3, 4, dtype=torch.bool)
NOT_THERE = NOT_THERE & torch.tensor([True, True, False])[:, None]


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("problem 1", "x", "finite"), lambda: of.emd_batch(BAD, GOOD)),
        (("problem 0", "y", "finite"), lambda: of.emd_batch(GOOD, BAD * torch.inf)),
        (("y", "finite"), lambda: of.emd_batch(GOOD[0], BAD[1])),
        (("problem 2", "x_mask", "no point"), lambda: of.emd_batch(GOOD, GOOD, x_mask=NOT_THERE)),
        (("x must have points, got none",), lambda: of.emd_batch(GOOD[:, :0], GOOD)),
        (("problem 1", "no point"), lambda: of.emd_batch([GOOD[0], GOOD[0][:0]], [GOOD[0], GOOD[0]])),
        (("x and y", "same batch"), lambda: of.emd_batch(GOOD, GOOD[:2])),
        (("x and y", "same batch and dimension"), lambda: of.emd_batch(GOOD, GOOD[..., :1])),
        (("at least one coordinate",), lambda: of.emd_batch(GOOD[..., :0], GOOD[..., :0])),
        (("x and y", "same batch"), lambda: of.emd_batch([GOOD[0]], [GOOD[0], GOOD[1]])),
        (("y", "float32", "float64"), lambda: of.emd_batch(GOOD, GOOD.double())),
        (("x", "tensor of floats", "int64"), lambda: of.emd_batch(GOOD.long(), GOOD)),
        (("x", "tensor of floats", "ndarray"), lambda: of.emd_batch(GOOD.numpy(), GOOD)),
        (("x", "at least one cloud"), lambda: of.emd_batch([], [])),
        (("x[1]", "shape (n, d)"), lambda: of.emd_batch([GOOD[0], GOOD[0, 0]], [GOOD[0], GOOD[0]])),
        (("x", "one dimension", "dimension 1"), lambda: of.emd_batch([GOOD[0], GOOD[0][:, :1]], [GOOD[0], GOOD[0]])),
        (("x_mask", "left out", "list"), lambda: of.emd_batch(list(GOOD), list(GOOD), x_mask=NOT_THERE)),
        (("x_mask", "boolean"), lambda: of.emd_batch(GOOD, GOOD, x_mask=torch.ones(3, 4))),
        (("a", "tensor of shape (3, 4)"), lambda: of.emd_batch(GOOD, GOOD, torch.ones(4))),
        (("a", "list"), lambda: of.emd_batch(list(GOOD), list(GOOD), torch.ones(3, 4))),
        (("a", "tensor"), lambda: of.emd_batch(GOOD, GOOD, [torch.ones(4)] * 3)),
        (("problem 0", "a", "negative"), lambda: of.emd_batch(GOOD, GOOD, -torch.ones(3, 4), torch.ones(3, 4))),
        (("a and b", "same sum"), lambda: of.emd_batch(GOOD, GOOD, torch.ones(3, 4), 2 * torch.ones(3, 4))),
        (("overflows", "float32"), lambda: of.emd_batch(GOOD * 1e30, GOOD)),
        (("metric", "sqeuclidean"), lambda: of.emd_batch(GOOD, GOOD, metric="squared")),
        (("reduction", "mean"), lambda: EarthMover(reduction="average")),
        (("x", "problem for a mean"), lambda: EarthMover()(GOOD[:0], GOOD[:0])),
    ],
)
def test_bad_input_is_one_line(words, call):
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    assert all(word in line for word in words), line


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_point_that_is_not_finite_is_refused_by_the_number_of_its_problem(dtype, value):
    x, y = torch.zeros(3, 4, 2, dtype=dtype), torch.zeros(3, 4, 2, dtype=dtype)
    x[1, 2, 0] = value
    for given, name in (((x, y), "x"), ((y, x), "y"), ((list(x), list(y)), "x")):
        with pytest.raises(ValueError, match=f"^problem 1: {name} must be finite"):
            of.nn.EarthMover()(*given)
