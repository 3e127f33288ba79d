"""The command line: ``otformer solve | sort | align | reproduce | train | bench``. Bad input is one line and exit code 2."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from otformer.cli import words as cli_words

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A transformer with frozen softmax-attention weights solves optimal transport, layer by layer.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def _version(asked: bool) -> None:
    if asked:
        from otformer import __version__

        typer.echo(f"otformer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@app.command()
def solve(
    file: Annotated[Path, typer.Argument(help="npz with x and y (and a, b), or cost; npy or csv with a cost matrix.")],
    y: Annotated[Path | None, typer.Argument(help="A second npy or csv: then both files hold points, a row each.")] = None,
    reg: Annotated[float, typer.Option(help="λ, the weight of Σ P log P.")] = 0.1,
    tol: Annotated[float, typer.Option(help="L1 marginal error to reach.")] = 1e-6,
    max_depth: Annotated[int, typer.Option(help="Most layers to use.")] = 10_000,
    schedule: Annotated[str, typer.Option(help="auto, or a fixed network, say relaxed.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write plan, u and v to this npz.")] = None,
    as_json: Json = False,
) -> None:
    """Solve entropic optimal transport between the points or for the cost in FILE."""
    from otformer.files import check_writable, read_problem, write_npz
    from otformer.transport.solve import solve as solve_cost
    from otformer.transport.solve import solve_sample

    if out is not None:
        check_writable(out)
    given = read_problem(file, y)
    call: Callable[..., Any] = solve_cost if "M" in given else solve_sample
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # said below, in our own words
        result = call(**given, reg=reg, tol=tol, max_depth=max_depth, schedule=schedule)
    if out is not None:
        write_npz(out, plan=result.plan, u=result.potentials[0], v=result.potentials[1])
    summary = {
        "n": result.plan.shape[0],
        "m": result.plan.shape[1],
        "reg": reg,
        "value": result.value,
        "value_linear": result.value_linear,
        "marginal_error": result.marginal_error,
        "converged": result.converged,
        "depth": result.depth,
        "network": result.network,
    }
    if as_json:
        typer.echo(json.dumps(summary))
        return
    for name, value in summary.items():
        typer.echo(f"{name:<15}{value:.8g}" if isinstance(value, float) else f"{name:<15}{value}")
    if not result.converged:
        reached = f"error {result.marginal_error:.3g}, tol {tol:g}"
        typer.echo(f"not converged: {reached}; raise --reg, --tol or --max-depth", err=True)


@app.command()
def sort(
    values: Annotated[list[str] | None, typer.Argument(help="Numbers; from standard input if none are given.")] = None,
    as_json: Json = False,
) -> None:
    """Sort numbers by transport: exactly, or an error that says why not. Negative numbers go behind `--`."""
    from otformer.transport.sort import argsort

    words = values if values else sys.stdin.read().replace(",", " ").split()
    if not words:
        raise ValueError("values are missing: give numbers as arguments or on standard input")
    numbers: list[Any] = [_number(word) for word in words]
    order = argsort(numbers).tolist()
    if as_json:
        typer.echo(json.dumps({"sorted": [numbers[k] for k in order], "order": order}))
    else:
        typer.echo("\n".join(words[k] for k in order))


def _number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        raise ValueError(f"values must be numbers, got {word!r}") from None
    if word.lstrip("+-").isdigit() and int(word) != number:
        raise ValueError(f"values must be exact in float64, got the whole number {word}")
    return number


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments to run; all of them if none is named.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures, numbers and index.html.")] = Path("report"),
    seed: Annotated[int, typer.Option(help="Seed of every random problem.")] = 0,
    full: Annotated[bool, typer.Option("--full", help="The large sizes, for hours rather than minutes.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Keep experiments already done with these settings.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Run the experiments, write a figure, a CSV and a JSON for each, and the report that shows them."""
    from otformer.experiments.registry import chosen, left_out, listing

    if show:
        known = listing()
        lines = (f"{name:<26}{shows:<14}{seconds:>3} s  {title}" for name, shows, seconds, title in known)
        typer.echo(json.dumps({name: title for name, *_, title in known}) if as_json else "\n".join(lines))
        return
    from otformer.experiments.runner import reproduce as run
    from otformer.report.html import write_report

    wanted = chosen(names or None)
    for name, extra in ({} if names else left_out()).items():
        typer.echo(f"{name} is left out: pip install 'otformer[{extra}]'", err=True)
    with _progress(len(wanted)) as tell:
        place = {each.name: k for k, each in enumerate(wanted)}
        records = run(wanted, out, seed, full, resume, lambda name, fraction: tell(name, place[name] + fraction))
    page = write_report(out)
    if as_json:
        found = {record.about["name"]: record.about for record in records}
        typer.echo(json.dumps({"report": str(page), "experiments": found}))
        return
    checks = [(record.about["name"], *check) for record in records for check in record.checks.items()]
    for name, claim, held in checks:
        typer.echo(f"{'✓' if held else '✗'} {name}: {claim}")
    typer.echo(f"{sum(held for *_, held in checks)} of {len(checks)} checks hold")
    typer.echo(str(page))


