"""What each part of the network is for: take it away, and see what is left of the plan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import pot_plan, unit_cube
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.network.minimal_prompt import MINIMAL, MinimalTransformer
from otformer.network.transformer import AligningTransformer

N, DIM, REG, DEPTH = 10, 2, 0.07, 600  # points per side, dimension, λ, layers
WHOLE, MINIMAL_PROMPT = "the whole network", "the minimal prompt, 2d + 3 columns"
INT8, TERNARY = "weights rounded to int8, one scale a matrix", "ternary weights, one scale a column"
ATTENTION_ERROR, PLAN_ERROR = "attention error", "plan error"
REGISTERS = ("x", "y", "x_sq", "y_sq", "one1", "one2", "one3", "sign", "u", "v", "spare")
CHANGES: list[tuple[str, str, Any]] = [  # group, name, and what `_changed` is told
    ("whole", WHOLE, None),
    ("token", "without the sink", None),
    ("head", "without the rows head", 0),
    ("head", "without the columns head", 1),
    *(("register", f"without register {name}", name) for name in REGISTERS),
    ("prompt", "without the prompt's squares", ("x_sq", "y_sq")),
    ("layer", "without layer 300", [300]),
    ("layer", "without layers 270 to 329", list(range(270, 330))),
    ("layer", "without every other layer", slice(None, None, 2)),
    ("minimal", MINIMAL_PROMPT, None),
    *(("minimal", f"minimal prompt without {name}", name) for name in MINIMAL),
    ("rounding", "weights rounded to bf16", None),
    ("rounding", INT8, (127, (-2, -1))),  # −127 … 127 times a scale, which is shared along these axes
    ("rounding", "weights rounded to int4, one scale a matrix", (7, (-2, -1))),
    ("rounding", TERNARY, (1, -2)),
]


def run(context: Context) -> Outcome:
    problems = 10 if context.full else 5
    x, y, costs = unit_cube(problems, N, DIM, generator=context.generator())
    targets = torch.stack([pot_plan(C, REG) for C in costs])
    rows: list[Row] = []
    for group, name, change in context.each(CHANGES):
        network = _network(group)
        Z = _changed(network, network.prompt(x, y).Z, group, change)
        rows.append({"group": group, "change": name, **_errors(network, Z, targets)})
    error = {str(row["change"]): row[ATTENTION_ERROR] for row in rows}
    checks = {
        "whole": error[WHOLE] < 1e-4,
        "parts_lost": all(
            error[f"without {part}"] > 0.05 for part in ("the sink", "the columns head", "register u", "register v")
        ),
        "one_layer": abs(error["without layer 300"] - error[WHOLE]) < 1e-4,
        "squares": error["without the prompt's squares"] < 1e-4,
        "minimal": error[MINIMAL_PROMPT] < 1e-4,
        "minimal_lost": all(error[f"minimal prompt without {name}"] > 0.05 for name in MINIMAL),
        "bf16": error["weights rounded to bf16"] < 0.01,
        "ternary": abs(error[TERNARY] - error[WHOLE]) < 1e-12,
    }
    settings = {"n": N, "dim": DIM, "reg": REG, "depth": DEPTH, "problems": problems}
    return Outcome(rows, _draw(rows), _numbers(problems, error), checks, settings)


def _numbers(problems: int, error: dict[str, float]) -> Numbers:
    without = {name.removeprefix("without "): value for name, value in error.items()}
    return {
        "problems": problems,
        "whole": error[WHOLE],
        "minimal": error[MINIMAL_PROMPT],
        "without": without,
        "lost": [name for name in REGISTERS if without[f"register {name}"] > 0.05],
        "kept": [name for name in REGISTERS if without[f"register {name}"] <= 1e-4],
        "breaks": [name for name, value in error.items() if value > 0.05],
        "bends": [name for name, value in error.items() if 1e-4 < value <= 0.05] or ["none"],
        "harmless": [name for name, value in error.items() if value <= 1e-4 and name != WHOLE],
    }


def _network(group: str) -> AligningTransformer:
    if group == "minimal":
        return MinimalTransformer(DIM, REG, DEPTH)
    return AligningTransformer(DIM, REG, DEPTH, sink="token" if group == "token" else "frozen", marginals=False)


def _changed(network: AligningTransformer, Z: Tensor, group: str, change: Any) -> Tensor:
    """Z₀ [B, n+1, width] after one change to it or, in place, to the network."""
    if group == "token":
        return Z[:, :-1]
    if group == "head":
        network.W_O[:, change] = 0
    elif group == "register" or (group == "minimal" and change):
        for W in (network.W_Q, network.W_K, network.W_V):
            W[:, :, network.registers[change]] = 0
    elif group == "prompt":
        for name in change:
            Z[..., network.registers[name]] = 0
    elif group == "layer":
        kept = torch.ones(network.depth, dtype=torch.bool)
        kept[change] = False
        network.layer = network.layer[kept]
    elif group == "rounding":
        for W in (network.W_Q, network.W_K, network.W_V, network.W_O):
            W.copy_(rounded(W, *change) if change else W.bfloat16())
    return Z


def rounded(W: Tensor, levels: int, shared: int | tuple[int, int]) -> Tensor:
    """W to whole numbers −levels … levels times a scale, the largest entry along the axes ``shared`` over ``levels``.

    >>> rounded(torch.tensor([[0.3, -4.0], [0.0, 4.0]]), 1, -2)
    tensor([[ 0.3000, -4.0000],
            [ 0.0000,  4.0000]])
    """
    scale = W.abs().amax(shared, keepdim=True) / levels
    scale = torch.where(scale > 0, scale, 1)
    return (W / scale).round() * scale


def _errors(network: AligningTransformer, Z: Tensor, target: Tensor) -> Row:
    """Half the L1 distance of a row to P*'s, mean over rows, of the attention of the rows head over real tokens and of the
    plan exp(logits), which may be anything up to infinity; after all layers."""
    for layer in range(network.depth):
        Z = network.block(Z, layer)
    H = network.logits(Z, network.depth - 1)[:, 0, :N]  # [B, N, N+1], or N where the sink was taken away
    plan = (network.log_plan(H) if H.shape[-1] > N else H).exp()
    found = {ATTENTION_ERROR: torch.softmax(H[..., :N], dim=-1), PLAN_ERROR: plan}
    return {name: float((A - target).abs().sum(-1).mean() / 2) for name, A in found.items()}


def _draw(rows: list[Row]) -> figures.Figure:
    fig, ax = figures.figure(10, 6.8)
    colours = dict(zip(dict.fromkeys(row["group"] for row in rows), (figures.INK, *figures.CYCLE), strict=False))
    floor = 1e-14
    for k, row in enumerate(rows):
        width = max(row[ATTENTION_ERROR], floor * 1.5)
        ax.barh(k, width, left=0, color=colours[row["group"]])
        ax.text(width * 1.15, k, f"{row[ATTENTION_ERROR]:.1e}", va="center", fontsize=7)
    for group, colour in colours.items():
        ax.plot([], [], "s", color=colour, label=group)
    figures.named_rows(ax, [row["change"] for row in rows])
    ax.set(xlim=(floor, 10), xlabel="attention in the wrong place: half the L1 distance to P*, mean over rows")
    ax.set_title("What can be taken away: short bars are harmless, long ones lose the plan")
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=len(colours), title="what is changed")
    return fig
