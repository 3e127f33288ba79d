"""The passes of streams of plain distances, and of pairs that labels allow: against the dense executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import otformer as of
from helpers.streams import centred, clouds
from oracles import pot_plan, squared_cost
from otformer.network.features import squared_euclidean
from otformer.transport.costs.clouds import Rule
from otformer.transport.costs.matrix import Dense
from otformer.transport.costs.tiles import Stream
from otformer.transport.solvers.blocks import coarse_to_fine, least_error

RULES = [Rule(root=True), *(Rule(root, (), same) for root in (False, True) for same in (True, False))]  # labels: below


def distances(x: Any, y: Any) -> Any:
    """‖x_i − y_j‖ with gradient 0 where it is 0, an array or a tensor as the points are."""
    squares = squared_cost(x, y)
    if isinstance(squares, np.ndarray):
        return np.sqrt(squares)
    return torch.where(squares > 0, torch.where(squares > 0, squares, 1.0).sqrt(), 0.0)


def labels(n: int, k: int, seed: int = 0) -> Tensor:
    return torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))


def both(rule: Rule, n: int, m: int, d: int, dtype: torch.dtype = torch.float64, k: int = 3) -> tuple[Dense, Stream, Rule]:
    """One problem for both executors; the dense one in float64, with infinite costs, from the numbers of the stream."""
    x, y = (t.to(dtype) for t in clouds(n, m, d))
    rule = rule if rule.labels is None else rule._replace(labels=(labels(n, k), labels(m, k, 1)))
    C = distances(x.double(), y.double()) if rule.root else squared_cost(x.double(), y.double())
    if rule.labels is not None:
        same = rule.labels[0][:, None] == rule.labels[1]
        C = torch.where(same if rule.same else ~same, C, torch.inf)
    logs = torch.full((n,), -np.log(n), dtype=dtype), torch.full((m,), -np.log(m), dtype=dtype)
    return Dense(C, *(t.double() for t in logs)), Stream(squared_euclidean(x, y), *logs, 5000, rule), rule


def duals(dense: Dense, reg: float) -> tuple[Tensor, Tensor]:
    v = 0.1 * torch.rand(dense.C.shape[1], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return -reg * dense.log_ratio(torch.zeros_like(dense.log_a), v, reg, rows=True), v


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("n", "m", "d", "reg"), [(7, 300, 2, 0.1), (301, 517, 3, 0.01), (700, 600, 1, 0.001), (129, 128, 20, 0.05)]
)
def test_passes_and_products_equal_the_dense_ones(rule: Rule, n: int, m: int, d: int, reg: float) -> None:
    dense, stream, rule = both(rule, n, m, d)
    u, v = duals(dense, reg)
    for rows in (True, False):
        ours, theirs = stream.log_ratio(u, v, reg, rows), dense.log_ratio(u, v, reg, rows)
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    P, C = dense.plan(u, v, reg), torch.where(dense.C.isinf(), 0.0, dense.C)
    apart = distances(*clouds(n, m, d))
    near = torch.where(apart > 0, P / apart, 0.0)
    right, left = (torch.randn(k, 2, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in (m, n))
    for ours, theirs in (
        (stream.products(u, v, reg, right, rows=True), P @ right),
        (stream.products(u, v, reg, left, rows=False), P.mT @ left),
        (stream.products(u, v, reg, right, inverse=True, rows=True), near @ right),
        (stream.products(u, v, reg, left, inverse=True, rows=False), near.mT @ left),
        (stream.cost_sums(u, v, reg, rows=True), (P * C).sum(1)),
        (stream.cost_sums(u, v, reg, rows=False), (P * C).sum(0)),
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)
    allowed = C[dense.C.isfinite()]
    assert float(allowed.max() - allowed.min()) <= stream.spread < 12 * float(C.max())


@pytest.mark.parametrize("rule", RULES)
def test_float32_stays_near_float64(rule: Rule) -> None:
    dense, stream, _ = both(rule, 301, 217, 3, torch.float32)
    u, v = (t.float() for t in duals(dense, 0.1))
    for rows in (True, False):
        expected = dense.log_ratio(u.double(), v.double(), 0.1, rows)
        torch.testing.assert_close(stream.log_ratio(u, v, 0.1, rows).double(), expected, rtol=0, atol=2e-5)
        torch.testing.assert_close(stream.log_ratio(u.double(), v.double(), 0.1, rows), expected, rtol=0, atol=2e-5)
    if rule.root:  # of squared distances it is without p and q
        again = both(rule, 301, 217, 3)[1].rough(True, 0.0).log_ratio(u, v, 0.1, rows=True)
        torch.testing.assert_close(again, stream.log_ratio(u, v, 0.1, rows=True), rtol=0, atol=2e-5)


def test_a_row_without_an_allowed_pair_has_no_mass_and_forbidden_pairs_none_exactly() -> None:
    x, y = clouds(300, 200, 2)
    own, other = labels(300, 3), labels(200, 3, 1)
    own[:5] = 7
    logs = torch.zeros(300, dtype=torch.float64), torch.zeros(200, dtype=torch.float64)
    stream = Stream(squared_euclidean(x, y), *logs, rule=Rule(labels=(own, other)))
    ratio = stream.log_ratio(*logs, 0.01, rows=True)
    assert ratio.isneginf().nonzero()[:, 0].tolist() == list(range(5))
    P = stream.products(*logs, 0.01, torch.eye(200, dtype=torch.float64), rows=True)
    assert float(P[own[:, None] != other].abs().max()) == 0


def test_cost_sums_of_clouds_far_apart_are_those_of_the_points_given() -> None:
    """Squared distances of about 3·10⁶, which clouds about the origin do not have."""
    x, y = clouds(30, 40, 3)
    y = y + 1000
    stream = Stream(squared_euclidean(x, y), x[:, 0] * 0, y[:, 0] * 0)
    C = squared_cost(x, y)
    u, v = C.amin(1), C[0] - C[0].amin()
    P = ((u[:, None] + v - C) / 10 - 1).exp()
    torch.testing.assert_close(stream.cost_sums(u, v, 10.0, rows=True), (P * C).sum(1), rtol=1e-9, atol=0)


def test_plain_distances_of_clouds_far_apart_move_both_alike() -> None:
    x, y = clouds(50, 40, 2)
    x, y = x + 5, y + 9
    zero = torch.zeros(50, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    near_x, near_y, p, q = centred(x, y, *zero, Rule(root=True))
    torch.testing.assert_close(distances(near_x, near_y), distances(x, y), rtol=1e-14, atol=0)
    assert float(p.abs().max()) == float(q.abs().max()) == 0
    found = of.solve_streamed(x, y, reg=0.1, cost="euclidean", tol=1e-10)
    expected = pot_plan(distances(x, y) - 3, None, None, 0.1)
    torch.testing.assert_close(found.plan.dense(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rule", RULES[1:])
def test_tiles_of_labels_that_do_not_match_are_left_out(rule: Rule) -> None:
    """Clusters of one label each: rows of equal labels look at their own, others leave it out."""
    x, y = clouds(1280, 1280, 2)
    at = torch.arange(1280) // 128
    x, y = (t / 10 + at[:, None] for t in (x, y))
    rule = rule._replace(labels=(at, at))
    stream = Stream(squared_euclidean(x, y), x[:, 0] * 0, y[:, 0] * 0, rule=rule)
    looked = [
        len(places) for _, chunks in stream._tiles(stream.x, stream.y, y[:, 0] * 0, 100.0, None) for places, *_ in chunks
    ]
    assert sum(looked) == (1280 if rule.same else 9 * 1280)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 3])
def test_stages_on_fewer_points_lead_to_the_plan_for_plain_distances(d: int) -> None:
    x, y = clouds(4500, 4200, d)
    logs = (torch.full_like(t[:, 0], 1 / len(t)).log() for t in (x, y))
    stream = Stream(squared_euclidean(x, y), *logs, rule=Rule(root=True))
    thin = stream.thinned(3, 4)
    assert (len(thin.log_a), len(thin.log_b), thin.rule.root) == (1500, 1050, True)
    assert float(thin.x.shift.abs().max()) == 0
    *_, error, layers = least_error(coarse_to_fine(stream, 0.01 * stream.spread, 1e-3, 200), 1e-3)
    assert error < 1e-3
    assert layers < 200
