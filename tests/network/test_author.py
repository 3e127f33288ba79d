"""The author's own construction (his notebooks, figures 3 and 4), as options of the network, beside a plain loop of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import otformer as of
from otformer.network.schedule import Gradient

N, REG, STEP = 6, 0.1, 0.05
X = np.array([1, 2, 5, 4, 0, 3]) / 6
Y = np.arange(6.0)
PRINTED = np.array([0.02491055, 0.165084, 0.33346675, 0.4998854, 0.66825816, 0.8084133])  # his answer for X


def author(depth: int, step: float = STEP) -> of.AligningTransformer:
    return of.AligningTransformer(1, REG, depth, Gradient(step), sink="token", marginals=False, sink_value="mean")


def start(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(N), rng.random(N)


def plain_loop(u: np.ndarray, v: np.ndarray, depth: int, step: float = STEP) -> tuple[np.ndarray, np.ndarray]:
    """u and v of points and, last, of the sink, after every layer, from the description: softmax over n tokens and the sink,
    whose value is −1/n; the sink is updated like any token, and reads nothing but its own potential."""
    u, v = np.append(u, 0.0), np.append(v, 0.0)
    C = (X[:, None] - Y) ** 2
    us, vs = [u], [v]
    value = np.append(np.ones(N), -1 / N)
    for _ in range(depth):
        rows, columns = np.empty((N + 1, N + 1)), np.empty((N + 1, N + 1))
        rows[:N, :N] = np.exp((u[:N, None] + v[:N] - C) / REG - 1)
        rows[:N, N], rows[N, :N], rows[N, N] = np.exp(v[N] / REG), np.exp(u[N] / REG), 1
        columns[:N, :N] = rows[:N, :N].T
        columns[:N, N], columns[N, :N], columns[N, N] = np.exp(u[N] / REG), np.exp(v[N] / REG), 1
        u = u - step * (rows / rows.sum(1, keepdims=True)) @ value
        v = v - step * (columns / columns.sum(1, keepdims=True)) @ value
        us.append(u)
        vs.append(v)
    return np.array(us), np.array(vs)


@pytest.fixture(scope="module")
def long_run() -> tuple[of.Trace, tuple[np.ndarray, np.ndarray]]:
    u, v = start(0)
    return author(5001)(X[:, None], Y[:, None], start=(u, v)), plain_loop(u, v, 5001)


def test_every_layer_equals_the_plain_loop(long_run):
    trace, (u, v) = long_run
    ours = trace.all_potentials()
    assert ours[0].shape == (5002, N)
    assert np.abs(ours[0].numpy() - u[:, :N]).max() < 1e-12
    assert np.abs(ours[1].numpy() - v[:, :N]).max() < 1e-12
    assert np.allclose(trace.Z(-1)[-1, trace.network.registers["u"]], u[-1, N], atol=1e-12, rtol=0)


def test_his_printed_answer_is_reached_from_any_start(long_run):
    answers = [long_run[0].attention(5000, "columns").numpy() @ X]
    for seed in (1, 2, 3):
        trace = author(5000)(X[:, None], Y[:, None], start=start(seed), keep="last")
        answers.append(trace.attention(-1, "columns").numpy() @ X)
    # The rest is his: 1e-7 added to sums of about 1/216 at the read-out, and layers that are not quite at the end.
    assert max(np.abs(answer - PRINTED).max() for answer in answers) < 2.5e-5


def test_the_sink_makes_the_sums_tend_to_one_over_n_cubed(long_run):
    """Not to 1/n: the sink's own potentials tend to −2λ log n, and its weight to 1/n²."""
    trace, (u, v) = long_run
    assert np.allclose([u[-1, N], v[-1, N]], -2 * REG * np.log(N), atol=1e-9)
    assert np.allclose(trace.plan(-1).sum(0) * N**3, 1, atol=1e-4)


def test_a_frozen_sink_of_this_value_gives_sums_of_one_over_n():
    net = of.AligningTransformer(1, REG, 20_000, Gradient(4 * REG * N / (N + 1)), marginals=False, sink_value="mean")
    trace = net(X[:, None], Y[:, None] / N, keep="last")
    assert trace.converged
    assert torch.allclose(trace.plan().sum(1), torch.full((N,), 1 / N, dtype=torch.float64), atol=1e-6)
    weights = np.full(N, 1 / N)
    assert np.allclose(trace.plan(), of.solve_sample(X[:, None], Y[:, None] / N, weights, weights, reg=REG).plan, atol=1e-5)


