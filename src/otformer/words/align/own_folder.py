r"""An aligner trained on one's own text, as a folder: `load_aligner`, `write_aligner`.

``model.json`` has the settings, ``model.safetensors`` the evidence of each HMM (words/align/hmm/em.py), from which its
probabilities are computed when it is read: words as text, pairs of words in rows by source word, and expected counts. The
HMMs are numbered from 0, and of each there are

    source, target     words, as UTF-8 with line ends between       start, met     [source words + 1], [pairs]: `WordPairs`
    counts             [pairs, 2], of both directions               rest_0, rest_1   [source words], [target words]
    null_0, null_1     [target words], [source words]               null_rest, kappa [2]          jumps [2, jumps]

Nothing in a folder is code, and every name, shape and number is checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from otformer import checks
from otformer.array_files import LARGEST_RECORD, read_whole
from otformer.errors import ArgumentError
from otformer.files import written, written_folder
from otformer.tensor_files import check_shapes, read_tensors, write_tensors
from otformer.words.align.hmm.em import Counts, Evidence
from otformer.words.align.hmm.model import AlignmentSettings, model_of
from otformer.words.align.hmm.numbered import WordPairs
from otformer.words.align.hmm.orders import FURTHEST, KAPPAS
from otformer.words.align.methods import Hmm
from otformer.words.align.vectors import Array
from otformer.words.text.languages import any_languages
from otformer.words.text.text import WORD_WAYS

if TYPE_CHECKING:
    from torch import Tensor

ALIGNER_FORMAT = "otformer aligner 1"
ABOUT, TENSORS = "model.json", "model.safetensors"
MOST_MODELS = 3  # of words and of stems


@dataclass(frozen=True)
class About:
    """The settings of an aligner, and what it was trained on.

    languages : source and target, "und-und" where nothing was said.   by : how text was split into words.
    letters : of the stems of each HMM, None for words.   null, threshold : as in `Hmm`.
    pairs : sentence pairs trained on, all times together.   left_out : those that were too long.
    """

    languages: str
    by: str
    letters: tuple[int | None, ...]
    null: float
    threshold: float
    pairs: int
    left_out: int

    def __post_init__(self) -> None:
        any_languages(self.languages)
        checks.choice("by", self.by, WORD_WAYS)
        if not 1 <= len(self.letters) <= MOST_MODELS or None in self.letters[1:]:
            raise ArgumentError("letters", f"be 1 to {MOST_MODELS} whole numbers or null", self.letters)
        checks.positive("null", self.null)
        if checks.not_negative("threshold", self.threshold) >= 1:
            raise ArgumentError("threshold", "be below 1", self.threshold)
        if not isinstance(self.languages, str) or self.settings[0].stem_letters is not None:
            raise ArgumentError("letters", "begin with null, of whole words", self.letters)
        for name in ("pairs", "left_out"):
            checks.count(name, getattr(self, name), least=0)

    @property
    def settings(self) -> list[AlignmentSettings]:
        """Those of every HMM."""
        return [AlignmentSettings(stem_letters=letters) for letters in self.letters]


@dataclass(frozen=True)
class OwnAligner(Hmm):
    """A way to align that was trained on one's own text; `otformer.align(pairs, model=…)` takes it, or its folder."""

    about: About = About("und-und", "words", (None,), 1.0, 0.5, 0, 0)

    @classmethod
    def of(cls, about: About, evidence: Sequence[Evidence]) -> OwnAligner:
        models = [model_of(found, settings) for found, settings in zip(evidence, about.settings, strict=True)]
        return cls(models, any_languages(about.languages), about.null, about.threshold, about=about)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{len(model.pair_keys):,}" for model in self.models)
        return f"OwnAligner({self.about.languages}, of {self.about.pairs:,} sentence pairs; {pairs} pairs of words)"


def write_aligner(folder: Path, about: About, evidence: Sequence[Evidence]) -> None:
    """The folder, whole or not at all."""
    tensors = {f"{number}_{name}": t for number, found in enumerate(evidence) for name, t in _tensors(found).items()}
    with written_folder(folder) as new:
        write_tensors(new / TENSORS, tensors, {"format": ALIGNER_FORMAT})
        with written(new / ABOUT, ours=True) as out:
            out.write((json.dumps({"format": ALIGNER_FORMAT, **asdict(about)}, indent=1) + "\n").encode())


def _tensors(found: Evidence) -> dict[str, Tensor]:
    import torch

    text = [np.frombuffer("\n".join(side).encode(), np.uint8).copy() for side in found.words]
    counts = found.counts
    arrays: dict[str, Array] = {"source": text[0], "target": text[1], "start": found.met.start, "met": found.met.target}
    arrays |= {"counts": counts.pairs, "null_0": counts.null[0], "null_1": counts.null[1], "kappa": counts.kappa}
    arrays |= {"jumps": counts.jumps, "rest_0": found.rest[0], "rest_1": found.rest[1], "null_rest": found.null_rest}
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def load_aligner(folder: str | Path) -> OwnAligner:
    """Load the aligner that `train`, or ``otformer align --train``, wrote to a folder."""
    return OwnAligner.of(*read_aligner(folder))


def digest(folder: str | Path) -> str:
    """A hash of the files of an aligner."""
    found = hashlib.sha256()
    for name in (ABOUT, TENSORS):
        with (Path(folder) / name).open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def is_aligner(folder: Path) -> bool:
    """Whether a folder is an aligner's, by its description, and has nothing else: it may be replaced."""
    if not {each.name for each in folder.iterdir()} <= {ABOUT, TENSORS}:
        return False
    try:
        return bool(_json(folder).get("format") == ALIGNER_FORMAT)
    except ValueError:
        return False


