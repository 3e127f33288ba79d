"""``otformer solve`` and ``otformer sort``."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from otformer.cli.common import Json, note, refused, told_by_the_library, warnings_as_notes
from otformer.errors import ArgumentError, ConflictError

PLAN_ENTRIES = 10**8  # entries of the largest plan that is written: 0.8 GB
NOT_CONVERGED = 3  # exit code
LONGEST_INPUT = 2**28  # characters of numbers to sort
COMPILING = "compiling, once for this kind of problem on this machine, up to half a minute; not counted in seconds"
SCHEDULES = "auto|paper|gradient|alternating|relaxed|annealed"
ENTROPIC = ("value", "value_linear", "marginal_error", "converged", "depth", "method")  # what is printed of a result
EXACT = ("value", "bound", "gap", "converged", "method", "rounds")


def solve(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Points (npy, csv, tsv, txt); or an npz with x and y, or cost, and a, b.")],
    second: Annotated[Path | None, typer.Argument(metavar="y", help="The points to transport to, one per row.")] = None,
    cost: Annotated[bool, typer.Option("--cost", help="The file, given alone, holds a cost matrix.")] = False,
    reg: Annotated[float, typer.Option("--reg", "--lambda", help="λ, the weight of Σ P log P; 0 means --exact.")] = 0.1,
    exact: Annotated[bool, typer.Option("--exact", help="The exact optimum, λ = 0, with a bound that proves it.")] = False,
    a: Annotated[Path | None, typer.Option(help="Weights of the rows, a file of numbers; uniform if not given.")] = None,
    b: Annotated[Path | None, typer.Option(help="Weights of the columns.")] = None,
    metric: Annotated[str | None, typer.Option(help="Cost between points: sqeuclidean, euclidean, inner or cosine.")] = None,
    unbalanced: Annotated[
        float | None, typer.Option(help="ρ: weight of a KL penalty that replaces exact marginals.")
    ] = None,
    tol: Annotated[float, typer.Option(help="L1 marginal error to reach; with --exact gap/|value|.")] = 1e-6,
    max_depth: Annotated[int, typer.Option(help="The largest number of layers.")] = 10_000,
    max_time: Annotated[float | None, typer.Option(help="Seconds for --exact; then it returns its best plan.")] = None,
    schedule: Annotated[str, typer.Option(metavar=SCHEDULES, help="The solver's own choice, or a fixed network.")] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write plan, u and v to this npz; above 10⁸ entries only u and v. With --exact the plan is sparse, as "
            "scipy.sparse.load_npz reads it, or a csv of row, column and mass."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Draw the plan in the terminal.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page of the plan, and of points in 1 or 2 dimensions.")] = None,
    as_json: Json = False,
) -> None:
    """Solve optimal transport between points or for a cost, entropic or exact.

    The exit code is 0, or 3 if the tolerance is not reached; the answer is printed and written in both cases.
    """
    source, sink = _Source(file, second, cost, a, b, metric), _Sink(out, html, show, as_json)
    by_reg = not exact and reg == 0
    sink.check(source, exact or by_reg)
    asked: dict[str, Any] = {"tol": tol}
    if exact or by_reg:
        refused(
            context, "--reg 0" if by_reg else "--exact", *([] if by_reg else ["reg"]), "unbalanced", "max_depth", "schedule"
        )
        asked |= {"reg": 0, "max_time": max_time}
    else:
        _check_entropic(reg, max_time, unbalanced)
        asked |= {"reg": reg, "max_depth": max_depth, "schedule": schedule, "unbalanced": unbalanced}
    _run(source, sink, asked)


def _check_entropic(reg: float, max_time: float | None, unbalanced: float | None) -> None:
    from otformer import checks

    if max_time is not None:
        raise ArgumentError("--max-time", "be used with --exact", f"--max-time {max_time:g}", "--max-depth limits layers")
    if unbalanced is not None:
        checks.positive("unbalanced", unbalanced)


def _run(source: _Source, sink: _Sink, asked: dict[str, Any]) -> None:
    """Solve the problem; write, print and plot the result."""
    exact, tol = asked["reg"] == 0, asked["tol"]
    names = EXACT if exact else [*ENTROPIC, *([] if asked["unbalanced"] is None else ["mass", "error"])]
    with warnings_as_notes():
        given = source.read()
        result, seconds = _solved(source, given, asked)
        sink.write(result, exact)
    n, m = (len(potential) for potential in result.potentials)
    found = {name: getattr(result, name) for name in names}
    sink.tell({"n": n, "m": m, **found, "seconds": seconds} if exact else {"n": n, "m": m, "reg": asked["reg"], **found})
    if not (result.converged or sink.as_json):
        if exact:
            missed = f"not proved optimal: gap {result.gap:.3g}, tol {tol:g} of the value; raise --max-time or --tol"
        else:
            error = found.get("error", result.marginal_error)
            missed = f"not converged: error {error:.3g}, tol {tol:g}; raise --reg, --tol or --max-depth"
        typer.echo(missed, err=True)
    sink.draw(given, result)
    if not result.converged:
        raise typer.Exit(NOT_CONVERGED)


def _solved(source: _Source, given: dict[str, Any], asked: dict[str, Any]) -> tuple[Any, float]:
    """Return the result, and the seconds that it took without those of a compiler."""
    import otformer as of
    from otformer.transport.compiled import compilation

    call: Any = of.solve if "M" in given else of.solve_sample
    start = time.perf_counter()
    try:
        with source.named(), told_by_the_library(), compilation(lambda: note(COMPILING)) as compiling:
            result = call(**given, **asked)
    except ImportError as error:  # numba is absent or broken
        raise ValueError(str(error)) from None
    return result, time.perf_counter() - start - compiling()


@dataclass(frozen=True)
class _Source:
    """The files of a problem."""

    file: Path
    second: Path | None
    cost: bool
    a: Path | None
    b: Path | None
    metric: str | None

    def read(self) -> dict[str, Any]:
        """Arguments for `of.solve` (M) or `of.solve_sample` (X_a, X_b)."""
        from otformer.problem_files import read_problem, read_weights

        given: dict[str, Any] = {**read_problem(self.file, self.second, self.cost)}
        for name, weights in (("a", self.a), ("b", self.b)):
            if weights is not None and name in given:
                raise ArgumentError(f"--{name}", f"be left out where {self.file} holds {name}", weights)
            given |= {} if weights is None else {name: read_weights(weights)}
        if self.metric is not None and "M" in given:
            raise ArgumentError("--metric", "be used with points", f"a cost matrix in {self.file}")
        given |= {} if self.metric is None else {"metric": self.metric}
        sizes = {side: given[side].shape[:1] for side in ("X_a", "X_b") if side in given}
        if len({size == (0,) for size in sizes.values()}) == 2:  # the library would name the cost between them
            got = " and ".join(f"{sum(size)} in {self._names()[side]}" for side, size in sizes.items())
            raise ArgumentError("points", "be on both sides, or on neither", got)
        return given

    def _names(self) -> dict[str, str]:
        """Map argument names to the user's files and options."""
        inside = {"X_a": "x", "X_b": "y", "M": "cost", "a": "a", "b": "b"}  # of an npz
        names = {argument: f"{name} of {self.file}" for argument, name in inside.items()}
        names |= {} if self.file.suffix == ".npz" else {"X_a": f"{self.file}", "X_b": f"{self.second}", "M": f"{self.file}"}
        names |= {side: f"--{side} {weights}" for side, weights in (("a", self.a), ("b", self.b)) if weights is not None}
        pairs = (("X_a", "X_b"), ("a", "b"))
        return names | {f"{one} and {other}": f"{names[one]} and {names[other]}" for one, other in pairs}

    @contextmanager
    def named(self) -> Iterator[None]:
        """Rename the arguments in ArgumentErrors."""
        try:
            yield
        except ArgumentError as error:
            raise error.renamed(self._names()) from None


