"""Exact transport beside other libraries: one small adapter per peer (exact.py runs them on exact_families.py).

An adapter is given a problem and returns a function without arguments, which is what is timed; those that take a matrix get
it for nothing, and what they return is read as a sparse plan afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from otformer.lab.benchmarks.exact_families import (
    make as make,
)  # with Problem and uniform: scripts of bench/ have them from here
from otformer.lab.benchmarks.exact_families import uniform as uniform
from otformer.lab.benchmarks.exact_problem import Problem as Problem
from otformer.lab.benchmarks.peers import missing
from otformer.lab.benchmarks.problems import Array

ITERATIONS = 10**9  # of a network simplex: the time limit ends it, not the count


class Plan(NamedTuple):
    """Rows i, columns j and masses of a sparse plan, [E] each; potentials g [n] of the columns, if there are any."""

    i: Any
    j: Any
    masses: Any
    g: Any = None


def _otformer(points: bool, p: Problem) -> Callable[[], Plan]:
    """From the points, where the problem has some and they are asked for, else from the matrix."""
    import otformer as of

    call: Any = (
        partial(of.solve_sample, p.x, p.y, metric=p.metric) if points and p.M is None else partial(of.solve, p.rows())
    )

    def run() -> Plan:
        result = call(a=p.a, b=p.b, reg=0)
        i, j, masses = result.pairs
        return Plan(i, j, masses, result.potentials[1])

    return run


def _emd(p: Problem) -> Callable[[], tuple[Array, dict[str, Any]]]:
    import ot

    return partial(ot.emd, *p.weights(), p.rows(), numItermax=ITERATIONS, log=True)


def _sparse(found: tuple[Array, dict[str, Any]]) -> Plan:
    """What `_emd` returns, a dense plan and a log."""
    G, log = found
    i, j = np.nonzero(G)
    return Plan(i, j, G[i, j], log["v"])


def _emd2_lazy(p: Problem) -> Callable[[], Plan]:
    import ot

    def run() -> Plan:
        _, log = ot.lp.emd2_lazy(p.x, p.y, *p.weights(), metric=p.metric, numItermax=ITERATIONS, log=True)
        return Plan(log["G"].row, log["G"].col, log["G"].data, log["v"])

    return run


def _assigned(solver: Callable[[], Callable[[Array], Any]], p: Problem) -> Callable[[], Plan]:
    """A function from a matrix to rows and columns, as a plan."""
    M, call, masses = p.rows(), solver(), p.weights()[0]

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
    """``takes``: whether it solves this problem at all. ``compiles``: the first call of a size is not like the second.
    ``read``: what the call returned as a `Plan`, not timed."""

    package: str
    prepare: Callable[[Problem], Callable[[], Any]]
    takes: Callable[[Problem], bool] = lambda p: True
    compiles: bool = False
    read: Callable[[Any], Plan] = lambda plan: plan

    def missing(self) -> str | None:
        """Why this peer cannot run here, or None."""
        return missing(self.package)


def _assigns(p: Problem) -> bool:
    return p.assigns


def _of_points(p: Problem) -> bool:
    return p.M is None


PEERS: dict[str, ExactPeer] = {
    "otformer": ExactPeer("numba", partial(_otformer, True), compiles=True),
    "otformer matrix": ExactPeer("numba", partial(_otformer, False), _of_points, compiles=True),
    "POT emd": ExactPeer("ot", _emd, read=_sparse),
    "POT emd2_lazy": ExactPeer("ot", _emd2_lazy, lambda p: p.M is None and p.metric != "cosine"),
    "scipy": ExactPeer("scipy", partial(_assigned, _scipy), takes=_assigns),
    "lapx": ExactPeer("lap", partial(_assigned, _lapx), takes=_assigns),
    "OTT": ExactPeer("ott", partial(_assigned, _ott), takes=_assigns, compiles=True),
    "torch-linear-assignment": ExactPeer(
        "torch_linear_assignment", partial(_assigned, _torch_linear_assignment), takes=_assigns
    ),
}
