"""Dictionaries and gold pairs: against sizes of the official files, brute force, and alignments made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from needs import needs_data
from otformer.words.text.dictionary import REPEATED, SEVERAL, SPLITS, Dictionary, gold_pairs, muse, read_dictionary
from otformer.words.text.gold import read_gold
from otformer.words.text.text import fold, read_pairs

DATA = os.environ.get("OTFORMER_DATA")


def test_dictionary():
    d = Dictionary([("a", "x"), ("b", "y"), ("a", "z"), ("a", "x")])
    assert d["a"] == ("x", "z")
    assert len(d) == 3
    assert list(d.inverse()) == [("x", "a"), ("z", "a"), ("y", "b")]
    assert d.joined(Dictionary([("a", "w"), ("b", "y")]))["a"] == ("x", "z", "w")
    assert ("b", "x") not in d
    assert "a" not in d


def test_read(tmp_path):
    file = tmp_path / "en-fr.txt"
    file.write_text("cat chat\n\ncat\tchatte\n", encoding="utf-8")
    assert list(muse("en-fr", folder=tmp_path)) == [("cat", "chat"), ("cat", "chatte")]
    file.write_text("cat chat\nbig cat chat\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"^{file} line 2 must hold two words, got 'big cat chat'$"):
        read_dictionary(file)
    with pytest.raises(ValueError, match=rf"^{tmp_path} holds neither de-en.0-5000.txt nor de-en.0-5000.txt.gz$"):
        muse("de-en", "train", tmp_path)
    with pytest.raises(ValueError, match="languages must be one of"):
        muse("en-it", folder=tmp_path)
    with pytest.raises(ValueError, match="split must be one of"):
        muse("en-fr", "dev", tmp_path)


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(
    ("languages", "pairs"), [("en-fr", 113_286), ("fr-en", 113_324), ("en-de", 101_931), ("de-en", 101_997)]
)
def test_muse_sizes(languages, pairs):
    full, train, test = (muse(languages, split) for split in SPLITS)
    assert len(full) == pairs  # lines of the file, none twice
    assert (len(train.entries), len(test.entries)) == (5000, 1500)
    assert not set(train.entries) & set(test.entries)
    assert set(train) | set(test) <= set(full)


def brute_force(e, f, pairs, repeated, several):
    """The rules as their sentences say them, over all places."""
    found = []
    for i, a in enumerate(e):
        for j, b in enumerate(f):
            listed = [y for x, y in pairs if x == a]
            if b not in listed:
                continue
            here = [y for y in listed if y in f]
            if several == "first" and b != listed[0]:
                continue
            if several == "listed" and b != here[0]:
                continue
            if several == "single" and (len(here) > 1 or len({x for x, y in pairs if y == b and x in e}) > 1):
                continue
            if repeated == "once" and (e.count(a) > 1 or f.count(b) > 1):
                continue
            if repeated == "order" and e[:i].count(a) != f[:j].count(b):
                continue
            if repeated == "first" and (a in e[:i] or b in f[:j]):
                continue
            found.append((i, j))
    return found


@pytest.mark.parametrize("several", SEVERAL)
@pytest.mark.parametrize("repeated", REPEATED)
def test_rules_against_brute_force(several, repeated):
    rng = np.random.default_rng(0)
    differ = 0
    for _ in range(200):
        pairs = list(dict.fromkeys((f"e{a}", f"f{b}") for a, b in rng.integers(6, size=(10, 2))))
        e = [f"e{k}" for k in rng.integers(6, size=rng.integers(0, 9))]
        f = [f"f{k}" for k in rng.integers(6, size=rng.integers(0, 9))]
        right = brute_force(e, f, pairs, repeated, several)
        assert gold_pairs(e, f, Dictionary(pairs), repeated, several) == right
        differ += right != brute_force(e, f, pairs, "all", "all")
    assert (differ > 50) == ((repeated, several) != ("all", "all"))


def test_unknown_rules():
    with pytest.raises(ValueError, match="repeated must be one of once, order, first, all, got 'never'"):
        gold_pairs([], [], Dictionary([]), repeated="never")
    with pytest.raises(ValueError, match="several must be one of"):
        gold_pairs([], [], Dictionary([]), several="once")


@needs_data
@pytest.mark.parametrize(("name", "languages"), [("hansards_en-fr", "en-fr"), ("rwth_de-en", "de-en")])
def test_default_rule_agrees_with_hands(name, languages):
    """Of the default pairs 94 % or more are possible links of the hand-made gold, a higher share than by any other rule."""
    folder = Path(DATA or "", "gold_alignments", name)
    if languages == "en-fr":
        pairs, gold = read_pairs(folder / "test.en-fr.src-tgt"), read_gold(folder / "test.en-fr.talp", one_based=True)
    else:
        pairs, gold = read_pairs(folder / "de", folder / "en"), read_gold(folder / "alignmentDeEn.talp", one_based=True)
    sentences = [(fold(p.source).split(), fold(p.target).split()) for p in pairs]
    d = muse(languages)

    def agreement(**rule: str) -> float:
        found = [(set(gold_pairs(e, f, d, **rule)), g.possible) for (e, f), g in zip(sentences, gold, strict=True)]
        return sum(len(a & p) for a, p in found) / sum(len(a) for a, _ in found)

    default = agreement()
    others = [agreement(repeated=r, several=s) for r in REPEATED for s in SEVERAL if (r, s) != ("once", "single")]
    assert default > 0.94
    assert default > max(others)