@app.command()
def train(
    recipe: Annotated[str | None, typer.Option(help="What to train: see --list.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for weights, checkpoint, log and plot.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first model; the others follow.")] = 0,
    ensemble: Annotated[int, typer.Option(help="Models trained side by side, from seeds SEED, SEED + 1, …")] = 1,
    steps: Annotated[int | None, typer.Option(help="Fewer or more steps than the recipe's.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run of these settings stopped.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the recipes and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Train transformers to transport, and score them on fresh permutations of 5 to 30 numbers."""
    from dataclasses import replace

    from otformer.learning.evaluate import evaluate
    from otformer.learning.plot import log_figure
    from otformer.learning.recipes import RECIPES
    from otformer.learning.recipes import recipe as named
    from otformer.learning.train import train as run

    if show:
        about = {name: each.about for name, each in RECIPES.items()}
        about["NAME-N"] = "The recipe NAME on lists of at most N points, say sort-beyond-4."
        typer.echo(json.dumps(about) if as_json else "\n".join(f"{name:<25}{text}" for name, text in about.items()))
        return
    if recipe is None:
        raise ValueError(f"recipe is missing: --recipe with one of {', '.join(RECIPES)}")
    chosen, folder = named(recipe), out or Path("trained") / recipe
    chosen = chosen if steps is None else replace(chosen, steps=steps)
    with _progress(chosen.steps, wait=True) as tell:
        net = run(
            chosen,
            folder,
            seed=seed,
            ensemble=ensemble,
            device=device,
            resume=resume,
            progress=lambda done, total, loss: tell(f"loss {loss:.2e}", done),
        )
    log_figure(folder / "log.csv").savefig(folder / "log.png", dpi=160)
    kinds = ("permutations", "values") if chosen.architecture.dim == 1 else ("clouds",)
    scores = {kind: evaluate(net, (5, 7, 9, 15, 30), kind=kind) for kind in kinds}
    if as_json:
        rows = {kind: {score.n: score.rows.tolist() for score in found} for kind, found in scores.items()}
        typer.echo(json.dumps({"folder": str(folder), "rows": rows}))
        return
    for kind, found in scores.items():
        for score in found:
            each = ", ".join(f"{100 * share:.1f}" for share in score.rows.tolist())
            typer.echo(f"{kind:<13} n = {score.n:<3} rows right: {each} %")
    typer.echo(str(folder))


@app.command()
def bench(
    scenario: Annotated[str, typer.Argument(help="cpu, small, ragged or scaling.")],
    out: Annotated[Path, typer.Option(help="Folder for the CSV, the table and the figure.")] = Path("bench/results"),
    family: Annotated[list[str] | None, typer.Option(help="Only these problem families.")] = None,
    peer: Annotated[list[str] | None, typer.Option(help="Only these libraries.")] = None,
    n: Annotated[list[int] | None, typer.Option(help="Sizes.")] = None,
    reg: Annotated[list[float] | None, typer.Option(help="Values of λ.")] = None,
    limit: Annotated[float, typer.Option(help="Seconds for one solve.")] = 30.0,
    append: Annotated[bool, typer.Option("--append", help="Keep earlier rows of other problems.")] = False,
    as_json: Json = False,
) -> None:
    """Compare with the OT libraries that are installed: time to the same, computed marginal error."""
    from dataclasses import asdict

    from otformer.benchmarks.harness import Settings
    from otformer.benchmarks.harness import bench as run
    from otformer.benchmarks.report import claims, table

    settings = Settings(
        n=n or Settings.n,
        regs=reg or Settings.regs,
        families=family or [],
        peers=peer or [],
        limit=limit,
        tell=lambda line: typer.echo(line, err=True),
    )
    rows = run(scenario, out, settings, append=append)
    typer.echo(json.dumps([asdict(row) for row in rows]) if as_json else "\n".join([*table(rows), "", *claims(rows)]))


@contextmanager
def _progress(total: int, wait: bool = False) -> Iterator[Callable[[str, float], None]]:
    """A bar on standard error; call it with what is done and how much of ``total`` is. ``wait``: not shown before."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    name, done = TextColumn("{task.description:<18}"), TextColumn("{task.completed:.1f}/{task.total}")
    with Progress(name, BarColumn(), done, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, visible=not wait)
        yield lambda text, completed: bar.update(task, description=text, completed=completed, visible=True)


cli_words.register(app)


def main() -> None:
    """Entry point of the console script: errors of input are one line on stderr and exit code 2."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        code = app(standalone_mode=False)  # 130 after Ctrl-C
        if code:
            typer.echo("otformer: interrupted; --resume goes on where there is one", err=True)
            sys.exit(code)
    except (typer.Exit, typer.Abort) as stop:
        sys.exit(getattr(stop, "exit_code", 130))
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError) as error:
        typer.echo(f"otformer: {str(error).splitlines()[0]}", err=True)
        sys.exit(2)
    except Exception as error:
        if hasattr(error, "format_message"):  # click's usage errors
            message = error.format_message()
            hint = " (negative numbers go behind --)" if sys.argv[1] == "sort" and "No such option" in message else ""
            typer.echo(f"otformer: {message}{hint}", err=True)
            sys.exit(2)
        raise
