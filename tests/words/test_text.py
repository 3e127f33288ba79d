"""Sentence pairs, preprocessing and words: against lines written and counted by hand, and the real files."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from needs import needs_data
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import (
    Pair,
    fold,
    news_pairs,
    parse_pairs,
    prepare,
    read_lines,
    read_pairs,
    sample,
    word_spans,
    words,
)

DATA = os.environ.get("OTFORMER_DATA")
PAIRS = [Pair("The cat", "Le chat"), Pair("", ""), Pair("It sleeps", "Il dort")]


def write(file: Path, text: str) -> Path:
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


@pytest.mark.parametrize("end", ["", ".gz"])
def test_every_format_gives_the_same_pairs(tmp_path, end):
    bars = write(tmp_path / f"a.txt{end}", "The cat ||| Le chat\n\nIt sleeps   |||  Il dort  \n")
    tabs = write(tmp_path / f"a.tsv{end}", "The cat\tLe chat\tCC BY\n\nIt sleeps\tIl dort\n")
    left = write(tmp_path / f"a.en{end}", "The cat\r\n\r\nIt sleeps\r\n")
    right = write(tmp_path / f"a.fr{end}", "\ufeffLe chat\n\nIl dort")
    assert list(read_pairs(bars)) == list(read_pairs(tabs)) == list(read_pairs(left, right)) == PAIRS
    swapped = [Pair(b, a) for a, b in PAIRS]
    for given in ((bars,), (tabs,), (left, right)):
        assert list(read_pairs(*given, columns=(1, 0))) == swapped


def test_gzip_is_known_without_its_name(tmp_path):
    file = tmp_path / "plain"
    file.write_bytes(gzip.compress(b"a ||| b\n"))
    assert list(read_pairs(file)) == [Pair("a", "b")]


def test_one_empty_side_is_kept():
    assert list(parse_pairs(["a |||", "||| b", "   "])) == [Pair("a", ""), Pair("", "b"), Pair("", "")]


def test_only_newlines_end_lines(tmp_path):
    file = write(tmp_path / "a", "one\u0085two\u2028three\x0cfour\nfive\n")
    assert list(read_lines(file)) == ["one\u0085two\u2028three\x0cfour", "five"]


def test_a_pipe_streams(tmp_path):
    """Pairs come before the file ends: nothing waits for all of it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"import time; f = open({str(pipe)!r}, 'w'); f.write('a ||| b\\n' * 5000); f.flush(); time.sleep(60)"
    writer = subprocess.Popen([sys.executable, "-c", code])
    try:
        assert next(read_pairs(pipe)) == Pair("a", "b")
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.parametrize("short", [0, 1])
def test_unequal_files_say_which_is_short(tmp_path, short):
    files = [write(tmp_path / name, "x\n" * (2 if k == short else 5)) for k, name in enumerate("ab")]
    with pytest.raises(ValueError, match=rf"^{files[short]} is short: it has 2 lines, {files[1 - short]} has 5$"):
        list(read_pairs(*files))


