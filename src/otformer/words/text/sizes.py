"""Bounds on memory: how long a sentence pair may be, and how many are worked on together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from otformer.errors import ArgumentError

Kind = TypeVar("Kind")
MOST_SCORES = 10**6  # of a sentence pair: a thousand words on each side
MOST_WORDS = 20_000  # of a sentence whose translation has few


def check_size(n: int, m: int, name: str, most: int = MOST_SCORES) -> None:
    """Raise ArgumentError, with this ``name``, if a pair of n and m words is too long for memory."""
    if n * m > most or max(n, m) > MOST_WORDS:
        limits = f"have at most {MOST_WORDS:,} words per side and {most:,} word pairs"
        raise ArgumentError(name, limits, f"{n:,} × {m:,} words")


def grouped(items: Iterable[Kind], size: Callable[[Kind], Any], room: int, most: int | None = None) -> Iterator[list[Kind]]:
    """Items in order, as many at a time as fit into ``room`` together (one at least), and no more than ``most``.

    >>> list(grouped([3, 4, 5, 20, 1], int, room=9))
    [[3, 4], [5], [20], [1]]
    """
    group: list[Kind] = []
    taken = 0
    for item in items:
        if group and taken + size(item) > room:
            yield group
            group, taken = [], 0
        group.append(item)
        taken += size(item)
        if len(group) == most:
            yield group
            group, taken = [], 0
    if group:
        yield group
