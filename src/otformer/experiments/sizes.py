"""Figure 4 of the paper: one set of frozen weights, 2,000 layers, n = 8 and n = 4 (and more)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from otformer.experiments.experiment import Context, Experiment, Outcome, Row
from otformer.experiments.problems import pot_plan, squared_distances, unit_cube
from otformer.network.transformer import AligningTransformer
from otformer.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIM, REG, DEPTH = 2, 0.05, 2000
SIZES = (8, 4, 1, 2, 3, 16, 32)  # the paper's two first
ERROR = "largest |A − P*|"


def run(context: Context) -> Outcome:
    generator = context.generator()
    network = AligningTransformer(DIM, REG, DEPTH)
    weights = {name: t.clone() for name, t in network.state_dict().items()}
    pairs: dict[int, tuple[Tensor, Tensor]] = {}
    rows: list[Row] = []
    for k, n in enumerate(SIZES):
        x, y = unit_cube(n, DIM, generator)
        trace = network(x, y, keep="last")
        target = pot_plan(squared_distances(x, y), REG)
        pairs[n] = trace.attention(), target
        error = float((trace.attention() - target).abs().max())
        rows.append({"n": n, "layers": DEPTH, ERROR: error, "marginal error": float(trace.marginal_error())})
        context.progress((k + 1) / len(SIZES))
    unchanged = all(torch.equal(weights[name], t) for name, t in network.state_dict().items())
    worst = max(row[ERROR] for row in rows)
    numbers = sum(t.numel() for name, t in weights.items() if name.startswith("W_"))
    summary = (
        f"One module of {DEPTH} layers, λ = {REG}, γ = λ; its layers share one set of {numbers} weights, which hold "
        f"neither n nor a point. Largest |A − P*| at layer {DEPTH}: {rows[0][ERROR]:.1e} for n = 8, {rows[1][ERROR]:.1e} "
        f"for n = 4, and at most {worst:.1e} over n = {', '.join(map(str, sorted(SIZES)))}. "
        "The weights were compared bit by bit before and after. How many layers a problem needs is "
        "set by the second singular value of its plan, not by n: a near tie between two plans is slow at any n."
    )
    checks = {
        "the state_dict is bit for bit the same for every n": unchanged,
        "layer 2000 equals POT's plan to 1e-6 for n = 8 and n = 4": all(
            float((A - target).abs().max()) < 1e-6 for A, target in (pairs[8], pairs[4])
        ),
    }
    settings = {"dim": DIM, "reg": REG, "depth": DEPTH, "sizes": list(SIZES)}
    return Outcome(rows, _draw(pairs), summary, checks, settings)


def _draw(pairs: dict[int, tuple[Tensor, Tensor]]) -> Figure:
    fig, axes = style.figure(10, 2.9, 1, 4)
    shown = [(n, title, matrix) for n in (8, 4) for title, matrix in zip(("A at layer 2000", "P*"), pairs[n], strict=True)]
    top = max(float(matrix.max()) for _, _, matrix in shown)
    for ax, (n, title, matrix) in zip(axes, shown, strict=True):
        image = style.heatmap(ax, matrix, f"n = {n}: {title}", top)
    axes[0].set_ylabel("x, point number")
    fig.colorbar(image, ax=axes, label="attention", shrink=0.8)
    return fig


EXPERIMENT = Experiment(
    name="sizes",
    title="The same weights for every n",
    source="figure 4",
    claim="With unchanged weights, layer 2000 solves the problem for n = 8 and for n = 4.",
    run=run,
)