def folder_named(name: str, value: Any) -> Path:
    """The folder's name given by the argument ``name``."""
    if not isinstance(value, (str, Path)) or "\0" in str(value):
        raise ArgumentError(name, "be the name of a folder", repr(value))
    return Path(value)


def read_about(folder: Path) -> About:
    """The settings of a folder."""
    if not (folder / ABOUT).exists():
        raise ArgumentError(folder, "be a folder that otformer align --train made", f"no {ABOUT} in it")
    try:
        return _about(_json(folder))
    except ArgumentError as error:
        raise error.renamed({str(error.argument): f"{error.argument} of {folder / ABOUT}"}) from None


def read_aligner(folder: str | Path) -> tuple[About, list[Evidence]]:
    """Settings and evidence of a folder."""
    folder = folder_named("folder", folder)
    about = read_about(folder)
    tensors, _ = read_tensors(folder / TENSORS)
    arrays = {name: t.numpy() for name, t in tensors.items()}
    models = range(len(about.letters))
    if beyond := [name for name in arrays if name.split("_")[0] not in map(str, models)]:
        raise ValueError(f"{folder / TENSORS} does not fit: {min(beyond)} is not of this model")
    return about, [_evidence(folder / TENSORS, tensors, arrays, f"{k}_") for k in models]


def _json(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_whole(folder / ABOUT, LARGEST_RECORD))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{folder / ABOUT} is not readable JSON of an aligner")
    return found


def _about(found: dict[str, Any]) -> About:
    names = {"format", *About.__dataclass_fields__}
    if found.get("format") != ALIGNER_FORMAT:
        raise ArgumentError("format", f"be {ALIGNER_FORMAT!r}", repr(found.get("format")))
    if found.keys() != names:
        raise ArgumentError(ABOUT, f"have {', '.join(sorted(names))}", ", ".join(sorted(map(str, found))))
    if not isinstance(found["letters"], list):
        raise ArgumentError("letters", "be a list", repr(found["letters"]))
    rest = {name: value for name, value in found.items() if name not in ("format", "letters")}
    return About(letters=tuple(found["letters"]), **rest)


KINDS = {"source": "uint8", "target": "uint8", "start": "int64", "met": "int32", "counts": "float32"}


def _evidence(path: Path, tensors: dict[str, Tensor], arrays: dict[str, Array], first: str) -> Evidence:
    """An HMM's evidence, checked."""
    a = {name.removeprefix(first): array for name, array in arrays.items() if name.startswith(first)}
    words = _words(path, a, first, "source"), _words(path, a, first, "target")
    (S, T), P = map(len, words), len(a["met"]) if "met" in a and a["met"].ndim == 1 else 0
    wanted: dict[str, tuple[int, ...]] = {"start": (S + 1,), "met": (P,), "counts": (P, 2), "rest_0": (S,), "rest_1": (T,)}
    wanted |= {"null_0": (T,), "null_1": (S,), "null_rest": (2,), "kappa": (2,), "jumps": (2, 2 * FURTHEST + 1)}
    wanted |= {name: a[name].shape for name in ("source", "target")}
    given = {name: t for name, t in tensors.items() if name.startswith(first)}
    check_shapes({first + name: shape for name, shape in wanted.items()}, given, path)
    for name, array in a.items():
        kind = KINDS.get(name, "float64")
        if str(array.dtype) != kind:
            raise ArgumentError(f"{first}{name} of {path}", f"be of {kind}", array.dtype)
        low, high = KAPPAS if name == "kappa" else (0.0, np.finfo("f4").max)
        if array.dtype.kind == "f" and not ((array >= low) & (array <= high)).all():
            raise ArgumentError(f"{first}{name} of {path}", f"be finite numbers of {low:g} to {high:g}")
    rows = np.repeat(np.arange(S), np.maximum(np.diff(a["start"]), 0)) if _rises(a["start"], P) else None
    if rows is None:
        raise ArgumentError(f"{first}start of {path}", f"rise from 0 to {P}")
    if P and (a["met"].min() < 0 or a["met"].max() >= T or (np.diff(rows * T + a["met"]) <= 0).any()):
        raise ArgumentError(f"{first}met of {path}", f"be places of the {T} target words that rise with each source word")
    if not P:
        raise ArgumentError(f"{first}met of {path}", "hold pairs of words", "none")
    counts = Counts(a["counts"], (a["null_0"], a["null_1"]), a["kappa"], a["jumps"])
    return Evidence(words, WordPairs(a["start"], a["met"]), counts, (a["rest_0"], a["rest_1"]), a["null_rest"])


def _rises(start: Array, last: int) -> bool:
    return bool(start[0] == 0 and start[-1] == last and (np.diff(start) >= 0).all())


def _words(path: Path, a: dict[str, Array], first: str, name: str) -> list[str]:
    if name not in a or a[name].dtype != np.uint8 or a[name].ndim != 1:
        raise ValueError(f"{path} does not fit: {first}{name} is missing, or no text")
    try:
        words = a[name].tobytes().decode().split("\n")
    except UnicodeDecodeError:
        raise ArgumentError(f"{first}{name} of {path}", "be UTF-8") from None
    if len(set(words)) < len(words):
        raise ArgumentError(f"{first}{name} of {path}", "be distinct words")
    return words
