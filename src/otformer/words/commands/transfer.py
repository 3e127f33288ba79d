"""The command ``otformer transfer``: tags or labels of sentences, placed on their translations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from otformer.cli.common import Json, print_to, refused
from otformer.errors import ArgumentError
from otformer.words.commands import corpora
from otformer.words.commands.corpora import Corpus, Engine, Workers

if TYPE_CHECKING:
    from otformer.words.jobs.jobs import Item, Job
    from otformer.words.projection.work import TransferWork

COLUMNS = 10**9  # more than a line may have


def transfer(
    context: typer.Context,
    text: Annotated[
        list[str],
        typer.Argument(help="'a ||| b', a file of such lines, a TSV, or two files (gz too); a has tags. - for stdin."),
    ],
    languages: Annotated[
        str, typer.Option("--languages", "-l", help="en-fr, fr-en, de-en or en-de; the source first.")
    ] = "en-fr",
    method: Annotated[str, typer.Option(help="auto (hmm), attention (better; needs transformers) or vectors.")] = "auto",
    column: Annotated[
        int | None, typer.Option(help="The source is CoNLL: the column of its labels, from 1; -1 is the last.")
    ] = None,
    links: Annotated[Path | None, typer.Option(help="Links i-j (Pharaoh), one line per pair, instead of ours.")] = None,
    one_based: Annotated[bool, typer.Option("--one-based", help="The file of --links counts words from 1.")] = False,
    by: Annotated[str | None, typer.Option(help="Split plain text into 'words', or at 'spaces'.")] = None,
    model: Annotated[Path | None, typer.Option(help="Align with the model of this folder, made by align --train.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the result to this file, whole or not at all.")] = None,
    engine: Engine = "local",
    workers: Workers = 1,
    as_json: Json = False,
) -> None:
    """Transfer HTML or XML tags, or labels, from sentences to their translations.

    Every tag of the source stands in the result once, and nested as in the source; the text is the target's, with & and <
    as entities. With --column the source is CoNLL, a word per line, and the target a text with a line per sentence:
    BIO labels stay contiguous, others go by the best link. Words are 'words' if nothing is said, 'spaces' with --links. An
    interrupted run with --out goes on when the same command is given again.
    """
    from otformer.files import checked_out, not_read
    from otformer.words.align.methods import check
    from otformer.words.align.own_folder import read_about
    from otformer.words.aligning import AlignWork
    from otformer.words.projection.work import TransferWork

    if links is None:
        check(method, languages)
    else:
        refused(context, "--links", "languages", "method", "model")
    if model is not None:
        refused(context, "--model", "languages", "method")
        by = by or read_about(model).by
    if one_based and links is None:
        raise ArgumentError("--one-based", "be used with --links, whose words it counts", "--one-based alone")
    if column is not None and not 1 <= abs(column) < COLUMNS:
        raise ArgumentError("--column", "count from 1, or from the end with -1", column)
    if out is not None:
        not_read(out, links, *text)
        checked_out(out)
    split = by or ("words" if links is None else "spaces")
    own = None if model is None else str(model)
    aligner = AlignWork(languages, method, "spaces", model=own) if links is None else None
    with ExitStack() as stack:
        given = corpora.corpus(text, languages, stack) if column is None else _columns(text, column, stack)
        work = TransferWork(aligner, split, column or 0, False, one_based, as_json)
        items = _with_links(given, links)
        work = _checked(work, items, given)
        _go(work.job(engine=engine, workers=workers), items, given.total, out)


def _columns(files: list[str], column: int, stack: ExitStack) -> Corpus:
    """The sentences of a file in columns beside the lines of another, known to be as many."""
    from otformer.words.projection.conll import blocks, parse_block
    from otformer.words.text.text import Pair, read_lines

    if len(files) != 2 or files == ["-", "-"]:
        raise ArgumentError("text", "be two files: CoNLL, and its translation", " ".join(files))
    names = ["standard input" if name == "-" else name for name in files]
    source, target = (corpora.regular(name, stack) for name in files)

    def read() -> Iterator[Pair]:
        sentences, lines = blocks(read_lines(source, names[0])), read_lines(target, names[1])
        for number, (sentence, line) in enumerate(zip_longest(sentences, lines)):
            if sentence is None or line is None:
                short, long = names if sentence is None else names[::-1]
                raise ValueError(f"{short} is short: it has {number} sentences, {long} has more")
            began, block = sentence
            parse_block(block, column, names[0], began)
            yield Pair(block, line.strip())

    total = sum(1 for _ in read())
    if not total:
        raise ValueError(f"{names[0]} is empty: no sentences")
    return Corpus(read, total)


def _with_links(given: Corpus, links: Path | None) -> Callable[[], Iterator[Item]]:
    """The pairs, each with its line of the file of links, if there is one; blank lines at its end are of no pair."""
    from otformer.words.text.text import read_lines

    def read() -> Iterator[Item]:
        assert links is not None
        for number, (pair, line) in enumerate(zip_longest(given.pairs(), read_lines(links))):
            if line is None or (pair is None and line.strip()):
                got = number if line is None else f"more than {given.total}"
                raise ArgumentError(links, f"have a line for each of {given.total} sentence pairs", got)
            if pair is not None:
                yield (*pair, line)

    return given.pairs if links is None else read


def _checked(work: TransferWork, items: Callable[[], Iterator[Item]], given: Corpus) -> TransferWork:
    """Read all pairs before the work begins; returns the work that knows whether labels are spans."""
    from dataclasses import replace

    from otformer.words.projection.labels import are_spans
    from otformer.words.projection.pairs import LabelledPair
    from otformer.words.text.sizes import check_size

    spans = True
    for number, item in enumerate(items(), 1):
        called = "text" if given.kind == "text" else f"pair {number}"
        pair = work.pair(item, called)
        if work.aligner is None:
            work.links(item[2], pair, f"links of {called}")
        else:
            check_size(len(pair.tokens[0]), len(pair.tokens[1]), called)
        spans = spans and isinstance(pair, LabelledPair) and are_spans(pair.block.labels)
    return replace(work, as_spans=spans)


def _go(job: Job, items: Callable[[], Iterator[Item]], total: int, out: Path | None) -> None:
    """Run a job with a bar; what it makes goes to ``out``, or else to standard output."""
    from otformer.words.jobs.jobs import run, stream

    sink = sys.stdout  # Ray's own messages take its place in a run
    plain = _shown if sink.isatty() else str

    def lines(found: list[str]) -> str:
        return "".join(line + "\n" for line in found)

    with corpora.resumable("transfer", out, total) as tell:
        if out is not None:
            return run(job, items(), out, lambda found: lines(found).encode(), tell)
        for found in stream(job, items(), tell):
            print_to(sink, lines([plain(each) for each in found]))


def _shown(text: str) -> str:
    """Lines and columns as a terminal may show them."""
    from otformer.show.look import visible

    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))
