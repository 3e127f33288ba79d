"""``otformer reproduce figure-5 --model NAME --text FILE``: the author's figure for a model, beside his numbers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import typer

from otformer.errors import ArgumentError

COLUMNS = ("layer", "ours", "low", "high", "published", "agrees")


def compare(
    names: Sequence[str], model: str | None, text: str | None, dictionary: str, lemmas: str, out: Path, as_json: bool
) -> None:
    """Score a model on a text as the author does, write a CSV, and print a line per layer; work that was done is kept."""
    import numpy as np

    from otformer.files import write_csv
    from otformer.lab.author import FIGURES, AuthorWork
    from otformer.lab.author import compared as lines_of
    from otformer.words.commands.corpora import corpus, resumable
    from otformer.words.jobs.jobs import ChunkFolder, run_resumable
    from otformer.words.models.shipped import named

    if len(names) != 1 or names[0] not in FIGURES:
        raise ArgumentError("name", f"be one of {', '.join(FIGURES)} with --model", " ".join(names) or "none")
    if model is None or text is None:
        given, lacks = ("--text", "--model") if model is None else ("--model", "--text")
        raise ArgumentError(given, f"be used with {lacks}", f"{given} alone")
    (figure,) = names
    with ExitStack() as stack:
        pairs = corpus([text], "en-fr", stack)
        if dictionary == "muse" and not os.environ.get("OTFORMER_DATA"):
            advice = "download en-fr.txt of MUSE and name it, or set OTFORMER_DATA"
            raise ArgumentError("--dictionary", "name a file of 'source target' lines", "nothing", advice)
        work = AuthorWork(figure, named(model), dictionary, lemmas)
        work.reading()
        out.mkdir(parents=True, exist_ok=True)
        file = out / f"{figure}-{re.sub(r'[^A-Za-z0-9]+', '-', model).strip('-')}.csv"
        folder = ChunkFolder(file)
        with resumable(figure, file, pairs.total) as advance, folder.held():
            kept = list(chain.from_iterable(run_resumable(work.job(), pairs.pairs(), folder, advance)))
            if len(kept) < 2:
                raise ArgumentError(text, "have at least 2 pairs that the author's filters keep", f"{len(kept)}")
            lines = lines_of(figure, np.array(kept))
            write_csv(file, [dict(zip(COLUMNS, line, strict=True)) for line in lines])
            folder.remove()
    found = FIGURES[figure]
    if as_json:
        layers = [dict(zip(COLUMNS, line, strict=True)) for line in lines]
        typer.echo(json.dumps({"figure": figure, "model": model, "pairs": len(kept), "layers": layers, "csv": str(file)}))
        return
    typer.echo(f"{figure}, {found.score}: {model} on {len(kept):,} of {pairs.total:,} pairs, beside {found.model}")
    for line in lines:
        verdict = "agrees" if line.agrees else "differs"
        his = "" if line.published is None else f"   published {line.published:.3f}   {verdict}"
        typer.echo(f"layer {line.layer:>2}   {line.mean:.3f} ({line.low:.3f} to {line.high:.3f}){his}")
    agree = [line.agrees for line in lines if line.agrees is not None]
    typer.echo(f"{sum(agree)} of {len(agree)} layers agree within 0.02; {file}")
