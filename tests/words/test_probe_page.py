"""The page of a model's attention: its numbers against the network, POT and a hand-made case; its size; hostile text."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import cdist

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
import otformer as of
from helpers import tiny_models
from otformer.words.models.attention import TEMPLATE, model_inputs, read, split_template
from otformer.words.models.models import load
from otformer.words.probe import page as pages
from otformer.words.probe.one_pair import PairProbe
from otformer.words.probe.page import show
from otformer.words.probe.probe import LIKENESS, ProbeSettings
from otformer.words.text.gold import parse_links
from otformer.words.text.text import Pair

PAIRS = [Pair(*pair) for pair in tiny_models.PAIRS[:3]]
KINDS = {"marian": "translation", "bert": "encoder", "gpt2": "decoder"}
READINGS = {
    "translation": ["cross-input", "cross-output"],
    "encoder": ["target-source", "source-target"],
    "decoder": ["input", "output"],
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: load(getattr(tiny_models, name)(folder / name)) for name in KINDS}


def inside(html: str) -> dict:
    """The data of a page, as its script reads them."""
    (found,) = re.findall(r'<script type="application/json" data-sum="\d+" id="data">([^<]*)</script>', html)
    return json.loads(found)


def unpacked(text: str, *shape: int) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(shape) / 255


@pytest.mark.parametrize("name", KINDS)
def test_matrices_and_distances_are_those_of_the_network_and_of_pot(models, name):
    model, soft = models[name], ProbeSettings(reg=0.5)
    data = inside(show(model, PAIRS, settings=soft).html)
    assert data["kind"] == KINDS[name]
    assert [reading[0] for reading in data["readings"]] == READINGS[KINDS[name]]
    assert (data["layers"], data["heads"], data["model"]) == (2, 2, name)
    for pair, read_pair in zip(data["pairs"], read(model, PAIRS, states=True), strict=True):
        assert (pair["source"], pair["target"]) == (read_pair.source, read_pair.target)
        n, m = len(pair["source"]), len(pair["target"])
        C = 2 * cdist(read_pair.states["target-embeddings"], read_pair.states["source-embeddings"], "cosine")
        P = ot.sinkhorn([], [], C, 0.5, method="sinkhorn_log", stopThr=1e-9)
        np.testing.assert_allclose(unpacked(pair["plans"], 3, m, n)[0], m * P, atol=1 / 500)
        for r, reading in enumerate(data["readings"]):
            heads = read_pair.matrices[reading[0]]
            A = np.concatenate([heads, heads.mean(1, keepdims=True)], 1)  # [layers, heads + 1, m, n]
            A = A / A.sum(-1, keepdims=True)
            np.testing.assert_allclose(unpacked(pair["attention"][r], 2, 3, m, n), A, atol=1 / 500)
            away = 0.5 * np.abs(A / m - P).sum((-1, -2)).ravel()
            np.testing.assert_allclose(np.array(pair["distance"][r]) * 1e-4, away, atol=1e-4)
            columns = np.abs(A.sum(-2) / m - 1 / n).sum(-1).ravel()
            np.testing.assert_allclose(np.array(pair["marginal_error"][r]) * 1e-4, columns, atol=1e-4)


def test_the_share_on_words_is_what_the_network_gives_to_their_tokens(models):
    model, pair = models["marian"], PAIRS[0]
    given = model_inputs(model, pair, "words", split_template(TEMPLATE))
    feeds = {name: torch.tensor([ids]) for name, ids in given.feeds.items()}
    with torch.no_grad():
        out = model.network.base_model(**feeds, output_attentions=True)
    A = torch.stack(out.cross_attentions)[:, 0].numpy()  # [L, H, T, S]
    on_words = A[..., given.places["source"].any(0)].sum(-1)  # [L, H, T]
    expected = np.stack([on_words[..., word].mean(-1) for word in given.places["target"]]).mean(0)
    (found,) = inside(show(model, pair).html)["pairs"]
    share = np.array(found["share"][0]).reshape(2, 3) * 1e-4
    np.testing.assert_allclose(share[:, :2], expected, atol=1e-4)
    assert (share < 0.999).all()  # something falls on the end of the sentence


HOSTILE = ["</script><script>alert(1)</script>", "<!--", "/*DATA*/", "/*SCRIPT*/", "&lt;b&gt;", '"\\', "$&"]


class Scripts(HTMLParser):
    """Counts elements, as a browser would."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_hostile_words_and_names_stay_text(models, tmp_path):
    folder = tiny_models.bert(tmp_path / "<img src=x onerror=alert(1)>'\"&")
    plain = Scripts(show(models["bert"], "the cat ||| le chat").html).found
    made = show(folder, [(" ".join(HOSTILE), "le chat")], settings=ProbeSettings(by="spaces"))
    found = Scripts(made.html).found
    sums = [[attrs.pop("data-sum") for _, attrs in each if "data-sum" in attrs] for each in (found, plain)]
    assert [(len(each), each[0].isdigit()) for each in sums] == [(1, True)] * 2
    assert found == plain  # the same elements with the same attributes, whatever the words
    assert [attrs.get("type") for tag, attrs in plain if tag == "script"] == ["application/json", None]
    data = inside(made.html)
    assert data["model"] == folder.name
    assert data["pairs"][0]["source"] == " ".join(HOSTILE).split()
    frame = Scripts(made._repr_html_()).found
    assert [tag for tag, _ in frame] == ["iframe"]
    assert (frame[0][1]["sandbox"], frame[0][1]["srcdoc"]) == ("allow-scripts", made.html)


