"""Figure 3 of the paper: attention of layers 1, 300 and 600 beside the regularised plan P*_λ."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import pot_plan, unit_cube
from otformer.lab.experiments._texts import ends
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.network.schedule import Gradient, Paper
from otformer.network.transformer import AligningTransformer, Sink

N, DIM, REG, DEPTH, PROBLEMS = 9, 2, 0.02, 600, 10  # points per side, dimension, λ, layers, problems
SHOWN = (1, 300, 600)  # layers
FROZEN, TOKEN, PAPER = "γ = λ, frozen sink", "γ = λ, the paper's sink token", "the paper's γ, r = 0.1"


def run(context: Context) -> Outcome:
    x, y, costs = unit_cube(PROBLEMS, N, DIM, generator=context.generator())
    targets = torch.stack([pot_plan(C, REG) for C in costs])
    runs: dict[str, tuple[Gradient | Paper, Sink]] = {
        FROZEN: (Gradient(), "frozen"),
        TOKEN: (Gradient(), "token"),
        PAPER: (Paper(n=N, radius=0.1), "frozen"),
    }
    errors: dict[str, Tensor] = {}  # [DEPTH + 1, PROBLEMS]
    shown: dict[str, Tensor] = {}
    for label, (schedule, sink) in context.each(runs.items()):
        trace = AligningTransformer(DIM, REG, DEPTH, schedule, sink)(x, y, warn=False)
        paths = [(trace.attention(layer) - targets).abs().amax((1, 2)) for layer in range(DEPTH + 1)]
        errors[label] = torch.stack(paths)
        shown = shown or {f"A at layer {layer}": trace.attention(layer)[0] for layer in SHOWN}
    shown["P*, regularised plan"] = targets[0]
    rows = [_row(k, errors) for k in range(DEPTH + 1)]
    first, middle, last = (errors[FROZEN][k] for k in SHOWN)
    checks = {
        "falls": bool(((first > middle) & (middle > last)).all()),
        "arrives": bool((last < 0.1).all()),
        "same_sink": bool(((errors[TOKEN][-1] - last).abs() < 0.01).all()),
    }
    settings = {"n": N, "dim": DIM, "reg": REG, "depth": DEPTH, "problems": PROBLEMS}
    names = {"frozen": FROZEN, "token": TOKEN, "paper": PAPER}
    numbers: Numbers = {name: errors[label].median(1).values for name, label in names.items()}  # by layer
    numbers |= {"last": ends(last), "falling": int(((first > middle) & (middle > last)).sum())}
    return Outcome(rows, _draw(shown, errors), numbers, checks, settings)


def _row(layer: int, errors: dict[str, Tensor]) -> Row:
    row: Row = {"layer": layer}
    for label, path in errors.items():
        row |= {f"{label}: median": float(path[layer].median()), f"{label}: largest": float(path[layer].max())}
    return row


def _draw(shown: dict[str, Tensor], errors: dict[str, Tensor]) -> figures.Figure:
    fig, axes = figures.figure(10, 5.4, "abcd;eeee")
    top = max(float(matrix.max()) for matrix in shown.values())
    for panel, (title, matrix) in zip("abcd", shown.items(), strict=True):
        image = figures.heatmap(axes[panel], matrix, title, top)
    figures.colours(fig, image, axes["d"])
    curve = axes["e"]
    curve.semilogy(errors[FROZEN], color="#B9D4E6", linewidth=0.7)
    looks = ((figures.BLUE, "-", 1.6), ("#F3B78F", "-", 5.0), (figures.GREEN, ":", 1.6))  # the first lies on the second
    for (label, path), (colour, dash, wide) in zip(errors.items(), looks, strict=True):
        curve.semilogy(path.median(1).values, dash, color=colour, linewidth=wide, label=label, zorder=2 if wide > 2 else 3)
    curve.plot([], [], color="#B9D4E6", linewidth=0.7, label="each problem, γ = λ, frozen sink")
    curve.set(xlabel="layer", ylabel="largest |A − P*|", xlim=(0, DEPTH))
    curve.set_title(f"With γ = λ the error falls, with the paper's γ it stays (median of {PROBLEMS} problems)")
    curve.legend(loc="lower left")
    return fig
