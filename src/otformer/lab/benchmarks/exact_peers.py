"""Exact transport beside other libraries: the problems, and one small adapter per peer (exact.py runs them).

The problems were written down before anything was tuned on them. Costs are squared Euclidean. An adapter is given a problem
and returns a function without arguments, which is what is timed; those that take a matrix get it for nothing, and what they
return is read as a sparse plan afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from otformer import checks
from otformer.lab.benchmarks.peers import missing
from otformer.lab.benchmarks.problems import Array, Points

ITERATIONS = 10**9  # of a network simplex: the time limit ends it, not the count


class Problem(NamedTuple):
    """Points x [n, d], y [n, d] and their weights, None where they are uniform."""

    x: Array
    y: Array
    a: Array | None = None
    b: Array | None = None

    def weights(self) -> tuple[Array, Array]:
        uniform = np.full(len(self.x), 1 / len(self.x))
        return (uniform, uniform) if self.a is None or self.b is None else (self.a, self.b)


Family = Callable[[int, np.random.Generator], Points]


def uniform(d: int) -> Family:
    """In the unit cube of d dimensions."""
    return lambda n, rng: (rng.random((n, d)), rng.random((n, d)))


def _clustered(n: int, rng: np.random.Generator) -> Points:
    """20 tight clusters → 15 others, in the unit cube: most mass goes far, and near pairs alone allow no plan."""
    sides = (rng.random((k, 3))[rng.integers(0, k, n)] + 0.02 * rng.standard_normal((n, 3)) for k in (20, 15))
    return next(sides), next(sides)


def _ring(n: int, rng: np.random.Generator) -> Points:
    """A Gaussian in the plane → a thin ring around it: prices change slowly, across all points."""
    x, angle = 0.1 * rng.standard_normal((n, 2)), 2 * np.pi * rng.random(n)
    return x, np.column_stack([np.cos(angle), np.sin(angle)]) + 0.01 * rng.standard_normal((n, 2))


def _ties(n: int, rng: np.random.Generator) -> Points:
    """Points of a grid with about n places, several of them twice: whole costs, and many optima."""
    side = max(2, round(n ** (1 / 3)))
    return rng.integers(0, side, (n, 3)).astype(float), rng.integers(0, side, (n, 3)).astype(float)


FAMILIES: dict[str, Family] = {
    "uniform-2d": uniform(2),
    "uniform-3d": uniform(3),
    "uniform-20d": uniform(20),
    "clustered": _clustered,
    "ring": _ring,
    "ties": _ties,
    "weights": uniform(3),  # with random weights
}


def make(family: str, n: int, seed: int = 0) -> Problem:
    """The problem of this family with n points per side.

    >>> p = make("weights", 5)
    >>> p.x.shape, round(float(p.a.sum()), 6)
    ((5, 3), 1.0)
    """
    checks.choice("family", family, FAMILIES)
    rng = np.random.default_rng([seed, list(FAMILIES).index(family), n])
    x, y = FAMILIES[family](n, rng)
    if family != "weights":
        return Problem(x, y)
    a, b = rng.random((2, n))
    return Problem(x, y, a / a.sum(), b / b.sum())


class Plan(NamedTuple):
    """Rows i, columns j and masses of a sparse plan, [E] each; potentials g [n] of the columns, if there are any."""

    i: Any
    j: Any
    masses: Any
    g: Any = None


def _matrix(p: Problem) -> Array:
    return cdist(p.x, p.y, "sqeuclidean")


def _otformer(points: bool, p: Problem) -> Callable[[], Plan]:
    import otformer as of

    call: Any = partial(of.solve_sample, p.x, p.y) if points else partial(of.solve, _matrix(p))

    def run() -> Plan:
        result = call(a=p.a, b=p.b, reg=0)
        i, j, masses = result.pairs
        return Plan(i, j, masses, result.potentials[1])

    return run


def _emd(p: Problem) -> Callable[[], tuple[Array, dict[str, Any]]]:
    import ot

    return partial(ot.emd, *p.weights(), _matrix(p), numItermax=ITERATIONS, log=True)


def _sparse(found: tuple[Array, dict[str, Any]]) -> Plan:
    """What `_emd` returns, a dense plan and a log."""
    G, log = found
    i, j = np.nonzero(G)
    return Plan(i, j, G[i, j], log["v"])


def _emd2_lazy(p: Problem) -> Callable[[], Plan]:
    import ot

    def run() -> Plan:
        _, log = ot.lp.emd2_lazy(p.x, p.y, *p.weights(), numItermax=ITERATIONS, log=True)
        return Plan(log["G"].row, log["G"].col, log["G"].data, log["v"])

    return run


def _assigned(solver: Callable[[], Callable[[Array], Any]], p: Problem) -> Callable[[], Plan]:
    """A function from a matrix to rows and columns, as a plan."""
    M, call, masses = _matrix(p), solver(), np.full(len(p.x), 1 / len(p.x))

    def run() -> Plan:
        i, j = call(M)
        return Plan(i, j, masses)

    return run


def _scipy() -> Callable[[Array], Any]:
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment


def _lapx() -> Callable[[Array], Any]:
    import lap

    return partial(lap.lapjvx, return_cost=False)


def _ott() -> Callable[[Array], Any]:
    import jax

    jax.config.update("jax_enable_x64", True)
    from ott.geometry import geometry
    from ott.tools import unreg

    run = jax.jit(lambda M: unreg.hungarian(geometry.Geometry(M))[1].paired_indices)
    return lambda M: np.asarray(run(M))


def _torch_linear_assignment() -> Callable[[Array], Any]:
    import torch

    solve = import_module("torch_linear_assignment").batch_linear_assignment  # on a CPU it calls scipy
    return lambda M: (np.arange(len(M)), solve(torch.from_numpy(M)[None])[0].numpy())


@dataclass(frozen=True)
class ExactPeer:
    """``assigns``: for uniform weights only. ``compiles``: the first call of a size is not like the second. ``read``: what
    the call returned as a `Plan`, not timed."""

    package: str
    prepare: Callable[[Problem], Callable[[], Any]]
    assigns: bool = False
    compiles: bool = False
    read: Callable[[Any], Plan] = lambda plan: plan

    def missing(self) -> str | None:
        """Why this peer cannot run here, or None."""
        return missing(self.package)


PEERS: dict[str, ExactPeer] = {
    "otformer": ExactPeer("numba", partial(_otformer, True), compiles=True),
    "otformer matrix": ExactPeer("numba", partial(_otformer, False), compiles=True),
    "POT emd": ExactPeer("ot", _emd, read=_sparse),
    "POT emd2_lazy": ExactPeer("ot", _emd2_lazy),
    "scipy": ExactPeer("scipy", partial(_assigned, _scipy), assigns=True),
    "lapx": ExactPeer("lap", partial(_assigned, _lapx), assigns=True),
    "OTT": ExactPeer("ott", partial(_assigned, _ott), assigns=True, compiles=True),
    "torch-linear-assignment": ExactPeer(
        "torch_linear_assignment", partial(_assigned, _torch_linear_assignment), assigns=True
    ),
}
