r"""The paper's convergence bounds, as printed and as its proof supports them, and the bound of docs/theory.md.

**Radius.** The paper defines r twice:

    theorem   ¼ r² = ‖p₁ − p*‖² + ‖q₁ − q*‖²,      p = e^{u/λ}, q = e^{v/λ}          `theorem_radius`
    lemma      r  = 2(‖θ₁ − θ*‖ + ‖θ*‖),            θ = (u, v)                        `lemma_radius`

**Gauge.** (u* + c, v* − c) is a solution for every c, and r depends on c. Here c makes Σu* = Σv* (`balanced`): that is
the solution of least norm, hence the smallest lemma radius from the paper's start θ₁ = 0. For n ≠ m, Σ is the mean.

**From the lemma to the theorem.** The lemma puts a matrix A of the form diag(p) Q diag(q) into S_ε (marginals within ε
of 1). Propositions S and d and the contraction of Sinkhorn then give, for ε < 1/36 (proposition d is used on S_9ε, and
needs 9ε < ¼),

    μ(q, q*) ≤ 12ε/(1 − η),     μ(p, p*) ≤ 36ε/(1 − η) + 4ε,

the last 4ε because the proof's w₁ belongs to g(A), not to A. Every function returns inf where its value overflows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from otformer import checks
from otformer.theory.hilbert import exp, inverse_gap, spread

Potentials = tuple[Tensor, Tensor]
Form = Literal["printed", "proof", "corrected"]
AVERAGED = "from there on a layer is no average of the identity and a non-expansive map (docs/theory.md, 4)"


def balanced(u: Tensor, v: Tensor) -> Potentials:
    """The same solution, (u + c, v − c), with equal means.

    >>> balanced(torch.tensor([3.0, 1.0]), torch.tensor([0.0, 0.0]))
    (tensor([2., 0.]), tensor([1., 1.]))
    """
    u, v = _pair("the potentials", (u, v))
    c = (v.mean(-1, keepdim=True) - u.mean(-1, keepdim=True)) / 2
    return u + c, v - c


def theorem_radius(start: Potentials, solution: Potentials, reg: float) -> float:
    """r of the formal theorem, 2√(‖p₁ − p*‖² + ‖q₁ − q*‖²), with the solution balanced."""
    reg, pairs = checks.positive("reg", reg), zip(*_two(start, solution), strict=True)
    squares = sum(float(((t / reg).exp() - (s / reg).exp()).square().sum()) for t, s in pairs)
    return 2 * math.sqrt(squares) if math.isfinite(squares) else math.inf


def lemma_radius(start: Potentials, solution: Potentials) -> float:
    """r of the lemma's proof, 2(‖θ₁ − θ*‖ + ‖θ*‖), with the solution balanced."""
    theta, target = map(torch.cat, _two(start, solution))
    return 2 * float((theta - target).norm() + target.norm())


def lemma_step(n: int, reg: float, radius: float, form: Literal["printed", "corrected"] = "printed") -> float:
    """γ = 1/((n+2) e^{2r/λ}), the lemma's step; ``"corrected"``: λ times that, since L's Hessian has a factor 1/λ.

    >>> lemma_step(8, reg=0.5, radius=0.0), lemma_step(8, reg=0.5, radius=0.0, form="corrected")
    (0.1, 0.05)
    """
    n, reg, radius = _check(n, reg, radius)
    checks.choice("form", form, ("printed", "corrected"))
    return exp(-2 * radius / reg) / (n + 2) * (reg if form == "corrected" else 1)


def lemma_epsilon(n: int, reg: float, radius: float, depth: int, form: Form = "printed") -> float:
    """ε of the lemma: within ``depth`` layers some A is in S_ε. With Z = (n+2) e^{2r/λ}, ε² is

    - ``"printed"``: 3n e^{3r/λ} r/ℓ, the lemma's statement;
    - ``"proof"``: Z (n e^{r/λ} + 1) r/ℓ, the last line of its proof: n² instead of n;
    - ``"corrected"``: ζ² (n/e + 1) r²/(16ℓ), ζ = Z/λ: n³.

    The first two are false for small λ (docs/errata.md, 14). The third is what the paper's lines give, once corrected, from
    θ₀ = 0 with the step 1/ζ: Λ₀⁻¹ = ζ(S + 1) ≤ ζ(n/e + 1) for C ≥ 0, ‖θ*‖ = r/4, and Σ_k ‖∇L‖² ≤ ζΔ₀. It holds for C ≥ 0,
    θ₀ = 0 and `lemma_step` ``"corrected"``: docs/errata.md, 21, has the proof, which is not the paper's (see 15).

    >>> [round(lemma_epsilon(3, reg=0.1, radius=0.1, depth=10_000, form=form), 2) for form in ("printed", "corrected")]
    [0.04, 0.13]
    """
    n, reg, radius = _check(n, reg, radius)
    depth = checks.count("depth", depth)
    checks.choice("form", form, ("printed", "proof", "corrected"))
    zeta = (n + 2) * exp(2 * radius / reg)
    squares = {
        "printed": 3 * n * exp(3 * radius / reg) * radius,
        "proof": zeta * (n * exp(radius / reg) + 1) * radius,
        "corrected": (zeta / reg) * (zeta / reg) * (n / math.e + 1) * radius * radius / 16,
    }
    return math.sqrt(squares[form] / depth)


