"""Sections that put our public call beside flash-sinkhorn, family by family: table, own, many, million; and small."""

from __future__ import annotations

from gpu_common import TOL, Bench, Problem, marginal_error, solve
from gpu_families import LARGE, MANY, OWN, TABLE, Family, alike, cube
from gpu_flash import compare, compare_multiscale

LIMITS = {0.05: 0.010, 0.001: 0.025}  # λ → seconds, for 1,000 to 5,000 points


def table(bench: Bench) -> None:
    for family in TABLE:
        beside_flash(bench, family)


def own(bench: Bench) -> None:
    for family in OWN:
        beside_flash(bench, family)


def many(bench: Bench) -> None:
    """Many dimensions."""
    for family in MANY:
        beside_flash(bench, family)


def million(bench: Bench) -> None:
    """Beside flash-sinkhorn's multiscale mode; on the clusters that was ended after 150 s, and is not tried again."""
    for family in LARGE:
        p = family.draw(bench)
        for tol in (TOL, 1e-3):
            case = f"{family.case}, tol {tol:g}"
            with bench.attempt("otformer", case):
                seconds, _ = ours(bench, case, family, p, tol)
                if family.name == "cube":
                    compare_multiscale(bench, case, p, seconds, tol)


def small(bench: Bench) -> None:
    """Problems that leave the GPU idle: the median of seven calls after the first, and its limit."""
    for reg, limit in LIMITS.items():
        for n in (1000, 2000, 5000):
            family = alike("cube", n, 3, reg, cube)
            p = family.draw(bench)
            with bench.attempt("otformer", family.case):
                r = solve(p)
                bench.add(case=family.case, seconds=bench.median(lambda p=p: solve(p), 7), limit=limit, layers=r.depth,
                          error=marginal_error(p, *r.potentials), converged=r.converged)  # fmt: skip


def beside_flash(bench: Bench, family: Family) -> None:
    p = family.draw(bench)
    with bench.attempt("otformer", family.case):
        compare(bench, family.case, p, *ours(bench, family.case, family, p))


def ours(bench: Bench, case: str, family: Family, p: Problem, tol: float = TOL) -> tuple[float, float | None]:
    """Our side of a case: its row, and how long it took."""
    (seconds, r, gib), again = bench.second(lambda: solve(p, tol))
    bench.add(case=case, family=family.name, n=len(p.x), m=len(p.y), d=family.d, reg=p.reg, seconds=seconds, layers=r.depth,
              read=r.marginal_error, error=marginal_error(p, *r.potentials), converged=r.converged, gib=gib,
              **({} if again is None else {"again": again}))  # fmt: skip
    return seconds, again
