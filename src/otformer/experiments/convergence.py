"""Figure 3 of the paper: attention of layers 1, 300 and 600 beside the regularised plan P*_λ."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.experiments._problems import pot_plan, unit_cube
from otformer.experiments.experiment import Context, Finding, Outcome, Row
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
        "in every problem the error falls from layer 1 to 300 to 600": bool(((first > middle) & (middle > last)).all()),
        "in every problem layer 600 is within 0.1 of POT's plan": bool((last < 0.1).all()),
        "the paper's sink token gives the same errors at layer 600 to 0.01": bool(
            ((errors[TOKEN][-1] - last).abs() < 0.01).all()
        ),
    }
    settings = {"n": N, "dim": DIM, "reg": REG, "depth": DEPTH, "problems": PROBLEMS}
    return Outcome(rows, _draw(shown, errors), _told(errors), checks, settings, _found(errors))


def _found(errors: dict[str, Tensor]) -> Finding:
    first, middle, last = (errors[FROZEN][k] for k in SHOWN)
    falling = int(((first > middle) & (middle > last)).sum())
    paper, token = errors[PAPER].median(1).values, float(errors[TOKEN][-1].median())
    path = ", ".join(f"{float(each.median()):.2g}" for each in (first, middle, last))
    return Finding(
        f"With γ = λ attention converges to P*_λ: the largest error falls from {float(first.median()):.2g} at layer 1 to "
        f"{float(last.median()):.1e} at layer 600",
        f"It falls from layer 1 to 300 to 600 in {falling} of {PROBLEMS} problems; how fast is set by σ, the second "
        "singular value of the plan. The paper's sink token, updated like any other, leads to the same limit (error "
        f"{token:.1e}). With the step of the paper's lemma nothing moves: {float(paper[1]):.3f} at layer 1, "
        f"{float(paper[-1]):.3f} at 600.",
        f"largest |A − P*_λ| at layers 1, 300 and 600: {path} (median of {PROBLEMS} problems)",
    )


def _told(errors: dict[str, Tensor]) -> str:
    first, middle, last = (errors[FROZEN][k] for k in SHOWN)
    return (
        f"{PROBLEMS} problems of {N} random points per side in the unit square, λ = {REG}, γ = λ; the matrices are those of "
        f"the first. The largest entry of |A − P*|, median over the problems, falls from {float(first.median()):.2g} at "
        f"layer 1 to {float(middle.median()):.1e} at layer 300 and {float(last.median()):.1e} at layer 600; at layer 600 it "
        f"is {float(last.min()):.1e} in the quickest problem and {float(last.max()):.1e} in the slowest: how fast "
        "is a matter of σ, the second singular value of the plan. The paper's sink token, updated like any other, has the "
        f"same limit (median {float(errors[TOKEN][-1].median()):.1e}). With the step of the paper's lemma, even for a "
        f"radius r as small as 0.1, the median moves from {float(errors[PAPER][1].median()):.4f} to "
        f"{float(errors[PAPER][-1].median()):.4f}: "
        "that step cannot show convergence in 600 layers. The paper gives neither its points nor its λ, so its own picture "
        "cannot be compared entry by entry."
    )


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
