"""Sentence pairs from files, the paper's preprocessing, and words with their places in a sentence.

Everything streams: a corpus is never in memory. Lines end at ``\\n`` alone, since real news text holds other characters that
Python counts as line ends (U+0085 in newstest2009).
"""

from __future__ import annotations

import gzip
import itertools
import math
import os
import random
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from otformer import checks
from otformer.array_files import UNPACKED_RATIO, unpacked_room
from otformer.words.text.languages import LanguagePair

BAR = "|||"
WORD_WAYS = ("words", "spaces")  # the ways to find words
GZIP = b"\x1f\x8b"  # with which a packed file begins
LONGEST_LINE = 2**24  # bytes: what has no line ends (a device, an unpacked bomb) would fill the memory
Span = tuple[int, int]  # first character of a word and the one after its last


class Pair(NamedTuple):
    """A sentence and its translation; both empty for an empty line."""

    source: str
    target: str


Given = Pair | tuple[str, str] | str  # a sentence pair, as a caller writes it


def data_folder() -> Path:
    """The folder that the environment variable OTFORMER_DATA names."""
    folder = os.environ.get("OTFORMER_DATA", "")
    if not folder or not Path(folder).is_dir():
        raise checks.ArgumentError("OTFORMER_DATA", "name the data folder", repr(folder))
    return Path(folder)


def read_lines(file: str | Path, name: str | None = None) -> Iterator[str]:
    """Lines of a UTF-8 file, plain or gzip (known by its first bytes), without line ends; a pipe will do as well.

    ``name`` is what errors call it.
    """
    file, name = Path(file), name or str(file)
    try:
        with opened(file, name) as (stream, room):
            for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    raise checks.ArgumentError(f"{name} line {number}", f"have at most {LONGEST_LINE:,} bytes", "more")
                room.take(line)
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8: byte 0x{error.object[error.start]:02x} in line {number}") from None


@dataclass
class Room:
    """How many bytes a file may still unpack to."""

    name: str
    left: float

    def take(self, part: bytes) -> None:
        self.left -= len(part)
        if self.left < 0:
            raise ValueError(f"{self.name} unpacks to over {UNPACKED_RATIO} times its size: it is no text")


@contextmanager
def opened(file: Path, name: str) -> Iterator[tuple[BinaryIO, Room]]:
    """The bytes of a file, plain or gzip, and a limit on them; ``name`` is what errors call it."""
    try:
        with file.open("rb") as raw:
            packed = raw.peek(2)[:2] == GZIP or file.suffix == ".gz"
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
            yield stream, Room(name, unpacked_room(file.stat().st_size) if packed and file.is_file() else math.inf)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ValueError(f"{name} is not a readable gz file: it is broken or cut short") from None
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from None


def read_pairs(file: str | Path, second: str | Path | None = None, columns: tuple[int, int] = (0, 1)) -> Iterator[Pair]:
    """Sentence pairs, one per line: of two files, or of one that is TSV (named .tsv or .tsv.gz) or has ``a ||| b`` lines.

    columns says which fields of a line are source and target: (1, 0) exchanges them. Empty lines are empty pairs. That one
    file is shorter is found at its end.

    >>> import tempfile; folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name, "pairs.txt")
    >>> _ = file.write_text("The cat sleeps ||| Le chat dort\\n\\n")
    >>> list(read_pairs(file))
    [Pair(source='The cat sleeps', target='Le chat dort'), Pair(source='', target='')]
    """
    if second is None:
        return parse_pairs(read_lines(file), name=str(file), tabs=".tsv" in Path(file).suffixes[-2:], columns=columns)
    return side_by_side((file, second), (str(file), str(second)), columns)


def side_by_side(
    files: tuple[str | Path, str | Path], names: tuple[str, str], columns: tuple[int, int] = (0, 1)
) -> Iterator[Pair]:
    """Sentence pairs of two files, line by line; ``names`` is what errors call them."""
    left, right = columns
    if {left, right} != {0, 1}:
        raise checks.ArgumentError("columns", "be (0, 1) or (1, 0) for two files", columns)
    lines = itertools.zip_longest(*map(read_lines, files, names))
    for number, both in enumerate(lines):
        if None in both:
            short, long = names if both[0] is None else names[::-1]
            total = number + 1 + sum(1 for _ in lines)
            raise ValueError(f"{short} is short: it has {number} line{'s' * (number != 1)}, {long} has {total}")
        yield Pair(both[left].strip(), both[right].strip())


