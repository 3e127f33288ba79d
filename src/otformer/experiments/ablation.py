"""What each part of the network is for: take it away, and see what is left of the plan."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from otformer import figures
from otformer.experiments._problems import pot_plan, squared_distances
from otformer.experiments.experiment import Context, Outcome, Row
from otformer.network.transformer import AligningTransformer

N, DIM, REG, DEPTH = 10, 2, 0.07, 600  # points per side, dimension, λ, layers
WHOLE = "the whole network"
ATTENTION_ERROR, PLAN_ERROR = "attention error", "plan error"
WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")
Edit = Callable[[AligningTransformer, Tensor], tuple[AligningTransformer, Tensor]]  # network and Z₀ [B, n+1, width]


def run(context: Context) -> Outcome:
    problems = 10 if context.full else 5
    x, y = torch.rand(2, problems, N, DIM, generator=context.generator(), dtype=torch.float64)
    targets = torch.stack([pot_plan(C, REG) for C in squared_distances(x, y)])
    rows: list[Row] = []
    edits = _edits()
    for k, (group, name, edit) in enumerate(edits):
        network = AligningTransformer(DIM, REG, DEPTH, sink="token" if group == "token" else "frozen", marginals=False)
        network, Z = edit(network, network.prompt(x, y).Z)
        attention, plan = _read(network, Z)
        rows.append({"group": group, "change": name, **_errors(attention, plan, targets)})
        context.progress((k + 1) / len(edits))
    error = {str(row["change"]): row[ATTENTION_ERROR] for row in rows}
    checks = {
        "the whole network equals POT's plan to 1e-4": error[WHOLE] < 1e-4,
        "without the sink, a head, u or v the plan is lost (above 5 %)": all(
            error[f"without {part}"] > 0.05 for part in ("the sink", "the columns head", "register u", "register v")
        ),
        "a layer taken out of the middle changes less than 1e-4": abs(error["without layer 300"] - error[WHOLE]) < 1e-4,
        "without the prompt's squares the attention is still right (1e-4)": error["without the prompt's squares"] < 1e-4,
        "bf16 weights cost less than 1 %": error["weights rounded to bf16"] < 0.01,
    }
    settings = {"n": N, "dim": DIM, "reg": REG, "depth": DEPTH, "problems": problems}
    return Outcome(rows, _draw(rows), _told(problems, error), checks, settings)


def _told(problems: int, error: dict[str, float]) -> str:
    """What the numbers say, in sentences."""
    breaks = [name for name, value in error.items() if value > 0.05]
    bends = [name for name, value in error.items() if 1e-4 < value <= 0.05]
    harmless = [name for name, value in error.items() if value <= 1e-4 and name != WHOLE]
    return (
        f"{problems} problems of {N} points, d = {DIM}, λ = {REG}, {DEPTH} layers of γ = λ. Number: the share of a row's "
        f"attention in the wrong place (half the L1 distance to P*), mean over rows. Whole network: {error[WHOLE]:.1e}. "
        f"Breaks (above 5 %): {', '.join(breaks)}. Bends: {', '.join(bends) or 'none'}. Harmless (below 1e-4): "
        f"{', '.join(harmless)}. The squares are harmless because ‖x_i‖² shifts a whole row of the cost, which u absorbs. "
        "A missing layer is a missing step, no more. Rounding to bf16 changes 2/λ and 1/λ by the same factor, so the "
        "network solves the same problem with a slightly different λ. Whole numbers with one scale per matrix (int8, int4) "
        "do not keep that balance."
    )


def _read(network: AligningTransformer, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Attention of the rows head over real tokens and the plan exp(logits), [B, n, n], after all layers."""
    for layer in range(network.depth):
        Z = network.block(Z, layer)
    H = network.logits(Z, network.depth - 1)[:, 0, :N, :N]
    return torch.softmax(H, dim=-1), H.exp()


