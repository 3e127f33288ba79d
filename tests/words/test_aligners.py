"""Aligners against brute force, scipy and POT; and on gold made by hand, where the data is here."""

import itertools
import os
from pathlib import Path

import numpy as np
import ot
import pytest
from scipy.optimize import linear_sum_assignment

from needs import needs_data
from oracles import best_assignment
from otformer.words.align.aligners import (
    MATCHES,
    Aligner,
    join,
    links,
    match,
    similarity,
    symmetrise,
)


@pytest.fixture
def corpus():
    rng = np.random.default_rng(0)
    return [rng.uniform(-0.2, 1, size) for size in ((3, 3), (4, 6), (7, 2), (1, 1), (5, 1))]


def test_similarity_is_the_cosine_with_target_rows():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(2, 3))
    S = similarity(x, y)
    for j, i in itertools.product(range(2), range(4)):
        assert S[j, i] == pytest.approx(x[i] @ y[j] / np.linalg.norm(x[i]) / np.linalg.norm(y[j]), abs=1e-14)


@pytest.mark.parametrize("reg", [0.1, 0.3])
def test_transport_is_pots_plan(corpus, reg):
    for S, P in zip(corpus, match(corpus, "transport", reg=reg), strict=True):
        m, n = S.shape
        a, b = np.full(m, 1 / m), np.full(n, 1 / n)
        expected = ot.sinkhorn(a, b, 2 - 2 * S, reg, method="sinkhorn_log", numItermax=10_000, stopThr=1e-7) * max(m, n)
        np.testing.assert_allclose(P, expected, atol=2e-3)


def test_null_is_pots_plan_with_a_null_word(corpus):
    for S, P in zip(corpus, match(corpus, "null", reg=0.2, null=0.8), strict=True):
        m, n = S.shape
        C = np.full((m + 1, n + 1), 0.8)
        C[:m, :n], C[m, n] = 2 - 2 * S, 0
        a, b = np.array([1.0] * m + [n]), np.array([1.0] * n + [m])
        expected = ot.sinkhorn(a, b, C, 0.2, method="sinkhorn_log", numItermax=10_000, stopThr=1e-9)
        np.testing.assert_allclose(P, expected[:m, :n], atol=2e-3)


def test_unbalanced_is_pots_plan(corpus):
    for S, P in zip(corpus, match(corpus, "unbalanced", reg=0.2, strength=0.5), strict=True):
        m, n = S.shape
        a, b = np.full(m, max(m, n) / m), np.full(n, max(m, n) / n)
        expected = ot.unbalanced.sinkhorn_unbalanced(a, b, 2 - 2 * S, 0.2, 0.5, numItermax=10_000, stopThr=1e-12)
        np.testing.assert_allclose(P, expected, rtol=5e-3)


def test_exact_is_the_best_assignment_by_brute_force(corpus):
    for S, P in zip(corpus, match(corpus, "exact"), strict=True):
        wide = S if S.shape[0] <= S.shape[1] else S.T
        best = sum(wide[j, i] for j, i in enumerate(best_assignment(-wide)))
        assert (P * S).sum() == pytest.approx(best)
        assert P.sum() == len(wide)


def test_agreement_is_the_product_of_two_softmaxes():
    S = np.array([[1.0, 0.5], [0.0, 0.5]])
    e = np.exp(2 * S / 0.5)
    np.testing.assert_allclose(match([S], "agreement", reg=0.5)[0], e / e.sum(1, keepdims=True) * e / e.sum(0), rtol=1e-12)


def test_small_reg_is_the_exact_assignment():
    rng = np.random.default_rng(2)
    S = rng.uniform(size=(8, 8))
    j, i = linear_sum_assignment(-S)
    assert links(match([S], "transport", reg=2e-3)[0]) == set(zip(i.tolist(), j.tolist(), strict=True))


@pytest.mark.parametrize("how", MATCHES)
def test_empty_sentences_have_no_links(how):
    found = Aligner(how, "intersection", threshold=-1)([np.zeros((0, 3)), np.array([[1.0]]), np.zeros((2, 0))])
    assert found == [frozenset(), {(0, 0)}, frozenset()]


def test_joined_directions_have_the_odds_of_both_and_even_marginals():
    # Scaling rows and columns keeps cross ratios: the joined plan has those of √(A ∘ Bᵀ).
    rng = np.random.default_rng(3)
    A, B = rng.dirichlet(np.ones(5), size=4), rng.dirichlet(np.ones(4), size=5)
    P, K = join([A], [B])[0], np.sqrt(A * B.T)

    def odds(t):
        return t[1:, 1:] * t[0, 0] / (t[1:, :1] * t[:1, 1:])

    np.testing.assert_allclose(odds(P), odds(K), rtol=1e-8)
    np.testing.assert_allclose(P.sum(0), 1, atol=1e-3)
    np.testing.assert_allclose(P.sum(1), 5 / 4, atol=1e-3)
    low = join([A], [B], null=0.1)[0]
    assert low.sum() < 0.9 * P.sum()
    with pytest.raises(ValueError, match="forward and backward must be"):
        join([A], [A])


