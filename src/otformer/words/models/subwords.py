"""Words from subwords: which subwords make up which word, and vectors and matrices of words from those of subwords.

A grouping is a matrix ``member`` [W, T] of booleans: subword t belongs to word w. Special tokens belong to no word, subwords
over two words to both. Tokenizers come with transformers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.words.text.text import Span, fold, word_spans

Member = np.ndarray[Any, np.dtype[np.bool_]]
HOW = ("mean", "mass", "any")


def group_by_offsets(offsets: Sequence[Span], spans: Sequence[Span]) -> Member:
    """The grouping [W, T] of subwords at text[s:e] into words at text[i:j]: those that share a character.

    A subword that is only a space belongs to the word right after it; an empty one (s = e), as special tokens are, to none.

    >>> group_by_offsets([(0, 3), (3, 7), (7, 8), (0, 0)], [(0, 3), (4, 8)]).astype(int).tolist()
    [[1, 0, 0, 0], [0, 1, 1, 0]]
    """
    s, e = np.array(offsets, dtype=int).reshape(-1, 2).T
    i, j = np.array(spans, dtype=int).reshape(-1, 2).T[:, :, None]
    shared = np.minimum(e, j) > np.maximum(s, i)
    before = (e == i) & (s < e) & ~shared.any(0)
    return np.asarray(shared | before)


def covered(member: Member) -> Member:
    """Which words have subwords [W]: not those cut off, nor those that a tokenizer drops. Leave out the others' pairs."""
    return np.asarray(member.any(1))


class Encoded(NamedTuple):
    """Token numbers [T] of a sentence and the grouping of its words [W, T]."""

    ids: list[int]
    member: Member


class EncodedPair(NamedTuple):
    """Token numbers [T] of two sentences in one input, the groupings of their words, [W, T] each, and token types [T].

    Types say which sentence a token is of; None where the tokenizer has none.
    """

    ids: list[int]
    source: Member
    target: Member
    types: list[int] | None


def encode(
    tokenizer: Any,
    text: str,
    spans: Sequence[Span] | None = None,
    by: str = "spaces",
    target: bool = False,
    max_length: int | None = None,
) -> Encoded:
    """Tokens and word grouping of a sentence, special tokens included, by a transformers tokenizer.

    Words stand at ``spans``, by default `word_spans(text, by)`. target: in the tokenizer's target mode (Marian). Fast
    tokenizers give offsets; for others, Marian's among them, offsets are found if their pieces spell the text (`spell`).
    """
    spans = word_spans(text, by) if spans is None else spans
    options = {} if max_length is None else {"truncation": True, "max_length": max_length}
    given = {"text_target": text} if target else {"text": text}
    if getattr(tokenizer, "is_fast", False):
        out = tokenizer(**given, return_offsets_mapping=True, **options)
        return Encoded(list(out["input_ids"]), group_by_offsets(out["offset_mapping"], spans))
    ids = [int(k) for k in tokenizer(**given, **options)["input_ids"]]
    unknown = getattr(tokenizer, "unk_token", None)
    special = {str(token) for token in tokenizer.all_special_tokens} - {unknown}
    try:
        offsets = spell(text, tokenizer.convert_ids_to_tokens(ids), special, unknown)
    except ValueError as error:
        raise ValueError(f"{_no_offsets(tokenizer)}, and {error}") from None
    return Encoded(ids, group_by_offsets(offsets, spans))


def encode_pair(tokenizer: Any, source: str, target: str, by: str = "spaces", max_length: int | None = None) -> EncodedPair:
    """Tokens and word groupings of two sentences in one input, as BERT takes them; needs a fast tokenizer."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"{_no_offsets(tokenizer)}: two sentences in one input need a fast tokenizer")
    options = {} if max_length is None else {"truncation": True, "max_length": max_length}
    out = tokenizer(source, target, return_offsets_mapping=True, **options)
    places = list(zip(out["offset_mapping"], out.sequence_ids(), strict=True))
    of = [[place if owner == side else (0, 0) for place, owner in places] for side in (0, 1)]
    first, second = (group_by_offsets(own, word_spans(text, by)) for own, text in zip(of, (source, target), strict=True))
    return EncodedPair(list(out["input_ids"]), first, second, out.get("token_type_ids"))


def _no_offsets(tokenizer: Any) -> str:
    return f"tokenizer {type(tokenizer).__name__} has no offsets (it is not a fast one)"


def spell(text: str, pieces: Sequence[str], special: Collection[str] = (), unknown: str | None = None) -> list[Span]:
    """Offsets of SentencePiece pieces ("▁" for a space) that spell the text, up to spaces and compatible forms (NFKC), or
    else up to `text.fold` of each character, for a model that folds, or else as it is.

    Special pieces get (0, 0); an unknown one the characters up to where the next piece stands.

    >>> spell("le chat, là", ["▁le", "▁", "ch", "at", ",", "<unk>", "</s>"], {"</s>"}, "<unk>")
    [(0, 2), (2, 3), (3, 5), (5, 7), (7, 8), (9, 11), (0, 0)]
    >>> spell("L’Été…", ["▁l", "'", "été", "..."])
    [(0, 1), (1, 2), (2, 5), (5, 6)]
    """
    failed = []
    for form in (_compatible, lambda c: fold(_compatible(fold(c))), str):
        try:
            return _spell(_forms(text, form), pieces, special, unknown)
        except ValueError as error:
            failed.append(error)
    raise failed[0]


def _compatible(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _forms(text: str, form: Callable[[str], str]) -> list[str]:
    """The form of each character together with the marks that follow it, whose own forms are empty (é may be two).

    >>> _forms("e\u0301t", _compatible)
    ['é', '', 't']
    """
    forms = [""] * len(text)
    starts = [k for k, c in enumerate(text) if k == 0 or not unicodedata.combining(c)]
    for start, end in pairwise([*starts, len(text)]):
        forms[start] = form(text[start:end])
    return forms


def _spell(forms: Sequence[str], pieces: Sequence[str], special: Collection[str], unknown: str | None) -> list[Span]:
    """Offsets of pieces in the characters whose forms these are."""
    plain = "".join(forms)
    origin = [k for k, form in enumerate(forms) for _ in form]  # the character of text behind each one of plain
    found: list[Span | None] = []  # in plain; None for special and unknown pieces
    at, lost = 0, False
    for piece in pieces:
        body = piece.replace("▁", " ").strip()
        if piece in special or piece == unknown or (lost and not body):
            found.append(None)
            lost = lost or piece == unknown
            continue
        start = plain.find(body, at)
        if start < 0 or (plain[at:start].strip() and not lost):
            raise ValueError(f"its piece {piece!r} does not spell {plain[at : at + 20]!r}: fold the text first?")
        found.append((start, min(start + max(len(body), 1), len(plain))))  # "▁" alone is the space, or the first character
        at, lost = start + len(body), False
    return [
        _characters(_between(found, k, len(plain)) if piece == unknown else place, plain, origin)
        for k, (piece, place) in enumerate(zip(pieces, found, strict=True))
    ]


def _between(found: Sequence[Span | None], k: int, length: int) -> Span:
    """Return the span between an unknown piece's neighbours."""
    before = next((place[1] for place in reversed(found[:k]) if place), 0)
    after = next((place[0] for place in found[k + 1 :] if place), length)
    return before, after