@dataclass(frozen=True)
class _Sink:
    """Where the answer goes: a file of the plan, a page, the terminal."""

    out: Path | None
    html: Path | None
    show: bool
    as_json: bool

    def check(self, source: _Source, exact: bool) -> None:
        """Check before a long run that its result can be written and drawn."""
        from otformer.files import check_ending, checked_out, not_read

        if self.show and self.as_json:
            raise ConflictError("--show", "--json", advice="--html FILE draws beside JSON")
        endings = ((".csv", ".npz") if exact else (".npz",)), (".html", ".htm")
        for name, file, allowed in zip(("--out", "--html"), (self.out, self.html), endings, strict=True):
            if file is not None:
                not_read(file, source.file, source.second, source.a, source.b)
                check_ending(name, file, *allowed)
                checked_out(file)

    def write(self, result: Any, exact: bool) -> None:
        """The plan, u and v; of an exact plan the pairs with mass, under scipy's names for a sparse array, or as text."""
        import numpy as np

        from otformer.files import write_npz, written

        if self.out is None:
            return
        u, v = result.potentials
        if not exact:
            fits = len(u) * len(v) <= PLAN_ENTRIES
            if not fits:
                said = f"{self.out} gets u and v without the plan, which has {len(u)} × {len(v)} entries"
                note(f"{said}: P = exp((u + v − C)/λ − 1)")
            write_npz(self.out, **({"plan": result.plan} if fits else {}), u=u, v=v)
        elif self.out.suffix.lower() == ".npz":
            plan = result.plan
            arrays = {"data": plan.data, "indices": plan.indices, "indptr": plan.indptr, "shape": plan.shape}
            write_npz(self.out, format=b"csr", _is_array=True, **arrays, u=u, v=v)
        else:
            rows, columns, masses = result.pairs
            lines = np.column_stack([rows, columns, masses])[np.lexsort((columns, rows))]
            with written(self.out) as stream:
                np.savetxt(stream, lines, fmt="%d,%d,%.17g", header="row,column,mass", comments="")

    def tell(self, summary: dict[str, Any]) -> None:
        """Print names and values, one per line; JSON has no infinite numbers."""
        if self.as_json:
            finite = {k: None if isinstance(x, float) and not math.isfinite(x) else x for k, x in summary.items()}
            typer.echo(json.dumps(finite))
            return
        for name, value in summary.items():
            typer.echo(f"{name:<15}{value:.8g}" if isinstance(value, float) else f"{name:<15}{value}")

    def draw(self, given: dict[str, Any], result: Any) -> None:
        """Draw what --show and --html ask for; points are drawn where they have one or two coordinates."""
        if self.show:
            import rich

            rich.print(result)
        if self.html is not None:
            x, y = given.get("X_a"), given.get("X_b")
            flat = x is not None and y is not None and x.shape[1] <= 2
            result.save(self.html, *((x, y) if flat else ()))


def sort(
    values: Annotated[list[str] | None, typer.Argument(help="Numbers; from standard input if none are given.")] = None,
    as_json: Json = False,
) -> None:
    """Sort numbers by transport: exactly, or not at all.

    Put negative numbers after `--`. If a list cannot be sorted, an error says why.
    """
    import otformer as of

    text = "" if values else sys.stdin.read(LONGEST_INPUT + 1)
    if len(text) > LONGEST_INPUT:
        raise ArgumentError("values", f"be at most {LONGEST_INPUT:,} characters on standard input", "more")
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
        raise ArgumentError("values", "be numbers", f"{word[:60]!r}{file or several}") from None
    if word.lstrip("+-").isdigit() and int(word) != number:
        raise ArgumentError("values", "be exact in float64", f"the whole number {word}")
    return number
