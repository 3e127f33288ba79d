r"""The LP relaxation (section 2.1 of the paper): when P̂ = P*, and where P*_λ goes when the optimum is not unique.

**Birkhoff.** The doubly stochastic matrices are the convex hull of the permutation matrices. A linear function on them is
least at a vertex, so the relaxed problem and the problem over permutations have the same *value*, always. They have the same
*solution*, P̂ = P*, only if the optimal permutation is unique: otherwise the minimisers are a face, the convex hull of all
optimal permutations, and nothing but the solver's habit makes P̂ one of its vertices.

**The limit.** Let F be the set of optimal doubly stochastic matrices and E the union of the supports of the optimal
permutations. As λ → 0, P*_λ tends to the matrix of F with the largest entropy H(P) = −Σ P_ij log P_ij, and that is

    P° = diag(p) 1_E diag(q),      the doubly stochastic scaling of the 0/1 matrix of E.

*Proof.* Let P̄ be a limit of P*_λ along some λ → 0 (the set is compact), and Q ∈ F. Since P*_λ is optimal for λ,
⟨C, P*_λ⟩ − λH(P*_λ) ≤ ⟨C, Q⟩ − λH(Q). H is bounded, so ⟨C, P̄⟩ ≤ ⟨C, Q⟩ and P̄ ∈ F. As ⟨C, P*_λ⟩ ≥ ⟨C, Q⟩, the same
inequality gives H(P*_λ) ≥ H(Q), and H(P̄) ≥ H(Q) as H is continuous. H is strictly concave, so its maximiser over F is
unique: every limit is that one, P°. Next, F is the set of all doubly stochastic matrices with support in E: by Birkhoff its
elements are means of permutations, those of F of optimal ones; conversely, for optimal potentials u_i + v_j ≤ C_ij with
equality on E (complementary slackness), ⟨C, P⟩ = Σu + Σv for every doubly stochastic P on E. The mean of the optimal
permutations is positive on all of E, and H has slope +∞ from a zero entry towards it, so the maximum of H over F is positive
on E, and there Lagrange's condition is log P_ij = α_i + β_j on E. ∎

So P*_λ → P* if and only if P* is unique. P° is *not* the mean of the optimal permutations in general. The smallest example
has costs 0 but for C_13 = C_31 = 1. Three permutations are optimal, their mean has 1/3 in the middle, and with φ the golden
ratio

    P° = [[1/φ, 1/φ², 0], [1/φ², 1/φ³, 1/φ²], [0, 1/φ², 1/φ]],

since 1/φ + 1/φ² = 1 and 2/φ² + 1/φ³ = 1. Its largest entries do not choose a permutation either: row 2 has two.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import figures
from otformer.experiments._problems import unit_cube
from otformer.experiments.experiment import Context, Finding, Outcome, Row
from otformer.network.schedule import Relaxed
from otformer.network.transformer import AligningTransformer
from otformer.transport.problem.problem import squared_distances
from otformer.transport.solve import solve

SIZES, PROBLEMS = (2, 3, 4, 5, 6), 40  # points per side, problems of each size and kind
GRID = 3  # points of the second kind lie on a grid of GRID × GRID
LEAST_REG = 0.02  # of the λ at which P*_λ is compared with its limit; costs on the grid are whole numbers
TIED_REGS = [10 ** (-k / 4) for k in range(13)]  # λ from 1 to 1e-3, for the example
NEAR = 0.01  # by so much the diagonal is cheaper in the near tie
EXAMPLE = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
GOLDEN = (1 + math.sqrt(5)) / 2
POINT_KINDS = ("random", "grid")


class Optima(NamedTuple):
    """All optimal permutations of a cost [n, n], as columns [count, n], and their cost."""

    permutations: Tensor
    cost: float

    @property
    def matrices(self) -> Tensor:
        """[count, n, n]."""
        return torch.nn.functional.one_hot(self.permutations).double()


def optima(C: Tensor) -> Optima:
    """Every optimal permutation, by trying all n!.

    >>> optima(EXAMPLE).permutations.tolist()
    [[0, 1, 2], [0, 2, 1], [1, 0, 2]]
    """
    tried = torch.tensor(list(permutations(range(len(C)))))
    costs = C[torch.arange(len(C)), tried].sum(1)
    least = float(costs.min())
    return Optima(tried[costs <= least + 1e-9 * (1 + abs(least))], least)


def centre(found: Optima) -> Tensor:
    """P°, the doubly stochastic matrix of largest entropy among the optimal ones: the scaling of the 0/1 matrix of E.

    >>> centre(optima(EXAMPLE)).round(decimals=3).tolist()
    [[0.618, 0.382, 0.0], [0.382, 0.236, 0.382], [0.0, 0.382, 0.618]]
    """
    P = found.matrices.amax(0)
    while float((P.sum(1) - 1).abs().max()) > 1e-13:
        P = P / P.sum(1, keepdim=True)
        P = P / P.sum(0)
    return P


def relaxed(C: Tensor) -> tuple[Tensor, float]:
    """P̂ and its value: the linear program over doubly stochastic matrices, by scipy's dual simplex."""
    from scipy.optimize import linprog

    n = len(C)
    sums = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    solved = linprog(C.flatten().numpy(), A_eq=sums, b_eq=np.ones(2 * n), method="highs-ds")
    P = torch.as_tensor(solved.x).view(n, n)
    return P, float((P * C).sum())


