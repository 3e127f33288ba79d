"""linear_sum_assignment and assignment against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import torch
from scipy.spatial.distance import cdist

import otformer as of
from otformer.transport.compat import like_scipy


@pytest.fixture(params=["scipy's", "ours"])
def way(request, monkeypatch):
    """Both ways, whatever the size."""
    monkeypatch.setattr(like_scipy, "OURS_FROM", 1 if request.param == "ours" else 10**9)
    monkeypatch.setattr(like_scipy, "ALIKE", 0.0)


def cost_matrix(seed):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 30, 2)
    m = n if seed % 3 == 0 else m
    C = [rng.random((n, m)), rng.integers(0, 5, (n, m)), 1e6 + rng.standard_normal((n, m)), -(rng.random((n, m)) ** 3)][
        seed % 4
    ]
    return C, rng


@pytest.mark.slow
@pytest.mark.usefixtures("way")
def test_assignments_are_scipys():
    for seed in range(300):
        C, _ = cost_matrix(seed)
        maximize = seed % 5 == 0
        rows, columns = of.linear_sum_assignment(C, maximize)
        expected = scipy.optimize.linear_sum_assignment(C, maximize)
        assert C[rows, columns].sum() == pytest.approx(C[expected].sum(), rel=1e-12, abs=1e-12), seed
        assert (np.diff(rows) > 0).all()
        assert len(rows) == len(columns) == min(C.shape)
        assert len(set(columns)) == len(columns)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_sums_beyond_the_largest_float(kind, maximize):
    """A power of two moves no optimum; scipy itself is 20 % off here."""
    C = np.random.default_rng(0).uniform(-1, 1, (80, 80))
    found = of.linear_sum_assignment(kind(C * 2.0**1023), maximize)
    assert C[found].sum() == pytest.approx(C[scipy.optimize.linear_sum_assignment(C, maximize)].sum(), rel=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("maximize", [False, True])
def test_forbidden_pairs(maximize):
    refused = 0
    for seed in range(200):
        C, rng = cost_matrix(seed)
        C = np.where(rng.random(C.shape) < 0.6, -np.inf if maximize else np.inf, C)
        try:
            expected = scipy.optimize.linear_sum_assignment(C, maximize)
        except ValueError:
            refused += 1
            with pytest.raises(ValueError, match="cost matrix is infeasible"):
                of.linear_sum_assignment(C, maximize)
            continue
        found = of.linear_sum_assignment(C, maximize)
        assert C[found].sum() == pytest.approx(C[expected].sum(), rel=1e-12, abs=1e-12), seed
    assert 10 < refused < 190


@pytest.mark.parametrize(("n", "m"), [(400, 400), (395, 400), (400, 395), (300, 700), (900, 250)])
def test_larger_assignments(n, m):
    C = np.random.default_rng(0).random((n, m))
    expected = C[scipy.optimize.linear_sum_assignment(C)].sum()
    assert C[of.linear_sum_assignment(C)].sum() == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("way")
def test_assignment_input():
    C = np.random.default_rng(0).random((6, 8))
    expected = scipy.optimize.linear_sum_assignment(C)
    found = of.linear_sum_assignment(torch.tensor(C, requires_grad=True))
    assert all(isinstance(t, torch.Tensor) and t.dtype == torch.int64 for t in found)
    assert [t.tolist() for t in found] == [t.tolist() for t in expected]
    low = torch.tensor(C).to(torch.bfloat16)
    exact = low.double().numpy()
    assert exact[of.linear_sum_assignment(low)].sum() == exact[scipy.optimize.linear_sum_assignment(exact)].sum()
    assert of.linear_sum_assignment([[True, False], [False, False]])[1].tolist() == [1, 0]
    for shape in ((0, 0), (0, 3), (3, 0)):
        assert [t.tolist() for t in of.linear_sum_assignment(np.zeros(shape))] == [[], []]
    for bad in (np.nan, -np.inf):
        with pytest.raises(ValueError, match="matrix contains invalid numeric entries"):
            of.linear_sum_assignment([[0.0, bad], [1.0, 0.0]])
    with pytest.raises(ValueError, match=r"cost must be a matrix \(n, m\), got shape \(3,\)"):
        of.linear_sum_assignment(np.zeros(3))
    with pytest.raises(ValueError, match="cost must be an array of numbers"):
        of.linear_sum_assignment([["a", "b"]])


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("n", [1, 30, 400])
def test_assignment(metric, n):
    rng = np.random.default_rng(n)
    x, y = rng.random((n, 3)), rng.random((n, 3)) + 0.1
    C = cdist(x, y, metric)
    expected = C[scipy.optimize.linear_sum_assignment(C)].sum()
    sigma = of.assignment(x, y, metric)
    assert sorted(sigma) == list(range(n))
    assert C[np.arange(n), sigma].sum() == pytest.approx(expected, rel=1e-12)
    tensors = of.assignment(torch.tensor(x), torch.tensor(y), metric)
    assert isinstance(tensors, torch.Tensor)
    assert tensors.tolist() == sigma.tolist()


def test_assignment_of_labels_and_none():
    x = [[0.0], [1.0]]
    assert of.assignment(x, x, labels=(["p", "q"], ["q", "p"])).tolist() == [1, 0]
    assert of.assignment(np.zeros((0, 2)), np.zeros((0, 2))).tolist() == []
    with pytest.raises(ValueError, match="equally many points"):
        of.assignment(x, [[0.0]])
    with pytest.raises(ValueError, match="metric must be one of"):
        of.assignment(x, x, "none")
    with pytest.raises(ValueError, match="X_a must be finite"):
        of.assignment([[np.nan], [0.0]], x)
