"""Text that people and attackers write: words with accents and invisible characters, lines without end, terminals."""

from __future__ import annotations

import io
import json
import math
import sys
import time
import unicodedata
from unittest import mock

import numpy as np
import pytest

import otformer as of
from fuzz.commands import called
from helpers.messages import assert_says
from otformer.cli.main import main
from otformer.show.look import visible
from otformer.words.align.hmm.word_parts import word_parts
from otformer.words.align.methods import method
from otformer.words.align.vectors import WordVectors
from otformer.words.aligning import MOST_AT_ONCE, Alignment
from otformer.words.text.sizes import grouped
from otformer.words.text.text import fold, words

ESCAPE = "\x1b]0;x\x07"
MOST_SECONDS = 10  # of the processor, for what was without end or memory


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_composed_and_decomposed_text_has_the_same_words_and_links():
    text = ("L'été, déjà : il n'a pas vu Noël, l'âme naïve.", "The summer, already: he has not seen Christmas, naïve soul.")
    apart = tuple(unicodedata.normalize("NFD", side) for side in text)
    assert apart != text
    for side, other in zip(text, apart, strict=True):
        assert [unicodedata.normalize("NFC", word) for word in words(other)] == words(side)
    for way in ("hmm", "vectors"):
        assert of.align([apart], "fr-en", way) == of.align([text], "fr-en", way)


@pytest.mark.parametrize("mark", ["\u200b", "\ufeff", "\u00ad", "\u200e", "\u202e", "\u2066", "\u200d", "\u2060"])
def test_what_is_not_seen_is_no_word_and_changes_no_link(mark):
    marked = f"{mark}The bl{mark}ack{mark} cat ||| Le{mark} chat n{mark}oir"
    assert words(f"{mark}The bl{mark}ack{mark} cat") == [f"{mark}The", f"bl{mark}ack{mark}", "cat"]
    assert fold(marked) == "the black cat ||| le chat noir"
    assert of.align(marked) == of.align("The black cat ||| Le chat noir")


def test_words_of_other_scripts_keep_their_marks():
    assert words("नमस्ते दुनिया") == ["नमस्ते", "दुनिया"]
    assert words("می\u200cخواهم!") == ["می\u200cخواهم", "!"]
    assert words("ok ❤\ufe0f !!") == ["ok", "❤\ufe0f", "!!"]


HUGE = {
    "a word of 100,000 hyphens": ("a-" * 50_000, "b-" * 50_000),
    "a word of 300,000 letters": ("a" * 300_000, "b" * 300_000),
    "long names": (" ".join(f"{k}".zfill(3) * 3_000 for k in range(20)), " ".join(f"x{k}" * 3_000 for k in range(20))),
    "5,000 words beside 100": ("the cat " * 2_500, "le chat " * 50),
}


@pytest.mark.parametrize("what", HUGE)
@pytest.mark.parametrize("way", ["hmm", "vectors"])
def test_long_words_and_sentences_are_aligned_in_seconds(what, way):
    began = time.process_time()
    (found,) = of.align([HUGE[what]], method=way, by="spaces")
    assert time.process_time() - began < MOST_SECONDS
    n, m = (len(side.split()) for side in HUGE[what])
    assert found.matrix.shape == (m, n)
    assert all(0 <= i < n and 0 <= j < m for i, j in found)


def test_a_word_of_many_parts_is_aligned_whole_where_its_parts_are_too_many(monkeypatch):
    from otformer.words.align import methods

    pair = (["the", "well-known", "cat"], ["le", "chat", "bien-connu"])
    apart = method("hmm").scores([pair])[0]
    monkeypatch.setattr(methods, "MOST_CELLS", 1)
    whole = method("hmm").scores([pair])[0]
    assert apart.shape == whole.shape == (3, 3)
    assert whole[0, 0] > 0.5
    assert len(word_parts(pair[0], "en").parts) == 4


