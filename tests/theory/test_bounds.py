"""The paper's bounds where they apply (λ ≥ 1, small n), with their own step, and what A ∈ S_ε implies."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from otformer.theory import bounds, hilbert
from otformer.transport import reference


def problem(n: int, reg: float) -> tuple[Tensor, bounds.Potentials, bounds.Potentials]:
    """Costs of points in the unit interval, the solution, and the paper's start."""
    x, y = torch.rand(2, n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    C = torch.cdist(x, y) ** 2
    zero = torch.zeros(n, dtype=torch.float64)
    return C, reference.sinkhorn(C, reg), (zero, zero)


@pytest.mark.slow
@pytest.mark.parametrize("reg", [1.0, 4.0])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_both_bounds_hold_where_they_apply(n: int, reg: float) -> None:
    """The step is the lemma's with the theorem's r. The least distance so far is compared at every layer."""
    C, solution, start = problem(n, reg)
    radius, log_phi = bounds.theorem_radius(start, solution, reg), hilbert.log_phi(C, reg)
    depth, step = 6000, bounds.lemma_step(n, reg, radius)
    iterates = itertools.islice(reference.gradient_descent(C, reg, step), depth)
    least = bounds.distances(iterates, solution, reg).cummin(0).values
    first = bounds.formal_depth(n, reg, radius)
    assert first < depth  # it applies
    for layer in range(1, depth + 1):
        measured = float(least[layer - 1])
        assert measured <= bounds.informal_bound(n, reg, layer)
        if layer >= first:
            assert measured <= bounds.formal_bound(n, reg, radius, layer, log_phi)
    # Where the formal bound is first informative (it is below the distance of the start), about 10⁶ layers on,
    # the network has long arrived.
    deep = 10_000_000
    assert bounds.formal_bound(n, reg, radius, deep, log_phi) < float(least[0])
    assert float(least[-1]) < bounds.formal_bound(n, reg, radius, deep, log_phi)


def test_lemma_holds_for_lambda_of_one_and_more() -> None:
    for n, reg in itertools.product((2, 3), (1.0, 3.0)):
        C, solution, start = problem(n, reg)
        radius = bounds.lemma_radius(start, solution)
        iterates = itertools.islice(reference.gradient_descent(C, reg, bounds.lemma_step(n, reg, radius)), 1000)
        gaps = torch.stack([hilbert.doubly_stochastic_gap(reference.plan(C, u, v, reg)) for u, v in iterates])
        for depth in (10, 100, 1000):
            assert float(gaps[:depth].min()) <= bounds.lemma_epsilon(n, reg, radius, depth)


def test_nearly_doubly_stochastic_implies_near_the_solution(record_property) -> None:
    """A = diag(p) Q diag(q) ∈ S_ε with ε < 1/36: max(μ(p, p*), μ(q, q*)) ≤ 36ε/(1−η) + 4ε. By theorem A.1 it is below about
    2ε/(1 − η), which the 2×2 example of A.1 attains: so the largest ratio is 1/18."""
    checked, ratio, random = 0, 0.0, np.random.default_rng(0)
    for number in range(2400):
        n = 2 + number % 4
        P = np.ones((n, n)) / n * 10 ** random.uniform(-4, 0)  # and a mean of permutations: doubly stochastic
        P += (1 - P.sum(1)[0]) * sum(w * np.eye(n)[random.permutation(n)] for w in random.dirichlet(np.ones(3)))
        e = random.uniform(-1, 1, n) * 10 ** random.uniform(-3, -0.5)
        f = [-e, 0.3 * random.uniform(-1, 1, n)][number % 2] * 10 ** random.uniform(-3, 0) if number % 3 else -e
        A = torch.tensor(P * np.exp(e[:, None] + f))
        epsilon = float(hilbert.doubly_stochastic_gap(A))
        if epsilon >= 1 / 36:
            continue
        measured = max(np.ptp(e), np.ptp(f))
        bound = bounds.bound_from_epsilon(epsilon, hilbert.log_phi(torch.tensor(-np.log(P)), 1.0))
        assert measured <= bound
        checked, ratio = checked + 1, max(ratio, float(measured / bound))
    assert checked > 1000
    assert ratio > 0.05
    assert bounds.bound_from_epsilon(1 / 36, 0.0) == math.inf
    record_property("problems", checked)
    record_property("largest ratio", ratio)


def test_balanced_is_the_solution_of_least_norm() -> None:
    C, (u, v), start = problem(4, 1.0)
    least = bounds.lemma_radius(start, (u, v))
    assert bounds.lemma_radius(start, (u + 3, v - 3)) == pytest.approx(least)  # the gauge given does not matter
    s, t = bounds.balanced(u, v)
    assert torch.allclose(reference.plan(C, s, t, 1.0), reference.plan(C, u, v, 1.0))
    for c in (-0.5, -0.01, 0.01, 0.5):
        assert 4 * float(torch.cat([s + c, t - c]).norm()) > least


def test_closed_forms() -> None:
    """n = 1, C = λ: u* + v* = 2λ; balanced, u* = v* = λ."""
    reg = 2.0
    solution = (torch.tensor([3.5]).double(), torch.tensor([0.5]).double())
    start = (torch.zeros(1).double(), torch.zeros(1).double())
    assert bounds.lemma_radius(start, solution) == pytest.approx(4 * math.sqrt(2) * reg)
    assert bounds.theorem_radius(start, solution, reg) == pytest.approx(2 * math.sqrt(2) * (math.e - 1))
    assert bounds.lemma_step(3, 2.0, 1.0) == pytest.approx(1 / (5 * math.e))
    assert bounds.lemma_epsilon(3, 1.0, 1.0, 9) == pytest.approx(math.exp(1.5))
    assert bounds.lemma_epsilon(3, 1.0, 0.5, 1, "proof") ** 2 == pytest.approx(5 * math.e * (3 * math.exp(0.5) + 1) / 2)
    assert bounds.informal_bound(4, 1.0, 16) == pytest.approx(2 * math.e)
    assert bounds.formal_bound(4, 1.0, 0.0, 9, math.log(9.0)) == pytest.approx(48)
    assert bounds.formal_depth(2, 1.0, 1.0) == pytest.approx(128 * math.exp(3))
    assert bounds.residual_bound(0.5, 1.0, 4) == pytest.approx(2 / math.sqrt(math.pi))


def test_overflow_is_infinity() -> None:
    assert bounds.lemma_step(10, 1e-6, 1.0) == 0
    for form in ("printed", "proof", "corrected"):
        assert bounds.lemma_epsilon(10, 1e-6, 1.0, 5, form) == math.inf  # type: ignore[arg-type]
    assert bounds.informal_bound(10, 1e-6, 5) == math.inf
    assert bounds.formal_bound(10, 1e-6, 1.0, 5, 1e6) == math.inf
    assert bounds.formal_depth(10, 1e-6, 1.0) == math.inf
    far = (torch.tensor([900.0]).double(), torch.tensor([900.0]).double())
    assert bounds.theorem_radius((torch.zeros(1).double(),) * 2, far, 1.0) == math.inf


def test_bad_input() -> None:
    for call, message in (
        (lambda: bounds.lemma_step(0, 1.0, 1.0), "n must be"),
        (lambda: bounds.lemma_step(2, 0.0, 1.0), "reg must be"),
        (lambda: bounds.lemma_step(2, 1.0, -1.0), "radius must be"),
        (lambda: bounds.informal_bound(2, 1.0, 0), "depth must be"),
        (lambda: bounds.lemma_epsilon(2, 1.0, 1.0, 1, "guess"), "form must be one of"),  # type: ignore[arg-type]
        (lambda: bounds.residual_bound(1.0, 1.0, 1, 2.0), "step must be below 2 reg"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
