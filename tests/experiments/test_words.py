"""Experiments on sentences and word vectors: every measure against POT, scipy or hand-made cases, at both sizes."""

from __future__ import annotations

import itertools

import numpy as np
import ot
import pytest
from scipy import stats

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
from helpers.small_data import ENTRIES, run
from otformer.lab.experiments import _sentences as sentences
from otformer.lab.experiments import embedding_ot, fox, translation_attention
from otformer.lab.experiments.embedding_ot import EVERY, GAIN, PERMUTATION, SENTENCE, Scores, Setting, known
from otformer.lab.experiments.experiment import Context
from otformer.words.align.vectors import WordVectors
from otformer.words.models.shipped import folder
from otformer.words.text.examples import examples
from otformer.words.text.text import Pair

# Models


def test_a_folder_of_ones_own_goes_first(tiny, monkeypatch) -> None:
    monkeypatch.setenv("OTFORMER_MODELS", str(tiny))
    assert folder("bert-en-fr") == tiny / "bert-en-fr"
    monkeypatch.setenv("OTFORMER_MODELS", str(tiny / "de-en"))  # which has no such model
    assert (folder("bert-en-fr") / "config.json").is_file()
    assert tiny not in folder("bert-en-fr").parents


def test_a_missing_model_is_named_with_the_command_that_makes_it(tiny, monkeypatch) -> None:
    with pytest.raises(ValueError, match=r"^model 'en-xx' is not there: `python -m otformer.lab.translators` makes .*$"):
        folder("en-xx")
    monkeypatch.setenv("OTFORMER_MODELS", str(tiny / "nowhere"))
    with pytest.raises(ValueError, match=r"^OTFORMER_MODELS must name a folder of model folders, got '.*nowhere'$"):
        folder("en-fr")


def test_a_model_of_another_kind_is_refused(tiny, tmp_path, monkeypatch) -> None:
    (tmp_path / "bert-en-fr").symlink_to(tiny / "en-fr")
    (tmp_path / "en-fr").symlink_to(tiny / "bert-en-fr")
    monkeypatch.setenv("OTFORMER_MODELS", str(tmp_path))
    with pytest.raises(ValueError, match="must be an encoder, got a translation model"):
        run(fox)
    with pytest.raises(ValueError, match="must be a translation model, got an encoder model"):
        run(translation_attention)


# Sentences


@pytest.mark.parametrize(("languages", "count"), [("en-fr", 60), ("de-en", 40)])
def test_gold_of_the_shipped_pairs_is_one_to_one(languages, count) -> None:
    given = sentences.shipped(languages)
    assert len(given.pairs) == len(given.gold) == count
    for pair, gold, example in zip(given.pairs, given.gold, examples(languages), strict=True):
        assert [len(side.split()) for side in pair] == [len(side) for side in example[:2]]
        for i, j in example.links:
            alone = sum(link[0] == i or link[1] == j for link in example.links) == 1
            assert ((i, j) in gold) == alone


def test_gold_of_the_news_is_of_words_that_stand_there_once(small) -> None:
    given = sentences.news("en-fr", 3, 0)
    words = [tuple(side.split() for side in pair) for pair in given.pairs]
    for (source, target), gold, every in zip(words, given.gold, given.every, strict=True):
        pairs = {(i, j) for i, e in enumerate(source) for j, f in enumerate(target) if f"{e} {f}" in ENTRIES}
        assert set(every) == pairs
        assert set(gold) == {(i, j) for i, j in pairs if sum(k == i or l == j for k, l in pairs) == 1}


# Transport between word vectors


def made(source: str, target: str, gold, every=None) -> Setting:
    """Vectors of a few words: x is the unit circle by the letter's number, and words with a z have none."""
    sides = [sorted({word for word in side.split() if "z" not in word}) for side in (source, target)]
    rng = np.random.default_rng(len(source))
    vectors = [WordVectors(tuple(side), rng.standard_normal((len(side), 4))) for side in sides]
    corpus = sentences.Corpus([Pair(source, target)], [gold], [every or gold], "spaces", "made")
    return Setting("made", "en-fr", *vectors, corpus)


