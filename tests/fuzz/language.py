"""Families on words: alignments of hostile sentences, shipped and damaged models, what a model's pages say."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import otformer.words
from fuzz import oracles
from fuzz.inputs import Rng, pick
from fuzz.public import of

Told = list[Any]
SHIPPED = Path(otformer.words.__file__).parent / "weights"
WORDS = ("the", "cat", "le", "chat", "<script>alert(1)</script>", "\u202e", "\x00", "\ud800", "'", "||", "é", "e\u0301",
         "猫", "\x1b[2J", "&amp;", "%s", "{}", "$x$", "a" * 300, "\ufeff", "\u200b", "</td>", "\t", "")  # fmt: skip
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


FAMILIES = (align, look_at, show, load)
