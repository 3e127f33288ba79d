"""Passes and products of the GPU's stream against float64 from the matrix: as exact as costs/gpu/layout.py says."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from helpers import gpu_streams
from helpers.gpu_streams import Case, check_pass, check_products, share_that_reads_all, steep
from otformer.transport.costs.clouds import PLAIN, Rule
from otformer.transport.costs.gpu import passes
from otformer.transport.costs.gpu.layout import DOUBLE, MIXED, MIXED_ROUNDING, SINGLE, Precision

pytestmark = pytest.mark.gpu
case = partial(gpu_streams.case, device="cuda")
SIZES = (1, 3), (1001, 3333), (5003, 517)
ROOT, DIFFERENT = Rule(root=True), Rule(same=False)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8, 9, 16, 64, 100])
def test_mixed_passes_are_within_their_bound(d: int) -> None:
    """At every λ, in small, wide and long problems."""
    for n, m in SIZES:
        for reg in (1.0, 0.03, 0.001, 1e-4):
            problem = case(n, m, d)
            assert problem.on(reg, MIXED).stream.rounding(reg) < 1.001 * MIXED_ROUNDING
            check_pass(problem, reg, MIXED)


@pytest.mark.parametrize(
    ("precision", "d"), [(SINGLE, 1), (SINGLE, 3), (SINGLE, 16), (SINGLE, 100), (DOUBLE, 3), (DOUBLE, 16)]
)
def test_other_precisions(precision: Precision, d: int) -> None:
    """A few roundings of logits in float32, and 10⁻¹¹ in float64 besides those."""
    for n, m in SIZES:
        for reg in (1.0, 0.03, 0.001, 1e-4):
            check_pass(case(n, m, d), reg, precision)


@pytest.mark.parametrize("precision", [SINGLE, MIXED, DOUBLE])
@pytest.mark.parametrize("d", [3, 16])
def test_rough_potentials(precision: Precision, d: int) -> None:
    """Neighbouring potentials a thousand λ apart: the entries that matter are not the near ones."""
    g = torch.Generator().manual_seed(5)
    u, v = (torch.randn(k, generator=g, dtype=torch.float64).cuda() for k in (2000, 2100))
    check_pass(case(2000, 2100, d), 0.001, precision, (u, v))


@pytest.mark.parametrize(("d", "slope"), [(1, 0.3), (1, 2.0), (2, 0.3), (2, 2.0), (3, 0.0), (3, 0.3), (3, 2.0)])
def test_steep_potentials_with_tiles_left_out(d: int, slope: float) -> None:
    """Mass goes far, and a hundredth of the columns are absent; most rows do not even read the tile that matters least."""
    problem = case(6000, 7000, d)
    for reg in (0.02, 5e-4):
        for precision in (MIXED, DOUBLE) if d == 3 else (MIXED,):
            check_pass(problem, reg, precision, steep(problem, reg, slope))
    assert share_that_reads_all(problem, 5e-4, steep(problem, 5e-4, slope)) < (0.6 if d == 3 else 0.2)


@pytest.mark.parametrize("precision", [SINGLE, MIXED, DOUBLE])
@pytest.mark.parametrize("reg", [1e-4, 0.001, 0.1])
def test_far_clusters_copies_and_light_points(precision: Precision, reg: float) -> None:
    """Rows far from all columns, points given many times, weights of 10⁻³⁰; the last block of columns holds five."""
    given = case(1500, 1285, 3)
    x, y, light = given.x.clone(), given.y.clone(), torch.linspace(-69, 0, 1500, dtype=torch.float64).cuda()
    x[700:] += 4.0
    y[1000:] = y[0]
    problem = replace(given, x=x, y=y, log_a=light)
    v = -1 + 0.2 * torch.rand(1285, generator=torch.Generator().manual_seed(6), dtype=torch.float64).cuda()
    check_pass(problem, reg, precision, (torch.zeros_like(light), v))
    if precision is not SINGLE:
        check_products(problem, reg, precision, (-reg * problem.log_ratio(0 * light, v, reg, rows=True), v))


@pytest.mark.parametrize("d", [3, 16])
def test_absent_columns(d: int) -> None:
    problem = case(700, 1100, d)
    u, v = torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b)
    v[torch.randperm(1100, generator=torch.Generator().manual_seed(8))[:900].cuda()] = -math.inf
    for reg in (0.01, 0.001):
        for precision in (SINGLE, MIXED, DOUBLE):
            got = problem.on(reg, precision).log_ratio(u, v, reg, rows=True)
            atol = 1e-3 if precision is SINGLE else 2 * MIXED_ROUNDING
            torch.testing.assert_close(got, problem.log_ratio(u, v, reg, rows=True), rtol=0, atol=atol)
    nobody = problem.on(0.01, MIXED).log_ratio(u, torch.full_like(v, -math.inf), 0.01, rows=True)
    assert bool(nobody.isneginf().all())


@pytest.mark.parametrize("precision", [SINGLE, MIXED, DOUBLE])
def test_what_is_not_a_number_is_not_hidden(precision: Precision) -> None:
    for d in (3, 16):
        problem = case(4000, 3000, d)
        u, v = torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b)
        v[7] = math.nan
        executor = problem.on(0.001, precision)
        assert bool(executor.log_ratio(u, v, 0.001, rows=True).isnan().all())
        assert bool(executor.products(u, v, 0.001, torch.ones_like(v), rows=True).isnan().all())


@pytest.mark.parametrize("d", [16, 100])
def test_three_tf32_products_are_as_exact_as_ieee(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = case(1024, 2048, d)
    problem = replace(given, x=given.x.float().double(), y=given.y.float().double())
    u, v = problem.duals(0.001)
    expected, errors = problem.log_ratio(u, v, 0.001, rows=True), {}
    for precision in ("ieee", "tf32x3", "tf32"):
        monkeypatch.setattr(passes, "PRECISION", precision)
        got = problem.on(0.001, SINGLE).log_ratio(u, v, 0.001, rows=True)
        errors[precision] = float((got - expected).abs().mean())
    assert errors["tf32x3"] < 3 * errors["ieee"] + 1e-6
    assert errors["tf32"] > 20 * errors["tf32x3"]


@pytest.mark.parametrize("precision", [MIXED, DOUBLE])
@pytest.mark.parametrize("d", [3, 16])
def test_products(precision: Precision, d: int) -> None:
    for n, m in ((1, 3), (1001, 1777)):
        for reg in (0.1, 0.001):
            check_products(case(n, m, d), reg, precision)


@pytest.mark.parametrize("d", [3, 16])
def test_products_with_many_columns(d: int) -> None:
    """More than are multiplied at once."""
    problem = case(600, 700, d)
    u, v = problem.duals(0.01)
    W = torch.randn(700, 150, generator=torch.Generator().manual_seed(7), dtype=torch.float64).cuda()
    P = problem.log_plan(u, v, 0.01).exp()
    torch.testing.assert_close(problem.on(0.01, MIXED).products(u, v, 0.01, W, rows=True), P @ W, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("d", [3, 16])
@pytest.mark.parametrize("labels", [0, 5])
def test_plain_distances(d: int, labels: int) -> None:
    """In many dimensions float32 has no digits for them, and passes are MIXED."""
    problem = case(1001, 1777, d, rule=ROOT, labels=labels)
    for reg in (0.1, 0.003):
        for precision in (SINGLE, MIXED, DOUBLE) if not labels else (MIXED,):
            check_pass(problem, reg, precision)
        check_products(problem, reg, MIXED)


@pytest.mark.parametrize("d", [3, 16])
@pytest.mark.parametrize("precision", [MIXED, DOUBLE])
def test_plain_distances_of_points_that_coincide(precision: Precision, d: int) -> None:
    """Between a cloud and itself: 0 for its own point, and nothing of it where distances are divided by."""
    given = case(700, 700, d, rule=ROOT)
    problem = Case(given.x, given.x.clone(), given.log_a, given.log_a, ROOT)
    check_pass(problem, 0.05, precision)
    check_products(problem, 0.05, precision)


@pytest.mark.parametrize("rule", [PLAIN, DIFFERENT])
@pytest.mark.parametrize("d", [3, 16])
def test_labels(rule: Rule, d: int) -> None:
    for count in (2, 40):
        problem = case(1001, 1777, d, rule=rule, labels=count)
        for reg in (0.1, 0.001):
            for precision in (SINGLE, MIXED, DOUBLE):
                check_pass(problem, reg, precision)
        check_products(problem, 0.01, MIXED)


@pytest.mark.parametrize("d", [3, 16])
def test_a_row_that_may_match_nobody_has_no_sum(d: int) -> None:
    problem = case(300, 400, d, labels=3)
    own = problem.rule.labels[0].clone()  # type: ignore[index]
    own[5] = 7
    problem = replace(problem, rule=Rule(labels=(own, problem.rule.labels[1])))  # type: ignore[index]
    u, v = torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b)
    for precision in (SINGLE, MIXED, DOUBLE):
        executor = problem.on(0.01, precision)
        got = executor.log_ratio(u, v, 0.01, rows=True)
        assert got.isneginf().nonzero().flatten().tolist() == [5]
        assert float(executor.products(u, v, 0.01, torch.ones_like(v), rows=True)[5]) == 0