def test_the_policy_names_the_hash_of_the_script(models):
    import hashlib

    html = show(models["bert"], PAIRS[0]).html
    (policy,) = (attrs["content"] for tag, attrs in Scripts(html).found if "http-equiv" in attrs)
    (script,) = re.findall(r"<script>(.*)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert f"const FORMAT = {pages.FORMAT};" in script


@pytest.mark.parametrize("name", KINDS)
def test_a_page_is_never_larger_than_was_reckoned(models, name, monkeypatch):
    gold = [parse_links("0-0 1-1")] * 2
    for pairs in (PAIRS[:2], [("<<<< ééé", "& 😀")] * 2, [(" ".join(["cat"] * 9), " ".join(["chat"] * 12))] * 2):
        made = show(models[name], pairs, gold)
        monkeypatch.setattr(pages, "LARGEST_PAGE", len(made.html.encode()) - 1)
        with pytest.raises(ValueError, match=r"^pairs must fit on a page of \d+ MB, got more: pair [12], of"):
            show(models[name], pairs, gold)
        monkeypatch.undo()


def test_too_much_is_refused_before_the_model_runs(models, monkeypatch):
    model = models["marian"]
    monkeypatch.setattr(model.network.base_model, "forward", None)
    monkeypatch.setattr(pages, "LARGEST_PAGE", 60_000)
    hint = r"takes \d+ KB; the first \d+ of 500 pairs fit: show fewer, or fewer readings$"
    with pytest.raises(ValueError, match=hint):
        show(model, [PAIRS[1]] * 500)
    monkeypatch.setattr(pages, "MOST_PAIRS", 5)
    with pytest.raises(ValueError, match=r"^pairs must be at most 5 on a page, got more: show fewer$"):
        show(model, (PAIRS[1] for _ in iter(int, 1)))  # without end


def hand_made(A, P) -> PairProbe:
    """One reading of one layer of one head."""
    from otformer.words.probe.probe import likeness_of

    A, P = np.array(A, dtype=float), np.array(P, dtype=float)
    attention, plans = np.stack([A, A])[None, None], np.stack([P, P])
    alike = likeness_of(attention, np.stack([P, P, P])).reshape(1, 2, len(LIKENESS))
    words = tuple("abc"[: A.shape[1]]), tuple("xyz"[: A.shape[0]])
    return PairProbe(*words, {"input": attention[0]}, plans, {"input": alike}, {"input": np.ones((1, 2))})


def test_verdicts():
    I, third = np.eye(3), np.full((3, 3), 1 / 3)  # uniform attention is 2/3 from the plan I/3
    for share, kind in (
        (0.0, "transport"),
        (0.14, "transport"),
        (0.16, "towards"),
        (0.49, "towards"),
        (0.51, "not"),
        (1, "not"),
    ):
        found = hand_made((1 - share) * I + share * third, I / 3)
        assert found.kind == kind
        assert found.nearest["distance"] == pytest.approx(share * 2 / 3)
        assert f": {100 * share * 2 / 3:.1f} % of its mass lies elsewhere" in found.verdict()
        assert "uniform attention: 66.7 %)." in found.verdict()
    starts = "The mean attention of one layer is a transport plan. ", "No layer's mean attention is a transport plan. "
    assert hand_made(I, I / 3).verdict().startswith(starts[0])
    assert hand_made(np.roll(I, 1, 0), I / 3).verdict().startswith(starts[1])  # sharp, and wrong
    flat = hand_made([[1.0, 0.0, 0.0]], [[1 / 3] * 3])  # one target word: every plan is uniform
    assert flat.kind == "flat"
    assert flat.verdict().startswith("The plan is too close to uniform to say whether")
    assert flat.verdict().endswith("It differs from uniform attention by 0.0 %.")


def test_the_nearest_head_is_named_beside_the_mean():
    I = np.eye(3)
    found = hand_made(np.roll(I, 1, 0), I / 3)
    alike = np.repeat(found.likeness["input"], 2, axis=0)  # [2 layers, head and mean, …]
    alike[1, 0, LIKENESS.index("distance")] = 0.019
    found = replace(found, likeness={"input": alike})
    assert found.nearest_head == ("input", 2, 1, 0.019)
    assert found.verdict().startswith(
        "No layer's mean attention is a transport plan. Nearest is layer 1 of 2, read at the input: 100.0 %"
    )
    assert found.verdict().endswith("layer 2, head 1, read at the input: 1.9 %, and it is a transport plan.")


def test_links_of_words_without_tokens_are_left_out(models):
    long = Pair("the cat " * 40, "le chat")  # beyond the 64 tokens of the encoder
    made = show(models["bert"], [long], [parse_links("1-1 79-0")])
    (pair,) = inside(made.html)["pairs"]
    assert pair["lost"] == 82 - len(pair["source"]) - len(pair["target"]) > 0
    assert pair["gold"] == [[1, 1]]


def test_saving_and_the_same_again(models, tmp_path):
    made = show(models["gpt2"], [PAIRS[0], "", ("cat", "")])  # pairs without words are left out
    assert made.save(tmp_path / "page.html").read_text(encoding="utf-8") == made.html
    assert show(models["gpt2"], [PAIRS[0]]).html == made.html
    assert re.fullmatch(r"ProbePage\(gpt2, 1 sentence pair, \d+ KB: save\(file\) writes it\)", repr(made))
    with pytest.raises(ValueError, match=r"^file must end in \.html or \.htm, got .*page\.png'$"):
        made.save(tmp_path / "page.png")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("pairs", "gold", "message"),
    [
        ("no bar", None, r"^pairs line 1 must have one \|\|\|"),
        ([], None, r"^pairs must have one with words on both sides, got 0 without$"),
        (["", ("a", " ")], None, r"^pairs must have one with words on both sides, got 2 without$"),
        ([("a", "b", "c")], None, r"^pairs must be 'source \|\|\| target' or \(source, target\), got "),
        ([("a", 1)], None, r"^pairs must be 'source \|\|\| target' or \(source, target\), got "),
        (["a ||| b"], [], r"^gold must have links for each of 1 pairs, got 0$"),
        (["a ||| b"], [parse_links("5-5")], r"^gold of pair 1 must have source word < 1"),
    ],
)
def test_bad_input(models, pairs, gold, message):
    with pytest.raises(ValueError, match=message):
        show(models["marian"], pairs, gold)


def test_public_names_load_nothing_before_they_are_used():
    assert of.words.show is show
    code = "import sys, otformer as of; of.words; print('torch' in sys.modules, hasattr(of.words, 'slow'))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False False\n"
