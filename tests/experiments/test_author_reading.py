"""The author's reading of a model: words, filters, and scores beside a plain loop from his description."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from needs import missing
from otformer.lab.author import FIGURES, AuthorReading, author_reading, compared, lemmatiser
from otformer.words.models.models import load
from otformer.words.models.shipped import folder
from otformer.words.text.dictionary import Dictionary
from otformer.words.text.text import Pair

pytest.importorskip("transformers", reason=missing("words"))
PAIR = Pair(
    "the black cat and the small dog live in a large house near the old river with nine good friends of the young queen "
    "today",
    "le chat noir et le petit chien vivent dans une grande maison près de la vieille rivière avec neuf bons amis de la "
    "jeune reine aujourd'hui",
)
ENGLISH = ["black", "cat", "small", "dog", "large", "house", "old", "river", "nine", "friends", "queen"]
FRENCH = ["noir", "chat", "petit", "chien", "grande", "maison", "vieille", "rivière", "neuf", "amis", "reine"]
DICTIONARY = Dictionary(zip(ENGLISH, FRENCH, strict=True))


def reading(figure: str) -> AuthorReading:
    name = "en-fr" if figure == "figure-5" else "bert-en-fr"
    return author_reading(figure, str(folder(name)), DICTIONARY, "none", ("en", "fr"))


def looped(words: list[list[str]], matrix: np.ndarray, places: list[list[list[int]]]) -> float:
    """The cosine with the identity, word by word; words of both sides but the last, positions of the pieces of all."""
    W = np.zeros((len(places[0]), len(places[1])))
    for i, own in enumerate(places[0]):
        for j, other in enumerate(places[1]):
            W[i, j] = np.mean([matrix[s, t] for s in own for t in other])
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    keys = [i for i, word in enumerate(words[0]) if set(DICTIONARY[word]) & set(words[1])]
    values = [words[1].index(next(f for f in DICTIONARY[words[0][i]] if f in words[1])) for i in keys]
    assert len(keys) >= 8
    crop = W[np.ix_(keys, values)].ravel()
    unit = np.eye(len(keys)).ravel()
    return float(crop @ unit / np.linalg.norm(crop) / np.linalg.norm(unit))


def test_figure_5_is_the_plain_loop():
    model = load(folder("en-fr"))
    tokenizer = model.tokenizer
    ids = [tokenizer(side)["input_ids"] for side in PAIR]
    pieces = [tokenizer.convert_ids_to_tokens(own) for own in ids]
    start = model.network.config.decoder_start_token_id
    with torch.no_grad():
        shifted = torch.tensor([[start, *ids[1][:-1]]])
        out = model.network(input_ids=torch.tensor([ids[0]]), decoder_input_ids=shifted, output_attentions=True)
    words, places = [], []
    for own, side in zip(ids, pieces, strict=True):
        groups: list[list[int]] = []
        for k, piece in enumerate(side):
            groups += [[]] if piece.startswith("▁") else []
            groups[-1].append(k)
        places.append(groups)
        words.append([tokenizer.decode([own[k] for k in group]).strip().lower() for group in groups[:-1]])
    expected = [looped(words, A[0].mean(0).T.double().numpy(), places) for A in out["cross_attentions"]]
    (found,) = reading("figure-5").scores([PAIR])
    assert found[:-1] == pytest.approx(expected, abs=1e-6)
    assert 0 < found[-1] <= 8**-0.5


@pytest.mark.parametrize("figure", ["figure-6", "figure-7"])
def test_encoder_figures_have_a_score_for_every_layer(figure):
    (found,) = reading(figure).scores([PAIR])
    assert len(found) == (12 if figure == "figure-6" else 13) + 1
    assert ((found >= 0) & (found <= 1)).all()


def test_pairs_that_the_filters_drop_have_no_scores():
    short = Pair("the black cat", "le chat noir")
    unmatched = Pair("word " * 40, "mot " * 40)
    assert list(reading("figure-5").scores([short, unmatched])) == [None, None]
    assert list(reading("figure-7").scores([short])) == [None]


def test_agreement_is_within_two_hundredths_of_the_published_mean():
    published = np.array(FIGURES["figure-5"].values)
    scores = np.column_stack([np.tile(published + np.array([0, 0.019, -0.019, 0.021, -0.021, 0]), (3, 1)), np.zeros(3)])
    assert [line.agrees for line in compared("figure-5", scores)] == [True, True, True, False, False, True]
    assert compared("figure-7", np.zeros((2, 15)))[-1].published is None  # 14 layers, of which he has 13


def test_wrong_models_and_lemmatisers_are_refused_in_one_line(monkeypatch):
    with pytest.raises(ValueError, match="model must be an encoder-decoder with cross-attention for figure-5"):
        author_reading("figure-5", str(folder("bert-en-fr")), DICTIONARY, "none", ("en", "fr"))
    with pytest.raises(ValueError, match="figure must be"):
        author_reading("figure-9", str(folder("en-fr")), DICTIONARY, "none", ("en", "fr"))
    with pytest.raises(ValueError, match="lemmas must be"):
        lemmatiser("spacy", "en")
    monkeypatch.setitem(__import__("sys").modules, "stanza", None)
    with pytest.raises(ValueError, match="lemmas must be installed, got stanza, which is not: pip install stanza"):
        lemmatiser("stanza", "en")
