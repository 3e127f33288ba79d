"""What an experiment is: a claim, a function that measures it, and what the measurement leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

    from otformer.figures import Figure

T = TypeVar("T")
Row = dict[str, Any]  # one line of the CSV: column -> text, number or None


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
class Finding:
    """What a reader takes home, made from the numbers of the run.

    ``title``: the finding, one sentence without a full stop. ``brief``: about three sentences. ``number``: what stands
    beside the paper's number.
    """

    title: str
    brief: str
    number: str


@dataclass(frozen=True)
class Outcome:
    """What a run found.

    ``rows``: the numbers, one dictionary per line of the CSV. ``summary``: the details, sentences with all the numbers that
    matter, among them what the figure does not show. ``checks``: each claim in words, and whether it held in this run.
    ``finding``: the same for a reader in a hurry.
    """

    rows: list[Row]
    figure: Figure
    summary: str
    checks: dict[str, bool]
    settings: dict[str, Any]
    finding: Finding


@dataclass(frozen=True)
class Experiment:
    """One figure or claim. ``claim`` is what the paper (or the project) says, ``run`` measures it.

    ``shows`` is its place in the paper, by which it can be called (``figure 3``, ``theorem 3.1``), or nothing. ``seconds``
    is about what it takes at the default size. ``needs`` is an extra of the package (``words``) without which it cannot
    run, or nothing. ``module`` holds its code, so that a change of it can be seen.
    """

    name: str
    title: str
    source: str
    claim: str
    run: Callable[[Context], Outcome]
    shows: str = ""
    seconds: int = 1
    needs: str = ""
    module: str = ""