def _errors(attention: Tensor, plan: Tensor, target: Tensor) -> Row:
    """Half the L1 distance of a row to P*'s, mean over rows; the plan's may be anything up to infinity."""
    found = {ATTENTION_ERROR: attention, PLAN_ERROR: plan}
    return {name: float((A - target).abs().sum(-1).mean() / 2) for name, A in found.items()}


def _edits() -> list[tuple[str, str, Edit]]:
    registers = ("x", "y", "x_sq", "y_sq", "one1", "one2", "one3", "sign", "u", "v", "spare")
    middle = {
        "without layer 300": [300],
        "without layers 270 to 329": list(range(270, 330)),
        "without every other layer": list(range(0, DEPTH, 2)),
    }
    roundings: dict[str, Callable[[Tensor], Tensor]] = {
        "weights rounded to bf16": lambda W: W.to(torch.bfloat16).to(W.dtype),
        "weights rounded to int8": lambda W: _whole(W, 127),
        "weights rounded to int4": lambda W: _whole(W, 7),
    }
    return [
        ("whole", WHOLE, lambda network, Z: (network, Z)),
        ("token", "without the sink", lambda network, Z: (network, Z[:, :-1])),
        ("head", "without the rows head", partial(_without_head, 0)),
        ("head", "without the columns head", partial(_without_head, 1)),
        *(("register", f"without register {name}", partial(_without_register, name)) for name in registers),
        ("prompt", "without the prompt's squares", _without_squares),
        *(("layer", name, partial(_without_layers, gone)) for name, gone in middle.items()),
        *(("rounding", name, partial(_rounded, how)) for name, how in roundings.items()),
    ]


def _without_head(head: int, network: AligningTransformer, Z: Tensor) -> tuple[AligningTransformer, Tensor]:
    network.W_O[:, head] = 0
    return network, Z


def _without_register(name: str, network: AligningTransformer, Z: Tensor) -> tuple[AligningTransformer, Tensor]:
    for reading in (network.W_Q, network.W_K, network.W_V):
        reading[:, :, network.registers[name]] = 0
    return network, Z


def _without_squares(network: AligningTransformer, Z: Tensor) -> tuple[AligningTransformer, Tensor]:
    Z = Z.clone()
    for name in ("x_sq", "y_sq"):
        Z[..., network.registers[name]] = 0
    return network, Z


def _without_layers(gone: list[int], network: AligningTransformer, Z: Tensor) -> tuple[AligningTransformer, Tensor]:
    kept = torch.ones(network.depth, dtype=torch.bool)
    kept[gone] = False
    network.layer = network.layer[kept]
    return network, Z


def _rounded(how: Callable[[Tensor], Tensor], network: AligningTransformer, Z: Tensor) -> tuple[AligningTransformer, Tensor]:
    network = copy.deepcopy(network)
    for name in WEIGHTS:
        W = getattr(network, name)
        for k in range(len(W)):
            for head in range(2):
                W[k, head] = how(W[k, head])
    return network, Z


def _whole(W: Tensor, top: int) -> Tensor:
    """Rounded to −top … top times one scale for the whole matrix."""
    scale = W.abs().max() / top
    return (W / scale).round() * scale


def _draw(rows: list[Row]) -> figures.Figure:
    fig, ax = figures.figure(10, 5.4)
    groups = list(dict.fromkeys(str(row["group"]) for row in rows))
    colours = dict(zip(groups, (figures.INK, *figures.CYCLE), strict=False))
    floor = 1e-14
    for k, row in enumerate(rows):
        value = row[ATTENTION_ERROR]
        ax.barh(k, max(value, floor * 1.5), left=0, color=colours[str(row["group"])])
        ax.text(max(value, floor * 1.5) * 1.15, k, f"{value:.1e}", va="center", fontsize=7)
    ax.set_xscale("log")
    ax.set_yticks(range(len(rows)), [str(row["change"]) for row in rows])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.set(xlim=(floor, 10), xlabel="attention in the wrong place: half the L1 distance to P*, mean over rows")
    ax.set_title("Error of the attention after one change: a part taken away, or the weights rounded")
    return fig
