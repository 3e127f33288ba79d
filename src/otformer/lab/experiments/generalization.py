"""Figure 2 (1) of the paper: trained on 7 points, tested on 9, for three objectives, n = 5 … 30 and all seeds."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments import _trained_models as learned
from otformer.lab.experiments._trained_models import DISTANCE, LOSS, POINTS, ROWS, SIZES, at, band, scores, spread
from otformer.lab.experiments.experiment import Context, Outcome
from otformer.lab.training.data import Batch

SORTED, ATTENTION = "squared error on the sorted list", "squared error on the attention"
ENTROPY = "cross-entropy of the rows"
RECIPES = {SORTED: "paper-sorted", ATTENTION: "paper-attention", ENTROPY: "paper-entropy"}
SHORT = {SORTED: "sorted list", ATTENTION: "attention", ENTROPY: "cross-entropy"}
TRAINED, TESTED = 7, 9  # points


def run(context: Context) -> Outcome:
    count, seed = learned.problems(context), context.seed
    found = {label: scores(name, count, seed) for label, name in context.each(RECIPES.items(), 0.8)}
    rows = learned.table("objective", RECIPES, count, seed)

    def over(label: str, measure: str, n: int) -> learned.Spread:
        return spread(at(found[label][measure], n))

    checks = {
        "trained": over(ATTENTION, ROWS, TRAINED).median >= 99,
        "tested": max(over(label, ROWS, TESTED).median for label in (ATTENTION, ENTROPY)) >= 90,
        "guess": over(ATTENTION, ROWS, TESTED).least >= 300 / TESTED,
        "sorted_learned": over(SORTED, LOSS, TRAINED).median < 1e-5,
        "sorted_teaches": over(SORTED, ROWS, TRAINED).median >= 90,
    }
    settings = {"recipes": RECIPES, "sizes": [*SIZES], "problems": count, "kind": "permutations"}
    figure = _draw(found, learned.draw(TESTED, count, seed), count, seed)
    reads_y, reads_x = (spread(values) for values in value_read(learned.draw(TRAINED, count, seed)))
    numbers = {
        "attention": [over(ATTENTION, ROWS, n) for n in (TRAINED, TESTED, 15, 30)],
        "entropy": [over(ENTROPY, ROWS, n) for n in (TRAINED, TESTED, 15, 30)],
        "far": over(ATTENTION, DISTANCE, TESTED),
        "uniform": learned.uniform(TESTED),
        "guess": 100 / TRAINED,
        "sorted_rows": over(SORTED, ROWS, TRAINED),
        "sorted_loss": over(SORTED, LOSS, TRAINED),
        "sorted_points": over(SORTED, POINTS, TRAINED),
        "reads_y": reads_y,
        "reads_x": reads_x,
        "seeds": learned.load("paper-attention").ensemble,
        "count": count,
    }
    return Outcome(rows, figure, numbers, checks, settings)


@torch.no_grad()
def value_read(batch: Batch) -> tuple[Tensor, Tensor]:
    """|correlation| of the values that the output head of paper-sorted averages with y and with x, [K] each."""
    net = learned.load("paper-sorted")
    n = batch.x.shape[-2]
    values = (net.states(batch.x, batch.y)[-1][..., :n, :] @ net.V_out[:, None]).flatten(1)  # [K, B·n]

    with_y, with_x = (torch.corrcoef(torch.cat([points.flatten()[None], values]))[0, 1:] for points in (batch.y, batch.x))
    return with_y.abs(), with_x.abs()


def _draw(found: dict[str, dict[str, Tensor]], batch: Batch, count: int, seed: int) -> figures.Figure:
    fig, axes = figures.figure(10, 6.0, "abcd;rrff", height_ratios=[1.15, 1])
    for panel, (label, name) in zip("abc", RECIPES.items(), strict=True):
        member = learned.middle(name, TESTED, count, seed)
        learned.picture(axes[panel], learned.attention(name, member, batch), f"loss: {SHORT[label]}")
    image = learned.picture(axes["d"], batch.plan()[0], "P*")
    figures.colours(fig, image, axes["d"])
    right, far = axes["r"], axes["f"]
    for (label, scored), colour, dash in zip(found.items(), figures.CYCLE, ("-", "--", "-."), strict=False):
        band(right, SIZES, scored[ROWS], label, colour, dash)
        band(far, SIZES, scored[DISTANCE], label, colour, dash)
    guess = torch.tensor(SIZES, dtype=torch.float64)
    right.plot(SIZES, 100 / guess, ":", color=figures.GREY, label="a guess, 1/n")
    far.plot(SIZES, (1 - 1 / guess).sqrt(), ":", color=figures.GREY, label="uniform rows")
    right.set(xlabel="n", ylabel=ROWS, ylim=(0, 102), title=f"Rows right fall away from n = {TRAINED}")
    far.set(xlabel="n", ylabel=DISTANCE, ylim=(0, 1.3), title="Distance to P*: least where trained")
    for ax in (right, far):
        ax.axvline(TRAINED, color=figures.GREY, linewidth=0.8)
    right.legend()
    far.legend(loc="lower right")
    return fig
