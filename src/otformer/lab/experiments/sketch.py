r"""Figure 8 of the paper, its sketch of the proof of theorem 3.2, drawn from data.

The sketch has layers (blue) that run into the set S_ε of nearly doubly stochastic matrices (a small circle), and from there
a hypothetical run of Sinkhorn (red) to the solution. For n = 2 this can be drawn as it is. M has four potentials; one is
gauge, one is the scale of M, and the two that are left are the coordinates in which the theorem measures,

    α = (u_1 − u_2)/λ,     β = (v_1 − v_2)/λ,     |α − α*| = μ(p, p*),     |β − β*| = μ(q, q*).

In this plane, the scale chosen best at every point:

    level sets   min_c L(u + c, v) = λ (n log Σ_ij M_ij − n log n + n) − Σ u − Σ v
    S_ε          (s_max − s_min)/(s_max + s_min) ≤ ε,  s the row and column sums of M
                 (max_k |cs_k − 1| is least for c = 2/(s_max + s_min))
    the square   that the proof draws around the solution: μ ≤ 36ε/(1 − η) + 4ε at the first matrix in S_ε (with the 4ε
                 that the paper leaves out, erratum 24, and for ε < 1/36)

and the smaller square of the inequality that replaces the proof's second half, for any n, with z = log S, z' = log S' and
η the contraction of a half-step of Sinkhorn:

    osc((u − u*)/λ) ≤ (osc z + η osc z')/(1 − η²) ≤ log((1 + ε)/(1 − ε))/(1 − η)  in S_ε.

*Proof.* With e = (u − u*)/λ and f = (v − v*)/λ, z_i = e_i + log Σ_j P*_ij e^{f_j}. The matrix P* fixes the vector 1 and
contracts osc of logarithms by η (Birkhoff), so osc e ≤ osc z + η osc f, and likewise osc f ≤ osc z' + η osc e. Insert the
second into the first. In S_ε all of S, S' lie in [1 − ε, 1 + ε], so osc z, osc z' ≤ log((1 + ε)/(1 − ε)). ∎
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import unit_cube
from otformer.lab.experiments._texts import ends
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.schedule import Gradient
from otformer.theory.bounds import bound_from_epsilon
from otformer.theory.depth_bounds import hilbert_from_marginals
from otformer.theory.hilbert import doubly_stochastic_gap, eta, log_phi, spread
from otformer.transport.costs.matrix import Dense
from otformer.transport.reference import dual, plan, sinkhorn
from otformer.transport.solvers.network import run as layers_from

EPSILON = 0.025  # of S_ε: below the 1/36 that the proof needs
SIZES, REG, PROBLEMS, DEPTH = (2, 3, 5, 8), 0.2, 20, 800  # points per side, λ, problems of each size, layers
SINKHORN_STEPS = 12  # iterations of the hypothetical run
STARTS = ((0.0, 0.0), (2.6, 2.2), (-2.6, 2.4), (2.4, -2.4), (-2.2, -2.6))  # (α, β) of the figure; the network's is (0, 0)
DRAWN = torch.tensor([[0.1, 0.5], [0.9, 0.2]], dtype=torch.float64)  # its costs
PROOF_RATIO = "μ/proof's bound"
Potentials = tuple[Tensor, Tensor]


class Journey(NamedTuple):
    """Layers from a start into S_ε, and Sinkhorn from there: (u, v) of each, and the dual along the layers."""

    layers: list[Potentials]
    sinkhorn: list[Potentials]
    duals: list[float]


def journey(C: Tensor, start: Potentials | None = None) -> Journey:
    """Layers with γ = λ until the first M in S_ε, then Sinkhorn: rows, columns, … from that M.

    >>> found = journey(DRAWN)
    >>> len(found.layers), [bool(doubly_stochastic_gap(plan(DRAWN, *each, REG)) <= EPSILON) for each in found.layers[-2:]]
    (16, [False, True])
    """
    zero = torch.zeros_like(C[0])
    walked = []
    for u, v in layers_from(Dense(C, zero, zero), Gradient().layers(REG, DEPTH), start):
        walked.append((u, v))
        if doubly_stochastic_gap(plan(C, u, v, REG)) <= EPSILON:
            break
    else:
        raise ArithmeticError(f"no layer up to {DEPTH} is within {EPSILON} of doubly stochastic")
    return Journey(walked, list(_sinkhorn_from(C, *walked[-1])), [float(dual(C, *each, REG)) for each in walked])


def _sinkhorn_from(C: Tensor, u: Tensor, v: Tensor) -> Iterable[Potentials]:
    """(u, v), then after each full iteration."""
    yield u, v
    for _ in range(SINKHORN_STEPS):
        u = u - REG * plan(C, u, v, REG).sum(1).log()
        v = v - REG * plan(C, u, v, REG).sum(0).log()
        yield u, v


def sharp_bound(epsilon: float, log_phi: float) -> float:
    """log((1 + ε)/(1 − ε))/(1 − η): how far in μ a matrix diag(p) Q diag(q) of S_ε can be from the solution.

    >>> round(sharp_bound(0.1, 0.0), 4)
    0.2007
    """
    osc = 2 * math.atanh(epsilon)  # of log S over all matrices of S_ε
    return hilbert_from_marginals(osc, osc, log_phi)


def run(context: Context) -> Outcome:
    generator = context.generator()
    cases = [(n, k) for n in SIZES for k in range(PROBLEMS)]
    rows = [_measure(n, k, unit_cube(n, 2, generator=generator)[2]) for n, k in context.each(cases, 0.9)]
    drawn = {start: journey(DRAWN, _potentials(*start)) for start in STARTS}
    checks = {
        "enter": all(row["largest change of L"] < 0 for row in rows),
        "contracts": all(row["largest contraction/η"] <= 1 + 1e-6 for row in rows),
        "proof": all(row[PROOF_RATIO] <= 1 for row in rows),
        "sharper": all(row["μ/sharper bound"] <= 1 for row in rows),
        "much_sharper": all(row["proof's bound"] >= 15 * row["sharper bound"] for row in rows),
        "layers_alone": all(row["μ by layers alone"] < 1e-6 for row in rows),
    }
    settings = {"ε": EPSILON, "λ": REG, "sizes": SIZES, "problems": PROBLEMS, "starts": STARTS, "costs": DRAWN.tolist()}
    numbers = {
        "count": len(rows),
        "starts": len(drawn),
        "layers": ends(row["layers to S_ε"] for row in rows),
        "contraction": max(row["largest contraction/η"] for row in rows),
        "proof": max(row[PROOF_RATIO] for row in rows),
        "sharper": max(row["μ/sharper bound"] for row in rows),
        "shrink": min(row["proof's bound"] / row["sharper bound"] for row in rows),
    }
    return Outcome(rows, _draw(drawn), numbers, checks, settings)


def _measure(n: int, number: int, C: Tensor) -> Row:
    """One problem from the network's start: when S_ε is reached, how far the solution is then, and how Sinkhorn goes on."""
    found, solved, phi = journey(C), sinkhorn(C, REG), log_phi(C, REG)
    path = [_distance(each, solved) for each in found.sinkhorn]
    ratios = [b / a for a, b in pairwise(path) if a > 1e-9]  # below that they are rounding
    proof, sharp = bound_from_epsilon(EPSILON, phi), sharp_bound(EPSILON, phi)
    row: Row = {"n": n, "problem": number, "layers to S_ε": len(found.layers) - 1, "μ": path[0]}
    row |= {"proof's bound": proof, "sharper bound": sharp, PROOF_RATIO: path[0] / proof}
    row |= {"μ/sharper bound": path[0] / sharp, "largest contraction/η": max(ratios) / eta(phi)}
    zero = torch.zeros_like(C[0])
    layers = Gradient().layers(REG, DEPTH)
    end = next(islice(layers_from(Dense(C, zero, zero), layers, found.layers[-1]), DEPTH, None))
    row["largest change of L"] = max((b - a for a, b in pairwise(found.duals)), default=-math.inf)
    return row | {"μ by layers alone": _distance(end, solved)}


