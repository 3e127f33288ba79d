r"""The layers: sums, order, masks and symmetries on hard logits and values.

**Tolerances.** Every sum of a plan is within tol of what it should be, in units of the greatest. So a plan of mass s with n
rows and m columns, none of weight above s·w, misses its marginals by ε = (n + m) w s tol at most. Each plan is exact for the
marginals that it has, hence its potentials lie within 1.5 spread + λ|log| of those of any other (docs/theory.md, section 4),
spread being the range of the costs; and with that for R, two of them are √(s · 2ε · R/λ) apart at most
(`helpers.certificates.apart`). `apart_by` is this number.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import otformer as of
from helpers.certificates import EPS
from helpers.strategies import cases, numbers, orders, weights
from otformer.nn import DoublyStochastic, SoftQuantile, SoftRank, SoftSort, SoftTopK, Transport

TOL = 1e-10


def apart_by(n: int, m: int, spread: float, mass: float = 1.0) -> float:
    """‖P − P'‖₁ at most, for a spread of the costs in units of λ; rounding of the exponents besides."""
    error = (n + m) * mass * TOL
    return math.sqrt(mass * 2 * error * (1.5 * spread + 2)) + 64 * EPS * (1 + spread) * mass


@st.composite
def logits(draw: st.DrawFn, square: bool = True) -> Tensor:
    """Up to 40 apart, with ties."""
    n = draw(st.integers(1, 6))
    m = n if square else draw(st.integers(1, 6))
    return torch.from_numpy(draw(numbers((n, m))) * draw(st.sampled_from((1.0, 2.5))))


def spread(L: Tensor) -> float:
    return float(L.max() - L.min())


def doubly(L: Tensor, temperature: float = 1.0, **options: Tensor) -> Tensor:
    return DoublyStochastic(temperature, tol=TOL)(L, **options)


@given(logits(), st.data(), st.sampled_from((0.25, 8.0)))
def test_doubly_stochastic(L, data, k):
    """Sums are 1; order, sides, rows' and columns' constants, and scale do what they should."""
    P, n = doubly(L), len(L)
    room = apart_by(n, n, spread(L), n)
    assert (P > 0).all()
    assert (P.sum(0) - 1).abs().max() <= TOL + n * EPS
    assert (P.sum(1) - 1).abs().max() <= TOL + n * EPS
    rows, columns = (torch.from_numpy(order) for order in data.draw(orders(n, n)))
    assert (doubly(L[rows][:, columns]) - P[rows][:, columns]).abs().sum() <= room
    assert (doubly(L.mT) - P.mT).abs().sum() <= room
    assert (doubly(k * L, k) - P).abs().sum() <= room
    shifted = L + torch.arange(n)[:, None] - 3 * torch.arange(n)
    assert (doubly(shifted) - P).abs().sum() <= room + apart_by(n, n, spread(shifted), n)


@given(logits(square=False), st.data())
def test_doubly_stochastic_is_transport_and_masks_are_points_that_are_not_there(L, data):
    n, m = L.shape
    a, b = (torch.from_numpy(data.draw(weights(k, zeros=False))) for k in (n, m))
    P = doubly(L, a=a, b=b)
    assert (P - of.solve(-L, a, b, reg=1.0, tol=TOL).plan).abs().sum() <= apart_by(n, m, spread(L))
    wide, there = torch.full((n + 1, m + 2), torch.nan, dtype=torch.float64), torch.zeros(n + 1, dtype=torch.bool)
    wide[:n, :m], there[:n] = L, True
    across = torch.zeros(m + 2, dtype=torch.bool)
    across[:m] = True
    more = {"a": torch.cat([a, a.new_zeros(1)]), "b": torch.cat([b, b.new_zeros(2)])}
    masked = doubly(wide, row_mask=there, column_mask=across, **more)
    assert not masked[n:].any()
    assert not masked[:, m:].any()
    assert (masked[:n, :m] - P).abs().sum() <= apart_by(n, m, spread(L))


