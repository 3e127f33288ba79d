"""Families: a way to draw a problem and an entry point, judged by `judge`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fuzz.hard import doors, draws, judge, optimum


class Verdict(NamedTuple):
    kind: str  # of judge.KINDS
    why: str
    words: str  # what was drawn
    seconds: float  # of the call
    pot: float  # seconds that POT takes


def _named() -> dict[str, tuple[Callable[..., draws.Case], Callable[..., doors.Door]]]:
    named = {}
    for draw in (draws.big_m, draws.must_link):
        for door in (*doors.DENSE, *doors.ASSIGNMENTS):
            named[f"{draw.__name__} {door.__name__}"] = (draw, door)
    for door in doors.BLOCKS:
        named[f"blocks {door.__name__}"] = (draws.blocks, door)
    for door in (doors.solve, doors.emd, doors.emd_sparse, doors.solve_labels):
        named[f"unequal_blocks {door.__name__}"] = (draws.unequal_blocks, door)
    for door in (doors.solve, doors.emd):
        named[f"blocks_by_m {door.__name__}"] = (draws.blocks_by_m, door)
    return named


FAMILIES = _named()


def posed(family: str, seed: int, most: int = draws.SIZES[1]) -> doors.Door:
    """The problem, the call and the reader of one case."""
    rng = np.random.default_rng([sum(map(ord, family)), seed])
    draw, door = FAMILIES[family]
    plain = door in doors.ASSIGNMENTS
    return door(rng, draw(rng, most, *(("none",) if plain else ())))


def pot_seconds(case: draws.Case) -> float:
    """How long POT takes for the problem, with forbidden pairs brought near."""
    n, m = case.shape
    a, b = ([w or optimum.Fraction(1, 10**20) for w in optimum.fractions(w, k)] for w, k in ((case.a, n), (case.b, m)))
    began = time.perf_counter()
    optimum.start_of(case.M, a, b, case.big)
    return time.perf_counter() - began


def run(family: str, seed: int, most: int = draws.SIZES[1], say: Callable[[str], Any] = lambda _: None) -> Verdict:
    """Draw, call and judge; `say` is told "calling" and "judging", so that someone can watch the clock."""
    case, call, read = posed(family, seed, most)
    words = ", ".join(case.words)
    pot = pot_seconds(case)
    say("calling")
    began = time.perf_counter()
    error, found = None, None
    try:
        found, _ = doors.quiet(call)
    except ValueError as raised:
        error = raised
    except Exception as raised:
        return Verdict("error", f"{type(raised).__name__}: {raised}"[:200], words, time.perf_counter() - began, pot)
    seconds = time.perf_counter() - began
    say("judging")
    known = judge.truth(case)
    if error is not None:
        said = str(error)
        if known.feasible or len(said.splitlines()) != 1:
            return Verdict("refused", said[:200], words, seconds, pot)
        return Verdict("infeasible ok", said[:80], words, seconds, pot)
    try:
        kind, why = judge.judged(case, read(found), known)
    except AssertionError as wrong:
        kind, why = "bad plan", str(wrong)
    if kind == "ok" and seconds > judge.PATIENCE and pot < 0.1:
        kind, why = "slow", f"{seconds:.1f} s where POT takes {pot:.2g} s"
    return Verdict(kind, why, words, seconds, pot)
