"""Problems of bench/exact_gpu.py that are hard for exact transport, written down before anything was tuned on them.

Each is a function of the number of points and of a generator; costs are squared Euclidean. ``TARGETS`` are the sizes, and
the seconds on one H200 that were set as the aim (issue 28), not limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from otformer.lab.benchmarks.exact_peers import Problem

Array = np.ndarray
HELD, STEP = 2**28, 2**16  # pairs looked at at once, and pairs of a plan


def halos(n: int, rng: np.random.Generator) -> Problem:
    """60 clusters of unequal mass and size in the unit cube, both clouds drawn afresh: masses differ between the sides."""
    centre, mass, size = rng.random((60, 3)), rng.lognormal(0.0, 1.0, 60), rng.uniform(0.005, 0.05, 60)
    sides = (rng.choice(60, n, p=mass / mass.sum()) for _ in range(2))
    x, y = (centre[k] + size[k, None] * rng.standard_normal((n, 3)) for k in sides)
    return Problem(x, y)


def unequal_clusters(n: int, rng: np.random.Generator) -> Problem:
    """20 tight clusters → 15 others elsewhere, masses unequal on both sides: most mass goes far."""
    sides = []
    for k in (20, 15):
        mass = rng.lognormal(0.0, 1.0, k)
        sides.append(rng.random((k, 3))[rng.choice(k, n, p=mass / mass.sum())] + 0.02 * rng.standard_normal((n, 3)))
    return Problem(*sides)


def heavy_tails(d: int) -> Callable[[int, np.random.Generator], Problem]:
    """Student's t with 1.5 degrees of freedom: some points lie thousands of times as far out as most."""
    return lambda n, rng: Problem(rng.standard_t(1.5, (n, d)), rng.standard_t(1.5, (n, d)) + 0.5)


def heavy_tails_weighted(n: int, rng: np.random.Generator) -> Problem:
    """The same in 6-D, 5 rows for 3 columns, with random weights."""
    m = max(2, n * 3 // 5)
    a, b = rng.exponential(size=n), rng.exponential(size=m)
    return Problem(rng.standard_t(1.5, (n, 6)), rng.standard_t(1.5, (m, 6)) + 0.5, a / a.sum(), b / b.sum())


def spiral(n: int, rng: np.random.Generator) -> Problem:
    """A spiral in the plane → a square: prices change along the whole curve."""
    t = np.sqrt(rng.random(n)) * 6 * np.pi
    x = np.column_stack([t * np.cos(t), t * np.sin(t)]) / (12 * np.pi) + 0.5
    return Problem(x + 0.005 * rng.standard_normal((n, 2)), rng.random((n, 2)))


def densities(n: int, rng: np.random.Generator) -> Problem:
    """Two images of √n × √n pixels, smooth blobs on a small background: weights on the same grid."""
    side = max(4, round(n**0.5))
    axis = (np.arange(side) + 0.5) / side
    places = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)

    def image() -> Array:
        w = np.full(len(places), 0.05)
        for _ in range(6):
            centre, width = rng.random(2), rng.uniform(0.03, 0.2)
            w += rng.random() * np.exp(-((places - centre) ** 2).sum(1) / (2 * width**2))
        return w / w.sum()

    return Problem(places, places, image(), image())


def embeddings(n: int, rng: np.random.Generator) -> Problem:
    """Unit vectors in 2,048-D near a 64-dimensional plane, in 100 clusters whose masses differ between the sides."""
    d, inner = 2048, 64
    basis, centre = rng.standard_normal((inner, d)) / d**0.5, 1.5 * rng.standard_normal((100, inner))

    def side() -> Array:
        mass = rng.lognormal(0.0, 0.5, 100)
        code = centre[rng.choice(100, n, p=mass / mass.sum())] + rng.standard_normal((n, inner))
        points = code @ basis + 0.02 * rng.standard_normal((n, d))
        return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))

    return Problem(side(), side())


class Hard(NamedTuple):
    """A family, the number of points (rows), and the aim in seconds."""

    draw: Callable[[int, np.random.Generator], Problem]
    n: int
    aim: float


TARGETS: dict[str, Hard] = {
    "halos": Hard(halos, 60_000, 20),
    "tails-weighted": Hard(heavy_tails_weighted, 20_000, 20),
    "tails": Hard(heavy_tails(5), 30_000, 20),
    "spiral": Hard(spiral, 65_536, 5),
    "clusters-unequal": Hard(unequal_clusters, 262_144, 60),
    "density-256": Hard(densities, 256**2, 10),
    "density-512": Hard(densities, 512**2, 120),
    "embeddings": Hard(embeddings, 65_536, 60),
}


def drawn(name: str, n: int) -> Problem:
    """Draw the problem of this name with n rows; the same every time."""
    return TARGETS[name].draw(n, np.random.default_rng([28, list(TARGETS).index(name), n]))


def certificate(p: Problem, result: Any, device: str) -> dict[str, float]:
    """What the plan and the potentials of a result prove, recomputed here in float64 from the points, by blocks.

    ``checked``: (value − Σ a f − Σ b g − the most that any pair is undercut by) / value, all from the pairs of the plan and
    from f and g; ``marginals``: the L1 error of the plan's sums. Nothing of the library's own gap enters.
    """
    x, y = (torch.from_numpy(t).to(device) for t in (p.x, p.y))
    a, b = (torch.from_numpy(w).to(device) for w in p.weights())
    f, g = (torch.as_tensor(t).to(device).double() for t in result.potentials)
    i, j, masses = (torch.as_tensor(t).to(device) for t in result.pairs)
    apart = torch.cat([(x[q] - y[r]).square_().sum(1) for q, r in zip(i.split(STEP), j.split(STEP), strict=True)])
    value = float((masses * apart).sum())
    rows, columns = torch.zeros_like(a).index_add_(0, i, masses), torch.zeros_like(b).index_add_(0, j, masses)
    low = min(
        float(_slack(x, y, f, g, some).min()) for some in torch.arange(len(x), device=device).split(max(1, HELD // len(y)))
    )
    bound = float(a @ f + b @ g) + min(0.0, low)
    error = float((rows - a).abs().sum() + (columns - b).abs().sum())
    return {"checked": (value - bound) / abs(value), "marginals": error}


def _slack(x: torch.Tensor, y: torch.Tensor, f: torch.Tensor, g: torch.Tensor, some: torch.Tensor) -> torch.Tensor:
    """c_ij − f_i − g_j of some rows: by differences, or in many dimensions and for 10¹¹ pairs by products."""
    first, last = int(some[0]), int(some[-1]) + 1
    own = x[first:last]
    if x.shape[1] > 8 or len(x) * len(y) > 2e11:
        return torch.addmm((y * y).sum(1) - g, own, y.mT, alpha=-2).add_(((own * own).sum(1) - f[first:last])[:, None])
    slack = -(f[first:last, None] + g)
    for k in range(x.shape[1]):
        slack += (own[:, k, None] - y[:, k]).square_()
    return slack
