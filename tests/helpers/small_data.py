"""What the tests of the experiments on words share: a small dictionary, a German pair, and a run with its figure drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otformer import figures

if TYPE_CHECKING:
    from otformer.lab.experiments.experiment import Context, Outcome

ENTRIES = ["the le", "the la", "cat chat", "house maison", "sleeps dort", "dog chien", "man homme", "red rouge", "sees voit"]
GERMAN = ("die katze schläft im roten haus", "the cat sleeps in the red house")
GERMAN_ENTRIES = ["katze cat", "schläft sleeps", "haus house"]


def run(module: Any, context: Context | None = None) -> Outcome:
    from otformer.lab.experiments.experiment import Context

    with figures.applied():
        outcome = module.run(context or Context())
        outcome.figure.canvas.draw()
    return outcome
