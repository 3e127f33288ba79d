"""Make ``explorer/data.json``: the trained networks, sentences, attention and word vectors of the explorer's page.

    python -m otformer.lab.explorer_data          # needs transformers; writes src/otformer/explorer/data.json

The file ships with the package, so that the page itself is put together without torch. Numbers are base64 of little-endian
arrays: weights as they are stored (float32 or float16), vectors as int8, attention as 8 bits, k/255.
"""

from __future__ import annotations

import base64
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from otformer.explorer import page
from otformer.files import written
from otformer.learning.trained import FOLDER, read_file
from otformer.words.align.vectors import WordVectors, read_vectors
from otformer.words.models.attention import read
from otformer.words.models.models import load
from otformer.words.models.shipped import folder
from otformer.words.text.examples import Example, examples
from otformer.words.text.text import Pair, plain

DATA = Path(page.__file__).with_name("data.json")
NETWORKS = ("sort-beyond", "paper-attention")
MEMBER = 0  # the first seed of each
LANGUAGES, MODEL = "en-fr", "en-fr"
SENTENCES = (0, 2, 4, 7, 11, 14, 26, 38)  # of the shipped examples: those with a translator's attention
READINGS = ("cross-input", "cross-output")
FREQUENT = 350  # words of each language besides those of the sentences
TOP = 255  # the whole number that stands for attention 1

Array = np.ndarray[Any, np.dtype[Any]]


def packed(array: Array) -> str:
    """Base64 of the numbers, little-endian."""
    return base64.b64encode(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def learned(name: str) -> dict[str, Any]:
    """One seed of a shipped trained network: architecture, a sentence on it, and weights by name."""
    tensors, metadata = read_file(FOLDER / f"{name}.safetensors")
    weights = {key: tensor[MEMBER].numpy() for key, tensor in tensors.items()}
    stored = {key: {"dtype": str(each.dtype), "data": packed(each)} for key, each in weights.items()}
    return {"about": metadata["about"], "architecture": json.loads(metadata["architecture"]), "weights": stored}


def sentence(example: Example, attention: dict[str, Array]) -> dict[str, Any]:
    """Words, gold links, and for each reading the attention [layers, heads, target, source] in 8 bits."""
    rounded = {name: packed(np.rint(TOP * A).clip(0, TOP).astype(np.uint8)) for name, A in attention.items()}
    return {"source": example.source, "target": example.target, "links": sorted(example.links), "attention": rounded}


@torch.no_grad()
def sentences() -> tuple[list[dict[str, Any]], tuple[int, int]]:
    """The sentence pairs with the translator's attention, rows scaled to sum to one; its layers and heads."""
    model = load(folder(MODEL))
    chosen = [examples(LANGUAGES)[k] for k in SENTENCES]
    pairs = [Pair(" ".join(each.source), " ".join(each.target)) for each in chosen]
    found, shape = [], (0, 0)
    for example, reading in zip(chosen, read(model, pairs, by="spaces"), strict=True):
        matrices = {name: reading.matrices[name].astype(float) + 1e-30 for name in READINGS}
        scaled = {name: A / A.sum(-1, keepdims=True) for name, A in matrices.items()}
        shape = next(iter(scaled.values())).shape[:2]
        found.append(sentence(example, scaled))
    return found, (int(shape[0]), int(shape[1]))


def vocabulary(language: str, side: int) -> dict[str, Any]:
    """Words with vectors [words, d], int8, each scaled to its largest entry: those of the sentences and frequent ones."""
    source = files("otformer.words").joinpath("data", f"vectors.{LANGUAGES}.npz")
    vectors: WordVectors = read_vectors(Path(str(source)), language)
    needed = [plain(word) for example in examples(LANGUAGES) for word in (example.source, example.target)[side]]
    frequent = [plain(word) for word in vectors.words[:FREQUENT]]
    words = sorted(word for word in {*needed, *frequent} if word and not re.search(r"\s", word))
    matrix = vectors.embed(words)
    whole = np.rint(127 * matrix / np.abs(matrix).max(1, keepdims=True)).astype(np.int8)
    return {"words": " ".join(words), "dim": vectors.dim, "vectors": packed(whole)}


def everything() -> dict[str, Any]:
    """All that ``data.json`` holds."""
    pairs, (layers, heads) = sentences()
    return {
        "networks": {name: learned(name) for name in NETWORKS},
        "sentences": pairs,
        "translator": {"name": MODEL, "layers": layers, "heads": heads, "readings": READINGS},
        "vocabulary": {language: vocabulary(language, side) for side, language in enumerate(LANGUAGES.split("-"))},
    }


if __name__ == "__main__":
    with written(DATA) as out:
        out.write((json.dumps(everything(), ensure_ascii=False, separators=(",", ":")) + "\n").encode())
