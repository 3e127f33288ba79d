"""The command ``otformer align``: links between the words of translations."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from otformer.cli.common import Json, note, print_to, refused
from otformer.errors import ArgumentError, ConflictError
from otformer.words.commands import corpora, own
from otformer.words.commands.corpora import Corpus, Engine, GoldFile, OneBased, Workers

if TYPE_CHECKING:
    from otformer.words.aligning import Alignment
    from otformer.words.jobs.jobs import Job
    from otformer.words.text.gold import Gold
    from otformer.words.text.text import Pair

FORMS = ("pharaoh", "tokens", "json", "naacl", "pairs")


def align(
    context: typer.Context,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            help="'a ||| b'; a file of such lines, a TSV, or two files (gz too); - for stdin. Default: examples."
        ),
    ] = None,
    languages: Annotated[
        str, typer.Option("--languages", "-l", help="en-fr, fr-en, de-en or en-de, source first; any to train.")
    ] = "en-fr",
    method: Annotated[str, typer.Option(help="auto (hmm), attention (better; needs transformers) or vectors.")] = "auto",
    by: Annotated[str | None, typer.Option(help="Split plain text into 'words', or at 'spaces'.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the lines to this file, whole or not at all.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print links with their probabilities, 0-1:0.87.")] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="As --format tokens: a ||| b ||| links.")] = False,
    form: Annotated[
        str | None, typer.Option("--format", help="pharaoh, tokens, json, naacl, or pairs: the sentences.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="The least probability of a link; default: the method's.")] = None,
    symmetrize: Annotated[
        str | None, typer.Option(help="intersection, union, grow-diag, grow-diag-final, source, target.")
    ] = None,
    keep: Annotated[float | None, typer.Option(help="Drop pairs with less coverage, as not translations.")] = None,
    matrix: Annotated[str | None, typer.Option(help="npz for all scores, target words in rows; - prints them.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Draw the links as lines between the words.")] = False,
    gold: GoldFile = None,
    one_based: OneBased = False,
    train: Annotated[bool, typer.Option("--train", help="Train on the text; --out names the folder of the model.")] = False,
    extend: Annotated[Path | None, typer.Option(help="Continue training this model with more text.")] = None,
    model: Annotated[Path | None, typer.Option(help="Align with the model of this folder, made by --train.")] = None,
    engine: Engine = "local",
    workers: Workers = 1,
    as_json: Json = False,
) -> None:
    """Link the words of translations.

    Prints links i-j (Pharaoh, from 0), one line per sentence pair. A .tmx file is read as well.

    With --gold only the score is printed. --by defaults to 'words', and to 'spaces' for gold and the examples. To
    resume an interrupted run with --out, or a training, give the same command again.
    """
    from otformer.show.look import visible
    from otformer.words.align import confidence
    from otformer.words.align.methods import check
    from otformer.words.align.own_folder import read_about
    from otformer.words.aligning import AlignWork

    if train or extend is not None:
        asked = own.given(context, languages=languages, workers=workers)
        own.train(context, text or [], out, by, extend, engine, **asked)
        return
    if model is None:
        check(method, languages)
    else:
        refused(context, "--model", "method", "languages")
        by = by or read_about(model).by
    confidence.check(threshold, symmetrize)
    corpora.check_one_based(one_based, gold)
    if show:
        refused(context, "--show", "out", "scores", "tokens", "form", "as_json", "gold", "keep")
    chosen = "drawn" if show else _form(form, tokens, as_json)
    _check_kept(context, keep, chosen)
    archived = _checked_files(text or [], out, matrix, gold)
    with ExitStack() as stack:
        given = corpora.corpus(text or [], languages if model is None else own.languages_of(model), stack)
        if matrix == "-" and (given.total != 1 or as_json):
            got = "--json" if as_json else f"{given.total} pairs"
            raise ArgumentError("--matrix -", "be used with one sentence pair, as text", got, "name an npz file")
        expected = given.gold if gold is None else corpora.read_gold(gold, one_based, given.total)
        split = by or ("words" if gold is None and given.kind != "examples" else "spaces")
        work = AlignWork(
            languages, method, split, matrix is not None, threshold, symmetrize, None if model is None else str(model)
        )
        corpora.check_pairs(given, split, None if gold is None else expected, chosen)
        if by is None and split == "words" and given.kind == "file" and chosen in ("pharaoh", "naacl"):
            _note_punctuation(given)
        add = None if archived is None else stack.enter_context(corpora.archive(archived))
        job, wanted = work.job(engine=engine, workers=workers), bool(expected) or given.total == 1
        plain = visible if out is None and sys.stdout.isatty() else str
        lines = Lines(chosen, scores, keep or 0.0, plain, given.pairs())
        kept = _go(job, given, out, gold is not None, lines, add, wanted)
    if keep is not None:
        note(f"{lines.kept} of {given.total} pairs have a coverage of {keep:g} or more")
    if chosen == "pharaoh" and given.kind == "text" and out is None and sys.stdout.isatty():
        typer.echo("\n".join(kept[0].table()))
    if matrix == "-":
        typer.echo("\n".join(kept[0].grid()))
    if expected:
        _tell_score(kept, expected, as_json, err=gold is None)


def _checked_files(text: list[str], out: Path | None, matrix: str | None, gold: Path | None) -> Path | None:
    """Say before the work which file cannot be written; returns the archive for matrices, if there is one."""
    from otformer.files import checked_out, not_read

    archived = None if matrix in (None, "-") else Path(str(matrix))
    if archived is not None and archived.suffix != ".npz":
        raise ArgumentError("--matrix", "end in .npz, or be - to print it", repr(matrix))
    for file in filter(None, (out, archived)):
        not_read(file, gold, *text)
        checked_out(file)
    return archived


def _note_punctuation(given: Corpus) -> None:
    from otformer.words.text.text import words

    if any(words(side) != side.split() for pair in islice(given.pairs(), 100) for side in pair):
        note("words are split from their punctuation: --tokens prints them, --by spaces takes text as it is")


def _form(form: str | None, tokens: bool, as_json: bool) -> str:
    """The form of the lines, which may be said in two ways."""
    from otformer.checks import choice

    if tokens and as_json:
        raise ConflictError("--tokens", "--json")
    said = {"--tokens": "tokens"} if tokens else {"--json": "json"} if as_json else {}
    for option, same in said.items():
        if form not in (None, same):
            raise ConflictError("--format", option, f"--format {form}")
    if form is not None:
        choice("--format", form, FORMS)
    return form or next(iter(said.values()), "pharaoh")


def _check_kept(context: typer.Context, keep: float | None, form: str) -> None:
    if keep is None:
        return
    if not 0 <= keep <= 1:
        raise ArgumentError("--keep", "be a coverage, from 0 to 1", repr(keep))
    refused(context, "--keep", "matrix", "gold")
    if form == "pharaoh":
        raise ArgumentError(
            "--keep", "be used with --format tokens, json, naacl or pairs", "pharaoh", "its lines name no language pair"
        )


@dataclass
class Lines:
    """The lines of the pairs that are given, one after the other; ``pairs`` are their texts, read in parallel."""

    form: str
    scores: bool
    least: float
    plain: Callable[[str], str]
    pairs: Iterator[Pair]
    number: int = 0
    kept: int = 0

    def of(self, pair: Alignment) -> str:
        """The line of the next pair, or its lines, with their ends; nothing for one of less coverage than is asked for."""
        from otformer.words.text.text import BAR

        text = next(self.pairs)
        self.number += 1
        if (pair.coverage or 0.0) < self.least:
            return ""
        self.kept += 1
        if self.form == "drawn":
            return _drawn(pair) + "\n"
        line = f" {BAR} ".join(text) if self.form == "pairs" else pair.line(self.form, self.scores, self.number)
        parts = line.splitlines() if self.form == "naacl" else [line]
        return "".join(self.plain(part) + "\n" for part in parts)


def _drawn(pair: Alignment) -> str:
    from otformer.show.links import Links
    from otformer.show.look import rendered

    sides = pair.source_words, pair.target_words
    return rendered(Links(*sides, pair.scores, "links").text(max(map(len, sides))))


def _go(job: Job, given: Corpus, out: Path | None, quiet: bool, each: Lines, add: Any, keep: bool) -> list[Alignment]:
    """Run a job with a bar; lines go to ``out``, or else to standard output unless ``quiet``, matrices to ``add``.

    Returns the alignments if they are to be kept.
    """
    from otformer.words.jobs.jobs import run, stream

    kept: list[Alignment] = []
    sink = sys.stdout  # Ray's own messages take its place in a run

    def lines(found: list[Alignment]) -> str:
        for pair in found if add is not None else ():
            add(pair.matrix)
        kept.extend(found if keep else ())
        return "".join(map(each.of, found))

    with corpora.resumable("align", out, given.total) as tell:
        if out is not None:
            run(job, given.pairs(), out, lambda found: lines(found).encode(), tell)
            return kept
        for made in map(lines, stream(job, given.pairs(), tell)):
            if not quiet:
                print_to(sink, made)
    return kept


def _tell_score(found: list[Alignment], gold: list[Gold], as_json: bool, err: bool) -> None:
    from otformer.words.text.gold import score_links

    score = score_links(found, gold)
    numbers = {name: getattr(score, name) for name in ("aer", "precision", "recall", "f1")}
    if as_json:
        typer.echo(json.dumps({"pairs": len(found), **numbers}), err=err)
        return
    shown = ", ".join(f"{name.replace('aer', 'AER')} {100 * value:.1f} %" for name, value in numbers.items())
    typer.echo(f"{len(found)} pairs: {shown}", err=err)
