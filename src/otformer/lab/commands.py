"""The long commands: ``otformer reproduce``, ``train`` and ``bench``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from otformer.cli.common import Json, bar, interruptible, note, refused, warnings_as_notes
from otformer.errors import ArgumentError, ConflictError

if TYPE_CHECKING:
    from otformer.lab.experiments.experiment import Experiment
    from otformer.lab.experiments.runner import Record

SCORED_SIZES = (5, 7, 9, 15, 30)  # points per problem on which a trained network is scored


def reproduce(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments, or figure-3, theorem-3.1, …; default: all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures, numbers and index.html.")] = Path("report"),
    seed: Annotated[int, typer.Option(help="Seed of every random problem.")] = 0,
    full: Annotated[bool, typer.Option("--full", help="The large sizes, for hours rather than minutes.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Skip experiments already done with these settings.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with the recorded results; exit 1 if one drifts.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Another value, such as n=16; repeatable.")
    ] = None,
    shows_settings: Annotated[bool, typer.Option("--settings", help="List what --set may change and stop.")] = False,
    picture: Annotated[str, typer.Option("--format", help="Formats besides png: svg; pdf writes svg and pdf.")] = "svg",
    version: Annotated[str, typer.Option("--as", help="paper; or author, to follow the author's notebooks.")] = "paper",
    model: Annotated[str | None, typer.Option(help="A model for figure-5, 6 or 7 as the author reads them.")] = None,
    text: Annotated[str | None, typer.Option(help="With --model: 'source ||| target' lines, or news.")] = None,
    dictionary: Annotated[str, typer.Option(help="With --model: a file, or muse (of OTFORMER_DATA).")] = "muse",
    lemmas: Annotated[str, typer.Option(help="With --model: stanza, simplemma or none.")] = "stanza",
    as_json: Json = False,
) -> None:
    """Run the experiments and write the report.

    Each gets a folder with a figure, a CSV and a JSON; index.html shows them all. With --model a figure of the author's
    notebooks is computed for that model instead, and printed beside his numbers.
    """
    if model is not None or text is not None:
        from otformer.lab.author_command import compare

        refused(
            context,
            "--model and --text",
            "seed",
            "full",
            "resume",
            "check",
            "show",
            "shows_settings",
            "given",
            "picture",
            "version",
        )
        return compare(names or [], model, text, dictionary, lemmas, out, as_json)
    refused(context, "experiments, only with --model", "dictionary", "lemmas")
    if not names:
        refused(context, "all experiments: name a figure", "version", "given")
    from otformer.lab.experiments.registry import chosen, left_out, listing

    if shows_settings:
        return _tell_settings(chosen(names or None, version), as_json)
    if show:
        records = [dict(zip(("name", "shows", "seconds", "title"), row, strict=True)) for row in listing()]
        aligned = _columns([(name, shows, f"{seconds:>4} s", title) for name, shows, seconds, title in listing()])
        typer.echo(json.dumps(records) if as_json else aligned)
        return
    if check and (seed or full or given):
        other = "--full" if full else f"--seed {seed}" if seed else f"--set {(given or [''])[0]}"
        raise ConflictError(
            "--check", other, advice="results are recorded of seed 0, the default size and the standard settings"
        )
    from otformer import checks
    from otformer.lab.experiments.settings import chosen_settings

    checks.choice("--format", picture, ("svg", "pdf"))
    experiments = chosen(names or None, version)
    values = chosen_settings(experiments, given or [])
    for name, module in ({} if names else left_out()).items():
        note(f"{name} is left out: pip install {module}")
    from otformer import figures
    from otformer.lab.experiments.runner import reproduce as run
    from otformer.lab.report.html import check_page, write_report

    figures.needed()
    check_page(out)

    *starts, total = accumulate((each.seconds for each in experiments), initial=0)
    place = {each.name: (k, start, each.seconds) for k, (each, start) in enumerate(zip(experiments, starts, strict=True), 1)}
    finished: set[str] = set()

    def kept() -> str:
        again = "rerun with --resume to continue" if finished else "nothing is kept"
        return f"{len(finished)} of {len(experiments)} experiments are in {out}: {again}"

    with warnings_as_notes(), interruptible(kept), bar(experiments[0].name, total) as shown:

        def tell(name: str, fraction: float) -> None:
            k, start, seconds = place[name]
            shown.reach(start + fraction * seconds, f"{name}, {k} of {len(experiments)}")
            finished.update([name] if fraction == 1 else [])

        done = run(experiments, out, seed, full, resume, tell, values, picture == "pdf")
    page = write_report(out)
    drifts = _drifts(done) if check else None
    _tell_found(done, page, drifts, as_json)
    if drifts:
        sys.exit(1)


def _drifts(done: list[Record]) -> list[str]:
    """A line for every number and verdict that is not as recorded."""
    from otformer.lab.experiments.recorded import drifts

    return [line for record in done for line in drifts(record)]


def _compared(done: list[Record]) -> dict[str, int]:
    """How many numbers are compared with recorded ones, by what is asked of them."""
    from otformer.lab.experiments.recorded import asked

    counts = asked(record.about["name"] for record in done)
    return {what: counts[what] for what in ("equal", "near", "magnitude", "small")}


def _tell_found(done: list[Record], page: Path, drifts: list[str] | None, as_json: bool) -> None:
    """Print every check, where the report is, and, where it was asked for (not None), what is not as recorded."""
    if as_json:
        found = {"report": str(page), "experiments": {record.about["name"]: record.about for record in done}}
        typer.echo(json.dumps(found if drifts is None else {**found, "drifts": drifts, "compared": _compared(done)}))
        return
    from otformer.lab.experiments.settings import said

    checks = [(record.about["name"], claim, held) for record in done for claim, held in record.checks.items()]
    for name, claim, held in checks:
        typer.echo(f"{'yes' if held else 'no':<4}{name}: {claim}")
    holding = sum(held for *_, held in checks)
    no = "; 'no' means that the numbers do not support the claim; it is not a test failure" if holding < len(checks) else ""
    typer.echo(f"{holding} of {len(checks)} statements hold of these numbers{no}")
    for record in done:
        if values := record.about.get("changed"):
            listed = ", ".join(f"{name} = {said(value)}" for name, value in values.items())
            typer.echo(f"{record.about['name']}: not the standard run ({listed}); its sentences were written for that one")
    for line in drifts or []:
        typer.echo(f"drift in {line}")
    if drifts == []:
        count, compared = "1 experiment" if len(done) == 1 else f"{len(done)} experiments", _compared(done)
        how = "{equal:,} are whole and equal, {near:,} within tolerance, {magnitude:,} near 0 and alike in magnitude, "
        how = (how + "{small:,} only as small as rounding").format(**compared)
        typer.echo(f"every verdict and number of {count} is as recorded; of {sum(compared.values()):,} numbers " + how)
    typer.echo(str(page))


def _tell_settings(experiments: Sequence[Experiment], as_json: bool) -> None:
    """Print the settings of the experiments, with the value of the standard run and what ``--set`` takes."""
    from otformer.lab.experiments.settings import said, settings

    rows = [(each.name, own.name, said(own.standard), own.kind) for each in experiments for own in settings(each).values()]
    names = ("experiment", "setting", "standard", "takes")
    typer.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows]) if as_json else _columns([names, *rows]))


def _columns(rows: list[tuple[str, ...]]) -> str:
    """Rows of text as lines, their columns aligned; the last is as long as it likes."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(line).rstrip() for line in cells)


