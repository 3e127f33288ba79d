"""From the training text to token numbers in flat arrays, and from these to batches.

Of the distinct pairs some are held out. A translator for alignment should read both plain text ("sleeps.") and text in words
("sleeps ."), so each pair is there in both forms. In a batch the first sides have one length, so that attention needs no
mask there; the second sides are sorted by length, and padded to the longest.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer.array_files import read_npz
from otformer.lab.translators.vocabulary import LONGEST, learn_pieces, learn_wordpieces, load_pieces, wordpieces
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import Pair, fold, words
from otformer.words.text.training_text import training_pairs

Array = np.ndarray[Any, np.dtype[Any]]
VOCABULARY = 6144  # tokens, of both languages together; both directions of a language pair share text and vocabulary
HELD_OUT = 1 / 150  # share of the sentences of the source side


class Split(NamedTuple):
    """Pairs to train on, and pairs none of whose sentences is among those."""

    training: list[Pair]
    held_out: list[Pair]


def split(languages: str) -> Split:
    """The training text of a language pair, without what is not translated."""
    return divide(pair for pair in training_pairs(languages) if pair.source != pair.target)


def divide(pairs: Iterable[Pair]) -> Split:
    """Held out are pairs whose source sentence the checksum of its letters chooses, so that they never change; pairs that
    have one of their target sentences are dropped."""
    parts = Split([], [])
    for pair in pairs:
        parts[zlib.crc32(fold(pair.source).encode()) % 10_000 < 10_000 * HELD_OUT].append(pair)
    hidden = {fold(pair.target) for pair in parts.held_out}
    return Split([pair for pair in parts.training if fold(pair.target) not in hidden], parts.held_out)


def in_words(sentence: str) -> str:
    """The sentence folded, with a space between its words.

    >>> in_words("L’été, déjà !")
    "l' été , déjà !"
    """
    return " ".join(words(fold(sentence)))


def forms(pairs: list[Pair]) -> Iterator[Pair]:
    """Each pair as written, folded, and split into words, without repetitions.

    >>> list(forms([Pair("Stop!", "Halt!"), Pair("No", "Nein")]))
    [Pair(source='stop!', target='halt!'), Pair(source='stop !', target='halt !'), Pair(source='no', target='nein')]
    """
    for pair in pairs:
        yield from dict.fromkeys(Pair(form(pair.source), form(pair.target)) for form in (fold, in_words))


def prepare_translator(languages: str, out: Path) -> str:
    """Make vocabulary and token numbers of a language pair, in ``out``/languages; says in a line what was made."""
    parts, folder = split(languages), out / languages
    text = list(forms(parts.training))
    named = LanguagePair.of(languages)
    learn_pieces((side for pair in text for side in pair), folder, VOCABULARY, named)
    pieces = load_pieces(folder)
    numbered = [(pieces.encode(pair.source), pieces.encode(pair.target)) for pair in text]
    kept = [pair for pair in numbered if all(0 < len(side) < LONGEST for side in pair)]
    end = pieces.eos_id()
    sides = (Sentences.of([[*pair[k], end] for pair in kept]) for k in (0, 1))
    write_sides(folder / "text.npz", **dict(zip((named.source, named.target), sides, strict=True)))
    (folder / "held_out.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in parts.held_out), encoding="utf-8")
    return f"{folder}: {len(kept)} rows, {len(parts.held_out)} held out, {VOCABULARY} pieces"


def prepare_encoder(languages: str, out: Path) -> str:
    """Make the same for the encoder: WordPieces, and each pair in one row, [CLS] source [SEP] target [SEP]."""
    text, folder = list(forms(split(languages).training)), out / f"bert-{languages}"
    learn_wordpieces((side for pair in text for side in pair), folder, VOCABULARY)
    tokenizer = wordpieces(folder)
    rows, sizes = [], []
    for k in range(0, len(text), 10_000):
        sides = [tokenizer([pair[side] for pair in text[k : k + 10_000]])["input_ids"] for side in (0, 1)]
        for first, second in zip(*sides, strict=True):
            if len(first) + len(second) <= LONGEST:
                rows.append(first + second[1:])
                sizes.append([len(first)])
    write_sides(folder / "text.npz", pair=Sentences.of(rows), first=Sentences.of(sizes))
    return f"{folder}: {len(rows)} rows, {len(tokenizer)} pieces"


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
    arrays = read_npz(file)
    names = dict.fromkeys(key.rpartition(".")[0] for key in arrays)
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
