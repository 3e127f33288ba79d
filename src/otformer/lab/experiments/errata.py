"""The paper's errata, each measured as printed and as corrected, and the complete print run (docs/errata.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import unit_cube
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.printed import MISPRINTS, printed_columns, printed_layer, printed_network, printed_rows
from otformer.network.registers import Registers
from otformer.network.schedule import Paper
from otformer.network.transformer import AligningTransformer
from otformer.network.weights import HeadName, head
from otformer.transport.reference import assignment, dual, gradient_descent, plan, sinkhorn

N, DIM, REG, DEPTH = 8, 2, 0.1, 300  # points per side, dimension, λ, layers
ARRIVED = 6000  # layers after which the attention is at its limit
TITLES = {  # of the errata measured here, as in docs/errata.md
    1: "The sign of B",
    2: "The entry for v in the first head",
    3: "The columns of the second head",
    4: 'The sink row\'s "?"',
    5: "Orientation",
    6: "Layer index",
    7: "The sink's output",
    27: "The limit is the regularised plan",
    28: "The weights of the softmax tend to half the plan",
}
# The complete print: points per side (d = 1), λ = γ, layers, and the errata corrected one after another.
PRINT_N, PRINT_REG, PRINT_DEPTH = 5, 0.5, 400
CEILING = 1e12  # of L in the figure
LADDER: tuple[tuple[int, ...], ...] = ((), (1,), (1, 3), (1, 2, 3), MISPRINTS)


class Setting(NamedTuple):
    """One random problem and its gradient descent."""

    x: Tensor
    y: Tensor
    C: Tensor
    descent: list[tuple[Tensor, Tensor]]


class Rung(NamedTuple):
    """The complete print with some errata corrected, by layer: |A − P*_λ| over tokens, L, and |u − gradient descent's|."""

    corrected: tuple[int, ...]
    attention: list[float]
    duals: list[float]
    descent: float

    @property
    def name(self) -> str:
        return f"corrected: {', '.join(map(str, self.corrected))}" if self.corrected else "as printed"


def run(context: Context) -> Outcome:
    x, y, C = unit_cube(N, DIM, generator=context.generator())
    setting = Setting(x, y, C, list(islice(gradient_descent(C, REG, REG), DEPTH + 1)))
    measured: dict[int, Callable[[Setting], Measurement]] = {1: _sign, 2: partial(_misprint, "rows", DIM)}
    measured[3] = partial(_misprint, "columns", 1)  # for other d the printed blocks are no columns
    measured |= {4: _sink, 5: _orientation, 6: _layer_index, 7: _sink_output, 27: _limit, 28: _half}
    columns = ("erratum", "title", "measured", "as printed", "corrected")
    rows: list[Row] = [
        dict(zip(columns, (k, TITLES[k], *measure(setting)), strict=True))
        for k, measure in context.each(measured.items(), 0.7)
    ]
    checks = {
        f"erratum {row['erratum']}: off as printed, right to 1e-9 when corrected": (
            row["as printed"] > 1e-3 and abs(row["corrected"]) < 1e-9
        )
        for row in rows
    }
    ladder = _climb(context)
    checks |= {
        "print_grows": ladder[0].duals[:11] == sorted(ladder[0].duals[:11]) and ladder[0].duals[-1] == float("inf"),
        "print_corrected": ladder[-1].descent < 1e-9 and all(rung.descent > 1e-3 for rung in ladder[:-1]),
    }
    what = f"largest |u − gradient descent's| in {PRINT_DEPTH} layers"
    climbed = [("print", f"The complete print, {rung.name}", what, rung.descent, ladder[-1].descent) for rung in ladder]
    settings = {"n": N, "dim": DIM, "reg": REG, "depth": DEPTH, "layers to the limit": ARRIVED, "complete print": PRINT_N}
    everything = rows + [dict(zip(columns, each, strict=True)) for each in climbed]
    token = ladder[LADDER.index((1, 2, 3))].duals
    numbers = {
        "descent": ladder[-1].descent,
        "measured": len(rows),
        "off": [rung.attention[-1] for rung in ladder],
        "duals": [ladder[0].duals[k] for k in (1, 10, -1)],
        "token": (token[1], token[-1]),
        "right": sum(row["as printed"] > 1e-3 and abs(row["corrected"]) < 1e-9 for row in rows),
        "steps": [Paper(n).layers(REG, 1)[0].rows for n in (2, 64)],
    }
    return Outcome(everything, _draw(rows, ladder), numbers, checks, settings)


