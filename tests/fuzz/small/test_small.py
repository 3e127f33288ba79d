"""The small problems have exact weights and few points; answers that are right pass, and planted errors are named."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fuzz.hard.judge import truth
from fuzz.small import __main__ as command
from fuzz.small.doors import DOORS
from fuzz.small.judge import Answer, judged
from fuzz.small.problems import FAMILIES, Small, small, whole
from otformer.lab.benchmarks.exact_families import FAMILIES as FIXED
from otformer.lab.benchmarks.exact_problem import Problem


@pytest.mark.parametrize("family", sorted(set(FAMILIES)))
def test_problems_are_small_seeded_and_of_exactly_one_mass(family):
    for seed in range(12):
        one, again = small(family, seed, 12), small(family, seed, 12)
        assert np.array_equal(one.case.M, again.case.M)
        assert 1 <= min(one.case.shape) <= max(one.case.shape) <= 12
        assert np.isfinite(one.case.M).all()
        if one.case.a is not None:
            sums = [sum(map(Fraction, w)) for w in (one.case.a, one.case.b)]
            assert sums[0] == sums[1] == Fraction(float(one.case.a.sum()))
            assert all((w >= 0).all() for w in (one.case.a, one.case.b))


def test_every_second_problem_is_of_the_grammar_and_all_families_have_their_turn():
    cases = command.named(FAMILIES, 0, 2 * len(FAMILIES))
    assert len(set(cases)) == len(cases)
    assert [name for name, _ in cases[1::2]] == ["drawn"] * len(FAMILIES)
    assert {name for name, _ in cases} == {*FIXED, "drawn"}
    assert small("drawn", 371, 12).words.startswith("drawn-37-1: ")


def test_whole_weights_keep_zeros_and_proportions():
    assert whole(np.array([0.0, 1.0, 3.0]), 6).tolist() == [0, 16, 48]
    assert whole(np.array([1e-9, 1.0]), 6).tolist() == [1, 63]
    assert whole(np.zeros(2), 6).tolist() == [32, 32]


def asked() -> tuple[Small, Answer]:
    """A problem of which the best plan is the diagonal, and the right answer."""
    M = np.array([[1.0, 3.0], [2.0, 1.0]])
    one = Small(Problem(a=np.array([0.25, 0.75]), b=np.array([0.25, 0.75]), M=M), "")
    return one, Answer(np.diag([0.25, 0.75]), 1.0, 1.0, True, (np.ones(2), np.zeros(2)))


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        ({}, "ok"),
        ({"converged": False}, "not converged"),
        ({"plan": np.diag([0.25, 0.75 + 1e-12])}, "bad plan"),
        ({"plan": np.diag([-0.25, 0.75])}, "bad plan"),
        ({"plan": np.array([[0.25, 0.0]])}, "bad plan"),
        ({"potentials": (np.array([1.0, 1.0]), np.array([1e-9, 0.0]))}, "bad plan"),
        ({"value": 1.0 + 1e-12}, "wrong value"),
        ({"value": np.nan}, "wrong value"),
        ({"bound": 1.0 + 1e-12}, "wrong bound"),
        ({"bound": 1.0 + 1.2 * 2**-46}, "wrong bound"),
        ({"bound": 1.0 + 1.02 * 2**-46}, "bound rounded up"),
        ({"plan": np.array([[0.0, 0.25], [0.25, 0.5]]), "value": 1.75}, "converged, not optimal"),
        ({"plan": np.array([[0.0, 0.25], [0.25, 0.5]]), "value": 1.75, "converged": False}, "not converged"),
    ],
)
def test_an_answer_is_judged_by_the_optimum(planted, kind):
    one, answer = asked()
    assert judged(one.case, replace(answer, **planted), truth(one.case))[0] == kind


def test_costs_that_are_cosines_have_the_rounding_of_the_cosine():
    M = np.full((1, 1), 1e-9)
    one, answer = Small(Problem(M=M), ""), Answer(np.ones((1, 1)), 1e-9 + 1e-16, 1e-9, True, (np.zeros(1), M[0] + 1e-16))
    assert judged(one.case, answer, truth(one.case))[0] == "bad plan"
    assert judged(one.case, replace(answer, cosine=True), truth(one.case))[0] == "ok"


def test_all_functions_are_right_on_some_of_every_family():
    for family in sorted(set(FAMILIES)):
        verdict = command.run(family, 0, lambda _: None)
        assert verdict.kind in ("ok", "bound rounded up"), verdict


def test_a_function_that_errs_or_refuses_is_named(monkeypatch):
    def off(one):
        return replace(DOORS[0](one), value=np.inf)

    def refuses(one):
        raise ValueError("no")

    for door, kind in ((off, "wrong value"), (refuses, "refused")):
        monkeypatch.setattr(command, "DOORS", (*DOORS, door))
        verdict = command.run("ring", 0, lambda _: None)
        assert verdict.kind == kind
        assert verdict.why.startswith(door.__name__)