def train(
    recipe: Annotated[str | None, typer.Option(help="What to train: see --list.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for weights, checkpoint, log and plot.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first model; the others follow.")] = 0,
    ensemble: Annotated[int, typer.Option(help="Models trained side by side, from seeds SEED, SEED + 1, …")] = 1,
    steps: Annotated[int | None, typer.Option(help="Number of steps, instead of the recipe's.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Resume a stopped run with these settings.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the recipes and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Train transformers to transport, and score them.

    Scores are measured on fresh problems of 5 to 30 points.
    """
    from otformer.lab.training.about import ABOUT

    if show:
        about = {**ABOUT, "NAME-N": "The recipe NAME on lists of at most N points, say sort-beyond-4."}
        typer.echo(json.dumps(about) if as_json else _columns(list(about.items())))
        return
    if recipe is None:
        raise ArgumentError("--recipe", f"be one of {', '.join(ABOUT)}", "none")
    from otformer import checks, figures
    from otformer.lab.training.evaluate import evaluate
    from otformer.lab.training.plot import log_figure
    from otformer.lab.training.recipes import recipe as named
    from otformer.lab.training.train import train as run

    checks.device(device)
    figures.needed()
    chosen, folder = named(recipe), out or Path("trained") / recipe
    chosen = chosen if steps is None else replace(chosen, steps=steps)

    def kept() -> str:
        if (folder / "checkpoint.safetensors").exists():
            return f"a checkpoint is in {folder}: rerun with --resume to continue"
        return f"there is no checkpoint in {folder} yet: the same command starts again"

    with interruptible(kept), bar(recipe, chosen.steps) as shown:

        def tell(done: int, total: int, loss: float) -> None:
            shown.reach(done, f"{recipe}, step {done:,} of {total:,}, loss {loss:.2e}")

        net = run(chosen, folder, seed=seed, ensemble=ensemble, device=device, resume=resume, progress=tell)
    figures.save(lambda: log_figure(folder / "log.csv"), folder / "log.png")
    kinds = ("permutations", "values") if chosen.architecture.dim == 1 else ("clouds",)
    scores = {kind: evaluate(net, SCORED_SIZES, kind=kind) for kind in kinds}
    if as_json:
        rows = {kind: {score.n: score.rows.tolist() for score in found} for kind, found in scores.items()}
        typer.echo(json.dumps({"folder": str(folder), "rows": rows}))
        return
    for kind, found in scores.items():
        for score in found:
            each = ", ".join(f"{100 * share:.1f}" for share in score.rows.tolist())
            typer.echo(f"{kind:<13} n = {score.n:<3} rows right: {each} %")
    typer.echo(str(folder))


def bench(
    scenario: Annotated[str, typer.Argument(help="cpu, small, ragged, scaling or exact.")],
    out: Annotated[Path, typer.Option(help="Folder for the CSV, the table and the figure.")] = Path("bench/results"),
    family: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this problem family; may be given again.")
    ] = None,
    peer: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this library; may be given again.")] = None,
    n: Annotated[list[int] | None, typer.Option(metavar="N", help="Only this number of points; may be given again.")] = None,
    reg: Annotated[list[float] | None, typer.Option(metavar="λ", help="Only this λ; may be given again.")] = None,
    limit: Annotated[float, typer.Option(help="Seconds for one solve.")] = 30.0,
    rounds: Annotated[int, typer.Option(help="Number of runs of each peer; medians are reported.")] = 3,
    threads: Annotated[int, typer.Option(help="Threads of each peer; with one, times are processor seconds.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the random problems.")] = 0,
    append: Annotated[bool, typer.Option("--append", help="Keep earlier rows of other problems.")] = False,
    as_json: Json = False,
) -> None:
    """Compare the speed with that of other OT libraries.

    Those that are installed solve the same problems to the same marginal error, or (exact) to the optimum, which is
    computed here.
    """
    from otformer import checks, figures
    from otformer.lab.benchmarks import exact, harness, report

    figures.needed()
    checks.choice("scenario", scenario, (*harness.SCENARIOS, "exact"))
    checks.count("seed", seed, least=0)
    if scenario == "exact" and reg:
        raise ConflictError("--reg", "the scenario exact", f"--reg {reg[0]:g}", "it has λ = 0")
    kept = "nothing was written; use --append with --family, --n or --peer to build the table in parts"
    with interruptible(lambda: kept), bar(f"bench {scenario}", 1.0) as shown:
        only = {"n": n, "regs": reg, "families": family, "peers": peer}
        given: dict[str, Any] = {"limit": limit, "rounds": rounds, "threads": threads, "seed": seed, "progress": shown.reach}
        given |= {name: values for name, values in only.items() if values} | {"tell": partial(typer.echo, err=True)}
        rows: Sequence[Any]
        if scenario == "exact":
            rows = exact.bench(out, exact.ExactSettings(**given), append=append)
            lines = [*exact.table(rows), "", *exact.claims(rows)]
        else:
            rows = harness.bench(scenario, out, harness.BenchSettings(**given), append=append)
            lines = [*report.table(rows), "", *report.claims(rows)]
    typer.echo(json.dumps([asdict(row) for row in rows]) if as_json else "\n".join(lines))
