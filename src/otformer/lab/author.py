r"""Figures 5, 6 and 7 of the final version as the author's notebooks compute them, for any model of the same class.

[1] H. Daneshmand: In-Context Learning for Discrete Optimal Transport: Can Transformers Sort? AISTATS 2026, PMLR 300:847–855;
    notebooks: github.com/hadidaneshmand/aistats26-incontextOT.

Both sentences are lemmatised, then given to the tokenizer. Words are what it makes of the lemmas: pieces up to the next word
mark (Marian) or the next split word (BERT). Each is lemmatised again and looked up (`first_matches`). The last word of
a side is left out. A matrix of pieces, the mean of heads, becomes one of words by means over the pieces of both words.

    figure 5   Marian: cross-attention of decoder step k, which has piece k as output; French in the source vocabulary
    figure 6   BERT with both sentences in one input: attention of English pieces to French ones
    figure 7   the same input: Euclidean distances of hidden states, for the embeddings and every layer

Figures 5 and 6 are the cosine with the identity, figure 7 the share that exact transport matches (words/probe/identity.py).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import NamedTuple

import numpy as np
import torch

from otformer import checks
from otformer._version import __version__
from otformer.words.jobs.jobs import Job, Work
from otformer.words.models.models import Model, load
from otformer.words.probe.identity import first_matches, identity_cosine, matched_share
from otformer.words.text.dictionary import Dictionary, muse, read_dictionary
from otformer.words.text.text import Pair

LEAST_MATCHES = 8  # words with a translation, per pair
AGREE = 0.02  # difference of two means up to which they agree
Lemmatiser = Callable[[str], str]  # a sentence → its lemmas in lower case, with spaces between


class Published(NamedTuple):
    """A figure: the class of model, the model, what is drawn, and its values, read off the notebook's picture to 0.002."""

    kind: str
    model: str
    score: str
    values: tuple[float, ...]


FIGURES = {
    "figure-5": Published("translation", "Helsinki-NLP/opus-mt-en-fr", "cosine", (0.338, 0.402, 0.436, 0.573, 0.655, 0.635)),
    "figure-6": Published(
        "encoder",
        "bert-base-multilingual-cased",
        "cosine",
        (0.285, 0.339, 0.650, 0.743, 0.709, 0.327, 0.207, 0.639, 0.634, 0.525, 0.610, 0.653),
    ),
    "figure-7": Published(
        "encoder",
        "bert-base-multilingual-cased",
        "share",
        (0.797, 0.800, 0.814, 0.820, 0.827, 0.835, 0.834, 0.836, 0.835, 0.836, 0.838, 0.836, 0.819),
    ),
}
LEMMATISERS = ("stanza", "simplemma", "none")


def lemmatiser(name: str, language: str) -> Lemmatiser:
    """Find a lemmatiser by name: "stanza" is the author's, "simplemma" looks words up, "none" only lowers the case.

    >>> lemmatiser("none", "en")("The cats")
    'the cats'
    """
    checks.choice("lemmas", name, LEMMATISERS)
    if name == "none":
        return str.lower
    try:
        module = import_module(name)
    except ImportError:
        raise checks.ArgumentError(
            "lemmas", "be installed", f"{name}, which is not", f"pip install {name}, or take simplemma or none"
        ) from None
    if name == "simplemma":
        return lambda text: " ".join(module.lemmatize(word, language).lower() for word in split_words(text))
    try:
        pipeline = module.Pipeline(language, processors="tokenize,pos,lemma", download_method=None, verbose=False)
    except Exception as error:
        advice = f"run python -c 'import stanza; stanza.download({language!r})' once"
        raise ValueError(f"stanza has no model for {language!r} here: {advice} ({type(error).__name__})") from None

    def lemmas(text: str) -> str:
        found = (word.lemma for sentence in pipeline(text).sentences for word in sentence.words)
        return " ".join(lemma.lower() for lemma in found if lemma)

    return lemmas


def split_words(text: str) -> list[str]:
    """Words, hyphens and apostrophes inside, and every other sign by itself.

    >>> split_words("Aujourd'hui, well-known!")
    ["Aujourd'hui", ',', 'well-known', '!']
    """
    return re.findall(r"[A-Za-zÀ-ÖØ-öø-ÿ0-9\-']+|[^\s\w]", text)


