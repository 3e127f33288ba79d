"""Bilingual dictionaries of the MUSE kind, and the gold pairs they give for a sentence pair.

The paper takes as gold the dictionary pairs that occur in both sentences. What happens to words that stand there twice, and
to words with several translations present, is fixed by named rules here (`gold_pairs`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from otformer import checks
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import data_folder, read_lines

SPLITS = {"full": "", "train": ".0-5000", "test": ".5000-6500"}
REPEATED = ("once", "order", "first", "all")
SEVERAL = ("single", "listed", "first", "all")


class Dictionary:
    """Translations of words, in the order they are listed.

    >>> d = Dictionary([("cat", "chat"), ("cat", "chatte"), ("dog", "chien")])
    >>> d["cat"], d["mouse"], ("dog", "chien") in d, len(d)
    (('chat', 'chatte'), (), True, 3)
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        entries: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for source, target in pairs:
            entries[source].setdefault(target)
        self.entries = {source: tuple(targets) for source, targets in entries.items()}

    def __getitem__(self, word: str) -> tuple[str, ...]:
        return self.entries.get(word, ())

    def __contains__(self, pair: object) -> bool:
        return isinstance(pair, tuple) and len(pair) == 2 and pair[1] in self[pair[0]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((source, target) for source, targets in self.entries.items() for target in targets)

    def __len__(self) -> int:
        return sum(map(len, self.entries.values()))

    def inverse(self) -> Dictionary:
        """Target to source: the words of each entry in the order of this dictionary's lines."""
        return Dictionary((target, source) for source, target in self)

    def joined(self, other: Dictionary) -> Dictionary:
        """The pairs of both, this one's first; ``muse("en-fr").joined(muse("fr-en").inverse())`` uses both directions."""
        return Dictionary([*self, *other])


def read_dictionary(file: str | Path) -> Dictionary:
    """``source target`` lines, with a space or tab between, plain or gz; empty lines are passed over."""
    lines = list(read_lines(file))
    for number, line in enumerate(lines, 1):
        if len(line.split()) not in (0, 2):
            raise checks.ArgumentError(f"{file} line {number}", "hold two words", repr(line.strip()[:60]))
    return Dictionary((fields[0], fields[1]) for fields in map(str.split, lines) if fields)


def muse(languages: str | LanguagePair, split: str = "full", folder: str | Path | None = None) -> Dictionary:
    """A MUSE dictionary: en-fr, fr-en, en-de or de-en; "full", "train" (its words 0–5000) or "test" (5000–6500).

    From ``folder``, by default muse_dict under OTFORMER_DATA; files named as by MUSE (en-fr.txt, en-fr.0-5000.txt) or gz.
    """
    name = f"{LanguagePair.of(languages)}{SPLITS[checks.choice('split', split, SPLITS)]}.txt"
    folder = data_folder() / "muse_dict" if folder is None else Path(folder)
    for file in (folder / name, folder / f"{name}.gz"):
        if file.exists():
            return read_dictionary(file)
    raise ValueError(f"{folder} holds neither {name} nor {name}.gz")


def gold_pairs(
    source: Sequence[str], target: Sequence[str], dictionary: Dictionary, repeated: str = "once", several: str = "single"
) -> list[tuple[int, int]]:
    """Places (i, j) of dictionary pairs that occur in both sentences: source[i] translates to target[j]; sorted.

    Words are compared as they are: fold them first (`text.fold`). First ``several`` decides which pairs of *words* count,
    where more than one translation is present:

    - "single": pairs of which neither word has another partner in the sentence.
    - "listed": for each source word, the earliest listed of its translations present.
    - "first": for each source word its first listed translation, or nothing.
    - "all": every pair in the dictionary; a target word with two such sources can have only one of them at rank 1.

    Then ``repeated`` decides which *places* count, where a word stands there more than once:

    - "once": only words that stand there once, on both sides; no place is guessed.
    - "order": the first with the first, the second with the second, and so on.
    - "first": the first place on each side.
    - "all": every place with every place.

    The defaults guess least. Share of pairs that hand-made gold has as possible (Hansards and RWTH, full dictionary):
    "single", "once" 0.97 of 1,657 and 0.94 of 2,968; "all", "all" 0.68 of 3,054 and 0.62 of 5,926.

    >>> d = Dictionary([("the", "le"), ("the", "la"), ("cat", "chat"), ("house", "maison")])
    >>> e, f = "the cat in the house".split(), "le chat dans la maison".split()
    >>> gold_pairs(e, f, d)
    [(1, 1), (4, 4)]
    >>> gold_pairs(e, f, d, several="all", repeated="order")
    [(0, 0), (0, 3), (1, 1), (4, 4)]
    >>> gold_pairs(e, f, d, several="listed", repeated="all")
    [(0, 0), (1, 1), (3, 0), (4, 4)]
    """
    checks.choice("repeated", repeated, REPEATED)
    checks.choice("several", several, SEVERAL)
    at_source, at_target = _places(source), _places(target)
    present = _word_pairs(at_source, at_target, dictionary, several)
    return sorted({place for e, f in present for place in _join(at_source[e], at_target[f], repeated)})


def _places(words: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for k, word in enumerate(words):
        places.setdefault(word, []).append(k)
    return places


def _word_pairs(
    source: Iterable[str], target: dict[str, list[int]], dictionary: Dictionary, several: str
) -> list[tuple[str, str]]:
    if several == "first":
        return [(e, f) for e in source for f in dictionary[e][:1] if f in target]
    present = {e: [f for f in dictionary[e] if f in target] for e in source}
    if several == "listed":
        return [(e, fs[0]) for e, fs in present.items() if fs]
    pairs = [(e, f) for e, fs in present.items() for f in fs]
    if several == "all":
        return pairs
    partners = Counter(f for _, f in pairs)
    return [(e, f) for e, f in pairs if len(present[e]) == 1 and partners[f] == 1]


def _join(i: list[int], j: list[int], repeated: str) -> Iterable[tuple[int, int]]:
    if repeated == "once":
        return [(i[0], j[0])] if len(i) == len(j) == 1 else []
    if repeated == "first":
        return [(i[0], j[0])]
    if repeated == "order":
        return zip(i, j, strict=False)
    return [(a, b) for a in i for b in j]
