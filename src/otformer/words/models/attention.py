"""Attention between the words of sentence pairs, read from a model (words/models/models.py): by layer and head.

Matrices have the target words as rows and the source words as columns, whoever attends. What can be read:

    translation   cross-input    target word j at the decoder positions where its subwords are the *input*
                  cross-output   at those where they are the *output*: one step earlier, before the decoder has seen them
                  encoder-self   source by source words        decoder-self   target by target words
    encoder       target-source  target words attend to source words
                  source-target  source words attend to target words, transposed to target rows
    decoder       input, output  as above, for target words over source words in a prompt

The target sentence is given, not generated (teacher forcing): the decoder's input is its start token and then the target's
tokens t₁ t₂ …, so that position k has t_k as output and t_{k−1} as input. Words are pooled from subwords by `pool_matrix`.
Attention to special tokens is left out: rows need not sum to one (``normalise`` makes them). Text is given to the model as
it is: fold it first (`text.fold`) for a model of lower-case text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.words.models.models import Model
from otformer.words.models.subwords import HOW, Member, covered, encode, encode_pair, pool_matrix, pool_vectors
from otformer.words.text.sizes import check_size, grouped
from otformer.words.text.text import Pair, word_spans, words

Array = np.ndarray[Any, np.dtype[Any]]
TEMPLATE = "{source}\n{target}"  # a decoder's prompt: nothing in it belongs to a language or a training set
Template = tuple[str, str, str]  # what stands before the source, between the two, and after the target
Inputs = tuple[dict[str, list[int]], dict[str, Member]]  # feeds and places of `Prepared`
WINDOW = 512  # sentence pairs that are sorted by length together
MOST_NUMBERS = 2**28  # of a pair in one reading, words that do not fit the model among them: 1 GiB
ROOM = 2**25  # most numbers in the attention matrices of a batch, and in those kept for a window


class ReadingKind(NamedTuple):
    """A reading: which of a network's outputs, whose positions are its rows and columns, and whether it is default."""

    output: str
    rows: str
    columns: str
    default: bool = True


READINGS = {
    "translation": {
        "cross-input": ReadingKind("cross_attentions", "target", "source"),
        "cross-output": ReadingKind("cross_attentions", "output", "source"),
        "encoder-self": ReadingKind("encoder_attentions", "source", "source", default=False),
        "decoder-self": ReadingKind("decoder_attentions", "target", "target", default=False),
    },
    "encoder": {
        "target-source": ReadingKind("attentions", "target", "source"),
        "source-target": ReadingKind("attentions", "source", "target"),
    },
    "decoder": {
        "input": ReadingKind("attentions", "target", "source"),
        "output": ReadingKind("attentions", "output", "source"),
    },
}