@pytest.mark.parametrize(("n", "m"), [(5_000, 5_000), (1_000_000, 1)])
def test_what_is_no_sentence_is_refused_with_its_place(n, m, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"^pairs\[1\] must have at most [^\n]*, got [\d,]+ × [\d,]+ words$"):
        of.align(["the cat ||| le chat", ("a " * n, "b " * m)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text(f"the cat ||| le chat\n{'a ' * n}||| {'b ' * m}\n")
    code, out, err = called(["align", "text", "--out", "links"])
    assert (code, out) == (2, "")
    assert err.startswith("otformer: pair 2 must have at most 20,000 words per side")
    assert [each.name for each in tmp_path.iterdir()] == ["text"]
    code, out, err = called(["probe", "bert-en-fr", "text", "--html", "page.html"])
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "must have at most 20,000 words per side" in err


def test_long_pairs_are_aligned_a_few_at_a_time():
    """Memory is bounded by groups; ordinary sentences stay together."""
    sizes = [(1_000, 1_000)] * 9 + [(30, 30)] * 256
    groups = list(grouped(sizes, math.prod, MOST_AT_ONCE))
    assert [len(group) for group in groups] == [4, 4, 257]
    assert [pair for group in groups for pair in group] == sizes


def test_compounds_are_found_in_words_of_any_length():
    vectors = WordVectors(("asyl", "antrag", "bundesverfassungsgericht"), np.eye(3))
    for word in ("asylantrag", "asylsantrag", "antragasyl", "bundesverfassungsgerichtsantrag"):
        known = [w for w in vectors.words if w in word]
        expected = sum(vectors.matrix[vectors.words.index(w)] for w in known)
        np.testing.assert_allclose(vectors.embed([word])[0], expected / np.linalg.norm(expected))


def test_nothing_that_a_terminal_obeys_reaches_it(tmp_path, monkeypatch):
    found = Alignment({(0, 0): 0.9}, [f"a{ESCAPE}", "x" * 10**5], ["b\x9b2J"], np.ones((1, 2), "f4"))
    drawn = "\n".join([*found.table(), *found.grid()])
    assert drawn.replace("\n", "").isprintable()
    assert len(drawn) < 1_000
    line = found.line("json")
    assert line.isprintable()
    assert json.loads(line)["source"] == list(found.source_words)
    assert json.loads(line)["target"] == ["b\x9b2J"]
    (tmp_path / "text").write_text(f"a{ESCAPE} ||| b\x9b2J\u202e\n")
    monkeypatch.chdir(tmp_path)
    for options in (["--tokens"], ["--matrix", "-"], ["--json"], ["--show"]):
        terminal = Terminal()
        with mock.patch.multiple(sys, argv=["otformer", "align", "text", *options], stdout=terminal):
            main()
        out = terminal.getvalue()
        assert "b" in out
        assert not {"\x07", "\x9b", "\u202e"} & set(out)
        assert "\x1b]" not in out
    code, out, _ = called(["align", "text", "--tokens", "--by", "spaces"])
    assert (code, out) == (0, f"a{ESCAPE} ||| b\x9b2J\u202e ||| 0-0\n"), "a file keeps its words"


def test_a_text_of_other_bytes_is_refused_as_in_python():
    for way in ("hmm", "vectors"):
        code, out, err = called(["align", "\udcff ||| chat", "--method", way])
        assert (code, out) == (2, "")
        assert err.startswith("otformer: text must be text, got half a character")


def test_tokens_are_not_printed_with_bars_in_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.tsv").write_text("the cat\tle chat\na ||| b\tc\n")
    code, out, err = called(["align", "table.tsv", "--tokens"])
    assert (code, out) == (2, "")
    assert_says(err, "--tokens", "combined with ||| in a sentence", "one in pair 2")
    code, out, _ = called(["align", "table.tsv", "--json"])
    assert json.loads(out.splitlines()[1])["source"] == ["a", "|||", "b"]


def test_errors_name_standard_input_not_its_copy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two").write_text("a\nb\n")
    said = {
        ("-",): "standard input is not UTF-8: byte 0xff in line 1",
        ("-", "two"): "standard input is not UTF-8: byte 0xff in line 1",
        ("-", "-"): "text must be two different files, got - (standard input) twice",
    }
    for given, message in said.items():
        assert called(["align", *given], b"\xff ||| b\n") == (2, "", f"otformer: {message}\n")
    assert called(["align", "two", "-"], b"x\n") == (2, "", "otformer: standard input is short: it has 1 line, two has 2\n")


def test_gold_of_endless_numbers_is_one_line(tmp_path):
    (tmp_path / "gold").write_text("0-" + "9" * 5_000)
    (tmp_path / "text").write_text("a ||| b\n")
    code, _, err = called(["align", str(tmp_path / "text"), "--gold", str(tmp_path / "gold")])
    assert code == 2
    assert "line 1 must hold links like 0-1" in err


def test_as_many_lines_as_the_input_has(tmp_path, monkeypatch):
    """Lines end at \\n; nothing else that Python or a terminal takes for a line end adds one."""
    monkeypatch.chdir(tmp_path)
    ends = ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
    text = "".join(f"the{end}cat ||| le{end}chat\n{end}\n" for end in ends)
    (tmp_path / "text").write_bytes(text.encode())
    for options in ([], ["--tokens"], ["--scores"], ["--json"], ["--out", "links"]):
        code, out, err = called(["align", "text", *options])
        assert code == 0, err
        out = out or (tmp_path / "links").read_bytes().decode()
        assert out.count("\n") == len(out.splitlines()) == text.count("\n")
    assert visible("a\u2028b") == "a\ufffdb"
