"""The comparison of aligners: one tokenisation for all, settings chosen on the examples, missing peers named."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import aligners
import aligners_systems as systems
from aligners_text import Sentence, Set, cut, example_set, sentence, word_links

from otformer.words.gold import Gold


def test_words_are_cut_as_the_training_text():
    made = sentence(["Feriez-vous", "du", "l'", "Mr.", "'s", "...", "cannot"], "fr")
    assert made.pieces == ["feriez", "vous", "de", "le", "le", "mr", "'s", "...", "cannot"]
    assert made.owner == [0, 0, 1, 1, 2, 3, 4, 5, 6]
    assert cut("cannot", "en") == ["can", "not"]
    assert cut("isn't", "en") == ["is", "not"]
    assert cut("des", "de") == ["des"]


def test_links_of_pieces_become_links_of_words():
    source, target = Sentence(["do", "not"], [0, 0]), Sentence(["ne", "pas"], [0, 1])
    assert word_links({(1, 0), (1, 1), (0, 1)}, source, target) == {(0, 0), (0, 1)}


def test_matrices_of_pieces_take_the_largest():
    which = Set("x", [Sentence(["a", "b", "c"], [0, 0, 1])], [Sentence(["d", "e"], [0, 0])], [])
    assert systems.to_words(np.array([[0.1, 0.5, 0.3], [0.7, 0.2, 0.2]]), 0, which).tolist() == [[0.7, 0.3]]


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
    """Two sets of one sentence pair: on the examples (0, 0) is right, on the gold (1, 1)."""
    two = [Sentence(["a", "b"], [0, 1])]
    right = {"examples": frozenset({(0, 0)}), "gold": frozenset({(1, 1)})}
    return [Set(name, two, two, [Gold(links, links)]) for name, links in right.items()]


def test_settings_are_chosen_on_the_examples_alone(sets):
    answers = {"diagonal": [{(0, 0)}, {(0, 0)}], "gold": [{(1, 1)}, {(1, 1)}]}
    choices = {name: lambda k, name=name: [frozenset(answers[name][k])] for name in answers}
    row = aligners.measure(systems.System("both", False, systems.Trained(lambda: choices), lambda made: made), sets)
    assert (row.setting, row.examples_aer, row.aer) == ("diagonal", 0, 100)
    assert aligners.table([row], "gold")[2].startswith("| both | no | diagonal | 0.0 | 100.0 (100.0–100.0) |")


def test_our_ways_and_two_directions_find_clear_links(sets):
    S = np.array([[0.9, 0.1], [0.0, 0.8]])
    for how in aligners.MATCHES:
        for setting, answer in systems.our_choices(how, [[S], [S]]).items():
            assert answer(0)[0] <= {(0, 0), (1, 1)}, setting
    joined = systems.joined_choices(([[S], [S]], [[S], [S]]))
    assert joined["> 0.3, null 3"](1) == [frozenset({(0, 0), (1, 1)})]


def test_matrices_made_elsewhere(sets, tmp_path):
    S = np.arange(4.0).reshape(2, 2)
    np.savez(tmp_path / "one.npz", **{"examples/0": S, "gold/0": S + 1})
    (found,) = systems.read_matrices(tmp_path / "one.npz", sets)
    assert found[1][0].tolist() == (S + 1).tolist()
    names = ("examples/forward/0", "examples/backward/0", "gold/forward/0", "gold/backward/0")
    np.savez(tmp_path / "two.npz", **dict.fromkeys(names, S))
    assert len(systems.read_matrices(tmp_path / "two.npz", sets)) == 2
    np.savez(tmp_path / "bad.npz", **{"examples/0": S, "gold/0": S[:1]})
    with pytest.raises(ValueError, match=r"gold/0 must have shape \(2, 2\), got \(1, 2\)"):
        systems.read_matrices(tmp_path / "bad.npz", sets)


def test_a_missing_peer_is_named(sets, monkeypatch, capsys, tmp_path):
    text = [(["a", "b"], ["a", "b"])] * 20
    for name, value in (("training", lambda _: text), ("example_set", lambda _: sets[0]), ("gold_set", lambda _: sets[1])):
        monkeypatch.setattr(aligners, name, value)
    monkeypatch.setitem(sys.modules, "eflomal", None)
    monkeypatch.setitem(sys.modules, "simalign", None)
    S = np.eye(2)
    sides = ("examples/forward/0", "examples/backward/0", "gold/forward/0", "gold/backward/0")
    np.savez(tmp_path / "attention-en-fr.npz", **dict.fromkeys(sides, S))
    elsewhere = ["--matrices", f"attention={tmp_path}/attention-{{languages}}.npz"]
    aligners.main(["--languages", "en-fr", "--out", str(tmp_path / "rows.csv"), *elsewhere])
    said = capsys.readouterr().out
    assert "eflomal: missing, not installed" in said
    assert "vectors: SimAlign itermax: missing, not installed" in said
    for name in ("vectors: null", "attention: joined", "attention, HMM of words and of stems: joined", "HMM, joined"):
        assert f"| {name}" in said
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == said.count("\n| ") - 1
