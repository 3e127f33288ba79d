"""Errata of single steps of the convergence proof, and of what its bounds may depend on (docs/errata.md, by number)."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from oracles import uniform
from otformer.theory import bounds, hilbert
from otformer.transport import reference


def spreads(e: Tensor, f: Tensor) -> Tensor:
    """max(μ(p, p*), μ(q, q*)) from e = (u − u*)/λ and f = (v − v*)/λ."""
    return torch.maximum(hilbert.spread(e), hilbert.spread(f))


def a_layer(P: Tensor, e: Tensor, f: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """One layer of steps ``rows`` and ``columns`` (in units of λ), for a solution P of any marginals, [B, n, m]."""
    z = e + ((P / P.sum(2, keepdim=True)).log() + f[:, None, :]).logsumexp(2)  # log(S/a)
    w = f + ((P / P.sum(1, keepdim=True)).log() + e[:, :, None]).logsumexp(1)  # log(S'/b)
    return e - rows * (z / 2).tanh(), f - columns * (w / 2).tanh()


@pytest.mark.parametrize(("n", "m"), [(1, 2), (2, 2), (3, 5), (8, 8)])
def test_26_the_distance_never_rises_for_steps_up_to_twice_lambda(n: int, m: int, record_property) -> None:
    """1,000 solutions each, entries from e^{-30} to e^{10}, any marginals, starts up to 30λ off, any steps from 0 to 2λ."""
    count, largest = 1000, 0.0
    P = (40 * uniform(n, count, n, m) - 30).exp()
    far = 30 * uniform(n + 1, count, 1)
    e, f = (far * (2 * uniform(seed, count, size) - 1) for seed, size in ((n + 2, n), (n + 3, m)))
    for layer in range(40):
        before, steps = spreads(e, f), 2 * uniform(layer, 2, count, 1).clamp(max=0.75) / 0.75  # a quarter are 2λ itself
        e, f = a_layer(P, e, f, steps[0], steps[1])
        assert bool((spreads(e, f) <= before + 1e-12 * far[:, 0]).all())
        largest = max(largest, float((spreads(e, f) / before)[before > 1e-6].max()))
    record_property("problems", count)
    record_property("largest ratio", largest)


def test_26_with_longer_steps_it_rises() -> None:
    """2λ is the limit: at 2.2λ the distance grows by 1.2 a layer where the plan is nearly a permutation. With the lemma's
    step in erratum 14's example (26λ) the last of 1,000 layers is 100 times farther off than the best."""
    P = torch.tensor([[[1.0, 1e-9], [1e-9, 1.0]]], dtype=torch.float64)
    e = f = torch.tensor([[1e-3, 0.0]], dtype=torch.float64)
    growth = [float(spreads(*a_layer(P, e, f, *torch.full((2, 1), step).double())) / 1e-3) for step in (2.0, 2.2)]
    assert growth == pytest.approx([1, 1.2], rel=1e-6)
    n, reg = 3, 0.005
    C, zero = 0.1 * reg * uniform(0, n, n), torch.zeros(n, dtype=torch.float64)
    solution = reference.sinkhorn(C, reg)
    step = bounds.lemma_step(n, reg, bounds.lemma_radius((zero, zero), solution))
    far = bounds.distances(itertools.islice(reference.gradient_descent(C, reg, step), 1001), solution, reg)
    assert float(far[-1]) > 100 * float(far.min())


def test_32_a_factor_below_one_dropped_from_a_sum_with_signs() -> None:
    """Σ s_i s'_j e^{u_i+v_j} e^{−C−1} ≤ Σ s_i s'_j e^{u_i+v_j} is false for s = 1, s' = −1; with |s|, |s'| it holds."""
    zero = torch.zeros(1, dtype=torch.float64)
    M = float(reference.plan(zero[None], zero, zero, 1.0))
    assert 1 * -1 * M > 1 * -1  # −1/e against −1
    for seed in range(200):
        u, v, s, t = 4 * uniform(seed, 4, 5) - 2
        products = s[:, None] * t * (u[:, None] + v).exp()
        value = float((s[:, None] * t * reference.plan(3 * uniform(seed + 1, 5, 5), u, v, 1.0)).sum())
        assert value <= float(products.abs().sum())


