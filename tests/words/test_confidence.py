"""Probabilities of links: the line between log odds, thresholds and rules on them, coverage, and the files that say so."""

import re

import numpy as np
import pytest
from scipy.special import expit, logit

from otformer.words.align.aligners import RULES
from otformer.words.align.confidence import CURVES, TRAINED, Curve, Linker, check, curve, trained_curve
from otformer.words.align.filtering import coverage
from otformer.words.align.methods import METHODS, method
from otformer.words.aligning import AlignWork, align
from otformer.words.text.languages import LANGUAGES
from otformer.words.text.text import Pair

PAIRS = [
    "He did not come ||| Il n' est pas venu",
    "The black cat sleeps in the old house . ||| Le chat noir dort dans la maison .",
]


@pytest.mark.parametrize("line", [Curve(1.0, 0.0), *CURVES.values(), *TRAINED.values()])
def test_curves_are_lines_between_log_odds_and_rise(line):
    scores = np.linspace(0.001, 0.999, 50)
    p = line.probability(scores)
    np.testing.assert_allclose(p, expit(line.slope * logit(scores) + line.offset), rtol=1e-12)
    assert (np.diff(p) > 0).all()
    np.testing.assert_allclose([line.score(each) for each in p], scores, rtol=1e-6)
    assert 0 < line.probability(0.0) < 0.01
    assert 0.99 < line.probability(1.0) <= 1


def test_every_method_has_a_curve_for_every_pair_of_languages():
    for name in METHODS:
        assert {curve(name, languages) for languages in LANGUAGES} <= set(CURVES.values())
    assert {null: trained_curve(null) for null in TRAINED} == TRAINED
    assert (trained_curve(1.0), trained_curve(9.0)) == (TRAINED[2.0], TRAINED[5.0])
    assert curve("hmm", "fr-en") is curve("hmm", "en-fr")


@pytest.mark.parametrize("way", ["hmm", "vectors"])
def test_a_threshold_is_on_probabilities(way):
    """Against all entries of the matrix, by the curve's own formula."""
    line = curve(way, "en-fr")
    for least in (0.0, 0.2, 0.6, 0.95, 1.0):
        for found in align(PAIRS, method=way, threshold=least):
            p = expit(line.slope * logit(np.clip(found.matrix.astype(float), 1e-6, 1 - 1e-6)) + line.offset)
            sure = {(int(i), int(j)) for j, i in np.argwhere(p > least + 1e-4)}
            close = {(int(i), int(j)) for j, i in np.argwhere(abs(p - least) <= 1e-4)}
            assert sure - close <= found <= sure | close
            assert found.scores == pytest.approx({(i, j): p[j, i] for i, j in found}, abs=2e-4)


def test_rules_are_of_each_words_best_partner():
    (all_of,) = align(PAIRS[:1], threshold=0.0)
    P = all_of.matrix
    by_source, by_target = {(i, int(j)) for i, j in enumerate(P.argmax(0))}, {(int(i), j) for j, i in enumerate(P.argmax(1))}
    found = {rule: align(PAIRS[:1], symmetrize=rule)[0] for rule in RULES[:-1]}
    assert (found["source"], found["target"]) == (by_source, by_target)
    assert (found["intersection"], found["union"]) == (by_source & by_target, by_source | by_target)
    assert found["intersection"] <= found["grow-diag"] <= found["grow-diag-final"] <= found["union"]
    cut = align(PAIRS[:1], symmetrize="union", threshold=0.9)[0]
    assert cut == {link for link in found["union"] if all_of.scores[link] > 0.9} < found["union"]


def test_work_on_a_corpus_has_the_same_settings():
    pairs = [Pair(*each.split(" ||| ")) for each in PAIRS]
    work = AlignWork(threshold=0.2, symmetrize="union")
    assert work()(pairs) == align(pairs, threshold=0.2, symmetrize="union")
    assert work.job().key(pairs) != AlignWork().job().key(pairs)


@pytest.mark.parametrize(
    ("threshold", "rule", "message"),
    [
        (1.5, None, "threshold must be a probability, from 0 to 1, got 1.5"),
        (-0.1, None, "threshold must be zero or a positive, finite number, got -0.1"),
        (float("nan"), None, "threshold must be zero or a positive, finite number, got nan"),
        (None, "grow", "symmetrize must be one of source, target, intersection, union"),
        (None, "threshold", "symmetrize must come with a threshold, got 'threshold' alone"),
    ],
)
def test_bad_settings(threshold, rule, message):
    for call in (lambda: check(threshold, rule), lambda: align(PAIRS, threshold=threshold, symmetrize=rule)):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
    with pytest.raises(ValueError, match=re.escape(message)):
        Linker(method("vectors"), curve("vectors", "en-fr"), threshold, rule)


def test_coverage_is_the_mean_of_best_partners_on_the_worse_side():
    p = np.random.default_rng(0).random((4, 6))
    sides = [max(p[:, i]) for i in range(6)], [max(p[j]) for j in range(4)]
    assert coverage(p, "abcdef", "vwxy") == pytest.approx(min(sum(side) / len(side) for side in sides))
    assert coverage(np.zeros((0, 3)), "abc", "") == 0
    words = ["the", "black", "cat", "sleeps", "here"]
    assert coverage(np.eye(5), words, [*words[:-1], "ici"]) == 0  # copied
    assert coverage(np.eye(3), words[:3], words[:3]) == 1  # too short to say


def test_translations_are_covered_and_others_are_not():
    right = align(["The old man reads a book in the garden . ||| Le vieil homme lit un livre dans le jardin ."])[0].coverage
    wrong = ["Le vieil homme .", "Les prix du pétrole montent depuis hier .", "The old man reads a book in the garden ."]
    others = align([("The old man reads a book in the garden .", text) for text in wrong])
    assert right > 0.8 > 0.6 > max(other.coverage for other in others)
