"""The aligner out of the box: links on sentences, the fall-back by spelling, directions, and lines there and back."""

import json
import pickle
import re
from importlib.resources import files

import numpy as np
import pytest

from otformer.words.align.aligners import Aligner
from otformer.words.align.confidence import CURVES
from otformer.words.align.hmm.word_parts import dice, letter_pairs
from otformer.words.align.methods import Hmm, Spelling, Vectors, method, spelling_similarity
from otformer.words.align.vectors import WordVectors
from otformer.words.aligning import Alignment, AlignWork, align, pack, unpack
from otformer.words.text.examples import examples
from otformer.words.text.languages import LANGUAGES, LanguagePair
from otformer.words.text.text import Pair, words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "languages", "most"),
    [
        ("vectors", "en-fr", 0.14),
        ("vectors", "de-en", 0.13),
        ("hmm", "en-fr", 0.11),
        ("hmm", "de-en", 0.12),
        ("attention", "en-fr", 0.07),
        ("attention", "de-en", 0.10),
    ],
)
def test_examples_are_aligned_in_both_directions(way, languages, most):
    """AER by its definition for sure links alone, 1 − 2|A∩S| / (|A| + |S|); the bounds leave room for other training."""
    for name in (languages, str(LanguagePair.of(languages).reversed)):
        gold = examples(name)
        found = align([e.line for e in gold], name, way, by="spaces")
        right = sum(len(A & e.links) for A, e in zip(found, gold, strict=True))
        said, sure = sum(map(len, found)), sum(len(e.links) for e in gold)
        assert 1 - 2 * right / (said + sure) < most, name


@pytest.mark.parametrize("way", ["vectors", "hmm", "attention"])
def test_directions_are_each_other_exchanged(way):
    pair = "The old man reads a book .", "Le vieil homme lit un livre ."
    there, back = align([pair], "en-fr", way)[0], align([pair[::-1]], "fr-en", way)[0]
    assert there == {(j, i) for i, j in back} == {(k, k) for k in range(7)}


ODD = [
    ("Mr. Smith's dog bit 27 people at 5:30 p.m.!", "Le chien de M. Smith a mordu 27 personnes à 17h30 !"),
    ("See https://a.org/b?c=1 😀 #tag", "Voir https://a.org/b?c=1 😀 #tag"),
    ("THE UNITED STATES", "LES ÉTATS-UNIS"),
    ("the the the", "le"),
    ("die Straße", "la rue"),  # another language
    (".", "…"),
    ("\u200b x", "ß"),
]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["vectors", "hmm", "attention"])
@pytest.mark.parametrize(("there", "back"), [("en-fr", "fr-en"), ("de-en", "en-de")])
def test_odd_text_is_answered_alike_from_both_sides_alone_or_together(way, there, back):
    """Scores are shares of a word, mirrored when languages change places, and no sentence's answer hangs on the others."""
    given = [tuple(words(side) for side in pair) for pair in ODD]
    found = method(way, there).scores(given)
    mirrored = method(way, back).scores([(f, e) for e, f in given])
    for pair, P, Q in zip(given, found, mirrored, strict=True):
        np.testing.assert_allclose(P, Q.T, atol=1e-5)
        np.testing.assert_allclose(P, method(way, there).scores([pair])[0], atol=1e-5)
        assert P.min() >= 0
        assert max(P.sum(0).max(), P.sum(1).max()) <= 1 + 1e-5


def test_shipped_data_are_small():
    for name in ("en-fr", "de-en"):
        for kind, most in (("vectors", 1.6e6), ("hmm", 2e6)):
            assert len(files("otformer.words").joinpath("data", f"{kind}.{name}.npz").read_bytes()) <= most


def test_words_are_linked_where_a_piece_is():
    """du is "de le", don't is "do not", and what stands between spaces already is cut no further."""
    there = align(["I don't speak of the cat ||| Je ne parle pas du chat"], method="hmm")[0]
    assert {(5, 5), (3, 4)} <= there
    assert {(1, 1), (1, 3)} & there
    apart = align([("I do not speak of the cat .", "je ne parle pas de le chat .")], method="hmm", by="spaces")[0]
    assert {(0, 0), (2, 3), (3, 2), (4, 4), (5, 5), (6, 6), (7, 7)} <= apart


def test_scores_are_plans_of_the_mean_of_the_models():
    """Against the marginals: no word gives or takes more than its whole weight, and a mean of one model is that model."""
    shipped = method("hmm", "de-en")
    pairs = [(["Der", "Hund", "schläft", "."], ["The", "dog", "is", "asleep", "."])]
    (P,) = shipped.scores(pairs)
    assert P.shape == (5, 4)
    assert (P >= 0).all()
    assert max(P.sum(0).max(), P.sum(1).max()) < 1 + 1e-5
    alone, twice = (Hmm(shipped.models[:1] * k, LanguagePair("de", "en")).scores(pairs)[0] for k in (1, 2))
    np.testing.assert_allclose(alone, twice, atol=1e-12)


