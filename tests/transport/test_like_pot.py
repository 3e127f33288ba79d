"""of.sinkhorn and of.sinkhorn2 against ot.sinkhorn: what POT's own tests ask of it, and more, on the same inputs."""

import logging
import warnings

import numpy as np
import ot
import pytest
import torch

from oracles import pot_plan
from otformer.transport.compat.like_pot import sinkhorn, sinkhorn2

METHODS = ["sinkhorn", "sinkhorn_log", "greenkhorn", "sinkhorn_stabilized", "sinkhorn_epsilon_scaling"]


def clouds(seed, n, m, histograms=0):
    rng = np.random.default_rng(seed)
    a, b = rng.random(n) + 0.05, rng.random((m, histograms) if histograms else m) + 0.05
    return a / a.sum(), b / b.sum(0), ot.dist(rng.random((n, 2)), rng.random((m, 2)))


def gaussians(n=100):
    return ot.datasets.make_1D_gauss(n, m=30, s=10), ot.datasets.make_1D_gauss(n, m=40, s=10), ot.utils.dist0(n)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "m", "reg"), [(40, 40, 1.0), (30, 50, 0.1), (50, 30, 0.02)])
def test_plan_equals_POTs(method, n, m, reg):
    a, b, M = clouds(n, n, m)
    ours = sinkhorn(a, b, M, reg, method=method, stopThr=1e-12)
    theirs = pot_plan(M, a, b, reg)
    assert np.abs(ours - theirs).max() < 1e-11
    np.testing.assert_allclose(ours.sum(1), a, atol=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_empty_weights_are_uniform(method):
    x = np.random.default_rng(0).standard_normal((60, 2))
    M = ot.dist(x, x)
    G, log = sinkhorn([], [], M, 1, stopThr=1e-10, method=method, log=True)
    np.testing.assert_allclose(G, pot_plan(M, None, None, 1), atol=1e-11)
    assert log["err"][-1] < 1e-10


def test_numpy_in_numpy_out_torch_in_torch_out():
    a, b, M = clouds(1, 20, 25)
    assert type(sinkhorn(a, b, M, 0.1)) is np.ndarray
    assert type(sinkhorn(list(a), list(b), M.tolist(), 0.1)) is np.ndarray
    for dtype, atol in ((torch.float64, 1e-16), (torch.float32, 1e-8)):
        tensors = [torch.tensor(t, dtype=dtype) for t in (a, b, M)]
        G, log = sinkhorn(*tensors, 0.1, log=True)
        assert G.dtype == log["u"].dtype == log["log_v"].dtype == dtype
        np.testing.assert_allclose(G.numpy(), sinkhorn(*(t.double() for t in tensors), 0.1).numpy(), atol=atol)
        loss = sinkhorn2(*tensors, 0.1)
        assert loss.dtype == dtype
        assert loss.shape == ()
    assert sinkhorn(a.astype(np.float32), b, M.astype(np.float32), 0.1).dtype == np.float32
    assert isinstance(sinkhorn2(a, b, M, 0.1), float)  # np.float64 is one


@pytest.mark.parametrize("method", ["sinkhorn", "sinkhorn_log", "sinkhorn_stabilized"])
def test_several_histograms_give_the_losses(method):
    a, b, M = clouds(2, 30, 20, histograms=3)
    losses, log = sinkhorn(a, b, M, 0.1, method=method, stopThr=1e-10, log=True)
    np.testing.assert_allclose(losses, ot.sinkhorn(a, b, M, 0.1, stopThr=1e-12, numItermax=10_000), atol=1e-9)
    np.testing.assert_allclose(
        losses, [sinkhorn2(a, b[:, k], M, 0.1, method=method, stopThr=1e-10) for k in range(3)], atol=1e-9
    )
    np.testing.assert_allclose(sinkhorn2(a, b, M, 0.1, method=method, stopThr=1e-10), losses, atol=1e-14)
    plans = np.einsum("ik,ij,jk->ijk", log["u"], np.exp(-M / 0.1), log["v"])
    assert np.linalg.norm(plans.sum(0) - b) == pytest.approx(log["err"][-1], abs=1e-15)
    assert log["err"][-1] < 1e-10
    again, log = sinkhorn(a, b, M, 0.1, method=method, stopThr=1e-9, warmstart=log["warmstart"], log=True)
    assert log["niter"] == 0
    np.testing.assert_allclose(again, losses, atol=1e-8)


def test_log_has_the_scalings_and_the_errors():
    a, b, M = clouds(3, 25, 35)
    G, log = sinkhorn(a, b, M, 0.05, stopThr=1e-11, log=True)
    np.testing.assert_allclose(log["u"][:, None] * np.exp(-M / 0.05) * log["v"], G, atol=1e-15)
    np.testing.assert_allclose(np.log(log["u"]), log["log_u"], atol=1e-12)
    np.testing.assert_allclose(log["alpha"], 0.05 * log["logu"], atol=1e-15)
    np.testing.assert_allclose(log["u"].max(), log["v"].max())
    assert log["err"][-1] == pytest.approx(np.linalg.norm(G.sum(0) - b), abs=1e-16)
    assert 2 < len(log["err"]) <= log["niter"] + 2  # one of every step, from 0, and the plan's own
    _, theirs = ot.sinkhorn(a, b, M, 0.05, method="sinkhorn_log", stopThr=1e-13, numItermax=20_000, log=True)
    for name in ("log_u", "log_v"):  # POT's, up to the constant that is free
        gap = log[name] - theirs[name]
        assert np.ptp(gap) < 1e-8


@pytest.mark.parametrize("stopThr", [1e-3, 1e-6, 1e-12])
def test_stopThr_is_the_L2_norm_of_the_columns_and_is_honoured(stopThr):
    a, b, M = clouds(4, 60, 60)
    G, log = sinkhorn(a, b, M, 0.01, stopThr=stopThr, log=True)
    assert np.linalg.norm(G.sum(0) - b) < stopThr
    assert all(e >= stopThr for e in log["err"][:-2])  # and it did not go on for longer than asked


@pytest.mark.parametrize("method", METHODS)
def test_not_converged_warns_once_and_only_if_asked(method):
    a, b, M = gaussians()
    with pytest.warns(UserWarning, match="Sinkhorn did not converge"):
        _, log = sinkhorn(a, b, M, 1.0, method=method, stopThr=0, numItermax=1, log=True)
    assert log["niter"] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sinkhorn(a, b, M, 1.0, method=method, stopThr=0, numItermax=1, warn=False)
        sinkhorn2(a, b, M, 1.0, stopThr=0, numItermax=1)
        sinkhorn(a, b, M / M.max(), 0.1, method=method)
    with pytest.warns(UserWarning, match="Sinkhorn did not converge"):
        sinkhorn2(a, b, M, 1.0, stopThr=0, numItermax=1, warn=True)


def test_one_iteration_from_a_given_start_is_POTs():
    a, b, M = clouds(5, 20, 30)
    rng = np.random.default_rng(5)
    start = rng.standard_normal(20), rng.standard_normal(30)
    with pytest.warns(UserWarning, match="did not converge"):
        ours, log = sinkhorn(a, b, M, 0.3, numItermax=1, warmstart=start, log=True)
    K = np.exp(-M / 0.3)
    P = a[:, None] * K * np.exp(start[1]) / (K @ np.exp(start[1]))[:, None]
    np.testing.assert_allclose(ours, P, atol=1e-15)
    assert log["err"][0] == pytest.approx(np.linalg.norm(P.sum(0) - b))


@pytest.mark.parametrize("method", METHODS)
def test_warm_start_needs_one_iteration(method):
    a, b, M = clouds(6, 40, 40)
    a[3] = b[5] = 0
    a, b = a / a.sum(), b / b.sum()
    G, log = sinkhorn(a, b, M, 0.01, method=method, stopThr=1e-10, log=True)
    assert log["niter"] > 5
    again, log = sinkhorn(a, b, M, 0.01, method=method, stopThr=1e-9, warmstart=log["warmstart"], log=True)
    assert log["niter"] == 0
    np.testing.assert_allclose(again, G, atol=1e-9)


def test_POTs_scalings_are_a_warm_start():
    a, b, M = clouds(7, 30, 30)
    _, theirs = ot.sinkhorn(a, b, M, 0.05, stopThr=1e-12, numItermax=20_000, log=True)
    _, log = sinkhorn(a, b, M, 0.05, warmstart=(np.log(theirs["u"]), np.log(theirs["v"])), log=True)
    assert log["niter"] == 0


def test_zero_weights():
    a, b, M = clouds(8, 12, 15)
    a[[0, 7]] = 0
    b[4] = 0
    a, b = a / a.sum(), b / b.sum()
    G, log = sinkhorn(a, b, M, 0.05, stopThr=1e-12, log=True)
    np.testing.assert_allclose(G, pot_plan(M, a, b, 0.05), atol=1e-11)
    assert (G[a == 0] == 0).all()
    assert (G[:, b == 0] == 0).all()
    assert (log["u"][a == 0] == 0).all()
    assert (log["log_v"][b == 0] == -np.inf).all()


def test_small_reg_where_scalings_overflow():
    a, b, M = clouds(9, 40, 40)
    a = b = ot.unif(40)
    G, log = sinkhorn(a, b, M, 1e-4, log=True)
    assert np.linalg.norm(G.sum(0) - b) < 1e-9
    assert np.isfinite(log["log_u"]).all()
    assert np.isfinite(log["log_v"]).all()
    assert np.isinf(log["u"]).any() or (log["u"] == 0).any() or np.isinf(log["v"]).any() or (log["v"] == 0).any()
    np.testing.assert_allclose(np.exp(log["log_u"][:, None] + log["log_v"] - M / 1e-4), G, atol=1e-10)
    exact = ot.emd2(a, b, M)
    assert exact <= (G * M).sum() <= exact + 1e-4 * np.log(40 * 40)


@pytest.mark.slow
def test_reg_of_POTs_stabilization_test():
    a, b, M = gaussians()
    losses = [
        sinkhorn2(a, b, M, 1e-5, method=m, **kw) for m, kw in (("sinkhorn_log", {}), ("sinkhorn_stabilized", {"tau": 1}))
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert losses[0] == pytest.approx(ot.emd2(a, b, M), rel=0.01)


@pytest.mark.parametrize("which", ["M", "a", "b", "reg"])
def test_gradients_are_those_of_POTs_torch_backend(which):
    a, b, M = clouds(10, 8, 9)
    rng = np.random.default_rng(0)
    G = torch.tensor(rng.standard_normal((8, 9)))

    def gradients(solver, **options):
        inputs = {k: torch.tensor(t, dtype=torch.float64) for k, t in (("a", a), ("b", b), ("M", M), ("reg", 0.2))}
        inputs[which].requires_grad_()
        P = solver(*(inputs[k] for k in ("a", "b", "M", "reg")), stopThr=1e-13, **options)
        losses = (P * G).sum(), (P * inputs["M"]).sum()
        return [torch.autograd.grad(loss, inputs[which], retain_graph=True)[0] for loss in losses]

    ours = gradients(sinkhorn)
    theirs = gradients(ot.sinkhorn, method="sinkhorn_log", numItermax=3000)
    for mine, other in zip(ours, theirs, strict=True):
        if which in "ab":  # along changes that keep the mass: others leave the problem without a solution
            mine, other = mine - mine.mean(), other - other.mean()
        torch.testing.assert_close(mine, other, atol=1e-8, rtol=1e-7)


def test_gradient_of_several_losses_and_of_sinkhorn2():
    a, b, M = (torch.tensor(t) for t in clouds(11, 6, 7, histograms=2))
    M.requires_grad_()
    many = torch.autograd.grad(sinkhorn(a, b, M, 0.3, stopThr=1e-12).sum(), M)[0]
    one_by_one = sum(torch.autograd.grad(sinkhorn2(a, b[:, k], M, 0.3, stopThr=1e-12), M)[0] for k in range(2))
    torch.testing.assert_close(many, one_by_one)
    torch.testing.assert_close(torch.autograd.grad(ot.sinkhorn(a, b, M, 0.3, stopThr=1e-13).sum(), M)[0], many)


def test_verbose_goes_to_the_logger_not_to_the_screen(caplog, capsys):
    a, b, M = clouds(12, 10, 10)
    with caplog.at_level(logging.INFO, logger="otformer"):
        sinkhorn(a, b, M, 0.1, verbose=True)
    assert "iteration 0: error" in caplog.text
    assert capsys.readouterr().out == ""


def test_bad_input():
    a, b, M = clouds(13, 4, 5)
    with pytest.raises(ValueError, match="Unknown method 'new_method'"):
        sinkhorn(a, b, M, 0.1, method="new_method")
    for method in ("new_method", "greenkhorn", "sinkhorn_epsilon_scaling"):  # as in POT
        with pytest.raises(ValueError, match="Unknown method"):
            sinkhorn2(a, b, M, 0.1, method=method)
    with pytest.raises(ValueError, match="reg must be a positive"):
        sinkhorn(a, b, M, 0)
    with pytest.raises(ValueError, match="a and b must have the same sum"):
        sinkhorn(a, 2 * b, M, 0.1)
    with pytest.raises(ValueError, match=r"a must have shape \(4,\), got \(5,\)"):
        sinkhorn(b, a, M, 0.1)
    with pytest.raises(ValueError, match="numItermax must be a whole number"):
        sinkhorn(a, b, M, 0.1, numItermax=0)
    with pytest.raises(ValueError, match=r"warmstart must fit b of shape \(5,\), got \(4,\)"):
        sinkhorn(a, b, M, 0.1, warmstart=(b, a))
    with pytest.raises(TypeError, match="unknown argument stopthr"):
        sinkhorn(a, b, M, 0.1, stopthr=1e-3)
    with pytest.raises(ValueError, match="Unknown method None: it must be one of sinkhorn, "):
        sinkhorn(a, b, M, 0.1, method=None)
    for start in (3, (a,), "uv", (None, "v"), {"u": a}):
        with pytest.raises(ValueError, match=r"warmstart must be a pair of arrays \(log u, log v\), got "):
            sinkhorn(a, b, M, 0.1, warmstart=start)
    with pytest.raises(ValueError, match=r"M must have rows and columns, or neither, got shape \(0, 5\)"):
        sinkhorn([], b, np.zeros((0, 5)), 0.1)
    with pytest.raises(ValueError, match=r"b must have shape \(m,\) or \(m, k\) with k of at least 1, got \(5, 0\)"):
        sinkhorn(a, np.zeros((5, 0)), M, 0.1)
    with pytest.raises(ValueError, match="reg must be so large that cost/reg is finite"):
        sinkhorn(a, b, 1e200 * M, 1e-200)
