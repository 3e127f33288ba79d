"""Families on words: alignments of hostile sentences, alone and as lines of files, shipped and damaged models, what a
model's pages say."""

from __future__ import annotations

import gzip
import html
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import otformer.words
from fuzz import commands, oracles
from fuzz.inputs import Rng, pick
from fuzz.public import of

Told = list[Any]
SHIPPED = Path(otformer.words.__file__).parent / "weights"
WORDS = ("the", "cat", "le", "chat", "<script>alert(1)</script>", "\u202e", "\x00", "\ud800", "'", "||", "é", "e\u0301",
         "猫", "\x1b[2J", "&amp;", "%s", "{}", "$x$", "a" * 300, "\ufeff", "\u200b", "</td>", "\t", "")  # fmt: skip
IN_FILES = (*(word for word in WORDS if word.strip() and word != "\ud800"), "x" * 3000, "a-" * 400, "ไทยไม่มีเว้นวรรค",
            "日本語の文", "👨\u200d👩\u200d👧", "❤\ufe0f", "1,000.5", "3.14.15", "don't", "l’été", "L\u2019e\u0301te\u0301",
            "\u0301", "<b>&nbsp;</b>", "\x1b]0;x\x07", "\x9b2J", "||", "|", "\u202bشكرا\u202c", "\u00ad", "\u2060", "n't",
            "'s", "''", "-", "--", "…", "©", "\U000e0067", "http://a.b/c?d=e&f", "ß", "İ", "ﬁ")  # fmt: skip
SPACES = ("  ", "\u00a0", "\u2003", "\x0c", "\x85", "\u2028", "\r", "\x1c")  # that end no line
MOST = 8  # words of a sentence


def sentence(rng: Rng) -> str:
    some = WORDS[:4] if rng.mild else WORDS
    return " ".join(pick(rng, some) for _ in range(rng.integers(1 if rng.mild else 0, MOST)))


def pair(rng: Rng) -> Any:
    """A sentence pair in one of its forms, at times no pair at all."""
    one, other = sentence(rng), sentence(rng)
    if rng.mild:
        return pick(rng, (f"{one} ||| {other}", (one, other)))
    return pick(rng, (f"{one} ||| {other}", (one, other), [one, other], one, "|||", (one,), (one, 1), None, 7, b"a ||| b"))


def align(rng: Rng, told: Told) -> None:
    pairs: Any = [pair(rng) for _ in range(rng.integers(3))] if rng.random() < 0.7 else pair(rng)
    how = {"languages": pick(rng, ("en-fr", "fr-en", "de-en", "en-de", "no", "")[: 4 if rng.mild else 6]),
           "method": pick(rng, ("auto", "hmm", "vectors", "no")[: 3 if rng.mild else 4]),
           "by": pick(rng, ("words", "spaces", "no")[: 2 if rng.mild else 3])}  # fmt: skip
    found = of.align(pairs, **how)
    for each in found if isinstance(found, list) else [found]:
        n, m = len(each.source_words), len(each.target_words)
        assert all(0 <= i < n and 0 <= j < m for i, j in each), "a link out of range"
        scores = np.asarray(each.matrix, float)
        oracles.finite(scores)
        assert ((scores >= 0) & (scores <= 1 + 1e-6)).all(), "a score that is none"


TAGS = (
    "<b>",
    "</b>",
    "<br/>",
    "<a t='>'>",
    "</a>",
    "<!-- -->",
    "<![CDATA[",
    "<?x ?>",
    "<",
    "&amp;",
    "<script>",
    "</i",
    "<p",
)


def transfer(rng: Rng, told: Told) -> None:
    """The result without the tags of the source is the target; labels are as many as words."""
    words = sentence(rng).split()
    source = " ".join(f"<b>{word}</b>" if rng.mild else pick(rng, TAGS) + word for word in words)
    target, links = sentence(rng), pick(rng, ([""], ["0-0"], ["x"], None, [[(0, 1)]], 7))
    (found,) = of.words.transfer([(source, target)], links=[""] if rng.mild else links)
    assert found.count("<b>") == source.count("<b>"), "a tag is lost"
    assert html.unescape(found.replace("<b>", "").replace("</b>", "")) == target or not rng.mild, "another text"
    labels = [(word, pick(rng, ("O", "B-A", "I-A") if rng.mild else ("O", "", "B-", "X", "I-A"))) for word in words]
    (labelled,) = of.words.transfer_labels([labels], [target], links=[""] if rng.mild else links)
    assert [word for word, _ in labelled] == of.words.text.text.words(target)


def side(rng: Rng) -> str:
    """A sentence of a file, without tabs and \\n: of any script, marked up, invisible, repeated, or of one long word."""
    count = int(pick(rng, (1, 3, 8) if rng.mild else (0, 1, 3, 8, 60)))
    some = [pick(rng, WORDS[:4] if rng.mild else IN_FILES) for _ in range(count)]
    some = some[:1] * count if rng.random() < 0.1 else some
    return pick(rng, (" ", " ", *SPACES) if not rng.mild else (" ",)).join(some)


def line(rng: Rng, form: str) -> tuple[bytes, tuple[str, str] | None]:
    """A line of a file, and its sentence pair; None if it is none."""
    one, other = side(rng), side(rng)
    if rng.random() < 0.15:
        empty = pick(rng, ("", " ", "\u2003", "\x0c"))
        return empty.encode() + (b"\t" if form == "tsv" else b""), ("", "")
    if rng.random() < 0.03 and not rng.mild:
        bad = (
            (b"no bar", b"a ||| b ||| c", b"\xff ||| x", b"\xed\xa0\x80 ||| x")
            if form == "bars"
            else (b"\xff\tx", b"\xc3\t")
        )
        return pick(rng, bad), None
    return (one + {"tsv": "\t", "bars": " ||| "}[form] + other).encode(), (one, other)


