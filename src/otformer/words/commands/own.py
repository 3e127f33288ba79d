"""``otformer align --train``: an aligner of one's own text, written to a folder."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import typer

from otformer.cli.common import note, refused
from otformer.errors import ArgumentError
from otformer.words.commands import corpora

IGNORED = (
    "method",
    "scores",
    "tokens",
    "form",
    "matrix",
    "show",
    "gold",
    "one_based",
    "as_json",
    "model",
    "threshold",
    "symmetrize",
    "keep",
)


def given(context: typer.Context, **values: Any) -> dict[str, Any]:
    """The options that were given; None for the others."""
    sources = {name: context.get_parameter_source(name) for name in values}
    return {name: value if getattr(sources[name], "name", "") == "COMMANDLINE" else None for name, value in values.items()}


def languages_of(model: Path) -> str | None:
    """The languages of a model, None if none were said when it was trained."""
    from otformer.words.align.own_folder import read_about
    from otformer.words.text.languages import UNKNOWN

    found = read_about(model).languages
    return None if found == UNKNOWN else found


def train(
    context: typer.Context,
    text: list[str],
    out: Path | None,
    by: str | None,
    extend: Path | None,
    engine: str,
    languages: str | None,
    workers: int | None,
) -> None:
    """Train on the text that the arguments name, with a bar; says in a line what was made."""
    from otformer.words.align.own_text import ROUNDS_AND_READING
    from otformer.words.align.own_text import train as make
    from otformer.words.text.languages import any_languages

    refused(context, "--train", *IGNORED)
    if out is None:
        raise ArgumentError("--out", "name the folder of the model", "--train without it")
    if not text:
        raise ArgumentError("text", "be a file of sentence pairs, or two files", "--train without text")
    if languages is not None:
        any_languages(languages)
    with ExitStack() as stack:
        given = corpora.corpus(text, languages if extend is None else languages_of(extend), stack)
        how: dict[str, Any] = {"languages": languages, "by": by, "extend": extend, "engine": engine, "workers": workers}
        with corpora.resumable("train", out, given.total * ROUNDS_AND_READING) as tell:
            made = make(given.pairs(), out, progress=tell, **how)
    about, sizes = made.about, ", ".join(f"{len(model.pair_keys):,}" for model in made.models)
    stems = f" and of stems (first {' and '.join(map(str, about.letters[1:]))} letters)" if len(about.letters) > 1 else ""
    left = f"; {about.left_out:,} left out, over 100 words" if about.left_out else ""
    note(f"{out}: {about.pairs:,} sentence pairs{left}; {sizes} pairs of words{stems}")
