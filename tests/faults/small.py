"""``python -m faults.small ARGUMENTS``: the command line at sizes that take a second: fewer samples, layers and pixels."""

from __future__ import annotations


def shrink() -> None:
    """Set the sizes, in this process."""
    from otformer import figures
    from otformer.cli import runs
    from otformer.experiments import rates, sizes
    from otformer.jobs import training
    from otformer.learning import recipes
    from otformer.learning import train as learning

    runs.SCORED_SIZES = (3,)
    training.CHUNK = learning.CHUNK = 10  # steps between two checkpoints
    recipes._SHORT.update(batch=8, samples=100)
    sizes.SIZES, sizes.DEPTH, rates.DEPTH = (8, 4), 100, 200
    figures._SETTINGS["savefig.dpi"] = 30


if __name__ == "__main__":
    from otformer.cli.__main__ import main

    shrink()
    main()
