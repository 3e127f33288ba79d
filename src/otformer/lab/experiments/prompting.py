"""Figure 2 (2) of the paper: with and without the engineered prompt, the gap over all seeds with a confidence interval."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments import _trained_models as learned
from otformer.lab.experiments._texts import ends, joined
from otformer.lab.experiments._trained_models import DISTANCE, ROWS, SIZES, at, band, scores, spread
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.statistics import bootstrap, student

WITH, WITHOUT = "with the engineered prompt", "without, Z' = [x, y, 0]"
RECIPES = {WITHOUT: "paper-no-prompt", WITH: "paper-attention"}
TRAINED, TESTED = 7, 9  # points
GAP_SIZES = (TRAINED, TESTED, 15)  # points at which the gap is told
RESAMPLES = 10_000  # draws of the bootstrap
MEAN, LOW, HIGH, T_LOW, T_HIGH = GAP = tuple(f"gap, {ROWS}: {word}" for word in ("mean", "low", "high", "t low", "t high"))


def run(context: Context) -> Outcome:
    count, seed = learned.problems(context), context.seed
    found = {label: scores(name, count, seed) for label, name in context.each(RECIPES.items(), 0.7)}
    gaps = [_gap(n, found, context) for n in SIZES]
    trained, tested, longer = (gaps[SIZES.index(n)] for n in GAP_SIZES)
    checks = {
        "learned": trained[f"{ROWS}, {WITH}: median"] >= 99,
        "better": tested[LOW] > 0,
        "student": tested[T_LOW] > 0,
        "longer": longer[LOW] > 0,
    }
    settings = {"recipes": RECIPES, "sizes": [*SIZES], "problems": count, "resamples": RESAMPLES}
    return Outcome(gaps, _draw(found, gaps, count, seed), _numbers(found, gaps) | {"count": count}, checks, settings)


def _numbers(found: dict[str, dict[str, Tensor]], gaps: list[Row]) -> Numbers:
    names = ("mean", "low", "high", "t_low", "t_high")
    shown = [{"n": n} | dict(zip(names, (gaps[SIZES.index(n)][name] for name in GAP), strict=True)) for n in GAP_SIZES]
    helped = [str(gap["n"]) for gap in shown if gap["low"] > 0]
    holding = [str(gap["n"]) for gap in gaps if gap[LOW] > 0]
    each = at(found[WITH][ROWS], TESTED) - at(found[WITHOUT][ROWS], TESTED)
    given, plain = (spread(at(found[label][ROWS], TESTED)) for label in (WITH, WITHOUT))
    return {
        "shown": shown,
        "tested": shown[1],
        "given": given,
        "plain": plain,
        "gaps": ends(each),
        "seeds": len(each),
        "learned_by": [int((at(found[label][ROWS], TRAINED) >= 99).sum()) for label in (WITH, WITHOUT)],
        "where": f"at n = {joined(helped)}" if helped else f"at none of n = {joined([*map(str, GAP_SIZES)])}",
        "holding": f"n = {', '.join(holding)}" if holding else "no n",
    }


def _gap(n: int, found: dict[str, dict[str, Tensor]], context: Context) -> Row:
    """One size: both sides, and the mean gap with its intervals."""
    row: Row = {"n": n}
    for label, scored in found.items():
        row |= learned.columns(f"{ROWS}, {label}", at(scored[ROWS], n))
        row |= learned.columns(f"{DISTANCE}, {label}", at(scored[DISTANCE], n))
    gap = at(found[WITH][ROWS], n) - at(found[WITHOUT][ROWS], n)  # the two of a seed saw the same problems
    drawn = torch.randint(len(gap), (RESAMPLES, len(gap)), generator=context.generator())
    low, high = bootstrap(gap.double()[:, None], lambda sums: sums[:, 0] / len(gap), draws=drawn)
    return row | dict(zip(GAP, (float(gap.mean()), low, high, *student(gap)), strict=True))


def _draw(found: dict[str, dict[str, Tensor]], gaps: list[Row], count: int, seed: int) -> figures.Figure:
    fig, axes = figures.figure(10, 6.2, "aabbcc;rrrggg", height_ratios=[1.15, 1])
    batch = learned.draw(TESTED, count, seed)
    for panel, (label, name) in zip("ab", RECIPES.items(), strict=True):
        learned.picture(axes[panel], learned.attention(name, learned.middle(name, TESTED, count, seed), batch), label)
    image = learned.picture(axes["c"], batch.plan()[0], "P*")
    figures.colours(fig, image, axes["c"])
    right, gap = axes["r"], axes["g"]
    for (label, scored), colour, dash in zip(found.items(), (figures.ORANGE, figures.BLUE), ("--", "-"), strict=True):
        band(right, SIZES, scored[ROWS], label, colour, dash)
    right.set(xlabel="n", ylabel=ROWS, ylim=(0, 102), title="Rows right: seeds overlap")
    right.legend()
    mean, low, high = ([row[name] for row in gaps] for name in (MEAN, LOW, HIGH))
    gap.plot(SIZES, mean, color=figures.BLUE, label="mean of the seeds")
    gap.fill_between(SIZES, low, high, color=figures.BLUE, alpha=0.15, linewidth=0, label="95 %, bootstrap")
    each = at(found[WITH][ROWS], TESTED) - at(found[WITHOUT][ROWS], TESTED)
    gap.plot([TESTED] * len(each), each, ".", color=figures.INK, label=f"each seed, n = {TESTED}")
    gap.axhline(0, color=figures.GREY, linewidth=0.8)
    gap.set(xlabel="n", ylabel="gap, points of percent", title="With minus without, over seeds")
    gap.legend()
    return fig
