"""Families: a way to draw a problem and an entry point, judged by `judge` or, with λ > 0, by `entropic`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fuzz.hard import doors, draws, entropic, judge, optimum
from fuzz.workers import Verdict

MOST = draws.SIZES[1]
GROUPS = (  # draws × entry points
    ((draws.big_m, draws.must_link), (*doors.DENSE, *doors.ASSIGNMENTS)),
    ((draws.blocks,), doors.BLOCKS),
    ((draws.unequal_blocks,), (doors.solve, doors.emd, doors.emd_sparse, doors.solve_labels, doors.solve_points)),
    ((draws.blocks_by_m,), (doors.solve, doors.emd)),
    ((draws.full_blocks,), (*entropic.DOORS, entropic.solve_unbalanced)),
    ((draws.unequal_full_blocks,), (entropic.solve, entropic.sinkhorn)),
)
FAMILIES: dict[str, tuple[Callable[..., draws.Case], Callable[..., Any]]] = {
    f"{draw.__name__} {door.__name__}": (draw, door) for some, ways in GROUPS for draw in some for door in ways
}
KEPT: dict[str, list[str]] = {}  # families of `make fuzz`: one per draw, its entry points in turn
for _name, (_draw, _) in FAMILIES.items():
    KEPT.setdefault(_draw.__name__, []).append(_name)
SMALL = 60  # points of a side in `make fuzz`


class Posed(NamedTuple):
    """One case: the problem, the call, and a judge of what it returns, given its warnings and the truth."""

    case: draws.Case
    call: Callable[[], Any]
    judged: Callable[[Any, list[str], judge.Truth], tuple[str, str]]
    always: bool  # whether every problem has a plan


def posed(family: str, seed: int, most: int = MOST) -> Posed:
    rng = np.random.default_rng([sum(map(ord, family)), seed])
    draw, door = FAMILIES[family]
    case = draw(rng, most, assigned=True) if door in doors.ASSIGNMENTS else draw(rng, most)
    if door.__module__ == entropic.__name__:
        case, asked, call, read = door(rng, case)
        case.words.append(f"reg {asked.lam:g}")
        return Posed(
            case, call, lambda r, told, known: entropic.judged(case, asked, *read(r, told), known), asked.rho is not None
        )
    case, call, read = door(rng, case)
    return Posed(case, call, lambda r, told, known: judge.judged(case, read(r), known), False)


def pot_seconds(case: draws.Case) -> float:
    """How long POT takes for the problem, with big entries and forbidden pairs brought near."""
    a, b = (list(map(optimum.Fraction, w)) for w in judge.weights_of(case))
    began = time.perf_counter()
    optimum.start_of(case.M, a, b, case.big)
    return time.perf_counter() - began


def run(family: str, seed: int, most: int = MOST, say: Callable[[str], Any] = lambda _: None) -> Verdict:
    """Draw, call and judge; `say` is told "calling" and "judging", so that someone can watch the clock."""
    one = posed(family, seed, most)
    verdict = partial(Verdict, words=", ".join(one.case.words), pot=pot_seconds(one.case))
    say("calling")
    began, refused = time.perf_counter(), ""
    try:
        found, told = doors.quiet(one.call)
    except ValueError as error:
        refused = str(error) or "no word"
    except Exception as error:
        return verdict("error", f"{type(error).__name__}: {error}"[:200], seconds=time.perf_counter() - began)
    seconds = time.perf_counter() - began
    say("judging")
    known = judge.truth(one.case)
    if refused:
        wrong = one.always or known.feasible or len(refused.splitlines()) != 1
        return verdict("refused" if wrong else "infeasible ok", refused[:200], seconds=seconds)
    try:
        kind, why = one.judged(found, told, known)
    except AssertionError as error:
        kind, why = "bad plan", str(error)
    if kind == "ok" and seconds > judge.PATIENCE and verdict.keywords["pot"] < 0.1:
        kind, why = "slow", f"{seconds:.1f} s where POT takes {verdict.keywords['pot']:.2g} s"
    return verdict(kind, why, seconds=seconds)


def fuzzed(draw: str, seed: int) -> str:
    """A case of `make fuzz`: "answered" or "refused"; raises what is a finding. A hang is seen by `python -m fuzz.hard`."""
    names = KEPT[draw]
    family, own = names[seed % len(names)], seed // len(names)
    verdict = run(family, own, SMALL)
    assert verdict.kind in judge.HONEST, f"{verdict.kind}, {family} {own}: {verdict.why} ({verdict.words})"
    return "refused" if verdict.kind == "infeasible ok" else "answered"
