"""``otformer solve`` and ``otformer sort``."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from otformer.cli.common import Json, note, refused, warnings_as_notes

PLAN_ENTRIES = 10**8  # entries of the largest plan that is written: 0.8 GB
NOT_CONVERGED = 3  # exit code
LONGEST_INPUT = 2**28  # characters of numbers to sort
COMPILING = "compiling, once for this kind of problem on this machine, up to half a minute; not counted in seconds"
SCHEDULES = "auto|paper|gradient|alternating|relaxed|annealed"


def solve(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Points (npy, csv, tsv, txt); or an npz with x and y, or cost, and a, b.")],
    second: Annotated[Path | None, typer.Argument(metavar="y", help="The points to transport to, one per row.")] = None,
    cost: Annotated[bool, typer.Option("--cost", help="The file, given alone, holds a cost matrix.")] = False,
    reg: Annotated[float, typer.Option("--reg", "--lambda", help="λ, the weight of Σ P log P.")] = 0.1,
    exact: Annotated[bool, typer.Option("--exact", help="The optimum itself, λ = 0, with a bound that proves it.")] = False,
    a: Annotated[Path | None, typer.Option(help="Weights of the rows, a file of numbers; uniform if not given.")] = None,
    b: Annotated[Path | None, typer.Option(help="Weights of the columns.")] = None,
    metric: Annotated[str | None, typer.Option(help="Cost between points: sqeuclidean, euclidean, inner or cosine.")] = None,
    unbalanced: Annotated[float | None, typer.Option(help="ρ: marginals are a KL penalty of this weight.")] = None,
    tol: Annotated[float, typer.Option(help="L1 marginal error to reach; with --exact gap/|value|.")] = 1e-6,
    max_depth: Annotated[int, typer.Option(help="Most layers to use.")] = 10_000,
    max_time: Annotated[float | None, typer.Option(help="Seconds for --exact, which then ends with what it has.")] = None,
    schedule: Annotated[str, typer.Option(metavar=SCHEDULES, help="The solver's own choice, or a fixed network.")] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write plan, u and v to this npz; above 10⁸ entries u and v. With --exact the plan is sparse, as "
            "scipy.sparse.load_npz reads it, or a csv of row, column and mass."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Draw the plan in the terminal.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page of the plan, and of points in 1 or 2 dimensions.")] = None,
    as_json: Json = False,
) -> None:
    """Solve optimal transport between points or for a cost, entropic or exact.

    The exit code is 0, or 3 where the answer is not to the tolerance: it is printed, and written, all the same.
    """
    from otformer.files import not_read

    for made in (out, html):
        not_read(made, file, second, a, b)
    _check_drawing(show, html, as_json)
    problem, called = partial(_problem, file, second, cost, a, b, metric), _as_files(file, second, a, b)
    if exact:
        refused(context, "--exact", "reg", "unbalanced", "max_depth", "schedule")
        given, result = _solve_exact(problem, called, tol, max_time, out, as_json)
        _draw(given, result, show, html)
        _end(result.converged)
        return
    if max_time is not None:
        raise ValueError(f"max-time must be used with --exact, got --max-time {max_time:g}: --max-depth limits layers")
    if reg == 0:
        raise ValueError(f"reg must be a positive, finite number, got {reg}: the optimum itself is --exact")
    import otformer as of
    from otformer import checks
    from otformer.files import check_writable, write_npz

    if unbalanced is not None:
        checks.positive("unbalanced", unbalanced)
    if out is not None:
        check_writable(out)
    with warnings_as_notes():
        given, n, m = problem()
        with_plan = n * m <= PLAN_ENTRIES
        if out is not None and not with_plan:
            note(f"{out} gets u and v without the plan, which has {n} × {m} entries: P = exp((u + v − C)/λ − 1)")
        call = of.solve if "M" in given else of.solve_sample
        with called:
            result = call(**given, reg=reg, tol=tol, max_depth=max_depth, schedule=schedule, unbalanced=unbalanced)
    if out is not None:
        u, v = result.potentials
        write_npz(out, **({"plan": result.plan} if with_plan else {}), u=u, v=v)
    names = ["value", "value_linear", "marginal_error", "converged", "depth", "method"]
    names += [] if unbalanced is None else ["mass", "error"]
    summary = {"n": n, "m": m, "reg": reg, **{name: getattr(result, name) for name in names}}
    _tell(summary, as_json)
    if not (result.converged or as_json):
        error = summary.get("error", result.marginal_error)
        typer.echo(f"not converged: error {error:.3g}, tol {tol:g}; raise --reg, --tol or --max-depth", err=True)
    _draw(given, result, show, html)
    _end(result.converged)


def _end(converged: bool) -> None:
    """A script sees from the exit code that the answer is not to the tolerance."""
    if not converged:
        raise typer.Exit(NOT_CONVERGED)


def _check_drawing(show: bool, html: Path | None, as_json: bool) -> None:
    """Say before a long run what cannot be drawn after it."""
    if show and as_json:
        raise ValueError("show cannot be used with --json, got both: --html FILE draws beside JSON")
    if html is None:
        return
    from otformer.files import checked_out

    if html.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"html must be a file that ends in .html or .htm, got {html}")
    checked_out(html)


def _draw(given: dict[str, Any], result: Any, show: bool, html: Path | None) -> None:
    """What --show and --html ask for; points are drawn where they have one or two coordinates."""
    if show:
        import rich

        rich.print(result)
    if html is not None:
        x, y = given.get("X_a"), given.get("X_b")
        flat = x is not None and y is not None and x.shape[1] <= 2
        result.save(html, *((x, y) if flat else ()))


def _problem(
    file: Path, second: Path | None, cost: bool, a: Path | None, b: Path | None, metric: str | None
) -> tuple[dict[str, Any], int, int]:
    """Arguments for `of.solve` (M) or `of.solve_sample` (X_a, X_b), and the sizes of the two sides."""
    from otformer.files import read_problem, read_weights

    given: dict[str, Any] = {**read_problem(file, second, cost)}
    for name, weights in (("a", a), ("b", b)):
        if weights is not None and name in given:
            raise ValueError(f"{name} is given twice: {file} holds it, and there is --{name} {weights}")
        given |= {} if weights is None else {name: read_weights(weights)}
    if metric is not None and "M" in given:
        raise ValueError(f"metric goes with points, got a cost matrix in {file}")
    given |= {} if metric is None else {"metric": metric}
    for name in given.keys() & {"M", "X_a", "X_b"}:
        if given[name].ndim != 2:
            raise ValueError(
                f"{'the cost' if name == 'M' else 'points'} must be a matrix, got shape {given[name].shape} in "
                f"{second if name == 'X_b' and second else file}"
            )
    if "X_a" in given and given["X_a"].shape[1] != given["X_b"].shape[1]:
        names = (file, second) if second else (f"x of {file}", f"y of {file}")
        found = " and ".join(f"{given[each].shape[1]} in {name}" for each, name in zip(("X_a", "X_b"), names, strict=True))
        raise ValueError(f"points must have as many coordinates in both, got {found}")
    n, m = given["M"].shape if "M" in given else (len(given["X_a"]), len(given["X_b"]))
    if (n == 0) != (m == 0) and "M" not in given:
        raise ValueError(f"points must be on both sides, or on neither, got {n} in {file} and {m} in {second or file}")
    return given, n, m


@contextmanager
def _as_files(file: Path, second: Path | None, a: Path | None, b: Path | None) -> Iterator[None]:
    """Name the files where a message of the library begins with its arguments."""
    inside = {"X_a": "x", "X_b": "y", "M": "cost", "a": "a", "b": "b"}  # of an npz
    names = {argument: f"{name} of {file}" for argument, name in inside.items()}
    names |= {} if file.suffix == ".npz" else {"X_a": str(file), "X_b": str(second), "M": str(file)}
    names |= {side: f"--{side} {weights}" for side, weights in (("a", a), ("b", b)) if weights is not None}
    one = f"({'|'.join(names)})"
    try:
        yield
    except ValueError as error:
        found = re.match(rf"{one}(?: and {one})?(?= must| have)", str(error))
        if found is None:
            raise
        said = " and ".join(names[each] for each in found.groups() if each)
        raise ValueError(said + str(error)[found.end() :]) from None


def _solve_exact(
    problem: Callable[[], tuple[dict[str, Any], int, int]],
    called: AbstractContextManager[None],
    tol: float,
    max_time: float | None,
    out: Path | None,
    as_json: bool,
) -> tuple[dict[str, Any], Any]:
    import otformer as of
    from otformer.files import checked_out, written
    from otformer.transport.exact.compiled import compilation

    if out is not None and out.suffix not in (".csv", ".npz"):
        raise ValueError(f"{out} must end in .csv or .npz")
    if out is not None:
        checked_out(out)
    with warnings_as_notes(), nullcontext() if out is None else written(out) as stream:
        given, n, m = problem()
        call: Any = of.solve if "M" in given else of.solve_sample
        start = time.perf_counter()
        try:
            with called, compilation(lambda: note(COMPILING)) as compiling:
                result = call(**given, reg=0, tol=tol, max_time=max_time)
        except ImportError as error:  # numba is an extra
            raise ValueError(str(error)) from None
        seconds = time.perf_counter() - start - compiling()
        if out is not None:
            _write_plan(out, stream, result)
    names = ("value", "bound", "gap", "converged", "method", "rounds")
    _tell({"n": n, "m": m, **{name: getattr(result, name) for name in names}, "seconds": seconds}, as_json)
    if not (result.converged or as_json):
        typer.echo(
            f"not proved optimal: gap {result.gap:.3g}, tol {tol:g} of the value; raise --max-time or --tol", err=True
        )
    return given, result


def _write_plan(out: Path, stream: Any, result: Any) -> None:
    """The pairs that have mass: an npz with scipy's names for a sparse array, and u and v; or lines of text."""
    import numpy as np

    if out.suffix == ".csv":
        rows, columns, masses = result.pairs
        by_rows = np.lexsort((columns, rows))
        lines = np.column_stack([rows, columns, masses])[by_rows]
        np.savetxt(stream, lines, fmt="%d,%d,%.17g", header="row,column,mass", comments="")
        return
    plan, (u, v) = result.plan, result.potentials
    arrays = {"data": plan.data, "indices": plan.indices, "indptr": plan.indptr, "shape": plan.shape, "_is_array": True}
    np.savez(stream, format=b"csr", **arrays, u=u, v=v)


