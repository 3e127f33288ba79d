"""emd and emd2 against POT and finite differences."""

from __future__ import annotations

import warnings

import numpy as np
import ot
import pytest
import scipy.optimize
import scipy.sparse
import torch
from scipy.spatial.distance import cdist

import otformer as of


def draw(seed):
    """Weights with zeros at times, and a cost with ties at times; at least two points that have mass on each side."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 40, 2)
    n, m = (n, n) if seed % 4 == 0 else (n, m)
    a, b = rng.random(n) + 1e-3, rng.random(m) + 1e-3
    if seed % 3 == 0:
        a[2:][rng.random(n - 2) < 0.4] = 0
        b[2:][rng.random(m - 2) < 0.4] = 0
    M = [
        cdist(rng.random((n, 2)), rng.random((m, 2)), "sqeuclidean"),
        rng.standard_normal((n, m)),
        rng.integers(-3, 4, (n, m)).astype(float),
    ][seed % 5 % 3]
    return ([], [], M) if seed % 7 == 0 else (a / a.sum(), b / b.sum(), M)


def quietly(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def check_log(plan, log, a, b, M):
    """The plan is one, the potentials are feasible for all pairs and centred, and both have the same value."""
    n, m = M.shape
    a, b = np.full(n, 1 / n) if len(a) == 0 else a, np.full(m, 1 / m) if len(b) == 0 else b
    u, v, rounding = log["u"], log["v"], 1e-13 * (1 + abs(M[np.isfinite(M)]).max())
    np.testing.assert_allclose(plan.sum(1), a, atol=1e-14)
    np.testing.assert_allclose(plan.sum(0), b, atol=1e-14)
    assert (plan >= 0).all()
    assert (u[:, None] + v <= M + rounding).all()
    assert a @ u == pytest.approx(b @ v, abs=rounding)
    assert a @ u + b @ v == pytest.approx(log["cost"], abs=rounding)
    assert -rounding <= log["gap"] <= rounding
    assert (log["warning"], log["result_code"]) == (None, 1)


@pytest.mark.slow
def test_emd_equals_pot():
    for seed in range(300):
        a, b, M = draw(seed)
        plan, log = of.emd(a, b, M, log=True)
        _, theirs = quietly(ot.emd, a, b, M, log=True, numItermax=10**7)
        assert log["cost"] == pytest.approx(theirs["cost"], rel=1e-9, abs=1e-13), seed
        assert (plan * M).sum() == pytest.approx(log["cost"], rel=1e-12, abs=1e-14), seed
        assert of.emd2(a, b, M) == log["cost"], seed
        assert theirs.keys() < log.keys()
        check_log(plan, log, a, b, M)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["coo", "csr", "torch coo", "torch csr"])
def test_sparse(kind):
    """Pairs that are not held are forbidden; a plan that some pairs are known to allow exists."""
    for seed in range(60):
        a, b, M = draw(seed)
        rng = np.random.default_rng(seed)
        n, m = M.shape
        held = (rng.random((n, m)) < 0.4) | (of.emd(a, b, rng.random((n, m))) > 0)
        at = np.nonzero(held)
        S = scipy.sparse.coo_array((M[at], at), shape=(n, m))
        given = S if kind == "coo" else S.tocsr()
        if kind.startswith("torch"):
            given = torch.sparse_coo_tensor(np.stack(at), M[at], (n, m), check_invariants=False)
            given = given if kind.endswith("coo") else quietly(given.to_sparse_csr)
        plan, log = of.emd(a, b, given, log=True)
        assert plan.layout == torch.sparse_coo if kind.startswith("torch") else plan.format == "coo"
        plan = plan.to_dense().numpy() if kind.startswith("torch") else plan.toarray()
        log |= {side: np.asarray(log[side]) for side in "uv"}
        forbidden = np.where(held, M, np.inf)
        check_log(plan, log, a, b, forbidden)
        cost = float(of.emd2(a, b, given))
        assert cost == pytest.approx(of.emd2(a, b, forbidden), rel=1e-12, abs=1e-13)
        assert cost == pytest.approx(quietly(ot.emd2, a, b, np.where(held, M, 1e5), numItermax=10**6), rel=1e-7, abs=1e-9)


def test_sparse_gradient():
    M = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0], [2.0, 1.0, 0.0]], dtype=torch.float64).to_sparse_coo()
    M.requires_grad_()
    of.emd2([], [], M).backward()
    expected = of.emd([], [], M.detach())
    torch.testing.assert_close(M.grad.to_dense(), expected.to_dense())


def test_several_histograms_and_matrix():
    rng = np.random.default_rng(0)
    M, b = rng.random((5, 4)), rng.random((4, 3)) + 0.1
    b /= b.sum(0)
    theirs = ot.emd2([], b, M, log=True, return_matrix=True)
    ours = of.emd2([], b, M, log=True, return_matrix=True)
    assert len(ours) == 3
    for (cost, log), (their_cost, their_log) in zip(ours, theirs, strict=True):
        assert cost == pytest.approx(their_cost, rel=1e-12)
        np.testing.assert_allclose(log["G"], their_log["G"], atol=1e-14)
    np.testing.assert_allclose(of.emd2([], b, M), [cost for cost, _ in theirs])
    np.testing.assert_allclose(of.emd2([], b.tolist(), M), [cost for cost, _ in theirs])


def test_unequal_masses():
    rng = np.random.default_rng(0)
    a, b, M = rng.random(4), rng.random(6), rng.random((4, 6))
    with pytest.raises(ValueError, match="same sum"):
        of.emd(a, b, M)
    for w in (a, []):
        ours, theirs = (library.emd(w, b, M, check_marginals=False) for library in (of, ot))
        np.testing.assert_allclose(ours, theirs, atol=1e-14)


def test_warm_start_and_centring():
    rng = np.random.default_rng(0)
    M = rng.random((60, 50))
    plan, log = of.emd([], [], M, log=True)
    again, second = of.emd([], [], M, log=True, potentials_init=(log["u"], log["v"]))
    np.testing.assert_allclose(again, plan, atol=1e-15)
    assert second["cost"] == pytest.approx(log["cost"])
    S = scipy.sparse.csr_array(M)
    assert of.emd2([], [], S, potentials_init=(log["u"], log["v"])) == pytest.approx(log["cost"])
    raw = of.emd([], [], M, log=True, center_dual=False)[1]
    shift = log["u"] - raw["u"]
    np.testing.assert_allclose(shift, shift[0], atol=1e-14)
    np.testing.assert_allclose(raw["v"] - log["v"], shift[0], atol=1e-14)


def balanced_step(n, k):
    """A change of weights that keeps their sum."""
    step = torch.zeros(n, dtype=torch.float64)
    step[k % n] += 1e-6
    step[(k + 1) % n] -= 1e-6
    return step


@pytest.mark.parametrize("seed", range(10))
def test_gradients(seed):
    """Against differences, and against POT's, in all three at once."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 9, 2)
    a, b, M = (torch.tensor(t) for t in (rng.random(n) + 0.1, rng.random(m) + 0.1, rng.random((n, m))))
    a, b = a / a.sum(), b / b.sum()
    moving = [t.clone().requires_grad_() for t in (a, b, M)]
    of_a, of_b, of_M = torch.autograd.grad(of.emd2(*moving), moving)
    theirs = torch.autograd.grad(ot.emd2(*moving), moving)
    for ours, their in zip((of_a, of_b, of_M), theirs, strict=True):
        torch.testing.assert_close(ours, their, atol=1e-12, rtol=1e-10)
    for k in range(max(n, m)):
        step = balanced_step(n, k)
        change = of.emd2(a + step, b, M) - of.emd2(a - step, b, M)
        assert float(of_a @ step) == pytest.approx(float(change) / 2, rel=1e-5, abs=1e-13)
        step = balanced_step(m, k)
        change = of.emd2(a, b + step, M) - of.emd2(a, b - step, M)
        assert float(of_b @ step) == pytest.approx(float(change) / 2, rel=1e-5, abs=1e-13)
    step = 1e-7 * torch.tensor(rng.standard_normal((n, m)))
    change = of.emd2(a, b, M + step) - of.emd2(a, b, M - step)
    assert float((of_M * step).sum()) == pytest.approx(float(change) / 2, rel=1e-6)


