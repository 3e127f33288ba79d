"""Plans of long lists by factors: the same numbers and gradients as the n × n plan of the other path, and as brute force."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch.autograd import gradcheck

from oracles import uniform
from otformer.nn import SoftRank, SoftSort
from otformer.nn import line_plan as lines
from otformer.nn.line_newton import is_linked

N = 120
FAMILIES = {
    "normal": lambda g: torch.randn(3, N, generator=g, dtype=torch.float64),
    "uniform": lambda g: torch.rand(3, N, generator=g, dtype=torch.float64),
    "sorted": lambda g: torch.linspace(-1, 2, N, dtype=torch.float64).repeat(3, 1),
    "ties": lambda g: torch.randint(20, (3, N), generator=g).double(),
    "few values": lambda g: torch.randint(3, (3, N), generator=g).double(),
    "heavy tails": lambda g: torch.tan(3.1 * (torch.rand(3, N, generator=g, dtype=torch.float64) - 0.5)),
    "clusters": lambda g: torch.randint(5, (3, N), generator=g) + 0.01 * torch.randn(3, N, generator=g).double(),
}


@pytest.fixture
def taken(monkeypatch):
    """How many lists went this way, of how many."""
    counts, find = [0, 0], lines.find_lines

    def counted(x, *rest):
        found = find(x, *rest)
        counts[0] += int(found[1].sum())
        counts[1] += len(x)
        return found

    monkeypatch.setattr(lines, "find_lines", counted)
    return counts


def plan_of(x: np.ndarray, reg: float) -> np.ndarray:
    """The plan of standardised values onto the places, in sorted order, by Sinkhorn's iterations on logarithms."""
    n, x = len(x), np.sort((x - x.mean()) / x.std())
    y = ((np.arange(n) + 0.5) / n - 0.5) * np.sqrt(12 / (1 - 1 / n**2))
    X, v = 2 * np.outer(x, y) / reg, np.zeros(n)
    for _ in range(20_000):
        u = -np.log(n) - logsumexp(X + v, axis=1)
        new = -np.log(n) - logsumexp(X + u[:, None], axis=0)
        v, moved = new, np.abs(new - v).max()
        if moved < 1e-13:
            break
    return np.exp(X + u[:, None] + v)


@pytest.mark.parametrize("family", FAMILIES)
def test_factors_give_the_plan_of_sinkhorn_s_iterations(family, taken):
    x, reg = FAMILIES[family](torch.Generator().manual_seed(0))[:1], 0.2
    order = x.argsort(1)
    P = plan_of(x[0].numpy(), reg)
    np.testing.assert_allclose(SoftSort(reg, tol=1e-11)(x)[0], N * P.T @ x.sort().values[0].numpy(), atol=1e-7)
    ranks = SoftRank(reg, tol=1e-11)(x)[0][order[0]]
    np.testing.assert_allclose(ranks, N * P @ np.arange(N), atol=1e-7)
    assert taken == [2, 2]


