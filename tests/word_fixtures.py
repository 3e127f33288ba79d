"""Fixtures where otformer-words is there: tiny random models under the names of the shipped ones, and data for them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from helpers import tiny_models
from helpers.small_data import ENTRIES, GERMAN, GERMAN_ENTRIES
from otformer.words.align.vectors import WordVectors, write_npz_vectors


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """Random models under the names of the shipped ones."""
    place = tmp_path_factory.mktemp("models")
    for name in ("en-fr", "de-en"):
        tiny_models.marian(place / name)
    tiny_models.bert(place / "bert-en-fr", layers=3)
    return place


@pytest.fixture
def small(tiny, tmp_path, monkeypatch) -> Path:
    """Those models, a cache of one's own, and a data folder with a little news, dictionaries and vectors."""
    news, dictionaries, vectors = (tmp_path / name for name in ("wmt_newstest", "muse_dict", "word_vectors"))
    for place in (news, dictionaries, vectors):
        place.mkdir()
    pairs = [*tiny_models.PAIRS[:3], *[tiny_models.PAIRS[1]] * 70]
    for stem, text in (("eng-fra", pairs), ("deu-eng", [GERMAN] * 3)):
        for language, side in zip(stem.split("-"), zip(*text, strict=True), strict=True):
            with gzip.open(news / f"{stem}.newstest.{language}.gz", "wt", encoding="utf-8") as out:
                out.writelines(f"{line}\n" for line in side)
    for name, entries in (("en-fr", ENTRIES), ("de-en", GERMAN_ENTRIES)):
        (dictionaries / f"{name}.txt").write_text("\n".join(entries), encoding="utf-8")
    known_words = [sorted({word for pair in pairs for word in pair[side].split()}) for side in (0, 1)]
    rng = np.random.default_rng(0)
    made = {
        name: WordVectors(tuple(side), rng.standard_normal((len(side), 50)))
        for name, side in zip(("en", "fr"), known_words, strict=True)
    }
    write_npz_vectors(vectors / "fasttextM_aligned_en_fr_300d.npz", made)
    monkeypatch.setenv("OTFORMER_DATA", str(tmp_path))
    monkeypatch.setenv("OTFORMER_MODELS", str(tiny))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    return tmp_path
