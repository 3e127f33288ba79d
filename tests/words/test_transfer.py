"""Tags of a sentence on its translation: where they go, what is kept, and what is refused."""

from __future__ import annotations

import random
import sys
import time
from html import escape
from pathlib import Path

import pytest

import otformer as of
from helpers.messages import assert_says
from otformer.words.projection.intervals import intervals
from otformer.words.projection.markup import DEEPEST, parse

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from transfer import random_sentence, violations

transfer = of.words.transfer


def test_tags_follow_the_words_that_ours_links_join():
    assert transfer("Der <b>schwarze</b> Hund ||| The black dog", "de-en") == "The <b>black</b> dog"
    found = transfer([("Ich <b>habe</b> den <i>Hund</i> <b>gesehen</b>.", "I have seen the dog.")], "de-en")
    assert found == ["I <b>have</b> <b>seen</b> the <i>dog</i>."]


@pytest.mark.parametrize(
    ("source", "target", "links", "result"),
    [
        ("a <b>b c</b> d", "A B x C D", "0-0 1-1 2-3 3-4", "A <b>B x C</b> D"),  # a word without links is covered
        ("<b>a c</b> <i>b</i>", "A B C", "0-0 1-2 2-1", "<b>A</b> <i>B</i> C"),  # but not one of a sibling
        ("<b>a b c</b> <i>d</i>", "A D B C", "0-0 1-2 2-3 3-1", "A <i>D</i> <b>B C</b>"),  # the stretch with more words
        ("<p>a b</p>", "x A B .", "0-1 1-2", "<p>x A B .</p>"),  # all words of the source are all of the target
        ("<p><b>a</b> b</p>", "B A", "0-1 1-0", "<p>B <b>A</b></p>"),
        ("a <b>b <i>c</i></b>", "C B A", "0-2 1-1 2-0", "<b><i>C</i> B</b> A"),
        ("a b<br/> c", "A B C", "0-0 1-1 2-2", "A B<br/> C"),  # the side that a tag touches is kept
        ("a <img src='x'>b c", "A B C", "0-0 1-1 2-2", "A <img src='x'>B C"),
        ("<br/>a b<!-- x -->", "B A", "0-1 1-0", "<br/>B A<!-- x -->"),  # what begins or ends, begins or ends
        ("a <b>the</b> c d", "A C D", "0-0 2-1 3-2", "A<b></b> C D"),  # nothing to cover: beside the nearest word
        ("<b></b><i>a</i><u></u>", "A", "0-0", "<b></b><i>A</i><u></u>"),
        ("<b>a</b><br>", "", "", "<b></b><br>"),
        ("", "A b", "", "A b"),
        ("drink H<sub>2</sub>O now", "now H2O", "1-1 2-0", "now H<sub>2</sub>O"),  # the same word, the same letters
        ("a<b>b</b> c", "X C", "0-0 1-1", "<b>X</b> C"),  # another word, all of it
        ("A &amp; <b>B</b>", "x < & y", "2-3", "x &lt; &amp; <b>y</b>"),
        ("<b>a</b> c", "A A", "0-0 0-1", "<b>A A</b>"),
        ("<B>a</b> c", "C A", "0-1 1-0", "C <B>A</b>"),  # HTML has no case
        ("<a t=\"x>y\" u='<b>'>a</a> b", "B A", "0-1 1-0", "B <a t=\"x>y\" u='<b>'>A</a>"),
        ("a <?php x > y ?>b", "B A", "0-1 1-0", "<?php x > y ?>B A"),
        ("1 < 2 <b>c</b> <3", "1 2 C", "0-0 2-1 3-2", "1 2 <b>C</b>"),  # a < that begins no tag is text
        ("<![CDATA[<x> ]]><b>c</b>", "X C", "1-1", "X <b>C</b>"),
        ("<script>if (a<b) c()</script> d", "D if", "0-1 3-0", "D <script>if</script>"),
        ("<b>א</b> ב", "B A", "0-1 1-0", "B <b>A</b>"),
        ("<b>e\u0301t</b> 😀", "😀 e\u0301t\u202e", "0-1 1-0", "😀 <b>e\u0301t\u202e</b>"),
        ("<b>a</b>\x00 c", "C\x00 A", "0-1 1-0", "C\x00 <b>A</b>"),
    ],
)
def test_every_rule_by_an_example(source, target, links, result):
    assert transfer([(source, target)], by="spaces", links=[links]) == [result]


@pytest.mark.parametrize("seed", range(5))
def test_random_sentences_keep_tags_text_form_and_tree(seed):
    """Python's own XML parser reads both sides: `violations` in bench/transfer.py, which runs 10,000."""
    rng = random.Random(seed)
    assert [wrong for _ in range(60) for wrong in violations(rng)] == []


def test_one_element_covers_the_words_from_the_first_to_the_last_that_is_linked():
    """By the formula, for random links; nothing else is marked up."""
    rng = random.Random(0)
    for _ in range(200):
        n, m = rng.randint(2, 9), rng.randint(1, 9)
        links = [(i, j) for i in range(n) for j in range(m) if rng.random() < 0.2]
        start = rng.randrange(n - 1)
        stop = rng.randint(start + 1, n - (start == 0))
        source, target = [f"s{i}" for i in range(n)], [f"t{j}" for j in range(m)]
        marked = [*source[:start], f"<b>{' '.join(source[start:stop])}</b>", *source[stop:]]
        (found,) = transfer([(" ".join(marked), " ".join(target))], by="spaces", links=[links])
        inside = [j for i, j in links if start <= i < stop]
        if inside:
            target[min(inside)] = "<b>" + target[min(inside)]
            target[max(inside)] += "</b>"
        assert found.replace("<b></b>", "") == " ".join(target)


