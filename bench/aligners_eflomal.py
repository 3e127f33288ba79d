"""eflomal (Östling and Tiedemann 2016) on the text of the comparison: model 3 and its own default settings, of whole words
or, by an option of its own, of their first letters (0: all)."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aligners_text import Set

from otformer.words.text.gold import Links, parse_links
from otformer.words.text.training_text import TokenPair

Both = list[tuple[Links, Links]]  # forward and reverse links of pieces, for every sentence pair


def missing() -> str | None:
    """Why eflomal cannot be used here, or None."""
    try:
        import eflomal  # noqa: F401
    except ImportError as error:
        return f"not installed ({error})"
    return None


def with_text(training: Sequence[TokenPair], sets: Sequence[Set], letters: int = 0) -> list[Both]:
    """The usual use: the sentences to be aligned, without their links, are part of the training text."""
    with TemporaryDirectory() as folder:
        added = [pair for which in sets for pair in _pairs(which)]
        both = _links(_run([*training, *added], Path(folder), letters)[-len(added) :])
    ends = [sum(len(s.source) for s in sets[:k]) for k in range(len(sets) + 1)]
    return [both[a:b] for a, b in itertools.pairwise(ends)]


def with_priors(training: Sequence[TokenPair], sets: Sequence[Set], letters: int = 0) -> list[Both]:
    """Trained on the training text alone; what it learned is the prior under which each set is aligned."""
    from eflomal import calculate_priors, write_priors

    with TemporaryDirectory() as folder:
        lines = _run(training, Path(folder), letters)
        sides = [[" ".join(pair[k]) for pair in training] for k in (0, 1)]
        counts = calculate_priors(*sides, [a for a, _ in lines], [b for _, b in lines])
        priors = io.StringIO()
        write_priors(priors, *counts)
        text = priors.getvalue().splitlines()
        return [_links(_run(list(_pairs(which)), Path(folder), letters, text)) for which in sets]


def _pairs(which: Set) -> Iterator[TokenPair]:
    return ((s.parts, t.parts) for s, t in zip(which.source, which.target, strict=True))


def _run(pairs: Sequence[TokenPair], folder: Path, letters: int, priors: Any = None) -> list[tuple[str, str]]:
    """Forward and reverse Pharaoh lines of every pair."""
    from eflomal import Aligner

    files = [folder / "forward", folder / "reverse"]
    sides = [[" ".join(pair[k]) for pair in pairs] for k in (0, 1)]
    peer = Aligner(source_prefix_len=letters, target_prefix_len=letters)
    peer.align(*sides, links_filename_fwd=str(files[0]), links_filename_rev=str(files[1]), priors_input=priors)
    return list(zip(*(file.read_text().splitlines() for file in files), strict=True))


def _links(lines: Sequence[tuple[str, str]]) -> Both:
    return [(parse_links(forward).sure, parse_links(reverse).sure) for forward, reverse in lines]