def test_words_without_a_vector_leave_and_gold_moves_with_the_others() -> None:
    setting = made("a zb c d", "ze f g ha", [(0, 1), (1, 2), (2, 3)], [(0, 1), (3, 1), (0, 0)])
    found = known(setting, 0)
    assert (found.source, found.target) == (["a", "c", "d"], ["f", "g", "ha"])
    assert (found.gold, found.every) == ([(0, 0), (1, 2)], [(0, 0), (2, 0)])
    x, y = setting.source.matrix, setting.target.matrix
    for (j, f), (i, e) in itertools.product(enumerate(["f", "g", "ha"]), enumerate("acd")):
        v, w = y[setting.target.row(f)], x[setting.source.row(e)]
        assert found.cosines[j, i] == pytest.approx(v @ w / np.linalg.norm(v) / np.linalg.norm(w), abs=1e-12)
    alone = embedding_ot.permutation(found)
    assert (alone.source, alone.target, alone.gold) == (["a", "c"], ["f", "ha"], [(0, 0), (1, 1)])
    assert np.array_equal(alone.cosines, found.cosines[[0, 2]][:, [0, 1]])


def test_plans_are_those_of_pot() -> None:
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (5, 2)]
    given = [embedding_ot.Known([], [], 0.2 * rng.random(shape), [], []) for shape in shapes]
    for each, plan in zip(given, embedding_ot.plans(given), strict=True):
        m, n = each.cosines.shape
        wanted = ot.sinkhorn(np.full(m, 1 / m), np.full(n, 1 / n), 2 - 2 * each.cosines, 0.05, stopThr=1e-10)
        assert np.abs(plan - wanted).max() < 1e-6


def test_scores_of_a_case_where_transport_is_right_and_the_nearest_word_is_not() -> None:
    cosines = np.array([[0.9, 0.8], [0.8, 0.1]])  # both rows want the first column; together they want the other diagonal
    given = [embedding_ot.Known(["a", "b"], ["c", "d"], cosines, [(1, 0), (0, 1)], [(0, 0), (1, 0), (0, 1)])]
    found = embedding_ot.score_readings(given)
    assert found[SENTENCE].values[0].tolist() == [[1, 1, 1], [0.75, 0.5, 1]]  # rows: OT, nearest; MRR, Hits@1, Hits@3
    assert found[PERMUTATION].values[0].tolist() == [[1, 1, 1], [0.75, 0.5, 1]]
    hits = found[EVERY].values[0, :, 1]
    assert hits == pytest.approx([2 / 3, 2 / 3])  # of two partners one is at rank 1
    assert found[EVERY].pairs.tolist() == [3]


def test_the_gain_is_the_paired_difference_with_its_interval() -> None:
    rng = np.random.default_rng(3)
    values, pairs = rng.random((80, 2, 3)), rng.integers(1, 9, 80)
    found = dict(zip(GAIN, embedding_ot.gain(Scores(values, pairs), 0), strict=True))
    difference = values[:, 0, 1] - values[:, 1, 1]
    drawn = stats.bootstrap((difference,), np.mean, n_resamples=9999, method="percentile", rng=1).confidence_interval
    assert found["OT − nearest"] == pytest.approx(difference.mean(), abs=1e-12)
    assert (found["OT − nearest, low"], found["OT − nearest, high"]) == pytest.approx(tuple(drawn), abs=0.01)
    assert found["OT − nearest, pooled"] == pytest.approx(np.average(difference, weights=pairs), abs=1e-12)


def test_embedding_ot_at_both_sizes(small) -> None:
    quick, full = run(embedding_ot), run(embedding_ot, Context(full=True))
    assert {(row["vectors"], row["languages"]) for row in quick.rows} == {("ours", "en-fr"), ("ours", "de-en")}
    assert {row["vectors"] for row in full.rows} == {"fasttextM", "ours"}
    for outcome in (quick, full):
        assert len(outcome.rows) == 6 * len(outcome.settings["corpora"])
        for ours, nearest in zip(outcome.rows[::2], outcome.rows[1::2], strict=True):
            assert (ours["method"], nearest["method"]) == ("OT", "nearest")
            assert ours["OT − nearest"] == pytest.approx(ours["Hits@1"] - nearest["Hits@1"], abs=1e-9)
    first = next(row for row in full.rows if row["vectors"] == "fasttextM")
    assert (first["sentences"], first["pairs"]) == (72, 71 * 5 + 3)  # one pair has only one gold pair


def test_without_enough_vocabulary_it_says_so() -> None:
    setting = made("a zb zc", "e f g", [(0, 0), (1, 1)])
    with pytest.raises(ValueError, match=r"^no sentence pair of made has enough words with a vector: made, English–French$"):
        embedding_ot.sentences_with_vectors(setting, Context())


def test_full_size_without_data_says_what_is_missing(small, monkeypatch) -> None:
    monkeypatch.delenv("OTFORMER_DATA")
    for module in (embedding_ot, fox, translation_attention):
        with pytest.raises(ValueError, match=r"^OTFORMER_DATA must name the data folder, got ''$"):
            run(module, Context(full=True))
