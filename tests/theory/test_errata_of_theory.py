"""Errata of the convergence proof (docs/errata.md, by number): each fails as printed and passes corrected."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from oracles import uniform
from otformer.theory import bounds, hilbert
from otformer.transport import reference


def test_12_epsilon_of_the_lemma() -> None:
    for n, ratio in itertools.product((1, 3, 100), (0.01, 1.0, 5.0)):
        zeta = (n + 2) * math.exp(2 * ratio)
        proof = math.sqrt(zeta * (n * math.exp(ratio) + 1) * ratio / 50)
        assert bounds.lemma_epsilon(n, 1.0, ratio, 50, "proof") == pytest.approx(proof)
        assert bounds.lemma_epsilon(n, 1.0, ratio, 50) < proof  # the statement claims more than its proof
    slopes = [
        math.log10((bounds.lemma_epsilon(10**5, 1.0, 1.0, 1, form) / bounds.lemma_epsilon(10**4, 1.0, 1.0, 1, form)) ** 2)
        for form in ("printed", "proof", "corrected")
    ]
    assert slopes == pytest.approx([1, 2, 3], abs=0.01)


def test_13_the_formal_bound_drops_the_root_of_3r() -> None:
    n, reg, radius, depth = 5, 2.0, 1.7, 1000
    derived = 36 * bounds.lemma_epsilon(n, reg, radius, depth) * hilbert.inverse_gap(3.0)
    as_printed = bounds.formal_bound(n, reg, radius, depth, 3.0)
    assert derived == pytest.approx(as_printed * math.sqrt(3 * radius))
    assert as_printed < derived


def test_14_the_hessian() -> None:
    reg, C = 0.3, uniform(0, 3, 4)
    theta = uniform(1, 7) - 0.5
    hessian = torch.autograd.functional.hessian(lambda t: reference.dual(C, t[:3], t[3:], reg), theta)
    M = reference.plan(C, theta[:3], theta[3:], reg)
    right = torch.cat([torch.cat([M.sum(1).diag(), M], 1), torch.cat([M.T, M.sum(0).diag()], 1)]) / reg
    assert torch.allclose(hessian, right, atol=1e-12)
    square, t = uniform(2, 3, 3), theta[:6]  # the printed blocks fit only n = m
    hessian = torch.autograd.functional.hessian(lambda t: reference.dual(square, t[:3], t[3:], reg), t)
    M = reference.plan(square, t[:3], t[3:], reg)
    as_printed = torch.cat([torch.cat([M.sum(0).diag(), M], 1), torch.cat([M.T, M.sum(1).diag()], 1)])
    assert not torch.allclose(hessian, as_printed, rtol=0.1)
    assert not torch.allclose(hessian, as_printed / reg, rtol=1e-3)


def test_14_without_its_1_over_lambda_the_lemma_is_false() -> None:
    """n = 3, λ = 0.005: the lemma's γ is 26λ, the iterates oscillate for ever, and no A^(k) is in S_ε."""
    n, reg, depth = 3, 0.005, 1000
    C, zero = 0.1 * reg * uniform(0, n, n), torch.zeros(n, dtype=torch.float64)
    radius = bounds.lemma_radius((zero, zero), reference.sinkhorn(C, reg))

    def least_gap(step: float) -> float:
        iterates = itertools.islice(reference.gradient_descent(C, reg, step), depth)
        return min(float(hilbert.doubly_stochastic_gap(reference.plan(C, u, v, reg))) for u, v in iterates)

    step = bounds.lemma_step(n, reg, radius)
    assert step > 2 * reg
    assert least_gap(step) > 10 * bounds.lemma_epsilon(n, reg, radius, depth)
    assert least_gap(step * reg) < 0.2 * bounds.lemma_epsilon(n, reg, radius, depth)  # with ζ = (n+2)e^{2r/λ}/λ


def test_15_delta_is_not_monotone() -> None:
    """C = 0, n = 2, λ = 1, the solution in the gauge c = 0.7: Δ grows at the first step, by its changing norm."""
    n, c = 2, 0.7
    C, zero = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    u, v = bounds.balanced(*reference.sinkhorn(C, 1.0))
    target = torch.cat([u + c, v - c])
    step = bounds.lemma_step(n, 1.0, 2 * float(2 * target.norm()))
    deltas, fixed = [], []
    for s, t in itertools.islice(reference.gradient_descent(C, 1.0, step), 100):
        P = reference.plan(C, s, t, 1.0)
        squares = (torch.cat([s, t]) - target).square()
        deltas.append(float(((torch.cat([P.sum(1), P.sum(0)]) + 1) / step * squares).sum()))
        fixed.append(float(squares.sum()))
    assert all(later > earlier for earlier, later in itertools.pairwise(deltas))
    assert all(later < earlier for earlier, later in itertools.pairwise(fixed))  # in a norm that stays the same
    weights = (torch.cat([(-C - 1).exp().sum(1), (-C - 1).exp().sum(0)]) + 1) / step
    start = torch.cat([zero, zero]) - target
    assert float((weights * start.square()).sum().sqrt()) > 2 * float(start.norm())  # the step "≤ 2(…) = r" fails as well


