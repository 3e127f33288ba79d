"""linear_sum_assignment of many matrices against a loop over scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch

import otformer as of
from otformer.transport.compat import like_scipy

DRAWS = {
    "uniform": lambda rng, n, m: rng.random((n, m)),
    "ties": lambda rng, n, m: rng.integers(0, 4, (n, m)).astype(float),
    "constant": lambda rng, n, m: np.full((n, m), rng.integers(-2, 3), float),
    "products": lambda rng, n, m: np.outer(rng.standard_normal(n), rng.standard_normal(m)),
    "shifted": lambda rng, n, m: 1e6 + rng.standard_normal((n, m)),
    "tiny": lambda rng, n, m: 1e-200 * rng.random((n, m)),
    "huge": lambda rng, n, m: 1e305 * rng.standard_normal((n, m)),
    "duplicates": lambda rng, n, m: abs(np.subtract.outer(rng.integers(0, 3, n) / 7, rng.integers(0, 3, m) / 7)),
    "nearly a permutation": lambda rng, n, m: 1.0 + 0.1 * rng.random((n, m)) - np.eye(n, m)[rng.permutation(n)],
    "forbidden": lambda rng, n, m: np.where(rng.random((n, m)) < 0.3, np.inf, rng.integers(0, 9, (n, m))),
    "hardly allowed": lambda rng, n, m: np.where(rng.random((n, m)) < 0.7, np.inf, rng.random((n, m))),
}


def draws(count, seed, most=12):
    """Matrices of all families, with no rows or no columns at times."""
    rng = np.random.default_rng(seed)
    names = list(DRAWS)
    return [DRAWS[names[k % len(names)]](rng, *rng.integers(0, most, 2)) for k in range(count)]


def by_scipy(C, maximize=False):
    """Pairs, or None where there are none."""
    try:
        return scipy.optimize.linear_sum_assignment(C, maximize)
    except ValueError:
        return None


def feasible(costs):
    return [C for C in costs if by_scipy(C) is not None]


def check(C, found, expected):
    """A matching of as many pairs, its rows in order, of the same cost."""
    rows, columns = (np.asarray(t) for t in found)
    assert len(rows) == len(columns) == min(C.shape) == len(set(columns.tolist()))
    assert (np.diff(rows) > 0).all()
    assert rows.dtype == columns.dtype == np.int64
    best = C[expected]
    with np.errstate(over="ignore"):
        scale = abs(best).max(initial=0.0) or 1.0
    assert (C[rows, columns] / scale).sum() == pytest.approx((best / scale).sum(), rel=1e-12, abs=1e-12)


@pytest.mark.slow
def test_ten_thousand_are_scipys():
    for seed, most in ((0, 12), (1, 40)):
        costs = feasible(draws(12_000 if seed == 0 else 1_000, seed, most))
        assert len(costs) > (9_500 if seed == 0 else 700)
        for C, found in zip(costs, of.linear_sum_assignment(costs), strict=True):
            check(C, found, by_scipy(C))


def test_none_of_them_needs_another_solver(monkeypatch):
    """Where costs are of one size the compiled loop proves all that it finds."""
    monkeypatch.setattr(like_scipy, "of_matrix", None)
    rng = np.random.default_rng(2)
    for name in ("uniform", "ties", "constant", "products", "shifted", "tiny", "duplicates", "nearly a permutation"):
        costs = [DRAWS[name](rng, *rng.integers(1, 60, 2)) for _ in range(60)]
        for C, found in zip(costs, of.linear_sum_assignment(costs), strict=True):
            check(C, found, by_scipy(C))


def test_few_of_each_family():
    costs = feasible(draws(220, 3))
    for C, found in zip(costs, of.linear_sum_assignment(costs), strict=True):
        check(C, found, by_scipy(C))
    for C, found in zip(costs, of.linear_sum_assignment([-C for C in costs], maximize=True), strict=True):
        check(C, found, by_scipy(C))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.int64])
def test_dtypes(dtype):
    rng = np.random.default_rng(4)
    costs = [torch.tensor(rng.integers(-9, 9, rng.integers(1, 8, 2))).to(dtype) for _ in range(40)]
    for C, (i, j) in zip(costs, of.linear_sum_assignment(costs), strict=True):
        assert i.dtype == j.dtype == torch.int64
        C = C.double().numpy()
        check(C, (i, j), by_scipy(C))
    stack = torch.stack([C[:1, :1] for C in costs])
    assert of.linear_sum_assignment(stack).tolist() == [[0]] * 40


def test_numbers_of_every_kind_in_one_list():
    C = [[4, 1, 3], [2, 0, 5], [3, 2, 2]]
    given = [C, np.array(C, np.float16), torch.tensor(C), torch.tensor(C).bool(), np.array(C, bool), np.array(C).T]
    for found, each in zip(of.linear_sum_assignment(given), given, strict=True):
        numbers = np.asarray(each, float)
        check(numbers, found, by_scipy(numbers))
    learning = torch.tensor(C, dtype=torch.float32, requires_grad=True)
    assert [t.tolist() for t in of.linear_sum_assignment([learning])[0]] == [[0, 1, 2], [1, 0, 2]]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_a_stack_gives_the_column_of_every_row(kind):
    rng = np.random.default_rng(5)
    for n, m in ((5, 5), (3, 7), (7, 3), (1, 4), (4, 1), (6, 0), (0, 6)):
        C = rng.integers(0, 5, (20, n, m)).astype(float)
        found = of.linear_sum_assignment(kind(C))
        assert isinstance(found, torch.Tensor if kind is torch.as_tensor else np.ndarray)
        assert tuple(found.shape) == (20, n)
        for own, columns in zip(C, np.asarray(found), strict=True):
            rows = np.flatnonzero(columns >= 0)
            assert (columns[columns < 0] == -1).all()
            check(own, (rows, columns[rows]), by_scipy(own))


def test_padding_is_not_read():
    rng = np.random.default_rng(6)
    C, rows, columns = rng.random((30, 6, 9)), rng.integers(0, 7, 30), rng.integers(0, 10, 30)
    for k in range(30):
        C[k, rows[k] :], C[k, :, columns[k] :] = np.nan, -np.inf
    expected = of.linear_sum_assignment([C[k, : rows[k], : columns[k]] for k in range(30)])
    stacks = (
        of.linear_sum_assignment(C, row_sizes=rows, col_sizes=columns),
        of.linear_sum_assignment(
            torch.tensor(C).mT.contiguous().mT, row_sizes=torch.tensor(rows), col_sizes=columns.tolist()
        ),
    )
    for found in stacks:
        for own, (i, j) in zip(np.asarray(found), expected, strict=True):
            assert np.flatnonzero(own >= 0).tolist() == i.tolist()
            assert own[i].tolist() == j.tolist()


def test_nothing_is_a_batch_too():
    assert of.linear_sum_assignment([]) == []
    assert of.linear_sum_assignment(torch.zeros(0, 3, 4)).shape == (0, 3)
    assert of.linear_sum_assignment(np.zeros((0, 3, 4)), row_sizes=[], col_sizes=[]).shape == (0, 3)
    assert [len(i) for i, _ in of.linear_sum_assignment([np.zeros((0, 0)), np.zeros((0, 3)), np.zeros((3, 0))])] == [0, 0, 0]


def test_costs_of_very_different_size_go_to_whole_numbers():
    """As few dear pairs as can be, and then the least sum of the others, in eighths, for which 1e15 leaves no room."""
    rng = np.random.default_rng(7)
    dear, eighths = rng.random((12, 6, 6)) < 0.6, rng.integers(1, 9, (12, 6, 6))
    found = of.linear_sum_assignment(np.where(dear, 1e15, eighths / 8))
    whole = np.where(dear, 1000, eighths)  # the same order, in numbers that scipy adds exactly
    for C, columns in zip(whole, found, strict=True):
        assert C[np.arange(6), columns].sum() == C[by_scipy(C)].sum()


def test_large_ones_and_threads():
    rng = np.random.default_rng(8)
    costs = [rng.random(shape) for shape in ((600, 600), (5, 2000), (520, 700), *[(300, 40)] * 60)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        found = of.linear_sum_assignment(costs)
    finally:
        torch.set_num_threads(before)
    for C, pairs in zip(costs, found, strict=True):
        check(C, pairs, by_scipy(C))


def test_long_paths_of_a_large_one_are_left_to_sparse_graphs():
    x, y = np.random.default_rng(9).random((2, 530))
    C = np.outer(x, y)
    ((i, j),) = of.linear_sum_assignment([C])
    assert C[i, j].sum() == pytest.approx(np.sort(x) @ np.sort(y)[::-1], rel=1e-12)


def test_where_scipy_finds_none_there_is_none():
    refused = [C for C in draws(1_000, 10) if by_scipy(C) is None]
    assert len(refused) > 10
    for C in refused:
        with pytest.raises(ValueError, match="problem 1: cost matrix is infeasible"):
            of.linear_sum_assignment([np.eye(2), C])


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("together", [list, "stack"])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.nan, "problem 3: matrix contains invalid numeric entries"),
        (-np.inf, "problem 3: matrix contains invalid numeric entries"),
        (np.inf, "problem 3: cost matrix is infeasible"),
    ],
)
def test_a_bad_problem_is_named(kind, together, bad, message):
    C = np.ones((6, 3, 3))
    C[3, 1] = bad
    given = [kind(each) for each in C] if together is list else kind(C)
    with pytest.raises(ValueError, match=message):
        of.linear_sum_assignment(given)


def test_bad_input_is_one_line():
    C = np.zeros((2, 3, 4))
    refused = {
        r"row_sizes must be 2 whole numbers, got shape \(3,\) of int64": lambda: of.linear_sum_assignment(
            C, row_sizes=[1, 2, 3]
        ),
        "row_sizes must be 2 whole numbers": lambda: of.linear_sum_assignment(C, row_sizes=[1.0, 2.0]),
        "row_sizes must be from 0 to 3, got 4 for problem 1": lambda: of.linear_sum_assignment(C, row_sizes=[1, 4]),
        "col_sizes must be from 0 to 4, got -1 for problem 0": lambda: of.linear_sum_assignment(C, col_sizes=[-1, 4]),
        "row_sizes and col_sizes must be left out": lambda: of.linear_sum_assignment(C[0], row_sizes=[1]),
        r"cost\[1\] must be a matrix \(n, m\), got shape \(3,\)": lambda: of.linear_sum_assignment([C[0], np.zeros(3)]),
        r"cost\[1\] must be an array of numbers": lambda: of.linear_sum_assignment([C[0], [["a"]]]),
        r"cost must be a matrix \(n, m\), got shape \(1, 2, 3, 4\)": lambda: of.linear_sum_assignment(C[None]),
        "cost must be on one device": lambda: of.linear_sum_assignment(
            [torch.zeros(2, 2), torch.zeros(2, 2, device="meta")]
        ),
    }
    for message, call in refused.items():
        with pytest.raises(ValueError, match=message):
            call()
