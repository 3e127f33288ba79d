"""The aligner out of the box: links on sentences, the fall-back by spelling, directions, and lines there and back."""

import json
import re
from importlib.resources import files

import numpy as np
import pytest

from otformer.words.align import LANGUAGES, Aligned, AlignWork, Vectors, align, look, method, read_aligned, spelling
from otformer.words.aligners import Aligner
from otformer.words.examples import examples
from otformer.words.text import Pair
from otformer.words.vectors import WordVectors


@pytest.mark.parametrize(("languages", "most"), [("en-fr", 0.14), ("de-en", 0.13)])
def test_examples_are_aligned_in_both_directions(languages, most):
    """AER by its definition for sure links alone, 1 − 2|A∩S| / (|A| + |S|); the bounds leave room for other vectors."""
    for name in (languages, "-".join(reversed(languages.split("-")))):
        gold = examples(name)
        found = align([e.line for e in gold], name, by="spaces")
        right = sum(len(A & e.links) for A, e in zip(found, gold, strict=True))
        said, sure = sum(map(len, found)), sum(len(e.links) for e in gold)
        assert 1 - 2 * right / (said + sure) < most, name


def test_directions_are_each_other_exchanged():
    pair = "The old man reads a book .", "Le vieil homme lit un livre ."
    there, back = align([pair], "en-fr")[0], align([pair[::-1]], "fr-en")[0]
    assert there == {(j, i) for i, j in back} == {(k, k) for k in range(7)}


def test_shipped_vectors_are_small():
    for name in ("en-fr", "de-en"):
        data = files("otformer.words").joinpath("data", f"vectors.{name}.npz")
        assert len(data.read_bytes()) <= 1.6e6


def test_words_without_vectors_go_by_their_looks():
    """Vectors that know no word of the sentences: only names, numbers and punctuation can be right."""
    nothing = WordVectors(("zzzz",), np.ones((1, 8)))
    way = Vectors(nothing, nothing, Aligner(diagonal=0.0))
    source = ["Zagreb", "1,204", "Kowalski", "!"]
    target = ["1.204", "?", "Kowalsky", "Zagreb"]
    assert way.links(way.scores([(source, target)])[0]) == {(0, 3), (1, 0), (2, 2), (3, 1)}


def test_spelling_by_hand():
    # <n na at ti io on n> and <n na az zi io on n>: 5 of 7 and 7 are common
    assert spelling("nation", "nazion") == pytest.approx(10 / 14)
    assert look("Haus", "haus", -0.3) == 1.0
    assert look("1998", "2001", 0.9) == 0.0
    assert look(",", "chat", 0.9) == 0.0
    assert look("1998", "chat", 0.4) == 0.4  # the year has a word: vectors may know
    assert look("cat", "dog", 0.25) == 0.25


def test_empty_sentences_and_plain_pairs():
    found = align([Pair("", ""), ("The cat", "Le chat"), "", ("word", "")])
    assert found == [frozenset(), {(0, 0), (1, 1)}, frozenset(), frozenset()]
    assert align([]) == []


def test_work_gives_a_line_a_pair_and_reads_back():
    pairs = [Pair("The cat sleeps", "Le chat dort"), Pair("", ""), Pair("one\x85two\u2028x", "un")]
    data = AlignWork(matrix=True, by="spaces")()(pairs)
    first, empty, odd = read_aligned(data)
    assert (first.source, first.target) == (["The", "cat", "sleeps"], ["Le", "chat", "dort"])
    assert [link[:2] for link in first.links] == [(0, 0), (1, 1), (2, 2)]
    np.testing.assert_allclose(first.scores(), method("vectors").scores([(first.source, first.target)])[0], atol=1e-6)
    assert all(first.scores()[j, i] == pytest.approx(score, abs=1e-4) for i, j, score in first.links)
    assert empty == Aligned([], [], [], [])
    assert empty.scores().shape == (0, 0)
    assert odd.source == ["one", "two", "x"]


def test_lines_of_every_form():
    pair = Aligned(["a", "b"], ["x", "y"], [(0, 1, 0.5), (1, 0, 0.996)], [[0.1, 0.996], [0.5, 0.0]])
    assert pair.line() == "0-1 1-0"
    assert pair.line(scores=True) == "0-1:0.50 1-0:1.00"
    assert pair.line("tokens") == "a b ||| x y ||| 0-1 1-0"
    assert json.loads(pair.line("json")) == {
        "source": ["a", "b"],
        "target": ["x", "y"],
        "links": [[0, 1], [1, 0]],
        "scores": [0.5, 0.996],
    }
    assert pair.grid() == ["      a     b", "x  0.10  1.00", "y  0.50  0.00"]
    assert Aligned(["a"], ["x", "yy"], [(0, 0, 0.9)]).table() == ["a  x 0.90", "–  yy"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: align(["a ||| b"], "en-es"), f"languages must be one of {', '.join(LANGUAGES)}, got 'en-es'"),
        (lambda: align(["a ||| b"], method="magic"), "method must be one of auto, vectors"),
        (lambda: align(["a ||| b"], by="letters"), "by must be one of words, spaces"),
        (lambda: align(["no bar"]), "must have one ||| between two sentences"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
