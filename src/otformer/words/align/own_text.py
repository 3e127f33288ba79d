"""Training of an aligner on one's own text, any two languages: `train`.

Words are cut into parts as the shipped models' are (words/align/hmm/word_parts.py), by tables for English, French and German
and else at hyphens alone; each letter of a script without spaces is a word. HMMs are trained of the parts, and of their
stems of STEMS letters. What of a text must be in memory is 4 bytes for each of its words and some 24 for each pair of words
that meet; the rest lies in a folder beside the output, where the counts of the last finished round are as well: the same
call goes on from there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from otformer import checks
from otformer._version import __version__
from otformer.array_files import read_npy, read_npz
from otformer.errors import ArgumentError
from otformer.files import written
from otformer.words.align.hmm.chunks import Chunk
from otformer.words.align.hmm.em import Counts, Evidence, Training
from otformer.words.align.hmm.model import AlignmentSettings, fitted
from otformer.words.align.hmm.numbered import Text
from otformer.words.align.hmm.word_parts import word_parts
from otformer.words.align.own_folder import About, OwnAligner, folder_named, is_aligner, read_aligner, write_aligner
from otformer.words.jobs.jobs import ENGINES, ChunkFolder, Progress
from otformer.words.text.languages import UNKNOWN, any_languages
from otformer.words.text.text import Given, as_pair, words
from otformer.words.text.training_text import TokenPair

MOST_TRAINED = 100  # parts per side of a sentence pair; longer ones are left out
LONGEST_SIDE = 100 * MOST_TRAINED  # of a side that is split at all
STEMS = (5, 3)  # first letters of a word
PROGRESS_EVERY = 10_000  # sentence pairs
ROUNDS_AND_READING = 1 + (1 + len(STEMS)) * sum(AlignmentSettings.rounds)  # how often a sentence pair is looked at
LEAST = 0.03  # √(t t') of a pair of words that is kept
NULL, THRESHOLD = 5.0, 0.4  # of `Hmm`, for any languages: docs/how-to/own-text.md says how they were chosen


def train(
    pairs: Iterable[Given],
    out: str | Path,
    *,
    languages: str | None = None,
    by: str | None = None,
    extend: str | Path | None = None,
    engine: str = "local",
    workers: int | None = None,
    progress: Progress = lambda done: None,
) -> OwnAligner:
    """Train an aligner on sentence pairs of any two languages, and write it to a folder: the ``model`` of `otformer.align`.

    After an interruption, the same call continues after the last finished round. The same text gives the same files.

    Parameters
    ----------
    pairs : iterable of str or of (str, str)
        ``source ||| target`` or (source, target), read once; pairs with an empty side are skipped.
    out : path
        The folder. An existing folder is replaced if it holds an aligner and no other files.
    languages : str, optional
        For example "fi-en". English, French and German have tables of contractions; other languages, and None, use no
        table.
    by : str, optional
        "words" (None) splits plain text into words, "spaces" splits it at spaces.
    extend : path, optional
        The folder of an aligner: its counts are added to those of the text, and its languages and ``by`` are used.
    engine, workers : str, int, optional
        "local" with a number of threads (default: torch's), or "ray" with a number of workers of a cluster.
    progress : function, optional
        Called with the number of sentence pairs done since the last call; each pair is done `ROUNDS_AND_READING` times.

    Examples
    --------
    >>> import tempfile
    >>> text = ["ruma kala ||| house fish", "ruma suuri ||| house big", "kala suuri ||| fish big"] * 10
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     aligner = train(text, Path(folder, "model"), languages="xx-en")
    >>> aligner
    OwnAligner(xx-en, of 30 sentence pairs; 3, 3 pairs of words)
    """
    checks.choice("engine", engine, ENGINES)
    workers = None if workers is None else checks.count("workers", workers)
    if not isinstance(pairs, Iterable):
        raise ArgumentError("pairs", "be sentence pairs", type(pairs).__name__)
    before = None if extend is None else read_aligner(folder_named("extend", extend))
    about = _settings(before and before[0], languages, by)
    folder = _checked_folder(out)
    parts = ChunkFolder(folder)
    with parts.held():
        reading = _Reading(about, progress, before[1][0].words if before else ((), ()))
        text = Text.of(reading.parts(pairs), reading.known)
        if before is None:
            about = replace(about, letters=(None, *stem_letters(text)))
        work = _Work(parts, _digest(text, about, before and before[1]), engine, workers, progress)
        work.clear(range(len(about.letters)))
        earlier = before[1] if before else [None] * len(about.letters)
        found = [work.evidence(k, text, settings, earlier[k]) for k, settings in enumerate(about.settings)]
        about = replace(about, pairs=about.pairs + len(text), left_out=about.left_out + reading.left_out)
        _checked_folder(folder)  # into which a user may have put files since
        write_aligner(folder, about, found)
        parts.remove()
    return OwnAligner.of(about, found)


def _settings(before: About | None, languages: str | None, by: str | None) -> About:
    """What is said, or what an earlier aligner has, which must not be another thing."""
    if before is None:
        pair = any_languages(UNKNOWN if languages is None else languages)
        return About(str(pair), "words" if by is None else by, (None,), NULL, THRESHOLD, 0, 0)
    for name, value in (("languages", languages), ("by", by)):
        if value not in (None, getattr(before, name)):
            raise ArgumentError(name, f"be that of the aligner to extend, {getattr(before, name)}", repr(value))
    return before


def stem_letters(text: Text) -> list[int]:
    """Of STEMS those that are not the words themselves, as where each letter of both languages is a word."""
    longest = max(len(word) for side in text.words for word in side)
    return [letters for letters in STEMS if letters < longest]


@dataclass
class _Reading:
    """Sentence pairs as parts of words, and the count of those that are too long."""

    about: About
    progress: Progress
    known: tuple[list[str], list[str]] | tuple[tuple[()], tuple[()]]
    left_out: int = 0

    def parts(self, pairs: Iterable[Given]) -> Iterator[TokenPair]:
        languages = any_languages(self.about.languages)
        cut = [partial(_parts, by=self.about.by, language=language) for language in (languages.source, languages.target)]
        since = 0
        for number, given in enumerate(pairs):
            pair = as_pair(given, f"pairs[{number}]")
            if since == PROGRESS_EVERY:
                self.progress(since)
                since = 0
            since += 1
            if not all(side.strip() for side in pair):
                continue
            sides = [split(side) for split, side in zip(cut, pair, strict=True)]
            if all(0 < len(side) <= MOST_TRAINED for side in sides):
                yield sides[0], sides[1]
            else:
                self.left_out += any(len(side) > MOST_TRAINED for side in sides)
        self.progress(since)


def _parts(sentence: str, by: str, language: str) -> list[str]:
    """The parts of a sentence's words; too many for a sentence that is too long."""
    if len(sentence) > LONGEST_SIDE:
        return [""] * (MOST_TRAINED + 1)
    return word_parts(words(sentence, by), language).parts


def _digest(text: Text, about: About, before: list[Evidence] | None) -> str:
    """A hash of all that decides the model."""
    found = hashlib.sha256(repr((__version__, about)).encode())
    for side in (0, 1):
        found.update("\n".join(text.words[side]).encode())
        found.update(text.tokens[side].data)
        found.update(text.starts[side].data)
    for evidence in before or ():
        found.update(evidence.counts.pairs.data)
        found.update(evidence.met.target.data)
    return found.hexdigest()


@dataclass
class _Work:
    """The folder of unfinished work: chunks of the text, and the counts of the last round or what came of all."""

    parts: ChunkFolder
    digest: str
    engine: str
    workers: int | None
    progress: Progress

    def file(self, *name: object) -> Path:
        return self.parts.file(hashlib.sha256(repr((self.digest, *name)).encode()).hexdigest()[:32])

    def clear(self, models: Iterable[int]) -> None:
        """Remove all but the counts of this text: chunks are made anew."""
        wanted = {self.file(k, "counts") for k in models}
        for each in self.parts.kept():
            if each not in wanted:
                each.unlink()

    def evidence(self, model: int, text: Text, settings: AlignmentSettings, earlier: Evidence | None) -> Evidence:
        """That of one HMM."""
        text = text.stemmed(settings.stem_letters, earlier.words if earlier else ((), ()))
        made: list[Path] = []

        def keep(number: int, chunk: Chunk) -> Callable[[], Chunk]:
            self.parts.folder.mkdir(exist_ok=True)
            made.append(self.file(model, "chunk", number))
            return _kept(self.file(model, "chunk", number), chunk)

        state = self.file(model, "counts")
        counts, number = _read_counts(state) if state.is_file() else (None, 0)
        how = settings.alpha, settings.p_null, keep, self.engine, self.workers
        training = Training(text, *how, earlier, self.progress)
        self.progress(number * len(text))
        done = partial(_write_counts, state)
        found = training.evidence(fitted(training, settings, counts, number, done)).pruned(LEAST, settings.alpha)
        if not len(found.met):
            self.clear(())
            raise ArgumentError(
                "pairs", "have words that go together", f"none in {len(text):,} sentence pairs", "give more text"
            )
        for file in made:
            file.unlink()
        return found


def _kept(file: Path, chunk: Chunk) -> Callable[[], Chunk]:
    """Write a chunk, lengths first, as one array; returns what reads it."""
    sizes = [len(part) for part in chunk]
    with written(file, ours=True) as out:
        np.save(out, np.concatenate([part.ravel() for part in chunk], dtype=np.int32))

    def read() -> Chunk:
        data = np.split(read_npy(file), np.cumsum([3 * sizes[0], *sizes[1:-1]]))
        return Chunk(data[0].reshape(-1, 3), *data[1:])

    return read


def _write_counts(file: Path, counts: Counts, number: int) -> None:
    with written(file, ours=True) as out:
        order = {"kappa": counts.kappa, "jumps": counts.jumps, "number": np.array(number)}
        arrays = {"pairs": counts.pairs, "null_0": counts.null[0], "null_1": counts.null[1], **order}
        np.savez(out, **arrays)  # type: ignore[arg-type]  # the stubs take **arrays for allow_pickle


def _read_counts(file: Path) -> tuple[Counts, int]:
    try:
        a = read_npz(file)
        return Counts(a["pairs"], (a["null_0"], a["null_1"]), a["kappa"], a["jumps"]), int(a["number"])
    except (ValueError, KeyError):
        raise ValueError(f"{file} is damaged: remove the folder {file.parent} and give the command again") from None


def _checked_folder(out: str | Path) -> Path:
    """The folder to write, links followed; a clear line before the work if it cannot be."""
    folder = Path(os.path.realpath(folder_named("out", out)))
    if folder.exists() and not folder.is_dir():
        raise ArgumentError("out", "be a folder", f"{str(out)!r}, a file")
    if not folder.parent.is_dir() or not os.access(folder.parent, os.W_OK):
        raise ValueError(f"{out} cannot be written: {folder.parent} is not a folder that can be written to")
    if folder.exists() and any(folder.iterdir()) and not is_aligner(folder):
        raise ArgumentError("out", "be a new folder, or that of an aligner", f"{str(out)!r} with other files")
    return folder
