"""The probe of one sentence pair: its numbers against those of a corpus with gold, and POT's plan; no data folder."""

import json
from html import unescape

import matplotlib.pyplot as plt
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


def test_a_pair_shows_itself(folder, tmp_path):
    found = look_at(folder, PAIR)
    lines = repr(found).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("PairProbe(")
    assert lines[0].endswith("cross-input and cross-output)")
    assert " ".join(lines[1:]) == found.verdict()
    assert f"layer {found.nearest['layer']} of" in lines[1]
    assert f"{100 * found.nearest['distance']:.1f} %" in lines[1]
    html = found._repr_html_()
    assert found.verdict() in unescape(html)
    assert all(word in html for word in (*found.source_words, *found.target_words))
    for name, begins in (("p.svg", b"<?xml"), ("p.pdf", b"%PDF"), ("p.png", b"\x89PNG"), ("p.html", b"<!doctype html>")):
        found.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)
    axes = found.plot("cross-input", 2, 1)
    (image,) = axes.images
    np.testing.assert_allclose(image.get_array(), found.scaled("cross-input")[1, 0])
    np.testing.assert_allclose(
        found.plot().images[0].get_array(), found.scaled(found.nearest["reading"])[found.nearest["layer"] - 1, -1]
    )
    plt.close("all")


def test_a_pair_refuses_what_it_has_not(folder, tmp_path):
    found = look_at(folder, PAIR)
    for ask in (lambda: found.attention["cross"], lambda: found.share["cross"], lambda: found.plot("cross")):
        with pytest.raises(ValueError, match=r"^reading must be one of cross-input, cross-output, got 'cross'$"):
            ask()
    with pytest.raises(ValueError, match=r"^layer must be a whole number of at most 2, got 9$"):
        found.plot(layer=9)
    with pytest.raises(ValueError, match=r"^head must be a whole number of at least 1, got 0$"):
        found.plot(head=0)
    with pytest.raises(ValueError, match=r"^path must end in \.html"):
        found.save(tmp_path / "p.gif")
    assert not list(tmp_path.iterdir())


def test_bad_input(folder, monkeypatch):
    with pytest.raises(ValueError, match=r"^pair line 1 must have one \|\|\|"):
        look_at(folder, "no bar")
    with pytest.raises(ValueError, match=r"^pair must have words that the model sees on both sides$"):
        look_at(folder, Pair("cat", ""))
    monkeypatch.delenv("OTFORMER_DATA", raising=False)
    with pytest.raises(ValueError, match=r"^there are no links to score against: give --gold FILE or --dictionary FILE"):
        ProbeWork(str(folder), dictionary="muse").check()
