"""Never more than 7 points in training, 15 and 30 in the test: a looped layer, and the smallest n to learn from."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments import _trained_models as learned
from otformer.lab.experiments._trained_models import ROWS, SIZES, at, band, scores, spread
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row

RECIPES = {
    "sort-beyond: looped, from the perturbed construction": "sort-beyond",
    "sort-scratch: looped, from noise": "sort-scratch",
    "paper-attention: the paper's, n = 7": "paper-attention",
}
KINDS = {"permutations": "permutations of 1/n … 1", "values": "real-valued lists"}
GOALS = {9: 98, 15: 90, 30: 70}  # n -> percent of rows, median of seeds
LARGEST = range(2, 11)
NEAREST = "nearest match, no transport"
Over = dict[tuple[str, int], dict[str, learned.Spread]]  # kind and n -> label -> percent of rows right
Curve = dict[str, dict[int, dict[int, Tensor]]]  # kind -> largest n in training -> n -> [K]


def run(context: Context) -> Outcome:
    count, seed = learned.problems(context), context.seed
    found: dict[str, dict[str, Tensor]] = {}
    for kind in context.each(KINDS, 0.8):
        found[kind] = {label: scores(name, count, seed, kind)[ROWS] for label, name in RECIPES.items()}
        found[kind][NEAREST] = torch.stack([nearest(n, count, seed, kind) for n in SIZES])
    curve = {
        kind: {m: {n: learned.score(f"sort-beyond-{m}", n, count, seed, kind)[ROWS] for n in GOALS} for m in LARGEST}
        for kind in KINDS
    }
    ours = next(iter(RECIPES))
    over = {(kind, n): {label: spread(at(t, n)) for label, t in found[kind].items()} for kind in KINDS for n in GOALS}
    reached = {n: over["permutations", n][ours].median for n in GOALS}
    checks = {
        f"sort-beyond, trained on n ≤ 7: at least {goal} % of rows right at n = {n} (median of seeds, permutations)": (
            reached[n] >= goal
        )
        for n, goal in GOALS.items()
    }
    checks["better than a nearest match on real-valued lists at n = 9, 15 and 30 (median of seeds)"] = all(
        over["values", n][ours].median > over["values", n][NEAREST].median for n in GOALS
    )
    settings = {"recipes": RECIPES, "sizes": [*SIZES], "problems": count, "largest training n": [*LARGEST]}
    return Outcome(_rows(found, curve), _draw(found, curve), _numbers(over, curve, count), checks, settings)


def _numbers(over: Over, curve: Curve, count: int) -> Numbers:
    labels = dict(zip(("ours", "scratch", "paper", "nearest"), (*RECIPES, NEAREST), strict=True))
    found = {kind: {key: {n: over[kind, n][label] for n in GOALS} for key, label in labels.items()} for kind in KINDS}
    medians = {n: right.median for n, right in found["permutations"]["ours"].items()}
    return {
        "count": count,
        "medians": [*medians.values()],
        "reached": learned.by_size(medians, ".0f"),
        **found,
        "told": {kind: {key: learned.by_size(each, ".1f") for key, each in found[kind].items()} for kind in KINDS},
        "goals": [f"{goal} %" for goal in GOALS.values()],
        "least": next((m for m, each in curve["permutations"].items() if spread(each[9]).median >= 90), "no number of"),
        "short": {kind: {n: [spread(each[n]).median for each in curve[kind].values()] for n in GOALS} for kind in KINDS},
    }


def nearest(n: int, count: int, seed: int, kind: str) -> Tensor:
    """Percent of rows whose nearest x is the right one, [1]: what the cost alone gives."""
    batch = learned.draw(n, count, seed, kind)
    chosen = (batch.y - batch.x.mT).abs().argmin(-1)
    return 100 * (chosen == batch.target).float().mean()[None]


def _rows(found: dict[str, dict[str, Tensor]], curve: Curve) -> list[Row]:
    lines = [(kind, label, n, at(t, n)) for kind, each in found.items() for label, t in each.items() for n in SIZES]
    lines += [
        (kind, f"sort-beyond-{m}: a short run on at most {m} points", n, t)
        for kind, each in curve.items()
        for m, found_at in each.items()
        for n, t in found_at.items()
    ]
    return [{"lists": KINDS[kind], "network": label, "n": n} | learned.columns(ROWS, t) for kind, label, n, t in lines]


def _draw(found: dict[str, dict[str, Tensor]], curve: Curve) -> figures.Figure:
    fig, axes = figures.figure(10, 7, 2, 2)
    for (ax, small), (kind, title) in zip(axes.T, KINDS.items(), strict=True):
        for (label, t), colour, dash in zip(found[kind].items(), figures.CYCLE, ("-", "--", "-.", ":"), strict=False):
            band(ax, SIZES, t, label, colour, dash)
        for m, colour, dash in zip(GOALS, figures.CYCLE, ("-", "--", "-."), strict=False):
            band(small, LARGEST, torch.stack([each[m] for each in curve[kind].values()]), f"n = {m}", colour, dash)
        ax.axvline(7, color=figures.GREY, linewidth=0.8)
        ax.set(xlabel="n", ylabel=ROWS, ylim=(0, 102), title=f"Trained on n ≤ 7: {title}")
        small.set(xlabel="largest n in training", ylabel=ROWS, ylim=(0, 102), title=f"Short runs, {title}")
    axes[0, 0].plot([*GOALS], [*GOALS.values()], "v", color=figures.INK, label="goal")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    axes[1, 1].legend(title="tested on", loc="lower right")
    return fig
