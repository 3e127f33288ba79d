"""The command ``otformer probe``: how well a model's attention finds translated words, and how near it is to transport."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from otformer.cli.common import Json, note, print_to, refused
from otformer.errors import ArgumentError
from otformer.words.commands import corpora
from otformer.words.commands.corpora import Engine, GoldFile, OneBased, Workers

PICTURES = ("png", "svg", "pdf")

if TYPE_CHECKING:
    from rich.text import Text

    from otformer.words.probe.one_pair import PairProbe
    from otformer.words.probe.probe import ProbeSettings
    from otformer.words.probe.work import ProbeWork
    from otformer.words.text.text import Pair


def probe(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A folder (Marian, BERT, GPT-2 …), a hub name, or en-fr, de-en, bert-en-fr.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="A file, two files, - or 'a ||| b', as align; news; if left out: examples.")
    ] = None,
    languages: Annotated[
        str | None, typer.Option("--languages", "-l", help="Source and target, as en-fr; a shipped model has its own.")
    ] = None,
    dictionary: Annotated[str | None, typer.Option(help="A file of word pairs, or muse (of OTFORMER_DATA).")] = None,
    gold: GoldFile = None,
    one_based: OneBased = False,
    pairs: Annotated[int | None, typer.Option(help="Use this many sentence pairs, drawn at random.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random sample of pairs.")] = 0,
    by: Annotated[str | None, typer.Option(help="What counts as a word: words or spaces, as in align.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for probe.csv and a figure; one pair alone is printed.")] = Path("probe"),
    picture: Annotated[str, typer.Option("--format", help="Of the figure: png, svg or pdf.")] = "png",
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
        given = corpora.corpus(text or [], languages, stack)
        if show and given.kind != "text":
            got = text[0] if text else "the examples"
            raise ArgumentError("--show", "be used with one sentence pair, 'a ||| b'", got, "--html FILE shows many")
        expected = corpora.read_gold(gold, one_based, given.total) if gold is not None else given.gold
        against = dictionary or (None if expected else "muse")
        settings = ProbeSettings(by=by or ("spaces" if expected else "words"))
        work = ProbeWork(named(model), languages, against, device, settings)
        items = work.items(given.pairs(), expected, pairs, seed)
        if html is not None:
            _write_page(model, items, html, work.probing, device, as_json)
        elif show or (given.kind == "text" and not expected and dictionary is None):
            refused(context, "one sentence pair, which is printed", "out", "picture", "engine", "workers")
            _tell_pair(work, next(given.pairs()), show, as_json)
        else:
            total = min(given.total, pairs or given.total)
            how = {"engine": engine, "workers": workers}
            table, file = _tabulated(work, items, out, total, Path(model).name, how, picture)
            _tell_table(table, file, as_json)


def _check_probe(context: typer.Context) -> None:
    """Say before a model is loaded which options are wrong, or exclude each other."""
    from otformer import checks
    from otformer.files import checked_out
    from otformer.words.jobs.jobs import ENGINES

    given = context.params
    if given["show"]:
        pointless = ("out", "picture", "dictionary", "gold", "one_based", "pairs", "seed", "engine", "workers")
        refused(context, "--show", "html", "as_json", *pointless)
    if given["html"] is not None:
        checked_out(checks.path("--html", given["html"], ".html", ".htm"))
        refused(context, "--html", "out", "picture", "dictionary", "engine", "workers")
    corpora.check_one_based(given["one_based"], given["gold"])
    checks.count("seed", given["seed"], least=0)
    if given["pairs"] is not None:
        checks.count("pairs", given["pairs"])
    if given["by"] is not None:
        checks.choice("by", given["by"], ("words", "spaces"))
    checks.choice("--format", given["picture"], PICTURES)
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
    work: ProbeWork, items: Iterable[Any], out: Path, total: int, title: str, how: dict[str, Any], picture: str
) -> tuple[list[dict[str, Any]], Path]:
    """Score all heads with a bar; return the table, and the CSV file in ``out`` that has it, beside a figure."""
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
            with corpora.resumable("probe", file, total) as tell:
                tallies = run_resumable(work.job(chunk=64, **how), items, chunks, tell)
            try:
                table = tabulate(tallies)
            except ValueError:
                chunks.remove()  # there is nothing in them
                raise
            write_csv(file, table, digits=6)
            figure(table, file.with_suffix(f".{picture}"), title=title)
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
    from otformer.show.look import rendered

    def drawn(matrix: Any) -> Text:
        words = found.target_words, found.source_words
        return Heat(matrix, "", matrix.shape, 1.0, labels=words).text(get_terminal_size().columns)

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
