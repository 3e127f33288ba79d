"""The models of this project, by name: folders as transformers writes them (words/models/models.py loads them).

    en-fr, de-en   translation, Marian's architecture           bert-en-fr   an encoder of sentence pairs, 12 layers

They are small, and trained here: ``python -m otformer.lab.translators`` makes them. The environment variable OTFORMER_MODELS
may name a folder with model folders of the same names, which then go first, but not for `align --method attention`.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

from otformer.errors import ArgumentError

MODELS = {"en-fr": "en-fr", "de-en": "de-en", "bert-en-fr": "en-fr"}  # names, and their languages, source first


def folder(name: str) -> Path:
    """The folder of a model: under OTFORMER_MODELS if it is there, else of the package."""
    own = os.environ.get("OTFORMER_MODELS", "")
    if own and not Path(own).is_dir():
        raise ArgumentError("OTFORMER_MODELS", "name a folder of model folders", repr(own))
    for place in ([Path(own)] if own else []) + [shipped_folder()]:
        if name and (place / name / "config.json").is_file():
            return place / name
    raise ValueError(f"model {name!r} is not there: `python -m otformer.lab.translators` makes {', '.join(MODELS)}")


def shipped_folder() -> Path:
    """Where the package keeps its models."""
    return Path(str(files("otformer.words").joinpath("weights")))


def named(model: str) -> str:
    """What `models.load` takes: the folder of one of our models by its name, everything else as it is.

    >>> named("enfr")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    otformer.errors.ArgumentError: model must be a folder, a hub name or one of ..., got 'enfr': did you mean en-fr?
    """
    near = [] if "/" in model or Path(model).exists() else get_close_matches(model.lower(), MODELS, 1, cutoff=0.75)
    if near and model not in MODELS:
        known = ", ".join(MODELS)
        raise ArgumentError("model", f"be a folder, a hub name or one of {known}", repr(model), f"did you mean {near[0]}?")
    return str(folder(model)) if model in MODELS and not Path(model).exists() else model


def languages_for(model: str, asked: str | None = None) -> str:
    """The languages of a model: for a shipped model those in its name, for others the given ones, or en-fr.

    >>> languages_for("bert-en-fr"), languages_for("path/to/marian", "fr-en"), languages_for("path/to/marian")
    ('en-fr', 'fr-en', 'en-fr')
    """
    own = MODELS.get(model) if not Path(model).exists() else None
    if own and asked not in (None, own):
        raise ArgumentError("languages", f"be {own}, those of the model {model}", repr(asked))
    return own or asked or "en-fr"