def _characters(place: Span | None, plain: str, origin: list[int]) -> Span:
    """A place in the plain text as a place in the original, without the spaces around it; (0, 0) if nothing is left."""
    start, end = place or (0, 0)
    inner = plain[start:end]
    if inner.strip():
        start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
    return (origin[start], origin[end - 1] + 1) if start < end else (0, 0)


def pool_vectors(vectors: Tensor, member: Member) -> Tensor:
    """Word vectors [..., W, d], each the mean of its subwords' vectors [..., T, d]; nan for a word without subwords.

    >>> pool_vectors(torch.tensor([[1.0, 0.0], [0.0, 1.0], [4.0, 2.0]]), np.array([[1, 1, 0], [0, 0, 1]]) > 0).tolist()
    [[0.5, 0.5], [4.0, 2.0]]
    """
    _check_shape("vectors", vectors, (member.shape[1], None))
    return _average(vectors, member)


def pool_matrix(matrix: Tensor, rows: Member, columns: Member, how: str = "mean") -> Tensor:
    """A matrix of words [..., m, n] from one of subwords [..., T, S]; rows [m, T] and columns [n, S] are the groupings.

    how = "mean": the mean over all pairs of subwords, as the paper averages.
    how = "mass": mean over the rows, sum over the columns; attention stays a distribution over what it fell on.
    how = "any": the largest over pairs of subwords; for booleans, words are linked if any of their subwords are (SimAlign).

    A word without subwords has nan; False for booleans.

    >>> A = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).double()
    >>> one, two = np.eye(2) > 0, np.array([[1, 1, 0], [0, 0, 1]]) > 0
    >>> [pool_matrix(A, one, two, how).round(decimals=2).tolist() for how in ("mean", "mass", "any")]
    [[[0.4, 0.2], [0.1, 0.8]], [[0.8, 0.2], [0.2, 0.8]], [[0.5, 0.2], [0.1, 0.8]]]
    """
    checks.choice("how", how, HOW)
    _check_shape("matrix", matrix, (rows.shape[1], columns.shape[1]))
    pool = _largest if how == "any" else _average
    pooled = pool(pool(matrix, rows).mT, columns).mT
    return pooled * torch.as_tensor(columns.sum(1)).to(pooled) if how == "mass" else pooled


def _average(x: Tensor, member: Member) -> Tensor:
    """[..., T, d] to [..., W, d]: 0/0 = nan is meant where a word has no subwords."""
    x = x if x.is_floating_point() else x.double()
    weights = torch.as_tensor(member).to(x)
    return (weights @ x) / weights.sum(1, keepdim=True)


def _largest(x: Tensor, member: Member) -> Tensor:
    """[..., T, d] to [..., W, d]."""
    if x.dtype == torch.bool:
        return torch.as_tensor(member).to(x.device).float() @ x.float() > 0
    x = x if x.is_floating_point() else x.double()
    nothing = x.new_full((*x.shape[:-2], x.shape[-1]), torch.nan)
    most = [x[..., np.flatnonzero(word), :].amax(-2) if word.any() else nothing for word in member]
    return torch.stack(most, -2) if most else x[..., :0, :]


def _check_shape(name: str, x: Tensor, shape: tuple[int, int | None]) -> None:
    wanted = ", ".join("d" if size is None else str(size) for size in shape)
    if x.ndim < 2 or any(size not in (None, got) for size, got in zip(shape, x.shape[-2:], strict=True)):
        raise checks.ArgumentError(name, f"have shape (..., {wanted}) as the grouping has subwords", tuple(x.shape))
