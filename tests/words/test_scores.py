"""Ranks, MRR, Hits@k, bootstrap and OT-likeness: against scipy, POT, brute force and numbers measured elsewhere."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import ot
import pytest
import torch
from scipy import stats

from needs import needs_data
from otformer.words.probe.scores import embedding_plan, estimate, likeness, ranks, sentence_scores
from otformer.words.text.dictionary import muse

DATA = os.environ.get("OTFORMER_DATA")


def test_ranks_against_scipy():
    rng = np.random.default_rng(0)
    A = rng.integers(0, 5, size=(3, 2, 6, 7)).astype(float)  # with ties, [layers, heads, m, n]
    pairs = [(int(i), int(j)) for i, j in zip(rng.integers(7, size=9), rng.integers(6, size=9), strict=True)]
    for ties, method in (("best", "min"), ("worst", "max")):
        right = [stats.rankdata(-A, method=method, axis=-1)[..., j, i] for i, j in pairs]
        assert np.array_equal(ranks(A, pairs, ties), np.stack(right, -1))
        assert np.array_equal(ranks(torch.tensor(A, dtype=torch.bfloat16), pairs, ties), np.stack(right, -1))
    assert ranks(A, []).shape == (3, 2, 0)


def test_rows_are_targets():
    """f_0 attends e_1 most, f_1 attends e_0; with rows and columns exchanged (2, 0) would be a place outside the matrix."""
    A = [[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]]
    assert ranks(A, [(1, 0), (0, 1), (2, 0), (2, 1)]).tolist() == [1, 1, 2, 3]


def test_constant_attention_shows_what_ties_do():
    A = np.full((4, 5), 0.2)
    assert ranks(A, [(2, 3)]).tolist() == [1]  # the paper's strict inequality
    assert ranks(A, [(2, 3)], ties="worst").tolist() == [5]


def test_a_word_that_stands_there_twice_is_tied_in_a_plan():
    """Its two places have one vector, so their columns are equal but for rounding, which must not rank them."""
    rng = np.random.default_rng(5)
    for n in range(4, 40):
        x, y = rng.standard_normal((n, 8)), rng.standard_normal((n, 8))
        x[-1], y[-1] = x[0], y[0]
        P = embedding_plan(y, x)
        assert ranks(P, [(0, 0), (0, n - 1)]).tolist() == ranks(P, [(n - 1, 0), (n - 1, n - 1)]).tolist()
        assert (ranks(P, [(0, 0)], "worst") == ranks(P, [(0, 0)]) + 1).all()


def test_words_without_subwords():
    A = np.array([[0.1, np.nan, 0.3], [np.nan] * 3])
    assert ranks(A, [(0, 0), (2, 0)]).tolist() == [2, 1]
    for pair in ((1, 0), (2, 1)):
        with pytest.raises(ValueError, match=rf"^matrix must be finite at gold pairs, got .* at {re.escape(str(pair))}"):
            ranks(A, [(0, 0), pair])


def test_equations():
    r = [1, 1, 2, 3, 10]
    mrr, *hits = sentence_scores(r, at=(1, 2, 3, 10))
    assert mrr == pytest.approx((1 + 1 + 1 / 2 + 1 / 3 + 1 / 10) / 5, abs=1e-15)
    assert hits == [0.4, 0.6, 0.8, 1.0]
    assert sentence_scores(np.array([[1, 2], [3, 3]]), at=(1,)).tolist() == [[0.75, 0.5], [1 / 3, 0.0]]
    assert np.isnan(sentence_scores(np.ones((2, 0)))).all()


def test_scores_per_sentence_and_pooled():
    sentences = [[1, 1, 1, 1], [2], [], [4, 1]]
    values = np.array([sentence_scores(r, at=(1,)) for r in sentences])
    scores = {name: estimate(values[:, k], [4, 1, 0, 2], draws=200) for k, name in enumerate(("MRR", "Hits@1"))}
    each = [1.0, 0.5, (0.25 + 1) / 2]
    assert scores["MRR"].mean == pytest.approx(np.mean(each))
    assert scores["MRR"].std == pytest.approx(np.std(each))
    assert scores["MRR"].pooled == pytest.approx(np.mean([1, 1, 1, 1, 0.5, 0.25, 1]))
    assert scores["Hits@1"].pooled == pytest.approx(5 / 7)
    assert scores["Hits@1"].mean == pytest.approx((1 + 0 + 0.5) / 3)
    assert (scores["MRR"].sentences, scores["MRR"].pairs) == (3, 7)


def test_bootstrap_against_scipy():
    rng = np.random.default_rng(1)
    weight = rng.integers(1, 9, 300)
    value = rng.beta(2, 1, 300)
    found = estimate(value, weight, draws=4000)

    def pooled(v, w, axis):
        return (v * w).sum(axis) / w.sum(axis)

    options = {"method": "percentile", "n_resamples": 4000, "vectorized": True, "rng": np.random.default_rng(2)}
    mean = stats.bootstrap((value,), np.mean, **options).confidence_interval
    both = stats.bootstrap((value, weight), pooled, paired=True, **options).confidence_interval
    width = mean.high - mean.low
    assert np.allclose(found.interval, mean, atol=0.05 * width)
    assert np.allclose(found.pooled_interval, both, atol=0.05 * width)
    assert estimate(value, weight) == estimate(value, weight)
    assert estimate(value, weight, seed=1).interval != estimate(value, weight).interval
    narrow = estimate(value, weight, level=0.5).interval
    assert found.interval[0] < narrow[0] < narrow[1] < found.interval[1]


def test_plan_against_pot():
    rng = np.random.default_rng(3)
    target, source = rng.normal(size=(7, 5)), rng.normal(size=(9, 5))
    for unit in (True, False):
        y, x = (t / np.linalg.norm(t, axis=1, keepdims=True) if unit else t for t in (target, source))
        settings = {"method": "sinkhorn_log", "stopThr": 1e-12, "numItermax": 20_000}
        right = ot.sinkhorn(ot.unif(7), ot.unif(9), ot.dist(y, x), 0.5, **settings)
        assert np.abs(embedding_plan(target, source, reg=0.5, unit=unit, tol=1e-10) - right).max() < 1e-9


@needs_data
def test_fasttext_numbers():
    """data/README.md: 373 words, λ = 0.05, OT Hits@1 0.965, nearest neighbour 0.863 (an English word ranks French ones)."""
    dictionary = muse("en-fr")
    with np.load(Path(DATA or "", "word_vectors", "fasttextM_aligned_en_fr_300d.npz")) as file:
        X, Y = file["en_vecs"], file["fr_vecs"]
        place = {str(word): k for k, word in enumerate(file["fr_words"])}
        listed = [[place[f] for f in dictionary[str(e)] if f in place] for e in file["en_words"]]
    first = {fs[0]: i for i, fs in reversed([*enumerate(listed)]) if fs}
    J, I = [*first], [*first.values()]
    assert len(J) == 373
    plan = embedding_plan(X[I], Y[J])  # rows English
    pairs = [(k, k) for k in range(373)]
    unit = [t / np.linalg.norm(t, axis=1, keepdims=True) for t in (X[I], Y[J])]
    assert round(float(sentence_scores(ranks(plan, pairs))[1]), 3) == 0.965
    assert round(float(sentence_scores(ranks(unit[0] @ unit[1].T, pairs))[1]), 3) == 0.863


def test_likeness_against_scipy():
    rng = np.random.default_rng(4)
    A, P = rng.dirichlet(np.ones(6), size=(3, 5)), embedding_plan(rng.normal(size=(5, 3)), rng.normal(size=(6, 3)), reg=0.3)
    found = likeness(torch.tensor(A), P)
    for k in range(3):
        rows = [0.5 * np.abs(A[k, i] - 5 * P[i]).sum() for i in range(5)]
        assert found.distance[k] == pytest.approx(np.mean(rows), abs=1e-6)  # a softmax: the mean over rows
        assert found.row_entropy[k] == pytest.approx(stats.entropy(A[k], axis=1).mean() / np.log(6))
        columns = A[k].sum(0) / 5
        assert found.column_entropy[k] == pytest.approx((columns * stats.entropy(A[k], axis=0)).sum() / np.log(5))
        assert found.marginal_error[k] == pytest.approx(np.abs(columns - 1 / 6).sum(), abs=1e-5)
    alone = likeness(A[1], P)
    assert alone.distance == pytest.approx(found.distance[1], abs=1e-15)
    assert isinstance(alone.row_entropy, float)


def test_likeness_at_its_ends():
    P = np.eye(4) / 4
    plan, uniform, away = likeness(8 * P, P), likeness(np.ones((4, 4)), P), likeness(np.roll(P, 1, axis=1), P)
    assert (plan.distance, plan.marginal_error, plan.row_entropy, plan.column_entropy) == (0, 0, 0, 0)
    assert uniform.distance == uniform.uniform == plan.uniform == pytest.approx(3 / 4)
    assert (uniform.row_entropy, uniform.column_entropy) == pytest.approx((1, 1))
    assert (away.distance, away.marginal_error) == (1, 0)
    assert likeness([[1.0], [0.0]], [[1.0], [1.0]]).row_entropy == 0  # one column: nothing to choose; a row without mass


def test_bad_input():
    A = np.ones((2, 3))
    for call, message in [
        (lambda: ranks(A, [(3, 0)]), r"^pairs must have source word < 3 and target word < 2, got \(3, 0\)$"),
        (lambda: ranks(A, [(0, -1)]), "target word < 2"),
        (lambda: ranks([1.0], []), r"^matrix must be numbers in rows and columns, got shape \(1,\) of float64$"),
        (lambda: ranks(A, [], ties="mean"), "^ties must be one of best, worst, got 'mean'$"),
        (lambda: sentence_scores([0, 1]), "^ranks must be at least 1, got 0$"),
        (lambda: sentence_scores([1], at=(0,)), "^at must be a whole number of at least 1"),
        (lambda: estimate([1.0], [0]), "^pairs must not be 0 in every sentence, got 1 sentences"),
        (lambda: estimate([1.0], [1, 2]), r"shapes \(N, ...\) and \(N,\), got \(1,\) and \(2,\)$"),
        (lambda: estimate([np.nan], [1]), "^values must be finite where"),
        (lambda: estimate([], []), "^pairs must not be 0 in every sentence, got 0 sentences"),
        (lambda: estimate([1.0], [1], level=95), "^level must be between 0 and 1, got 95$"),
        (lambda: embedding_plan([[0.0, 0.0]], [[1.0, 0.0]]), "^target must not have vectors of length 0, got one in row 0$"),
        (lambda: embedding_plan([[np.nan]], [[1.0]]), "^target must be finite"),
        (lambda: likeness(A, A.T), r"^matrix and plan must have the same rows and columns, got \(2, 3\) and \(3, 2\)$"),
        (lambda: likeness(-A, A), "^matrix must have words and entries that are finite and not negative"),
        (lambda: likeness(A, 0 * A), "^plan must have mass, got only zeros$"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