def parse_pairs(
    lines: Iterable[str], name: str = "the input", tabs: bool = False, columns: tuple[int, int] = (0, 1)
) -> Iterator[Pair]:
    """Sentence pairs of ``a ||| b`` lines, or of lines with tabs; ``name`` is what errors call them.

    >>> next(parse_pairs(["Va !\\tGo."], tabs=True, columns=(1, 0)))
    Pair(source='Go.', target='Va !')
    """
    left, right = (checks.count("columns", column, least=0) for column in columns)
    mark = "\t" if tabs else BAR
    for number, line in enumerate(lines, 1):
        if not line.strip():
            yield Pair("", "")
            continue
        fields = line.split(mark)
        # Tables may carry further columns; a second bar is more likely a mistake.
        if len(fields) <= max(left, right) or (not tabs and len(fields) > 2):
            wanted = f"{max(left, right) + 1} columns with tabs between" if tabs else f"one {BAR} between two sentences"
            raise checks.ArgumentError(f"{name} line {number}", f"have {wanted}", repr(line.strip()[:60]))
        yield Pair(fields[left].strip(), fields[right].strip())


def as_pair(given: Given, name: str = "pairs") -> Pair:
    """A sentence pair from ``a ||| b`` or two texts; ``name`` is what errors call it.

    >>> as_pair("Go. ||| Va !"), as_pair(("Go.", "Va !"))
    (Pair(source='Go.', target='Va !'), Pair(source='Go.', target='Va !'))
    """
    sides = (given,) if isinstance(given, str) else given
    if not isinstance(sides, (tuple, list)) or not all(isinstance(side, str) for side in sides):
        raise checks.ArgumentError(name, "be 'source ||| target' or (source, target)", repr(str(given)[:60]))
    if any("\ud800" <= letter < "\ue000" for side in sides for letter in side):
        raise checks.ArgumentError(name, "be text", f"half a character (a surrogate) in {str(given)[:60]!r}")
    if isinstance(given, str):
        return next(parse_pairs([given], name))
    if len(given) != 2:
        raise checks.ArgumentError(name, "be 'source ||| target' or (source, target)", f"{len(given)} texts")
    return Pair(*given)


def _of_kinds(*kinds: str) -> str:
    """The characters of these Unicode categories, of the basic plane."""
    return "".join(c for c in map(chr, range(0x80, 0x10000)) if unicodedata.category(c) in kinds)


INVISIBLE = _of_kinds("Cf")  # soft hyphens, zero-width spaces and joiners, marks of direction and of byte order


def _folding() -> dict[int, str]:
    """Unicode punctuation and spaces to ASCII; what is not to be seen (`INVISIBLE`) to nothing."""
    groups = {"'": "‘’‚‛ʼ′‹›`´", '"': "“”„‟«»″", "-": "‐‑‒–—―−", "...": "…", "*": "•", "/": "⁄∕"}
    table = {ord(c): plain for plain, group in groups.items() for c in group}
    table |= dict.fromkeys(map(ord, INVISIBLE), "")
    for code in range(0x80, 0x10000):
        kind, plain = unicodedata.category(chr(code)), unicodedata.normalize("NFKC", chr(code))
        if kind == "Zs":
            table.setdefault(code, " ")
        elif kind[0] in "PS" and plain.isascii() and not any(c.isalnum() or c.isspace() for c in plain):
            table.setdefault(code, plain)  # full-width and other forms of ASCII punctuation
    return table


FOLDING = _folding()


def fold(text: str) -> str:
    """The paper's preprocessing (section 4.2): lower case, Unicode punctuation folded into ASCII; letters composed (NFC).

    >>> fold("« L’été – déjà… »")
    '" l\\'été - déjà... "'
    """
    return unicodedata.normalize("NFC", text).translate(FOLDING).lower()


_FULL = ("ce", "de", "je", "le", "me", "ne", "se", "te", "que", "jusque", "lorsque", "puisque", "quoique")
ELIDED = {word[:-1] + "'": word for word in _FULL}


def plain(word: str) -> str:
    """A word as vectors and alignment models know it: composed (NFC), case (ß is ss) and punctuation folded, elided French
    words in full.

    >>> [plain(word) for word in ("Été", "Daß", "L’", "qu'")]
    ['été', 'dass', 'le', 'que']
    """
    word = unicodedata.normalize("NFC", word).translate(FOLDING).casefold()
    return ELIDED.get(word, word)