def _distance(at: Potentials, solution: Potentials) -> float:
    """max(μ(p, p*), μ(q, q*))."""
    return max(float(spread((t - s) / REG)) for t, s in zip(at, solution, strict=True))


def _potentials(alpha: float, beta: float) -> Potentials:
    """The potentials of a point of the plane, mean 0 on each side."""
    half = torch.tensor([0.5, -0.5], dtype=torch.float64) * REG
    return alpha * half, beta * half


def _point(at: Potentials) -> tuple[float, float]:
    u, v = at
    return float(u[0] - u[1]) / REG, float(v[0] - v[1]) / REG


def _draw(drawn: dict[tuple[float, float], Journey]) -> figures.Figure:
    fig, (whole, near) = figures.figure(11, 5.2, columns=2)
    solution = _point(sinkhorn(DRAWN, REG))
    reach = sharp_bound(EPSILON, log_phi(DRAWN, REG)) * 1.5
    for axes, span, title in (
        (whole, 3.2, "Layers run into the nearly doubly stochastic matrices"),
        (near, reach, "Close up: the bound without Sinkhorn is nearly attained"),
    ):
        alpha, beta, level, gap = _landscape(solution if axes is near else (0.0, 0.0), span)
        axes.contour(alpha, beta, level.log10(), 14, colors=figures.GREY, linewidths=0.5, linestyles="solid")
        axes.contourf(alpha, beta, gap, [0, EPSILON], colors=[figures.YELLOW], alpha=0.35)
        for k, found in enumerate(drawn.values()):
            _path(axes, found.layers, figures.BLUE, "layers, γ = λ" if not k else "")
            _path(axes, found.sinkhorn, figures.ORANGE, "Sinkhorn, hypothetical" if not k else "")
        axes.plot(*solution, "*", color=figures.INK, markersize=10, label="solution")
        axes.set(
            xlim=(float(alpha[0]), float(alpha[-1])), ylim=(float(beta[0]), float(beta[-1])), title=title, aspect="equal"
        )
        axes.set(xlabel=figures.mathtext("(u_1 − u_2)/λ"), ylabel=figures.mathtext("(v_1 − v_2)/λ"))
        axes.grid(visible=False)
    (a, b), r = solution, reach / 1.5
    box = ([a - r, a + r, a + r, a - r, a - r], [b - r, b - r, b + r, b + r, b - r])
    proof = bound_from_epsilon(EPSILON, log_phi(DRAWN, REG))
    whole.plot([], [], "--", color=figures.GREEN, label=f"proof's square, μ ≤ {proof:.2g}: outside the picture")
    near.plot(*box, color=figures.GREEN, label=f"sharper square, μ ≤ {r:.2g}")
    for axes in (whole, near):
        axes.fill([], [], color=figures.YELLOW, alpha=0.35, label=figures.mathtext(f"S_ε, ε = {EPSILON}"))
        axes.plot([], [], color=figures.GREY, linewidth=0.5, label="level sets of L")
        axes.legend(loc="upper right", framealpha=0.9, frameon=True)
    return fig


