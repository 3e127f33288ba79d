"""Trained models that ship with the package, by name."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from otformer import checks
from otformer.learning.model import Architecture, LearningTransformer
from otformer.memory import Need, matrices, needs, shape
from otformer.show.card import Card, Shown
from otformer.show.coarse import CELLS
from otformer.show.heat import Heat
from otformer.tensor_files import check_shapes, load_weights, read_tensors

FOLDER = Path(__file__).parent / "weights"
VERSION = 1  # of the format of models and checkpoints
SPREAD = 6  # training draws n points from a grid of up to 6n, so that their range is at least about 1/6
TINY = 1e-300  # in place of the size of points that are all 0
RETIRED = ("growth", "grow_from")  # settings that files still name and no network has: loops that grew with n


class Trained(nn.Module, Shown):
    """One trained model: ``module(x, y)`` is its output attention.

    The models have learned from numbers in [0, 1] (``cloud-beyond``: from points whose coordinates are about 1 in size).
    Other numbers are mapped there first, each side t ↦ αt + β with α > 0 of its own, which changes no answer: the
    assignment that a model is trained to find maximises Σ_i x_σ(i)·y_i, and that only gets a factor and a constant.
    """

    def __init__(self, net: LearningTransformer, name: str, about: str, clouds: bool = False) -> None:
        super().__init__()
        self.net, self.name, self.about, self.clouds = net, name, about, clouds

    def __repr__(self) -> str:
        return f"Trained({self.name!r}, {self.net.extra_repr()})"

    @needs(lambda self, x, **_: self._need(x))
    def forward(self, x: Any, y: Any) -> Tensor:
        """The output attention [n, n], or [B, n, n] for a batch: rows y, columns x, every row sums to 1.

        x and y: as many points each, (n, d) or (B, n, d); for d = 1 also a plain list (n,). Any n from 2 on.
        """
        x, y = (self._points(name, value) for name, value in (("x", x), ("y", y)))
        if x.shape != y.shape:
            raise checks.ArgumentError("x and y", "have the same shape", f"{tuple(x.shape)} and {tuple(y.shape)}")
        if x.shape[-2] < 2:
            raise checks.ArgumentError("x", "hold at least 2 points", x.shape[-2])
        known = self._known(x, y)
        x, y = (torch.where(known, t, self._mapped(t)).to(self.net.P) for t in (x, y))
        return self.net(x, y).attention[0] if x.ndim == 3 else self.net(x[None], y[None]).attention[0, 0]

    def _need(self, x: Any) -> Need:
        *lead, n, _ = shape(x) if len(shape(x, 0)) > 1 else (*shape(x, 1), 1)
        count = math.prod(lead)
        return Need(matrices("attention", n, n, count), 5 * count * n * n, "give fewer points")

    def plot(self, x: Any = None, y: Any = None, ax: Any = None) -> Any:
        """Draw the attention on points x and y, or on seven default points. Returns the matplotlib axes.

        Outlined is the assignment that maximises Σ_i x_σ(i)·y_i, which the model is trained to find.

        >>> load_trained("sort-beyond").plot([0.9, 0.1, 0.5], [0.0, 0.5, 1.0]).get_title("left")
        '100 % of 3 rows right'
        """
        return self._plot(ax, x=x, y=y)

    def save(self, path: str | Path, x: Any = None, y: Any = None) -> None:
        """Write what a notebook shows as a page (.html), or what `plot` draws as a picture (.png, .svg, .pdf)."""
        self._save(path, x=x, y=y)

    @torch.no_grad()
    def _card(self, x: Any = None, y: Any = None) -> Card:
        a = self.net.architecture
        if x is None and y is None:
            x, y = self._example()
        elif x is None or y is None:
            raise ValueError(f"{'x' if x is None else 'y'} is missing: points are given on both sides, or not at all")
        A = self(x, y).double().cpu().numpy()
        if A.ndim != 2 or len(A) > CELLS:
            raise checks.ArgumentError("x", f"be one list of at most {CELLS} points to be drawn", f"shape {np.shape(x)}")
        inner = self._points("y", y) @ self._points("x", x).mT  # [n, n]: rows y, columns x
        right = linear_sum_assignment(inner.cpu().numpy(), maximize=True)[1]
        title = f"{100 * (A.argmax(1) == right).mean():.0f} % of {len(A)} rows right"
        count = sum(p.numel() for p in self.net.parameters())
        layers = f"{a.depth} loops of one" if a.tied else f"{a.depth}"
        facts = {"model": self.name, "about": self.about, "layers": layers, "parameters": f"{count:,}"}
        picture = Heat(A, title, A.shape, 1.0, ("y", "x"), marked=right.tolist())
        return Card("Trained", facts, [picture])

    def _example(self) -> tuple[Tensor, Tensor]:
        """Seven points such as the model has seen: a list to be sorted, or two clouds."""
        seed = torch.Generator().manual_seed(0)
        if self.clouds:
            x, y = torch.randn(2, 7, self.net.architecture.dim, generator=seed, device="cpu")
            return x, y
        y = torch.arange(1, 8, device="cpu")[:, None] / 7
        return y[torch.randperm(7, generator=seed, device="cpu")], y

    def _known(self, x: Tensor, y: Tensor) -> Tensor:
        """Whether a problem is one such as the model has seen, [(B,) 1, 1]."""
        if self.clouds:
            size = torch.cat([x, y], dim=-2).square().mean((-2, -1), keepdim=True).sqrt()
            return (size > 1 / 2) & (size < 2)
        both = torch.stack([x, y])
        low, high = both.amin((-2, -1), keepdim=True), both.amax((-2, -1), keepdim=True)
        return ((low >= 0) & (high <= 1) & (high - low >= 1 / (2 * SPREAD))).all(0)

    def _mapped(self, t: Tensor) -> Tensor:
        """Points onto [1/n, 1], where training has y_i = i/n; clouds to mean 0 and coordinates of size 1."""
        t = t / t.abs().amax((-2, -1), keepdim=True).clamp_min(TINY)
        if self.clouds:
            t = t - t.mean(-2, keepdim=True)
            return t / t.square().mean((-2, -1), keepdim=True).sqrt().clamp_min(TINY)
        t, n = t - t.amin((-2, -1), keepdim=True), t.shape[-2]
        return (1 + (n - 1) * t / t.amax((-2, -1), keepdim=True).clamp_min(TINY)) / n

    def _points(self, name: str, value: Any) -> Tensor:
        t, dim = checks.tensor(name, value), self.net.architecture.dim
        if t.ndim == 1 and dim == 1:
            t = t[:, None]
        return checks.points(name, t, dim, batch=True).to(self.net.P.device, torch.float64)


def trained_models() -> dict[str, str]:
    """Names and descriptions of the models that ship with the package.

    >>> "sort-beyond" in trained_models()
    True
    """
    return {path.stem: read_file(path)[1]["about"] for path in sorted(FOLDER.glob("*.safetensors"), key=_natural)}


def _natural(path: Path) -> list[str | int]:
    """A key that sorts numbers inside names as numbers: -2 before -10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.stem)]


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file of this format's version: a model, or a checkpoint of its training."""
    tensors, metadata = read_tensors(path)
    if metadata.get("version") != str(VERSION):
        raise checks.ArgumentError(path, f"be of version {VERSION}", f"version {metadata.get('version', 'none')}")
    return tensors, metadata


