"""The paper's slips, each measured as printed and as corrected (docs/errata.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from otformer import figures
from otformer.experiments._problems import unit_cube
from otformer.experiments.experiment import Context, Outcome, Row
from otformer.network.printed import printed_columns, printed_layer, printed_rows
from otformer.network.registers import Registers
from otformer.network.schedule import Paper
from otformer.network.transformer import AligningTransformer
from otformer.network.weights import HeadName, head
from otformer.theory.bounds import informal_bound
from otformer.transport.reference import gradient_descent

N, DIM, REG, DEPTH = 8, 2, 0.1, 300  # points per side, dimension, λ, layers


class Setting(NamedTuple):
    """One random problem and its gradient descent."""

    x: Tensor
    y: Tensor
    C: Tensor
    descent: list[tuple[Tensor, Tensor]]


def run(context: Context) -> Outcome:
    x, y, C = unit_cube(N, DIM, generator=context.generator())
    setting = Setting(x, y, C, list(islice(gradient_descent(C, REG, REG), DEPTH + 1)))
    in_rows = partial(_misprint, "rows", DIM, "P^{(1)}: e_{2d+5} where e_{d+5} must stand")
    in_columns = partial(_misprint, "columns", 1, "P^{(2)}: I_{d} where 0_{d} must stand (d = 1)")  # else shapes differ
    measured: list[Callable[[Setting], Measurement]] = [_sign, in_rows, in_columns, _sink]
    measured += [_orientation, _layer_index, _sink_output]
    columns = ("erratum", "what", "measured", "as printed", "corrected")
    rows: list[Row] = [
        dict(zip(columns, (k, *measure(setting)), strict=True)) for k, measure in context.each(enumerate(measured, 1))
    ]
    checks = {
        f"erratum {row['erratum']}: off as printed, right to 1e-9 when corrected": (
            row["as printed"] > 1e-3 and abs(row["corrected"]) < 1e-9
        )
        for row in rows
    }
    settings = {"n": N, "dim": DIM, "reg": REG, "depth": DEPTH}
    return Outcome(rows, _draw(rows), _told(), checks, settings)


def _told() -> str:
    """What was measured, and the errata that the figure does not show."""
    steps = [Paper(n).layers(REG, 1)[0].rows for n in (2, 64)]
    return (
        f"{N} random points per side, d = {DIM}, λ = {REG}. Each erratum is measured with the paper's text taken literally "
        "and with the correction; the table has the numbers. Not in the figure: (8) the lemma's γ is said not to depend on "
        f"n, yet is {steps[0]:.1e} for n = 2 and {steps[1]:.1e} for n = 64 (r = 1); (9) the informal bound goes with "
        f"n^{{3/2}}, the formal one with √n, and both are vacuous here: at {DEPTH} layers the informal one is "
        f"{informal_bound(N, REG, DEPTH):.1e}. (10) and (11), on training and on words, are not measured by this experiment."
    )


Measurement = tuple[str, str, float, float]  # what, quantity, as printed, corrected


def _sign(s: Setting) -> Measurement:
    """One layer of the table's weights (index misprints mended) with B = ±γI, beside a step of gradient descent."""
    Z = AligningTransformer(DIM, REG, 1, marginals=False).prompt(s.x, s.y).Z[0]
    P = printed_rows(DIM, REG, misprint=False), printed_columns(DIM, REG, misprint=False)
    u = Registers(DIM, marginals=False)["u"]
    gaps = [float((printed_layer(Z, P, step)[:N, u].flatten() - s.descent[1][0]).abs().max()) for step in (REG, -REG)]
    return "B = +γI climbs, B = −γI descends", "largest |u in Z_{1} − gradient descent's|", gaps[0], gaps[1]


def _misprint(side: HeadName, dim: int, what: str, s: Setting) -> Measurement:
    registers, printed = Registers(dim, marginals=False), printed_rows if side == "rows" else printed_columns
    true = head(side, REG, registers).bilinear(registers)
    gaps = [float((printed(dim, REG, misprint=m) - true).abs().max()) for m in (True, False)]
    return what, "largest error of the matrix", gaps[0], gaps[1]


def _sink(s: Setting) -> Measurement:
    gaps = []
    for sink in ("token", "frozen"):
        trace = AligningTransformer(DIM, REG, DEPTH, sink=sink)(s.x, s.y)
        pairs = ((trace.potentials(layer)[0], u) for layer, (u, _) in enumerate(s.descent))
        gaps.append(max(float((mine - u).abs().max()) for mine, u in pairs))
    return "the sink's “?” enters every logit from layer 2 on", "largest |u − gradient descent's|", gaps[0], gaps[1]


def _orientation(s: Setting) -> Measurement:
    """Attention beside gradient descent on C_ij = ‖y_i − x_j‖², as the problem is stated, and on ‖x_i − y_j‖²."""
    A = AligningTransformer(DIM, REG, DEPTH)(s.x, s.y, keep="last").attention()
    stated = next(islice(gradient_descent(s.C.mT, REG, REG), DEPTH, None))
    gaps = [
        float((A - torch.softmax((v - C) / REG, dim=1)).abs().max())
        for C, (_, v) in ((s.C.mT, stated), (s.C, s.descent[DEPTH]))
    ]
    return "C_{ij} = ‖y_{i} − x_{j}‖², but heads have x on the rows", "largest |A − gradient descent's|", gaps[0], gaps[1]


def _layer_index(s: Setting) -> Measurement:
    u = AligningTransformer(DIM, REG, 5)(s.x, s.y, warn=False).potentials(5)[0]
    gaps = [float((u - s.descent[k][0]).abs().max()) for k in (6, 5)]
    return "Z_{ℓ} holds u_{ℓ}, not u_{ℓ} − D∇L", "largest |u in Z_{5} − gradient descent's|", gaps[0], gaps[1]


def _sink_output(s: Setting) -> Measurement:
    trace = AligningTransformer(DIM, REG, 1, sink="token", marginals=False)(s.x, s.y)
    moved = float(trace.Z(1)[-1, trace.network.registers.column("u")])
    gaps = abs(moved - (N - 1)), abs(moved + REG * (N - 1) / (N + 1))
    return "the sink's row gets −γ(n−1)/(n+1), not n−1", "|the sink's first step in u − what it should be|", *gaps


def _draw(rows: list[Row]) -> figures.Figure:
    fig, ax = figures.figure(10, 4.6)
    places = range(len(rows))
    printed, corrected = ([max(row[name], 1e-17) for row in rows] for name in ("as printed", "corrected"))
    ax.plot([corrected, printed], [places, places], color="#C9CED6", linewidth=2, zorder=1)
    ax.scatter(printed, places, color=figures.ORANGE, marker="X", s=48, zorder=2, label="as printed")
    ax.scatter(corrected, places, color=figures.BLUE, marker="o", s=40, zorder=2, label="corrected")
    figures.named_rows(ax, [figures.mathtext(f"{row['erratum']}. {row['what']}\n{row['measured']}") for row in rows])
    ax.set(xlabel="the quantity named in each line (an exact 0 is drawn at 1e-17)")
    ax.set_title("Error as printed and corrected")
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return fig
