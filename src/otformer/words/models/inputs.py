"""What a model is given for a sentence pair, and where the words are in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from otformer.words.models.models import Model
from otformer.words.models.subwords import Member, encode, encode_pair
from otformer.words.text.text import Pair, word_spans, words

TEMPLATE = "{source}\n{target}"  # a decoder's prompt: nothing in it belongs to a language or a training set
Feeds = dict[str, list[int]]
Places = dict[str, Member]
Template = tuple[str, str, str]


class Prepared(NamedTuple):
    """Words of a pair, inputs of the network by name, and the groupings [W, T] of words at places of these inputs."""

    source: list[str]
    target: list[str]
    feeds: Feeds
    places: Places


def model_inputs(model: Model, pair: Pair, by: str, template: Template) -> Prepared:
    """The inputs of a pair; errors name it by its text, since a chunk of a corpus does not know its lines."""
    try:
        "".join(pair).encode()  # a UnicodeError is a ValueError; tokenizers have errors of their own for lone surrogates
        if model.kind == "translation":
            feeds, places = _for_translation(model, pair, by)
        elif model.kind == "encoder":
            feeds, places = _for_encoder(model, pair, by)
        else:
            feeds, places = _for_decoder(model, pair, by, template)
    except ValueError as error:
        raise ValueError(f"{pair.source[:40]!r} ||| {pair.target[:40]!r}: {error}") from None
    return Prepared(words(pair.source, by), words(pair.target, by), feeds, places)


def _for_translation(model: Model, pair: Pair, by: str) -> tuple[Feeds, Places]:
    room = None if model.limit is None else model.limit - 1  # the start token needs one
    source = encode(model.tokenizer, pair.source, by=by, max_length=model.limit)
    target = encode(model.tokenizer, pair.target, by=by, target=True, max_length=room)
    none = np.zeros((len(target.member), 1), dtype=bool)
    feeds = {"input_ids": source.ids, "decoder_input_ids": [model.start or 0, *target.ids]}
    after, before = np.hstack([none, target.member]), np.hstack([target.member, none])
    return feeds, {"source": source.member, "target": after, "output": before}


def _for_encoder(model: Model, pair: Pair, by: str) -> tuple[Feeds, Places]:
    both = encode_pair(model.tokenizer, *pair, by=by, max_length=model.limit)
    feeds = {"input_ids": both.ids}
    if both.types is not None and getattr(model.network.config, "type_vocab_size", 0) > 1:
        feeds["token_type_ids"] = both.types
    return feeds, {"source": both.source, "target": both.target}


def _for_decoder(model: Model, pair: Pair, by: str, template: Template) -> tuple[Feeds, Places]:
    first, between, last = template
    starts = len(first), len(first) + len(pair.source) + len(between)
    spans = [(start + i, start + j) for start, side in zip(starts, pair, strict=True) for i, j in word_spans(side, by)]
    text = f"{first}{pair.source}{between}{pair.target}{last}"
    ids, member = encode(model.tokenizer, text, spans, max_length=model.limit)
    n = len(word_spans(pair.source, by))
    source, target = member[:n], member[n:]
    before = np.zeros_like(target)
    before[:, :-1] = target[:, 1:]
    return {"input_ids": ids}, {"source": source, "target": target, "output": before}


def split_template(template: str) -> Template:
    """What stands before the source, between the two, and after the target."""
    first, source, rest = str(template).partition("{source}")
    between, target, last = rest.partition("{target}")
    if not (source and target) or "{source}" in last or "{source}" in between or "{target}" in last:
        raise ValueError(f"template must have {{source}} and then {{target}}, once each, got {template!r}")
    return first, between, last
