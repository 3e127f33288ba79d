"""``otformer reproduce figure-5 --model …``: a table beside the author's numbers, and wrong inputs."""

from __future__ import annotations

import csv
import json

import pytest

from helpers.command import otformer
from needs import missing
from otformer.lab.author import FIGURES

pytest.importorskip("transformers", reason=missing("words"))
LINE = (
    "the black cat and the small dog live in a large house near the old river with nine good friends of the young queen "
    "today ||| le chat noir et le petit chien vivent dans une grande maison près de la vieille rivière avec neuf bons "
    "amis de la jeune reine aujourd'hui"
)
WORDS = "black noir\ncat chat\nsmall petit\ndog chien\nlarge grande\nhouse maison\nold vieille\nriver rivière\nnine neuf\n"


@pytest.fixture
def given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text(f"{LINE}\n" * 3 + "a ||| un\n")
    (tmp_path / "words").write_text(WORDS)
    return ["--text", "text", "--dictionary", "words", "--lemmas", "none", "--out", "out"]


@pytest.mark.parametrize(("figure", "model"), [("figure-5", "en-fr"), ("figure-6", "bert-en-fr")])
def test_every_layer_stands_beside_the_published_number(given, figure, model):
    done = otformer("reproduce", figure, "--model", model, *given)
    assert done.returncode == 0, done.stderr
    first, *layers, last = done.stdout.splitlines()
    assert "on 3 of 4 pairs" in first
    assert len(layers) == len(FIGURES[figure].values)
    assert all(f"published {value:.3f}" in line for value, line in zip(FIGURES[figure].values, layers, strict=True))
    assert last.endswith(f"out/{figure}-{model}.csv")
    with open(f"out/{figure}-{model}.csv") as file:
        assert [int(row["layer"]) for row in csv.DictReader(file)] == list(range(1, len(layers) + 1))
    done = otformer("reproduce", figure, "--model", model, *given, "--json")
    assert json.loads(done.stdout)["pairs"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figure-5", "--model", "en-fr", "--text", "none.txt"], "'none.txt' does not exist"),
        (["figure-5", "--model", "none/here", "--text", "text"], "is neither a folder nor in the Hugging Face cache"),
        (["figure-5", "--model", "bert-en-fr", "--text", "text"], "--model must be an encoder-decoder with cross-attention"),
        (["figure-5", "--model", "en-fr"], "--model must be used with --text"),
        (["figure-2", "--model", "en-fr", "--text", "text"], "name must be one of figure-5, figure-6, figure-7"),
        (["figure-5", "--model", "en-fr", "--text", "a ||| un"], "must have at least 2 pairs"),
        (["figure-8", "--as", "author"], "with --as author, got 'figure-8'"),
        (["figure-3", "--as", "me"], "--as must be"),
        (["--as", "author"], "--as cannot be combined with all experiments"),
        (["figure-5", "--model", "en-fr", "--text", "text", "--full"], "--full cannot be combined with --model and --text"),
        (["figure-3", "--as", "author", "--lemmas", "none"], "--lemmas cannot be combined with experiments"),
    ],
)
def test_wrong_input_is_one_line(given, arguments, message):
    rest = [] if "--as" in arguments else ["--dictionary", "words", "--lemmas", "none"]
    done = otformer("reproduce", *arguments, *rest, "--out", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
