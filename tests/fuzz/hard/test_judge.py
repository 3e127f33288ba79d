"""The judge itself: its optimum against brute force and HiGHS, and errors planted in right answers, which it names."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from fuzz.hard import doors, draws, entropic, judge, optimum
from fuzz.hard.families import run


def drawn(seed: int, n: int = 5, m: int = 4, forbidden: float = 0.0) -> draws.Case:
    rng = np.random.default_rng(seed)
    M = np.where(rng.random((n, m)) < forbidden, np.inf, rng.random((n, m)))
    M[:, 0] = rng.random(n)
    a, b = rng.random(n), rng.random(m)
    b[0] += 2 * n  # so that a plan exists
    return draws.Case(M, a, b * (a.sum() / b.sum()), np.zeros((n, m), bool))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("start", [True, False])
def test_the_optimum_is_that_of_highs(seed, start):
    case = drawn(seed, 8, 7, 0.3)
    a, b = optimum.fractions(case.a, 8), optimum.fractions(case.b, 7)
    found = optimum.solved(case.M, a, b, optimum.start_of(case.M, a, b, case.big) if start else None)
    rows, columns = np.kron(np.eye(8), np.ones(7)), np.kron(np.ones(8), np.eye(7))
    bounds = [(0, None if ok else 0) for ok in np.isfinite(case.M).ravel()]
    costs = np.where(np.isfinite(case.M), case.M, 0.0).ravel()
    highs = linprog(costs, A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([case.a, case.b]), bounds=bounds)
    assert float(found.value) == pytest.approx(highs.fun, rel=1e-9)
    assert found.forbidden == 0


@pytest.mark.parametrize("M", [1e3, 1e17, 1e300, -1e16, -1e300])
def test_the_optimum_with_big_entries_is_that_of_all_permutations(M):
    rng, best = np.random.default_rng(3), None
    C = rng.random((6, 6))
    C[rng.random((6, 6)) < 0.7] = M
    exact = [[Fraction(x) for x in row] for row in C.tolist()]
    best = min(sum(exact[i][j] for i, j in enumerate(order)) for order in itertools.permutations(range(6)))
    assert optimum.solved(C, [Fraction(1)] * 6, [Fraction(1)] * 6).value == best


def test_its_proof_holds_in_fractions():
    case = drawn(1, 9, 6, 0.2)
    a, b = optimum.fractions(case.a, 9), optimum.fractions(case.b, 6)
    found = optimum.solved(case.M, a, b)
    for i, j in zip(*np.nonzero(np.isfinite(case.M)), strict=True):
        assert found.f[i] + found.g[j] <= Fraction(float(case.M[i, j]))
    scaled = [w * sum(a) / sum(b) for w in b]
    assert (
        sum(x * u for x, u in zip(a, found.f, strict=True)) + sum(x * u for x, u in zip(scaled, found.g, strict=True))
        == found.value
    )


def two_blocks(difference: float) -> draws.Case:
    M = np.where(np.kron(np.eye(2), np.ones((2, 2))) > 0, np.arange(16.0).reshape(4, 4) % 5, np.inf)
    b = np.array([0.2, 0.3, 0.25, 0.25])
    return draws.Case(M, np.full(4, 0.25), b + difference * np.array([1, 0, -1, 0]), np.zeros((4, 4), bool))


@pytest.mark.parametrize(("difference", "feasible"), [(0.0, True), (1e-16, True), (1e-3, False)])
def test_blocks_are_feasible_where_their_masses_agree_to_rounding(difference, feasible):
    assert judge.truth(two_blocks(difference)).feasible is feasible


def answer_of(case: draws.Case) -> tuple[judge.Answer, judge.Truth]:
    """A right answer, made of the optimum."""
    known, P = judge.truth(case), np.zeros(case.shape)
    f, g = np.zeros(len(P)), np.zeros(P.shape[1])
    for part in known.parts:
        P[part.rows[part.best.rows], part.columns[part.best.columns]] = [float(x) for x in part.best.flow]
        f[part.rows], g[part.columns] = [float(x) for x in part.best.f], [float(x) for x in part.best.g]
    return judge.Answer(P, float(known.value), True, (f, g), 1e-9), known


@pytest.mark.parametrize("case", [drawn(0), drawn(2, 20, 30, 0.5), two_blocks(0.0)], ids=["plain", "forbidden", "blocks"])
def test_a_right_answer_is_right(case):
    answer, known = answer_of(case)
    assert judge.judged(case, answer, known) == ("ok", "")


def swapped(P: np.ndarray, M: np.ndarray, least: float = 0.0) -> np.ndarray:
    """Mass sent round a cycle of four pairs, which costs more than `least` and keeps the marginals."""
    for (i, j), (k, l) in itertools.permutations(zip(*np.nonzero(P), strict=True), 2):
        x = min(P[i, j], P[k, l])
        if i != k and j != l and x * (M[i, l] + M[k, j] - M[i, j] - M[k, l]) > least:
            Q = P.copy()
            Q[i, j] -= x
            Q[k, l] -= x
            Q[i, l] += x
            Q[k, j] += x
            return Q
    raise AssertionError("no cycle")


def planted(name: str, answer: judge.Answer, M: np.ndarray) -> None:
    P, (f, g) = answer.plan.copy(), answer.potentials
    top = np.unravel_index(P.argmax(), P.shape)
    if name == "negative":
        P[P == 0] -= 1e-12
    if name == "lost mass":
        P[top] *= 1 - 1e-6
    if name == "moved mass":
        P[top], P[top[0], (top[1] + 1) % len(g)] = 0.0, P[top]
    if name == "another value":
        answer.value *= 1 + 1e-6
    if name == "potentials":
        answer.potentials = (f + 1e-6, g)
    if name == "not a number":
        P[top] = np.nan
    if name == "shape":
        P = P.T.copy()
    if name == "worse plan":
        P = swapped(P, M, 1e-6)
        answer.value = float((P * M).sum())
    answer.plan = P


@pytest.mark.parametrize(
    ("name", "kind"),
    [("negative", "bad plan"), ("lost mass", "bad plan"), ("moved mass", "bad plan"), ("another value", "wrong value"),
     ("potentials", "bad plan"), ("not a number", "bad plan"), ("shape", "bad plan"), ("worse plan", "wrong value")],
)  # fmt: skip
def test_a_planted_error_is_named(name, kind):
    case = drawn(0)
    answer, known = answer_of(case)
    planted(name, answer, case.M)
    assert judge.judged(case, answer, known)[0] == kind


def test_mass_on_a_forbidden_pair_is_a_bad_plan():
    case = two_blocks(0.0)
    answer, known = answer_of(case)
    free = draws.Case(np.where(np.isinf(case.M), -1.0, case.M), case.a, case.b, case.big)
    assert judge.judged(case, answer_of(free)[0], known)[0] == "bad plan"
    assert judge.judged(two_blocks(1e-3), answer, judge.truth(two_blocks(1e-3)))[0] == "bad plan"


def test_a_value_alone_is_compared_with_the_optimum():
    case = drawn(0)
    answer, known = answer_of(case)
    answer.plan = None
    assert judge.judged(case, answer, known)[0] == "ok"
    answer.value *= 1 + 1e-8
    assert judge.judged(case, answer, known)[0] == "wrong value"


@pytest.mark.parametrize("M", [1e16, -1e16, 1e300, -1e300])
def test_a_rest_that_is_not_optimal_is_seen_behind_a_value_that_is_right(M):
    case = drawn(0, 6, 6)
    case.M[2] = M  # the row costs M whatever its column; or −M, which the plan has to take
    case.big = np.abs(case.M) > 1e3
    answer, known = answer_of(case)
    assert judge.judged(case, answer, known)[0] == "ok"
    rest = np.delete(np.arange(6), 2)
    answer.plan[rest] = swapped(answer.plan[rest], case.M[rest], 1e-6)
    answer.value, answer.potentials = float((answer.plan * case.M).sum()), None
    assert judge.judged(case, answer, known)[0] == "rest"


def test_weights_that_are_not_carried_at_all_make_a_wrong_value():
    """A weight of 1e-17 that can only go where it costs 1e17 is worth 1."""
    M, a = np.array([[1.0, 2.0], [1e17, 1e17]]), np.array([1.0, 1e-17])
    case = draws.Case(M, a, np.array([0.5, 0.5]), M > 10)
    known = judge.truth(case)
    assert float(known.value) == pytest.approx(2.5)
    lost = judge.Answer(np.array([[0.5, 0.5], [0.0, 0.0]]), 1.5, True, None, 1e-6)
    assert judge.judged(case, lost, known)[0] == "wrong value"


def test_a_value_that_hangs_on_rounding_of_weights_is_undetermined():
    """Two blocks held apart by M = 1e16: 1e-16 between them costs 1, and so may rounding of their masses, 0.3 and 0.7."""
    M = np.where(np.kron(np.eye(2), np.ones((2, 2))) > 0, 1.0, 1e16)
    P = np.diag([1e-10, 0.3, 0.35, 0.35])
    case = draws.Case(M, P.sum(1), P.sum(0), M > 10)
    answer, known = judge.Answer(P, None, True, None, 1e-6), judge.truth(case)
    for moved, kind in ((0.0, "ok"), (3e-16, "undetermined"), (1e-11, "wrong value")):
        P[0, 3] = moved
        assert judge.judged(case, answer, known)[0] == kind


def entropic_case() -> tuple[draws.Case, np.ndarray]:
    """Two blocks and their plan, a bᵀ exp(−C) scaled by hand in each."""
    case, P = two_blocks(0.0), np.zeros((4, 4))
    for k in (slice(0, 2), slice(2, 4)):
        Q = np.exp(-case.M[k, k])
        for _ in range(500):
            Q *= (case.a[k] / Q.sum(1))[:, None]
            Q *= case.b[k] / Q.sum(0)
        P[k, k] = Q
    return case, P


def test_an_entropic_plan_is_judged_by_marginals_and_form():
    case, P = entropic_case()
    known, asked = judge.truth(case), entropic.Asked(1.0, None, 1e-6)
    assert entropic.judged(case, asked, P, True, known) == ("ok", "")
    assert entropic.judged(case, asked, P * (1 + 1e-4), True, known)[0] == "bad plan"
    cycle = np.zeros((4, 4))
    cycle[:2, :2] = [[1e-3, -1e-3], [-1e-3, 1e-3]]
    assert entropic.judged(case, asked, P + cycle, True, known)[0] == "wrong value"
    assert entropic.judged(case, entropic.Asked(1.0, 1.0, 1e-6), P, True, known)[0] == "wrong value"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("wrong", "wrong value"), ("twice", "bad plan"), ("refuses", "refused"), ("fails", "error"), ("right", "ok")],
)
def test_a_library_that_errs_is_found_through_its_entry_points(monkeypatch, name, kind):
    def fake(C, maximize=False):
        n, m = C.shape
        if name == "refuses":
            raise ValueError("cost is infeasible")
        if name == "fails":
            raise TypeError("unexpected")
        if name == "right":
            from scipy.optimize import linear_sum_assignment

            return linear_sum_assignment(C, maximize)
        k = min(n, m)
        return np.arange(k), np.zeros(k, int) if name == "twice" else np.arange(k)

    monkeypatch.setattr(doors, "of", type("Fake", (), {"linear_sum_assignment": staticmethod(fake)}))
    assert run("must_link linear_sum_assignment", 10, 20).kind == kind  # entries at −1000, which scipy solves
