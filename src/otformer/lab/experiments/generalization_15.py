"""The appendix figure of the paper: the three observations again, at n = 15."""

from __future__ import annotations

from torch import Tensor

from otformer import figures
from otformer.lab.experiments import _trained_models as learned
from otformer.lab.experiments import iterative
from otformer.lab.experiments._trained_models import DISTANCE, LAYERS_SHOWN, LOSS, ROWS, spread
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.lab.experiments.iterative import HEADS, LENS, Looks

N = 15  # points
NAME, PLAIN = "paper-attention", "paper-no-prompt"
RECIPES = ("paper-sorted", NAME, "paper-entropy", PLAIN, "sort-beyond")


def run(context: Context) -> Outcome:
    count, seed = learned.problems(context), context.seed
    found = {name: learned.score(name, N, count, seed) for name in RECIPES}
    rows = [_row(f"{name}, output", found[name]) for name in RECIPES]
    context.progress(0.5)
    looks = iterative.look(NAME, N, count, seed)
    for way in looks.views:
        for layer in LAYERS_SHOWN:
            seen = looks.at(way, layer)
            rows.append(_row(f"{NAME}, layer {layer}, {way}", {ROWS: 100 * seen.rows, DISTANCE: seen.distance}))
    right = {name: spread(found[name][ROWS]) for name in RECIPES}
    far = spread(found[NAME][DISTANCE])
    moves = {way: iterative.moves(looks, way) for way in (HEADS, LENS)}
    checks = {
        "right": right[NAME].median >= 90,
        "nearer": far.median < 0.9 * learned.uniform(N),
        "prompt": right[NAME].median > right[PLAIN].median,
        "heads": moves[HEADS].nearer,
        "lens": moves[LENS].nearer,
    }
    settings = {"n": N, "recipes": list(RECIPES), "problems": count}
    numbers: Numbers = {"right": right, "far": far, "uniform": learned.uniform(N), "count": count}
    numbers |= {"heads": moves[HEADS].told, "lens": moves[LENS].told}
    return Outcome(rows, _draw(looks, count, seed), numbers, checks, settings)


def _row(what: str, measures: dict[str, Tensor]) -> Row:
    row: Row = {"what": what}
    for measure in (ROWS, DISTANCE, LOSS):
        row |= learned.columns(measure, measures.get(measure))
    return row


def _draw(looks: Looks, count: int, seed: int) -> figures.Figure:
    fig, axes = figures.figure(10, 11, 4, 4)
    batch = learned.draw(N, count, seed)
    target = batch.plan()[0]
    member, plain = (learned.middle(name, N, count, seed) for name in (NAME, PLAIN))
    output, without = learned.attention(NAME, member, batch), learned.attention(PLAIN, plain, batch)
    learned.picture(axes[0, 0], output, "test n = 15")
    learned.picture(axes[1, 0], without, "without")
    learned.picture(axes[1, 1], output, "with")
    for ax in (axes[0, 1], axes[0, 2], axes[1, 2]):
        ax.set_axis_off()
    image, _ = (learned.picture(ax, target, "P*") for ax in axes[:2, 3])
    for row, way in zip(axes[2:], (HEADS, LENS), strict=True):
        iterative.pictures(row, looks, way, member, target)
    labels = ("(1) generalization", "(2) prompt engineering", "(3) the layers' own heads", "(3) output head on the state")
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(f"{label}\ny, point number")
    figures.colours(fig, image, axes[0, 3])
    return fig
