"""Experiments on the attention of models: figure 1 (fox), and cross-attention in both readings, at both sizes."""

from __future__ import annotations

import itertools

import numpy as np
import ot
import pytest

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
from helpers import tiny_models
from helpers.small_data import run
from oracles import best_assignment, squared_cost
from otformer.lab.experiments import _sentences as sentences
from otformer.lab.experiments import fox, translation_attention
from otformer.lab.experiments.experiment import Context
from otformer.lab.experiments.registry import chosen
from otformer.lab.experiments.translation_attention import READINGS, ByLayer
from otformer.words.jobs.jobs import ChunkFolder
from otformer.words.models.attention import read
from otformer.words.models.models import load
from otformer.words.models.shipped import folder
from otformer.words.probe.probe import ProbeSettings
from otformer.words.probe.scores import ranks
from otformer.words.probe.table import probe
from otformer.words.text.examples import examples
from otformer.words.text.gold import Gold
from otformer.words.text.text import Pair

# The fox


def test_the_shipped_encoder_has_the_fox_pair_right_by_transport() -> None:
    """The first claim of figure 1, against the alignment made by hand."""
    reading = next(read(load(folder("bert-en-fr")), sentences.shipped("en-fr").pairs[:1], by="spaces", states=True))
    links = examples("en-fr")[0].links
    assert set(fox.exact(reading)) == links
    y, x = (reading.states[side][1].astype(float) for side in ("target", "source"))
    y, x = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (y, x))
    wanted = ot.sinkhorn(np.full(9, 1 / 9), np.full(9, 1 / 9), 2 - 2 * y @ x.T, 0.05, method="sinkhorn_log", warn=False)
    assert np.abs(fox.plan(reading) - wanted).max() < 2e-4  # POT has not converged after its 1,000 steps
    assert {(int(i), j) for j, i in enumerate(wanted.argmax(1))} == links


def test_the_permutation_is_the_best_of_all(tiny) -> None:
    pair = Pair("the cat sees the red dog", "le chat voit le chien rouge")
    reading = next(read(load(tiny / "bert-en-fr"), [pair], by="spaces", states=True))
    y, x = (reading.states[side][1].astype(float) for side in ("target", "source"))
    assert fox.exact(reading) == sorted((i, j) for j, i in enumerate(best_assignment(squared_cost(y, x))))


def test_what_is_seen_against_loops(tiny) -> None:
    """Right, distance, share: from the model's matrices, word by word."""
    model = load(tiny / "bert-en-fr")
    pairs = [Pair(*pair) for pair in tiny_models.PAIRS[:3]]
    gold = [[(1, 1), (5, 5)], [], [(1, 2)]]
    seen = fox.see(model, sentences.Corpus(pairs, gold, gold, "spaces", "made"), Context())
    assert seen.pairs.tolist() == [2, 1]  # the pair without gold is left out
    for k, number in enumerate((0, 2)):
        reading = next(read(model, [pairs[number]], by="spaces", states=True))
        mass = next(read(model, [pairs[number]], by="spaces", how="mass"))  # what falls on all subwords of a word
        P = fox.plan(reading)
        for r, name in enumerate(fox.ORIENTATIONS):
            for layer in range(3):
                share = mass.matrices[name][layer].astype(float).mean(0).sum(1 if name == "target-source" else 0).mean()
                assert seen.share[k, r, layer] == pytest.approx(share, abs=1e-6)
                A = reading.matrices[name][layer].astype(float).mean(0)
                A = A / A.sum(1, keepdims=True)
                assert seen.right[k, r, layer] == sum(A[j].argmax() == i for i, j in gold[number])
                assert seen.distance[k, r, layer] == pytest.approx(0.5 * np.abs(A / len(A) - P).sum(), abs=1e-9)


@pytest.mark.slow
def test_fox_at_both_sizes(small) -> None:
    for context, label in ((Context(), "60 shipped pairs, links made by hand"), (Context(full=True), "73 WMT news pairs")):
        outcome = run(fox, context)
        assert len(outcome.rows) == 2 * (2 * 3 + 2)  # two corpora; readings by layers, transport, uniform
        many = [row for row in outcome.rows if row["sentences"].startswith(label)]
        assert len(many) == 8
        distances = [row["distance to the plan"] for row in many if row["what"] == "target-source"]
        fox_pair = [row for row in outcome.rows if row["sentences"] == fox.FOX]
        assert {row["right, low"] for row in fox_pair} == {None}  # one sentence has no interval
        assert all(row["right, low"] is not None for row in many if row["what"] != "uniform")
        held = [value for text, value in outcome.checks.items() if "the last layer is the nearest" in text]
        assert held == [int(np.argmin(distances)) == 2]


@pytest.mark.parametrize(
    ("distances", "steps", "last"),
    [([0.9, 0.5, 0.1], True, True), ([0.5, 0.9, 0.1], False, True), ([0.9, 0.1, 0.5], False, False)],
)
def test_checks_of_the_distance_to_the_plan_follow_the_numbers(distances, steps, last) -> None:
    lines = {fox.SHOWN_ORIENTATION: distances, "source-target": distances, "transport": [0.0], "uniform": [1.0]}
    rows = [
        {"sentences": label, "what": what, "distance to the plan": value, "right": 0.5}
        for label in (fox.FOX, "made")
        for what, values in lines.items()
        for value in values
    ]
    story = fox.Story(rows, sentences.Corpus([], [], [], "spaces", "made"), (1, 2, 3), "tiny", [])
    held = story.checks()
    assert held["made: attention comes nearer to the plan from layer 1 to 2 to 3"] == steps
    assert held["made: the last layer is the nearest to the plan"] == last
    assert story.nearest("made") == (int(np.argmin(distances)) + 1, 0.1)


