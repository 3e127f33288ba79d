"""Labels of words on the words of the translation, and sentences in columns."""

from __future__ import annotations

import random

import pytest

import otformer as of
from otformer.words.projection.conll import blocks, parse_block
from otformer.words.projection.labels import bio, projected, spans


def test_spans_and_words_follow_the_links_that_are_ours():
    sentence = [("Anna", "B-PER"), ("Müller", "I-PER"), ("schläft", "O"), ("in", "O"), ("Berlin", "B-LOC")]
    (found,) = of.words.transfer_labels([sentence], ["In Berlin sleeps Anna Müller"], "de-en")
    assert [label for _, label in found] == ["O", "B-LOC", "O", "B-PER", "I-PER"]
    (found,) = of.words.transfer_labels([[("der", "DET"), ("Hund", "NOUN")]], [["the", "dog"]], "de-en")
    assert found == [("the", "DET"), ("dog", "NOUN")]


@pytest.mark.parametrize(
    ("labels", "links", "size", "result"),
    [
        ("B-A I-A O", {(0, 0), (1, 2)}, 3, "B-A I-A I-A"),  # contiguous
        ("B-A O B-B", {(0, 0), (0, 2), (2, 1)}, 3, "B-A B-B O"),  # not over another span
        ("I-A I-A I-B", {(0, 0), (1, 1), (2, 2)}, 3, "B-A I-A B-B"),  # begins with I-
        ("B-A E-A S-A", {(0, 0), (1, 1), (2, 2)}, 3, "B-A I-A B-A"),  # BIOES
        ("B-A O", {(1, 0)}, 1, "O"),  # without links
        ("O O", {(0, 0)}, 2, "O O"),
        ("DET NOUN", {(1, 0)}, 2, "NOUN _"),
    ],
)
def test_every_rule_by_an_example(labels, links, size, result):
    assert projected(labels.split(), dict.fromkeys(links, 1.0), size) == result.split()


def test_spans_and_labels_are_each_other_s_inverse():
    rng = random.Random(0)
    for _ in range(200):
        cuts = sorted(rng.sample(range(12), 6))
        some = [(cuts[k], cuts[k + 1], rng.choice("AB")) for k in range(0, 6, 2)]
        assert spans(bio(some, 12)) == some


def test_labels_that_come_out_are_those_of_a_brute_search():
    """Parts of speech: for every target word the label of the largest score, by looking at all."""
    rng = random.Random(0)
    for _ in range(100):
        labels = [rng.choice(["X", "Y", "Z"]) for _ in range(5)]
        links = {(i, j): rng.random() for i in range(5) for j in range(4) if rng.random() < 0.4}
        best = [max(((score, i) for (i, k), score in links.items() if k == j), default=None) for j in range(4)]
        assert projected(labels, links, 4) == ["_" if each is None else labels[each[1]] for each in best]


def test_columns_are_read_and_written():
    lines = ["-DOCSTART- -X- O", "", "EU NNP B-ORG", "# # O", "", "", "Peter NNP B-PER", ""]
    found = [(began, parse_block(text, -1)) for began, text in blocks(lines)]
    assert [began for began, _ in found] == [3, 7]
    assert [(block.words, block.labels) for _, block in found] == [(("EU", "#"), ("B-ORG", "O")), (("Peter",), ("B-PER",))]
    rows = ["1-2\tdu\t_", "1\tde\tADP", "2\tle\tDET", "2.1\tx\tX", "3\tdix mille\tNUM"]
    wide = "\n".join(["# sent_id = 7", "# text = du dix mille", *(row + "\t_" * 7 for row in rows)])
    block = parse_block(wide, 3)
    assert (block.words, block.labels) == (("de", "le", "dix mille"), ("ADP", "DET", "NUM"))
    empty = "\t".join("_" * 7)
    assert block.lines("of ten", ["of", "ten"], ["ADP", "NUM"]) == (
        f"# sent_id = 7\n# text = of ten\n1\tof\tADP\t{empty}\n2\tten\tNUM\t{empty}\n"
    )


def test_bad_columns_are_one_line():
    for text, column, said in (
        ("a b\nc", 2, r"^f line 10 must have a label in column 2, got 'c'$"),
        ("\tB", 2, "have a word"),
    ):
        with pytest.raises(ValueError, match=said):
            parse_block(text, column, "f", 9)
    with pytest.raises(ValueError, match="targets must have one for each of 1 sentences, got 0"):
        of.words.transfer_labels([[("a", "O")]], [])