def read_model(name: str | Path) -> tuple[Path, dict[str, Tensor], dict[str, str]]:
    """Path, tensors and metadata of a shipped model by its name, or of a file (a `Path`, or text ending in .safetensors)."""
    if isinstance(name, Path) or str(name).endswith(".safetensors"):
        path = Path(name)
    else:
        path = FOLDER / f"{checks.choice('name', name, trained_models())}.safetensors"
    tensors, metadata = read_file(path)
    if "step" in metadata:
        raise ValueError(f"{path} is a checkpoint, not a model")
    missing = [each for each in ("name", "about", "architecture", "ensemble") if each not in metadata]
    if missing:
        raise ValueError(f"{path} is not a model: its metadata must have {', '.join(missing)}")
    return path, tensors, metadata


def load_ensemble(name: str | Path) -> LearningTransformer:
    """All members of a shipped model, or of a ``model.safetensors`` that `train` has written."""
    path, tensors, metadata = read_model(name)
    try:
        fields = {key: value for key, value in json.loads(metadata["architecture"]).items() if key not in RETIRED}
        architecture, ensemble = Architecture(**fields), checks.count("ensemble", int(metadata["ensemble"]))
        with torch.device("meta"):  # shapes without memory: the file says how large they are, and may say anything
            shapes = {each: tuple(t.shape) for each, t in LearningTransformer(architecture, ensemble).state_dict().items()}
    except (TypeError, ValueError, AttributeError, RecursionError, RuntimeError):
        raise ValueError(f"{path} is damaged: its architecture or ensemble cannot be read") from None
    check_shapes(shapes, tensors, path)
    with torch.device("cpu"):
        net = LearningTransformer(architecture, ensemble)
    load_weights(net, {each: t.float() for each, t in tensors.items()}, path)
    return net.requires_grad_(False)


def load_trained(name: str | Path, member: int = 0) -> Trained:
    """A trained model as a module, in float64: a late layer multiplies rounding by 1/λ = 1000, and in float32 the order of
    the points would move the attention by up to 0.12.

    Parameters
    ----------
    name : str or Path
        One of `trained_models`, or a ``model.safetensors`` that `train` has written.
    member : int
        The seed; shipped models have eight, 0 to 7.

    Returns
    -------
    Trained
        ``module(x, y)`` is the output attention, rows y, columns x. It was trained on numbers in [0, 1], and maps other
        numbers there.

    Examples
    --------
    >>> module = load_trained("sort-beyond")
    >>> module
    Trained('sort-beyond', 20 loops of one layer, dim=1, engineered prompt, 449 parameters, ensemble of 1)
    >>> module([0.75, 0.25, 1.0, 0.5], [0.25, 0.5, 0.75, 1.0]).argmax(1)
    tensor([1, 3, 0, 2])
    >>> module([30.0, -10.0, 20.0], [1.0, 2.0, 3.0]).argmax(1)
    tensor([1, 2, 0])
    """
    _, _, metadata = read_model(name)
    net = load_ensemble(name).member(member).double().requires_grad_(False)
    clouds = "clouds" in json.loads(metadata.get("recipe", "{}")).get("problems", {}).get("kinds", ())
    return Trained(net, metadata["name"], metadata["about"], clouds)
