"""``python -m faults.small ARGUMENTS``: the command line at sizes of a second: few samples and layers, plain figures."""

from __future__ import annotations

from typing import Any


def shrink() -> None:
    """Set the sizes, in this process."""
    from otformer import figures
    from otformer.lab import commands, training_loop
    from otformer.lab.experiments import rates, sizes
    from otformer.lab.training import recipes
    from otformer.lab.training import train as learning

    commands.SCORED_SIZES = (3,)
    training_loop.CHUNK = learning.CHUNK = 10  # steps between two checkpoints
    recipes._SHORT.update(batch=8, samples=100)
    sizes.SIZES, sizes.DEPTH, rates.DEPTH = (8, 4), 100, 200
    figures.DPI = 30

    def plain(numbers: Any) -> Any:
        """A line that other numbers would change, in a moment."""
        figure, axes = figures.figure(3, 2)
        axes.plot(list(repr(numbers).encode()))
        axes.set(xticks=[], yticks=[])
        return figure

    sizes._draw = rates._draw = plain


if __name__ == "__main__":
    from otformer.cli.__main__ import main

    shrink()
    main()
