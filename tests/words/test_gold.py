"""Alignment files and AER: against the numbers published for other systems' outputs, and formulas by hand."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from needs import needs_data
from otformer.words.text.gold import Gold, parse_links, pharaoh, read_gold, score_links

DATA = os.environ.get("OTFORMER_DATA")
FILES = {"hansards_en-fr": "test.en-fr.talp", "rwth_de-en": "alignmentDeEn.talp"}


@needs_data
@pytest.mark.parametrize(
    ("name", "output", "published"),
    [
        ("hansards_en-fr", "baseline.giza.grow-diagonal-final.talp", 6.2),
        ("hansards_en-fr", "mbert_awesome_align.out", 4.1),
        ("rwth_de-en", "baseline.giza.grow-diagonal-final.talp", 20.6),
    ],
)
def test_published_aer(name, output, published):
    folder = Path(DATA or "", "gold_alignments", name)
    gold = read_gold(folder / FILES[name], one_based=True)
    links = [answer.possible for answer in read_gold(folder / output)]
    score = score_links(links, gold)
    assert round(100 * score.aer, 1) == published
    low, high = score.interval()
    assert low < score.aer < high < score.aer + 0.02
    assert score.aer > 1 - score.f1 - 0.02  # AER and F1 differ only by possible links


@needs_data
def test_sizes_of_gold():
    for (name, file), sizes in zip(FILES.items(), [(4038, 13_400), (9613, 921)], strict=True):
        gold = read_gold(Path(DATA or "", "gold_alignments", name, file), one_based=True)
        sure = sum(len(g.sure) for g in gold)
        assert (sure, sum(len(g.possible) for g in gold) - sure) == sizes  # data/README.md


@needs_data
def test_one_based_talp_is_the_zero_based_original():
    """RWTH's own format beside it: SENT: k, then S i j or P i j, from 0."""
    folder = Path(DATA or "", "gold_alignments", "rwth_de-en")
    original: list[tuple[set, set]] = []
    for line in (folder / "alignmentDeEn").read_text().splitlines():
        if line.startswith("SENT:"):
            original.append((set(), set()))
        elif line.strip():
            kind, i, j = line.split()
            original[-1][1].add((int(i), int(j)))
            if kind == "S":
                original[-1][0].add((int(i), int(j)))
    gold = read_gold(folder / "alignmentDeEn.talp", one_based=True)
    assert len(original) == 508
    differ = [k for k in range(508) if (set(gold[k].sure), set(gold[k].possible)) != original[k]]
    assert differ == [k for k in range(508) if any(min(link) < 0 for link in original[k][1])]
    # One link of the original goes to no word (21 to -100); the talp file has it as 21 to 0.
    assert differ == [178]


@needs_data
def test_wrong_base_warns_and_ruins():
    folder = Path(DATA or "", "gold_alignments", "hansards_en-fr")
    with pytest.warns(UserWarning, match="no index 0 in the file"):
        gold = read_gold(folder / "test.en-fr.talp")
    answers = [answer.possible for answer in read_gold(folder / "mbert_awesome_align.out")]
    assert score_links(answers, gold).aer > 0.4


def test_base_of_files(tmp_path):
    file = tmp_path / "a"
    file.write_text("1-1 2p3\n\n")
    with pytest.warns(UserWarning, match=f"^no index 0 in the file {file}: if it counts from 1, use one_based=True$"):
        read_gold(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gold = read_gold(file, one_based=True)
        file.write_text("1-1 2-0\n")
        read_gold(file)
        file.write_text("\n")
        read_gold(file)
    assert gold == [Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 2)})), Gold(frozenset(), frozenset())]
    file.write_text("1-1\n1-0\n")
    with pytest.raises(ValueError, match=rf"^{file} line 2 must count from 1 with one_based, got '1-0'$"):
        read_gold(file, one_based=True)


@pytest.mark.parametrize("bad", ["1", "1-", "-1-2", "1_2", "1-2:3", "a-b", "1--2", "٣-1"])
def test_bad_links(bad):
    with pytest.raises(ValueError, match=r"^the line must hold links like 0-1 or 2p3, got "):
        parse_links(f"0-0 {bad}")


def test_sure_wins_over_possible_and_lines_come_back():
    both = parse_links("0p1 0-1 3-2")
    assert both == (frozenset({(0, 1), (3, 2)}),) * 2
    assert pharaoh(both.sure) == "0-1 3-2"
    assert pharaoh([]) == ""
    assert parse_links(pharaoh({(10, 2), (9, 30)})).sure == {(9, 30), (10, 2)}


def test_formulas():
    gold = [parse_links("0-0 1p1 2-2 3-3"), parse_links("0-0"), parse_links("")]
    said = [{(0, 0), (1, 1), (4, 4)}, set(), {(5, 5)}]
    score = score_links(said, gold)
    # |A∩S| = 1, |A∩P| = 2, |A| = 4, |S| = 4
    assert (score.precision, score.recall) == (2 / 4, 1 / 4)
    assert score.f1 == pytest.approx(2 * 0.5 * 0.25 / 0.75)
    assert score.aer == pytest.approx(1 - 3 / 8)
    assert score.counts.tolist() == [[1, 2, 3, 3], [0, 0, 0, 1], [0, 0, 1, 0]]


def test_extremes():
    gold = [parse_links("0-0 1-1")]
    right, nothing = score_links([gold[0].sure], gold), score_links([()], gold)
    assert (right.aer, right.f1) == (0, 1)
    assert (nothing.aer, nothing.precision, nothing.recall, nothing.f1) == (1, 1, 0, 0)
    empty = score_links([], [])
    assert (empty.aer, empty.precision, empty.recall) == (0, 1, 1)
    wrong = score_links([{(0, 1)}], gold)
    assert (wrong.aer, wrong.f1) == (1, 0)


def test_sentences_must_match_but_for_empty_ones():
    gold = [parse_links("0-0"), parse_links("")]
    assert score_links([{(0, 0)}], gold).aer == 0
    assert score_links([{(0, 0)}, (), ()], gold[:1]).aer == 0
    for said, g in (([], gold), ([{(0, 0)}, {(1, 1)}], gold[:1])):
        with pytest.raises(ValueError, match=f"as many sentences, got {len(said)} and {len(g)}$"):
            score_links(said, g)