def informal_bound(n: int, reg: float, depth: int, constant: float = 1.0) -> float:
    """O(n^{3/2} e^{1/λ}/√ℓ), the bound of the main text; the constant hidden in the O is an argument."""
    n, reg, _ = _check(n, reg, 0.0)
    return checks.not_negative("constant", constant) * n**1.5 * exp(1 / reg) / math.sqrt(checks.count("depth", depth))


def formal_depth(n: int, reg: float, radius: float, form: Literal["printed", "corrected"] = "printed") -> float:
    """The depth from which the formal bound is claimed, 64 n e^{3r/λ} r.

    ``"corrected"``: the depth at which the printed ε falls below the 1/36 that the proof needs, 3·36² n e^{3r/λ} r.
    """
    n, reg, radius = _check(n, reg, radius)
    checks.choice("form", form, ("printed", "corrected"))
    return (64 if form == "printed" else 3 * 36**2) * n * exp(3 * radius / reg) * radius


def formal_bound(n: int, reg: float, radius: float, depth: int, log_phi: float) -> float:
    """36 √n e^{1.5 r/λ}/(√ℓ (1 − η)), as printed; claimed for ℓ ≥ `formal_depth`, with `lemma_step`."""
    n, reg, radius = _check(n, reg, radius)
    depth = checks.count("depth", depth)
    return 36 * math.sqrt(n) * exp(1.5 * radius / reg) / math.sqrt(depth) * inverse_gap(log_phi)


def bound_from_epsilon(epsilon: float, log_phi: float) -> float:
    """What A ∈ S_ε implies, proved: max(μ(p, p*), μ(q, q*)) ≤ 36ε/(1 − η) + 4ε for ε < 1/36; inf above that."""
    epsilon = checks.not_negative("epsilon", epsilon)
    return 36 * epsilon * inverse_gap(log_phi) + 4 * epsilon if epsilon < 1 / 36 else math.inf


def residual_bound(reg: float, distance: float, depth: int, step: float | None = None) -> float:
    """Ours, for `gradient`: after ℓ layers of step γ < 2λ, max_i |S_i − a_i|/(S_i + a_i) ≤ R/(λ √(π ℓ g(1−g))), g = γ/2λ.

    R = ‖(u₀, −v₀) − (u*, −v*)‖_∞ for any solution. n enters only through R, there is no e^{r/λ}, and it holds at the last
    layer, not at the best (docs/theory.md, section 4; Baillon and Bruck 1996). With γ = λ it is 2R/(λ√(πℓ)).
    """
    reg, distance = checks.positive("reg", reg), checks.not_negative("distance", distance)
    g = 0.5 if step is None else checks.positive("step", step) / (2 * reg)
    if g >= 1:
        raise checks.ArgumentError("step", f"be below 2 reg = {2 * reg:g}", repr(step), AVERAGED)
    return distance / (reg * math.sqrt(math.pi * checks.count("depth", depth) * g * (1 - g)))


def distances(iterates: Iterable[Potentials], solution: Potentials, reg: float) -> Tensor:
    """max(μ(p_k, p*), μ(q_k, q*)) of every iterate, computed from the potentials; the bounds are on its running minimum."""
    reg, (u, v) = checks.positive("reg", reg), _pair("solution", solution)
    if not isinstance(iterates, Iterable) or isinstance(iterates, (str, Tensor)):
        raise checks.ArgumentError("iterates", "be pairs (u, v)", type(iterates).__name__)
    found = []
    for pair in iterates:
        uk, vk = _pair("iterates", pair)
        if uk.shape[-1] != u.shape[-1] or vk.shape[-1] != v.shape[-1]:
            raise checks.ArgumentError("iterates", "have the sizes of solution", f"shape {tuple(uk.shape)} for u")
        found.append(torch.maximum(spread((uk - u) / reg), spread((vk - v) / reg)))
    if not found:
        raise checks.ArgumentError("iterates", "be at least one pair (u, v)")
    return torch.stack(found)


def _pair(name: str, given: Potentials) -> Potentials:
    """Potentials (u, v), finite, with as many problems in u as in v."""
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise checks.ArgumentError(name, "be a pair (u, v)", type(given).__name__)
    u, v = (checks.tensor(f"{letter} of {name}", t) for letter, t in zip("uv", given, strict=True))
    if not u.ndim or not v.ndim or u.shape[:-1] != v.shape[:-1] or not u.numel() or not v.numel():
        raise checks.ArgumentError(name, "be a pair (u, v) of vectors", f"shapes {tuple(u.shape)} and {tuple(v.shape)}")
    return u, v


def _two(start: Potentials, solution: Potentials) -> tuple[Potentials, Potentials]:
    """The start, and the balanced solution, of one problem."""
    first, last = _pair("start", start), balanced(*_pair("solution", solution))
    if any(s.shape != t.shape for s, t in zip(first, last, strict=True)):
        shapes = " and ".join(str(tuple(t.shape)) for t in first)
        raise checks.ArgumentError("start", "have the shapes of the solution", f"shapes {shapes}")
    return first, last


def _check(n: int, reg: float, radius: float) -> tuple[int, float, float]:
    return checks.count("n", n), checks.positive("reg", reg), checks.not_negative("radius", radius)
