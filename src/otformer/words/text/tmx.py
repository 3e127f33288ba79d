"""Sentence pairs from translation memories, TMX files (.tmx, .tmx.gz): one pair for each of their units.

    <tu>  <tuv xml:lang="en"><seg>The cat</seg></tuv>  <tuv xml:lang="fr-CA"><seg>Le <hi>chat</hi></seg></tuv>  </tu>

A file is read in blocks and never whole. It is not trusted: entities are refused where they are declared, so that none can
grow; nothing that it names is opened, not even its DTD. Codes of a format in a segment (bpt, ept, it, ph, ut) are no text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from otformer.errors import ArgumentError
from otformer.words.text.text import LONGEST_LINE, Pair, opened

BLOCK = 2**16  # bytes read at a time
MARKUP = {"bpt", "ept", "it", "ph", "ut"}  # elements of a segment that hold codes of a file format
XML_LANG = "http://www.w3.org/XML/1998/namespace lang"  # as expat spells an attribute with a namespace


def is_tmx(name: str | Path) -> bool:
    """Whether a file is a translation memory by its name.

    >>> is_tmx("memory.TMX.gz"), is_tmx("memory.tsv")
    (True, False)
    """
    return str(name).lower().removesuffix(".gz").endswith(".tmx")


def read_tmx(file: str | Path, languages: tuple[str, str] | None = None, name: str | None = None) -> Iterator[Pair]:
    """The pair of every unit, in order; an empty pair for a unit that lacks one of the languages.

    languages : source and target, "en" also standing for "en-GB"; by default the first two of the first unit with two.
    name : what errors call the file.

    >>> import tempfile; folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name, "memory.tmx")
    >>> said = [("en", "Yes"), ("fr-CA", "O<hi>ui</hi>")]
    >>> english, french = (f"<tuv xml:lang='{code}'><seg>{text}</seg></tuv>" for code, text in said)
    >>> _ = file.write_text(f"<tmx><body><tu>{english}{french}</tu></body></tmx>")
    >>> list(read_tmx(file)), list(read_tmx(file, ("fr", "en")))
    ([Pair(source='Yes', target='Oui')], [Pair(source='Oui', target='Yes')])
    """
    name = name or str(file)
    found, seen = False, dict[str, str]()
    for unit in _units(Path(file), name):
        seen |= dict.fromkeys(unit, "")
        if languages is None and len(unit) > 1:
            languages = _first_two(unit)
        sides = [_side(unit, wanted) for wanted in languages or ()]
        found = found or len(list(filter(None, sides))) == 2
        yield Pair(*sides) if all(sides) and sides else Pair("", "")
    if not found:
        wanted = "two languages" if languages is None else " and ".join(languages)
        raise ArgumentError(name, f"have a unit in {wanted}", f"units in {', '.join(list(seen)[:9]) or 'no language'}")


def _first_two(unit: dict[str, str]) -> tuple[str, str]:
    """The first languages of a unit, or the varieties of one language."""
    first, second = list(unit)[:2]
    plain = first.split("-")[0], second.split("-")[0]
    return plain if plain[0] != plain[1] else (first, second)


def _side(unit: dict[str, str], wanted: str) -> str:
    """The text in a language, or else in a variety of it."""
    return unit.get(wanted) or next((text for code, text in unit.items() if code.split("-")[0] == wanted), "")


def _units(file: Path, name: str) -> Iterator[dict[str, str]]:
    """The segments of every unit by language, in the file's order."""
    reader = _Reader(name)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.EntityDeclHandler, parser.SkippedEntityHandler = reader.declared, reader.skipped
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    fed = 0
    with opened(file, name) as (stream, room):
        while block := stream.read(BLOCK):
            room.take(block)
            _parse(parser, block, False, name)
            fed += len(block)
            if fed - parser.CurrentByteIndex > LONGEST_LINE:  # one token, an attribute say, which expat keeps whole
                raise ArgumentError(
                    f"{name} line {parser.CurrentLineNumber}", f"have at most {LONGEST_LINE:,} bytes", "more"
                )
            yield from reader.taken()
    _parse(parser, b"", True, name)
    yield from reader.taken()


def _parse(parser: expat.XMLParserType, block: bytes, is_last: bool, name: str) -> None:
    try:
        parser.Parse(block, is_last)
    except ArgumentError:  # of a handler
        raise
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: of an encoding unknown, or of several bytes
        raise ValueError(f"{name} is not a readable TMX file: {error}") from None


class _Reader:
    """The handlers of a parser; units that are complete wait in ``done``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done: list[dict[str, str]] = []
        self.unit: dict[str, str] = {}
        self.language = ""
        self.segment: list[str] | None = None  # parts of the text of the segment that is open
        self.letters = self.codes = 0  # of the segment; how many elements of MARKUP are open

    def declared(self, entity: str, *_: Any) -> None:
        raise ArgumentError(self.name, "declare no entities, which may grow without end", repr(entity[:40]))

    def skipped(self, entity: str, is_parameter: bool) -> None:
        if not is_parameter:
            raise ArgumentError(self.name, "hold no entities but those of XML", f"&{entity[:40]};")

    def start(self, tag: str, given: dict[str, str]) -> None:
        tag = tag.rpartition(" ")[2]
        if tag == "tu":
            self.unit = {}
        elif tag == "tuv":
            self.language = given.get(XML_LANG, given.get("lang", "")).lower().replace("_", "-")
        elif tag == "seg":
            self.segment, self.letters, self.codes = [], 0, 0
        self.codes += tag in MARKUP

    def text(self, text: str) -> None:
        if self.segment is not None and not self.codes:
            self.letters += len(text)
            if self.letters > LONGEST_LINE:
                raise ArgumentError(f"a segment of {self.name}", f"have at most {LONGEST_LINE:,} letters", "more")
            self.segment.append(text)

    def end(self, tag: str) -> None:
        tag = tag.rpartition(" ")[2]
        self.codes -= tag in MARKUP
        if tag == "seg" and self.segment is not None:
            self.unit.setdefault(self.language, " ".join("".join(self.segment).split()))
            self.segment = None
        elif tag == "tu":
            self.done.append(self.unit)

    def taken(self) -> list[dict[str, str]]:
        done, self.done = self.done, []
        return done