@given(cases(zeros=False))
def test_transport_is_solve_and_a_batch_is_its_problems(c):
    layer = Transport(c.reg, tol=TOL)
    x, y, a, b = (torch.from_numpy(t) for t in c[:4])
    room = apart_by(len(x), len(y), float(c.C.max()) / c.reg)
    one = layer(x, y, a, b)
    assert (one - of.solve(torch.from_numpy(c.C), a, b, reg=c.reg, tol=TOL).plan).abs().sum() <= room
    both = layer(*(torch.stack([t, t.flip(0)]) for t in (x, y, a, b)))
    assert (both[0] - one).abs().sum() <= room
    assert (both[1] - one.flip(0, 1)).abs().sum() <= room
    padded = [torch.cat([t, torch.full_like(t[:1], torch.nan)])[None] for t in (x, y)]
    masks = [torch.arange(len(t) + 1)[None] < len(t) for t in (x, y)]
    w = [torch.cat([t, t.new_zeros(1)])[None] for t in (a, b)]
    assert (layer(*padded, *w, x_mask=masks[0], y_mask=masks[1])[0, :-1, :-1] - one).abs().sum() <= room


lists = st.one_of(
    st.integers(1, 8).flatmap(lambda n: numbers(n)),
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8).map(np.array),
    st.integers(1, 8).flatmap(lambda n: numbers(n)).map(lambda t: 1e12 * t),
)
regs = st.sampled_from((0.03, 0.3, 3.0))


def steep(n: int, reg: float) -> float:
    """Standardised values are at most √n, places at most √3 (of n pieces, √12 (½ − 1/2n) or less): 2 x y / reg."""
    return 4 * math.sqrt(n) * math.sqrt(12) / 2 / reg


def sloppy(x: Tensor, reg: float) -> float:
    """How far a mean Σ P x / b of two plans may be apart: n ‖P − P'‖₁ times the range; values far from 0 lose digits."""
    n, reach = len(x), float(x.max() - x.min())
    return n * apart_by(n, n, steep(n, reg)) * reach + 64 * n * EPS * float(x.abs().max()) * (1 + steep(n, reg))


@given(lists, regs, st.data())
def test_soft_sorting(values, reg, data):
    """Ascending, within the range, of the same mean, in whatever order; −x the other way round; k x + c.

    Ascending whatever was solved: kernel exp(2xy/λ) is totally positive, so what goes to a later place has a greater mean.
    """
    x, soft = torch.from_numpy(values), SoftSort(reg, tol=TOL)
    found, room = soft(x), sloppy(torch.from_numpy(values), reg)
    digits = 64 * len(x) * EPS * float(x.abs().max())
    assert (found.diff() >= -digits).all()
    assert found.min() >= x.min() - digits
    assert found.max() <= x.max() + digits
    assert (found.mean() - x.mean()).abs() <= room
    order = torch.from_numpy(data.draw(orders(len(x)))[0])
    assert (soft(x[order]) - found).abs().max() <= room
    assert (soft(-x).flip(0) + found).abs().max() <= room
    assert (soft(4 * x + x.abs().max()) - (4 * found + x.abs().max())).abs().max() <= 4 * room + sloppy(
        4 * x + x.abs().max(), reg
    )


