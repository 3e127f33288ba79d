"""Exact transport of points on a GPU: the same optimum as on a CPU, in the caller's form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import otformer as of
from needs import missing

pytestmark = pytest.mark.gpu
pytest.importorskip("numba", reason=missing("exact"))


def clouds(kind, n, m, d, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "halos":  # clusters whose masses differ between the sides
        centre, mass = rng.random((20, d)), rng.lognormal(0, 1, 20)
        return tuple(centre[rng.choice(20, k, p=mass / mass.sum())] + 0.01 * rng.standard_normal((k, d)) for k in (n, m))
    if kind == "tails":
        return rng.standard_t(1.5, (n, d)), rng.standard_t(1.5, (m, d)) + 0.5
    if kind == "grid":
        return rng.integers(0, 8, (n, d)).astype(float), rng.integers(0, 8, (m, d)).astype(float)
    if kind == "ring":
        y = rng.standard_normal((m, d))
        return rng.standard_normal((n, d)), y / np.linalg.norm(y, axis=1, keepdims=True)
    return rng.random((n, d)), rng.random((m, d))


@pytest.mark.parametrize(("kind", "d"), [("cube", 2), ("cube", 3), ("cube", 16), ("ring", 2), ("grid", 3)])
def test_assignment(kind, d):
    x, y = clouds(kind, 700, 700, d)
    r = of.solve_sample(torch.tensor(x).cuda(), torch.tensor(y).cuda(), reg=0, tol=1e-12)
    C = cdist(x, y, "sqeuclidean")
    assert r.converged
    assert r.permutation.is_cuda
    assert float(r.value) == pytest.approx(C[linear_sum_assignment(C)].mean(), rel=1e-11)
    assert sorted(r.permutation.tolist()) == list(range(700))


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
def test_weights(metric):
    x, y = clouds("ring", 500, 420, 3)
    rng = np.random.default_rng(1)
    a, b = rng.random(500), rng.random(420)
    a, b = a / a.sum(), b / b.sum()
    here = of.solve_sample(x, y, a, b, reg=0, metric=metric)
    there = of.solve_sample(*(torch.tensor(t).cuda() for t in (x, y, a, b)), reg=0, metric=metric)
    assert there.converged
    assert float(there.value) == pytest.approx(here.value, rel=1e-10)
    assert there.plan.is_sparse
    assert there.marginal_error < 1e-12


@pytest.mark.parametrize("allow", ["equal", "different"])
def test_labels(allow):
    x, y = clouds("cube", 300, 300, 2)
    labels = np.arange(300) % 3
    there = of.solve_sample(torch.tensor(x).cuda(), torch.tensor(y).cuda(), reg=0, labels=(labels, labels), allow=allow)
    here = of.solve_sample(x, y, reg=0, labels=(labels, labels), allow=allow)
    assert float(there.value) == pytest.approx(here.value, rel=1e-12)


def test_gradient():
    x, y = (torch.tensor(t).cuda() for t in clouds("cube", 200, 150, 3))
    x.requires_grad_()
    (there,) = torch.autograd.grad(of.solve_sample(x, y, reg=0).value, x)
    x = x.detach().cpu().requires_grad_()
    (here,) = torch.autograd.grad(of.solve_sample(x, y.cpu(), reg=0).value, x)
    torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-12)


def test_rounded_streams():
    x, y = (torch.tensor(t).cuda() for t in clouds("cube", 3000, 2500, 3))
    r = of.solve_sample(x, y, reg=0.01, tol=1e-5, executor="stream").rounded()
    best = of.solve_sample(x, y, reg=0)
    assert r.bound <= float(best.value) * (1 + 1e-9)
    assert float(best.value) <= r.value * (1 + 1e-9)
    assert r.marginal_error < 1e-9


@pytest.mark.parametrize(("kind", "d"), [("halos", 3), ("tails", 6), ("halos", 200)])
@pytest.mark.parametrize("weighted", [False, True])
def test_mass_that_goes_far(kind, d, weighted):
    n, m = 2500, 1900 if weighted else 2500
    x, y = clouds(kind, n, m, d)
    rng = np.random.default_rng(1)
    a, b = (rng.dirichlet(np.ones(k)) if weighted else np.full(k, 1 / k) for k in (n, m))
    here = of.solve_sample(x, y, a, b, reg=0)
    there = of.solve_sample(*(torch.tensor(t).cuda() for t in (x, y, a, b)), reg=0)
    assert there.converged
    assert float(there.value) == pytest.approx(here.value, rel=1e-10)
    assert there.rounds <= 16


def test_products_find_what_the_kernel_finds(monkeypatch):
    from otformer.transport.costs.gpu import least

    x, y = (torch.tensor(t).cuda() for t in clouds("cube", 700, 450, 130))
    v = torch.rand(450, dtype=torch.float64, device="cuda")
    found = least.GpuPairs(x, y).least(v, 5, rows=True)
    monkeypatch.setattr(least, "PRODUCTS_FROM", 10**9)
    expected = least.GpuPairs(x, y).least(v, 5, rows=True)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=1e-12)
    assert (found[1] == expected[1]).float().mean() > 0.99
