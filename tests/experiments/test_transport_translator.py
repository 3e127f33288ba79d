"""Translators with transport for cross-attention: what the experiment makes of the shipped scores."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import combinations
from typing import Any

import pytest

from otformer.lab.experiments.experiment import Context, Outcome
from otformer.lab.experiments.transport_translator import BASE, MEASURES, STORED, TINTS, Trained, Trainings, run


@pytest.fixture(scope="module")
def stored() -> Any:
    return json.loads(files("otformer.lab.experiments").joinpath("data", STORED).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run(Context())


def test_all_were_trained_alike(stored: Any) -> None:
    """Every variant with the same seeds, every run to its last step, on the same sentences."""
    seeds = {variant: sorted(run["seed"] for run in stored["runs"] if run["variant"] == variant) for variant in TINTS}
    assert len(set(map(tuple, seeds.values()))) == 1
    assert all(len(own) >= 2 for own in seeds.values())
    assert all(run["finished"] and run["done"] == stored["steps"] for run in stored["runs"])
    place = stored["columns"]["news"].index("pairs")
    assert len({line[place] for run in stored["runs"] for line in run["news"]}) == 1


def test_a_row_for_every_layer_and_reading(stored: Any, outcome: Outcome) -> None:
    assert len(outcome.rows) == len(stored["runs"]) * 2 * 6
    for row in outcome.rows:
        assert row["Hits@1_low"] <= row["Hits@1"] <= row["Hits@1_high"]
        assert row["Hits@1, best layer"] >= row["Hits@1"]
        assert row["AER, best head"] <= 1
        assert row["distance, nearest layer"] <= row["distance"]


def test_what_asks_for_columns_gets_nearer_to_them(outcome: Outcome) -> None:
    """Words are pooled from pieces and special tokens left out, so the error is not 0 even where columns are exact."""
    errors = {variant: [row["marginal_error"] for row in outcome.rows if row["variant"] == variant] for variant in TINTS}
    means = {variant: sum(values) / len(values) for variant, values in errors.items()}
    assert max(means, key=lambda variant: means[variant]) == "softmax"
    assert means["balanced"] < means["online"]


def test_nothing_leaks_but_from_balanced(outcome: Outcome) -> None:
    told = [claim for claim in outcome.checks if "leak" in claim]
    assert len(told) == 2
    assert all(outcome.checks[claim] for claim in told)


def made(variant: str, seed: int, hits: float) -> Trained:
    """A run of one layer."""
    columns = ["method", "reading", "layer", "head", "Hits@1", "distance", "marginal_error", "row_entropy", "AER"]
    lines = [
        [method, reading, 1, head, hits - 0.1 * (head == 0), 0.5, 0.1, 0.2, 1 - hits]
        for method, reading in (("attention", "cross-input"), ("attention", "cross-output"), ("transport", "embeddings"))
        for head in (0, 1)
    ]
    scores = {"bleu": {"held-out": 1.0, "newstest2014": 2.0}, "loss": {"teacher": 1.0, "prefix": 1.5}}
    entry = {"variant": variant, "seed": seed, "news": lines, "hansards": lines, "early": [], **scores}
    return Trained(entry, dict.fromkeys(("news", "hansards", "early"), columns))


def test_a_variant_is_above_only_with_both_seeds() -> None:
    softmax = [made("softmax", 0, 0.5), made("softmax", 1, 0.6)]
    apart = Trainings(1, {}, [*softmax, made("online", 0, 0.7), made("online", 1, 0.65)])
    mixed = Trainings(1, {}, [*softmax, made("online", 0, 0.7), made("online", 1, 0.55)])
    assert apart.side("online", "Hits@1, best layer") == 1
    assert apart.side("online", "AER, best head") == -1
    assert mixed.side("online", "Hits@1, best layer") == 0
    assert made("online", 0, 0.7).numbers["Hits@1, best layer"] == pytest.approx(0.6)  # the mean of heads
    assert made("online", 0, 0.7).numbers["Hits@1, best head"] == pytest.approx(0.7)


@pytest.mark.parametrize(("variant", "gains", "costs"), [("plan", 6, 3), ("online", 4, 0)])
def test_the_page_says_what_the_rule_finds_of_gains_and_of_costs(
    outcome: Outcome, variant: str, gains: int, costs: int
) -> None:
    """The rule by its definition, on the rows: every seed against every seed of softmax."""
    sides = {1: 0, -1: 0}
    for name, sign in MEASURES.items():
        ours, base = ({sign * row[name] for row in outcome.rows if row["variant"] == one} for one in (variant, BASE))
        sides[1] += min(ours) > max(base)
        sides[-1] += max(ours) < min(base)
    assert (sides[1], sides[-1]) == (gains, costs)
    told = next(each for each in outcome.numbers["others"] if each["variant"] == variant)
    assert told["sides"][0]["word"] == "better"
    assert sum(len(side["names"]) for side in told["sides"]) == told["count"] == gains + costs
    assert (told["measures"], round(told["expected"], 1)) == (len(MEASURES), 3.3)
    for claim in ("BLEU on newstest2014", "nats per held-out token", "read at the input", "third of the steps"):
        assert sum(claim in asked and asked.startswith(variant) for asked in outcome.checks) == 1


def test_what_the_rule_finds_in_nothing() -> None:
    """The four runs in any order: one of six ways has both seeds above, one both below."""
    sides = [0, 0]
    for own in combinations(range(4), 2):
        hits = {"online": own, "softmax": [k for k in range(4) if k not in own]}
        found = Trainings(1, {}, [made(one, k, 0.2 * k) for one, places in hits.items() for k in places])
        sides[0] += found.side("online", "Hits@1, best layer") > 0
        sides[1] += found.side("online", "Hits@1, best layer") < 0
    assert sides == [1, 1]
