"""The solver that is a network of the paper: fixed weights, layer by layer, to the depth it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from otformer.errors import ArgumentError
from otformer.network.schedule import Layer, Schedule, named
from otformer.transport.costs.dense import Dense, run
from otformer.transport.solvers.blocks import State, least_error
from otformer.transport.types import Goal, Pair, Problem, Solved

LAYERS_PER_LOOK = 10  # layers from one look at the marginal error to the next
DEEPEST_NETWORK = 10**6  # which are laid out before the first of them runs


@dataclass(frozen=True)
class Network:
    """The layers of `AligningTransformer` with a given schedule (network/schedule.py), on the cost matrix.

    Parameters
    ----------
    schedule : str or Schedule
        ``"paper"``, ``"gradient"``, ``"alternating"``, ``"relaxed"``, ``"annealed"``, or one of your own.

    >>> import otformer as of
    >>> of.solve([[0.0, 1.0], [1.0, 0.0]], reg=0.5, solver=of.Network("relaxed")).method
    'the relaxed schedule'
    """

    schedule: str | Schedule = "relaxed"

    def __post_init__(self) -> None:
        named(self.schedule)

    def run(self, problem: Problem, goal: Goal) -> Solved:
        if goal.max_depth > DEEPEST_NETWORK:
            raise ArgumentError("max_depth", f"be at most {DEEPEST_NETWORK:,} for fixed layers", f"{goal.max_depth:,}")
        problem, schedule = problem.as_tensors(), named(self.schedule)
        dense = Dense(problem.cost.matrix("Network"), problem.a.log(), problem.b.log())
        layers = schedule.layers(problem.entropy, goal.max_depth)
        u, v, _, depth = least_error(_states(dense, layers, problem.start), goal.tol)
        return Solved(u, v, depth, f"the {type(schedule).__name__.lower()} schedule")


def _states(dense: Dense, layers: tuple[Layer, ...], start: Pair | None) -> Iterator[State]:
    """Yield iterates with the error of their plan at the network's last λ, every LAYERS_PER_LOOK layers and after the last.

    While λ is still falling that plan can be too large for a float: then the error is infinite.
    """
    a, b, reg = dense.log_a.exp(), dense.log_b.exp(), layers[-1].reg
    for depth, (u, v) in enumerate(run(dense, layers, start)):
        if depth and (depth % LAYERS_PER_LOOK == 0 or depth == len(layers)):
            P = dense.plan(u, v, reg)
            error = float((P.sum(1) - a).abs().sum() + (P.sum(0) - b).abs().sum())
            yield u, v, error if math.isfinite(error) else math.inf, depth