def _climb(context: Context) -> list[Rung]:
    """The complete print, and the same network with the errata of `LADDER` corrected."""
    x, y, C = unit_cube(PRINT_N, 1, generator=context.generator())
    r, P = Registers(1, marginals=False), plan(C, *sinkhorn(C, PRINT_REG), PRINT_REG)
    descent = list(islice(gradient_descent(C, PRINT_REG, PRINT_REG), PRINT_DEPTH + 1))
    rungs = []
    for corrected in LADDER:
        table = printed_rows(1, PRINT_REG, misprint=2 not in corrected)
        attention, duals, gaps = [], [], []
        network = printed_network(x, y, PRINT_REG, PRINT_REG, corrected)
        for Z, (wanted, _) in zip(network, descent, strict=False):  # the network has no last layer
            u, v = Z[:-1, r.column("u")], Z[:-1, r.column("v")]
            attention.append(float((torch.softmax((Z @ table @ Z.T)[:-1, :-1], 1) - P).abs().max()))
            duals.append(float(dual(C, u, v, PRINT_REG)))
            gaps.append(float((u - wanted).abs().max()))
        rungs.append(Rung(corrected, attention, duals, max(gaps)))
    context.progress(1.0)
    return rungs


Measurement = tuple[str, float, float]  # quantity, as printed, corrected


def _sign(s: Setting) -> Measurement:
    """One layer of the table's weights (index misprints corrected) with B = ±γI, beside a step of gradient descent."""
    Z = AligningTransformer(DIM, REG, 1, marginals=False).prompt(s.x, s.y).Z[0]
    P = printed_rows(DIM, REG, misprint=False), printed_columns(DIM, REG, misprint=False)
    u = Registers(DIM, marginals=False)["u"]
    gaps = [float((printed_layer(Z, P, step)[:N, u].flatten() - s.descent[1][0]).abs().max()) for step in (REG, -REG)]
    return "largest |u in Z_{1} − gradient descent's|", gaps[0], gaps[1]


def _misprint(side: HeadName, dim: int, s: Setting) -> Measurement:
    registers, printed = Registers(dim, marginals=False), printed_rows if side == "rows" else printed_columns
    true = head(side, REG, registers).bilinear(registers)
    gaps = [float((printed(dim, REG, misprint=m) - true).abs().max()) for m in (True, False)]
    return f"largest error of the matrix (d = {dim})", gaps[0], gaps[1]


def _sink(s: Setting) -> Measurement:
    gaps = []
    for sink in ("token", "frozen"):
        trace = AligningTransformer(DIM, REG, DEPTH, sink=sink)(s.x, s.y)
        pairs = ((trace.potentials(layer)[0], u) for layer, (u, _) in enumerate(s.descent))
        gaps.append(max(float((mine - u).abs().max()) for mine, u in pairs))
    return "largest |u − gradient descent's|", gaps[0], gaps[1]


def _orientation(s: Setting) -> Measurement:
    """Attention beside gradient descent on C_ij = ‖y_i − x_j‖², as the problem is stated, and on ‖x_i − y_j‖²."""
    A = AligningTransformer(DIM, REG, DEPTH)(s.x, s.y, keep="last").attention()
    stated = next(islice(gradient_descent(s.C.mT, REG, REG), DEPTH, None))
    gaps = [
        float((A - torch.softmax((v - C) / REG, dim=1)).abs().max())
        for C, (_, v) in ((s.C.mT, stated), (s.C, s.descent[DEPTH]))
    ]
    return "largest |A − gradient descent's|", gaps[0], gaps[1]