def test_settings_survive_a_file(tmp_path):
    net = author(3)
    net.save(tmp_path / "net.safetensors")
    again = of.AligningTransformer.from_file(tmp_path / "net.safetensors")
    assert repr(again) == repr(net)
    assert "sink_value=mean" in repr(again)
    assert torch.equal(again(X[:, None], Y[:, None]).plan(), net(X[:, None], Y[:, None]).plan())


@pytest.mark.parametrize(
    ("given", "argument", "expected"),
    [
        (np.zeros(N), "start", "be a pair (u, v)"),
        ((np.zeros(N - 1), np.zeros(N)), "start: u", "have shape (6,)"),
        ((np.zeros(N), np.full(N, np.nan)), "start: v", "be finite"),
    ],
)
def test_a_start_that_is_none_is_refused(given, argument, expected):
    with pytest.raises(ValueError, match="start") as refused:
        author(2)(X[:, None], Y[:, None], start=given)
    assert argument in str(refused.value)


def test_mean_needs_a_network_without_marginals():
    net = of.AligningTransformer(1, REG, 2, sink_value="mean")
    with pytest.raises(ValueError, match="marginals=False"):
        net(X[:, None], Y[:, None])
    with pytest.raises(ValueError, match="sink_value"):
        of.AligningTransformer(1, REG, 2, sink_value="half")


def test_a_start_of_a_batch_is_that_of_each_problem():
    u, v = start(4)
    net = author(7)
    one = net(X[:, None], Y[:, None], start=(u, v)).plan()
    zero = net(X[:, None], Y[:, None]).plan()
    x, y = (np.stack([t, t])[..., None] for t in (X, Y))
    both = net(x, y, start=(np.stack([u, 0 * u]), np.stack([v, 0 * v]))).plan()
    assert torch.allclose(both, torch.stack([one, zero]), atol=1e-14)


def layer(u: np.ndarray, v: np.ndarray, C: np.ndarray, reg: float, step: float, s: float, w: float):
    """A layer with a sink of value −s and weight w in every row and column."""
    M = np.exp((u[:, None] + v - C) / reg - 1)
    return u - step * (M.sum(1) - s * w) / (M.sum(1) + w), v - step * (M.sum(0) - s * w) / (M.sum(0) + w)


def test_no_layer_takes_two_runs_apart_up_to_the_bound_and_longer_steps_do():
    """γ ≤ 4λ/(1 + s): non-expansive in the sup norm of (u, −v), on 2,000 adversarial problems; 2 % more is too much."""
    rng = np.random.default_rng(5)
    for _ in range(2000):
        n, m = rng.integers(1, 7, 2)
        reg, s, w = np.exp(rng.uniform(-4, 2)), rng.choice([1.0, 1 / n, rng.random(), 3.0]), np.exp(rng.uniform(-6, 3))
        C = rng.choice([0.1, 1.0, 30.0]) * reg * rng.random((n, m))
        near = np.log(w / m) * reg + reg  # potentials at which sums are about w, where the slope is largest
        u, v = near + reg * rng.normal(0, rng.choice([0.01, 1, 5]), n), reg * rng.normal(0, 1, m)
        du, dv = reg * rng.choice([1e-4, 1, 10]) * rng.uniform(-1, 1, n), reg * rng.choice([1e-4, 1]) * rng.uniform(-1, 1, m)
        step = 4 * reg / (1 + s)
        one, two = layer(u, v, C, reg, step, s, w), layer(u + du, v + dv, C, reg, step, s, w)
        before = max(np.abs(du).max(), np.abs(dv).max())
        after = max(np.abs(two[0] - one[0]).max(), np.abs(two[1] - one[1]).max())
        assert after <= before * (1 + 1e-9) + 1e-12 * reg
    for s in (1.0, 1 / 6):  # one pair of points, S = w: 1 − γ(1 + s)/4λ becomes negative
        C, u, v, move = np.zeros((1, 1)), np.array([0.1]), np.zeros(1), 1e-6
        one, two = (layer(u + d, v - 0 * d, C, 0.1, 1.02 * 0.4 / (1 + s), s, 1.0) for d in (0.0, move))
        both = layer(u + move, v + move, C, 0.1, 1.02 * 0.4 / (1 + s), s, 1.0)
        assert abs(both[0][0] - one[0][0]) > move * 1.02  # u and v moved together are moved too far back
        assert abs(two[0][0] - one[0][0]) < move
