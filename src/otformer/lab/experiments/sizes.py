"""Figure 4 of the paper: one set of frozen weights, 2,000 layers, n = 8 and n = 4 (and more)."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import pot_plan, unit_cube
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.trace import Trace
from otformer.network.transformer import AligningTransformer
from otformer.theory.rates import gradient_rate, second_singular_value

DIM, REG, DEPTH = 2, 0.05, 2000  # dimension, λ, layers
SIZES = (8, 4, 1, 2, 3, 16, 32)  # the paper's two first
HALF, ERROR, PREDICTED = "largest |A − P*| at layer 1000", "largest |A − P*| at layer 2000", "predicted from layer 1000"
CLOSE, SLACK = 1e-6, 1.5  # an error below CLOSE is fine; above it, it must not exceed the prediction times SLACK


def run(context: Context) -> Outcome:
    generator = context.generator()
    network = AligningTransformer(DIM, REG, DEPTH)
    weights = {name: t.clone() for name, t in network.state_dict().items()}
    pairs: dict[int, tuple[Tensor, Tensor]] = {}
    rows: list[Row] = []
    for n in context.each(SIZES):
        x, y, C = unit_cube(n, DIM, generator=generator)
        trace, target = network(x, y, keep=(DEPTH // 2, DEPTH), warn=False), pot_plan(C, REG)
        pairs[n] = trace.attention(), target
        rows.append({"n": n, **_errors(trace, target), "marginal error": float(trace.marginal_error)})
    unchanged = all(torch.equal(weights[name], t) for name, t in network.state_dict().items())
    checks = {
        "unchanged": unchanged,
        "close": all(row[ERROR] <= max(CLOSE, SLACK * row[PREDICTED]) for row in rows),
    }
    settings = {"dim": DIM, "reg": REG, "depth": DEPTH, "sizes": list(SIZES)}
    slowest = max(rows, key=lambda row: row[ERROR])
    numbers = {
        "count": len(rows),
        "sizes": sorted(SIZES),
        "largest": max(SIZES),
        "unchanged": unchanged,
        "slowest": slowest,
        "slowest_error": slowest[ERROR],
        "predicted": slowest[PREDICTED],
        "weights": sum(t.numel() for name, t in weights.items() if name.startswith("W_")),
        "errors": [row[ERROR] for row in rows],
        "close": sum(row[ERROR] <= CLOSE for row in rows),
    }
    return Outcome(rows, _draw(pairs), numbers, checks, settings)


def _errors(trace: Trace, target: Tensor) -> Row:
    """Errors halfway and at the end, and the end as predicted: the error halfway times ((1+σ)/2)^(layers left)."""
    half, end = (float((trace.attention(layer) - target).abs().max()) for layer in (DEPTH // 2, DEPTH))
    sigma = min(second_singular_value(target), 1 - 1e-12)  # rounding may reach 1
    return {"σ": sigma, HALF: half, ERROR: end, PREDICTED: half * gradient_rate(1.0, sigma) ** (DEPTH // 2)}


def _draw(pairs: dict[int, tuple[Tensor, Tensor]]) -> figures.Figure:
    fig, axes = figures.figure(10, 2.9, 1, 4)
    shown = [(n, title, matrix) for n in (8, 4) for title, matrix in zip(("A at layer 2000", "P*"), pairs[n], strict=True)]
    top = max(float(matrix.max()) for _, _, matrix in shown)
    for ax, (n, title, matrix) in zip(axes, shown, strict=True):
        image = figures.heatmap(ax, matrix, f"n = {n}: {title}", top)
    figures.colours(fig, image, axes[-1])
    return fig