@dataclass(frozen=True)
class Reading:
    """What a model does with a sentence pair of n source and m target words.

    matrices : for each reading, [layers, heads, m, n] (float32); nan for words without subwords.
    kept : which source words [n] and which target words [m] have subwords; not those beyond the model's limit.
    states : word vectors, where asked for. ``source`` [L+1, n, d] and ``target`` [L+1, m, d], the hidden states: layer 0 is
        what enters the first layer, positions included (translation: the encoder's for the source, the decoder's, at its
        input, for the target). ``source-embeddings`` [n, d] and ``target-embeddings`` [m, d]: of the tokens alone.
    """

    source: list[str]
    target: list[str]
    matrices: dict[str, Array]
    kept: tuple[Array, Array]
    states: dict[str, Array] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every word is there."""
        return bool(self.kept[0].all() and self.kept[1].all())


def readings_of(model: Model, readings: Sequence[str] | None = None) -> tuple[str, ...]:
    """The requested ones, if the model has them; by default all between source and target."""
    known = READINGS[model.kind]
    if readings is None:
        return tuple(name for name, view in known.items() if view.default)
    if isinstance(readings, str) or not readings:
        raise checks.ArgumentError("readings", f"be a list of {', '.join(known)}", repr(readings))
    return tuple(checks.choice("readings", name, known) for name in readings)


def read(
    model: Model,
    pairs: Iterable[Pair],
    *,
    by: str = "words",
    readings: Sequence[str] | None = None,
    states: bool = False,
    how: str = "mean",
    normalise: bool = False,
    template: str = TEMPLATE,
    batch: int = 32,
) -> Iterator[Reading]:
    """A `Reading` of every pair, in order; pairs are taken as needed, so a corpus is never in memory.

    by : how sentences have words (`word_spans`).   how : how words are pooled from subwords (`pool_matrix`).
    normalise : scale what a word attends with to sum to one over the words of the other sentence.
    template : the prompt of a decoder, with {source} before {target}.   batch : pairs at a time, at most.
    """
    chosen = readings_of(model, readings)
    checks.choice("by", by, ("words", "spaces"))
    checks.choice("how", how, HOW)
    parts = split_template(template)
    batch = checks.count("batch", batch)

    def answers() -> Iterator[Reading]:
        prepared = (model_inputs(model, pair, by, parts) for pair in pairs)
        matrices = model.layers * model.heads * len(chosen)  # numbers kept per pair of words
        vectors = (model.layers + 2) * model.network.config.hidden_size if states else 0  # and per word

        def size(item: Prepared) -> int:
            n, m = len(item.source), len(item.target)
            return matrices * n * m + vectors * (n + m)

        for window in grouped(prepared, size, ROOM, WINDOW):
            out: dict[int, Reading] = {}
            for places in _batches(window, model, batch):
                items = [window[k] for k in places]
                out.update(zip(places, _read_batch(model, items, chosen, states, how, normalise), strict=True))
            yield from (out[k] for k in range(len(window)))

    return answers()


class Prepared(NamedTuple):
    """Words of a pair, inputs of the network by name, and the groupings [W, T] of words at places of these inputs."""

    source: list[str]
    target: list[str]
    feeds: dict[str, list[int]]
    places: dict[str, Member]


def model_inputs(model: Model, pair: Pair, by: str, template: Template) -> Prepared:
    """The inputs of a pair; errors name it by its text, since a chunk of a corpus does not know its lines."""
    try:
        split = words(pair.source, by), words(pair.target, by)
        check_size(len(split[0]), len(split[1]), "a pair", MOST_NUMBERS // (model.layers * model.heads))
        "".join(pair).encode()  # a UnicodeError is a ValueError; tokenizers have errors of their own for lone surrogates
        makers = {"translation": _for_translation, "encoder": _for_encoder, "decoder": _for_decoder}
        feeds, places = makers[model.kind](model, pair, by, template)
    except ValueError as error:
        raise ValueError(f"{pair.source[:40]!r} ||| {pair.target[:40]!r}: {error}") from None
    return Prepared(*split, feeds, places)


def _for_translation(model: Model, pair: Pair, by: str, template: Template) -> Inputs:
    room = None if model.limit is None else model.limit - 1  # the start token needs one
    source = encode(model.tokenizer, pair.source, by=by, max_length=model.limit)
    target = encode(model.tokenizer, pair.target, by=by, target=True, max_length=room)
    feeds = {"input_ids": source.ids, "decoder_input_ids": [model.start or 0, *target.ids]}
    after, before = (np.pad(target.member, ((0, 0), ends)) for ends in ((1, 0), (0, 1)))
    return feeds, {"source": source.member, "target": after, "output": before}


def _for_encoder(model: Model, pair: Pair, by: str, template: Template) -> Inputs:
    both = encode_pair(model.tokenizer, *pair, by=by, max_length=model.limit)
    feeds = {"input_ids": both.ids}
    if both.types is not None and getattr(model.network.config, "type_vocab_size", 0) > 1:
        feeds["token_type_ids"] = both.types
    return feeds, {"source": both.source, "target": both.target}


def _for_decoder(model: Model, pair: Pair, by: str, template: Template) -> Inputs:
    first, between, last = template
    starts = len(first), len(first) + len(pair.source) + len(between)
    spans = [(start + i, start + j) for start, side in zip(starts, pair, strict=True) for i, j in word_spans(side, by)]
    text = f"{first}{pair.source}{between}{pair.target}{last}"
    ids, member = encode(model.tokenizer, text, spans, max_length=model.limit)
    source, target = np.split(member, [len(word_spans(pair.source, by))])
    before = np.pad(target, ((0, 0), (0, 1)))[:, 1:]
    return {"input_ids": ids}, {"source": source, "target": target, "output": before}


def split_template(template: str) -> Template:
    first, source, rest = str(template).partition("{source}")
    between, target, last = rest.partition("{target}")
    if not (source and target) or "{source}" in last or "{source}" in between or "{target}" in last:
        raise checks.ArgumentError("template", "have {source} and then {target}, once each", repr(template))
    return first, between, last


def _batches(window: list[Prepared], model: Model, most: int) -> Iterator[list[int]]:
    """Places in the window, of similar length together; at most ``most``, and about ROOM numbers of attention."""
    lengths = [max(map(len, item.feeds.values())) for item in window]
    kinds = 3 if model.kind == "translation" else 1
    batch: list[int] = []
    for place in sorted(range(len(window)), key=lambda k: lengths[k]):
        cost = (len(batch) + 1) * max(lengths[place], 1) ** 2 * kinds * model.layers * model.heads
        if batch and (len(batch) == most or cost > ROOM):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _padded(rows: Sequence[Sequence[int]], value: int, device: torch.device) -> Tensor:
    """[B, T], with at least one column."""
    width = max(1, *map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows], device=device)


@torch.inference_mode()
def _read_batch(
    model: Model, items: list[Prepared], chosen: Sequence[str], states: bool, how: str, normalise: bool
) -> list[Reading]:
    pad, device = model.tokenizer.pad_token_id or 0, model.network.device
    rows = {name: [item.feeds[name] for item in items] for name in items[0].feeds}
    feeds = {name: _padded(ids, 0 if name == "token_type_ids" else pad, device) for name, ids in rows.items()}
    mask = _padded([[1] * len(ids) for ids in rows["input_ids"]], 0, device)
    out = model.network.base_model(**feeds, attention_mask=mask, output_attentions=True, output_hidden_states=states)
    views = {name: READINGS[model.kind][name] for name in chosen}
    A = {key: torch.stack(out[key]) for key in {view.output for view in views.values()}}  # [L, B, H, T, S] each
    vectors = _vectors(model, feeds, out) if states else {}
    return [
        Reading(
            source=item.source,
            target=item.target,
            matrices={name: _words(A[view.output][:, b], item, view, how, normalise) for name, view in views.items()},
            kept=(covered(item.places["source"]), covered(item.places["target"])),
            states={name: _word_vectors(x[:, b], item.places[name.partition("-")[0]]) for name, x in vectors.items()},
        )
        for b, item in enumerate(items)
    ]


def _words(A: Tensor, item: Prepared, view: ReadingKind, how: str, normalise: bool) -> Array:
    """Word matrices [L, H, m, n] of a pair from its padded subword matrices [L, H, T, S]."""
    rows, columns = item.places[view.rows], item.places[view.columns]
    pooled = pool_matrix(A[..., : rows.shape[1], : columns.shape[1]], rows, columns, how)
    if normalise:
        pooled = pooled / pooled.nansum(-1, keepdim=True)
    if (view.rows, view.columns) == ("source", "target"):
        pooled = pooled.mT
    return np.ascontiguousarray(pooled.cpu().numpy())


def _vectors(model: Model, feeds: dict[str, Tensor], out: Any) -> dict[str, Tensor]:
    """Vectors of tokens [L, B, T, d], by whose words they are; embeddings scaled as the network scales them."""
    if model.kind == "translation":
        sides = {
            "source": (model.network.get_encoder(), feeds["input_ids"], out["encoder_hidden_states"]),
            "target": (model.network.get_decoder(), feeds["decoder_input_ids"], out["decoder_hidden_states"]),
        }
    else:
        sides = dict.fromkeys(("source", "target"), (model.network, feeds["input_ids"], out["hidden_states"]))
    vectors = {side: torch.stack(hidden) for side, (_, _, hidden) in sides.items()}
    for side, (network, ids, _) in sides.items():
        vectors[f"{side}-embeddings"] = getattr(network, "embed_scale", 1.0) * network.get_input_embeddings()(ids)[None]
    return vectors


def _word_vectors(x: Tensor, member: Member) -> Array:
    """[L, W, d] of [L, T, d]; embeddings, of one layer, lose that axis."""
    pooled: Array = pool_vectors(x[:, : member.shape[1]], member).cpu().numpy()
    return pooled[0] if len(pooled) == 1 else pooled
