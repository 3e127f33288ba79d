"""Figure 2 (2) of the paper: with and without the engineered prompt, the gap over all seeds with a confidence interval."""

from __future__ import annotations

import torch
from torch import Tensor

from otformer import figures
from otformer.experiments import _trained_models as learned
from otformer.experiments._trained_models import DISTANCE, ROWS, SIZES, at, band, scores, spread
from otformer.experiments.experiment import Context, Finding, Outcome, Row
from otformer.statistics import bootstrap, student

WITH, WITHOUT = "with the engineered prompt", "without, Z' = [x, y, 0]"
RECIPES = {WITHOUT: "paper-no-prompt", WITH: "paper-attention"}
TRAINED, TESTED = 7, 9  # points
RESAMPLES = 10_000  # draws of the bootstrap
MEAN, LOW, HIGH, T_LOW, T_HIGH = GAP = tuple(f"gap, {ROWS}: {word}" for word in ("mean", "low", "high", "t low", "t high"))


def run(context: Context) -> Outcome:
    count, seed = learned.problems(context), context.seed
    found = {label: scores(name, count, seed) for label, name in context.each(RECIPES.items(), 0.7)}
    gaps = [_gap(n, found, context) for n in SIZES]
    trained, tested, longer = (gaps[SIZES.index(n)] for n in (TRAINED, TESTED, 15))
    checks = {
        f"with the prompt at least 99 % of rows right at n = {TRAINED} (median of seeds)": (
            trained[f"{ROWS}, {WITH}: median"] >= 99
        ),
        f"the prompt is better at n = {TESTED}: the 95 % interval of the gap (bootstrap) lies above 0": tested[LOW] > 0,
        f"the same by Student's t at n = {TESTED}": tested[T_LOW] > 0,
        "the prompt is better at n = 15 too: the 95 % interval of the gap (bootstrap) lies above 0": longer[LOW] > 0,
    }
    settings = {"recipes": RECIPES, "sizes": [*SIZES], "problems": count, "resamples": RESAMPLES}
    return Outcome(gaps, _draw(found, gaps, count, seed), _told(found, gaps, count), checks, settings, _found(gaps))


def _found(gaps: list[Row]) -> Finding:
    low, middle, high = (gaps[SIZES.index(n)] for n in (TRAINED, TESTED, 15))
    holding = [gap["n"] for gap in (low, middle, high) if gap[LOW] > 0]
    where = f"at n = {' and '.join(map(str, holding))}" if holding else f"at none of n = {TRAINED}, {TESTED} and 15"
    told = "; ".join(
        f"n = {gap['n']}: {gap[MEAN]:+.0f} ({gap[LOW]:+.0f} to {gap[HIGH]:+.0f})" for gap in (low, middle, high)
    )
    return Finding(
        f"The engineered prompt helps {where}: {middle[MEAN]:+.0f} points of rows right on average at n = {TESTED}",
        "The same training, data and seeds with and without the prompt, eight seeds each. Where it does not help, the 95 % "
        "interval of the gap includes 0. Seeds differ more than prompts "
        f"do: some are better without it. At n = {TRAINED}, the size trained on, most seeds learn the task either way.",
        f"rows right, with minus without, in points (95 % over seeds): {told}",
    )


def _told(found: dict[str, dict[str, Tensor]], gaps: list[Row], count: int) -> str:
    shown = "{:+.1f} [{:+.1f}, {:+.1f}], t [{:+.1f}, {:+.1f}]"
    low, middle, high = (shown.format(*(gaps[SIZES.index(n)][name] for name in GAP)) for n in (TRAINED, TESTED, 15))
    given, plain = (spread(at(found[label][ROWS], TESTED)) for label in (WITH, WITHOUT))
    learned_by = {label: int((at(found[label][ROWS], TRAINED) >= 99).sum()) for label in RECIPES}
    holding = [str(gap["n"]) for gap in gaps if gap[LOW] > 0]
    each = at(found[WITH][ROWS], TESTED) - at(found[WITHOUT][ROWS], TESTED)
    seeds = len(each)
    return (
        f"The same training, data and seeds, with and without the engineered prompt; {seeds} seeds, {count} fresh "
        f"permutations of each size. At n = {TRAINED}, {learned_by[WITH]} of {seeds} seeds have 99 % of rows right with the "
        f"prompt and {learned_by[WITHOUT]} without. At n = {TESTED}: {given:.1f} % of rows right with it, {plain:.1f} % "
        "without. Mean gap over the seeds in points of percent, 95 % confidence by bootstrap over the seeds, and by "
        f"Student's t: n = {TRAINED}: {low}; n = {TESTED}: {middle}; n = 15: {high}. The bootstrap's interval lies above 0 "
        f"for {'n = ' + ', '.join(holding) if holding else 'no n'}. Seeds differ more than prompts: the gap of a seed at n "
        f"= {TESTED} goes from {float(each.min()):+.1f} to {float(each.max()):+.1f}."
    )


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
