"""Figure 1 of the paper: attention of an encoder on the fox pair, layers 1, 6 and 12, beside transport; and on all pairs.

An encoder reads both sentences in one row. A layer's attention is averaged over its heads, and of it the block of target
rows and source columns is taken (the paper's French → English), or the other one, transposed. Rows are scaled to sum to one
over the source words. Beside it stands the transport of the words' states after the first layer, as in the figure: for the
fox, of nine words each, also the exact permutation of equation (1), of squared distances as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from otformer import figures
from otformer.lab.experiments import _sentences as sentences
from otformer.lab.experiments._sentences import Array, Corpus
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.statistics import ratio
from otformer.words.models.attention import Reading, read
from otformer.words.models.models import Model, load
from otformer.words.models.shipped import folder
from otformer.words.probe.scores import embedding_plan, likeness, ranks
from otformer.words.text.examples import examples
from otformer.words.text.gold import Link

REG = 0.05
FIRST = 1  # the states that transport takes: after the first layer
ORIENTATIONS = {"target-source": "French words attend to English", "source-target": "English words attend to French"}
OT, UNIFORM = "transport", "uniform"
RIGHT, PLAN_DISTANCE = "right", "distance to the plan"
MODEL = "bert-en-fr"
FOX = "the fox pair"
SHOWN_ORIENTATION = "target-source"  # as in the paper's section 4.1
FOX_NEWS = 2000  # sentence pairs with ``full``


def run(context: Context) -> Outcome:
    model = load(folder(MODEL))
    if model.kind != "encoder":
        raise ValueError(f"model {MODEL} must be an encoder, got a {model.kind} model: {model.name}")
    given = sentences.corpus("en-fr", context, FOX_NEWS)
    shipped = sentences.shipped("en-fr")
    alone = Corpus(shipped.pairs[:1], shipped.gold[:1], shipped.every[:1], shipped.by, FOX)
    rows = [row for each in (alone, given) for row in table(each.label, see(model, each, context), context.seed)]
    fox = next(read(model, alone.pairs, by="spaces", states=True))
    layers = (1, max(1, model.layers // 2), model.layers)  # those shown: the first, the middle and the last
    story = Story(rows, given, layers, f"{sentences.size_of(model)}, trained here", exact(fox))
    settings = {"model": MODEL, "λ": REG, "states of layer": FIRST, "corpus": given.label}
    return Outcome(rows, _draw(fox, story), _numbers(story), story.checks(), settings)


class Seen(NamedTuple):
    """What a model does with N sentence pairs, as sums over a sentence's gold pairs and as means over its words.

    pairs [N].   right [N, readings, layers], transport [N] : gold pairs at rank 1, in attention and in the plan.
    distance [N, readings, layers], uniform [N] : total variation to the plan, of attention and of a uniform matrix.
    share [N, readings, layers] : of a word's attention, what goes to words of the other sentence.
    """

    pairs: Array
    right: Array
    transport: Array
    distance: Array
    uniform: Array
    share: Array


def attention(reading: Reading, name: str) -> Array:
    """[layers, m, n], mean over heads, rows scaled to sum to one."""
    A = reading.matrices[name].astype(float).mean(1) + 1e-30
    return np.asarray(A / A.sum(-1, keepdims=True))


def plan(reading: Reading) -> Array:
    """The entropic plan [m, n] of the states after the first layer, unit vectors; mass 1."""
    return embedding_plan(reading.states["target"][FIRST], reading.states["source"][FIRST], REG)


def exact(reading: Reading) -> list[Link]:
    """The permutation of equation (1): pairs (source, target) of least total squared distance."""
    cost = cdist(reading.states["target"][FIRST], reading.states["source"][FIRST], "sqeuclidean")
    return sorted((int(i), int(j)) for j, i in zip(*linear_sum_assignment(cost), strict=True))


def see(model: Model, given: Corpus, context: Context) -> Seen:
    """All layers and both readings on a corpus; sentences longer than the model allows, or without gold, are left out."""
    kept = []
    readings = read(model, given.pairs, by=given.by, states=True)
    masses = read(model, given.pairs, by=given.by, how="mass")
    for number, (reading, mass, gold) in enumerate(zip(readings, masses, given.gold, strict=True), 1):
        if reading.whole and gold:
            kept.append(_see_one(reading, mass, gold))
        if number % 20 == 0:
            context.progress(0.95 * number / len(given.pairs))
    if not kept:
        raise ValueError(f"no sentence pair of {given.label} has gold pairs and is short enough for {model.name}")
    return Seen(*(np.stack(values) for values in zip(*kept, strict=True)))


def _see_one(reading: Reading, mass: Reading, gold: list[Link]) -> tuple[Any, ...]:
    """A row of `Seen`; the share is of ``mass``, in which a word of several subwords gets what all of them get."""
    P = plan(reading)
    A = np.stack([attention(reading, name) for name in ORIENTATIONS])  # [readings, layers, m, n]
    near = likeness(A, P)
    along = {"target-source": -1, "source-target": -2}  # the axis of [..., m, n] over which a word's attention adds up
    share = np.stack([mass.matrices[name].mean(1).sum(along[name]).mean(-1) for name in ORIENTATIONS])
    right, transport = ((ranks(each, gold) == 1).sum(-1) for each in (A, P))
    return len(gold), right, transport, near.distance, near.uniform, share


def table(label: str, seen: Seen, seed: int) -> list[Row]:
    """A line for every reading and layer, one for transport and one for a uniform matrix: right over all gold pairs, the
    other means over sentences."""
    each = np.ones(len(seen.pairs))
    count = {"pairs of sentences": len(each), "gold pairs": int(seen.pairs.sum())}

    def line(what: str, layer: int | None, right: Array | None, distance: Array, share: Array | None) -> Row:
        row: Row = {"sentences": label, "what": what, "layer": layer, **count}
        row |= _columns(RIGHT, right, seen.pairs, seed) | _columns(PLAN_DISTANCE, distance, each, seed)
        return row | {"share to the other sentence": None if share is None else float(share.mean())}

    rows = [
        line(reading, k + 1, seen.right[:, r, k], seen.distance[:, r, k], seen.share[:, r, k])
        for r, reading in enumerate(ORIENTATIONS)
        for k in range(seen.right.shape[-1])
    ]
    return [*rows, line(OT, None, seen.transport, 0 * each, None), line(UNIFORM, None, None, seen.uniform, None)]


def _columns(name: str, parts: Array | None, wholes: Array, seed: int) -> Row:
    """`ratio` as columns of the CSV; one sentence has no interval."""
    found: Sequence[float | None] = (None, None, None) if parts is None else ratio(parts, wholes, seed=seed)
    ends = found[1:] if len(wholes) > 1 else (None, None)
    return dict(zip((name, f"{name}, low", f"{name}, high"), (found[0], *ends), strict=True))


class Story(NamedTuple):
    """Queries on the results table; exact : the permutation of the fox pair."""

    rows: list[Row]
    corpus: Corpus
    layers: tuple[int, int, int]
    model: str
    exact: list[Link]

    def curve(self, label: str, what: str, measure: str) -> list[float]:
        """A measure by layer; of transport or a uniform matrix, one number."""
        return [row[measure] for row in self.rows if row["sentences"] == label and row["what"] == what]

    def at(self, label: str, measure: str, reading: str = SHOWN_ORIENTATION) -> list[float]:
        """The measure at the three layers shown."""
        values = self.curve(label, reading, measure)
        return [values[layer - 1] for layer in self.layers]

    def nearest(self, label: str, reading: str = SHOWN_ORIENTATION) -> tuple[int, float]:
        """The layer nearest to the plan, and its distance."""
        values = self.curve(label, reading, PLAN_DISTANCE)
        return int(np.argmin(values)) + 1, min(values)

    @property
    def exact_right(self) -> int:
        """Words of the fox pair that the permutation matches correctly."""
        return len(set(self.exact) & examples("en-fr")[0].links)

    def checks(self) -> dict[str, bool]:
        """Each claim in words, and whether the table bears it out."""
        fox, many, words = FOX, self.corpus.label, len(self.exact)
        first, middle, last = self.layers
        steps = {label: self.at(label, PLAN_DISTANCE) for label in (fox, many)}
        right, values = self.at(many, RIGHT), self.curve(many, SHOWN_ORIENTATION, PLAN_DISTANCE)
        return {
            f"transport of first-layer states aligns the fox pair: all {words} words right": self.exact_right == words,
            f"fox pair: attention comes nearer to the plan from layer {first} to {middle} to {last}": _falls(steps[fox]),
            f"{many}: attention comes nearer to the plan from layer {first} to {middle} to {last}": _falls(steps[many]),
            f"{many}: the last layer is the nearest to the plan": self.nearest(many)[0] == len(values),
            f"{many}: the last layer has more gold pairs right than the first": right[-1] > right[0],
            f"{many}: some layer is at most half as far from the plan as a uniform matrix": (
                min(values) <= 0.5 * self.curve(many, UNIFORM, PLAN_DISTANCE)[0]
            ),
        }


def _numbers(story: Story) -> Numbers:
    many = story.corpus.label
    right = story.curve(many, SHOWN_ORIENTATION, RIGHT)
    return {
        "story": story,
        "words": len(story.exact),
        "fox": _on(story, FOX),
        "many": _on(story, many),
        "sentences": story.rows[-1]["pairs of sentences"],
        "gold": story.rows[-1]["gold pairs"],
        "last": story.curve(many, SHOWN_ORIENTATION, PLAN_DISTANCE)[-1],
        "depth": len(right),
        "is_last": story.nearest(many)[0] == len(right),
        "other": story.nearest(many, "source-target"),
        "most": (int(np.argmax(right)) + 1, max(right)),
        "verdict": _verdict(story),
    }


def _on(story: Story, label: str) -> Numbers:
    """Transport, a uniform matrix and the layers shown on one set of pairs, and the layer nearest to the plan."""
    return {
        "transport": story.curve(label, OT, RIGHT)[0],
        "uniform": story.curve(label, UNIFORM, PLAN_DISTANCE)[0],
        "right": story.at(label, RIGHT),
        "distance": story.at(label, PLAN_DISTANCE),
        "nearest": story.nearest(label),
    }


def _verdict(story: Story) -> str:
    """What became of “attention progressively approximates the plan as depth increases”."""
    values = story.curve(story.corpus.label, SHOWN_ORIENTATION, PLAN_DISTANCE)
    layer = int(np.argmin(values)) + 1
    if _falls(values):
        return "In this model attention approaches the plan with every layer."
    if layer == len(values):
        return "In this model the last layer is the nearest to the plan, but not every layer is nearer than the one before."
    return (
        f"So in this model attention does not converge to the plan with depth: it is nearest at layer {layer} of "
        f"{len(values)} and leaves it again. What the later layers do instead, this does not say."
    )


def _falls(values: list[float]) -> bool:
    return all(later < earlier for earlier, later in pairwise(values))


def _draw(fox: Reading, story: Story) -> figures.Figure:
    made, axes = figures.figure(12.4, 7.2, "abcd;rrff", height_ratios=(1.12, 1))
    example = examples("en-fr")[0]
    pair, gold = (example.source, example.target), sorted(example.links)
    panels = [(f"attention, layer {layer}", attention(fox, SHOWN_ORIENTATION)[layer - 1]) for layer in story.layers]
    panels.append((f"OT of layer {FIRST} (λ = {REG})", plan(fox)))
    for letter, (title, matrix) in zip("abcd", panels, strict=True):
        sentences.heatmap(axes[letter], matrix, pair, gold, title)
        if letter != "a":
            axes[letter].tick_params(labelleft=False)
    right, far = axes["r"], axes["f"]
    _curves(right, story, RIGHT, 100)
    _curves(far, story, PLAN_DISTANCE, 1)
    many, short = story.corpus.label, story.corpus.short
    right.axhline(100 * story.curve(many, OT, RIGHT)[0], color=figures.GREEN, linestyle=":", label=f"OT, {short}")
    uniform = story.curve(many, UNIFORM, PLAN_DISTANCE)[0]
    far.axhline(uniform, color=figures.GREY, linestyle="--", label=f"uniform matrix, {short}")
    right.set(ylim=(0, 102), ylabel="gold pairs at rank 1 (%)", title="Translated words found, by layer")
    far.set(ylim=(0, 1), ylabel="total variation", title=f"Distance to the plan, least at layer {story.nearest(many)[0]}")
    sentences.legend(made)
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
