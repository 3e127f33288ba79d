"""Training state in one file, written whole or not at all.

A checkpoint is a safetensors file: the parameters, Adam's two moments and step counts, and in its metadata the version of
the format, the recipe, the seed, the ensemble and the step. The random numbers of a run need no more: each is a function of
(seed + member, purpose, step). Equal contents make equal files, byte by byte.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from otformer.files import writable_folder, written
from otformer.learning.model import LearningTransformer
from otformer.learning.recipes import Recipe

VERSION = 1
CHECKPOINT, LOG, MODEL = "checkpoint.safetensors", "log.csv", "model.safetensors"


def prepare(out: Path, resume: bool) -> None:
    """Make the output folder and say now, not after training, if it cannot be used."""
    writable_folder(out)
    if not resume and (out / CHECKPOINT).exists():
        raise ValueError(f"out already holds a run, got {str(out)!r}: resume it, or name another folder")


def tidy(out: Path) -> None:
    """Remove what a killed run has left half written."""
    for name in (CHECKPOINT, LOG, MODEL):
        for part in out.glob(f".{name}.*.part"):
            part.unlink(missing_ok=True)


def put(path: Path, content: bytes) -> None:
    """A file under another name in the same folder, then put in place."""
    with written(path) as stream:
        stream.write(content)


def write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """A safetensors file: the length of the header in 8 bytes, the header as JSON, the numbers.

    The library writes the metadata in random order, so the header is written again, sorted.
    """
    from safetensors.torch import save

    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}
    content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, texts)
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:end]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)  # the numbers start at a multiple of 8
    put(path, len(header).to_bytes(8, "little") + header + content[end:])


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file of this format's version."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise ValueError(f"{path} does not exist")
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
    _fit({name: tuple(t.shape) for name, t in net.state_dict().items()}, tensors, path)
    net.load_state_dict(tensors)


def _fit(wanted: dict[str, tuple[int, ...]], tensors: dict[str, Tensor], path: Path) -> None:
    for name in sorted(wanted.keys() | tensors.keys()):
        if name not in tensors:
            raise ValueError(f"{path} does not fit: {name} is missing")
        if name not in wanted:
            raise ValueError(f"{path} does not fit: {name} is not of this model")
        if wanted[name] != (found := tuple(tensors[name].shape)):
            raise ValueError(f"{path} does not fit: {name} must have shape {wanted[name]}, got {found}")


def _described(recipe: Recipe, seed: int, ensemble: int) -> dict[str, Any]:
    return {"version": VERSION, "recipe": recipe.to_json(), "seed": seed, "ensemble": ensemble}


def _identity(metadata: dict[str, Any]) -> dict[str, Any]:
    """What makes a run this run: seed, ensemble and every field of the recipe but its name and description."""
    fields = _flat(json.loads(metadata["recipe"]))
    own = {"its seed": int(metadata["seed"]), "its ensemble": int(metadata["ensemble"])}
    return own | {name: value for name, value in fields.items() if name not in ("name", "about")}


def _flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields under one name each, such as ``architecture.depth``."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def save(path: Path, net: LearningTransformer, adam: torch.optim.Optimizer, recipe: Recipe, seed: int, step: int) -> None:
    """Write a checkpoint after ``step`` steps."""
    tensors = {f"net.{name}": t for name, t in net.state_dict().items()}
    names = [name for name, _ in net.named_parameters()]
    for k, moments in adam.state_dict()["state"].items():
        tensors |= {f"adam.{names[k]}.{each}": t for each, t in moments.items()}
    write(path, tensors, {**_described(recipe, seed, net.ensemble), "step": step})


def save_model(path: Path, net: LearningTransformer, recipe: Recipe, seed: int) -> None:
    """Write the weights alone, with all that `load_trained` needs."""
    model = {"name": recipe.name, "about": recipe.about, "architecture": asdict(recipe.architecture)}
    write(path, dict(net.state_dict()), {**_described(recipe, seed, net.ensemble), **model})


class Saved(NamedTuple):
    """A checkpoint as read: its tensors, and the steps done."""

    path: Path
    tensors: dict[str, Tensor]
    step: int


def load(path: Path, recipe: Recipe, seed: int, ensemble: int) -> Saved:
    """Read a checkpoint, which must be of this run."""
    tensors, metadata = read(path)
    try:
        theirs, step = _identity(metadata), int(metadata["step"])
    except (KeyError, ValueError, AttributeError):
        raise ValueError(f"{path} is damaged: it must name recipe, seed, ensemble and step") from None
    ours = _identity(_described(recipe, seed, ensemble))
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if names:
        each = "; ".join(f"{name} is {theirs.get(name)}, this run's {ours.get(name)}" for name in names)
        raise ValueError(f"{path} is of another run: {each}")
    if not 1 <= step <= recipe.steps:
        raise ValueError(f"{path} is damaged: step must be from 1 to {recipe.steps}, got {step}")
    return Saved(path, tensors, step)


def restore(saved: Saved, net: LearningTransformer, adam: torch.optim.Optimizer, recipe: Recipe) -> None:
    """Fill network and optimiser, after a check of every name and shape."""
    wanted = {f"net.{name}": tuple(t.shape) for name, t in net.state_dict().items()}
    moved = []
    for k, (name, p) in enumerate(net.named_parameters()):
        unread = p.numel() == 0 or (name == "V_out" and recipe.objective != "sorted")  # no gradient, no moments
        if not unread or f"adam.{name}.step" in saved.tensors:
            moved.append((k, name))
            shapes = {"step": (), "exp_avg": tuple(p.shape), "exp_avg_sq": tuple(p.shape)}
            wanted |= {f"adam.{name}.{each}": shape for each, shape in shapes.items()}
    _fit(wanted, saved.tensors, saved.path)
    net.load_state_dict({name: saved.tensors[f"net.{name}"] for name in net.state_dict()})
    state = adam.state_dict()
    state["state"] = {
        k: {each: saved.tensors[f"adam.{name}.{each}"] for each in ("step", "exp_avg", "exp_avg_sq")} for k, name in moved
    }
    adam.load_state_dict(state)