def _landscape(middle: tuple[float, float], span: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """α, β, L above its least value, and the least gap over scales, on a grid around a point."""
    side = torch.linspace(-span, span, 181, dtype=torch.float64)
    alpha, beta = middle[0] + side, middle[1] + side
    half = torch.tensor([0.5, -0.5], dtype=torch.float64)
    H = alpha[None, :, None, None] * half[:, None] + beta[:, None, None, None] * half - DRAWN / REG - 1
    M = H.exp()  # [β, α, 2, 2]
    level = REG * 2 * M.sum((2, 3)).log()  # Σu = Σv = 0 in this gauge; constants drop out
    sums = torch.cat([M.sum(2), M.sum(3)], dim=-1)
    low, high = sums.amin(-1), sums.amax(-1)
    return alpha, beta, level - _least(sinkhorn(DRAWN, REG)) + 1e-9, (high - low) / (high + low)


def _least(solution: Potentials) -> float:
    """The value of `level` at the solution."""
    u, v = (t - t.mean() for t in solution)
    return float(REG * 2 * plan(DRAWN, u, v, REG).sum().log())


def _path(axes: Any, path: list[Potentials], colour: str, label: str) -> None:
    axes.plot(*zip(*map(_point, path), strict=True), ".-", color=colour, linewidth=1, markersize=3.5, label=label)