class Words(NamedTuple):
    """Words of a side and the matrix [W, T] that averages the positions of each; the last word is not in the list."""

    texts: list[str]
    average: np.ndarray


def words_of(numbers: list[int], positions: list[int], length: int, text: Callable[[list[int]], str]) -> Words:
    """Make words from the number of the word of every piece, and the position of each piece in an input of this length.

    >>> words_of([0, 0, 1], [0, 1, 2], 3, str)
    Words(texts=['[0, 1]'], average=array([[0.5, 0.5, 0. ],
           [0. , 0. , 1. ]]))
    """
    average = np.zeros((max(numbers) + 1, length))
    average[numbers, positions] = 1
    average /= np.maximum(average.sum(1, keepdims=True), 1)
    pieces = ([p for n, p in zip(numbers, positions, strict=True) if n == word] for word in range(max(numbers)))
    return Words([text(each) for each in pieces], average)


@dataclass(frozen=True)
class AuthorReading:
    """A model, the dictionary and the lemmatisers of both languages, as the author reads them."""

    figure: str
    model: Model
    dictionary: Dictionary
    lemmas: tuple[Lemmatiser, Lemmatiser]

    def scores(self, pairs: Iterable[Pair]) -> Iterator[np.ndarray | None]:
        """Scores of every layer, then that of chance (uniform rows or a random matching); None for a dropped pair."""
        read = self._translation if FIGURES[self.figure].kind == "translation" else self._encoder
        for pair in pairs:
            source, target = (lemmas(side) for lemmas, side in zip(self.lemmas, pair, strict=True))
            found = read(source, target) if self._is_long_enough(source, target) else None
            yield found and self._scored(*found)

    def _scored(self, source: Words, target: Words, layers: list[np.ndarray]) -> np.ndarray | None:
        i, j = first_matches(source.texts, target.texts, self.dictionary)
        if len(i) < LEAST_MATCHES:
            return None
        cosine = FIGURES[self.figure].score == "cosine"
        score, chance = (identity_cosine, 1 / math.sqrt(len(i))) if cosine else (matched_share, 1 / len(i))
        return np.array([*(score(source.average @ each @ target.average.T, i, j) for each in layers), chance])

    def _is_long_enough(self, source: str, target: str) -> bool:
        """Marian: 120 letters of English; BERT: 8 to 60 words of French, and for figure 7 of English too."""
        if self.figure == "figure-5":
            return len(source) >= 120
        sides = [target] if self.figure == "figure-6" else [source, target]
        return all(8 <= sum(bool(re.match(r"[\w\-']", word)) for word in split_words(side)) <= 60 for side in sides)

    def _text(self, ids: list[int], lemmas: Lemmatiser) -> Callable[[list[int]], str]:
        return lambda places: lemmas(self.model.tokenizer.decode([ids[k] for k in places]).strip())

    @torch.inference_mode()
    def _translation(self, source: str, target: str) -> tuple[Words, Words, list[np.ndarray]] | None:
        tokenizer, network = self.model.tokenizer, self.model.network
        ids = [list(tokenizer(side)["input_ids"]) for side in (source, target)]  # both in the source vocabulary
        if not all(1 < len(own) <= min(511, self.model.limit or 511) for own in ids):
            return None
        decoder = torch.tensor([[self.model.start or 0, *ids[1][:-1]]], device=network.device)
        inputs = torch.tensor([ids[0]], device=network.device)
        out = network.base_model(input_ids=inputs, decoder_input_ids=decoder, output_attentions=True)
        sides = []
        for own, lemmas in zip(ids, self.lemmas, strict=True):
            marks = [piece.startswith("▁") for piece in tokenizer.convert_ids_to_tokens(own)]
            numbers = np.maximum(np.cumsum(marks) - 1, 0).tolist()
            sides.append(words_of(numbers, list(range(len(own))), len(own), self._text(own, lemmas)))
        layers = [A[0].mean(0).T.cpu().double().numpy() for A in out["cross_attentions"]]  # source by target pieces
        return sides[0], sides[1], layers

    @torch.inference_mode()
    def _encoder(self, source: str, target: str) -> tuple[Words, Words, list[np.ndarray]] | None:
        tokenizer, network = self.model.tokenizer, self.model.network
        encoding = tokenizer(split_words(source), split_words(target), is_split_into_words=True)
        ids = encoding["input_ids"]
        if len(ids) > min(510, self.model.limit or 510):
            return None
        feeds = {name: torch.tensor([values], device=network.device) for name, values in encoding.items()}
        out = network.base_model(**feeds, output_attentions=True, output_hidden_states=True)
        sides = []
        for side, lemmas in enumerate(self.lemmas):
            places = [k for k, owner in enumerate(encoding.sequence_ids(0)) if owner == side]
            numbers = [encoding.word_ids(0)[k] for k in places]
            sides.append(words_of(numbers, places, len(ids), self._text(ids, lemmas)))
        if FIGURES[self.figure].score == "cosine":
            layers = [A[0].mean(0).cpu().double().numpy() for A in out["attentions"]]
        else:
            layers = [torch.cdist(h[0].double(), h[0].double()).cpu().numpy() for h in out["hidden_states"]]
        return sides[0], sides[1], layers