def test_directions_with_zeros_are_joined():
    """Words that no direction gives anything stay alone. One link x: the null words then have x between them, and cross
    ratios give (1 − x)² = x² exp(−2 null)."""
    A = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    one, none = join([A, np.zeros((2, 3))], [A.T, np.zeros((3, 2))], null=2.0)
    np.testing.assert_allclose(one, A / (1 + np.exp(-2.0)), atol=1e-6)
    np.testing.assert_allclose(none, 0, atol=1e-5)


@pytest.mark.parametrize("how", ["transport", "null"])
def test_scores_do_not_depend_on_the_other_sentences(how):
    """Sentences are solved together; what one of them is given must be its own answer."""
    rng = np.random.default_rng(4)
    corpus = [rng.uniform(-0.2, 1, rng.integers(2, 30, 2)) for _ in range(20)]
    for S, P in zip(corpus, match(corpus, how, reg=0.3), strict=True):
        np.testing.assert_allclose(match([S], how, reg=0.3)[0], P, atol=1e-5)


def test_rules_by_hand():
    P = np.array([[0.9, 0.8, 0.1], [0.2, 0.1, 0.3]])  # target rows, source columns
    assert links(P, "target") == {(0, 0), (2, 1)}
    assert links(P, "source") == {(0, 0), (1, 0), (2, 1)}
    assert links(P, "intersection") == {(0, 0), (2, 1)}
    assert links(P, "union") == {(0, 0), (1, 0), (2, 1)} == links(P, "grow-diag")
    assert links(P, "threshold", 0.25) == {(0, 0), (1, 0), (2, 1)}
    assert links(P, "intersection", 0.5) == {(0, 0)}
    assert Aligner("similarity", diagonal=1.0).scores([np.zeros((1, 2))])[0].tolist() == [[-0.25, -0.25]]


def test_grow_diag_by_hand():
    one, other = {(0, 0), (1, 1), (2, 2), (6, 6)}, {(0, 0), (1, 2), (2, 2), (6, 9), (8, 6)}
    assert symmetrise(one, other, "intersection") == {(0, 0), (2, 2)}
    assert symmetrise(one, other, "grow-diag") == {(0, 0), (2, 2), (1, 1)}  # (1, 1) first, then (1, 2) has both its words
    assert symmetrise(one, other, "grow-diag-final") == {(0, 0), (2, 2), (1, 1), (6, 6), (6, 9), (8, 6)}
    assert symmetrise(one, other, "union") == one | other


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: match([[[0.1]]], "nearest"), "how must be one of"),
        (lambda: match([[0.1]]), "similarities must have rows and columns"),
        (lambda: match([[[float("nan")]]]), "similarities must be finite"),
        (lambda: match([[[0.1]]], reg=0), "reg must be a positive"),
        (lambda: similarity([[1.0]], [[1.0, 0.0]]), "vectors of one length, got 1 and 2"),
        (lambda: links([[1.0]], "best"), "rule must be one of"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@needs_data
def test_words_spelled_alike_on_gold_text():
    """Hansards, where only words that are spelled alike are similar: those that stand once on each side must be linked."""
    folder = Path(os.environ["OTFORMER_DATA"], "gold_alignments", "hansards_en-fr")
    pairs = [tuple(side.split() for side in line.split("|||")) for line in (folder / "test.en-fr.src-tgt").open()]
    expected = [{(e.index(w), f.index(w)) for w in e if e.count(w) == f.count(w) == 1} for e, f in pairs]
    S = [np.array([[float(e == f) for e in source] for f in target]) for source, target in pairs]
    possible = [
        {tuple(int(k) - 1 for k in link.replace("p", "-").split("-")) for link in line.split()}
        for line in (folder / "test.en-fr.talp").open()
    ]
    for how in ("agreement", "null"):
        found = Aligner(how, "threshold", 0.5, diagonal=0)(S)
        assert all(sure <= A for sure, A in zip(expected, found, strict=True)), how
        right = sum(len(A & P) for A, P in zip(found, possible, strict=False))
        assert right / sum(map(len, found)) > 0.9, how


@pytest.mark.parametrize(("words", "counted"), [(1, 1), (10, 10), (50, 50), (300, 50)])
def test_the_price_of_no_link_grows_up_to_fifty_words(words, counted):
    """By hand: with k = exp(−null), n x² + n k x X = n = X² + n k x X give X = √n x, and x² = 1/(1 + k √n)."""
    (P,) = join([np.eye(words)], [np.eye(words)], 1.5)
    np.testing.assert_allclose(P.diagonal(), 1 / (1 + np.exp(-1.5) * np.sqrt(counted)), atol=1e-6)


def test_long_sentences_side_by_side_are_linked_as_each_alone():
    rng = np.random.default_rng(0)
    A, B = rng.random((60, 55)), rng.random((55, 60))
    (one,) = join([A], [B], 1.0)
    (two,) = join([np.kron(np.eye(3), A)], [np.kron(np.eye(3), B)], 1.0)
    np.testing.assert_allclose(two, np.kron(np.eye(3), one), atol=1e-6)
