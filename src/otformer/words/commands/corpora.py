"""What the commands on words share: the sentence pairs that arguments name, gold for them, and matrices in an npz."""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from otformer.cli.common import bar, interruptible, warnings_as_notes
from otformer.errors import ArgumentError, ConflictError

if TYPE_CHECKING:
    from otformer.words.text.gold import Gold
    from otformer.words.text.text import Pair

Engine = Annotated[str, typer.Option(help="local, or ray: the workers of a Ray cluster.")]
Workers = Annotated[int, typer.Option(help="Processes, or workers of the cluster.")]
GoldFile = Annotated[Path | None, typer.Option(help="Alignments made by hand (Pharaoh or talp).")]
OneBased = Annotated[bool, typer.Option("--one-based", help="The gold file counts words from 1.")]


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs that can be read again and again, and are known to be readable; kind: text, file or examples."""

    pairs: Callable[[], Iterator[Pair]]
    total: int
    kind: str = "file"
    gold: list[Gold] = field(default_factory=list)


def corpus(given: list[str], asked: str | None, stack: ExitStack) -> Corpus:
    """Return the sentence pairs that arguments name, read through once; the shipped examples if there are none.

    asked : the languages; None for the first two of a translation memory, and else for en-fr.   stack : ends what is open.
    ``news`` are the WMT test sets of OTFORMER_DATA, sentences of 3 to 60 words as in the paper.
    """
    from otformer.words.text.examples import examples
    from otformer.words.text.gold import Gold
    from otformer.words.text.text import BAR, as_pair, news_pairs, parse_pairs, read_lines, side_by_side, words
    from otformer.words.text.tmx import is_tmx, read_tmx

    languages = asked or "en-fr"
    is_text = [BAR in name and not os.path.exists(name) for name in given]
    if not given:
        shipped = examples(languages)
        pairs = list(parse_pairs([e.line for e in shipped], "the examples"))
        return Corpus(lambda: iter(pairs), len(pairs), "examples", [Gold(e.links, e.links) for e in shipped])
    if len(given) > 2:
        raise ArgumentError("text", "be one text, one file or two files", f"{len(given)} arguments")
    if len(given) == 2 and any(is_text):
        raise ArgumentError("text", "be one 'a ||| b' or two files", "two arguments of which one has |||")
    if is_text == [True]:
        sides = [side.strip() for side in given[0].split(BAR)]
        if len(sides) != 2 or not all(sides):
            raise ArgumentError("text", f"be two sentences with one {BAR} between them", repr(given[0][:60]))
        pair = as_pair(given[0], "text")
        return Corpus(lambda: iter([pair]), 1, "text")
    if given == ["-", "-"]:
        raise ArgumentError("text", "be two different files", "- (standard input) twice")
    is_news = given == ["news"] and not Path("news").exists()
    files = [] if is_news else [regular(name, stack) for name in given]
    names = ["standard input" if each == "-" else each for each in given]

    def read() -> Iterator[Pair]:
        if is_news:
            return (pair for pair in news_pairs(languages) if all(3 <= len(words(side)) <= 60 for side in pair))
        if len(files) == 2:
            return side_by_side((files[0], files[1]), (names[0], names[1]))
        if is_tmx(names[0]):
            source, target = languages.split("-")
            return read_tmx(files[0], (source, target) if asked else None, names[0])
        return parse_pairs(read_lines(files[0], names[0]), names[0], tabs=_has_tabs(files[0], names[0]))

    total = sum(1 for _ in read())
    if not total:
        raise ValueError(f"{names[0]} is empty: no sentence pairs")
    return Corpus(read, total)


def regular(name: str, stack: ExitStack) -> Path:
    """Return a file that can be read twice: a copy of what comes through standard input or a pipe."""
    file = Path(name)
    if not name:
        raise ArgumentError("text", "be a sentence pair 'a ||| b' or the name of a file", "an empty text")
    if name != "-" and not file.exists():
        text = "; to pass text, write 'source ||| target'" if file.suffix == "" else ""
        raise ValueError(f"{name[:60]!r} does not exist{text}")
    if file.is_dir():
        raise ValueError(f"{name} is a folder, not a file")
    if name != "-" and file.is_file():
        return file
    opened = Path("/proc/self/fd")  # of Linux, where a file needs no name: then not even a kill leaves it behind
    make = tempfile.TemporaryFile if opened.is_dir() else tempfile.NamedTemporaryFile
    copy = stack.enter_context(make(dir=_scratch(), prefix="otformer-"))
    with nullcontext(sys.stdin.buffer) if name == "-" else file.open("rb") as source:
        _copy(source, copy, "standard input" if name == "-" else name)
    copy.flush()
    return opened / str(copy.fileno()) if opened.is_dir() else Path(copy.name)


def _scratch() -> str:
    """The folder for copies. `tempfile.gettempdir` finds it by writing a file there, which a killed process leaves."""
    usual = (os.environ.get("TMPDIR", ""), "/tmp")
    return next((each for each in usual if os.access(each, os.W_OK | os.X_OK)), "") or tempfile.gettempdir()


def _copy(source: IO[bytes], target: IO[bytes], name: str) -> None:
    """Copy a text that may have no end, to at most half of what is free."""
    from otformer.words.text.text import GZIP, LONGEST_LINE

    if _endless(source):
        raise ValueError(f"{name} is a device, not a text")
    room = shutil.disk_usage(_scratch()).free // 2
    part = source.read(LONGEST_LINE + 1)
    if len(part) > LONGEST_LINE and b"\n" not in part and not part.startswith(GZIP):
        raise ArgumentError(f"{name} line 1", f"have at most {LONGEST_LINE:,} bytes", "more")
    while part:
        room -= target.write(part)
        part = source.read(LONGEST_LINE)
        if room < 0:
            raise ValueError(f"{name} is longer than half of what is free in {_scratch()}: give it as a file")


def _endless(source: IO[bytes]) -> bool:
    """Whether a device is read that is neither a terminal nor at its end at once, as /dev/zero."""
    try:
        found, null = os.fstat(source.fileno()), os.stat(os.devnull)
    except io.UnsupportedOperation:  # a stream in memory
        return False
    device = stat.S_ISCHR(found.st_mode) and not source.isatty() and found.st_rdev != null.st_rdev
    return device or stat.S_ISBLK(found.st_mode)


def _has_tabs(file: Path, name: str) -> bool:
    """Whether the lines are TSV: by the file's name, else by the first line that is not empty."""
    from otformer.words.text.text import BAR, read_lines

    first = next((line for line in read_lines(file, name) if line.strip()), "")
    return ".tsv" in Path(name).suffixes[-2:] or ("\t" in first and BAR not in first)


