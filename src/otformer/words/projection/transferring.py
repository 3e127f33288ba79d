"""Markup and labels from sentences to their translations: `transfer` and `transfer_labels`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from otformer.errors import ArgumentError
from otformer.words.align.own_folder import OwnAligner
from otformer.words.aligning import Model, align, own
from otformer.words.projection.labels import projected
from otformer.words.projection.pairs import Links, MarkedPair, Tokens, Weights, as_spaced, weights
from otformer.words.text.text import Given, as_pair, words


@overload
def transfer(  # type: ignore[overload-overlap]
    pairs: str,
    languages: str = ...,
    method: str = ...,
    by: str | None = ...,
    links: Iterable[Links] | None = ...,
    model: Model | None = ...,
) -> str: ...
@overload
def transfer(
    pairs: Iterable[Given],
    languages: str = ...,
    method: str = ...,
    by: str | None = ...,
    links: Iterable[Links] | None = ...,
    model: Model | None = ...,
) -> list[str]: ...
def transfer(
    pairs: Iterable[Given] | str,
    languages: str = "en-fr",
    method: str = "auto",
    by: str | None = None,
    links: Iterable[Links] | None = None,
    model: Model | None = None,
) -> str | list[str]:
    """Put the tags (HTML, XML) of sentences around the same words of their translations.

    Every tag of the source occurs once in the result, in the source's tree: an element stays in its parent, and siblings do
    not overlap. The text of the result is the target's, character for character; its ``&``, ``<`` and ``>`` are written as
    entities. An element covers the target words from the first to the last one linked to a word inside it, except those
    that its siblings cover. Without such words it is placed beside its neighbours in the source
    (words/projection/placing.py).

    Parameters
    ----------
    pairs : list of str or of (str, str), or one str
        ``source ||| target`` or (source, target). Only the source has tags; the target is plain text.
    languages, method, by : str
        As in `align`. With ``links`` only ``by`` is used; with ``model``, ``languages`` and ``method`` are not.
    links : list, one for each pair
        `Alignment`s, sets of links, or Pharaoh lines; they count the words of the source without its tags.
    model : folder or aligner, optional
        An aligner trained on your own text, for any two languages, as in `align`.

    Returns
    -------
    list of str, or one str for one str

    Examples
    --------
    >>> transfer("Der <b>schwarze</b> Hund ||| The black dog", "de-en")
    'The <b>black</b> dog'
    >>> transfer([("the <i>black</i> cat<br/>", "le chat noir")], links=["0-0 1-2 2-1"])
    ['le chat <i>noir</i><br/>']
    """
    listed = [pairs] if isinstance(pairs, str) else pairs
    if not isinstance(listed, Iterable):
        raise ArgumentError("pairs", "be a list of sentence pairs or one text", type(pairs).__name__)
    names = "pairs" if isinstance(pairs, str) else "pairs[{}]"
    aligner = _own(model, links)
    split = _split(by, aligner)
    given = [MarkedPair(as_pair(pair), split, names.format(number)) for number, pair in enumerate(listed)]
    found = _linked([pair.tokens for pair in given], links, languages, method, aligner)
    made = [pair.line(links) for pair, links in zip(given, found, strict=True)]
    return made[0] if isinstance(pairs, str) else made


def transfer_labels(
    sentences: Iterable[Sequence[tuple[str, str]]],
    targets: Iterable[str | Sequence[str]],
    languages: str = "en-fr",
    method: str = "auto",
    by: str | None = None,
    links: Iterable[Links] | None = None,
    model: Model | None = None,
) -> list[list[tuple[str, str]]]:
    """Transfer the labels of words to the words of their translations.

    Labels O, B-PER, I-PER are spans and stay contiguous; any other label follows the best link
    (words/projection/labels.py).

    Parameters
    ----------
    sentences : list of lists of (word, label)
    targets : list of str, or of lists of words
        The translations; ``by`` splits a text into words as `align` does.
    languages, method, links, model
        As of `transfer`.

    Examples
    --------
    >>> transfer_labels([[("Anna", "B-PER"), ("schläft", "O")]], ["Anna sleeps ."], "de-en")
    [[('Anna', 'B-PER'), ('sleeps', 'O'), ('.', 'O')]]
    >>> transfer_labels([[("the", "DET"), ("cat", "NOUN")]], [["chat"]], links=["1-0"])
    [[('chat', 'NOUN')]]
    """
    labelled, translations = [list(sentence) for sentence in sentences], list(targets)
    if len(labelled) != len(translations):
        raise ArgumentError("targets", f"have one for each of {len(labelled)} sentences", len(translations))
    aligner = _own(model, links)
    way = _split(by, aligner)
    split = [words(target, way) if isinstance(target, str) else [*target] for target in translations]
    tokens = [([word for word, _ in sentence], target) for sentence, target in zip(labelled, split, strict=True)]
    found = _linked(tokens, links, languages, method, aligner)
    return [
        list(zip(target, projected([label for _, label in sentence], scores, len(target)), strict=True))
        for sentence, target, scores in zip(labelled, split, found, strict=True)
    ]


def _own(model: Model | None, links: Iterable[Links] | None) -> OwnAligner | None:
    """The aligner of a model, which is not used beside links."""
    if model is not None and links is not None:
        raise ArgumentError("model", "be left out where links are given", repr(model))
    return None if model is None else own(model)


def _split(by: str | None, aligner: OwnAligner | None) -> str:
    """How texts become words: as is said, or as the aligner's text did."""
    return by or (aligner.about.by if aligner else "words")


def _linked(
    tokens: Sequence[Tokens], links: Iterable[Links] | None, languages: str, method: str, aligner: OwnAligner | None
) -> list[Weights]:
    """The links of every pair: those that are given, or ours."""
    if links is None:
        return [found.scores for found in align(map(as_spaced, tokens), languages, method, "spaces", model=aligner)]
    if not isinstance(links, Iterable):
        raise ArgumentError("links", "be a list with the links of every pair", type(links).__name__)
    given = [links] if isinstance(links, str) else list(links)
    if len(given) != len(tokens):
        raise ArgumentError("links", f"have one entry for each of {len(tokens)} pairs", len(given))
    return [weights(each, tokens[number], f"links[{number}]") for number, each in enumerate(given)]
