"""The note as a PDF: `make paper`. Writes build/paper/: the figure, two generated texts, otformer.pdf.

The table of experiments is made by experiments.py, the sentence on Coq from what proofs/check.py checks; the curves are
computed here.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
import typst

from experiments import table
from otformer import figures, theory
from otformer.lab.experiments._problems import iterates
from otformer.network.schedule import Gradient, turns
from otformer.theory import bounds, hilbert, two_point
from otformer.transport.reference import sinkhorn

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "paper"


def checked() -> str:
    """The theorems of proofs/ by file, from the list that proofs/check.py compiles."""
    spec = importlib.util.spec_from_file_location("check", ROOT / "proofs" / "check.py")
    assert spec
    assert spec.loader
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    rows = [
        f"[`{file}.v`], [{', '.join(f'`{name}`' for name in names)}]," for file, names in check.THEOREMS.items() if names
    ]
    return (
        f"{sum(map(len, check.THEOREMS.values()))} theorems:\n"
        "#block(breakable: false)[#set text(size: 8.5pt)\n#set par(justify: false, first-line-indent: 0em)\n"
        "#table(columns: (auto, 1fr), align: left, stroke: none, inset: (x: 4pt, y: 3pt), table.hline(),\n"
        + "\n".join(rows)
        + "\ntable.hline())]\n"
    )


def figure() -> None:
    fig, (left, right) = figures.figure(10, 3.6, 1, 2)
    _draw_rate(left)
    _draw_two_points(right)
    fig.savefig(BUILD / "figure.png", dpi=220)


def _draw_rate(axes: figures.Axes, n: int = 4, reg: float = 1.0, layers: int = 300) -> None:
    x, y = torch.rand(2, n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    C = torch.cdist(x, y) ** 2
    solution, log_phi, R = sinkhorn(C, reg, tol=1e-14), hilbert.log_phi(C, reg), theory.start_distance(C, reg)
    measured = bounds.distances(iterates(C, Gradient().layers(reg, layers)), solution, reg)
    depths = range(1, layers + 1)
    axes.semilogy(measured.clamp(min=1e-16), color=figures.INK, linewidth=2, label="measured, γ = λ")
    axes.semilogy(depths, [theory.linear_bound(reg, R, k, log_phi) for k in depths], color=figures.BLUE, label="theorem L")
    axes.semilogy(
        depths, [theory.hilbert_bound(reg, R, k, log_phi) for k in depths], "--", color=figures.GREY, label="theorem A"
    )
    axes.set(xlabel="layer", ylabel="Hilbert distance to the plan", ylim=(1e-16, 1e2), title=f"n = {n}, λ = {reg:g}")
    axes.legend()


def _draw_two_points(axes: figures.Axes, reg: float = 0.05, layers: int = 4000) -> None:
    for name, steps, colour in (
        ("both heads, γ = λ", Gradient().layers(reg, layers), figures.ORANGE),
        ("alternating heads", turns(reg, 1.0, layers), figures.PURPLE),
        ("annealed (E)", two_point.annealing(reg, 1e-4), figures.BLUE),
    ):
        errors = [state.error for state in two_point.path(steps)]
        axes.loglog(range(1, len(errors)), errors[1:], color=colour, label=name)
    depths = sorted({round(10 ** (k / 20)) for k in range(73)})
    axes.loglog(
        depths,
        [two_point.error_bound(reg, k) for k in depths],
        "--",
        color=figures.INK,
        label="theorem D: no one-λ network is below",
    )
    axes.set(xlabel="layer", ylabel="marginal error E", ylim=(1e-8, 1e4), title=f"two points, λ = {reg:g}")
    axes.legend(loc="upper right")


def main() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "experiments.typ").write_text(table(), "utf-8")
    (BUILD / "checked.typ").write_text(checked(), "utf-8")
    figure()
    typst.compile(ROOT / "docs" / "paper" / "otformer.typ", output=BUILD / "otformer.pdf", root=ROOT)
    print(f"{(BUILD / 'otformer.pdf').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
