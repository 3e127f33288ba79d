"""The LP relaxation (section 2.1 of the paper): when P̂ = P*, and where P*_λ goes when the optimum is not unique.

Theorem T of docs/exactness.md has the limit: P°, the matrix of largest entropy among the optimal ones.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import entropic_plan, unit_cube
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.schedule import Relaxed
from otformer.network.transformer import AligningTransformer
from otformer.transport.costs.distances import squared_distances

SIZES, PROBLEMS = (2, 3, 4, 5, 6), 40  # points per side, problems of each size and kind
GRID = 3  # points of the second kind lie on a grid of GRID × GRID
LEAST_REG = 0.02  # of the λ at which P*_λ is compared with its limit; costs on the grid are whole numbers
TOLERATED = 1e-7  # marginal error of P*_λ
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
        "value": all(abs(row["LP value"] - row["least cost"]) < 1e-9 for row in rows),
        "vertex": all(row["‖P̂ − nearest optimal permutation‖"] < 1e-9 for row in rows),
        "unique": all(row["optimal permutations"] == 1 for row in by_kind["random"]),
        "grid": 3 * sum(row["optimal permutations"] > 1 for row in by_kind["grid"]) >= len(by_kind["grid"]),
        "limit": bool(several)
        and all(row["‖P*_λ − P°‖"] < 1e-6 for row in several)
        and all(row["‖P*_λ − nearest optimal permutation‖"] >= 0.25 for row in several),
        "golden": float((network - centre(optima(EXAMPLE))).abs().max()) < 1e-4,
        "mean": max(row["‖P° − mean of optimal permutations‖"] for row in several) >= 0.05,
    }
    settings = {"sizes": SIZES, "problems": PROBLEMS, "grid": GRID, "λ": LEAST_REG, "near tie": NEAR}
    numbers = {
        "count": len(rows),
        "largest": SIZES[-1],
        "grid": len(by_kind["grid"]),
        "tied": len(several),
        "golden": GOLDEN**-3,
        "network": float(network[1, 1]),
        "most": max(row["optimal permutations"] for row in several),
        "worst": max(row["‖P*_λ − P°‖"] for row in several),
        "apart": max(row["‖P° − mean of optimal permutations‖"] for row in several),
        "switch": next(row["λ"] for row in near if row["to the identity"] < row["to P°"]),
    }
    return Outcome(rows, _draw(tied, near, by_kind["grid"]), numbers, checks, settings)


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
    P, limit = entropic_plan(C, LEAST_REG, TOLERATED), centre(found)
    row["‖P*_λ − P°‖"] = float((P - limit).abs().max())
    row["‖P*_λ − nearest optimal permutation‖"] = _nearest(P, found)
    return row | {"‖P° − mean of optimal permutations‖": float((limit - found.matrices.mean(0)).abs().max())}


def _nearest(P: Tensor, found: Optima) -> float:
    return float((P - found.matrices).abs().amax((1, 2)).min())


def _example_row(lead: float, reg: float) -> Row:
    """The example with a diagonal that is cheaper by ``lead``: P*_λ beside P° and beside the identity."""
    C = EXAMPLE - lead * torch.eye(3, dtype=torch.float64)
    P = entropic_plan(C, reg, TOLERATED)
    golden = float((P - centre(optima(EXAMPLE))).abs().max())
    return {"lead": lead, "λ": reg, "to P°": golden, "to the identity": float((P - torch.eye(3)).abs().max())}


def _by_network(reg: float) -> Tensor:
    """Attention of the last layer of a network on the example, as points in space: x_i a unit vector, y_j = −C_·j/2.

    Then ‖x_i − y_j‖² = 1 + ‖y_j‖² + C_ij: what depends on j alone moves into v_j, and the plan is that of C.
    """
    x, y = torch.eye(3, dtype=torch.float64), -EXAMPLE.T / 2
    attention: Tensor = AligningTransformer(3, reg, 600, Relaxed())(x, y, warn=False).attention(-1)
    return attention


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