class Line(NamedTuple):
    """A layer: our mean with its 90 % interval, the author's value and whether they agree; None if he has no such layer."""

    layer: int
    mean: float
    low: float
    high: float
    published: float | None
    agrees: bool | None


def compared(figure: str, scores: np.ndarray) -> list[Line]:
    """Means of `scores` [pairs, layers + 1] beside the published ones; intervals at 90 % (z = 1.645; his have 1.282)."""
    published = FIGURES[checks.choice("figure", figure, FIGURES)].values
    first = 0 if figure == "figure-7" else 1
    known = scores[np.isfinite(scores).all(1), :-1]
    mean, half = known.mean(0), 1.645 * known.std(0, ddof=1) / math.sqrt(len(known)) if len(known) > 1 else np.inf
    lines = []
    for k, (m, h) in enumerate(zip(mean.tolist(), np.broadcast_to(half, mean.shape).tolist(), strict=True)):
        his = published[k] if k < len(published) else None
        lines.append(Line(first + k, m, m - h, m + h, his, None if his is None else abs(m - his) <= AGREE))
    return lines


def author_reading(
    figure: str, model: str, dictionary: Dictionary, lemmas: str, languages: tuple[str, str]
) -> AuthorReading:
    """Load a model for a figure, and refuse one of another class."""
    found, wanted = load(model), FIGURES[checks.choice("figure", figure, FIGURES)]
    if found.kind != wanted.kind:
        kinds = {"translation": "an encoder-decoder with cross-attention", "encoder": "an encoder, as BERT is"}
        raise checks.ArgumentError("model", f"be {kinds[wanted.kind]} for {figure}", f"{model}, of kind {found.kind}")
    source, target = (lemmatiser(lemmas, side) for side in languages)
    return AuthorReading(figure, found, dictionary, (source, target))


@dataclass(frozen=True)
class AuthorWork:
    """The scores of a chunk of sentence pairs, as work on a corpus (words/jobs/jobs.py)."""

    figure: str
    model: str
    dictionary: str
    lemmas: str
    languages: tuple[str, str] = ("en", "fr")

    def reading(self) -> AuthorReading:
        """Load everything; raise ValueError for what cannot be used."""
        name = "-".join(self.languages)
        dictionary = muse(name) if self.dictionary == "muse" else read_dictionary(self.dictionary)
        return author_reading(self.figure, self.model, dictionary, self.lemmas, self.languages)

    def job(self, chunk: int = 32) -> Job:
        return Job(self, {**asdict(self), "version": __version__}, chunk, pack=_pack, unpack=json.loads)

    def __call__(self) -> Work:
        reading = self.reading()
        return lambda items: [each.tolist() for each in reading.scores(Pair(*item) for item in items) if each is not None]


def _pack(scores: list[list[float]]) -> bytes:
    return json.dumps(scores).encode()
