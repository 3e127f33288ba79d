"""The probe (words/probe/probe.py) as work on a corpus (words/jobs/jobs.py)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from otformer._version import __version__
from otformer.words.jobs.jobs import Item, Job, Work
from otformer.words.models.models import load
from otformer.words.probe.probe import ProbeSettings, Tally, probe_chunk
from otformer.words.text.dictionary import Dictionary, muse, read_dictionary
from otformer.words.text.gold import Gold, check_links, parse_links
from otformer.words.text.text import Pair, sample, word_spans


@dataclass(frozen=True)
class ProbeWork:
    """The `Tally` of a chunk, for items that are a pair, or a pair and its gold as a talp line.

    model : folder or hub name.   dictionary : a file, ``muse``, or None where items have gold.
    """

    model: str
    languages: str = "en-fr"
    dictionary: str | None = None
    device: str = "cpu"
    probing: ProbeSettings = field(default_factory=ProbeSettings)

    def job(self, **options: Any) -> Job:
        """The job of this work; options are those of `Job`: chunk, engine, workers. A model's files count for its settings
        by name, size and time."""
        files = sorted(filter(Path.is_file, Path(self.model).glob("*")))  # no link that leads nowhere
        files += [Path(self.dictionary)] if self.dictionary not in (None, "muse") else []
        seen = [(os.path.realpath(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        settings = {**asdict(self), "files": seen, "version": __version__}
        return Job(self, settings, pack=Tally.pack, unpack=Tally.unpack, **options)

    def check(self) -> None:
        """Say before the work begins that the model or the dictionary cannot be used."""
        if self.dictionary == "muse" and not os.environ.get("OTFORMER_DATA"):
            raise ValueError(
                "there are no links to score against: give --gold FILE or --dictionary FILE, "
                "or name the folder of the MUSE dictionaries in OTFORMER_DATA"
            )
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
        every = self._with_gold(pairs, gold) if gold else map(tuple, pairs)
        return iter(every if size is None else sample(cast(Any, every), size, seed))

    def _with_gold(self, pairs: Iterable[Pair], gold: Sequence[Gold]) -> Iterator[Item]:
        for number, (pair, links) in enumerate(zip(pairs, gold, strict=True), 1):
            check_links(number, links, *(len(word_spans(side, self.probing.by)) for side in pair))
            yield (*pair, talp(links))

    def __call__(self) -> Work:
        model, dictionary = load(self.model, self.device), self._dictionary()

        def work(items: Sequence[Item]) -> Tally:
            gold = [parse_links(item[2]) for item in items] if len(items[0]) > 2 else None
            return probe_chunk(model, [Pair(*item[:2]) for item in items], dictionary, gold, self.probing)

        return work


def talp(gold: Gold) -> str:
    """``i-j`` for sure links and ``ipj`` for possible ones.

    >>> talp(parse_links("2p1 0-0"))
    '0-0 2p1'
    """
    return " ".join(f"{i}{'-' if (i, j) in gold.sure else 'p'}{j}" for i, j in sorted(gold.sure | gold.possible))
