"""The files of a training run: its checkpoint, which must be of the same run to go on from, and the trained model.

A checkpoint holds the parameters, Adam's two moments and step counts, which members were stopped (guard.py), and in its
metadata the version of the format, the recipe, seed, ensemble and step. The run's random numbers need no more: each is a
function of (seed + member, purpose, step).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from otformer.lab.training.recipes import Recipe
from otformer.lab.training.step import EagerStep
from otformer.lab.training_loop import MOMENTS, load_moments, moments
from otformer.learning.model import LearningTransformer
from otformer.learning.trained import FOLDER, VERSION, read_file, read_model
from otformer.tensor_files import check_shapes, write_tensors


def _described(recipe: Recipe, seed: int, ensemble: int) -> dict[str, Any]:
    return {"version": VERSION, "recipe": recipe.to_json(), "seed": seed, "ensemble": ensemble}


def _identity(metadata: dict[str, Any]) -> dict[str, Any]:
    """What makes a run this run: seed, ensemble and every field of the recipe, such as ``architecture.depth``, but its name
    and description."""
    own = {"its seed": int(metadata["seed"]), "its ensemble": int(metadata["ensemble"])}
    for name, value in json.loads(metadata["recipe"]).items():
        if isinstance(value, dict):
            own |= {f"{name}.{each}": its for each, its in value.items()}
        elif name not in ("name", "about"):
            own[name] = value
    return own


def save(path: Path, net: LearningTransformer, move: EagerStep, recipe: Recipe, seed: int, step: int) -> None:
    """Write a checkpoint after ``step`` steps."""
    tensors = {f"net.{name}": t for name, t in net.state_dict().items()}
    tensors |= moments(move.adam, [name for name, _ in net.named_parameters()]) | move.guard.state()
    write_tensors(path, tensors, {**_described(recipe, seed, net.ensemble), "step": step})


def save_model(path: Path, net: LearningTransformer, recipe: Recipe, seed: int, stopped: list[int]) -> None:
    """Write the weights alone, with all that `load_trained` needs, and the step at which each member was stopped, or 0."""
    model = {"name": recipe.name, "about": recipe.about, "architecture": asdict(recipe.architecture), "stopped": stopped}
    write_tensors(path, dict(net.state_dict()), {**_described(recipe, seed, net.ensemble), **model})


def load(path: Path, net: LearningTransformer, move: EagerStep, recipe: Recipe, seed: int) -> int:
    """Fill network, optimiser and guard from a checkpoint, which must be of this run; the number of steps done."""
    tensors, metadata = read_file(path)
    try:
        theirs, step = _identity(metadata), int(metadata["step"])
    except (KeyError, ValueError, AttributeError):
        raise ValueError(f"{path} is damaged: it must name recipe, seed, ensemble and step") from None
    ours = _identity(_described(recipe, seed, net.ensemble))
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if names:
        each = "; ".join(f"{name} is {theirs.get(name)}, this run's {ours.get(name)}" for name in names)
        raise ValueError(f"{path} is of another run: {each}")
    if not 1 <= step <= recipe.steps:
        raise ValueError(f"{path} is damaged: step must be from 1 to {recipe.steps}, got {step}")
    wanted = {f"net.{name}": tuple(t.shape) for name, t in net.state_dict().items()}
    wanted |= {name: tuple(t.shape) for name, t in move.guard.state().items()}
    for name, p in net.named_parameters():
        unread = p.numel() == 0 or not p.requires_grad or (name == "V_out" and recipe.objective != "sorted")  # no moments
        if not unread or f"adam.{name}.step" in tensors:
            wanted |= {f"adam.{name}.{each}": () if each == "step" else tuple(p.shape) for each in MOMENTS}
    check_shapes(wanted, tensors, path)
    net.load_state_dict({name: tensors[f"net.{name}"] for name in net.state_dict()})
    load_moments(move.adam, [name for name, _ in net.named_parameters()], tensors)
    move.guard.load(tensors)
    return step


def ship(model: Path, folder: Path = FOLDER) -> Path:
    """Copy a ``model.safetensors`` that `train` has written to where shipped models lie, under its recipe's name.

    Models of many layers go in half precision, which moves the scores in docs/results/learning.md by at most 0.3 points.
    """
    _, tensors, metadata = read_model(model)
    if json.loads(metadata["architecture"])["tied"] is False:
        tensors = {each: t.half() for each, t in tensors.items()}
    path = folder / f"{metadata['name']}.safetensors"
    write_tensors(path, tensors, dict(metadata))
    return path
