r"""What is true of a solution whose marginals are penalised (solvers/damped.py has the problem and the blocks).

With R = r sᵀ, r = a and s = b or both 1, and potentials f, g of the caller's cost C,

    P_ij = R_ij exp((f_i + g_j − C_ij)/λ) = exp((u_i + v_j − C_ij)/λ − 1),  u = f + λ (log r + 1),  v = g + λ log s.

Since λ log(P_ij/R_ij) = f_i + g_j − C_ij, the value needs no more than the marginals P1 and Pᵀ1:

    Σ P C + λ KL(P|R) = Σ_i f_i (P1)_i + Σ_j g_j (Pᵀ1)_j + λ (ΣR − ΣP).

**Gradients** of the value are those of the envelope theorem, in the dual Σ a φ_a(f) + Σ b φ_b(g) + λ (ΣR − ΣP) with
φ(f) = ρ (1 − exp(−f/ρ)), or f where ρ is infinite:

    P in C,      KL(P|R) in λ,      φ_a(f_i), and for R = a bᵀ λ (Σb − Σ_j P_ij/a_i) more, in a_i,      the same in b_j.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otformer.transport.costs.cost import priced
from otformer.transport.derivatives.envelope import Slope
from otformer.transport.types import Answer, Penalty, Problem, Solved


def reference(penalty: Penalty, log_a: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
    """log r [n] and log s [m] of R = r sᵀ."""
    return (log_a, log_b) if penalty.relative else (log_a * 0, log_b * 0)


def answer_penalised(problem: Problem, solved: Solved) -> Answer:
    """The answer of potentials f, g of the caller's cost."""
    problem, penalty = problem.as_tensors(), problem.penalty
    assert penalty is not None
    form, reg, a, b, f, g = problem.form, problem.entropy, problem.a, problem.b, solved.u, solved.v
    if not len(a):
        nothing = {"plan": form.give(a.new_zeros(problem.shape)), "value_linear": form.number(0.0)}
        return Answer((form.give(f), form.give(g)), form.number(0.0), 0.0, 0.0, nothing)
    with torch.no_grad():
        log_r, log_s = reference(penalty, a.log(), b.log())
        p, q = problem.cost.gauge()
        plan = problem.cost.planned(solved.plan, f - p + reg * (log_r + 1), g - q + reg * log_s, reg)
        rows, columns = plan.marginals()
        whole = log_r.exp().sum() * log_s.exp().sum()
        entropic = rows @ f + columns @ g + reg * (whole - rows.sum())
        value, in_weights = entropic, list[Slope]()
        sides = (penalty.rho_a, f, rows, a, b), (penalty.rho_b, g, columns, b, a)
        for rho, h, marginal, weights, others in sides:
            value = value + (0.0 if rho == math.inf else rho * relative_entropy(marginal, weights))
            slope = marginal_slope(h, rho)
            in_weights.append(slope + reg * (others.sum() - marginal / weights) if penalty.relative else slope)
    largest = torch.finfo(torch.float32 if form.single else torch.float64).max
    if not max(abs(float(value)), float(rows.max())) <= largest:
        raise ValueError(f"M, or the cost of X_a and X_b, is too low: the mass of the plan overflows, got reg = {reg:g}")
    off = float((rows - a).abs().sum() + (columns - problem.target).abs().sum())
    return priced(problem, plan, (rows, columns), (f, g), value, in_weights, lambda linear: (entropic - linear) / reg, off)


def marginal_slope(f: Tensor, rho: float) -> Tensor:
    """φ(f), the penalty's part of the value's gradient with respect to a weight."""
    return f if rho == math.inf else -rho * torch.expm1(-f / rho)


def relative_entropy(p: Tensor, q: Tensor) -> Tensor:
    """KL(p|q) = Σ p log(p/q) − p + q."""
    return (torch.special.xlogy(p, p / q) - p + q).sum()
