"""The card of a probed sentence pair: attention of the nearest layer and head, the plan, and the distance of every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otformer import checks
from otformer.show.card import Card, Picture
from otformer.show.curve import Curve
from otformer.show.heat import Heat
from otformer.words.probe.probe import LIKENESS, Array

if TYPE_CHECKING:
    from otformer.words.probe.one_pair import PairProbe


def card(probe: PairProbe, reading: str = "", layer: int | None = None, head: int | None = None) -> Card:
    """Draw what was asked for; by default, the mean over heads of the nearest reading and layer."""
    near = probe.nearest
    layers, heads = probe.size
    reading = checks.choice("reading", reading or near["reading"], list(probe.attention))
    layer = near["layer"] if layer is None else checks.count("layer", layer, most=layers)
    head = None if head is None else checks.count("head", head, most=heads)
    alone = probe.nearest_head
    distances = probe.likeness[reading][:, -1, LIKENESS.index("distance")].tolist()
    pictures: list[Picture] = [
        attention(probe, reading, layer, head),
        heat(probe, "transport plan of the embeddings", len(probe.plan) * probe.plan),
        attention(probe, *alone[:3]),
        Curve(list(range(1, layers + 1)), distances, f"distance to the plan, {reading}", "mean over heads; logarithmic"),
    ]
    facts = {
        "source": " ".join(probe.source_words),
        "target": " ".join(probe.target_words),
        "model": f"{layers} layers of {heads} heads; {', '.join(probe.attention)}",
    }
    heading = "Is this attention transport?"
    return Card("PairProbe", facts, pictures, probe.verdict(), probe.kind == "transport" or None, heading=heading)


def attention(probe: PairProbe, reading: str, layer: int, head: int | None) -> Heat:
    """Draw the attention of a layer, of one head or the mean; rows sum to one."""
    name = "mean over heads" if head is None else f"head {head}"
    A = probe.scaled(reading)[layer - 1, -1 if head is None else head - 1]
    return heat(probe, f"{reading}, layer {layer}, {name}", A)


def heat(probe: PairProbe, title: str, matrix: Array) -> Heat:
    """Draw a matrix of target words by source words."""
    return Heat(matrix, title, matrix.shape, 1.0, ("target", "source"), (probe.target_words, probe.source_words))