def _tell(summary: dict[str, Any], as_json: bool) -> None:
    """Names and values, a line each; JSON has no infinite numbers."""
    if as_json:
        finite = {k: None if isinstance(x, float) and not math.isfinite(x) else x for k, x in summary.items()}
        typer.echo(json.dumps(finite))
        return
    for name, value in summary.items():
        typer.echo(f"{name:<15}{value:.8g}" if isinstance(value, float) else f"{name:<15}{value}")


def sort(
    values: Annotated[list[str] | None, typer.Argument(help="Numbers; from standard input if none are given.")] = None,
    as_json: Json = False,
) -> None:
    """Sort numbers by transport: exactly, or not at all.

    Negative numbers go behind `--`; what cannot be sorted is an error that says why.
    """
    import otformer as of

    text = "" if values else sys.stdin.read(LONGEST_INPUT + 1)
    if len(text) > LONGEST_INPUT:
        raise ValueError(f"values must be at most {LONGEST_INPUT:,} characters on standard input, got more")
    words = values if values else text.replace(",", " ").split()
    if not words:
        raise ValueError("values are missing: give numbers as arguments or on standard input")
    numbers: list[Any] = [_number(word) for word in words]
    order = of.argsort(numbers).tolist()
    if as_json:
        typer.echo(json.dumps({"sorted": [numbers[k] for k in order], "order": order}))
    else:
        typer.echo("\n".join(words[k] for k in order))


def _number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        several = ": separate numbers by spaces, without quotes" if "," in word or " " in word else ""
        file = f": otformer sort < {word} reads a file" if Path(word).is_file() else ""
        raise ValueError(f"values must be numbers, got {word[:60]!r}{file or several}") from None
    if word.lstrip("+-").isdigit() and int(word) != number:
        raise ValueError(f"values must be exact in float64, got the whole number {word}")
    return number
