"""Couplings against POT, scipy and counting, on ties, duplicates, far clusters, all scales, sizes and dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import chisquare

import otformer as of
from helpers.point_clouds import normal, squares_of
from otformer.nn.couplings import OTPlanSampler

FAR = 1e-4  # p-value below which counts are not of the probabilities that they should have; seeds are fixed


def far_clusters(n: int, d: int, seed: int) -> torch.Tensor:
    """Two clusters of size 1e-7, 2 apart: rounded squared norms hide what is inside of them."""
    sign = 2.0 * (torch.arange(n) % 2)[:, None] - 1
    return sign / d**0.5 + 1e-7 * normal(n, d, seed)


FAMILIES: dict[str, Any] = {
    "normal": lambda n, d: (normal(n, d, 1), normal(n, d, 2) + 3),
    "float32": lambda n, d: (normal(n, d, 1).float(), normal(n, d, 2).float()),
    "grid": lambda n, d: (normal(n, d, 1).round(), normal(n, d, 2).round()),
    "duplicates": lambda n, d: (normal(n, d, 1)[torch.arange(n) // 3], normal(n, d, 2)[torch.arange(n) // 5]),
    "the same points": lambda n, d: (normal(n, d, 1), normal(n, d, 1).flip(0)),
    "one place": lambda n, d: (torch.ones(n, d), torch.zeros(n, d)),
    "far clusters": lambda n, d: (far_clusters(n, d, 1), far_clusters(n, d, 2)),
    "far from 0": lambda n, d: (1e6 + normal(n, d, 1), 1e6 + normal(n, d, 2)),
    "tiny": lambda n, d: (1e-200 * normal(n, d, 1), 1e-200 * normal(n, d, 2)),
    "huge": lambda n, d: (1e200 * normal(n, d, 1), 1e200 * normal(n, d, 2)),
    "one huge": lambda n, d: (normal(n, d, 1) * 10.0 ** (12 * (torch.arange(n) == 0))[:, None], normal(n, d, 2)),
}


def squares(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """Costs by differences, of points brought to size 1."""
    x, y = x.double(), y.double()
    size = max(float(x.abs().max()), float(y.abs().max())) or 1.0
    return cdist((x / size).numpy(), (y / size).numpy(), "sqeuclidean")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("n", "d"), [(1, 3), (2, 1), (40, 2), (60, 9), (150, 100), (300, 12)])
def test_pairs_cost_what_scipys_do(family, n, d):
    x, y = FAMILIES[family](n, d)
    i, j = OTPlanSampler("exact").pairs(x, y)
    C = squares(x, y)
    best = C[linear_sum_assignment(C)].sum()
    assert i.tolist() == list(range(n))
    assert sorted(j.tolist()) == list(range(n))
    assert C[i, j].sum() == pytest.approx(best, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("d", [2, 40])
def test_clouds_far_from_each_other_keep_the_digits_by_which_plans_differ(d):
    x, y = normal(50, d, 1), normal(50, d, 2)
    i, j = OTPlanSampler().pairs(x, y + 2.0**27)
    C = squares(x, (y + 2.0**27) - 2.0**27)
    assert C[i, j].sum() == pytest.approx(C[linear_sum_assignment(C)].sum(), rel=1e-12)


@pytest.mark.parametrize("family", ["normal", "grid", "duplicates", "far clusters", "one place"])
@pytest.mark.parametrize(("n", "m", "d"), [(1, 5, 2), (7, 3, 12), (40, 45, 2), (90, 50, 30), (33, 99, 9)])
def test_unequal_sizes_cost_what_pots_plan_does(family, n, m, d):
    x, y = FAMILIES[family](max(n, m), d)
    x, y = x[:n], y[:m]
    table = OTPlanSampler().table(x, y)
    C = squares(x, y)
    copies = np.kron(C, np.ones((math.lcm(n, m) // n, math.lcm(n, m) // m)))  # an assignment, points being n·m/gcd
    best = copies[linear_sum_assignment(copies)].mean()
    if family != "far clusters":  # POT was 0.8 % above the optimum in one of them
        assert ot.emd2([], [], C, numItermax=10**6) == pytest.approx(best, rel=1e-9, abs=1e-300)
    assert table.masses.numpy() @ C[table.i, table.j] == pytest.approx(best, rel=1e-9, abs=1e-300)
    for at, size in ((table.i, n), (table.j, m)):
        np.testing.assert_allclose(np.bincount(at, table.masses, size), 1 / size, rtol=1e-12)
    assert len(table.masses) < n + m
    assert (table.masses > 0).all()
    i, j = table.once(0)
    assert sorted((i if n > m else j).tolist()) == list(range(max(n, m)))
    assert set(zip(i.tolist(), j.tolist(), strict=True)) <= set(zip(table.i.tolist(), table.j.tolist(), strict=True))


@pytest.mark.parametrize("replace", [True, False])
def test_sampled_pairs_have_the_plans_frequencies(replace):
    plan = torch.tensor([[0.3, 0.0, 0.1], [0.05, 0.35, 0.2]])
    sampler = OTPlanSampler("exact", generator=3)
    if replace:
        i, j = sampler.sample_map(plan, 20_000)
    else:  # one of the plan is drawn alike
        i, j = (torch.cat(t) for t in zip(*[sampler.sample_map(plan, 1, replace=False) for _ in range(5000)], strict=True))
    counts = np.bincount(i * 3 + j, minlength=6)
    assert counts[1] == 0
    keep = [0, 2, 3, 4, 5]
    assert chisquare(counts[keep], plan.double().flatten()[keep] * len(i)).pvalue > FAR


def test_sample_plan_draws_from_the_plan_or_gives_every_point_once():
    x, y = normal(6, 2, 1).float(), normal(6, 2, 2).float()
    sampler = OTPlanSampler("exact", generator=0)
    i, j = sampler.pairs(x, y)
    partner = {tuple(x[a].tolist()): tuple(y[b].tolist()) for a, b in zip(i, j, strict=True)}
    counts = dict.fromkeys(partner, 0)
    for _ in range(500):
        for a, b in zip(*map(torch.Tensor.tolist, sampler.sample_plan(x, y)), strict=True):
            assert partner[tuple(a)] == tuple(b)
            counts[tuple(a)] += 1
    assert chisquare([*counts.values()]).pvalue > FAR
    x0, x1 = sampler.sample_plan(x, y, replace=False)
    assert sorted(x0.tolist()) == sorted(x.tolist())
    assert sorted(x1.tolist()) == sorted(y.tolist())
    assert all(partner[tuple(a)] == tuple(b) for a, b in zip(x0.tolist(), x1.tolist(), strict=True))


def test_sinkhorn_samples_have_pots_plan_as_frequencies():
    x, y = normal(3, 2, 1), normal(4, 2, 2)
    sampler = OTPlanSampler("sinkhorn", reg=0.5, generator=0)
    P = ot.sinkhorn([], [], squares_of(x, y), 0.5, stopThr=1e-12, numItermax=10**5)
    np.testing.assert_allclose(sampler.get_map(x, y), P, atol=1e-6)
    i, j = sampler.sample_map(sampler.get_map(x, y), 20_000)
    assert chisquare(np.bincount(i * 4 + j, minlength=12), P.ravel() / P.sum() * 20_000).pvalue > FAR


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("n", "m", "d"), [(20, 30, 2), (25, 25, 40)])
def test_other_methods_are_the_functions_of_their_names(normalize, n, m, d):
    x, y = normal(n, d, 1) + 5, normal(m, d, 2) + 5
    C = squares_of(x, y)
    C = C / C.max() if normalize else C
    reg = 0.05 if normalize else d / 4
    given = {"reg": reg, "normalize_cost": normalize}
    plans = {
        "sinkhorn": of.solve(C, reg=reg).plan,
        "unbalanced": of.solve_unbalanced(C, reg=reg, reg_m=2.0).plan,
        "partial": of.solve_partial(C, reg=reg).plan,
        "exact": ot.emd([], [], C),
    }
    for method, plan in plans.items():
        found = OTPlanSampler(method, reg_m=2.0, **given).get_map(x, y)
        assert found.dtype == torch.float64
        np.testing.assert_allclose(found, plan, atol=1e-8 / n)
    P = ot.unbalanced.sinkhorn_knopp_unbalanced([], [], C, reg, 2.0, numItermax=10**5, stopThr=1e-13)
    np.testing.assert_allclose(OTPlanSampler("unbalanced", reg_m=2.0, **given).get_map(x, y), P, atol=1e-6 / n)


def test_an_unbalanced_plan_that_vanishes_is_uniform_and_says_so():
    x, y = torch.zeros(2, 3), torch.full((2, 3), 1e3)
    with pytest.warns(RuntimeWarning, match="no mass"):
        plan = OTPlanSampler("unbalanced").get_map(x, y)
    assert plan.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    OTPlanSampler("unbalanced", warn=False).sample_plan(x, y)


def test_scipys_map_keeps_the_order_and_the_shape():
    for n, m in ((8, 8), (5, 9), (9, 5)):
        x, y = normal(n, 12, 1).reshape(n, 3, 4), normal(m, 12, 2).reshape(m, 3, 4)
        i, j = linear_sum_assignment(squares_of(x.flatten(1), y.flatten(1)))
        x0, x1 = OTPlanSampler().sample_plan_with_scipy(x, y)
        assert torch.equal(x0, x[i])
        assert torch.equal(x1, y[j])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.uint8])
@pytest.mark.parametrize("shape", [(), (5,), (3, 2, 2)])
def test_dtype_shape_and_graph_stay(dtype, shape):
    x = (10 * torch.rand(9, *shape, generator=torch.Generator().manual_seed(0))).to(dtype)
    y = (10 * torch.rand(9, *shape, generator=torch.Generator().manual_seed(1))).to(dtype)
    x.requires_grad_(dtype.is_floating_point)
    x0, x1 = OTPlanSampler(generator=0).sample_plan(x, y)
    assert (x0.dtype, x1.dtype, x0.shape, x1.shape) == (dtype, dtype, x.shape, y.shape)
    assert x0.requires_grad == dtype.is_floating_point
    i, j = OTPlanSampler().pairs(x, y)
    C = squares_of(x.detach().double().reshape(9, -1), y.double().reshape(9, -1))
    assert C[i, j].sum() == pytest.approx(C[linear_sum_assignment(C)].sum(), rel=1e-12)


def test_no_points_and_one_point():
    for method in ("exact", "sinkhorn"):
        sampler = OTPlanSampler(method, reg=1.0)
        x0, x1, y0, y1 = sampler.sample_plan_with_labels(torch.zeros(0, 3, 4), torch.zeros(0, 3, 4), y1=torch.zeros(0))
        assert (x0.shape, x1.shape, y0, y1.shape) == ((0, 3, 4), (0, 3, 4), None, (0,))
        assert sampler.get_map(torch.zeros(0, 2), torch.zeros(0, 2)).shape == (0, 0)
        assert sampler.sample_trajectory(torch.zeros(0, 3, 2)).shape == (0, 3, 2)
        assert sampler.sample_plan(torch.tensor([[1.0]]), torch.tensor([[2.0]]))[1].item() == 2
    assert [t.tolist() for t in OTPlanSampler().pairs(torch.zeros(1, 2), torch.ones(3, 2))] == [[0, 0, 0], [0, 1, 2]]
    assert list(OTPlanSampler().table(torch.zeros(0, 2), torch.zeros(0, 2)).batches(3)) == []


@pytest.mark.parametrize("method", ["exact", "sinkhorn"])
def test_trajectories_follow_the_plans(method):
    X = torch.stack([torch.arange(6.0)[torch.randperm(6, generator=torch.Generator().manual_seed(t))] for t in range(4)], 1)
    found = OTPlanSampler(method, reg=0.01, generator=0).sample_trajectory(X[..., None] + 100 * torch.arange(4)[:, None])
    assert found.shape == (6, 4, 1)
    assert torch.equal(found[:, 0, 0], X[:, 0])
    assert all(torch.equal(found[:, t, 0] - 100 * t, X[:, 0]) for t in range(4))  # order on a line is optimal


NAN = torch.tensor([[0.0], [torch.nan]])
ZEROS = torch.zeros(2, 1)
BAD: dict[str, tuple[Any, str]] = {
    "nan": (lambda s: s.sample_plan(NAN, ZEROS), r"x0 must be finite, got nan at index \(1, 0\)"),
    "inf": (lambda s: s.get_map(ZEROS, 1 / ZEROS), r"x1 must be finite, got inf at index \(0, 0\)"),
    "array": (lambda s: s.pairs([[0.0]], ZEROS), r"x0 must be a tensor of points \(n, \*dim\), got list"),
    "a number": (lambda s: s.pairs(ZEROS, torch.tensor(1.0)), "x1 must be a tensor of points"),
    "complex": (lambda s: s.pairs(ZEROS, ZEROS * 1j), "x1 must be float16, bfloat16"),
    "dimensions": (lambda s: s.pairs(ZEROS, torch.zeros(2, 3)), r"same number of coordinates.*\(2, 1\) and \(2, 3\)"),
    "no coordinates": (lambda s: s.pairs(torch.zeros(2, 0), torch.zeros(2, 0)), "at least one"),
    "one side empty": (lambda s: s.pairs(ZEROS, ZEROS[:0]), "both have points, or neither, got 2 and 0"),
    "labels": (lambda s: s.pairs(ZEROS, ZEROS, torch.zeros(2, dtype=torch.int64), torch.zeros(2)), r"y1 must be .* \(2,\)"),
    "carried": (lambda s: s.sample_plan_with_labels(ZEROS, ZEROS, torch.zeros(3)), r"y0 must be a tensor of length 2"),
    "too many pairs": (lambda s: s.table(ZEROS, ZEROS).draw(3, replace=False), "at most the 2 pairs"),
    "a list of labels": (lambda s: s.sample_plan_with_labels(ZEROS, ZEROS, y1=[0, 1]), "y1 must be a tensor of length 2"),
    "plan": (lambda s: s.sample_map(-torch.eye(2), 2), "pi must be a plan"),
    "empty plan": (lambda s: s.sample_map(np.zeros((2, 2)), 2), "the plan must have mass to draw from"),
    "nan plan": (lambda s: s.sample_map(np.full((2, 2), np.nan), 2), "pi must be finite"),
    "too many": (
        lambda s: s.sample_map(torch.eye(2), 3, replace=False),
        "at most the 2 pairs with mass, without replacement, got 3",
    ),
    "trajectory": (lambda s: s.sample_trajectory(torch.zeros(3, 2)), r"X must be a tensor of shape \(B, T"),
    "method": (lambda s: OTPlanSampler("exakt"), "did you mean exact"),
    "reg": (lambda s: OTPlanSampler("sinkhorn", reg=0), "reg must be a positive"),
    "reg_m": (lambda s: OTPlanSampler("unbalanced", reg_m=-1).get_map(ZEROS, ZEROS), "reg_m"),
    "threads": (lambda s: OTPlanSampler(num_threads=0), "num_threads must be"),
    "seed": (lambda s: OTPlanSampler(generator=-1), "generator must be"),
    "table": (lambda s: OTPlanSampler("partial").table(ZEROS, ZEROS), "method must be 'exact' for a list of pairs"),
    "too far": (lambda s: OTPlanSampler("sinkhorn").get_map(NAN.double().nan_to_num(1e200), ZEROS), "finite squared dist"),
    "meta": (lambda s: s.pairs(ZEROS, ZEROS.to("meta")), "x1 must be an ordinary array"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case):
    call, expected = BAD[case]
    with pytest.raises(ValueError, match=expected) as error:
        call(OTPlanSampler())
    assert "\n" not in str(error.value)


def test_seeds_repeat_and_do_not_touch_torchs_own():
    x, y = normal(20, 3, 1), normal(20, 3, 2)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (OTPlanSampler(generator=7).sample_plan(x, y)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())
    i, j = OTPlanSampler().sample_map(np.eye(3), 4)
    assert isinstance(i, np.ndarray)
    assert (i == j).all()
