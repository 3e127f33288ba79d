"""What the schedules promise: depth, exact sorting, exact assignment, the same layers in every executor."""

import itertools
import math

import pytest
import torch

import otformer as of
from oracles import points
from otformer.network.schedule import SCHEDULES, named
from otformer.theory.rates import second_singular_value
from otformer.transport.costs.distances import squared_distances
from otformer.transport.costs.matrix import Dense
from otformer.transport.reference import assignment, plan, sinkhorn_half_steps
from otformer.transport.solvers.network import run


def dense(C):
    return Dense(C, torch.zeros_like(C[..., 0]), torch.zeros_like(C[..., 0, :]))


@pytest.mark.parametrize("name", SCHEDULES)
def test_dense_gives_the_potentials_of_the_literal_network(name):
    x, y = points(0, (7, 2), (7, 2))
    depth = 75
    trace = of.AligningTransformer(2, 0.3, depth, schedule=name)(x, y, warn=False)
    for layer, (u, v) in enumerate(run(dense(squared_distances(x, y)), named(name).layers(0.3, depth))):
        got_u, got_v = trace.potentials(layer)
        torch.testing.assert_close(got_u, u, rtol=0, atol=1e-13)
        torch.testing.assert_close(got_v, v, rtol=0, atol=1e-13)


def mean_error(C, u, v, reg):
    P = plan(C, u, v, reg)
    return float(((P.sum(0) - 1).abs().mean() + (P.sum(1) - 1).abs().mean()) / 2)


def layers_to(C, reg, iterates, tol=1e-6):
    return next(k for k, (u, v) in enumerate(iterates) if mean_error(C, u, v, reg) < tol)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 1002, 1005])
def test_relaxed_layers_need_a_sixth_of_sinkhorns_half_steps(seed):
    C = squared_distances(*points(seed, (128, 3), (128, 3)))
    reg = 0.005
    half_steps = layers_to(C, reg, sinkhorn_half_steps(C, reg))
    *_, (u, v) = run(dense(C), of.Relaxed(1.9).layers(reg, 3000))
    omega = of.best_omega(second_singular_value(plan(C, u, v, reg)))
    assert layers_to(C, reg, run(dense(C), of.Relaxed(omega).layers(reg, 3000))) <= half_steps / 6
    # The frozen network with climbing ω has not seen the problem; its ω stops at 1.8.
    assert layers_to(C, reg, run(dense(C), of.Relaxed().layers(reg, 3000))) <= half_steps / 4


@pytest.mark.parametrize("n", [16, 64, 128])
def test_relaxed_layers_never_cost_much_on_easy_problems(n):
    C = squared_distances(*points(n, (n, 3), (n, 3)))
    half_steps = layers_to(C, 0.1, sinkhorn_half_steps(C, 0.1))
    by_name = layers_to(C, 0.1, run(dense(C), of.Relaxed().layers(0.1, 2000)))
    *_, (u, v) = run(dense(C), of.Relaxed().layers(0.1, 500))
    omega = of.best_omega(second_singular_value(plan(C, u, v, 0.1)))
    by_omega = layers_to(C, 0.1, run(dense(C), of.Relaxed(omega).layers(0.1, 2000)))
    assert by_name <= 1.3 * half_steps
    assert by_omega <= 1.3 * half_steps


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "count"), [(2, 100), (3, 100), (5, 100), (10, 100), (50, 20), (200, 2)])
def test_one_frozen_network_of_288_layers_keeps_permutations_of_the_grid_in_order(n, count, dtype):
    """Each number equals its target, so the arg-max of layer 0 is right already: the layers must find it again, no more."""
    g = torch.Generator().manual_seed(n)
    ranks = torch.stack([torch.randperm(n, generator=g) for _ in range(count)])
    x = ((ranks + 1) / n).to(dtype)[..., None]
    y = ((torch.arange(n) + 1) / n).to(dtype)[:, None].expand(count, n, 1)
    net = of.AligningTransformer(1, reg=1e-6, depth=288, schedule="annealed")
    trace = net(x, y, keep=[0], warn=False)  # the order is right before the marginals are
    assert torch.equal(trace.attention(0).argmax(-1), ranks)
    assert torch.equal(trace.attention().argmax(-1), ranks)
    assert torch.equal(trace.attention(head="columns").argmax(-1), ranks.argsort(-1))


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 5, 20])
def test_one_frozen_network_of_700_layers_finds_the_exact_assignment(d):
    layers = of.Annealed(omega=1.8).layers(reg=1e-5, depth=700)
    for seed in range(4):
        C = squared_distances(*points(100 * d + seed, (100, d), (100, d)))
        *_, (u, v) = run(dense(C), layers)
        assert torch.equal((u[:, None] + v - C).argmax(1), assignment(C))


def test_layers_do_not_depend_on_the_input_and_depth_is_exact():
    for name in SCHEDULES:
        for depth in (1, 2, 3, 71, 72, 73, 500):
            assert len(named(name).layers(0.01, depth)) == depth


def test_annealing_falls_to_the_networks_own_lambda_and_never_below():
    regs = [layer.reg for layer in of.Annealed(start=1.0, stages=8).layers(0.001, 64)]
    assert regs[0] == 1.0
    assert regs[-1] == 0.001
    assert all(later <= earlier for earlier, later in itertools.pairwise(regs))
    assert {layer.reg for layer in of.Annealed(start=0.5).layers(2.0, 10)} == {2.0}


def test_the_papers_step_is_its_formula():
    step = of.Paper(n=4, radius=0.3).layers(0.2, 1)[0].rows
    assert math.isclose(step, 1 / (6 * math.exp(2 * 0.3 / 0.2)))


def test_best_omega_minimises_the_sor_radius():
    from otformer.theory.rates import relaxed_rate

    for sigma in (0.3, 0.8, 0.99):
        best = of.best_omega(sigma)
        grid = [1 + k / 1000 for k in range(999)]
        assert abs(min(grid, key=lambda w: relaxed_rate(w, sigma)) - best) < 2e-3
    with pytest.raises(ValueError, match="sigma must be in"):
        of.best_omega(1.0)
