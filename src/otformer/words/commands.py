"""The commands on words: ``otformer align`` and ``otformer probe``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from otformer.cli.common import Json, note, print_to, refused
from otformer.errors import ArgumentError
from otformer.words.corpora import Corpus, archive, check_pairs, corpus, read_gold, resumable

if TYPE_CHECKING:
    from rich.text import Text

    from otformer.words.aligning import Alignment
    from otformer.words.jobs.jobs import Job
    from otformer.words.probe.one_pair import PairProbe
    from otformer.words.probe.probe import ProbeSettings
    from otformer.words.probe.work import ProbeWork
    from otformer.words.text.gold import Gold
    from otformer.words.text.text import Pair

Engine = Annotated[str, typer.Option(help="local, or ray: the workers of a Ray cluster.")]
Languages = Annotated[str, typer.Option("--languages", "-l", help="en-fr, fr-en, de-en or en-de; the source first.")]
Workers = Annotated[int, typer.Option(help="Processes, or workers of the cluster.")]
GoldFile = Annotated[Path | None, typer.Option(help="Alignments made by hand (Pharaoh or talp).")]
OneBased = Annotated[bool, typer.Option("--one-based", help="The gold file counts words from 1.")]


def align(
    context: typer.Context,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="'a ||| b'; a file of such lines, a TSV, or two files (gz too); - for stdin. None: examples."),
    ] = None,
    languages: Languages = "en-fr",
    method: Annotated[str, typer.Option(help="auto (hmm), attention (better; needs transformers) or vectors.")] = "auto",
    by: Annotated[str | None, typer.Option(help="Words are 'words' of plain text, or stand between 'spaces'.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the lines to this file, whole or not at all.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Links with scores, 0-1:0.87.")] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="Lines with the words: a ||| b ||| links.")] = False,
    matrix: Annotated[str | None, typer.Option(help="npz for all scores, target words in rows; - prints them.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Draw the links as lines between the words.")] = False,
    gold: GoldFile = None,
    one_based: OneBased = False,
    engine: Engine = "local",
    workers: Workers = 1,
    as_json: Json = False,
) -> None:
    """Link the words of translations.

    Prints links i-j (Pharaoh, from 0), one line per sentence pair.

    With --gold only the score is printed. Words are 'words' if nothing is said, 'spaces' for gold and the examples. An
    interrupted run with --out goes on when the same command is given again.
    """
    from otformer.show.look import visible
    from otformer.words.align.methods import check
    from otformer.words.aligning import AlignWork

    check(method, languages)
    _check_one_based(one_based, gold)
    if show:
        refused(context, "--show", "out", "scores", "tokens", "as_json", "gold")
    archived = _checked_files(text or [], out, matrix, gold)
    with ExitStack() as stack:
        given = corpus(text or [], languages, stack)
        if matrix == "-" and (given.total != 1 or as_json):
            got = "--json" if as_json else f"{given.total} pairs"
            raise ArgumentError("--matrix -", "be used with one sentence pair, as text", got, "name an npz file")
        expected = given.gold if gold is None else read_gold(gold, one_based, given.total)
        split = by or ("words" if gold is None and given.kind != "examples" else "spaces")
        work = AlignWork(languages, method, split, matrix is not None)
        check_pairs(given, split, None if gold is None else expected, tokens)
        form = "drawn" if show else "json" if as_json else "tokens" if tokens else "pharaoh"
        if by is None and split == "words" and given.kind == "file" and form == "pharaoh":
            _note_punctuation(given)
        add = None if archived is None else stack.enter_context(archive(archived))
        job, keep = work.job(engine=engine, workers=workers), bool(expected) or given.total == 1
        plain = visible if out is None and sys.stdout.isatty() else str
        line = _drawn if show else lambda pair: plain(pair.line(form, scores))
        kept = _go(job, given, out, gold is not None, line, add, keep)
    if form == "pharaoh" and given.kind == "text" and out is None and sys.stdout.isatty():
        typer.echo("\n".join(kept[0].table()))
    if matrix == "-":
        typer.echo("\n".join(kept[0].grid()))
    if expected:
        _tell_score(kept, expected, as_json, err=gold is None)


def _check_one_based(one_based: bool, gold: Path | None) -> None:
    if one_based and gold is None:
        raise ArgumentError("--one-based", "be used with --gold, whose words it counts", "--one-based alone")


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


def _drawn(pair: Alignment) -> str:
    from otformer.show.links import Links
    from otformer.show.look import rendered

    sides = pair.source_words, pair.target_words
    return rendered(Links(*sides, pair.scores, "links").text(max(map(len, sides))))


def _go(
    job: Job, given: Corpus, out: Path | None, quiet: bool, line: Callable[[Alignment], str], add: Any, keep: bool
) -> list[Alignment]:
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
        return "".join(line(pair) + "\n" for pair in found)

    with resumable("align", out, given.total) as tell:
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


def probe(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A folder (Marian, BERT, GPT-2 …), a hub name, or en-fr, de-en, bert-en-fr.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="A file, two files, - or 'a ||| b', as align; news; none: the examples.")
    ] = None,
    languages: Annotated[
        str | None, typer.Option("--languages", "-l", help="Source and target: en-fr, …; of a shipped model its own.")
    ] = None,
    dictionary: Annotated[str | None, typer.Option(help="A file of word pairs, or muse (of OTFORMER_DATA).")] = None,
    gold: GoldFile = None,
    one_based: OneBased = False,
    pairs: Annotated[int | None, typer.Option(help="Use this many sentence pairs, drawn at random.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random sample of pairs.")] = 0,
    by: Annotated[str | None, typer.Option(help="What counts as a word: words or spaces, as in align.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for probe.csv and .png; one pair alone is printed.")] = Path("probe"),
    html: Annotated[Path | None, typer.Option(help="Write one page of the pairs instead: every layer and head.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Draw the attention of 'a ||| b' beside the transport plan.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    engine: Engine = "local",
    workers: Workers = 1,
    as_json: Json = False,
) -> None:
    """Score every layer and head of a model as a word aligner; or show its attention.

    It is scored against the links of --gold or the examples, or the pairs of a --dictionary (muse, if there is no gold), and
    its attention is compared with the transport plan. An interrupted run goes on when the same command is given again.
    """
    from otformer.words.models.shipped import languages_for, named
    from otformer.words.probe.probe import ProbeSettings
    from otformer.words.probe.work import ProbeWork

    languages = languages_for(model, languages)
    _check_probe(context)
    with ExitStack() as stack:
        given = corpus(text or [], languages, stack)
        if show and given.kind != "text":
            got = text[0] if text else "the examples"
            raise ArgumentError("--show", "be used with one sentence pair, 'a ||| b'", got, "--html FILE shows many")
        expected = read_gold(gold, one_based, given.total) if gold is not None else given.gold
        against = dictionary or (None if expected else "muse")
        settings = ProbeSettings(by=by or ("spaces" if expected else "words"))
        work = ProbeWork(named(model), languages, against, device, settings)
        items = work.items(given.pairs(), expected, pairs, seed)
        if html is not None:
            _write_page(model, items, html, work.probing, device, as_json)
        elif show or (given.kind == "text" and not expected and dictionary is None):
            refused(context, "one sentence pair, which is printed", "out", "engine", "workers")
            _tell_pair(work, next(given.pairs()), show, as_json)
        else:
            total = min(given.total, pairs or given.total)
            table, file = _tabulated(work, items, out, total, Path(model).name, {"engine": engine, "workers": workers})
            _tell_table(table, file, as_json)


def _check_probe(context: typer.Context) -> None:
    """Say before a model is loaded which options are wrong, or exclude each other."""
    from otformer import checks
    from otformer.files import checked_out
    from otformer.words.jobs.jobs import ENGINES

    given = context.params
    if given["show"]:
        pointless = ("out", "dictionary", "gold", "one_based", "pairs", "seed", "engine", "workers")
        refused(context, "--show", "html", "as_json", *pointless)
    if given["html"] is not None:
        checked_out(checks.path("--html", given["html"], ".html", ".htm"))
        refused(context, "--html", "out", "dictionary", "engine", "workers")
    _check_one_based(given["one_based"], given["gold"])
    checks.count("seed", given["seed"], least=0)
    if given["pairs"] is not None:
        checks.count("pairs", given["pairs"])
    if given["by"] is not None:
        checks.choice("by", given["by"], ("words", "spaces"))
    checks.device(given["device"])
    checks.choice("engine", given["engine"], ENGINES)
    checks.count("workers", given["workers"])


def _tell_pair(work: ProbeWork, pair: Pair, show: bool, as_json: bool) -> None:
    from otformer.words.probe.one_pair import look_at

    found = look_at(work.model, pair, work.probing, work.device)
    if show:
        print_to(sys.stdout, _shown(found))
    else:
        typer.echo(json.dumps(found.record()) if as_json else "\n".join(found.lines()))


def _tabulated(
    work: ProbeWork, items: Iterable[Any], out: Path, total: int, title: str, how: dict[str, Any]
) -> tuple[list[dict[str, Any]], Path]:
    """Score all heads with a bar; the table, and the CSV file in ``out`` that has it, beside a figure."""
    from otformer import figures
    from otformer.files import output_folder, write_csv
    from otformer.words.jobs.jobs import ChunkFolder, run_resumable
    from otformer.words.probe.figure import figure
    from otformer.words.probe.table import tabulate

    figures.needed()
    with output_folder(out) as folder:
        file = folder / "probe.csv"
        work.check()
        chunks = ChunkFolder(file)
        with chunks.held():
            with resumable("probe", file, total) as tell:
                tallies = run_resumable(work.job(chunk=64, **how), items, chunks, tell)
            try:
                table = tabulate(tallies)
            except ValueError:
                chunks.remove()  # there is nothing in them
                raise
            write_csv(file, table, digits=6)
            figure(table, file.with_suffix(".png"), title=title)
            chunks.remove()
    return table, file


def _write_page(model: str, items: Iterable[Any], file: Path, settings: ProbeSettings, device: str, as_json: bool) -> None:
    """The page of items, pairs or pairs with gold as a talp line."""
    from otformer.words.probe.page import MOST_PAIRS, in_bytes, show
    from otformer.words.text.gold import parse_links

    some = list(islice(items, MOST_PAIRS + 1))
    gold = [parse_links(item[2]) for item in some] if len(some[0]) > 2 else None
    made = show(model, [item[:2] for item in some], gold, settings, device)
    made.save(file)
    if as_json:
        typer.echo(json.dumps({"page": str(file), "pairs": [probe.record() for probe in made.probes]}))
    else:
        typer.echo(made.probes[0].verdict() if len(made.probes) == 1 else made.summary())
        count = f"{len(made.probes)} of {len(some)} sentence pairs"
        typer.echo(f"{file}: {count}, {in_bytes(file.stat().st_size)}")


def _shown(found: PairProbe) -> str:
    """The verdict, and heat maps of the nearest layer's attention and of the plan."""
    from otformer.show.heat import Heat
    from otformer.show.look import rendered, terminal_width

    def drawn(matrix: Any) -> Text:
        words = found.target_words, found.source_words
        return Heat(matrix, "", matrix.shape, 1.0, labels=words).text(terminal_width())

    near = found.nearest
    A = found.scaled(near["reading"])[near["layer"] - 1, -1]
    return rendered(
        f"attention, {near['reading']}, layer {near['layer']}, mean over heads (per cent of each row)",
        drawn(A),
        "\ntransport plan of the embeddings",
        drawn(len(found.plan) * found.plan),
        "\n" + found.verdict(),
    )


