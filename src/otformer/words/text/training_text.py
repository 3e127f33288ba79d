"""The text that everything in this package is trained on, and the guard that keeps test sentences out of it.

**Guarantee.** No sentence pair of `training_pairs` has a side whose words, without punctuation marks, spaces and case, are
those of a sentence of the WMT news test sets (wmt_newstest) in either language, of the gold alignments (Hansards and RWTH),
or of the examples that ship with the package. All that is trained on text is trained through this file:
translators and encoder (lab/translators/corpus.py), alignment models (words/align/hmm), vectors (words/align/bilingual.py).
Pairs that say the same in the same words come once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from otformer.words.text.examples import examples
from otformer.words.text.languages import CODES, LanguagePair
from otformer.words.text.text import BAR, Pair, data_folder, fold, plain, read_lines, read_pairs, words

TATOEBA = {"fr": "fra-eng.2019-04-07.tsv.gz", "de": "deu-eng.2018.tsv.gz"}
GOLD = ("hansards_en-fr/test.en-fr.src-tgt", "rwth_de-en/de", "rwth_de-en/en")  # under gold_alignments
TokenPair = tuple[list[str], list[str]]


def tokens(text: str) -> list[str]:
    """The words of a sentence as vectors and alignment models know them.

    >>> tokens("L’été, c’est là !")
    ['le', 'été', ',', 'ce', 'est', 'là', '!']
    """
    return [plain(word) for word in words(fold(text))]


def training_text(languages: str | LanguagePair, folder: Path | None = None) -> Iterator[TokenPair]:
    """The words of `training_pairs`."""
    return ((tokens(pair.source), tokens(pair.target)) for pair in training_pairs(languages, folder))


def training_pairs(languages: str | LanguagePair, folder: Path | None = None) -> Iterator[Pair]:
    """Distinct pairs of tatoeba_manythings and po_catalogs under ``folder`` (default: OTFORMER_DATA), guarded as above."""
    pair = LanguagePair.of(languages)
    folder = data_folder() if folder is None else folder
    tests, seen = _test_sentences(folder, pair.foreign), set()
    catalogs = sorted((folder / "po_catalogs").glob(f"*.en-{pair.foreign}.tsv.gz"))
    for file in (folder / "tatoeba_manythings" / TATOEBA[pair.foreign], *catalogs):
        for given in read_pairs(file, columns=(0, 1) if pair.source == "en" else (1, 0)):  # English stands first in all
            sides = tokens(given.source), tokens(given.target)
            key = " ".join(sides[0]), " ".join(sides[1])
            if all(sides) and key not in seen and not tests.intersection(map(_bare, sides)):
                seen.add(key)
                yield given


def _bare(sentence: Sequence[str]) -> str:
    """A sentence for comparison: its words without punctuation and spaces."""
    return "".join(word for word in sentence if word[0].isalnum())


def _test_sentences(folder: Path, foreign: str) -> set[str]:
    """All sentences, bare, of the test sets, the gold and the shipped examples of a language beside English."""
    news = (file for code in ("eng", CODES[foreign]) for file in sorted((folder / "wmt_newstest").glob(f"*.{code}.gz")))
    files = (*news, *(folder / "gold_alignments" / name for name in GOLD))
    given = (side for file in files for line in read_lines(file) for side in line.split(BAR))
    shipped = (" ".join(side) for example in examples(f"en-{foreign}") for side in example[:2])
    return {_bare(tokens(side)) for sides in (given, shipped) for side in sides}