@given(lists, regs, st.data())
def test_soft_ranks_and_memberships(values, reg, data):
    """Greater values rank no lower; ranks sum to n(n − 1)/2, the top k to k; top and rest are one plan."""
    x = torch.from_numpy(values)
    n, order = len(x), torch.from_numpy(values).argsort()
    ranks, room = SoftRank(reg, tol=TOL)(x), n * n * apart_by(n, n, steep(n, reg))
    digits = 64 * n * n * EPS * (1 + steep(n, reg))
    assert (ranks[order].diff() >= -digits).all()
    assert (ranks.sum() - n * (n - 1) / 2).abs() <= room
    k = data.draw(st.integers(1, n))
    top = SoftTopK(k, reg, tol=TOL)(x)
    assert (top[order].diff() >= -digits).all()
    assert ((top >= 0) & (top <= 1 + digits)).all()
    assert (top.sum() - k).abs() <= room
    assert (SoftTopK(k, reg, largest=False, tol=TOL)(-x) - top).abs().max() <= room
    if k < n:
        assert (SoftTopK(n - k, reg, largest=False, tol=TOL)(x) + top - 1).abs().max() <= room


@given(lists, regs, st.sampled_from((0.0, 0.25, 0.5, 1.0)), st.data())
def test_soft_quantiles(values, reg, q, data):
    x = torch.from_numpy(values)
    found, room = SoftQuantile(q, reg, tol=TOL)(x), sloppy(x, reg)
    digits = 64 * len(x) * EPS * float(x.abs().max())
    assert x.min() - digits <= found <= x.max() + digits
    order = torch.from_numpy(data.draw(orders(len(x)))[0])
    assert (SoftQuantile(q, reg, tol=TOL)(x[order]) - found).abs() <= room
    assert (SoftQuantile(1 - q, reg, tol=TOL)(-x) + found).abs() <= room


@given(lists, regs)
def test_items_that_are_not_there_are_as_good_as_removed(values, reg):
    """Masked, or of weight 0: what they hold is not read."""
    x = torch.from_numpy(values)
    n, room = len(x), sloppy(x, reg)
    more = torch.cat([x[:1] * torch.nan, x])
    mask = torch.arange(n + 1) > 0
    soft, found = SoftSort(reg, tol=TOL), SoftSort(reg, tol=TOL)(x)
    masked = soft(more, mask=mask)
    assert (masked[:n] - found).abs().max() <= room
    assert masked[n] == 0
    weighted = soft(torch.cat([x.max()[None] + 1, x]), weights=mask.double())
    assert (weighted[:n] - found).abs().max() <= room
    top = SoftTopK(1, reg, tol=TOL)
    assert (top(more, mask=mask)[1:] - top(x)).abs().max() <= n * n * apart_by(n, n, steep(n, reg))
    quantile = SoftQuantile(0.5, reg, tol=TOL)
    assert (quantile(more, mask=mask) - quantile(x)).abs() <= room


@pytest.mark.parametrize("largest", [True, False])
@given(x=st.lists(st.integers(-9, 9), min_size=2, max_size=7, unique=True), data=st.data())
def test_sharp_layers_are_sorting(largest, x, data):
    """At small λ the plan is the permutation, but for tol.

    Values one apart have 1/σ, σ ≤ 9, between them once they are standardised, places √12/n or more. To exchange two that are
    neighbours takes 1/n of the mass and costs 2/σ · √12/n more: all other permutations cost Δ ≥ 0.77/n² more, or what is
    more than that. By Weed (2018), theorem 5, the share of the plan that is not in the best one is exp(1 + 2 log n − Δ/λ) or
    less: e^−70 here. Beside that n + m sums may be off by tol, and what they lack is elsewhere.
    """
    values, n = torch.tensor(x, dtype=torch.float64), len(x)
    k = data.draw(st.integers(1, n))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, ranks = SoftSort(2e-4, TOL)(values), SoftRank(2e-4, TOL)(values)
        top = SoftTopK(k, 2e-4, largest, TOL)(values)
    room = n * n * (math.exp(-70) + 2 * n * TOL)
    assert (found - values.sort().values).abs().max() <= 18 * room
    assert (ranks - values.argsort().argsort()).abs().max() <= n * room
    expected = torch.zeros(n, dtype=torch.float64).scatter(0, values.topk(k, largest=largest).indices, 1.0)
    assert (top - expected).abs().max() <= room
