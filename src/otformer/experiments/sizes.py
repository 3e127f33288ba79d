"""Figure 4 of the paper: one set of frozen weights, 2,000 layers, n = 8 and n = 4 (and more)."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.experiments._problems import pot_plan, unit_cube
from otformer.experiments.experiment import Context, Finding, Outcome, Row
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
    numbers = sum(t.numel() for name, t in weights.items() if name.startswith("W_"))
    checks = {
        "the state_dict is bit for bit the same for every n": unchanged,
        f"every n: layer {DEPTH} is within {CLOSE:g} of POT's plan, or, if σ makes it slow, within {SLACK} times the error "
        "that the rate (1+σ)/2 predicts from layer 1000": all(
            row[ERROR] <= max(CLOSE, SLACK * row[PREDICTED]) for row in rows
        ),
    }
    settings = {"dim": DIM, "reg": REG, "depth": DEPTH, "sizes": list(SIZES)}
    return Outcome(rows, _draw(pairs), _told(rows, numbers), checks, settings, _found(rows, unchanged))


def _found(rows: list[Row], unchanged: bool) -> Finding:
    close, slowest = [row for row in rows if row[ERROR] <= CLOSE], max(rows, key=lambda row: row[ERROR])
    eight, four = rows[0][ERROR], rows[1][ERROR]
    return Finding(
        f"The same weights serve every n: at layer {DEPTH} attention is within {CLOSE:g} of P*_λ for {len(close)} of "
        f"{len(rows)} sizes from {min(SIZES)} to {max(SIZES)}",
        f"The weights {'are bit for bit the same' if unchanged else 'have changed'} before and after. How many layers a "
        "problem needs is set by σ, the second singular value of its plan, not by n: near the solution a layer leaves "
        f"(1+σ)/2 of the error. The slowest problem, n = {slowest['n']} with σ = {slowest['σ']:.4f}, ends at "
        f"{slowest[ERROR]:.1e}.",
        f"largest |A − P*_λ| at layer {DEPTH}: {eight:.1e} for n = 8, {four:.1e} for n = 4",
    )


def _told(rows: list[Row], numbers: int) -> str:
    close = [row for row in rows if row[ERROR] <= CLOSE]
    slowest = max(rows, key=lambda row: row[ERROR])
    return (
        f"One module of {DEPTH} layers, λ = {REG}, γ = λ; its layers share one set of {numbers} weights, which hold "
        f"neither n nor a point. Largest |A − P*| at layer {DEPTH}: {rows[0][ERROR]:.1e} for n = 8, {rows[1][ERROR]:.1e} "
        f"for n = 4; at most {CLOSE:g} in {len(close)} of {len(rows)} problems, n = {', '.join(map(str, sorted(SIZES)))}. "
        "The weights were compared bit by bit before and after. How many layers a problem needs is set by σ, the second "
        "singular value of its plan, not by n: near the solution a layer leaves (1+σ)/2 of the error, and σ is close to 1 "
        f"where the plan nearly decouples at the scale of λ. The slowest problem here, n = {slowest['n']}, has σ = "
        f"{slowest['σ']:.5f}: its error was predicted to be {slowest[PREDICTED]:.1e} and is {slowest[ERROR]:.1e}. A seed "
        f"that draws a larger σ leaves more than {CLOSE:g} at layer {DEPTH}, and the check then asks for no more than "
        f"{SLACK} times the prediction."
    )


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