def _tell_table(table: list[dict[str, Any]], file: Path, as_json: bool) -> None:
    """The means over heads, the words' vectors and the best head, and doubts about these; all heads are in the file."""
    if as_json:
        typer.echo(json.dumps({"table": str(file), "rows": table}))
        return
    columns = ["MRR", "Hits@1", "Hits@3", *(["AER"] if "AER" in table[0] else [])]
    typer.echo(f"{'':<10} {'':<13} layer " + "".join(f"{name:>8}" for name in columns) + "  from OT")
    best = max((line for line in table if line["head"]), key=lambda line: float(line["Hits@1"]), default=None)
    for line in [line for line in table if not line["head"]] + ([] if best is None else [best]):
        numbers = "".join(f"{100 * line[name]:8.1f}" for name in columns)
        away = "" if line["distance"] is None else f"{100 * line['distance']:9.1f}"
        name, end = ("best head", f"  head {line['head']}, chosen here") if line["head"] else (line["method"], away)
        typer.echo(f"{name:<10} {line['reading']:<13} {line['layer']:>5} {numbers}{end}")
    typer.echo(f"{table[0]['sentences']} sentences with gold, {table[0]['pairs']} pairs of words, per cent: {file}")
    typer.echo("from OT: total variation between attention and the plan of the words' embeddings, 0 to 100")
    tied = max(table, key=lambda line: float(line["tied"]))
    if tied["tied"] >= 0.005:
        row = " ".join(str(tied[name]) for name in ("method", "reading", "layer"))
        share = f"up to {100 * tied['tied']:.1f} % of the pairs ({row}; column tied)"
        note(f"ties, which count for the right word, decide {share}")
    if table[0]["lost"]:
        note(f"{table[0]['lost']} words without tokens, cut off or dropped, are left out")