def test_gradient_of_weights_alone():
    """A numpy cost, and several histograms, in float32."""
    M = np.random.default_rng(0).random((3, 4))
    b = torch.full((4, 2), 0.25, requires_grad=True)
    first, second = of.emd2([], b, M)
    (first + 2 * second).backward()
    v = of.emd([], b[:, 0].detach(), M, log=True)[1]["v"]
    np.testing.assert_allclose(b.grad[:, 1], 2 * (v - v.mean()), atol=1e-6)
    assert second.requires_grad


def test_forms():
    M = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    plan, log = of.emd([], [], M, log=True)
    assert plan.dtype == log["u"].dtype == torch.float32
    assert of.emd2([], [], M).ndim == 0
    assert of.emd([], [], M.numpy()).dtype == np.float32
    assert type(of.emd2([], [], M.numpy())) is float
    assert of.emd([], [], [[0, 1], [1, 0]]).tolist() == [[0.5, 0.0], [0.0, 0.5]]
    assert of.emd([], [], np.zeros((0, 0))).shape == (0, 0)
    assert of.emd2([], [], torch.zeros(0, 0, requires_grad=True)).item() == 0


def test_absent_points_with_forbidden_pairs():
    M = np.array([[0.0, 1.0, np.inf], [1.0, 3.0, np.inf], [np.inf, np.inf, np.inf]])
    plan, log = of.emd([0.5, 0.5, 0.0], [0.5, 0.5, 0.0], M, log=True)
    assert plan.tolist() == [[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert np.isfinite(log["u"]).all()
    assert np.isfinite(log["v"]).all()


NARROW = scipy.sparse.coo_array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])  # two rows for one column


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(a=[0.5, 0.5], b=[1.0], M=np.eye(2)), r"b must have shape \(2,\)"),
        (dict(a=[0.5, -0.5], b=[], M=np.eye(2)), "a must not be negative"),
        (dict(a=[], b=[], M=[[0.0, np.nan], [1.0, 0.0]]), "M must be finite"),
        (dict(a=[], b=[], M=scipy.sparse.coo_array([[1.0, np.nan], [1.0, 2.0]])), "M must hold finite numbers"),
        (dict(a=[], b=[], M=NARROW), "allow no plan with these marginals"),
        (dict(a=[0.5, 0.25, 0.25], b=[], M=NARROW), "allow no plan with these marginals"),
        (dict(a=[], b=[], M=np.zeros(3)), "M must have shape"),
        (dict(a=[], b=[], M=torch.zeros(0, 0).to_sparse()), "M must have shape"),
        (dict(a=[], b=[], M=np.eye(2), numItermax=0), "numItermax must be"),
        (dict(a=[], b=[], M=np.eye(2), numThreads="many"), "numThreads must be"),
        (dict(a=[], b=[], M=np.eye(2), potentials_init=([0.0], [0.0, 0.0])), "potentials must have shapes"),
        (dict(a=[], b=[0.0, 0.0], M=np.eye(2), check_marginals=False), "b must have a positive sum"),
        (dict(a=[], b=[], M=[[0.0, np.inf], [1.0, np.inf]]), "column 1"),
    ],
)
def test_bad_input(given, words):
    for function in (of.emd, of.emd2):
        with pytest.raises(ValueError, match=words):
            function(**given)