def lines(rng: Rng, told: Told) -> None:
    """A file through the command: as many lines as it has, of links that Python finds for the pairs it was made of."""
    form, count = pick(rng, ("bars", "tsv")), int(rng.integers(1, 7))
    made = [line(rng, form) for _ in range(count)]
    data = pick(rng, (b"\n", b"\r\n")).join(raw for raw, _ in made) + b"\n"
    mark = "\ufeff".encode()  # at the beginning of a file it is no part of the text
    data = mark * int(rng.random() < 0.5 or data.startswith(mark)) + data
    how = {"languages": pick(rng, ("en-fr", "fr-en", "de-en")), "method": pick(rng, ("hmm", "vectors")),
           "by": pick(rng, ("words", "spaces"))}  # fmt: skip
    shown = pick(rng, ("--json", "--scores", "--tokens", "--out"))
    with tempfile.TemporaryDirectory() as folder:
        file, out = (
            Path(folder, pick(rng, ("t.tsv", "t.tsv.gz") if form == "tsv" else ("t", "t\x1b[2J", "t.gz"))),
            Path(folder, "o"),
        )
        file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
        options = [word for name, value in how.items() for word in (f"--{name}", value)]
        code, said, err = commands.called(["align", str(file), *options, shown, *[str(out)] * (shown == "--out")])
        said = out.read_text("utf-8") if out.exists() else said
    commands.judge(["align"], code, "" if code else said, err)
    pairs = [pair for _, pair in made if pair is not None]
    bars = shown == "--tokens" and any("|||" in text for pair in pairs for text in pair)
    assert (code == 2) == (len(pairs) < count or bars), f"exit code {code} of {data!r}: {err}"
    if code == 0:
        compare(said.split("\n")[:-1], of.align(pairs, **how), shown, how["by"], pairs)


def compare(said: list[str], found: Any, shown: str, by: str, pairs: list[tuple[str, str]]) -> None:
    """What the command printed, against what Python found."""
    assert len(said) == len(found) == len(pairs), f"{len(said)} lines of {len(pairs)}"
    for text, each, pair in zip(said, found, pairs, strict=True):
        n, m = len(each.source_words), len(each.target_words)
        assert by == "words" or [n, m] == [len(one.split()) for one in pair], "words are not what spaces separate"
        assert all(0 <= i < n and 0 <= j < m for i, j in each), "a link out of range"
        if shown == "--json":
            told = json.loads(text)
            assert told["links"] == [list(link) for link in sorted(each)], "Python has other links"
            assert [told["source"], told["target"]] == [list(each.source_words), list(each.target_words)], "other words"
        else:
            links = text.rpartition("|||")[2].split()
            assert [word.split(":")[0] for word in links] == [f"{i}-{j}" for i, j in sorted(each)], "Python has other links"


@cache
def model(name: str) -> Any:
    """Loaded once in a process: the loading has a family of its own."""
    return of.words.load(SHIPPED / name)


def look_at(rng: Rng, told: Told) -> None:
    found = of.words.look_at(model(pick(rng, ("en-fr", "bert-en-fr"))), pair(rng))
    oracles.finite(found.plan)
    assert "nan" not in json.dumps(found.record()).lower(), "a record with a number that is none"
    assert found.lines(), "nothing to say"


def show(rng: Rng, told: Told) -> None:
    made = of.words.show(model("bert-en-fr"), [pair(rng) for _ in range(rng.integers(1, 3))])
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, pick(rng, ("page.html", "page.no") if not rng.mild else ("page.html",)))
        made.save(page)
        text = page.read_text("utf-8", "surrogatepass")
    assert "<script>alert" not in text, "a word came through as it is"


def load(rng: Rng, told: Told) -> None:
    """A model's folder with a file damaged, missing, or replaced; names of other things."""
    if rng.random() < 0.1:
        of.words.load(pick(rng, ("no-such-model", "", "..", "/dev/null", "/", "\x00", 7, None)))
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "model")
        shutil.copytree(SHIPPED / "bert-en-fr", copy, copy_function=shutil.copyfile)
        for _ in range(0 if rng.mild else rng.integers(1, 3)):
            damage(rng, pick(rng, sorted(each for each in copy.iterdir() if each.is_file())))
        loaded = of.words.load(copy)
        oracles.finite(of.words.look_at(loaded, "the cat ||| le chat").plan)


def damage(rng: Rng, file: Path) -> None:
    kind, raw = int(rng.integers(6)), bytearray(file.read_bytes())
    if kind == 0:
        file.unlink()
        file.mkdir()
    elif kind == 1:
        file.write_bytes(raw[: int(rng.integers(len(raw) + 1))])
    elif kind == 2 and file.suffix == ".json":
        file.write_text(
            pick(
                rng,
                (
                    "",
                    "{",
                    "[]",
                    "null",
                    "7",
                    "{}",
                    '{"model_type": 7}',
                    '"' + "x" * 9999,
                    "[" * 99999,
                    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
                ),
            )
        )
    elif kind == 3 and file.suffix == ".json":
        try:
            settings = json.loads(raw)
        except ValueError:
            return  # damaged before
        if isinstance(settings, dict) and settings:
            settings[pick(rng, sorted(settings))] = pick(rng, (None, -1, 0, 10**9, "x", [], {}, 1e308, True))
            file.write_text(json.dumps(settings))
    else:
        for _ in range(rng.integers(1, 4) if raw else 0):
            raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
        file.write_bytes(raw)


FAMILIES = (align, transfer, lines, look_at, show, load)
