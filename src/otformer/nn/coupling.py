"""A coupling as a list of pairs with masses: drawn from, gone through once an epoch, saved and loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from otformer import checks
from otformer.errors import ArgumentError
from otformer.tensor_files import read_tensors, write_tensors

KIND = "otformer coupling"  # what a file says that it holds


@dataclass(frozen=True, eq=False)
class Coupling:
    """Pairs (i, j) of n points with m points, and their masses, of sum 1: an optimal plan as a list, sorted by i.

    ``i``, ``j`` [E] are int64, ``masses`` [E] float64; ``shape`` is (n, m).

    >>> table = Coupling(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 2]), torch.tensor([0.3, 0.3, 0.4]), (2, 3))
    >>> [t.tolist() for t in table.once()]
    [[0, 0, 1], [0, 1, 2]]
    """

    i: Tensor
    j: Tensor
    masses: Tensor
    shape: tuple[int, int]

    def draw(self, count: int, replace: bool = True, generator: Generator | int | None = None) -> tuple[Tensor, Tensor]:
        """(i, j), [count] each, a pair with a probability proportional to its mass."""
        at = draw_places(self.masses, checks.count("count", count, least=0), replace, generator_of(generator))
        return self.i[at], self.j[at]

    def once(self, generator: Generator | int | None = None) -> tuple[Tensor, Tensor]:
        """(i, j) with every point of the larger side once, in order; where its mass is split, a partner is drawn by mass.

        A permutation is returned as it is, and nothing is drawn. Points that were left out (`OTPlanSampler.table`) are
        absent.
        """
        side = self.i if self.shape[0] > self.shape[1] else self.j
        if len(side) == self.shape[0] == self.shape[1]:
            return self.i, self.j
        first = _races(self.masses, generator_of(generator)).argsort()
        order = first[side[first].argsort(stable=True)]
        starts = torch.ones_like(order, dtype=torch.bool)
        starts[1:] = side[order].diff() != 0
        return self.i[order[starts]], self.j[order[starts]]

    def batches(
        self, size: int, generator: Generator | int | None = None, drop_last: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch: the pairs of `once` in random order, ``size`` at a time."""
        generator, size = generator_of(generator), checks.count("size", size)
        i, j = self.once(generator)
        for at in _uniform(i.shape, generator, i.device).argsort().split(size):
            if len(at) == size or (len(at) and not drop_last):
                yield i[at], j[at]

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, whole or not at all."""
        about = {"kind": KIND, "n": self.shape[0], "m": self.shape[1]}
        tensors = {"i": self.i, "j": self.j, "masses": self.masses}
        write_tensors(checks.path("path", path, ".safetensors"), tensors, about)

    @classmethod
    def load(cls, path: str | Path) -> Coupling:
        """Read what `save` wrote."""
        file = checks.path("path", path, ".safetensors")
        tensors, about = read_tensors(file)
        if about.get("kind") != KIND or set(tensors) != {"i", "j", "masses"}:
            raise ArgumentError(file, "hold a coupling that Coupling.save wrote")
        i, j, masses = tensors["i"], tensors["j"], tensors["masses"]
        n, m = int(about["n"]), int(about["m"])
        inside = all(t.dtype == torch.int64 and bool(((t >= 0) & (t < top)).all()) for t, top in ((i, n), (j, m)))
        if not inside or not i.shape == j.shape == masses.shape or not bool((masses > 0).all() & masses.isfinite().all()):
            raise ArgumentError(file, f"hold pairs of {n} × {m} points with positive masses")
        return cls(i, j, masses, (n, m))


def generator_of(given: Generator | int | None) -> Generator | None:
    if given is None or isinstance(given, Generator):
        return given
    return Generator().manual_seed(checks.count("generator", given, least=0))


def _uniform(shape: Any, generator: Generator | None, device: torch.device) -> Tensor:
    """Numbers in [0, 1), drawn where the generator is."""
    place = device if generator is None else generator.device
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=place).to(device)


def _races(masses: Tensor, generator: Generator | None) -> Tensor:
    """Exponential times with the masses as rates: the first k to ring are k entries drawn without replacement."""
    times = -torch.log1p(-_uniform(masses.shape, generator, masses.device))
    return torch.where(masses > 0, times / masses, torch.inf)


def draw_places(masses: Tensor, count: int, replace: bool, generator: Generator | None) -> Tensor:
    """Places [..., count] in the last axis of masses [..., E], float64, each with a probability proportional to its mass."""
    if not count:
        return torch.zeros(*masses.shape[:-1], 0, dtype=torch.int64, device=masses.device)
    there = int((masses > 0).sum(-1).min()) if masses.numel() else 0
    if not there:
        raise ArgumentError("the plan", "have mass to draw from, from every point", "none", "raise reg_m, or normalize_cost")
    if count > there and not replace:
        raise ArgumentError("batch_size (or count)", f"be at most the {there} pairs with mass, without replacement", count)
    if not replace:
        return _races(masses, generator).topk(count, largest=False).indices
    sums = masses.cumsum(-1)
    at = _uniform((*masses.shape[:-1], count), generator, masses.device) * sums[..., -1:]
    return torch.searchsorted(sums, at, right=True)
