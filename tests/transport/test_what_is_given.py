"""What users of numpy, scipy and POT give: two precisions, no reg, sparse costs, functions of two rows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import ot
import pytest
import torch
from scipy.sparse import coo_array, csr_matrix
from scipy.spatial.distance import cdist

import otformer as of

RNG = np.random.default_rng(7)
X, Y = RNG.random((7, 3)), RNG.random((5, 3))
EXACT = float(ot.emd2([], [], cdist(X, Y, "sqeuclidean")))


def test_numpy_points_of_two_precisions_are_promoted():
    mixed = of.solve_sample(X, Y.astype(np.float32), reg=0.1)
    double = of.solve_sample(X, Y.astype(np.float32).astype(np.float64), reg=0.1)
    assert mixed.plan.dtype == np.float64
    np.testing.assert_array_equal(mixed.plan, double.plan)
    streamed = of.solve_sample(X, Y.astype(np.float16), reg=0.1, executor="stream")
    assert streamed.value == pytest.approx(of.solve_sample(X, Y.astype(np.float16).astype(float), reg=0.1).value, rel=1e-5)


def test_tensors_of_two_precisions_are_refused():
    with pytest.raises(ValueError, match="X_a and X_b must have one dtype and device"):
        of.solve_sample(torch.as_tensor(X), torch.as_tensor(Y).float())


def test_no_reg_is_exact():
    M = cdist(X, Y, "sqeuclidean")
    for found in (of.solve(M, reg=None), of.solve_sample(X, Y, reg=None), of.solve_batch([M], reg=None)[0]):
        assert isinstance(found, of.ExactResult)
        assert found.value == pytest.approx(EXACT, rel=1e-12)


@pytest.mark.parametrize("form", [csr_matrix, coo_array, lambda M: torch.as_tensor(M).to_sparse()])
def test_a_sparse_cost_forbids_the_pairs_it_does_not_hold(form):
    M = RNG.random((6, 6)) + 0.1
    M[RNG.random((6, 6)) < 0.5] = 0
    M[np.arange(6), np.arange(6)] = 1.0
    dense = np.where(M == 0, np.inf, M)
    found, expected = of.solve(form(M), reg=0.1), of.solve(dense, reg=0.1)
    assert found.value == pytest.approx(expected.value, rel=1e-5)
    i, j = np.nonzero(M == 0)
    assert np.asarray(found.plan.dense())[i, j].max() == 0
    assert of.solve(form(M), reg=0).value == pytest.approx(of.solve(dense, reg=0).value, rel=1e-12)


def by_rows(x, y):
    return abs(x - y).sum()


def by_all(X, Y):
    return abs(X[:, None] - Y).sum(2)


@pytest.mark.parametrize("as_given", [np.asarray, torch.as_tensor, lambda t: t.tolist()])
def test_a_metric_of_two_rows_is_one_of_all_points(as_given):
    expected = float(ot.emd2([], [], cdist(X, Y, "cityblock")))
    for metric in (by_rows, by_all):
        assert float(of.solve_sample(as_given(X), as_given(Y), reg=0, metric=metric).value) == pytest.approx(
            expected, rel=1e-9
        )


def test_a_metric_of_two_rows_has_gradients():
    x = torch.as_tensor(X).requires_grad_()
    found = [
        torch.autograd.grad(of.solve_sample(x, torch.as_tensor(Y), reg=0.1, metric=f).value, x)[0] for f in (by_rows, by_all)
    ]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (np.dot, "metric must mean the matrix of all points, or the cost of two rows"),
        (
            lambda x, y: np.zeros(3),
            r"metric must give a matrix of shape \(3, 3\) for all points, or a number for a row of each",
        ),
    ],
)
def test_a_metric_that_is_neither_is_refused(metric, said):
    with pytest.raises(ValueError, match=said):
        of.solve_sample(X[:3], Y[:3], metric=metric)


def test_the_error_of_a_metric_is_its_own():
    with pytest.raises(ZeroDivisionError):
        of.solve_sample(X, Y, metric=lambda x, y: 1 // 0)
    with pytest.raises(IndexError, match="index 7"):
        of.solve_sample(X, Y, metric=lambda x, y: x[..., 7])


def test_the_module_is_the_command():
    ran = subprocess.run([sys.executable, "-m", "otformer", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("otformer ")


def test_rooms_list_what_is_public():
    assert set(dir(of.words)) == set(of.words.__all__)
    assert set(dir(of.nn)) == set(of.nn.__all__)
