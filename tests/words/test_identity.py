"""The author's two scores, beside plain loops of what his notebooks compute."""

from __future__ import annotations

import numpy as np
import ot
import pytest

from needs import missing
from otformer.words.models.attention import read
from otformer.words.models.models import load
from otformer.words.models.shipped import folder
from otformer.words.probe.identity import first_matches, identity_cosine, matched_share
from otformer.words.probe.table import probe
from otformer.words.text.dictionary import Dictionary
from otformer.words.text.gold import parse_links
from otformer.words.text.text import Pair


@pytest.mark.parametrize("seed", range(20))
def test_cosine_is_that_of_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    n, m, k = rng.integers(3, 12, 3)
    A = rng.random((n, m))
    rows, columns = rng.integers(0, n, k), rng.integers(0, m, k)
    scaled = [[A[i, j] / sum(A[i, c] ** 2 for c in range(m)) ** 0.5 for j in range(m)] for i in range(n)]
    crop = np.array([[scaled[i][j] for j in columns] for i in rows])
    expected = sum(crop[r, r] for r in range(k)) / np.linalg.norm(crop) / np.linalg.norm(np.eye(k))
    assert identity_cosine(A, rows, columns) == pytest.approx(expected, abs=1e-12)


def test_cosine_is_one_for_the_identity_chance_for_uniform_rows_and_nan_for_nothing():
    every = list(range(5))
    assert identity_cosine(np.eye(5), every, every) == pytest.approx(1)
    assert identity_cosine(np.ones((5, 9)), every, every) == pytest.approx(5**-0.5)
    assert np.isnan(identity_cosine(np.zeros((5, 5)), every, every))
    stacked = identity_cosine(np.stack([np.eye(5), np.ones((5, 5))]), every, every)
    assert stacked == pytest.approx([1, 5**-0.5])


@pytest.mark.parametrize("seed", range(20))
def test_share_is_that_of_pots_plan(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 15))
    D = rng.random((n, n)) + 0.3 * rng.random() * (1 - np.eye(n))
    plan = ot.solve(D).plan
    expected = np.mean(np.diag(plan) > 1e-4)
    assert matched_share(D, range(n), range(n)) == pytest.approx(expected)


def test_words_that_share_a_translation_count_once_each():
    D = np.array([[0.0, 1.0], [1.0, 0.0], [0.1, 1.0]])
    rows, columns = [0, 1, 2], [0, 1, 0]  # two source words with the same first match
    assert 0 < matched_share(D, rows, columns) <= 1


def test_the_earliest_listed_translation_that_occurs_is_taken_at_its_first_place():
    d = Dictionary([("a", "x"), ("a", "y"), ("b", "z"), ("c", "w")])
    assert first_matches(["a", "b", "c", "a"], ["y", "z", "y", "x", "z"], d) == ([0, 1, 3], [3, 1, 3])
    assert first_matches([], ["y"], d) == ([], [])


def test_the_authors_scores_stand_in_the_table():
    """The cosine with the identity of gold pairs, by a plain loop; the share matched only in rows of transport."""
    pytest.importorskip("transformers", reason=missing("words"))
    model, pair = load(folder("en-fr")), Pair("the black cat sleeps", "le chat noir dort")
    links = [(0, 0), (1, 2), (2, 1), (3, 3)]
    table = probe(model, [pair], gold=[parse_links("0-0 1-2 2-1 3-3")])
    (reading,) = read(model, [pair])
    for line in table:
        if line["method"] == "attention" and line["head"]:
            A = reading.matrices[line["reading"]][line["layer"] - 1, line["head"] - 1].T.astype(float)  # source by target
            A = A / np.linalg.norm(A, axis=1, keepdims=True)
            K = np.array([[A[i, j] for _, j in links] for i, _ in links])
            expected = np.trace(K) / np.linalg.norm(K) / 2
            assert line["identity_cosine"] == pytest.approx(expected, abs=1e-5)
            assert line["matched"] is None
    shares = [line["matched"] for line in table if line["method"] == "transport"]
    assert all(share in (0, 0.25, 0.5, 0.75, 1) for share in shares)
