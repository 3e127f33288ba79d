"""The comparison of aligners: one tokenisation for all, settings chosen on the examples and news, missing peers named."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import aligners
import aligners_encoder as encoder
import aligners_systems as systems
import aligners_translator as translator
from aligners_text import Set, example_set, news_aer, word_links

from otformer.words.align.hmm.word_parts import WordParts, parts_to_words, split_contractions, word_parts
from otformer.words.text.gold import Gold, score_links


def test_words_are_cut_as_the_training_text():
    made = word_parts(["Feriez-vous", "du", "l'", "Mr.", "'s", "...", "cannot"], "fr")
    assert made.parts == ["feriez", "vous", "de", "le", "le", "mr", "'s", "...", "cannot"]
    assert made.owner == [0, 0, 1, 1, 2, 3, 4, 5, 6]
    assert split_contractions("cannot", "en") == ["can", "not"]
    assert split_contractions("isn't", "en") == ["is", "not"]
    assert split_contractions("des", "de") == ["des"]


def test_links_of_pieces_become_links_of_words():
    source, target = WordParts(["do", "not"], [0, 0]), WordParts(["ne", "pas"], [0, 1])
    assert word_links({(1, 0), (1, 1), (0, 1)}, source, target) == {(0, 0), (0, 1)}


def test_matrices_of_pieces_take_the_largest():
    source, target = WordParts(["a", "b", "c"], [0, 0, 1]), WordParts(["d", "e"], [0, 0])
    assert parts_to_words(np.array([[0.1, 0.5, 0.3], [0.7, 0.2, 0.2]]), source, target).tolist() == [[0.7, 0.3]]


def test_news_counts_links_that_touch_a_gold_word():
    """Of four links one is right, one joins two words of no gold link; gold has two: 1 − 2 · 1 / (3 + 2)."""
    gold = [Gold(frozenset({(0, 0), (3, 3)}), frozenset({(0, 0), (3, 3)}))]
    assert news_aer([frozenset({(0, 0), (0, 1), (2, 3), (2, 2)})], gold) == pytest.approx(0.6)


def test_every_example_has_pieces_for_all_its_words():
    for languages in ("en-fr", "de-en"):
        which = example_set(languages)
        for source, target, gold in zip(which.source, which.target, which.gold, strict=True):
            assert max(i for i, _ in gold.sure) <= source.owner[-1]
            assert max(j for _, j in gold.sure) <= target.owner[-1]
            assert sorted(set(source.owner)) == list(range(source.owner[-1] + 1))


def test_grow_diag_final_and_adds_only_words_that_are_both_alone():
    first, second = frozenset({(0, 0), (3, 3), (5, 0)}), frozenset({(0, 0), (0, 3)})
    assert systems.merge(first, second, "grow-diag-final-and") == {(0, 0), (3, 3)}
    assert systems.merge(first, second, "grow-diag-final") == {(0, 0), (3, 3), (5, 0)}


@pytest.fixture
def sets():
    """Three sets of one sentence pair: on the examples and on news (0, 0) is right, on the gold (1, 1)."""
    words, two = [(["a", "b"], ["a", "b"])], [WordParts(["a", "b"], [0, 1])]
    right = {"examples": frozenset({(0, 0)}), "news": frozenset({(0, 0)}), "gold": frozenset({(1, 1)})}
    return [Set(name, words, two, two, [Gold(links, links)]) for name, links in right.items()]


def test_settings_are_chosen_on_the_examples_and_news_alone(sets):
    answers = {"gold": {(1, 1)}, "diagonal": {(0, 0)}, "half": {(0, 0), (1, 0)}}
    choices = {name: lambda k, name=name: [frozenset(answers[name])] for name in answers}
    row, score = aligners.measure(systems.System("both", False, systems.Trained(lambda: choices), lambda made: made), sets)
    assert (row.setting, row.examples_aer, row.news_aer, row.aer) == ("diagonal", 0, 0, 100)
    assert score.counts.tolist() == [[0, 0, 1, 1]]
    assert aligners.table([row], "gold")[2].startswith("| both | no | diagonal | 0.0 | 0.0 | 100.0 (100.0–100.0) |")


def test_what_ships_is_compared_on_the_same_sentences():
    """Two systems that differ by one link in every sentence: AER 0 and 1/3, and no draw of sentences says otherwise."""
    gold = [Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)}))] * 5
    ours, peer = (score_links([links] * 5, gold) for links in ({(0, 0), (1, 1)}, {(0, 0)}))
    assert aligners.ahead(ours, peer) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    for mine in aligners.SHIPPED:
        said = list(aligners.compared({("eflomal", "yes"): peer, (mine, "no"): ours, ("HMM", "no"): peer}))
        assert said == [f"{mine}, ahead of eflomal (sees text: yes) by 33.3 points of AER (33.3 to 33.3)"]
    assert not list(aligners.compared({("eflomal", "yes"): peer}))


def test_short_and_long_sentences_are_told_apart():
    """One sentence of 2 words, right; one of 20 with one link of two sure ones: AER 0 and 1/3; none is longer."""
    gold = [Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)}))] * 2
    which = Set.of("gold", "en-fr", [(["a"] * 2, ["b"] * 2), (["a"] * 20, ["b"] * 20)], gold)
    score = score_links([{(0, 0), (1, 1)}, {(0, 0)}], gold)
    (said,) = aligners.by_length({(aligners.SHIPPED[0], "no"): score, ("HMM", "no"): score}, which)
    expected = "from 1 words: AER 0.0, 1.00 links per word; from 16 words: AER 33.3, 0.05 links per word"
    assert said == f"{aligners.SHIPPED[0]}; {expected}"


def test_our_ways_and_two_directions_find_clear_links(sets):
    S = np.array([[0.9, 0.1], [0.0, 0.8]])
    for how in aligners.MATCHES:
        for setting, answer in systems.our_choices(how, [[S]] * 3).items():
            assert answer(0)[0] <= {(0, 0), (1, 1)}, setting
    joined = systems.joined_choices(([[S]] * 3, [[S]] * 3))
    assert joined["> 0.3, null 3"](2) == [frozenset({(0, 0), (1, 1)})]


def test_what_was_trained_is_kept_and_made_again_for_another_text(tmp_path):
    made = []

    def make(text):
        made.append(text)
        return len(text)

    for text, expected in (("ab", 1), ("ab", 1), ("abc", 2)):
        trained = systems.Trained(make, text, keep=(tmp_path / "models", "length"))
        assert (trained.value, len(made)) == (len(text), expected)
        assert trained.seconds > 0
    assert len(list((tmp_path / "models").iterdir())) == 2


@pytest.mark.slow
def test_layers_of_an_encoder(sets, tmp_path):
    """Cosines by numpy from the network's own hidden states; attention rows add up to one."""
    from helpers import tiny_models
    from otformer.words.models.attention import read
    from otformer.words.models.models import load
    from otformer.words.text.text import Pair

    folder = tiny_models.bert(tmp_path / "bert")
    found = encoder.layers(folder, sets)
    (reading,) = read(load(folder), [Pair("a b", "a b")], by="spaces", states=True)
    source, target = (reading.states[side][1] for side in ("source", "target"))
    expected = [[t @ s / np.linalg.norm(t) / np.linalg.norm(s) for s in source] for t in target]
    np.testing.assert_allclose(found.hidden[1][2][0], expected, atol=1e-5)
    forward, backward = found.attention[0]
    np.testing.assert_allclose(forward[0][0].sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(backward[0][0].sum(0), 1, atol=1e-5)
    assert 0 <= encoder.best_layer(found, sets) < len(found.hidden) == len(found.attention) + 1
    assert "layer 1, > 0.3, null 3" in encoder.attention_choices(found, systems.joined_choices)


@pytest.mark.slow
def test_heads_of_translators(sets, tmp_path):
    """The head is the one, by brute force, whose best links are most often right; the other way comes turned round."""
    from helpers import tiny_models
    from otformer.words.align.attention_head import AttentionHead

    folder = tiny_models.marian(tmp_path / "marian", layers=2, heads=2)
    words = [(["the", "cat", "sleeps"], ["le", "chat", "dort"]), (["the", "house"], ["la", "maison"])]
    right = [Gold(links, links) for links in (frozenset({(0, 0), (1, 1), (2, 2)}), frozenset({(0, 0), (1, 1)}))]
    sets = [Set.of(name, "en-fr", words, right) for name in ("examples", "news", "gold")]
    for exchanged in (False, True):
        chosen = translator.best_head(folder, sets, exchanged)
        hits = {}
        for layer, head in itertools.product((1, 2), (1, 2)):
            found = AttentionHead.of(folder, layer, head).attention([pair[::-1] if exchanged else pair for pair in words])
            hits[f"head {head} of layer {layer}"] = sum(int((A.argmax(1) == np.arange(len(A))).sum()) for A in found), found
        best = hits[chosen.name]
        assert best[0] == max(count for count, _ in hits.values())
        for A, B in zip(best[1], chosen.matrices[2], strict=True):
            np.testing.assert_allclose(B, A.T if exchanged else A, atol=1e-6)
    _, shared = translator.directions(chosen)
    np.testing.assert_allclose(shared[0][0].sum(0), 1)
    assert translator.directions(chosen, chosen)[1] is chosen.matrices


def test_a_missing_peer_is_named(sets, monkeypatch, capsys, tmp_path):
    text = [(["a", "b"], ["a", "b"])] * 20
    given = {"training_parts": text, "example_set": sets[0], "news_set": sets[1], "gold_set": sets[2]}
    for name, value in given.items():
        monkeypatch.setattr(aligners, name, lambda _, value=value: value)
    for name in ("eflomal", "simalign", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    out = tmp_path / "rows.csv"
    aligners.main(["--languages", "en-fr", "--out", str(out), "--encoder", str(tmp_path), "--translators", str(tmp_path)])
    said = capsys.readouterr().out
    for name in ("eflomal", "vectors: SimAlign itermax", "encoder", "translator", aligners.SHIPPED[1]):
        assert f"{name}: missing, not installed" in said
    for name in (
        "vectors: null",
        "vectors: method vectors, as shipped",
        "HMM, joined",
        aligners.SHIPPED[0],
        "method hmm, settings chosen again",
    ):
        assert f"| {name}" in said
    assert len(out.read_text().splitlines()) == said.count("\n| ") - 1
