"""Figure 1 of the paper: attention of an encoder on the fox pair, layers 1, 6 and 12, beside transport; and on all pairs.

What is measured: experiments/_fox_scores.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from otformer import figures
from otformer.experiments import _fox_scores as scores
from otformer.experiments import _sentences as sentences
from otformer.experiments._fox_scores import FIRST, ORIENTATIONS, OT, PLAN_DISTANCE, REG, RIGHT, UNIFORM
from otformer.experiments._sentences import Corpus, listed
from otformer.experiments.experiment import Context, Outcome, Row
from otformer.words.models.attention import Reading, read
from otformer.words.models.models import load
from otformer.words.models.shipped import folder
from otformer.words.text.examples import examples
from otformer.words.text.gold import Link

MODEL = "bert-en-fr"
FOX = "the fox pair"
SHOWN_ORIENTATION = "target-source"  # as in the paper's section 4.1
FOX_NEWS = 2000  # sentence pairs with ``full``


def run(context: Context) -> Outcome:
    model = load(folder(MODEL))
    if model.kind != "encoder":
        raise ValueError(f"model {MODEL} must be an encoder, got a {model.kind} model: {model.name}")
    given = sentences.corpus("en-fr", context, FOX_NEWS)
    rows = scores.table(FOX, scores.see(model, _only_fox(), context), context.seed)
    rows += scores.table(given.label, scores.see(model, given, context), context.seed)
    fox = next(read(model, _only_fox().pairs, by="spaces", states=True))
    story = Story(rows, given, shown_layers(model.layers), f"{sentences.size_of(model)}, trained here", scores.exact(fox))
    settings = {"model": MODEL, "λ": REG, "states of layer": FIRST, "corpus": given.label}
    return Outcome(rows, _draw(fox, story), _told(story), story.checks(), settings)


def _only_fox() -> Corpus:
    given = sentences.shipped("en-fr")
    return Corpus(given.pairs[:1], given.gold[:1], given.every[:1], given.by, FOX)


def shown_layers(layers: int) -> tuple[int, int, int]:
    """The first, the middle and the last.

    >>> shown_layers(12)
    (1, 6, 12)
    """
    return 1, max(1, layers // 2), layers


@dataclass(frozen=True)
class Story:
    """The table, and how to speak of it; exact : the permutation of the fox pair."""

    rows: list[Row]
    corpus: Corpus
    layers: tuple[int, int, int]
    model: str
    exact: list[Link]

    def curve(self, label: str, what: str, measure: str) -> list[float]:
        """A measure by layer; of transport or a uniform matrix, one number."""
        return [row[measure] for row in self.rows if row["sentences"] == label and row["what"] == what]

    def at(self, label: str, measure: str, reading: str = SHOWN_ORIENTATION) -> list[float]:
        """At the layers shown."""
        values = self.curve(label, reading, measure)
        return [values[layer - 1] for layer in self.layers]

    def nearest(self, label: str, reading: str = SHOWN_ORIENTATION) -> tuple[int, float]:
        """The layer nearest to the plan, and its distance."""
        values = self.curve(label, reading, PLAN_DISTANCE)
        return int(np.argmin(values)) + 1, min(values)

    def used(self) -> str:
        """How many of the corpus have gold pairs and are short enough for the model."""
        row = self.rows[-1]
        return f"{row['pairs of sentences']:,} of them used, with {row['gold pairs']:,} gold pairs"

    def exact_right(self) -> int:
        """Words of the fox pair that the permutation has right."""
        return len(set(self.exact) & examples("en-fr")[0].links)

    def checks(self) -> dict[str, bool]:
        """Each claim in words, and whether the table bears it out."""
        fox, many, words = FOX, self.corpus.label, len(self.exact)
        first, middle, last = self.layers
        steps = {label: self.at(label, PLAN_DISTANCE) for label in (fox, many)}
        right, values = self.at(many, RIGHT), self.curve(many, SHOWN_ORIENTATION, PLAN_DISTANCE)
        return {
            f"transport of first-layer states aligns the fox pair: all {words} words right": self.exact_right() == words,
            f"fox pair: attention comes nearer to the plan from layer {first} to {middle} to {last}": _falls(steps[fox]),
            f"{many}: attention comes nearer to the plan from layer {first} to {middle} to {last}": _falls(steps[many]),
            f"{many}: the last layer is the nearest to the plan": self.nearest(many)[0] == len(values),
            f"{many}: the last layer has more gold pairs right than the first": right[-1] > right[0],
            f"{many}: some layer is at most half as far from the plan as a uniform matrix": (
                min(values) <= 0.5 * self.curve(many, UNIFORM, PLAN_DISTANCE)[0]
            ),
        }


def _told(story: Story) -> str:
    fox, many = FOX, story.corpus.label
    first, middle, last = story.layers

    def percents(values: list[float]) -> str:
        return listed([f"{100 * value:.0f} %" for value in values])

    def numbers(values: list[float]) -> str:
        return listed([f"{value:.2f}" for value in values])

    (layer, distance), (own, own_distance) = story.nearest(many), story.nearest(fox)
    other, other_distance = story.nearest(many, "source-target")
    right = story.curve(many, SHOWN_ORIENTATION, RIGHT)
    return (
        f"A small model: {story.model}; the paper has BERT. Attention is averaged over heads, French rows over English "
        f"words unless said. Transport of the states of layer {FIRST} has {story.exact_right()} of {len(story.exact)} words "
        f"of the fox pair right as an exact permutation, and {percents(story.curve(fox, OT, RIGHT))} as the entropic plan "
        f"(unit vectors, λ = {REG}); on {many} ({story.used()}): {percents(story.curve(many, OT, RIGHT))}. Attention at "
        f"layers {first}, {middle} and {last} of the fox pair: {percents(story.at(fox, RIGHT))} right, at a distance of "
        f"{numbers(story.at(fox, PLAN_DISTANCE))} from the plan (total variation; 0 is the plan, a uniform matrix has "
        f"{numbers(story.curve(fox, UNIFORM, PLAN_DISTANCE))}). On {many}: {percents(story.at(many, RIGHT))} right, "
        f"distance {numbers(story.at(many, PLAN_DISTANCE))} (uniform {numbers(story.curve(many, UNIFORM, PLAN_DISTANCE))}). "
        f"Layer {layer} is there nearest to the plan, {distance:.2f} (fox: layer {own}, {own_distance:.2f}; English words "
        f"attending to French: layer {other}, {other_distance:.2f}), and layer {int(np.argmax(right)) + 1} has most gold "
        f"pairs right, {percents([max(right)])}. {_verdict(story)}"
    )


def _verdict(story: Story) -> str:
    """What became of “attention progressively approximates the plan as depth increases”."""
    values = story.curve(story.corpus.label, SHOWN_ORIENTATION, PLAN_DISTANCE)
    layer = int(np.argmin(values)) + 1
    if all(later < earlier for earlier, later in pairwise(values)):
        return "In this model attention approaches the plan with every layer."
    if layer == len(values):
        return "In this model the last layer is the nearest to the plan, but not every layer is nearer than the one before."
    return (
        f"So in this model attention does not converge to the plan with depth: it is nearest at layer {layer} of "
        f"{len(values)} and leaves it again. What the later layers do instead, this does not say."
    )


def _falls(values: list[float]) -> bool:
    return values == sorted(values, reverse=True) and len(set(values)) == len(values)


# The figure


def _draw(fox: Reading, story: Story) -> figures.Figure:
    made, axes = figures.mosaic(12.4, 7.2, "abcd;rrff", height_ratios=(1.12, 1))
    example = examples("en-fr")[0]
    pair, gold = (example.source, example.target), sorted(example.links)
    panels = [(f"attention, layer {layer}", scores.attention(fox, SHOWN_ORIENTATION)[layer - 1]) for layer in story.layers]
    panels.append((f"OT of layer {FIRST} (λ = {REG})", scores.plan(fox)))
    for letter, (title, matrix) in zip("abcd", panels, strict=True):
        sentences.heatmap(axes[letter], matrix, pair, gold, title)
        if letter != "a":
            axes[letter].set_yticks([])
    right, far = axes["r"], axes["f"]
    _curves(right, story, RIGHT, 100)
    _curves(far, story, PLAN_DISTANCE, 1)
    many, short = story.corpus.label, story.corpus.short
    right.axhline(100 * story.curve(many, OT, RIGHT)[0], color=figures.GREEN, linestyle=":", label=f"OT, {short}")
    uniform = story.curve(many, UNIFORM, PLAN_DISTANCE)[0]
    far.axhline(uniform, color=figures.GREY, linestyle="--", label=f"uniform matrix, {short}")
    right.set(ylim=(0, 102), ylabel="gold pairs at rank 1 (%)", title="Translated words found")
    far.set(ylim=(0, 1), ylabel="total variation", title=f"Distance of attention to the plan of layer {FIRST}")
    sentences.legend(made, right, far)
    made.suptitle(f"A small encoder: {story.model}. Rows are scaled to their largest entry.", size=9, color=figures.GREY)
    return made


def _curves(axes: Any, story: Story, measure: str, scale: float) -> None:
    """Of each reading a line with its interval over all pairs, and for the paper's reading the fox pair alone."""
    for name, colour in zip(ORIENTATIONS, (figures.BLUE, figures.ORANGE), strict=True):
        values, low, high = (
            scale * np.array(story.curve(story.corpus.label, name, measure + end)) for end in ("", ", low", ", high")
        )
        layers = np.arange(1, len(values) + 1)
        label = f"{ORIENTATIONS[name]}, {story.corpus.short}" if measure == RIGHT else ""
        axes.plot(layers, values, "o-", color=colour, label=label)
        axes.fill_between(layers, low, high, color=colour, alpha=0.2, linewidth=0)
    alone = scale * np.array(story.curve(FOX, SHOWN_ORIENTATION, measure))
    label = f"{ORIENTATIONS[SHOWN_ORIENTATION]}, the fox pair" if measure == RIGHT else ""
    axes.plot(layers, alone, "s--", color=figures.SKY, lw=1, ms=3.5, label=label)
    axes.set(xlabel="layer", xticks=layers)
