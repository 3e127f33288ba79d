"""Trained models that ship with the package, by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from otformer import checks
from otformer.learning import checkpoint
from otformer.learning.model import Architecture, LearningTransformer

FOLDER = Path(__file__).parent / "weights"


class Trained(nn.Module):
    """One trained model: ``module(x, y)`` is its output attention."""

    def __init__(self, net: LearningTransformer, name: str, about: str) -> None:
        super().__init__()
        self.net, self.name, self.about = net, name, about

    def forward(self, x: Any, y: Any) -> Tensor:
        """The output attention [n, n], or [B, n, n] for a batch: rows y, columns x, every row sums to 1.

        x and y: as many points each, (n, d) or (B, n, d); for d = 1 also a plain list (n,). Any n from 2 on.
        """
        x, y = (self._points(name, value) for name, value in (("x", x), ("y", y)))
        if x.shape != y.shape:
            raise ValueError(f"x and y must have the same shape, got {tuple(x.shape)} and {tuple(y.shape)}")
        if x.shape[-2] < 2:
            raise ValueError(f"x must hold at least 2 points, got {x.shape[-2]}")
        if x.ndim == 2:
            return self.net(x[None], y[None]).attention[0, 0]
        return self.net(x, y).attention[0]

    def _points(self, name: str, value: Any) -> Tensor:
        t = checks.tensor(name, value)
        dim = self.net.architecture.dim
        if t.ndim == 1 and dim == 1:
            t = t[:, None]
        return checks.points(name, t, dim, batch=True).to(self.net.P)


def trained_models() -> dict[str, str]:
    """Names of the models that ship with the package, and what each is.

    >>> "sort-beyond" in trained_models()
    True
    """
    return {path.stem: checkpoint.read(path)[1]["about"] for path in sorted(FOLDER.glob("*.safetensors"), key=_natural)}


def _natural(path: Path) -> list[str | int]:
    """A key that sorts numbers inside names as numbers: -2 before -10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.stem)]


class _Model(NamedTuple):
    """A model file as read."""

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def _read(name: str | Path) -> _Model:
    """A shipped model by its name, or a file by its path (a `Path`, or text that ends in .safetensors)."""
    if isinstance(name, Path) or str(name).endswith(".safetensors"):
        path = Path(name)
    else:
        path = FOLDER / f"{checks.choice('name', name, trained_models())}.safetensors"
    tensors, metadata = checkpoint.read(path)
    if "step" in metadata:
        raise ValueError(f"{path} is a checkpoint, not a model")
    missing = [each for each in ("name", "about", "architecture", "ensemble") if each not in metadata]
    if missing:
        raise ValueError(f"{path} is not a model: its metadata must have {', '.join(missing)}")
    return _Model(path, tensors, metadata)


def _network(model: _Model) -> LearningTransformer:
    path, tensors, metadata = model
    try:
        architecture, ensemble = Architecture(**json.loads(metadata["architecture"])), int(metadata["ensemble"])
    except (TypeError, ValueError):
        raise ValueError(f"{path} is damaged: its architecture or ensemble cannot be read") from None
    net = LearningTransformer(architecture, ensemble)
    checkpoint.load_parameters(net, {each: t.float() for each, t in tensors.items()}, path)
    return net.requires_grad_(False)


def load_ensemble(name: str | Path) -> LearningTransformer:
    """All members of a shipped model, or of a ``model.safetensors`` that `train` has written."""
    return _network(_read(name))


def ship(model: Path, folder: Path = FOLDER) -> Path:
    """Copy a ``model.safetensors`` that `train` has written to where shipped models lie, under its recipe's name.

    Models of many layers go in half precision, which moves the scores in docs/results/learning.md by at most 0.3 points.
    """
    _, tensors, metadata = _read(model)
    if json.loads(metadata["architecture"])["tied"] is False:
        tensors = {each: t.half() for each, t in tensors.items()}
    path = folder / f"{metadata['name']}.safetensors"
    checkpoint.write(path, tensors, dict(metadata))
    return path


def load_trained(name: str | Path, member: int = 0) -> Trained:
    """A trained model as a module, in float32 (``.double()`` for float64); ``member`` picks one of the eight seeds.

    >>> module = load_trained("sort-beyond")
    >>> module([0.75, 0.25, 1.0, 0.5], [0.25, 0.5, 0.75, 1.0]).argmax(1)
    tensor([1, 3, 0, 2])
    """
    model = _read(name)
    net = _network(model).member(member).requires_grad_(False)
    return Trained(net, model.metadata["name"], model.metadata["about"])
