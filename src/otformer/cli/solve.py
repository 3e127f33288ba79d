"""``otformer solve`` and ``otformer sort``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from otformer.cli.common import Json, note, warnings_as_notes

PLAN_ENTRIES = 10**8  # entries of the largest plan that is written: 0.8 GB
SCHEDULES = "auto|paper|gradient|alternating|relaxed|annealed"


def solve(
    file: Annotated[Path, typer.Argument(help="Points (npy, csv, tsv, txt); or an npz with x and y, or cost, and a, b.")],
    second: Annotated[Path | None, typer.Argument(metavar="y", help="The points to transport to, one per row.")] = None,
    cost: Annotated[bool, typer.Option("--cost", help="FILE, given alone, holds a cost matrix.")] = False,
    reg: Annotated[float, typer.Option("--reg", "--lambda", help="λ, the weight of Σ P log P.")] = 0.1,
    a: Annotated[Path | None, typer.Option(help="Weights of the rows, a file of numbers; uniform if not given.")] = None,
    b: Annotated[Path | None, typer.Option(help="Weights of the columns.")] = None,
    metric: Annotated[str | None, typer.Option(help="Cost between points: sqeuclidean, cosine, ….")] = None,
    unbalanced: Annotated[float | None, typer.Option(help="ρ: marginals are a KL penalty of this weight.")] = None,
    tol: Annotated[float, typer.Option(help="L1 marginal error to reach.")] = 1e-6,
    max_depth: Annotated[int, typer.Option(help="Most layers to use.")] = 10_000,
    schedule: Annotated[str, typer.Option(metavar=SCHEDULES, help="The solver's own choice, or a fixed network.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write plan, u and v to this npz; above 10⁸ entries u and v.")] = None,
    as_json: Json = False,
) -> None:
    """Solve entropic optimal transport between points or for a cost."""
    import otformer as of
    from otformer.files import check_writable, read_problem, read_weights, write_npz

    if out is not None:
        check_writable(out)
    with warnings_as_notes():
        given: dict[str, Any] = {**read_problem(file, second, cost)}
        for name, weights in (("a", a), ("b", b)):
            if weights is not None and name in given:
                raise ValueError(f"{name} is given twice: {file} holds it, and there is --{name} {weights}")
            given |= {} if weights is None else {name: read_weights(weights)}
        if metric is not None and "M" in given:
            raise ValueError(f"metric goes with points, got a cost matrix in {file}")
        given |= {} if metric is None else {"metric": metric}
        n, m = given["M"].shape if "M" in given else (len(given["X_a"]), len(given["X_b"]))
        with_plan = n * m <= PLAN_ENTRIES
        if out is not None and not with_plan:
            note(f"{out} gets u and v without the plan, which has {n} × {m} entries: P = exp((u + v − C)/λ − 1)")
        call = of.solve if "M" in given else of.solve_sample
        result = call(**given, reg=reg, tol=tol, max_depth=max_depth, schedule=schedule, unbalanced=unbalanced)
    if out is not None:
        u, v = result.potentials
        write_npz(out, **({"plan": result.plan} if with_plan else {}), u=u, v=v)
    names = ["value", "value_linear", "marginal_error", "converged", "depth", "method"]
    names += [] if unbalanced is None else ["mass", "error"]
    summary = {"n": n, "m": m, "reg": reg, **{name: getattr(result, name) for name in names}}
    if as_json:
        typer.echo(json.dumps(summary))
        return
    for name, value in summary.items():
        typer.echo(f"{name:<15}{value:.8g}" if isinstance(value, float) else f"{name:<15}{value}")
    if not result.converged:
        error = summary.get("error", result.marginal_error)
        typer.echo(f"not converged: error {error:.3g}, tol {tol:g}; raise --reg, --tol or --max-depth", err=True)


def sort(
    values: Annotated[list[str] | None, typer.Argument(help="Numbers; from standard input if none are given.")] = None,
    as_json: Json = False,
) -> None:
    """Sort numbers by transport: exactly, or not at all.

    Negative numbers go behind `--`; what cannot be sorted is an error that says why.
    """
    import otformer as of

    words = values if values else sys.stdin.read().replace(",", " ").split()
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
        commas = ": separate numbers by spaces" if "," in word else ""
        raise ValueError(f"values must be numbers, got {word!r}{commas}") from None
    if word.lstrip("+-").isdigit() and int(word) != number:
        raise ValueError(f"values must be exact in float64, got the whole number {word}")
    return number
