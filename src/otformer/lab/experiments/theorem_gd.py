"""Theorem 3.1: every layer is a step of gradient descent on the dual, if the sink stays frozen."""

from __future__ import annotations

from itertools import islice, product

from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import unit_cube
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.transformer import AligningTransformer
from otformer.transport.reference import gradient_descent

DEPTH = 1000  # layers
SIZES, DIMS, REGS = (1, 2, 3, 8, 33), (1, 2, 5), (0.05, 0.1, 1.0)  # points per side, dimensions, values of λ
DRAWN_DIM = 2  # the dimension of the curves, and without `full` the only one for the paper's sink

Case = tuple[int, float, int]  # d, λ, n


def run(context: Context) -> Outcome:
    generator = context.generator()
    frozen: dict[Case, list[float]] = {}
    token: dict[Case, list[float]] = {}
    for dim, reg in context.each(product(DIMS, REGS)):
        frozen_network = AligningTransformer(dim, reg, DEPTH)  # one state_dict for every n
        token_network = AligningTransformer(dim, reg, DEPTH, sink="token")
        for n in SIZES:
            x, y, C = unit_cube(n, dim, generator=generator)
            descent = list(islice(gradient_descent(C, reg, reg), DEPTH + 1))
            frozen[dim, reg, n] = gaps(frozen_network, x, y, descent)
            if context.full or dim == DRAWN_DIM:
                token[dim, reg, n] = gaps(token_network, x, y, descent)
    rows = _rows(frozen, token)
    worst_frozen = max(map(max, frozen.values()))
    at_tenth = max(max(each) for (_, reg, n), each in token.items() if reg == 0.1 and n > 1)
    first = max(each[1] for each in token.values())
    checks = {
        "frozen": worst_frozen < 1e-12,
        "token": at_tenth > 0.05,
    }
    settings = {"depth": DEPTH, "sizes": list(SIZES), "dims": list(DIMS), "regs": list(REGS)}
    numbers = {"cases": len(frozen), "frozen": worst_frozen, "first": first, "later": at_tenth, "largest": max(SIZES)}
    return Outcome(rows, _draw(frozen, token), numbers, checks, settings)


def gaps(network: AligningTransformer, x: Tensor, y: Tensor, descent: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The largest of |u − u_gd| and |v − v_gd| after each layer, layer 0 first."""
    trace = network(x, y, warn=False)
    pairs = (zip(trace.potentials(layer), step, strict=True) for layer, step in enumerate(descent))
    return [max(float((ours - theirs).abs().max()) for ours, theirs in pair) for pair in pairs]


def _rows(frozen: dict[Case, list[float]], token: dict[Case, list[float]]) -> list[Row]:
    return [
        {
            **dict(zip(("d", "λ", "n"), case, strict=True)),
            "frozen sink: largest gap": max(each),
            "sink token: largest gap": seen and max(seen),
            "sink token: gap at layer 1": seen and seen[1],
            "sink token: gap at layer 1000": seen and seen[-1],
        }
        for case, each, seen in ((case, each, token.get(case)) for case, each in frozen.items())
    ]


def _draw(frozen: dict[Case, list[float]], token: dict[Case, list[float]]) -> figures.Figure:
    fig, axes = figures.figure(10, 3.4, 1, len(REGS), sharey=True)
    layers = range(1, DEPTH + 1)
    for ax, reg in zip(axes, REGS, strict=True):
        for n, colour in zip(SIZES, figures.CYCLE, strict=False):
            floor = 1e-17  # an exact 0 is drawn here
            ax.loglog(layers, [max(g, floor) for g in token[DRAWN_DIM, reg, n][1:]], "--", color=colour)
            ax.loglog(layers, [max(g, floor) for g in frozen[DRAWN_DIM, reg, n][1:]], "-", color=colour, label=f"n = {n}")
        ax.set(title=f"λ = {reg:g}", xlabel="layer", ylim=(5e-18, 50))
        ax.text(0.98, 0.97, "sink token: off from layer 2 on", transform=ax.transAxes, ha="right", va="top", size=8)
        ax.text(0.98, 0.4, "frozen sink: equal to rounding", transform=ax.transAxes, ha="right", va="top", size=8)
    axes[0].set_ylabel("largest |u, v − gradient descent|")
    axes[-1].plot([], [], "-", color=figures.INK, label="frozen sink")
    axes[-1].plot([], [], "--", color=figures.INK, label="sink token")
    fig.legend(*axes[-1].get_legend_handles_labels(), loc="outside right center")
    return fig