def check_one_based(one_based: bool, gold: Path | None) -> None:
    """Raise ArgumentError if --one-based is given without --gold."""
    if one_based and gold is None:
        raise ArgumentError("--one-based", "be used with --gold, whose words it counts", "--one-based alone")


def read_gold(file: Path, one_based: bool, total: int) -> list[Gold]:
    """Read the gold of ``total`` sentence pairs; note on standard error if it seems to count from 1."""
    from otformer.words.text.gold import read_gold as read

    with warnings_as_notes():
        found = read(file, one_based, "--one-based")
    if len(found) < total or any(line.possible for line in found[total:]):
        raise ArgumentError(file, f"have a line for each of {total} sentence pairs", len(found))
    return found[:total]


def check_pairs(given: Corpus, by: str, gold: list[Gold] | None, form: str) -> None:
    """Say before the work begins which pair cannot be aligned, has gold of other words, or cannot be printed in a form."""
    from otformer.words.aligning import check_length
    from otformer.words.text.gold import check_links
    from otformer.words.text.text import BAR, words

    for number, pair in enumerate(given.pairs(), 1):
        check_length(pair, by, f"pair {number}")
        if form in ("tokens", "pairs") and any(BAR in side for side in pair):
            raise ConflictError(
                "--tokens" if form == "tokens" else f"--format {form}",
                f"{BAR} in a sentence",
                f"one in pair {number}",
                "--json can",
            )
        if gold is not None and number <= len(gold):
            check_links(number, gold[number - 1], *(len(words(side, by)) for side in pair))


@contextmanager
def archive(file: Path) -> Iterator[Callable[[Any], None]]:
    """Yield a function that adds arrays, named 0, 1, …, to an npz, which is written whole or not at all."""
    import zipfile

    import numpy as np

    from otformer.files import written

    with written(file) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:

        def add(array: Any) -> None:
            with zipped.open(f"{len(zipped.filelist)}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)

        yield add


@contextmanager
def resumable(name: str, out: Path | None, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar, to be called with the number of pairs done since; Ctrl-C reports the finished work that is kept for
    ``out``."""
    from otformer.words.jobs.jobs import ChunkFolder

    def kept() -> str:
        chunks = None if out is None else ChunkFolder(out.resolve())
        if not chunks:
            return "nothing is kept" + (": with --out FILE the same command would go on" if out is None else "")
        return f"{len(chunks)} chunks are in {chunks.folder}, the same command goes on from there"

    with interruptible(kept), bar(name, total) as shown:
        yield shown.advance
