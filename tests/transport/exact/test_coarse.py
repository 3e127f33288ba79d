"""Potentials from coarse to fine, on a CPU: nearly the optimal ones, where mass goes far and weights are any."""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import cdist

import otformer as of
from needs import missing

pytest.importorskip("numba", reason=missing("exact"))

from otformer.transport.costs.clouds import PLAIN, Rule, box_spread
from otformer.transport.costs.points import PointsCost
from otformer.transport.exact import find_optimum
from otformer.transport.exact.coarse import Side, from_coarse, main_axes, tree_order
from otformer.transport.exact.flow_graph import Clock


def clouds(kind, n, m, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "halos":  # clusters whose masses differ between the sides
        centre, mass = rng.random((12, 3)), rng.lognormal(0, 1, 12)
        return tuple(centre[rng.choice(12, k, p=mass / mass.sum())] + 0.01 * rng.standard_normal((k, 3)) for k in (n, m))
    if kind == "tails":
        return rng.standard_t(1.5, (n, 4)), rng.standard_t(1.5, (m, 4)) + 0.5
    if kind == "wide":
        return rng.standard_normal((n, 12)), rng.standard_normal((m, 12)) + 1
    return rng.random((n, 2)), np.repeat(rng.random((m, 1)), 2, axis=1)  # a square → its diagonal


def cost_of(x, y, rule=PLAIN):
    x, y = torch.tensor(x), torch.tensor(y)
    return PointsCost(x, y, x[:, 0] * 0, y[:, 0] * 0, rule, box_spread(x, y, rule))


def bound(cost, a, b, g):
    return a @ cost.least(g, 1, rows=True)[0][:, 0] + b @ g


@pytest.mark.parametrize("kind", ["halos", "tails", "wide", "square"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bound_is_near_the_value(kind, weighted):
    n, m = (1500, 1500) if not weighted else (1500, 1100)
    x, y = clouds(kind, n, m)
    rng = np.random.default_rng(1)
    a, b = (np.full(k, 1 / k) if not weighted else rng.dirichlet(np.ones(k)) for k in (n, m))
    value = float(of.solve_sample(x, y, a, b, reg=0).value)
    cost = cost_of(x, y)
    found = bound(cost, a, b, from_coarse(cost, torch.tensor(a), torch.tensor(b), Clock(None)))
    assert found <= value * (1 + 1e-9)
    assert value - found < (0.002 if not weighted else 0.1) * value
    assert value - found < 0.2 * (value - bound(cost, a, b, np.zeros(m)))


@pytest.mark.parametrize("kind", ["halos", "tails", "wide", "square"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_the_same_optimum_with_fewer_rounds(kind, metric, monkeypatch):
    x, y = clouds(kind, 1200, 1200, seed=2)
    plain = of.solve_sample(x, y, reg=0, metric=metric)
    monkeypatch.setattr(find_optimum, "SWEPT", 0)
    found = of.solve_sample(x, y, reg=0, metric=metric)
    assert found.converged
    assert float(found.value) == pytest.approx(float(plain.value), rel=1e-10)
    assert found.rounds <= max(plain.rounds, 16)


def test_more_particles_than_places_with_mass(monkeypatch):
    monkeypatch.setattr(find_optimum, "SWEPT", 0)
    x = np.stack(np.meshgrid(np.arange(25), np.arange(25)), -1).reshape(-1, 2) / 25
    a, b = np.random.default_rng(0).dirichlet(np.full(625, 0.05), 2) + 1e-9  # most of the mass on a few pixels
    a, b = a / a.sum(), b / b.sum()
    found = of.solve_sample(x, x, a, b, reg=0)
    assert found.converged
    assert float(found.value) == pytest.approx(ot.emd2(a, b, cdist(x, x, "sqeuclidean"), numItermax=10**7), rel=1e-9)


def test_time_is_kept(monkeypatch):
    monkeypatch.setattr(find_optimum, "SWEPT", 0)
    x, y = clouds("halos", 3000, 3000)
    with pytest.warns(RuntimeWarning, match="max_time"):
        r = of.solve_sample(x, y, reg=0, max_time=1e-3)
    assert not r.converged
    assert r.bound <= r.value


def test_labels_have_none_of_it(monkeypatch):
    monkeypatch.setattr(find_optimum, "SWEPT", 0)
    x, y = clouds("square", 700, 700)
    labels = np.arange(700) % 2
    assert of.solve_sample(x, y, reg=0, labels=(labels, labels)).converged


@pytest.mark.parametrize("many", [1, 7, 50])
def test_particles_keep_mass_and_mean(many):
    rng = np.random.default_rng(0)
    side = Side.build(torch.tensor(rng.random((50, 3))), torch.tensor(rng.dirichlet(np.ones(50))), None)
    torch.testing.assert_close(side.particles(many).mean(0), side.weights @ side.points)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64])
def test_the_tree_is_a_permutation_of_near_neighbours(n):
    points = torch.tensor(np.random.default_rng(n).random((n, 3)))
    order = tree_order(points)
    assert sorted(order.tolist()) == list(range(n))
    assert tree_order(torch.zeros(n, 2)).tolist() == list(range(n))  # all in one place


def test_main_axes_find_where_points_lie():
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.standard_normal((40, 8)))[0]
    points = torch.tensor(10 * rng.standard_normal((500, 8)) @ plane.T + 0.01 * rng.standard_normal((500, 40)))
    axes = main_axes(points).numpy()
    assert np.linalg.norm(plane.T @ axes) ** 2 == pytest.approx(8, rel=1e-3)


def test_plain_distances():
    x, y = clouds("halos", 600, 600)
    cost = cost_of(x, y, Rule(root=True))
    w = torch.full((600,), 1 / 600, dtype=torch.float64)
    value = float(of.solve_sample(x, y, reg=0, metric="euclidean").value)
    assert bound(cost, w.numpy(), w.numpy(), from_coarse(cost, w, w, Clock(None))) > 0.9 * value
