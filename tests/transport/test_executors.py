"""Every executor against the literal one, the matrices of the transformer: the same u and v at every layer."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import otformer as of
from helpers.streams import stream_of
from otformer.network.schedule import SCHEDULES, named
from otformer.transport.costs.absorbed import Absorbed
from otformer.transport.costs.distances import squared_distances
from otformer.transport.costs.matrix import Dense
from otformer.transport.costs.ranks import Sharded
from otformer.transport.solvers.network import run

DEPTH = 60


def points(seed: int, n: int, m: int, d: int):
    g = torch.Generator().manual_seed(seed)
    x, y, a, b = (torch.rand(*size, generator=g, dtype=torch.float64) for size in ((n, d), (m, d), (n,), (m,)))
    a, b = a + 0.1, b + 0.1
    return x, y, a / a.sum(), b / b.sum()


def _matrix(executor):
    return lambda x, y, a, b: executor(squared_distances(x, y), a.log(), b.log())


EXECUTORS = {
    "dense": _matrix(Dense),
    "absorbed": _matrix(Absorbed),
    "stream": lambda x, y, a, b: stream_of(x, y, a, b),
    "stream, one entry at a time": lambda x, y, a, b: stream_of(x, y, a, b, block=1),
    "sharded": lambda x, y, a, b: Sharded(Dense(squared_distances(x, y), a.log(), b.log())),
    "stock modules": None,
}


@pytest.fixture(autouse=True)
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("name", EXECUTORS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("n", "m", "d", "reg"), [(7, 7, 1, 0.05), (5, 9, 3, 0.1), (12, 4, 2, 1.0)])
def test_equal_to_literal(name, schedule, n, m, d, reg):
    x, y, a, b = points(n + m, n, m, d)
    net = of.AligningTransformer(d, reg, DEPTH, schedule=schedule)
    literal = net(x, y, a, b, warn=False)
    if EXECUTORS[name] is None:
        trace = of.StockTransformer(net)(x, y, a, b)
        states = [trace.potentials(layer) for layer in range(DEPTH + 1)]
    else:
        layers = named(schedule).layers(reg, DEPTH)
        states = list(run(EXECUTORS[name](x, y, a, b), layers, (torch.zeros_like(a), torch.zeros_like(b))))
    for layer, (u, v) in enumerate(states):
        want_u, want_v = literal.potentials(layer)
        torch.testing.assert_close(u, want_u, rtol=0, atol=1e-11)
        torch.testing.assert_close(v, want_v, rtol=0, atol=1e-11)