def test_37_convexity_alone_does_not_make_the_layers_converge() -> None:
    """n = 1, C = 0: L = λe^{(u+v)/λ−1} − u − v is convex. With γ = 4λ the layers end in a cycle; with λ they arrive."""
    C = torch.zeros(1, 1, dtype=torch.float64)
    for step, arrives in ((4.0, False), (1.0, True)):
        last = list(itertools.islice(reference.gradient_descent(C, 1.0, step), 1000))[-100:]
        gaps = [float(hilbert.doubly_stochastic_gap(reference.plan(C, u, v, 1.0))) for u, v in last]
        assert max(gaps) < 1e-12 if arrives else min(gaps) > 0.5


def test_38_the_informal_bound_has_no_unit() -> None:
    """Scale C, λ and γ together: the same p and q, another e^{1/λ}. And with λ = 1 no constant serves all costs: a potential
    moves by at most γ a layer, so for x = (0, X), y = (0, 0) the distance after ℓ layers is at least X² − 2ℓ."""
    C, depth = uniform(0, 4, 4), 30
    far = []
    for scale in (1.0, 10.0):
        iterates = itertools.islice(reference.gradient_descent(scale * C, scale, scale), depth + 1)
        far.append(bounds.distances(iterates, reference.sinkhorn(scale * C, scale), scale))
    assert torch.allclose(*far, atol=1e-9)
    assert bounds.informal_bound(4, 1.0, depth) / bounds.informal_bound(4, 10.0, depth) == pytest.approx(math.exp(0.9))
    for square in (1e3, 1e6, 1e9):
        own = torch.tensor([0.0, square], dtype=torch.float64)
        C = own[:, None].expand(2, 2)  # P* = ½, u* = own, up to the gauge
        iterates = list(itertools.islice(reference.gradient_descent(C, 1.0, 1.0), 101))
        distance = float(bounds.distances(iterates[-1:], (own, torch.zeros_like(own)), 1.0)[0])
        assert square - 200 <= distance <= square
        assert distance / bounds.informal_bound(2, 1.0, 100) > 1e-1 * square  # so the constant would have to grow with it


@pytest.mark.parametrize("radius_of", ["theorem", "lemma"])
def test_43_the_formal_theorem_fails_where_the_layers_cycle(radius_of: str) -> None:
    """Four points and the lemma's step, about 80λ. The best of 20,000 layers is the start, whose distance the printed bound
    undercuts from 8.2e13 layers on; the cycle lasts 1e16 layers, since all its sums are below e^{−53} or above e^{53}."""
    n, reg, lasting = 4, 0.002, 10**16
    d = math.sqrt(-reg * (1 + math.log((1 - 2 / math.e) / 2)))
    y = torch.tensor([0, 0, d, d], dtype=torch.float64)
    x = y + torch.tensor([0, 0, 0, 0.01 * reg**1.5], dtype=torch.float64)
    C, zero = (x[:, None] - y) ** 2, torch.zeros(n, dtype=torch.float64)
    solution = reference.sinkhorn(C, reg)
    start = zero, zero
    theorem, lemma = bounds.theorem_radius(start, solution, reg), bounds.lemma_radius(start, solution)
    radius = theorem if radius_of == "theorem" else lemma
    step = bounds.lemma_step(n, reg, radius)
    assert step > 80 * reg
    assert bounds.formal_depth(n, reg, radius) < 1  # so the claim is made from the first layer on

    iterates = list(itertools.islice(reference.gradient_descent(C, reg, step), 20_001))
    far = bounds.distances(iterates, solution, reg)
    assert int(far.argmin()) == 0
    assert float(far[0]) == pytest.approx(1.547e-5, rel=1e-3)
    assert float(far[4:].min()) > 16
    last, before, two_before = (torch.cat(iterates[-k]) / reg for k in (1, 2, 3))
    assert torch.allclose(last, two_before, rtol=0, atol=1e-13)
    assert float((last - before).abs().min()) > 80

    logs = torch.stack([((u[:, None] + v - C) / reg - 1).logsumexp(axis) for u, v in iterates[-2:] for axis in (0, 1)])
    least = float(logs.abs().min())
    moved = lasting * (step / reg) * 2 * math.exp(-(least - 1))  # of a potential, in λ, while every |z| > least − 1
    assert least > 53
    assert moved < 1e-3  # so it does
    assert bounds.formal_bound(n, reg, radius, lasting, hilbert.log_phi(C, reg)) < float(far[0]) / 10

    corrected = next(itertools.islice(reference.gradient_descent(C, reg, reg), 1000, None))
    assert float(bounds.distances([corrected], solution, reg)) < 1e-9
