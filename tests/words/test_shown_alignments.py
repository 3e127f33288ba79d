"""Alignments show themselves: the right links, escaped and bounded."""

from __future__ import annotations

import re

import numpy as np

from helpers.shown import EVIL, parsed, printed
from otformer.words.aligning import Alignment


def test_alignments_show_their_links():
    words = ["black", EVIL], ["chat", "noir", "$x_1$"]
    found = Alignment({(0, 1): 0.9, (1, 0): 0.25}, *words, np.full((3, 2), 0.5, "f4"))
    html = found._repr_html_()
    titles = [node.text for node in parsed(html).iter("title")]
    assert titles[0] == "black – noir: 0.90"
    assert "<script" not in html
    strokes = [node.get("stroke-opacity") for node in parsed(html).iter("path") if node.get("stroke-opacity")]
    assert strokes == ["0.9", "0.25"]
    text = printed(found)
    assert re.search(r"black [⠀-⣿]{24} chat", text)  # two columns of words, and lines of dots between them
    assert re.search(r"black +50 +50 +50\n", text)  # scores, in per cent
    assert "$x_1$" in text
    assert [t.get_text() for t in found.plot().texts][-1] == "$x_1$"
    empty = Alignment({}, [], [])
    assert "0 and 0" in empty._repr_html_()
    assert "no links" in empty._repr_html_()


def test_long_sentences_are_cut(tmp_path):
    many = [f"word{k}" for k in range(500)]
    found = Alignment({(k, k): 1.0 for k in range(500)}, many, many)
    html = found._repr_html_()
    assert "the first 60 words of 500" in html
    assert len([node for node in parsed(html).iter("title")]) == 60
    found.save(tmp_path / "a.svg")
