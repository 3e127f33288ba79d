"""From the training text to token numbers: distinct pairs, some held out, each as it stands and in words.

A translator for alignment should read both plain text ("sleeps.") and text in words ("sleeps ."), so each pair is there in
both forms, the second with spaces around its words.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import Pair, fold, words
from otformer.words.text.training_text import training_pairs
from otformer.words.training.batches import Sentences, write_sides
from otformer.words.training.vocabulary import LONGEST, learn_pieces, learn_wordpieces, load_pieces, wordpieces

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
    """Each pair as it stands, folded, and in words; once where these are the same.

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
