"""of.sinkhorn takes several ways through the code, by what its arguments are: all must give the same plan and error."""

import warnings

import numpy as np
import ot
import pytest
import torch

from oracles import pot_plan, slope
from otformer.transport.compat.like_pot import sinkhorn, sinkhorn2


def clouds(seed, n, m):
    rng = np.random.default_rng(seed)
    a, b = rng.random(n) + 0.05, rng.random(m) + 0.05
    return a / a.sum(), b / b.sum(), ot.dist(rng.random((n, 2)), rng.random((m, 2)))


def numbers(t):
    return t.detach().numpy() if isinstance(t, torch.Tensor) else np.asarray(t)


def kinds(a, b, M):
    """The same problem in every form that takes another way through the code."""
    tensors = [torch.tensor(t) for t in (a, b, M)]
    learning = [tensors[0], tensors[1], tensors[2].clone().requires_grad_()]
    padded = np.append(a, 0.0), np.append(b, 0.0), np.pad(M, (0, 1))
    return {
        "arrays": (a, b, M),
        "lists": (a.tolist(), b.tolist(), M.tolist()),
        "tensors": tensors,
        "learning": learning,
        "a point without mass": padded,
    }


@pytest.mark.parametrize("kind", ["arrays", "lists", "tensors", "learning", "a point without mass"])
@pytest.mark.parametrize(("n", "m"), [(5, 8), (8, 5)])
def test_a_plan_that_has_not_converged_is_not_called_converged(n, m, kind):
    rng = np.random.default_rng(0)
    a, b, M = kinds(np.full(n, 1 / n), rng.dirichlet(np.ones(m)), rng.random((n, m)))[kind]
    for iterations in (1, 3, 5):
        with pytest.warns(UserWarning, match="did not converge"):
            G, log = sinkhorn(a, b, M, 0.001, numItermax=iterations, log=True)
        G, left, right = (numbers(t) for t in (G, a, b))
        np.testing.assert_allclose(G.sum(1), left, atol=1e-15)  # rows are exact after every iteration
        assert log["err"][-1] == pytest.approx(np.linalg.norm(G.sum(0) - right), rel=1e-9)
        assert log["err"][-1] > 1e-3
        assert log["err"][-1] <= min(log["err"][:-1]) + 1e-15  # on the way: at least what it was
        cost, u, v = (numbers(t) for t in (M, log["log_u"], log["log_v"]))
        np.testing.assert_allclose(np.exp(u[:, None] + v - cost / 0.001), G, atol=1e-12)


@pytest.mark.parametrize("kind", ["arrays", "lists", "tensors", "learning", "a point without mass"])
@pytest.mark.parametrize(("n", "m"), [(5, 8), (8, 5), (60, 90)])
def test_every_kind_of_input_gives_the_same_plan_and_error(n, m, kind):
    a, b, M = clouds(n, n, m)
    expected = pot_plan(M, a, b, 0.05)
    G, log = sinkhorn(*kinds(a, b, M)[kind], 0.05, log=True)
    G = numbers(G)[:n, :m]
    np.testing.assert_allclose(G, expected, atol=1e-9)
    assert log["err"][-1] < 1e-9
    assert log["err"][-1] == pytest.approx(np.linalg.norm(G.sum(0) - b), abs=1e-16)
    heavier = b * (1 + 8e-6)  # sums that differ by more than rounding are an error of the plan, and said to be
    with pytest.warns(UserWarning, match="did not converge"):
        G, log = sinkhorn(*kinds(a, heavier, M)[kind], 0.05, log=True)
    G = numbers(G)[:n, :m]
    assert log["err"][-1] == pytest.approx(np.linalg.norm(G.sum(0) - heavier), rel=1e-6)
    assert log["err"][-1] == pytest.approx(8e-6 * np.linalg.norm(b), rel=1e-3)


def test_float32_weights_are_not_blamed_for_the_rounding_of_their_sums():
    a, b, M = (t.astype(np.float32) for t in clouds(14, 20, 30))
    b *= np.float32(1 + 2e-7)
    assert abs(float(a.astype(float).sum() - b.astype(float).sum())) > 1e-7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sinkhorn(a, b, M, 0.05)
        sinkhorn(*(torch.tensor(t) for t in (a, b, M)), 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lists", "learning", "a point without mass"])
def test_small_problems_take_newton_steps_whatever_they_are_made_of(kind):
    a, b, M = clouds(15, 20, 20)
    _, plain = sinkhorn(a, b, M, 0.005, log=True)
    _, log = sinkhorn(*kinds(a, b, M)[kind], 0.005, log=True)
    _, theirs = ot.sinkhorn(a, b, M, 0.005, method="sinkhorn_log", numItermax=20_000, log=True)
    assert log["niter"] <= plain["niter"] + 2 < theirs["niter"] / 5


@pytest.mark.parametrize("solver", [sinkhorn, sinkhorn2])
def test_a_gradient_makes_the_result_a_tensor_whatever_M_is(solver):
    a, b, M = clouds(10, 6, 7)
    weights = torch.tensor(a, requires_grad=True)
    reg = torch.tensor([0.2], dtype=torch.float64, requires_grad=True)  # with an axis, as parameters have
    for cost in (M, M.tolist(), torch.tensor(M)):
        for inputs in ((weights, b, cost, 0.2), (a, b, cost, reg), (weights, torch.tensor(b), cost, reg)):
            result, log = solver(*inputs, stopThr=1e-12, log=True)
            assert isinstance(log["log_u"], torch.Tensor)
            loss = (result * torch.tensor(M)).sum() if solver is sinkhorn else result
            learnt = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
            for t, gradient in zip(learnt, torch.autograd.grad(loss, learnt), strict=True):
                assert gradient.shape == t.shape
    (found,) = torch.autograd.grad(sinkhorn2(a, b, M, reg, stopThr=1e-13), reg)
    expected = slope(lambda reg: ot.sinkhorn2(a, b, M, reg, stopThr=1e-14, numItermax=10_000), 0.2)
    assert found.item() == pytest.approx(expected, rel=1e-6)
    with torch.no_grad():
        assert isinstance(sinkhorn(weights, b, M, 0.2), np.ndarray)