def test_words_without_vectors_go_by_their_looks():
    """Vectors that know no word of the sentences: only names, numbers and punctuation can be right."""
    nothing = WordVectors(("zzzz",), np.ones((1, 8)))
    way = Vectors(nothing, nothing, Aligner(diagonal=0.0))
    source = ["Zagreb", "1,204", "Kowalski", "!"]
    target = ["1.204", "?", "Kowalsky", "Zagreb"]
    assert way.links(way.scores([(source, target)])[0]) == {(0, 3), (1, 0), (2, 2), (3, 1)}


def test_spelling_by_hand():
    # <n na at ti io on n> and <n na az zi io on n>: 5 of 7 and 7 are common
    assert dice(letter_pairs("nation"), letter_pairs("nazion")) == pytest.approx(10 / 14)
    expected = {
        ("Haus", "haus", -0.3): 1.0,
        ("1998", "2001", 0.9): 0.0,
        (",", "chat", 0.9): 0.0,
        ("1998", "chat", 0.4): 0.4,  # the year has a word: vectors may know
        ("cat", "dog", 0.25): 0.25,
    }
    assert {given: spelling_similarity(*map(Spelling.of, given[:2]), given[2]) for given in expected} == expected


def test_empty_sentences_and_plain_pairs():
    found = align([Pair("", ""), ("The cat", "Le chat"), "", ("word", "")])
    assert found == [frozenset(), {(0, 0), (1, 1)}, frozenset(), frozenset()]
    assert align([]) == []


def test_one_text_gives_one_alignment_with_its_words_and_scores():
    found = align("The black cat ||| Le chat noir")
    assert found == {(0, 0), (1, 2), (2, 1)} == align([("The black cat", "Le chat noir")])[0]
    assert (found.source_words, found.target_words) == (("The", "black", "cat"), ("Le", "chat", "noir"))
    assert found.words == [("The", "Le"), ("black", "noir"), ("cat", "chat")]
    assert (str(found), repr(found)) == ("0-0 1-2 2-1", "Alignment(The–Le, black–noir, cat–chat)")
    (P,) = method("hmm", "en-fr").scores([(found.source_words, found.target_words)])
    np.testing.assert_allclose(found.matrix, P, atol=1e-6)
    p = 1 / (1 + np.exp(-(CURVES["hmm", "en-fr"].slope * np.log(P / (1 - P)) + CURVES["hmm", "en-fr"].offset)))
    assert found.scores == pytest.approx({(i, j): p[j, i] for i, j in found}, abs=1e-4)
    assert found.coverage == pytest.approx(min(p.max(0).mean(), p.max(1).mean()), abs=1e-4)
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.scores, again.words, again.coverage) == (found, found.scores, found.words, found.coverage)
    assert len({found, frozenset(found)}) == 1  # as the set that it is


@pytest.mark.parametrize("matrix", [True, False])
def test_chunks_are_packed_and_come_back(matrix):
    pairs = [Pair("The cat sleeps", "Le chat dort"), Pair("", ""), Pair("one\x85two\u2028x", "un \udc80"), Pair("a b", "")]
    found = AlignWork(matrix=matrix, by="spaces")()(pairs)
    back = unpack(pack(found))
    assert [(a, a.scores, a.source_words, a.target_words, a.coverage) for a in back] == [
        (a, a.scores, a.source_words, a.target_words, a.coverage) for a in found
    ]
    assert back[2].source_words == ("one", "two", "x")
    for a, b in zip(found, back, strict=True):
        if matrix:
            assert (b.matrix.dtype, b.matrix.shape) == (np.float32, (len(a.target_words), len(a.source_words)))
            np.testing.assert_array_equal(a.matrix, b.matrix)
        else:
            assert a.matrix is b.matrix is None
    if not matrix:
        with pytest.raises(ValueError, match=r"^the matrix was not kept"):
            back[0].grid()


def test_lines_of_every_form():
    pair = Alignment({(1, 0): 0.996, (0, 1): 0.5}, ["a", "b"], ["x", "y"], np.array([[0.1, 0.996], [0.5, 0.0]]))
    assert pair.line() == "0-1 1-0"
    assert pair.line(scores=True) == "0-1:0.50 1-0:1.00"
    assert pair.line("tokens") == "a b ||| x y ||| 0-1 1-0"
    assert json.loads(pair.line("json")) == {
        "source": ["a", "b"],
        "target": ["x", "y"],
        "links": [[0, 1], [1, 0]],
        "scores": [0.5, 0.996],
        "coverage": None,
    }
    assert pair.line("naacl", number=3) == "3 1 2\n3 2 1"
    assert pair.line("naacl", scores=True) == "1 1 2 P 0.50\n1 2 1 S 1.00"
    assert pair.grid() == ["      a     b", "x  0.10  1.00", "y  0.50  0.00"]
    assert Alignment({(0, 0): 0.9}, ["a"], ["x", "yy"]).table() == ["a  x 0.90", "–  yy"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: align(["a ||| b"], "en-es"), f"languages must be one of {', '.join(LANGUAGES)}, got 'en-es'"),
        (lambda: align(["a ||| b"], method="magic"), "method must be one of auto, hmm, attention, vectors"),
        (lambda: align(["a ||| b"], by="letters"), "by must be one of words, spaces"),
        (lambda: align(["no bar"]), "must have one ||| between two sentences"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