_MARKS = _of_kinds("Mn", "Mc", "Me") + INVISIBLE + "\U000e0000-\U000e0fff"  # no word of their own: é may be two characters
# Scripts without spaces between words, of which each letter is a word; katakana, which spell foreign ones, stay together.
_ALONE = (
    "\u0e01-\u0e7f\u0e81-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_ALONE += "\U00020000-\U0003ffff"
_LETTER = rf"(?:(?![{_ALONE}])[\w{_MARKS}])"
_ELIDED = r"\b(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu)['’](?=\w)"  # l'homme: l' and homme
_CLITIC = rf"(?<={_LETTER})['’](?:s|re|ve|ll|d|m)\b"  # it's: it and 's; but don't, aujourd'hui and O'Brien are one
_NUMBER = r"\d+(?:[.,]\d+)+(?!\w)"
_INNER = rf"{_LETTER}+(?:(?!{_CLITIC})['’‐‑-]{_LETTER}+)*"
_WORD = re.compile(rf"{_ELIDED}|{_CLITIC}|{_NUMBER}|{_INNER}|[{_ALONE}][{_MARKS}]*|([^\w\s])\1*[{_MARKS}]*", re.IGNORECASE)
_CHUNK = re.compile(r"\S+")


def word_spans(text: str, by: str = "words") -> list[Span]:
    """Where the words of a sentence stand: text[i:j] for each (i, j), in order.

    by = "words": punctuation apart, elided words apart (l' homme), clitics apart (it 's), hyphens inside a word kept, with
    accents and invisible characters beside it; each letter of Chinese, Japanese (but katakana), Thai, Lao, Khmer and Burmese
    by itself; made for plain text in English, French and German. by = "spaces": what stands between
    spaces; for text that comes in tokens, and for everything read or written as Pharaoh.

    >>> [("It’s l’homme, OK?")[i:j] for i, j in word_spans("It’s l’homme, OK?")]
    ['It', '’s', 'l’', 'homme', ',', 'OK', '?']
    >>> word_spans("Go , now", by="spaces")
    [(0, 2), (3, 4), (5, 8)]
    """
    checks.choice("by", by, WORD_WAYS)
    return [match.span() for match in (_WORD if by == "words" else _CHUNK).finditer(text)]


def words(text: str, by: str = "words") -> list[str]:
    """The words of a sentence, see `word_spans`."""
    return [text[i:j] for i, j in word_spans(text, by)]


def prepare(pairs: Iterable[Pair], least: int = 3, most: int = 60, by: str = "words") -> Iterator[Pair]:
    """The paper's corpus: folded pairs with ``least`` to ``most`` words on each side.

    The paper counts "tokens" and does not say whose; here they are words, so that a corpus does not depend on a model.

    >>> list(prepare([Pair("No.", "Non."), Pair("The cat sleeps", "Le chat dort")]))
    [Pair(source='the cat sleeps', target='le chat dort')]
    """
    least, most = checks.count("least", least, least=0), checks.count("most", most)
    for pair in pairs:
        folded = Pair(fold(pair.source), fold(pair.target))
        if all(least <= len(word_spans(side, by)) <= most for side in folded):
            yield folded


def sample(pairs: Iterable[Pair], size: int, seed: int = 0) -> list[Pair]:
    """``size`` pairs drawn without replacement, each as likely as any other, in their order; all where there are fewer.

    Memory is that of the sample (reservoir sampling).

    >>> drawn = sample((Pair(f"{i:04}", "") for i in range(1000)), 5, seed=1)
    >>> len(set(drawn)), drawn == sorted(drawn)
    (5, True)
    """
    size, draw = checks.count("size", size, least=0), random.Random(seed)
    kept: list[tuple[int, Pair]] = []
    for number, pair in enumerate(pairs):
        place = number if number < size else draw.randrange(number + 1)
        if place < size:
            kept[place : place + 1] = [(number, pair)]
    return [pair for _, pair in sorted(kept)]


def news_pairs(languages: str | LanguagePair, folder: str | Path | None = None, test: str = "news*") -> Iterator[Pair]:
    """The WMT news test sets under ``folder`` (default: of OTFORMER_DATA), as they stand: en-fr 21,076 pairs, de-en 34,316.

    fr-en and en-de are the same pairs exchanged. newstestB2020 is a second translation of newstest2020. ``test`` is a
    pattern for the names of the test sets, ``newstest2014`` for instance.
    """
    pair = LanguagePair.of(languages)
    first, second = pair.stored.codes
    folder = data_folder() / "wmt_newstest" if folder is None else Path(folder)
    files = sorted(folder.glob(f"{first}-{second}.{test}.{first}.gz"))
    if not files:
        raise ValueError(f"{folder} holds no {first}-{second}.{test}.{first}.gz")
    for file in files:
        other = file.with_name(file.name.removesuffix(f"{first}.gz") + f"{second}.gz")
        yield from read_pairs(file, other, columns=(1, 0) if pair.exchanged else (0, 1))