def run(context: Context) -> Outcome:
    generator = context.generator()
    cases = [(kind, n, k) for kind in POINT_KINDS for n in SIZES for k in range(PROBLEMS)]
    rows = [_measure(kind, n, k, generator) for kind, n, k in context.each(cases, 0.8)]
    tied = [_example_row(0.0, reg) for reg in TIED_REGS]
    near = [_example_row(NEAR, reg) for reg in TIED_REGS]
    network = _by_network(TIED_REGS[4])  # λ = 0.1
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in POINT_KINDS}
    several = [row for row in rows if row["optimal permutations"] > 1]
    checks = {
        f"every problem, n = {SIZES[0]} to {SIZES[-1]}: the linear program has the least cost of all n! permutations": all(
            abs(row["LP value"] - row["least cost"]) < 1e-9 for row in rows
        ),
        "every problem: the simplex method's P̂ is a vertex, one of the optimal permutations": all(
            row["‖P̂ − nearest optimal permutation‖"] < 1e-9 for row in rows
        ),
        "random points: the optimal permutation is unique in every problem": all(
            row["optimal permutations"] == 1 for row in by_kind["random"]
        ),
        "points on a grid: in at least a third of the problems it is not": (
            3 * sum(row["optimal permutations"] > 1 for row in by_kind["grid"]) >= len(by_kind["grid"])
        ),
        f"wherever it is not, P*_λ at λ = {LEAST_REG:g} is within 1e-6 of P°, and 0.25 or more from every permutation": (
            bool(several)
            and all(row["‖P*_λ − P°‖"] < 1e-6 for row in several)
            and all(row["‖P*_λ − nearest optimal permutation‖"] >= 0.25 for row in several)
        ),
        "the example: the network's attention at λ = 0.1 is the golden matrix, to 1e-4": (
            float((network - centre(optima(EXAMPLE))).abs().max()) < 1e-4
        ),
        "P° is not the mean of the optimal permutations: in some problem they differ by 0.05 or more": (
            max(row["‖P° − mean of optimal permutations‖"] for row in several) >= 0.05
        ),
    }
    settings = {"sizes": SIZES, "problems": PROBLEMS, "grid": GRID, "λ": LEAST_REG, "near tie": NEAR}
    summary = _told(by_kind, tied, near, network)
    return Outcome(rows, _draw(tied, near, by_kind["grid"]), summary, checks, settings, _found(by_kind, network))


def _found(by_kind: dict[str, list[Row]], network: Tensor) -> Finding:
    grid, count = by_kind["grid"], sum(map(len, by_kind.values()))
    tied = sum(row["optimal permutations"] > 1 for row in grid)
    return Finding(
        "P̂ = P* where the optimum is unique; with ties the plan tends to the centre of the optimal matrices, not to a "
        "permutation",
        f"The linear program has the least cost of all permutations in all {count} problems, as Birkhoff says. For random "
        f"points the optimum is unique; for points on a {GRID} × {GRID} grid it is not in {tied} of {len(grid)} problems. "
        "There P*_λ tends to the matrix of largest entropy among the optimal ones, and so does the network's attention.",
        f"in the example the middle entry tends to 1/φ³ = {GOLDEN**-3:.3f} (φ the golden ratio); the network has "
        f"{float(network[1, 1]):.3f}",
    )


def _measure(kind: str, n: int, number: int, generator: torch.Generator) -> Row:
    """One problem: the linear program beside all permutations, and P*_λ beside P°. Distances are largest entries."""
    if kind == "random":
        C = unit_cube(n, 2, generator=generator)[2]
    else:
        x, y = torch.randint(GRID, (2, n, 2), generator=generator).double()
        C = squared_distances(x, y)
    found, (P_hat, value) = optima(C), relaxed(C)
    row: Row = {"kind": kind, "n": n, "problem": number, "least cost": found.cost, "LP value": value}
    row |= {"optimal permutations": len(found.permutations)}
    row |= {"‖P̂ − nearest optimal permutation‖": _nearest(P_hat, found)}
    P, limit = _plan(C, LEAST_REG), centre(found)
    row["‖P*_λ − P°‖"] = float((P - limit).abs().max())
    row["‖P*_λ − nearest optimal permutation‖"] = _nearest(P, found)
    return row | {"‖P° − mean of optimal permutations‖": float((limit - found.matrices.mean(0)).abs().max())}


