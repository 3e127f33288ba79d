r"""Alignment models (words/align/hmm/model.py) as a small file, an npz.

A probability is a byte, q = −8 log₂ t (t ≥ 1e-7, so q ≤ 186), 4.4 % off at most. Those that ship are a model of words and
one of stems, without pairs of words that are seldom linked (`AlignmentModel.pruned`); docs/alignment.md has the error rates
of other bounds. Models are numbered from 0, and of each there are

    k_source, k_target   words that are in a pair, as text     k_pairs     [source words], how many pairs each has
    k_said               [pairs], which target words           k_t         [2, pairs], q of both directions
    k_null_0, k_null_1   [target words], [source words]: q     k_jumps     [2, jumps]       k_letters    0 for whole words
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from otformer.array_files import read_npz
from otformer.errors import ArgumentError
from otformer.files import written
from otformer.memory import lacking
from otformer.words.align.hmm.model import AlignmentModel, AlignmentSettings
from otformer.words.align.hmm.orders import Direction
from otformer.words.align.vectors import Array

SETTINGS = (AlignmentSettings(), AlignmentSettings(stem_letters=5))  # of the models of words and of stems
STEPS_PER_OCTAVE = 8  # values of a byte per factor of 2 in probability


def write_models(file: str | Path, models: Sequence[AlignmentModel]) -> None:
    """The models as one npz that `read_models` reads; whole or not at all."""
    arrays: dict[str, Array] = {}
    for number, model in enumerate(models):
        if model.settings.order != "jumps":
            raise ArgumentError("models", "have order 'jumps' to be written", repr(model.settings.order))
        arrays |= {f"{number}_{name}": array for name, array in _arrays(model).items()}
    with written(Path(file)) as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]  # the stubs take **arrays for allow_pickle


def _arrays(model: AlignmentModel) -> dict[str, Array]:
    """A model without the words that are in no pair."""
    sides = np.divmod(model.pair_keys, len(model.words[1]))
    used = [np.unique(side) for side in sides]
    source, target = (np.searchsorted(u, side) for u, side in zip(used, sides, strict=True))
    names = [np.array(list(index), dtype=object)[u] for index, u in zip(model.words, used, strict=True)]
    if len(used[1]) > 2**16:
        raise ArgumentError("models", "have at most 65536 target words", len(used[1]), "keep fewer pairs")
    return {
        "source": np.frombuffer("\n".join(names[0]).encode(), np.uint8),
        "target": np.frombuffer("\n".join(names[1]).encode(), np.uint8),
        "pairs": np.bincount(source, minlength=len(used[0])).astype(np.uint16),
        "said": target.astype(np.uint16),
        "t": _bytes(np.stack([d.table for d in model.directions])),
        "null_0": _bytes(model.directions[0].null[used[1]]),
        "null_1": _bytes(model.directions[1].null[used[0]]),
        "jumps": np.stack([d.jumps / d.jumps.sum() for d in model.directions]).astype(np.float32),
        "letters": np.array(model.settings.stem_letters or 0),
    }


def _bytes(t: Array) -> Array:
    return np.rint(-STEPS_PER_OCTAVE * np.log2(t)).clip(0, 255).astype(np.uint8)


def _probabilities(q: Array) -> Array:
    return np.asarray(np.exp2(-np.arange(256) / STEPS_PER_OCTAVE).astype(np.float32)[q])


def read_models(file: str | Path) -> list[AlignmentModel]:
    """The models of a file of `write_models`."""
    try:
        arrays = read_npz(file)
        count = max(1, sum(name.endswith("_said") for name in arrays))
        return [_model(arrays, f"{number}_") for number in range(count)]
    except KeyError as error:
        raise ArgumentError(file, "hold alignment models", f"one without {error.args[0]}") from None
    except Exception as error:  # numpy's and zipfile's errors have no base of their own
        if lacking(error):
            raise
        raise ValueError(f"{file} is not a readable file of alignment models: {error}") from None


def _model(arrays: dict[str, Array], first: str) -> AlignmentModel:
    a = {name: arrays[first + name] for name in ("source", "target", "pairs", "said", "t", "null_0", "null_1", "jumps")}
    source, target = ({w: k for k, w in enumerate(a[side].tobytes().decode().split("\n"))} for side in ("source", "target"))
    _check(a, first, len(source), len(target))
    pair_keys = np.repeat(np.arange(len(source)), a["pairs"]) * len(target) + a["said"]
    if (np.diff(pair_keys) <= 0).any():
        raise ArgumentError(f"{first}said", "rise within the pairs of a source word")
    both = zip(_probabilities(a["t"]), (a["null_0"], a["null_1"]), a["jumps"].astype(np.float64), strict=True)
    forward, backward = (Direction(table, _probabilities(null), 0.0, jumps) for table, null, jumps in both)
    settings = AlignmentSettings(stem_letters=int(arrays[f"{first}letters"]) or None)
    return AlignmentModel((source, target), pair_keys, (forward, backward), settings)


def _check(a: dict[str, Array], first: str, sources: int, targets: int) -> None:
    """A file from elsewhere may be an npz and still no model: shapes, places of words and jumps are looked at."""
    pairs = int(a["pairs"].sum())
    shapes = {"pairs": (sources,), "said": (pairs,), "t": (2, pairs), "null_0": (targets,), "null_1": (sources,)}
    for name, shape in shapes.items():
        if a[name].shape != shape:
            raise ArgumentError(f"{first}{name}", f"have shape {shape}", a[name].shape)
    if a["jumps"].ndim != 2 or len(a["jumps"]) != 2 or len(a["jumps"].T) % 2 == 0:
        raise ArgumentError(f"{first}jumps", "be two rows of an odd number of jumps", a["jumps"].shape)
    if a["said"].dtype.kind != "u" or int(a["said"].max(initial=0)) >= targets:
        raise ArgumentError(f"{first}said", f"be places of the {targets} target words")
    if not (np.isfinite(a["jumps"]) & (a["jumps"] > 0)).all():
        raise ArgumentError(f"{first}jumps", "be positive and finite")