# Cross-attention


def test_11_which_token_is_read(tiny) -> None:
    """Erratum 11: the two readings are one matrix a word apart, so that if one is perfect, the other is not."""
    model = load(tiny / "en-fr")
    words = ["le", "chat", "dort", "dans", "la", "maison"]
    single = [word for word in words if len(model.tokenizer(text_target=word, add_special_tokens=False).input_ids) == 1]
    assert len(single) >= 2
    target = " ".join(itertools.islice(itertools.cycle(single), 8))
    reading = next(read(model, [Pair("a small dog sees the red house", target)], by="spaces"))
    at_input, at_output = (reading.matrices[name] for name in READINGS)
    assert np.allclose(at_output[:, :, 1:], at_input[:, :, :-1], atol=1e-6)  # position k: input t_{k−1}, output t_k
    A_input, A_output = at_input[0].mean(0), at_output[0].mean(0)
    gold = [(int(i), j) for j, i in enumerate(A_input.argmax(1))]
    hits = [(ranks(A, gold) == 1).mean() for A in (A_input, A_output)]
    assert hits[0] == 1
    assert hits[1] < 1


def table(at_input: list[float], at_output: list[float]) -> ByLayer:
    """A table of two heads per layer, the second better by a tenth, with intervals of ± 0.01."""
    lines = []
    for reading, values in zip(READINGS, (at_input, at_output), strict=True):
        for layer, value in enumerate(values, 1):
            for head, score in ((1, value), (2, value + 0.1), (0, value)):
                line = {"method": "attention", "reading": reading, "layer": layer, "head": head, "distance": 1 - value}
                for metric in translation_attention.METRICS:
                    line |= {metric: score, f"{metric}_low": score - 0.01, f"{metric}_high": score + 0.01}
                lines.append(line | {"sentences": 5, "pairs": 9, "uniform": 0.9})
    for method, score in (("nearest", 0.6), ("transport", 0.7)):
        vectors = {"method": method, "reading": "embeddings", "layer": 0, "head": 0, "Hits@1": score}
        lines.append(vectors | {"Hits@1_low": score, "Hits@1_high": score})
    return ByLayer(lines)


def test_checks_follow_the_table() -> None:
    found = table([0.8, 0.5, 0.2], [0.3, 0.5, 0.85])
    held = found.checks("de-en")
    by_word = {word: [value for text, value in held.items() if f"at the {word}" in text] for word in ("input", "output")}
    assert by_word == {"input": [False, False, False], "output": [True, True, True]}
    assert [value for text, value in held.items() if "erratum 11" in text or "80 %" in text] == [True, True]
    assert [found.best(reading)["layer"] for reading in READINGS] == [1, 3]
    assert [found.trend(reading) for reading in READINGS] == pytest.approx([-1, 1])
    assert [line["head"] for line in found.heads("cross-input")] == [2, 2, 2]
    assert [found.nearest(reading)["layer"] for reading in READINGS] == [1, 3]
    assert [found.climbs(reading) for reading in READINGS] == [False, True]
    same = table([0.2, 0.3, 0.4], [0.2, 0.1, 0.5])
    assert [same.climbs(reading) for reading in READINGS] == [True, False]
    ranks_of = np.argsort(np.argsort([0.2, 0.1, 0.5]))  # no ties: Spearman's ρ is 1 − 6 Σ d²/(n (n² − 1))
    assert same.trend("cross-output") == pytest.approx(1 - 6 * ((ranks_of - np.arange(3)) ** 2).sum() / 24)
    held = same.checks("en-fr")
    assert not any(value for text, value in held.items() if "erratum 11" in text)
    assert [value for text, value in held.items() if "every layer" in text] == [True, False]


@pytest.mark.parametrize(("figure", "languages"), [("figure-5", "en-fr"), ("figure-6", "de-en")])
def test_cross_attention_at_the_default_size(small, figure, languages) -> None:
    (experiment,) = chosen([figure])
    outcome = run(experiment)
    given = sentences.shipped(languages)
    gold = [Gold(frozenset(pairs), frozenset(pairs)) for pairs in given.gold]
    wanted = probe(load(folder(languages)), given.pairs, gold=gold, settings=ProbeSettings(by="spaces"))
    assert [row["Hits@1"] for row in outcome.rows] == pytest.approx([line["Hits@1"] for line in wanted])
    assert {row["reading"] for row in outcome.rows} >= set(READINGS)
    assert "AER" not in outcome.rows[0]
    assert any("80 %" in text for text in outcome.checks) == (languages == "de-en")


def test_an_interrupted_full_run_goes_on(small) -> None:
    class Stop(Exception):
        pass

    seen: list[float] = []

    parts = small / "cache" / "otformer" / "translation-attention.parts"

    def stop(fraction: float) -> None:
        with pytest.raises(ValueError, match="written by another process"), ChunkFolder(parts.with_suffix("")).held():
            pass
        raise Stop

    with pytest.raises(Stop):
        run(translation_attention, Context(full=True, progress=stop))
    assert len(list(parts.iterdir())) == 1  # a chunk of 64 of the 73 pairs was done
    before = {file: file.stat().st_mtime_ns for file in parts.iterdir()}
    kept: list[bool] = []

    def watch(fraction: float) -> None:
        seen.append(fraction)
        kept.append(all(file.exists() and file.stat().st_mtime_ns == time for file, time in before.items()))

    outcome = run(translation_attention, Context(full=True, progress=watch))
    assert all(kept)  # the first chunk was taken, not made again
    assert seen[:2] == pytest.approx([0.95 * 64 / 73, 0.95])
    assert not parts.exists()
    assert outcome.rows[0]["sentences"] == 73
    assert outcome.settings["corpus"] == "73 WMT news pairs, MUSE gold"
