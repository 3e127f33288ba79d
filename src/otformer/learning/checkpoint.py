"""Training state in one file, written whole or not at all.

A checkpoint is a safetensors file: the parameters, Adam's two moments and step counts, and in its metadata the version of
the format, the recipe, the seed, the ensemble and the step. The random numbers of a run need no more: each is a function of
(seed + member, purpose, step).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from otformer.learning.model import LearningTransformer
from otformer.learning.recipes import Recipe

VERSION = 1
CHECKPOINT, LOG, MODEL = "checkpoint.safetensors", "log.csv", "model.safetensors"


def prepare(out: Path, resume: bool) -> None:
    """Make the output folder and say now, not after training, if it cannot be used."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"out must be a folder that can be written, got {str(out)!r}: {error.strerror}") from None
    if not resume and (out / CHECKPOINT).exists():
        raise ValueError(f"out already holds a run, got {str(out)!r}: resume it, or name another folder")


def write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """A safetensors file under another name in the same folder, then put in place."""
    from safetensors.torch import save_file

    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        save_file(
            {name: t.detach().cpu().contiguous() for name, t in tensors.items()},
            str(part),
            {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()},
        )
        os.replace(part, path)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file of this format's version."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError):
        raise ValueError(f"{path} is not a readable safetensors file") from None
    if metadata.get("version") != str(VERSION):
        raise ValueError(f"{path} must be of version {VERSION}, got version {metadata.get('version', 'none')}")
    return tensors, metadata


def load_parameters(net: LearningTransformer, tensors: dict[str, Tensor], path: Path) -> None:
    """Fill the network, after a check of every name and shape."""
    wanted = {name: tuple(t.shape) for name, t in net.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise ValueError(f"{path} does not fit: {name} must have shape {wanted.get(name)}, got {found.get(name)}")
    net.load_state_dict(tensors)


def _identity(recipe: Recipe, seed: int, ensemble: int) -> dict[str, Any]:
    return {"version": VERSION, "recipe": recipe.to_json(), "seed": seed, "ensemble": ensemble}


def save(
    path: Path, net: LearningTransformer, adam: torch.optim.Optimizer, recipe: Recipe, seed: int, step: int
) -> None:
    """Write a checkpoint after ``step`` steps."""
    tensors = {f"net.{name}": t for name, t in net.state_dict().items()}
    names = [name for name, _ in net.named_parameters()]
    for k, moments in adam.state_dict()["state"].items():
        tensors |= {f"adam.{names[k]}.{each}": t for each, t in moments.items()}
    write(path, tensors, {**_identity(recipe, seed, net.ensemble), "step": step})


def save_model(path: Path, net: LearningTransformer, recipe: Recipe, seed: int) -> None:
    """Write the weights alone, with all that `load_trained` needs."""
    described = {"name": recipe.name, "about": recipe.about, "architecture": asdict(recipe.architecture)}
    write(path, dict(net.state_dict()), {**_identity(recipe, seed, net.ensemble), **described})


def restore(path: Path, net: LearningTransformer, adam: torch.optim.Optimizer, recipe: Recipe, seed: int) -> int:
    """Read a checkpoint of the same recipe, seed and ensemble into network and optimiser; returns its step."""
    tensors, metadata = read(path)
    for name, value in _identity(recipe, seed, net.ensemble).items():
        if metadata.get(name) != str(value):
            raise ValueError(f"{path} is of another run: its {name} is {metadata.get(name)}, this run's {value}")
    load_parameters(net, {k.removeprefix("net."): t for k, t in tensors.items() if k.startswith("net.")}, path)
    state = adam.state_dict()
    state["state"] = {
        k: {each: tensors[f"adam.{name}.{each}"] for each in ("step", "exp_avg", "exp_avg_sq")}
        for k, (name, _) in enumerate(net.named_parameters())
        if f"adam.{name}.step" in tensors  # V_out has no moments where the objective does not read it
    }
    adam.load_state_dict(state)
    return int(metadata["step"])
