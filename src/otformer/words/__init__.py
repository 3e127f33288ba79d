"""Attention and transport on real translations: sentence pairs, words from subwords, dictionaries, gold and scores.

``show`` makes a page of a model's attention, ``look_at`` has its numbers for one sentence pair, ``load`` loads a model;
``train`` makes an aligner of one's own text, and ``load_aligner`` loads one; ``transfer`` and ``transfer_labels`` place
markup and labels of sentences on their translations. They are imported when first read, so that a part of this room does
not load all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otformer.words.align.own_folder import load_aligner
    from otformer.words.align.own_text import train
    from otformer.words.models.models import load
    from otformer.words.probe.one_pair import look_at
    from otformer.words.probe.page import show
    from otformer.words.projection.transferring import transfer, transfer_labels

_MODULES = {
    "load": "otformer.words.models.models",
    "load_aligner": "otformer.words.align.own_folder",
    "look_at": "otformer.words.probe.one_pair",
    "show": "otformer.words.probe.page",
    "train": "otformer.words.align.own_text",
    "transfer": "otformer.words.projection.transferring",
    "transfer_labels": "otformer.words.projection.transferring",
}
__all__ = ["load", "load_aligner", "look_at", "show", "train", "transfer", "transfer_labels"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'otformer.words' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
