"""What an experiment is: a claim, a function that measures it, and what the measurement leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from otformer.errors import ArgumentError

if TYPE_CHECKING:
    import torch

    from otformer.figures import Figure

T = TypeVar("T")
SENTENCES = ("finding", "number", "brief", "details")  # what every experiment says of its run
Row = dict[str, Any]  # one line of the CSV: column -> text, number or None
Numbers = dict[str, Any]  # what the sentences of an experiment name: numbers, words, lists and dictionaries of them


@dataclass(frozen=True)
class Context:
    """How to run: the seed, whether at the size of the claim (``full``) or smaller, and whom to tell the fraction done."""

    seed: int = 0
    full: bool = False
    progress: Callable[[float], None] = field(default=lambda fraction: None)

    def generator(self) -> torch.Generator:
        """A fresh generator from the seed."""
        import torch

        return torch.Generator().manual_seed(self.seed)

    def each(self, items: Iterable[T], share: float = 1.0) -> Iterator[T]:
        """The items in turn, which are that share of the work: after each, the fraction done is told."""
        given = list(items)
        for k, item in enumerate(given, 1):
            yield item
            self.progress(share * k / len(given))


@dataclass(frozen=True)
class Outcome:
    """What a run found.

    ``rows``: the numbers, one dictionary per line of the CSV. ``numbers``: those that the sentences of the experiment name
    (`_texts`). ``checks``: each statement, by its name in experiments.toml or in words, and whether it held in this run.
    """

    rows: list[Row]
    figure: Figure
    numbers: Numbers
    checks: dict[str, bool]
    settings: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Experiment:
    """One figure or claim: an entry of experiments.toml, which says what its fields are, and the function that measures it.

    ``texts`` and ``check`` have the sentences and the statements, by their names. ``needs`` is a module (``transformers``)
    without which it cannot run, or nothing. ``module`` holds its code, so that a change of it can be seen. ``part`` is that
    of the report. ``author`` are the figures of the author's notebooks that it shows.
    ``settings`` are what ``--set`` may change, with bounds (settings.py).
    """

    name: str
    title: str
    source: str
    claim: str
    run: Callable[[Context], Outcome]
    texts: Mapping[str, str]
    check: Mapping[str, str] = field(default_factory=dict)
    shows: str = ""
    seconds: int = 1
    needs: str = ""
    module: str = ""
    part: str = ""
    paper: str = ""
    caption: str = ""
    page: str = ""
    full: str = ""
    one_size: bool = False
    settings: Mapping[str, Sequence[float]] = field(default_factory=dict)
    author: Sequence[str] = ()

    def __post_init__(self) -> None:
        lacking = [key for key in SENTENCES if key not in self.texts]
        if lacking:
            keys = f"have the sentences {', '.join(SENTENCES)} in experiments.toml"
            raise ArgumentError(f"experiment {self.name}", keys, f"none for {', '.join(lacking)}")