def broken_gz(kind: str) -> bytes:
    whole = gzip.compress(os.urandom(5000).hex().encode())
    flipped = bytes(b ^ 255 if 2000 < k < 2100 else b for k, b in enumerate(whole))
    return {"cut": whole[: len(whole) // 2], "no gzip": b"plain text\n", "flipped": flipped, "no end": whole[:-4]}[kind]


@pytest.mark.parametrize("kind", ["cut", "no gzip", "flipped", "no end"])
def test_corrupt_gz(tmp_path, kind):
    file = tmp_path / "a.gz"
    file.write_bytes(broken_gz(kind))
    with pytest.raises(ValueError, match=rf"^{file} is not a readable gz file: .*$"):
        list(read_pairs(file, file))


def test_other_bad_input(tmp_path):
    latin = tmp_path / "latin"
    latin.write_bytes("bon\nété\n".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"^{latin} is not UTF-8: byte 0xe9 in line 2$"):
        list(read_lines(latin))
    with pytest.raises(ValueError, match=r"^.*none cannot be read: No such file or directory$"):
        list(read_lines(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"cannot be read: Is a directory$"):
        list(read_lines(tmp_path))
    for line in ("no bar", "a ||| b ||| c"):
        with pytest.raises(ValueError, match=r"^f line 2 must have one \|\|\| between two sentences, got "):
            list(parse_pairs(["a ||| b", line], name="f"))
    with pytest.raises(ValueError, match=r"^f line 1 must have 3 columns with tabs between, got 'a\\tb'$"):
        list(parse_pairs(["a\tb"], name="f", tabs=True, columns=(0, 2)))
    with pytest.raises(ValueError, match="columns"):
        list(read_pairs(latin, latin, columns=(0, 2)))


def test_fold():
    assert fold("« L’Été » – “Où\u00a0?” „So“ …") == '" l\'été " - "où ?" "so" ...'
    assert fold("‚x‘ 5−3 soft\u00adhyphen") == "'x' 5-3 softhyphen"
    assert fold("e\u0301") == "é"  # composed
    assert fold("！（ＡＢ） œ ß ½ ²") == "!(ａｂ) œ ß ½ ²"  # punctuation only: letters and numbers stay


def test_words():
    text = "It's l’homme d'aujourd'hui: qu'il n'ait pas 1,000.5 euros... don't! well-known"
    right = "It 's l’ homme d' aujourd'hui : qu' il n' ait pas 1,000.5 euros ... don't ! well-known"
    assert " ".join(words(text)) == right
    assert " ".join(text[i:j] for i, j in word_spans(text)) == right
    assert words(" Ce  est , là ", by="spaces") == ["Ce", "est", ",", "là"]
    assert words("") == words("  ") == []
    with pytest.raises(ValueError, match="by must be one of words, spaces, got 'tokens'"):
        words("a", by="tokens")


def test_prepare_keeps_3_to_60_words_on_both_sides():
    sizes = [(2, 3), (3, 2), (3, 3), (60, 60), (61, 60), (60, 61), (0, 0)]
    pairs = [Pair(" ".join(["A"] * a), " ".join(["B"] * b)) for a, b in sizes]
    kept = [(len(p.source.split()), len(p.target.split())) for p in prepare(pairs)]
    assert kept == [(3, 3), (60, 60)]
    assert next(prepare([pairs[2]])) == Pair("a a a", "b b b")


def test_sample_is_uniform_and_seeded():
    pairs = [Pair(f"{k}", "") for k in range(12)]
    drawn = Counter(p for seed in range(3000) for p in sample(iter(pairs), 4, seed))
    assert set(drawn) == set(pairs)
    # Binomial(3000, 1/3): standard deviation 25.8; five of them.
    assert all(abs(times - 1000) < 130 for times in drawn.values())
    assert sample(pairs, 4, 7) == sample(pairs, 4, 7)
    assert sample(pairs, 50) == pairs


@needs_data
@pytest.mark.parametrize(("languages", "total"), [("en-fr", 21_076), ("de-en", 34_316)])
def test_news(languages, total):
    assert sum(1 for _ in news_pairs(languages)) == total  # the count in data/README.md
    first, other = next(news_pairs(languages)), next(news_pairs(LanguagePair.of(languages).reversed))
    assert first == Pair(other.target, other.source)


@needs_data
def test_real_gold_text():
    folder = Path(DATA or "", "gold_alignments")
    assert sum(1 for _ in read_pairs(folder / "hansards_en-fr" / "test.en-fr.src-tgt")) == 447
    pairs = list(read_pairs(folder / "rwth_de-en" / "de", folder / "rwth_de-en" / "en"))
    assert len(pairs) == 509
    assert pairs[-1] == Pair("", "")  # 508 sentences and a blank line
    tatoeba = Path(DATA or "", "tatoeba_manythings", "fra-eng.2019-04-07.tsv.gz")
    assert sum(1 for _ in read_pairs(tatoeba)) == 167_130


def test_no_data_folder(monkeypatch):
    monkeypatch.setenv("OTFORMER_DATA", "/nowhere")
    with pytest.raises(ValueError, match=r"^OTFORMER_DATA must name the data folder, got '/nowhere'$"):
        next(news_pairs("en-fr"))
    with pytest.raises(ValueError, match="languages must be one of"):
        next(news_pairs("en-it"))