def _plan(C: Tensor, reg: float) -> Tensor:
    """P*_λ with unit marginals, to 1e-7. (Not by Sinkhorn: a tie between blocks can cost it e^{1/λ} steps.)"""
    ones = torch.ones_like(C[0])
    result = solve(C, ones, ones, reg=reg, tol=1e-7)
    if not result.converged:
        raise ArithmeticError(f"P*_λ has a marginal error of {result.error:.1e} at λ = {reg:g}")
    return result.plan


def _nearest(P: Tensor, found: Optima) -> float:
    return float((P - found.matrices).abs().amax((1, 2)).min())


def _example_row(lead: float, reg: float) -> Row:
    """The example with a diagonal that is cheaper by ``lead``: P*_λ beside P° and beside the identity."""
    C = EXAMPLE - lead * torch.eye(3, dtype=torch.float64)
    P = _plan(C, reg)
    golden = float((P - centre(optima(EXAMPLE))).abs().max())
    return {"lead": lead, "λ": reg, "to P°": golden, "to the identity": float((P - torch.eye(3)).abs().max())}


def _by_network(reg: float) -> Tensor:
    """Attention of the last layer of a network on the example, as points in space: x_i a unit vector, y_j = −C_·j/2.

    Then ‖x_i − y_j‖² = 1 + ‖y_j‖² + C_ij: what depends on j alone moves into v_j, and the plan is that of C.
    """
    x, y = torch.eye(3, dtype=torch.float64), -EXAMPLE.T / 2
    attention: Tensor = AligningTransformer(3, reg, 600, Relaxed())(x, y, warn=False).attention(-1)
    return attention


def _told(by_kind: dict[str, list[Row]], tied: list[Row], near: list[Row], network: Tensor) -> str:
    grid = by_kind["grid"]
    several = [row for row in grid if row["optimal permutations"] > 1]
    worst = max(row["‖P*_λ − P°‖"] for row in several)
    most = max(row["optimal permutations"] for row in grid)
    apart = max(row["‖P° − mean of optimal permutations‖"] for row in several)
    switch = next(row["λ"] for row in near if row["to the identity"] < row["to P°"])
    return (
        "“Solutions of linear programs lie among the extreme points … P* = P̂” (section 2.1): the values are equal in all "
        f"{len(grid) + len(by_kind['random'])} problems, against all n! permutations, and the simplex method returns a "
        "permutation each time. P* itself must be unique, which the paper does not ask for. For random points it is; for "
        f"points on a {GRID} × {GRID} grid it is not in {len(several)} of {len(grid)} problems (up to {most} optimal "
        f"permutations). There P*_λ does not tend to a permutation: at λ = {LEAST_REG:g} it is within {worst:.0e} of P°, "
        f"the matrix of largest entropy among the optimal ones, which is up to {apart:.2f} from the mean of the optimal "
        f"permutations. The example's middle entry is 1/φ³ = {GOLDEN**-3:.3f}, where the mean has 0.333; the network's "
        f"attention at λ = 0.1 has {float(network[1, 1]):.3f}. When one of the three is cheaper by {NEAR:g} a point, P*_λ "
        f"is nearer to P° than to the optimal permutation down to λ of about {switch:.2g}: what is not unique, and what is "
        "nearly not unique at the scale of λ, look alike to the network."
    )


def _draw(tied: list[Row], near: list[Row], grid: list[Row]) -> figures.Figure:
    fig, axes = figures.figure(11, 6.2, "abc;dde")
    found = optima(EXAMPLE)
    shown = {"one optimal permutation": found.matrices[0], "the mean of all three": found.matrices.mean(0)}
    shown[figures.mathtext("the limit of P*_λ")] = centre(found)
    for panel, (title, matrix) in zip("abc", shown.items(), strict=True):
        image = figures.heatmap(axes[panel], matrix, title)
        for i, j in np.ndindex(3, 3):
            colour = "white" if matrix[i, j] > 0.5 else figures.INK
            axes[panel].text(j, i, f"{float(matrix[i, j]):.3f}", ha="center", va="center", color=colour, size=7)
    figures.colours(fig, image, axes["c"], "entry")
    curve = axes["d"]
    for rows, colour, label in ((tied, figures.BLUE, "tied"), (near, figures.ORANGE, f"diagonal cheaper by {NEAR:g}")):
        for name, dash in (("to P°", "-"), ("to the identity", "--")):
            curve.loglog(
                [row["λ"] for row in rows], [row[name] for row in rows], dash, color=colour, label=f"{label}: {name}"
            )
    curve.set(xlabel="λ", ylabel=figures.mathtext("largest entry of |P*_{λ} − ·|"), ylim=(1e-9, 2))
    curve.invert_xaxis()
    curve.set_title("A tie sends the plan to the centre of the optimal face, not to a permutation")
    curve.legend(loc="lower left")
    sizes = axes["e"]
    for n in SIZES:
        counts = [row["optimal permutations"] for row in grid if row["n"] == n]
        sizes.bar(n, 100 * np.mean([count > 1 for count in counts]), color=figures.BLUE)
    sizes.set(xlabel="n", ylabel="% of problems", ylim=(0, 100), title=f"Several optima, {GRID} × {GRID} grid")
    return fig