def test_intervals_do_not_overlap_and_have_most_units():
    """Against all intervals that hold no unit of the others: none has more units of the first that chooses."""
    rng = random.Random(1)
    for _ in range(300):
        owners = [rng.choice(["a", "b", "c", None]) for _ in range(rng.randint(1, 12))]
        wanted = {name: [k for k, owner in enumerate(owners) if owner == name] for name in "abc"}
        found = intervals(wanted)
        assert set(found) == {name for name in "abc" if wanted[name]}
        covered = [k for start, stop in found.values() for k in range(start, stop)]
        assert len(covered) == len(set(covered))
        for name in sorted(found, key=lambda each: -len(wanted[each]))[:1]:
            free = [
                owners[s:t].count(name)
                for s in range(len(owners))
                for t in range(s + 1, len(owners) + 1)
                if set(owners[s:t]) <= {name, None}
            ]
            assert owners[slice(*found[name])].count(name) == max(free)


@pytest.mark.parametrize(
    ("source", "expected", "got"),
    [
        ("a <b>b", "close every tag", "'<b>' alone"),
        ("a</i> b", "open every tag", "'</i>' alone"),
        ("<b>a <i>b</b></i>", "nest its tags", "'</b>' before the end of '<i>'"),
        ("a <b c", "end every tag", "'<b c'"),
        ('<a t="x>y</a>', "end every tag", "t="),
        ("<!-- a", "end every tag", "'<!-- a'"),
        ("<?php a", "end every tag", "'<?php a'"),
        ("<![CDATA[ a", "end every tag", "CDATA"),
        ("<script>a", "close every tag", "'<script>' alone"),
        ("<b>" * (DEEPEST + 1) + "</b>" * (DEEPEST + 1), f"have at most {DEEPEST} nested tags", "more at '<b>'"),
        ("<a " + '"' * 99_999, "end every tag", "…"),
    ],
)
def test_broken_tags_are_one_line(source, expected, got):
    began = time.process_time()
    with pytest.raises(ValueError, match=r"^pairs\[1\] must ") as caught:
        transfer([("a", "b"), (source, "x")], links=["", ""])
    assert_says(str(caught.value), r"pairs[1]", expected, got)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    assert time.process_time() - began < 5


@pytest.mark.parametrize("aside", ["<!-- </br> -->", "<i title='</br>'/>", "<![CDATA[</br>]]>", "<script></br></script>"])
def test_a_closing_tag_in_a_comment_or_an_attribute_closes_nothing(aside):
    found = parse(f"a<br>b{aside}c").root.children
    assert (found[0].head, found[0].tail, found[0].stop) == ("<br>", "", 1)


def test_bad_arguments_are_one_line():
    wrong = {"0-5": "target word < 1, got 0-5", "x": "links like 0-1", "": "one entry for each of 1 pairs"}
    for links, said in wrong.items():
        with pytest.raises(ValueError, match=said):
            transfer([("<b>a</b>", "b")], links=links.split())
    nan = [{(0, 0): float("nan")}]
    for given, said in ((7, "links must be a list"), ([7], r"links\[0\] must be links \(i, j\)"), (nan, "got nan")):
        with pytest.raises(ValueError, match=said):
            transfer([("<b>a</b>", "b")], links=given)
    with pytest.raises(ValueError, match="pairs must be a list"):
        transfer(3)


def test_ten_thousand_words_and_tags_take_seconds():
    n = 10_000
    source = " ".join(f"<b>w{k}</b><br/>" for k in range(n))
    target = " ".join(f"v{k}" for k in range(n))
    began = time.process_time()
    (found,) = transfer([(source, target)], by="spaces", links=[[(2 * k if k % 2 else k, k) for k in range(0, n, 2)]])
    deep = transfer([("<b>" * DEEPEST + target + "</b>" * DEEPEST, target)], by="spaces", links=[[(k, k) for k in range(n)]])
    assert time.process_time() - began < 20
    assert found.count("<b>") == found.count("</b>") == found.count("<br/>") == n
    assert deep == ["<b>" * DEEPEST + target + "</b>" * DEEPEST]


def test_the_text_without_tags_is_read_as_a_reader_sees_it():
    assert parse("one<br>two<b>three</b>").text == "one twothree"
    assert parse("a&nbsp;b &#x1F600;").text == "a\xa0b 😀"
    rng = random.Random(0)
    for _ in range(50):
        text = random_sentence(rng, 9)
        assert parse(escape(text)).text == text


def test_an_aligner_of_ones_own_text_makes_the_links(tmp_path):
    text = [("ruma kala", "house fish"), ("ruma suuri", "house big"), ("kala suuri", "fish big")] * 8
    aligner = of.words.train(text, tmp_path / "model", by="spaces")
    pair = ("<b>kala</b> <i>ruma</i>", "house fish")
    assert transfer([pair], model=aligner) == transfer([pair], model=tmp_path / "model") == ["<i>house</i> <b>fish</b>"]
    labelled = [[("kala", "B-X"), ("ruma", "O")]]
    assert of.words.transfer_labels(labelled, ["house fish"], model=aligner) == [[("house", "O"), ("fish", "B-X")]]
    with pytest.raises(ValueError, match="model must be left out where links are given"):
        transfer([pair], model=aligner, links=["0-0"])
