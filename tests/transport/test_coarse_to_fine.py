"""Annealing from coarse to fine: the same solution, on all points, within the layers allowed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from helpers.streams import clouds, pair, stream_of, weights
from otformer.network.features import squared_euclidean
from otformer.transport.costs import tiles as blocks
from otformer.transport.costs.clouds import Rule
from otformer.transport.costs.matrix import Dense
from otformer.transport.costs.tiles import Stream
from otformer.transport.solvers import blocks as coarse
from otformer.transport.solvers.blocks import coarse_to_fine, least_error


@pytest.mark.slow
@pytest.mark.parametrize(("d", "thinned"), [(1, True), (2, True), (3, True), (5, False)])
def test_coarse_to_fine_ends_on_all_points(d: int, thinned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(coarse.FEWEST_POINTS, "cpu", 16)
    monkeypatch.setattr(blocks, "POINTS_PER_BALL", 0.05)
    made: list[Any] = []
    original = Stream.thinned
    monkeypatch.setattr(Stream, "thinned", lambda self, *strides: (made.append(strides), original(self, *strides))[1])
    dense, stream = pair(squared_euclidean(*clouds(300, 217, d)))
    u, v, error, _ = least_error(coarse_to_fine(stream, 0.003, 1e-8, 4000), 1e-8)
    P = dense.plan(u, v, 0.003)
    assert error < 1e-8
    torch.testing.assert_close(P.sum(1), dense.log_a.exp(), rtol=0, atol=1e-10)
    assert float((P.sum(0) - dense.log_b.exp()).abs().sum()) < 1.1e-8
    assert any(strides != (1, 1) for strides in made) == thinned


def test_coarse_to_fine_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(coarse.FEWEST_POINTS, "cpu", 64)
    monkeypatch.setattr(blocks, "POINTS_PER_BALL", 0.3)
    dense, stream = pair(squared_euclidean(*clouds(1000, 1000, 2)), torch.float32)
    u, v, *_ = least_error(coarse_to_fine(stream, 0.003, 5e-5, 400), 5e-5)
    P = dense.plan(u.double(), v.double(), 0.003)
    assert float((P.sum(1) - dense.log_a.exp()).abs().sum()) < 1e-5
    assert float((P.sum(0) - dense.log_b.exp()).abs().sum()) < 6e-5


def test_a_side_that_is_not_thinned_stays_in_the_order_given() -> None:
    """Potentials of all points are those of a stage that left them all: means of rows, columns as they are."""
    x, y = clouds(60, 45, 2)
    order, b = torch.randperm(45, generator=torch.Generator().manual_seed(4)), weights(45, 2)
    found = []
    for stream in (stream_of(x, y, b=b).thinned(3, 1), stream_of(x, y[order], b=b[order]).thinned(3, 1)):
        found.append(stream.log_ratio(0 * stream.log_a, 0 * stream.log_b, 0.1, rows=False))
    assert len(stream.log_a) == 20
    torch.testing.assert_close(stream.log_b.exp(), b[order])
    torch.testing.assert_close(found[1], found[0][order])


@pytest.mark.parametrize("mass", [1.0, 1000.0])
def test_far_clouds_keep_the_digits_of_float32(mass: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coarse stage between clouds 140 apart hands over v ≈ 140: with that constant the next stages take 370 layers."""
    monkeypatch.setitem(coarse.FEWEST_POINTS, "cpu", 64)
    monkeypatch.setattr(blocks, "POINTS_PER_BALL", 0.3)
    x, y = (t.float() for t in clouds(800, 700, 2))
    y = y + 100
    log_a, log_b = (mass * weights(800)).log(), (mass * weights(700, 2)).log()
    stream = Stream(squared_euclidean(x, y), log_a.float(), log_b.float(), rule=Rule(root=True))
    u, v, error, depth = least_error(coarse_to_fine(stream, 0.003, 1e-3 * mass, 400), 1e-3 * mass)
    assert depth < 100
    assert error < 1e-3 * mass
    P = Dense(torch.cdist(x.double(), y.double()), log_a, log_b).plan(u.double(), v.double(), 0.003)
    assert float((P.sum(0) - log_b.exp()).abs().sum()) < 1.5e-3 * mass


def test_coarse_to_fine_uses_no_more_layers_than_allowed() -> None:
    g = torch.Generator().manual_seed(3)
    x, y = torch.rand(700, 2, generator=g, dtype=torch.float64), torch.rand(600, 2, generator=g, dtype=torch.float64)
    stream = stream_of(x, y)
    for most in (2, 3, 5, 8, 20, 50):
        *_, (_, _, _, depth) = coarse_to_fine(stream, 1e-3, 0.0, most)
        assert depth <= most


def test_an_error_that_stands_still_is_no_progress():
    """In float32 an error can stay the same to the last bit; a search that has no end but its patience must end there."""
    u, v = torch.zeros(2), torch.zeros(3)
    still = ((u, v, 0.25, 2 * k) for k in itertools.count(1))
    assert least_error(still, tol=1e-9, patience=10)[2:] == (0.25, 12)
