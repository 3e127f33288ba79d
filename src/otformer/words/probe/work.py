"""The probe (words/probe/probe.py) as work for an engine (jobs/jobs.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from otformer import __version__
from otformer.jobs.jobs import Item, Work
from otformer.words.models.models import load
from otformer.words.probe.probe import Settings, probe_chunk
from otformer.words.text.dictionary import Dictionary, muse, read_dictionary
from otformer.words.text.gold import Gold, check_links, parse_links
from otformer.words.text.text import Pair, sample, word_spans


@dataclass(frozen=True)
class ProbeWork:
    """A chunk's packed `Tally`, for items that are a pair, or a pair and its gold as a talp line.

    model : folder or hub name.   dictionary : a file, ``muse``, or None where items have gold.
    """

    model: str
    languages: str = "en-fr"
    dictionary: str | None = None
    device: str = "cpu"
    probing: Settings = field(default_factory=Settings)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the tallies, for `Job`: a model's files count by name, size and time."""
        files = sorted(Path(self.model).glob("*")) if Path(self.model).is_dir() else []
        files += [Path(self.dictionary)] if self.dictionary not in (None, "muse") else []
        seen = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        return {**asdict(self), "files": seen, "version": __version__}

    def check(self) -> None:
        """Say before the work begins that the model or the dictionary cannot be used."""
        self._dictionary()
        load(self.model, self.device)

    def _dictionary(self) -> Dictionary | None:
        if self.dictionary is None:
            return None
        return muse(self.languages) if self.dictionary == "muse" else read_dictionary(self.dictionary)

    def items(
        self, pairs: Iterable[Pair], gold: Sequence[Gold] = (), size: int | None = None, seed: int = 0
    ) -> Iterator[Item]:
        """Pairs, each with its gold where there is any; ``size`` of them, drawn, if that is given."""
        every = self._with_gold(pairs, gold) if gold else (tuple(pair) for pair in pairs)
        return iter(every) if size is None else iter(sample(cast(Any, every), size, seed))

    def _with_gold(self, pairs: Iterable[Pair], gold: Sequence[Gold]) -> Iterator[Item]:
        for number, (pair, links) in enumerate(zip(pairs, gold, strict=True), 1):
            check_links(number, links, *(len(word_spans(side, self.probing.by)) for side in pair))
            yield (*pair, talp(links))

    def __call__(self) -> Work:
        model, dictionary = load(self.model, self.device), self._dictionary()

        def work(items: Sequence[Item]) -> bytes:
            gold = [parse_links(item[2]) for item in items] if len(items[0]) > 2 else None
            return probe_chunk(model, [Pair(*item[:2]) for item in items], dictionary, gold, self.probing).pack()

        return work


def talp(gold: Gold) -> str:
    """``i-j`` for sure links and ``ipj`` for possible ones.

    >>> talp(parse_links("2p1 0-0"))
    '0-0 2p1'
    """
    return " ".join(f"{i}{'-' if (i, j) in gold.sure else 'p'}{j}" for i, j in sorted(gold.sure | gold.possible))
