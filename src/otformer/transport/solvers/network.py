"""The solver that is a network of the paper: fixed weights, layer by layer, to the depth it needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from otformer.errors import ArgumentError
from otformer.network.schedule import Layer, Schedule, named
from otformer.transport.costs.kernel import Kernel
from otformer.transport.costs.matrix import Dense
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


def run(
    kernel: Kernel, layers: Iterable[Layer], start: tuple[Tensor, Tensor] | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """(u, v) before the first layer and after every layer of a network, from u = v = 0 unless told otherwise."""
    u, v = start or (torch.zeros_like(kernel.log_a), torch.zeros_like(kernel.log_b))
    yield u, v
    for layer in layers:
        new_u, new_v = u, v
        if layer.rows:
            new_u = u - layer.rows * torch.tanh(kernel.log_ratio(u, v, layer.reg, rows=True) / 2)
        if layer.columns:
            new_v = v - layer.columns * torch.tanh(kernel.log_ratio(u, v, layer.reg, rows=False) / 2)
        u, v = new_u, new_v
        yield u, v
