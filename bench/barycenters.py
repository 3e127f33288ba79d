"""Free-support barycenters beside POT's, on POT's two examples: the objective that both minimise, from the same start.

    python bench/barycenters.py [FOLDER]

FOLDER is POT's folder ``data``, for the pictures of its exact example; without it a cross and a ring take their place.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
import ot

import otformer as of

Array = np.ndarray


def shapes(folder: Path | None) -> tuple[str, list[Array]]:
    """The clouds of POT's exact example: dark pixels of two pictures."""
    if folder is None:
        grid = np.stack(np.meshgrid(np.arange(32), np.arange(32)), -1).reshape(-1, 2) - 15.5
        cross = grid[(abs(grid) < 4).any(1)]
        radius = np.linalg.norm(grid, axis=1)
        return "a cross and a ring", [cross, grid[(radius > 9) & (radius < 15)] + [80, 0]]
    import matplotlib.pyplot as plt

    cross, duck = (plt.imread(folder / f"{name}.png").astype(float)[::4, ::4, 2] for name in ("redcross", "duck"))
    X, Y = np.meshgrid(np.arange(len(duck)), np.arange(len(duck)))
    first = np.stack([X[cross == 0], Y[cross == 0]], 1) * 1.0
    return "red cross and duck", [first, np.stack([X[duck == 0] + 80, -Y[duck == 0] + 32], 1) * 1.0]


def samples(rng: np.random.Generator) -> list[Array]:
    """The four clouds of POT's entropic example: normal, square, circle, correlated."""
    side, ones = np.linspace(-1, 1, 50), np.ones(50)
    square = 2 * np.concatenate([np.stack(s, 1) for s in ((-ones, side), (side, ones), (ones, -side), (-side, -ones))])
    circle = rng.normal(size=(200, 2))
    circle *= 2 / np.linalg.norm(circle, axis=1)[:, None]
    correlated = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=200)
    return [rng.normal(size=(200, 2)), square, circle, correlated]


def objective(x: Array, clouds: list[Array], weights: Array, reg: float) -> float:
    """Σ_k w_k OT(x, y_k) as POT computes it if exact, and by `solve_sample` with entropy."""
    if reg:
        values = [of.solve_sample(x, y, reg=reg, tol=1e-9).value for y in clouds]
    else:
        values = [ot.emd2([], [], ot.dist(x, y), numItermax=10**6) for y in clouds]
    return float(weights @ np.array(values))


def compare(name: str, clouds: list[Array], weights: Array, reg: float, start: Array, **limits: int) -> bool:
    """Print both objectives and times; return whether ours is equal or lower."""
    uniform = [ot.unif(len(y)) for y in clouds]
    began = time.perf_counter()
    if reg:
        theirs = ot.bregman.free_support_sinkhorn_barycenter(clouds, uniform, start, reg, weights=weights, **limits)
    else:
        theirs = ot.lp.free_support_barycenter(clouds, uniform, start, weights=weights)
    between = time.perf_counter()
    ours = of.barycenter(clouds, weights, reg, start=start)
    done = time.perf_counter()
    free = of.barycenter(clouds, weights, reg, n=len(start))
    value = objective(theirs, clouds, weights, reg)
    mine, own = (objective(found.points, clouds, weights, reg) for found in (ours, free))
    fine = mine <= value + 1e-6 * abs(value)
    print(
        f"{name:34} {reg:5.2f}  {value:14.7f} {between - began:7.2f}  {mine:14.7f} {done - between:7.2f}"
        f"  {'yes' if ours.converged else 'no':9}  {own:14.7f}  {'equal or lower' if fine else 'HIGHER'}"
    )
    return fine


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    rng = np.random.default_rng(0)
    of.barycenter([[[0.0]], [[1.0]]])  # loads the solvers
    print(f"{'clouds':34} {'λ':>5}  {'POT':>14} {'s':>7}  {'ours, its start':>14} {'s':>6}  converged  {'our start':>14}")
    name, clouds = shapes(folder)
    good = [compare(name, clouds, np.ones(2) / 2, 0.0, rng.normal(size=(200, 2)))]
    four = samples(rng)
    limits = {"numItermax": 20, "numInnerItermax": 50}  # POT's example has these
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # POT's, at these limits
        for first, second in ((0, 1), (0, 2), (2, 3), (1, 3)):
            weights, pair = np.array([1 / 3, 2 / 3]), [four[first], four[second]]
            for reg in (0.0, 0.01):
                good.append(
                    compare(f"samples {first + 1} and {second + 1}", pair, weights, reg, rng.normal(size=(200, 2)), **limits)
                )
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