@pytest.mark.parametrize("reg", [1e-3, 1e-2, 0.1, 3.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_and_gradients_are_those_of_the_other_path(family, reg, taken, monkeypatch):
    x = FAMILIES[family](torch.Generator().manual_seed(1))
    w = uniform(2, 3, N) + 0.1
    mask = torch.ones(3, N, dtype=torch.bool)
    mask[1, 90:] = False
    probe = uniform(3, 3, N)
    table = uniform(4, 3, N, 2)

    def results() -> list[torch.Tensor]:
        found = []
        for call in (
            lambda x, w, t: SoftSort(reg, tol=1e-10)(x, w),
            lambda x, w, t: SoftRank(reg, tol=1e-10)(x, None, mask),
            lambda x, w, t: SoftSort(reg, tol=1e-10).carry(x, t, w, mask)[..., 0],
        ):
            inputs = [t.clone().requires_grad_() for t in (x, w, table)]
            out = call(*inputs)
            out.backward(probe)
            found += [out.detach(), *(t.grad for t in inputs if t.grad is not None)]
        return found

    here = results()
    assert taken[0] == taken[1] or (family, reg) in {("heavy tails", 1e-3), ("clusters", 1e-3), ("few values", 1e-3)}
    monkeypatch.setattr(lines, "LINE_FROM", 10**9)
    for own, other in zip(here, results(), strict=True):
        torch.testing.assert_close(own, other, atol=1e-6 * float(1 + other.abs().max()), rtol=0)


def test_gradients_are_those_of_finite_differences():
    x, w = (uniform(5, 1, 40) * 3).requires_grad_(), (uniform(6, 1, 40) + 0.3).requires_grad_()
    for layer in (SoftSort(0.3, tol=1e-12), SoftRank(0.3, tol=1e-12)):
        assert gradcheck(layer, (x, w), fast_mode=True, atol=1e-4)


def test_a_list_that_does_not_go_this_way_leaves_the_others_alone(taken):
    x = torch.randn(3, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[1] = (2 * x[1]).exp()  # no blur reaches from one of the great values to the next
    found = SoftRank(1e-3, max_depth=100_000)(x.requires_grad_())
    found.square().sum().backward()
    assert 0 < taken[0] < taken[1]
    assert x.grad.isfinite().all()
    alone = SoftRank(1e-3)(x.detach()[2:])
    torch.testing.assert_close(found[2:].detach(), alone, atol=1e-6, rtol=0)


def test_it_is_differentiable_once():
    x = uniform(7, 1, 50).requires_grad_()
    (first,) = torch.autograd.grad(SoftRank()(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="this layer can be differentiated once"):
        torch.autograd.grad(first.sum(), x)


def test_plans_whose_values_hardly_mix_have_the_gradients_of_the_other_path(monkeypatch):
    """Links below rounding, as between great lognormal values: by factors, gradients were ten times too large."""
    g = torch.Generator().manual_seed(0)
    x = (2 * torch.randn(64, 50, generator=g, dtype=torch.float64)).exp().requires_grad_()
    probe = torch.randn(64, 50, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    monkeypatch.setattr(lines, "LEAST_BLUR", 0.0)
    (grad,) = torch.autograd.grad((SoftSort(1e-3)(x) * probe).sum(), x)
    monkeypatch.setattr(lines, "LINE_FROM", 10**9)
    (expected,) = torch.autograd.grad((SoftSort(1e-3, tol=1e-10)(x) * probe).sum(), x)
    torch.testing.assert_close(grad, expected, atol=1e-5, rtol=0)


def test_weak_links_are_refused_and_strong_ones_are_not():
    c = np.full(4, 0.25)
    assert is_linked(np.array([1e-3, 1e-8, 1.0, 0.0]), c)
    assert not is_linked(np.array([1e-3, 1e-11, 1.0, 0.0]), c)
    assert not is_linked(np.array([1e-3, np.nan, 1.0, 0.0]), c)


def test_many_gradients_at_once_are_those_of_one_after_the_other(taken):
    x = uniform(8, 2, 60).requires_grad_()
    out, G = SoftRank()(x), uniform(9, 3, 2, 60)
    assert taken == [2, 2]

    def pull(probe: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(out, x, probe, retain_graph=True)[0]

    torch.testing.assert_close(torch.func.vmap(pull)(G), torch.stack([pull(probe) for probe in G]))


def test_a_gradient_whose_equations_are_not_solved_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    pull = lines._pull
    monkeypatch.setattr(lines, "_pull", lambda *given: max(pull(*given), 0.5))
    x = torch.linspace(0, 1, 50, dtype=torch.float64).requires_grad_()
    with pytest.warns(RuntimeWarning, match="conjugate gradients left 0.5 of the residual"):
        SoftSort(reg=0.1)(x).square().sum().backward()
