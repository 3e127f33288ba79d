"""The probe of one sentence pair: its numbers against those of a corpus with gold, and POT's plan; no data folder."""

import json

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
from helpers import tiny_models
from otformer.words.models.attention import read
from otformer.words.models.models import load
from otformer.words.probe.one_pair import look_at
from otformer.words.probe.probe import LIKENESS, ProbeSettings
from otformer.words.probe.table import probe
from otformer.words.probe.work import ProbeWork
from otformer.words.text.gold import parse_links
from otformer.words.text.text import Pair

PAIR = Pair(*tiny_models.PAIRS[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.marian(tmp_path_factory.mktemp("models") / "marian")


def test_a_pair_has_the_numbers_of_a_corpus_of_it(folder, monkeypatch):
    monkeypatch.delenv("OTFORMER_DATA", raising=False)
    soft, model = ProbeSettings(reg=0.5), load(folder)
    found = look_at(folder, " ||| ".join(PAIR), soft)
    table = probe(model, [PAIR], gold=[parse_links("0-0")], settings=soft)
    means = [line for line in table if line["method"] == "attention" and not line["head"]]
    assert len(found.rows) == len(means) == 2 * model.layers
    for row, line in zip(found.rows, means, strict=True):
        assert (row["reading"], row["layer"]) == (line["reading"], line["layer"])
        assert [row[name] for name in LIKENESS] == pytest.approx([line[name] for name in LIKENESS], abs=1e-6)
    assert found.nearest["distance"] == min(row["distance"] for row in found.rows)

    (reading,) = read(model, [PAIR], states=True)
    assert (list(found.source_words), list(found.target_words)) == (reading.source, reading.target)
    heads = found.attention["cross-output"]
    np.testing.assert_allclose(heads[:, :-1], reading.matrices["cross-output"], atol=1e-6)
    np.testing.assert_allclose(heads[:, -1], reading.matrices["cross-output"].mean(1), atol=1e-6)
    C = 2 * cdist(reading.states["target-embeddings"], reading.states["source-embeddings"], "cosine")
    np.testing.assert_allclose(found.plan, ot.sinkhorn([], [], C, 0.5, method="sinkhorn_log", stopThr=1e-9), atol=1e-6)


def test_what_is_printed(folder):
    found = look_at(load(folder), PAIR)
    record = json.loads(json.dumps(found.record()))
    assert np.sum(record["plan"]) == pytest.approx(1, abs=1e-4)
    lines = "\n".join(found.lines()).splitlines()
    for row in found.rows:
        start = f"{row['reading']:<14} {row['layer']:>5}{100 * row['distance']:9.1f}"
        assert any(line.startswith(start) for line in lines)
    shown = [[float(x) for x in line.split()[1:]] for line in lines[-len(found.target_words) :]]
    np.testing.assert_allclose(shown, len(found.target_words) * found.plan, atol=0.006)


def test_bad_input(folder, monkeypatch):
    with pytest.raises(ValueError, match=r"^pair line 1 must have one \|\|\|"):
        look_at(folder, "no bar")
    with pytest.raises(ValueError, match=r"^pair must have words that the model sees on both sides$"):
        look_at(folder, Pair("cat", ""))
    monkeypatch.delenv("OTFORMER_DATA", raising=False)
    with pytest.raises(ValueError, match=r"^there is nothing to score against: give --gold FILE or --dictionary FILE"):
        ProbeWork(str(folder), dictionary="muse").check()