def _layer_index(s: Setting) -> Measurement:
    u = AligningTransformer(DIM, REG, 5)(s.x, s.y, warn=False).potentials(5)[0]
    gaps = [float((u - s.descent[k][0]).abs().max()) for k in (6, 5)]
    return "largest |u in Z_{5} − gradient descent's|", gaps[0], gaps[1]


def _sink_output(s: Setting) -> Measurement:
    trace = AligningTransformer(DIM, REG, 1, sink="token", marginals=False)(s.x, s.y)
    moved = float(trace.Z(1)[-1, trace.network.registers.column("u")])
    gaps = abs(moved - (N - 1)), abs(moved + REG * (N - 1) / (N + 1))
    return "|the sink's first step in u − what it should be|", *gaps


def _limit(s: Setting) -> Measurement:
    """Where the attention arrives, beside the optimal permutation and beside the regularised plan."""
    A = AligningTransformer(DIM, REG, ARRIVED)(s.x, s.y, keep="last").attention()
    exact = torch.eye(N, dtype=torch.float64)[assignment(s.C)]
    gaps = [float((A - P).abs().max()) for P in (exact, plan(s.C, *sinkhorn(s.C, REG), REG))]
    return f"largest |A − the limit| after {ARRIVED:,} layers", gaps[0], gaps[1]


def _half(s: Setting) -> Measurement:
    """The softmax with the sink among its keys, beside P*_λ and beside half of it."""
    weights = AligningTransformer(DIM, REG, ARRIVED)(s.x, s.y, keep="last").attention(sink=True)[:, :-1]
    P = plan(s.C, *sinkhorn(s.C, REG), REG)
    gaps = [float((weights - share * P).abs().max()) for share in (1, 0.5)]
    return f"largest |softmax − the limit| after {ARRIVED:,} layers", gaps[0], gaps[1]


def _draw(rows: list[Row], ladder: list[Rung]) -> figures.Figure:
    fig, axes = figures.figure(12, 6.4, "ab;ac", width_ratios=(1.2, 1))
    ax, places = axes["a"], range(len(rows))
    printed, corrected = ([max(row[name], 1e-17) for row in rows] for name in ("as printed", "corrected"))
    ax.plot([corrected, printed], [places, places], color="#C9CED6", linewidth=2, zorder=1)
    ax.scatter(printed, places, color=figures.ORANGE, marker="X", s=48, zorder=2, label="as printed")
    ax.scatter(corrected, places, color=figures.BLUE, marker="o", s=40, zorder=2, label="corrected")
    figures.named_rows(ax, [figures.mathtext(f"{row['erratum']}. {row['title']}\n{row['measured']}") for row in rows])
    ax.set(xlabel="the quantity named in each line (an exact 0 is drawn at 1e-17)")
    ax.set_title("Off as printed, right to rounding when corrected")
    ax.set_ylim(len(rows) - 0.5, -1.2)  # an empty line above the first, for the legend
    ax.legend(loc="upper center", ncols=2)
    least = ladder[-1].duals[-1]
    for rung, colour in zip(ladder, figures.CYCLE[1:], strict=False):
        axes["b"].semilogy([max(each, 1e-17) for each in rung.attention], color=colour, label=rung.name)
        above = [max(each - least, 1e-16) if each < CEILING else math.nan for each in rung.duals[1:]]
        axes["c"].loglog(range(1, PRINT_DEPTH + 1), above, color=colour)
    axes["b"].set(
        title="Attention: right once 1, 2 and 3 are corrected",
        ylabel=figures.mathtext("largest |A − P*_{λ}|"),
        xlabel="layers",
    )
    axes["c"].set(
        title="Dual: reaches its minimum only with all four",
        ylabel="L − its minimum",
        xlabel="layers",
        ylim=(1e-16, CEILING),
    )
    axes["b"].legend(loc="center right")
    return fig
