"""One head as an aligner: what the network itself gives, a decoder cut short, words beyond the limit, the mean with HMMs."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch

from helpers.tiny_models import bert, marian
from otformer.words.align.aligners import Array
from otformer.words.align.attention_head import AttentionHead
from otformer.words.align.methods import HEADS, Attention, Hmm, method
from otformer.words.models.shipped import shipped_folder
from otformer.words.text.languages import LanguagePair

PAIRS = [
    (["the", "cat", "sleeps", "in", "the", "house"], ["le", "chat", "dort", "dans", "la", "maison"]),
    (["The", "man", ",", "the", "Woman"], ["L'", "homme", ",", "la", "femme"]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return marian(tmp_path_factory.mktemp("head") / "marian", layers=3)


def expected(folder, source: list[str], target: list[str], layer: int, head: int) -> Array:
    """By hand, word by word: the whole network, subwords found by giving each word to the tokenizer alone."""
    from transformers import AutoTokenizer, MarianMTModel

    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = MarianMTModel.from_pretrained(folder, attn_implementation="eager").eval()
    left = [tokenizer(word.lower())["input_ids"][:-1] for word in source]
    right = [tokenizer(text_target=word.lower())["input_ids"][:-1] for word in target]
    begin = network.config.decoder_start_token_id
    ids = [*chain(*left), 0], [begin, *chain(*right), 0]
    with torch.no_grad():
        given, forced = (torch.tensor([each]) for each in ids)
        out = network(given, decoder_input_ids=forced, output_attentions=True)
    A = out.cross_attentions[layer - 1][0, head - 1].double().numpy()
    columns = np.split(np.arange(len(ids[0]) - 1), np.cumsum([len(w) for w in left])[:-1])
    rows = np.split(np.arange(1, len(ids[1]) - 1), np.cumsum([len(w) for w in right])[:-1])
    words = np.array([[A[np.ix_(r, c)].sum(1).mean() for c in columns] for r in rows])
    return words / words.sum(1, keepdims=True)


@pytest.mark.parametrize(("layer", "head"), [(1, 2), (2, 1), (3, 2)])
def test_attention_is_that_of_the_network(folder, layer, head):
    made = AttentionHead.of(folder, layer, head)
    assert len(made.model.network.get_decoder().layers) == layer
    for pair, A in zip(PAIRS, made.attention(PAIRS), strict=True):
        np.testing.assert_allclose(A, expected(folder, *pair, layer, head), atol=1e-5)


def test_what_is_not_there_is_named(folder, tmp_path):
    for layer, head, message in (
        (4, 1, "layer must be a whole number of at most 3, got 4"),
        (1, 3, "head must be a whole number of at most 2"),
        (0, 1, "layer must"),
    ):
        with pytest.raises(ValueError, match=message):
            AttentionHead.of(folder, layer, head)
    with pytest.raises(ValueError, match="model must be a translation model, got an encoder model"):
        AttentionHead.of(bert(tmp_path / "bert"), 1, 1)


def test_directions_are_means_of_posteriors_and_attention():
    """Rows that the head sees: half of each; columns: half of each source word's share of the attention."""
    way, hmm = method("attention", "en-fr"), Hmm.shipped(LanguagePair.of("en-fr"))
    pair = ["The", "black", "cat", "sleeps"], ["Le", "chat", "noir", "dort"]
    A, B = way.directions([pair])
    first, second = hmm.directions([pair])
    found = expected(shipped_folder() / "en-fr", *pair, *HEADS["en-fr"])
    np.testing.assert_allclose(2 * A[0] - first[0], found, atol=1e-4)
    np.testing.assert_allclose(2 * B[0] - second[0], found / found.sum(0), atol=1e-4)


def test_words_beyond_the_limit_have_their_posteriors():
    way, hmm = Attention.shipped(LanguagePair.of("de-en")), Hmm.shipped(LanguagePair.of("de-en"))
    words = ["Hund", "Haus", "Mann", "Frau", "Buch"] * 40, ["dog", "house", "man", "woman", "book"] * 40
    (A,), (B,) = way.directions([words])
    (first,), (second,) = hmm.directions([words])
    np.testing.assert_array_equal(A[-20:], first[-20:])
    np.testing.assert_array_equal(B[:, -20:], second[:, -20:])
    assert np.abs(A[:20, :20] - first[:20, :20]).max() > 0.01
    assert np.isfinite(way.scores([words])[0]).all()
    for mixed, posterior, axis in ((A, first, 1), (B, second, 0)):  # mass as before, or that of attention: 1
        mass, before = mixed.sum(axis), posterior.sum(axis)
        assert (mass <= np.maximum(before, 1) + 1e-6).all()
        assert (mass >= np.minimum(before, 1) - 1e-6).all()


@pytest.mark.slow
def test_long_sentences_are_linked_as_short_ones():
    """Forty sentences in a row have the links that they have alone, but for words that could go to another sentence's."""
    from otformer.words.aligning import align
    from otformer.words.text.examples import examples

    chosen = examples("en-fr")[:40]
    alone = align([e.line for e in chosen], "en-fr", "attention", by="spaces")
    row = " ".join(word for e in chosen for word in e.source), " ".join(word for e in chosen for word in e.target)
    (together,) = align([row], "en-fr", "attention", by="spaces")
    starts = np.cumsum([[0, 0]] + [[len(e.source), len(e.target)] for e in chosen], axis=0)
    expected = {(i + x, j + y) for links, (x, y) in zip(alone, starts.tolist(), strict=False) for i, j in links}
    assert len(row[0].split()) > 250
    assert len(together & expected) > 0.8 * len(expected)


def test_odd_words_are_one_word_each(folder):
    """A space within a word, nothing at all, half of a surrogate pair: as many rows and columns as words."""
    (A,) = AttentionHead.of(folder, 1, 1).attention([(["New York", "", "\ud83d"], ["a\u00a0b", "\u200b", " "])])
    assert A.shape == (3, 3)
    np.testing.assert_allclose(A.sum(1), 1, atol=1e-5)


def test_the_head_is_of_the_package_s_own_model(monkeypatch, tmp_path):
    monkeypatch.setenv("OTFORMER_MODELS", str(tmp_path))
    assert method("attention", "de-en").head.model.name == str(shipped_folder() / "de-en")


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install transformers$"):
        method("attention")
    assert isinstance(method("auto"), Hmm)