def test_19_sums_in_the_ball() -> None:
    """‖θ‖ ≤ r allows u_i + v_j = √2 r: S ≤ n e^{√2 r/λ − 1}, and n e^{r/λ} is exceeded."""
    n, r = 2, 10.0
    u = torch.tensor([r / math.sqrt(2), 0.0], dtype=torch.float64)
    S = reference.plan(torch.zeros(n, n, dtype=torch.float64), u, u, 1.0).sum(1)
    assert float(torch.cat([u, u]).norm()) == pytest.approx(r)
    assert float(S.max()) > 10 * n * math.exp(r)
    for seed in range(50):
        theta = uniform(seed, 2 * n) - 0.3
        theta = r * theta / theta.norm()
        S = reference.plan(uniform(seed, n, n), theta[:n], theta[n:], 1.0).sum(1)
        assert float(S.max()) <= n * math.exp(math.sqrt(2) * r - 1)


def test_20_a_step_that_loses_n_though_its_end_holds() -> None:
    """Σ_ij s_i s'_j ≤ ‖s‖ ‖s'‖ is false by a factor n; 2n e^{√2 r/λ − 1} ≤ (n+2) e^{2r/λ} saves the conclusion."""
    n = 9
    s = torch.full((n,), 1 / math.sqrt(2 * n), dtype=torch.float64)
    assert float(s[:, None].mul(s).sum()) == pytest.approx(n * float(s.norm() * s.norm()))
    for seed in range(50):
        theta = uniform(seed, 2 * n) - 0.5
        M = reference.plan(uniform(seed + 1, n, n), theta[:n], theta[n:], 1.0)
        H = torch.cat([torch.cat([M.sum(1).diag(), M], 1), torch.cat([M.T, M.sum(0).diag()], 1)])
        assert float(torch.linalg.eigvalsh(H)[-1]) <= (n + 2) * math.exp(2 * float(theta.norm()))


def test_21_the_first_delta() -> None:
    """Δ₁ ≤ (n e^{r/λ} + 1) r lacks 1/γ = ζ and the square of ‖θ₁ − θ*‖ = r/4."""
    n = 3
    C, zero = uniform(0, n, n), torch.zeros(n, dtype=torch.float64)
    target = bounds.balanced(*reference.sinkhorn(C, 1.0))
    r = bounds.lemma_radius((zero, zero), target)
    step = bounds.lemma_step(n, 1.0, r)
    M = reference.plan(C, zero, zero, 1.0)
    delta = float(((torch.cat([M.sum(1), M.sum(0)]) + 1) / step * torch.cat(target).square()).sum())
    assert delta <= bounds.lemma_epsilon(n, 1.0, r, 1, "corrected") ** 2 * step  # ζ(n e^{r/λ} + 1) r²/4
    u = torch.full((n,), -3.0, dtype=torch.float64)  # a start for which the printed line fails
    r = bounds.lemma_radius((u, u), target)
    M, gap = reference.plan(C, u, u, 1.0), torch.cat([u, u]) - torch.cat(target)
    delta = float(((torch.cat([M.sum(1), M.sum(0)]) + 1) / bounds.lemma_step(n, 1.0, r) * gap.square()).sum())
    as_printed = (n * math.exp(r) + 1) * r
    assert delta > as_printed
    assert delta <= bounds.lemma_epsilon(n, 1.0, r, 1, "corrected") ** 2 * bounds.lemma_step(n, 1.0, r)


def test_22_r_is_defined_twice() -> None:
    """Scale the cost and λ by 10: the plan is the same, the theorem's r too, the lemma's r is 10 times as large."""
    C = uniform(0, 4, 4)
    zero = torch.zeros(4, dtype=torch.float64)
    small, large = reference.sinkhorn(C, 1.0), reference.sinkhorn(10 * C, 10.0)
    theorem = [bounds.theorem_radius((zero, zero), s, reg) for s, reg in ((small, 1.0), (large, 10.0))]
    lemma = [bounds.lemma_radius((zero, zero), s) for s in (small, large)]
    assert theorem[1] == pytest.approx(theorem[0])
    assert lemma[1] == pytest.approx(10 * lemma[0])
    assert theorem[0] != pytest.approx(lemma[0], rel=0.1)


def test_24_the_bound_is_on_the_normalised_matrix() -> None:
    """The proof bounds w₁ of g(A^(k)), not p_k: μ(p_k, w₁) is up to 4ε, and not 0."""
    C = uniform(0, 4, 4)
    u, v = reference.sinkhorn(C, 1.0)
    u, v = u + 0.02 * uniform(5, 4), v + 0.02 * uniform(6, 4)
    A = reference.plan(C, u, v, 1.0)
    epsilon, p = float(hilbert.doubly_stochastic_gap(A)), u.exp()
    apart = float(hilbert.hilbert_metric(p, p / A.sum(1)))
    assert 0.05 * epsilon < apart <= 4 * epsilon


def test_25_the_depth_from_which_the_theorem_is_claimed() -> None:
    """At ℓ = 64 n e^{3r/λ} r the lemma's ε is √(3/64) = 0.22; propositions S and d, used on S_9ε, need ε < 1/36."""
    n, reg, radius = 5, 1.0, 2.0
    claimed, needed = (bounds.formal_depth(n, reg, radius, form) for form in ("printed", "corrected"))  # type: ignore[arg-type]
    at = [bounds.lemma_epsilon(n, reg, radius, math.ceil(depth)) for depth in (claimed, needed)]
    assert at[0] == pytest.approx(math.sqrt(3 / 64), rel=1e-3)
    assert bounds.bound_from_epsilon(at[0], 1.0) == math.inf
    assert at[1] == pytest.approx(1 / 36, rel=1e-3)
