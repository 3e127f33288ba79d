"""The problems of the GPU benchmark: the families of the table, and families of our own.

Both are written down here and drawn by fixed seeds. A cube has a diagonal of 1, so that the largest cost is 1; clusters,
shells and shifted cubes lie within such a cube; "unscaled" is [0, 1]^d. (With these the solver the table was made with needs
the passes it lists: 20 at 10,000 × 128, 600 to 700 at 10,000 × 3.) "weights" are random positive ones on both sides, of mass
1; otherwise they are uniform.

**OWN was written down before tuning**: no solver, ours or another, was tuned on it, and it is run last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from gpu_common import Bench, Problem
from torch import Tensor

Random = torch.Generator
Cloud = Callable[[Random, int, int], Tensor]  # (generator, n, d) → points [n, d]


@dataclass(frozen=True)
class Family:
    """n points of one cloud and m of another in d dimensions, at λ = reg."""

    name: str
    n: int
    m: int
    d: int
    reg: float
    x: Cloud
    y: Cloud
    weights: bool = False  # random ones
    density: Callable[[Random, Tensor], Tensor] | None = None  # weights as a function of the points

    @property
    def case(self) -> str:
        sizes = f"{self.n:,}" if self.n == self.m else f"{self.n:,}/{self.m:,}"
        return f"{sizes} × {self.d}, {self.name}{' (weights)' if self.weights else ''}, λ = {self.reg:g}"

    def draw(self, bench: Bench, seed: int = 0, dtype: torch.dtype = torch.float32) -> Problem:
        g = torch.Generator(bench.device).manual_seed(seed)
        x, y = (cloud(g, bench.size(size), self.d).to(dtype) for cloud, size in ((self.x, self.n), (self.y, self.m)))
        a = b = None
        if self.weights:
            a, b = (_normal_mass(0.1 + _uniform(g, len(t))).to(dtype) for t in (x, y))
        elif self.density is not None:
            a, b = (_normal_mass(self.density(g, t)).to(dtype) for t in (x, y))
        return Problem(x, y, a, b, self.reg)


def _normal_mass(w: Tensor) -> Tensor:
    return w.double() / w.double().sum()


def _uniform(g: Random, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=g, device=g.device)


def _normal(g: Random, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, device=g.device)


def _direction(g: Random, n: int, d: int) -> Tensor:
    return torch.nn.functional.normalize(_normal(g, n, d))


# ── clouds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def cube(g: Random, n: int, d: int, side: float = 1.0, shift: float = 0.0, unscaled: bool = False) -> Tensor:
    """Uniform in a cube: a part of one with diagonal 1, or of [0, 1]^d."""
    return (_uniform(g, n, d) * side + shift) / (1 if unscaled else math.sqrt(d))


def clusters(g: Random, n: int, d: int, count: int = 10, width: float = 0.05) -> Tensor:
    """Gaussian blobs of equal width, their centres uniform in the cube."""
    centres, which = _uniform(g, count, d), torch.randint(count, (n,), generator=g, device=g.device)
    return (centres[which] + width * _normal(g, n, d)) / math.sqrt(d)


def shell(g: Random, n: int, d: int, radius: float = 1.0) -> Tensor:
    return radius * _direction(g, n, d)


def gaussian(g: Random, n: int, d: int, least: float = 0.02, centre: float = 0.0) -> Tensor:
    """Widths from 0.3 down to ``least``, along axes turned at random."""
    widths = torch.logspace(math.log10(0.3), math.log10(least), d, device=g.device)
    turn = torch.linalg.qr(_normal(g, d, d)).Q
    return _normal(g, n, d) * widths @ turn + centre / math.sqrt(d)


def swiss_roll(g: Random, n: int, d: int) -> Tensor:
    """A sheet rolled up in three dimensions, 1 wide."""
    t = 1.5 * math.pi * (1 + 2 * _uniform(g, n))
    return torch.stack([t * t.cos() / 28, _uniform(g, n) - 0.5, t * t.sin() / 28], 1)


def rings(g: Random, n: int, d: int, count: int = 3) -> Tensor:
    """Concentric circles with a little noise."""
    radius = (1 + torch.randint(count, (n,), generator=g, device=g.device))[:, None] / (2 * count)
    return radius * _direction(g, n, d) + 0.01 * _normal(g, n, d)


def twice(cloud: Cloud, g: Random, n: int, d: int) -> Tensor:
    """A cloud in which every other point is a copy of the one before."""
    return cloud(g, (n + 1) // 2, d).repeat_interleave(2, 0)[:n]


def pixels(g: Random, n: int, d: int) -> Tensor:
    """The centres of the pixels of a square image, 1 wide."""
    side = math.isqrt(n)
    steps = (torch.arange(side, device=g.device) + 0.5) / side
    return torch.cartesian_prod(steps, steps)


def smooth_density(g: Random, points: Tensor) -> Tensor:
    """exp of a random field of low frequency: positive, smooth, uneven."""
    waves, phases = 12 * _normal(g, points.shape[1], 16), 2 * math.pi * _uniform(g, 16)
    return (points.to(waves) @ waves + phases).sin().mul(0.6 * _normal(g, 16)).sum(1).exp()


# ── families ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def alike(name: str, n: int, d: int, reg: float, cloud: Cloud, m: int | None = None, weights: bool = False) -> Family:
    """Both clouds of one kind."""
    return Family(name, n, m or n, d, reg, cloud, cloud, weights)


LARGE = (alike("cube", 1_000_000, 3, 0.001, cube), alike("clusters", 300_000, 3, 0.0003, clusters, weights=True))
TABLE = (
    alike("cube", 10_000, 3, 0.001, cube),
    alike("cube", 20_000, 2, 0.0005, cube, m=13_000, weights=True),
    alike("clusters", 20_000, 3, 0.001, clusters, weights=True),
    Family("two shells", 20_000, 20_000, 3, 0.001, partial(shell, radius=0.2), partial(shell, radius=0.289)),
    Family("shifted cubes", 20_000, 20_000, 3, 0.001, partial(cube, side=0.3), partial(cube, side=0.3, shift=0.7), True),
    alike("cube", 50_000, 8, 0.002, cube, weights=True),
    alike("clusters", 20_000, 32, 0.005, clusters, weights=True),
    alike("cube", 20_000, 16, 0.005, cube),
    alike("cube", 10_000, 128, 0.01, cube),
    alike("cube", 5_000, 3, 0.05, cube, weights=True),
    *LARGE,
    alike("cube unscaled", 10_000, 3, 0.001, partial(cube, unscaled=True)),
    alike("cube unscaled", 1_000_000, 3, 0.001, partial(cube, unscaled=True)),
)
MANY = tuple(
    alike(name, n, d, 0.01, cloud)
    for n, d in ((10_000, 128), (50_000, 512))
    for name, cloud in (("cube", cube), ("sphere", shell))
)
OWN = (
    Family("image densities", 128**2, 128**2, 2, 0.0005, pixels, pixels, density=smooth_density),
    Family("turned Gaussians", 15_000, 15_000, 5, 0.005, gaussian, partial(gaussian, centre=0.5)),
    alike("clusters", 30_000, 3, 0.002, partial(clusters, count=25, width=0.03), m=8_000),
    Family("swiss roll and cube", 25_000, 25_000, 3, 0.002, swiss_roll, partial(cube, unscaled=True)),
    alike("rings", 40_000, 2, 0.001, rings, weights=True),
    alike("mixture", 12_000, 24, 0.02, partial(clusters, count=8, width=0.2), weights=True),
    alike("sphere", 8_000, 200, 0.05, shell),
    alike("cube", 3_000, 3, 0.002, cube, weights=True),
    alike("line", 60_000, 1, 0.0005, cube),
    Family("doubled points and shell", 10_000, 20_000, 3, 0.004, partial(twice, cube), partial(shell, radius=0.4), True),
)
