"""Trained weights as an ordinary transformers folder, a quarter of their size.

Matrices are stored in float8 (e4m3: three bits of mantissa, a relative rounding of 2⁻⁴ at most, 2⁻¹⁰ absolute below 2⁻⁶),
vectors in float16. `from_pretrained` turns both into float32 by itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from otformer.words.text.languages import LanguagePair

NOT_SHIPPED = ("text.npz", "held_out.tsv")


def small(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices in float8, vectors in float16.

    >>> {name: str(t.dtype) for name, t in small({"W": torch.ones(2, 2), "b": torch.ones(2)}).items()}
    {'W': 'torch.float8_e4m3fn', 'b': 'torch.float16'}
    """
    return {name: t.float().to(torch.float8_e4m3fn) if t.ndim == 2 else t.half() for name, t in weights.items()}


def ship(network: Any, weights: Path, vocabulary: Path, out: Path) -> int:
    """A folder for `from_pretrained`: config, weights, tokenizer. Returns the bytes of the weights.

    network : the architecture, new.   weights : the run's model.safetensors, or a snapshot.
    """
    if not weights.exists():
        raise ValueError(f"weights must be a file that train wrote, got no {weights}")
    out.mkdir(parents=True, exist_ok=True)
    network.config.dtype = "float32"  # what `from_pretrained` turns the weights into
    network.config.save_pretrained(out)
    if getattr(network, "generation_config", None) is not None:
        network.generation_config.max_new_tokens = network.config.max_position_embeddings - 1  # one is the start
        network.generation_config.save_pretrained(out)
    shutil.copy(weights, out / "model.safetensors")
    for file in vocabulary.iterdir():
        if file.name not in NOT_SHIPPED:
            shutil.copy(file, out / file.name)
    return (out / "model.safetensors").stat().st_size


def set_languages(folder: Path, languages: LanguagePair) -> None:
    """Write the direction of a translator into the tokenizer's settings."""
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text()) | {"source_lang": languages.source, "target_lang": languages.target}
    file.write_text(json.dumps(settings, indent=2) + "\n")
