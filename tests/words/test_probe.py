"""The probe: every row against scipy, POT and loops over sentences; the table against `estimate` and `score_links`."""

from __future__ import annotations

import csv

import numpy as np
import ot
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
from helpers import tiny_models
from otformer.files import write_csv
from otformer.words.models.attention import read
from otformer.words.models.models import load
from otformer.words.probe import probe as probing
from otformer.words.probe.figure import figure
from otformer.words.probe.probe import ProbeSettings, TableRow, Tally, probe_chunk, rows_of
from otformer.words.probe.scores import embedding_plan, estimate, likeness
from otformer.words.probe.table import METRICS, probe, tabulate
from otformer.words.probe.work import ProbeWork
from otformer.words.text.dictionary import Dictionary
from otformer.words.text.gold import Gold, parse_links, score_links
from otformer.words.text.text import Pair

PAIRS = [Pair(*pair) for pair in tiny_models.PAIRS]
CORPUS = [*PAIRS, Pair("", ""), Pair("man", "homme"), *PAIRS[::-1]]
ENTRIES = "cat chat, house maison, sleeps dort, dog chien, man homme, red rouge, sees voit, old vieil, woman femme"
DICTIONARY = Dictionary(tuple(entry.split()) for entry in ENTRIES.split(", "))
SOFT = ProbeSettings(reg=0.5)  # which POT, too, solves in a moment
LINKS = ["0-0 1-1 2p2 5-5", "0-0 1-1 2-2 9p9", "0-0 4-3", "1-1", "", "", "0-0", "1-1", "0-0", "1-1 3p2", "2-2", "0-0"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    makers = {"translation": tiny_models.marian, "encoder": tiny_models.bert, "decoder": tiny_models.gpt2}
    return {kind: load(make(place / kind)) for kind, make in makers.items()}


@pytest.fixture(scope="module")
def tally(models):
    return probe_chunk(models["translation"], CORPUS, DICTIONARY, settings=SOFT)


def gold_of(reading):
    """Places of the dictionary's pairs; none of these words stands twice in a sentence."""
    return [(i, j) for i, e in enumerate(reading.source) for j, f in enumerate(reading.target) if (e, f) in DICTIONARY]


def matrix(reading, row):
    """The matrix of a row, made on another way."""
    if row.method == "attention":
        heads = reading.matrices[row.reading][row.layer - 1].astype(float)
        return heads[row.head - 1] if row.head else sum(heads) / len(heads)
    if row.reading == "embeddings":
        y, x = reading.states["target-embeddings"], reading.states["source-embeddings"]
    else:
        y, x = reading.states["target"][row.layer], reading.states["source"][row.layer]
    C = 2 * cdist(y.astype(float), x.astype(float), "cosine")
    if row.method == "nearest":
        return -C
    return ot.sinkhorn([], [], C, SOFT.reg, method="sinkhorn_log", stopThr=1e-9)


@pytest.mark.parametrize("kind", ["translation", "encoder", "decoder"])
def test_every_row_against_loops(models, kind):
    model = models[kind]
    tally = probe_chunk(model, CORPUS, DICTIONARY, settings=SOFT)
    L, H = model.layers, model.heads
    assert len(tally.rows) == 2 * L * (H + 1) + 2 * (L + 2)
    assert len(set(tally.rows)) == len(tally.rows)
    readings = list(read(model, CORPUS, states=True))
    assert tally.pairs.tolist() == [len(gold_of(reading)) for reading in readings]
    assert tally.pairs.sum() > 20
    assert not tally.lost.any()
    for s in (0, 1, 3, 5, 6):
        pairs = gold_of(readings[s])
        for r, row in enumerate(tally.rows):
            if not pairs:
                assert not tally.scores[s, r].any()
                continue
            A = matrix(readings[s], row)
            rank = np.array([stats.rankdata(-A[j], method="min")[i] for i, j in pairs])
            assert tally.scores[s, r] == pytest.approx([(1 / rank).sum(), (rank <= 1).sum(), (rank <= 3).sum(), 0])


def test_likeness(models, tally):
    readings = list(read(models["translation"], CORPUS, states=True))
    for r, row in enumerate(tally.rows):
        if row.method != "attention":
            assert np.isnan(tally.likeness[:, r]).all()
            continue
        assert np.isnan(tally.likeness[5, r]).all()  # the empty pair
        A = matrix(readings[1], row)
        A = A / A.sum(1, keepdims=True) / len(A)
        plans = [matrix(readings[1], TableRow("transport", *which)) for which in (("embeddings", 0), ("states", row.layer))]
        assert tally.likeness[1, r, 0] == pytest.approx(0.5 * abs(A - plans[0]).sum(), abs=1e-5)
        assert tally.likeness[1, r, 5] == pytest.approx(0.5 * abs(A - plans[1]).sum(), abs=1e-5)
        assert tally.likeness[1, r, 2] == pytest.approx(abs(A.sum(0) - 1 / A.shape[1]).sum(), abs=1e-5)
        assert tally.likeness[1, r, 3] == pytest.approx(likeness(A, plans[0]).row_entropy, abs=1e-5)


def test_regularisation_of_the_paper(models):
    """λ = 0.05 by default, for unit vectors."""
    tally = probe_chunk(models["translation"], PAIRS[:1], DICTIONARY)
    (reading,) = read(models["translation"], PAIRS[:1], states=True)
    P = embedding_plan(reading.states["target-embeddings"], reading.states["source-embeddings"], reg=0.05)
    assert tally.likeness[0, 0, 1] == pytest.approx(0.5 * abs(P - 1 / P.size).sum(), abs=1e-5)


def test_an_encoder_of_fewer_layers(tmp_path):
    """Its last states stand beside the decoder's further ones."""
    model = load(tiny_models.marian(tmp_path / "uneven", layers=3, encoder_layers=1))
    tally = probe_chunk(model, PAIRS[:1], DICTIONARY)
    (reading,) = read(model, PAIRS[:1], states=True)
    assert reading.states["source"].shape[0] == 2
    C = cdist(reading.states["target"][3].astype(float), reading.states["source"][1].astype(float), "cosine")
    right = [stats.rankdata(C[j], method="min")[i] for i, j in gold_of(reading)]
    assert tally.scores[0, tally.rows.index(TableRow("nearest", "states", 3)), 0] == pytest.approx(sum(1 / r for r in right))


def test_embeddings_of_another_size(tmp_path):
    """ELECTRA's and ALBERT's are smaller than their states."""
    from transformers import ElectraConfig, ElectraModel

    size = tiny_models._tokenizer(tmp_path, "wordpiece")
    sizes = {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ElectraModel(ElectraConfig(vocab_size=size, intermediate_size=16, pad_token_id=3, **sizes)).save_pretrained(tmp_path)
    model = load(tmp_path)
    tally = probe_chunk(model, PAIRS[:1], DICTIONARY)
    (reading,) = read(model, PAIRS[:1], states=True)
    assert reading.states["source-embeddings"].shape[-1] == 8
    for row in (TableRow("nearest", "embeddings", 0), TableRow("nearest", "states", 1)):
        A = matrix(reading, row)
        right = [stats.rankdata(-A[j], method="min")[i] for i, j in gold_of(reading)]
        assert tally.scores[0, tally.rows.index(row), 0] == pytest.approx(sum(1 / r for r in right))


def test_ties_are_told(models):
    """Of a word that stands twice, neither embedding is nearer; their states, with positions, are not equal."""
    twice, once = Pair("cat cat", "chat dort"), Pair("cat sleeps", "chat dort")
    table = probe(models["encoder"], [twice, once], gold=[parse_links("0-0"), parse_links("0-0")])
    share = {(line["method"], line["reading"], line["layer"]): line["tied"] for line in table}
    assert share["nearest", "embeddings", 0] == share["transport", "embeddings", 0] == 0.5
    assert share["nearest", "states", 0] == share["attention", "target-source", 1] == 0


def test_chunks_make_the_whole(models, tally, monkeypatch):
    monkeypatch.setattr(probing, "GROUP", 3)
    parts = [probe_chunk(models["translation"], CORPUS[k : k + 5], DICTIONARY, settings=SOFT) for k in (0, 5, 10)]
    empty = probe_chunk(models["translation"], [], DICTIONARY)
    joined = Tally.joined(Tally.unpack(part.pack()) for part in [*parts, empty])
    assert joined.rows == tally.rows
    for name, array in tally.arrays().items():
        assert np.allclose(joined.arrays()[name], array, atol=1e-4, equal_nan=True)
    for one, other in zip(tabulate([*parts, empty]), tabulate([tally]), strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_table_against_estimate(models, tally):
    table = tabulate([tally])
    assert [TableRow(*(line[name] for name in TableRow._fields)) for line in table] == list(rows_of(models["translation"]))
    for r in (0, 5, 17, len(table) - 1):
        for q, metric in enumerate(METRICS):
            values = np.where(tally.pairs > 0, tally.scores[:, r, q] / np.maximum(tally.pairs, 1), np.nan)
            right, line = estimate(values, tally.pairs), table[r]
            assert line[metric] == pytest.approx(right.mean)
            assert line[f"{metric}_std"] == pytest.approx(right.std)
            assert (line[f"{metric}_low"], line[f"{metric}_high"]) == pytest.approx(right.interval)
            assert line[f"{metric}_pooled"] == pytest.approx(right.pooled)
            assert (line[f"{metric}_pooled_low"], line[f"{metric}_pooled_high"]) == pytest.approx(right.pooled_interval)
            assert (line["sentences"], line["pairs"]) == (right.sentences, right.pairs)
    assert "AER" not in table[0]
    assert table[0]["distance"] == pytest.approx(np.nanmean(tally.likeness[:, 0, 0]), rel=1e-5)
    assert table[-1]["distance"] is None


def test_links_against_score_links(models):
    gold = [parse_links(line) for line in LINKS]
    table = probe(models["translation"], CORPUS, gold=gold, settings=ProbeSettings(by="spaces"))
    readings = list(read(models["translation"], CORPUS, by="spaces", states=True))
    for line in table[::4]:
        row = TableRow(*(line[name] for name in TableRow._fields))
        if row.method == "transport":
            continue  # equal entries of POT and of ours need not round alike
        said = [{(int(A.argmax(1)[j]), j) for j in range(len(A))} if A.size else set() for A in _matrices(readings, row)]
        right = score_links(said, gold)
        found = [line[name] for name in ("AER", "precision", "recall", "F1")]
        assert found == pytest.approx([right.aer, right.precision, right.recall, right.f1])
        assert (line["AER_low"], line["AER_high"]) == pytest.approx(right.interval())
    assert table[0]["pairs"] == sum(len(g.sure) for g in gold)


def _matrices(readings, row):
    return [matrix(r, row) if r.source and r.target else np.zeros((len(r.target), len(r.source))) for r in readings]


def test_folded_for_the_dictionary_only(models):
    """The dictionary has lower case; the model gets the text as it is."""
    lower, upper = (probe_chunk(models["decoder"], [Pair(*map(f, PAIRS[0]))], DICTIONARY) for f in (str.lower, str.upper))
    assert lower.pairs.tolist() == upper.pairs.tolist() == [3]
    assert not np.allclose(lower.likeness[0, 0], upper.likeness[0, 0])


def test_words_beyond_the_limit(models):
    """The pair at the start counts, the one behind the limit of 40 tokens does not, nor do its links."""
    pair = Pair("cat " + "the " * 50 + "house", "chat " + "le " * 50 + "maison")
    assert len(gold_of(next(read(models["translation"], [pair])))) == 2
    links = Gold(frozenset({(0, 0), (51, 51)}), frozenset())
    tally = probe_chunk(models["translation"], [pair], DICTIONARY, [links])
    assert tally.pairs.tolist() == [1]
    assert 20 < tally.lost[0] < 104
    assert {line["lost"] for line in tabulate([tally, tally])} == {2 * tally.lost[0]}
    assert (tally.links[0, :, 3] == 2).all()
    (reading,) = read(models["translation"], [pair])
    assert (tally.links[0, :, 2] == reading.kept[1].sum()).all()
    assert (tally.links[0, :, 0] <= 1).all()


def test_links_of_a_model_folder_that_lead_nowhere_are_none_of_its_files(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    without = ProbeWork(str(tmp_path)).job()
    for name, leads in (("circle", "circle"), ("dangling", "none")):
        (tmp_path / name).symlink_to(leads)
    assert ProbeWork(str(tmp_path)).job().settings == without.settings
    assert len(without.settings["files"]) == 1


def test_gold_is_named_by_its_line(tmp_path):
    """Not by its place in a chunk, which is all that a worker knows."""
    work = ProbeWork(str(tmp_path), probing=ProbeSettings(by="spaces"))
    gold = [parse_links("0-0")] * 99 + [parse_links("1-0")]
    items = work.items([Pair("cat", "chat")] * 100, gold)
    assert next(items) == ("cat", "chat", "0-0")
    with pytest.raises(ValueError, match=r"^gold of pair 100 must have source word < 1 and target word < 1, got \(1, 0\)$"):
        list(items)


def test_bad_input(models, tally):
    model = models["translation"]
    with pytest.raises(ValueError, match=r"^dictionary or gold must be given"):
        probe_chunk(model, CORPUS)
    with pytest.raises(ValueError, match=r"^readings must be between source and target words"):
        probe_chunk(model, CORPUS, DICTIONARY, settings=ProbeSettings(readings=("encoder-self",)))
    gold = [parse_links(line) for line in LINKS]
    for few, many in ((gold[:-1], CORPUS), (gold, CORPUS[:-1])):
        with pytest.raises(ValueError, match=r"^gold must have links for every pair, and no more, got .* up to 11$"):
            probe_chunk(model, many, gold=few)
    with pytest.raises(ValueError, match=r"^gold of pair 1 must have source word < 6 and target word < 6, got \(6, 0\)$"):
        probe_chunk(model, PAIRS[:1], gold=[parse_links("6-0")])
    with pytest.raises(ValueError, match=r"^there is nothing to score: no gold pairs of words in 1 sentence pairs$"):
        probe(model, [Pair("red", "chat")], DICTIONARY)
    with pytest.raises(ValueError, match=r"^tallies must be of one model"):
        Tally.joined([tally, Tally.empty(tally.rows[1:])])
    with pytest.raises(ValueError, match=r"^tallies must not be empty$"):
        tabulate([])


def test_files(tally, tmp_path):
    table = tabulate([tally])
    write_csv(tmp_path / "t.csv", table, digits=6)
    with (tmp_path / "t.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(table)
    for line, row in zip(lines, table, strict=True):
        assert list(line) == list(row)
        assert float(line["Hits@1"]) == pytest.approx(row["Hits@1"], rel=1e-5)
        assert (line["distance"] == "") == (row["distance"] is None)
    for name, head in (("f.png", b"\x89PNG"), ("f.svg", b"<?xml")):
        figure(table, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(head)
    figure(table, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "f.svg").read_bytes()
    with pytest.raises(ValueError, match=r"^the ending of file must be one of svg, pdf, png, got 'txt'$"):
        figure(table, tmp_path / "f.txt")
    with pytest.raises(ValueError, match=r"cannot be written"):
        write_csv(tmp_path / "nowhere" / "t.csv", table)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.svg", "f.png", "f.svg", "t.csv"]
