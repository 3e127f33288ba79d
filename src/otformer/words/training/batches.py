"""Token numbers of a corpus in flat arrays, and batches of sentences of equal length: nothing is padded on the first side.

Equal lengths mean that attention needs no mask there. The second side is sorted by length, and padded to the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Sentences:
    """Sentences one after the other: numbers [all tokens] and where each begins [N + 1]."""

    tokens: Array
    starts: Array

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Sentences:
        """From lists of token numbers.

        >>> Sentences.of([[5, 6], [], [7]]).lengths.tolist()
        [2, 0, 1]
        """
        starts = np.cumsum([0, *map(len, sentences)], dtype=np.int32)
        return cls(np.array([token for sentence in sentences for token in sentence], dtype=np.uint16), starts)

    @property
    def lengths(self) -> Array:
        return np.diff(self.starts)


def write_sides(file: Path, **sides: Sentences) -> None:
    """An npz with the sentences of every side."""
    arrays = {f"{name}.{part}": getattr(side, part) for name, side in sides.items() for part in ("tokens", "starts")}
    np.savez_compressed(file, allow_pickle=False, **arrays)


def read_sides(file: Path) -> dict[str, Sentences]:
    """What `write_sides` wrote."""
    if not file.exists():
        raise ValueError(f"text must be a folder made by `prepare`, got no {file}")
    arrays = np.load(file)
    names = dict.fromkeys(key.rpartition(".")[0] for key in arrays.files)
    return {name: Sentences(arrays[f"{name}.tokens"], arrays[f"{name}.starts"]) for name in names}


def plan_epoch(first: Array, second: Array, tokens: int, seed: int, epoch: int) -> list[Array]:
    """Batches of one pass over the corpus, as sentence numbers, in random order.

    first, second: lengths [N]. In a batch all first lengths are equal, and sentences × (first + longest second) ≤ tokens.

    >>> plan = plan_epoch(np.array([2, 3, 2, 2]), np.array([1, 1, 9, 1]), tokens=8, seed=0, epoch=0)
    >>> sorted(sorted(batch.tolist()) for batch in plan)
    [[0, 3], [1], [2]]
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(first))
    order = order[np.lexsort((second[order], first[order]))]
    batches: list[Array] = []
    begin = 0
    for end in range(1, len(order) + 1):
        alike = end < len(order) and first[order[end]] == first[order[begin]]
        if not alike or (end + 1 - begin) * int(first[order[end]] + second[order[end]]) > tokens:
            batches.append(order[begin:end])
            begin = end
    return [batches[k] for k in rng.permutation(len(batches))]


def endless(first: Array, second: Array, tokens: int, seed: int, start: int) -> Iterator[Array]:
    """Batches from number ``start`` on, epoch after epoch."""
    epoch = 0
    while True:
        plan = plan_epoch(first, second, tokens, seed, epoch)
        yield from plan[start:]
        start, epoch = max(start - len(plan), 0), epoch + 1


class Gatherer:
    """Rows of sentences on a device: `rows(numbers, pad)` gives [B, longest], made there from the flat tokens."""

    def __init__(self, sentences: Sentences, device: str) -> None:
        self.tokens = torch.as_tensor(sentences.tokens.astype(np.int32), device=device)
        self.starts = torch.as_tensor(sentences.starts.astype(np.int64), device=device)
        self.lengths = sentences.lengths

    def rows(self, numbers: Array, pad: int) -> Tensor:
        """Token numbers [B, L] of some sentences, padded behind."""
        longest = int(self.lengths[numbers].max())
        which = torch.as_tensor(numbers, device=self.tokens.device)
        place = self.starts[which][:, None] + torch.arange(longest, device=self.tokens.device)
        inside = place < self.starts[which + 1][:, None]
        found = self.tokens[place.clamp(max=len(self.tokens) - 1)]
        return torch.where(inside, found, pad).long()
