"""Families of aligners of one's own text: trained on hostile pairs, trained on, and read from whole and damaged folders."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import commands, language, oracles
from fuzz.inputs import Rng, number, pick
from fuzz.public import of

Told = list[Any]
MOST_PAIRS = 6


def linked(model: Any, pair: Any) -> None:
    """An aligner's links are places of words, its scores are probabilities."""
    found = of.align([pair], model=model)[0]
    n, m = len(found.source_words), len(found.target_words)
    scores = np.asarray(found.matrix, float)
    oracles.finite(scores)
    assert ((scores >= 0) & (scores <= 1 + 1e-6)).all(), "a score that is none"
    assert all(0 <= i < n and 0 <= j < m for i, j in found), "a link out of range"


def train(rng: Rng, told: Told) -> None:
    """What is trained is what lies in the folder, and training on counts the pairs of both times."""
    usual = [(language.sentence(rng), language.sentence(rng)) for _ in range(rng.integers(1, MOST_PAIRS))]
    pairs: Any = usual if rng.mild else pick(rng, ([*usual, language.pair(rng)], usual, usual, 7))
    how = {"languages": pick(rng, (None, "fi-en", "en-fr", "x", 7)[: 3 if rng.mild else 5]),
           "by": pick(rng, (None, "words", "spaces", "no")[: 3 if rng.mild else 4]),
           "workers": number(rng, (1, 2)), "engine": number(rng, ("local",))}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        first, more = Path(folder, "first"), Path(folder, pick(rng, ("more", "first", "no/more")[: 2 if rng.mild else 3]))
        made = of.words.train(pairs, first, **how)
        assert repr(of.words.load_aligner(first)) == repr(made), "another aligner than the one that was made"
        linked(first, language.pair(rng))
        again = of.words.train(pairs, more, **how, extend=first)
        assert again.about.pairs == 2 * made.about.pairs, "pairs that were not counted"


def load_aligner(rng: Rng, told: Told) -> None:
    """An aligner's folder with a file damaged, missing, or replaced; names of other things."""
    if rng.random() < 0.1:
        of.words.load_aligner(pick(rng, ("no-such-model", "", "..", "/dev/null", "/", "\x00", 7, None)))
        return
    with tempfile.TemporaryDirectory() as folder:
        commands.write_aligner(Path(folder))
        for _ in range(0 if rng.mild else rng.integers(1, 3)):
            language.damage(rng, pick(rng, sorted(each for each in Path(folder).iterdir() if each.is_file())))
        linked(of.words.load_aligner(folder), ("the cat", "le chat"))


FAMILIES = (train, load_aligner)
