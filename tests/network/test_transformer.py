"""The aligning transformer against gradient descent, POT and its own solo runs."""

import itertools
import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import otformer as of
from oracles import points, pot_plan, squared_cost
from otformer.network.registers import Registers
from otformer.network.weights import HEADS, head
from otformer.transport.reference import gradient_descent


@pytest.mark.slow
@pytest.mark.parametrize(("d", "reg"), list(itertools.product((1, 2, 5), (0.05, 0.1, 1.0))))
def test_every_layer_is_gradient_descent_for_every_n_with_one_state_dict(d, reg):
    net = of.AligningTransformer(d, reg, depth=1000)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    for n in (1, 2, 3, 8, 33):
        x, y = points(n, (n, d), (n, d))
        expected = zip(*itertools.islice(gradient_descent(squared_cost(x, y), reg, step=reg), 1001), strict=True)
        for got, wanted in zip(net(x, y, warn=False).all_potentials(), expected, strict=True):
            assert (got - torch.stack(wanted)).abs().max() < 1e-12
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())


def test_paper_layout_without_marginal_registers_gives_the_same():
    x, y = points(0, (5, 2), (5, 2))
    paper = of.AligningTransformer(2, 0.1, 50, marginals=False)
    assert paper.registers.width == 2 * 2 + 9
    assert paper(x, y).Z(0).shape == (6, 13)
    wide = of.AligningTransformer(2, 0.1, 50)
    torch.testing.assert_close(paper(x, y).plan(), wide(x, y).plan(), rtol=0, atol=1e-14)


def test_only_u_and_v_are_written_and_Z_is_what_the_blocks_make():
    x, y = points(1, (4, 3), (4, 3))
    net = of.AligningTransformer(3, 0.2, 20)
    trace = net(x, y, warn=False)
    Z = trace.prompt.Z
    for layer in range(20):
        Z = net.block(Z, layer)
    torch.testing.assert_close(trace.Z(20), Z[0], rtol=0, atol=0)
    changed = (trace.Z(20) != trace.Z(0)).any(0).nonzero()[:, 0].tolist()
    assert changed == [net.registers.column("u"), net.registers.column("v")]


@pytest.mark.parametrize("name", HEADS)
def test_the_networks_queries_and_keys_give_the_logits_of_the_formula(name):
    r = Registers(2)
    x, y = points(2, (3, 2), (3, 2))
    u, v = points(3, (3,), (3,))
    net = of.AligningTransformer(2, 0.3, 1)
    Z = net.prompt(x, y).Z
    Z[0, :3, r.column("u")], Z[0, :3, r.column("v")] = u, v
    expected = (u[:, None] + v[None, :] - squared_cost(x, y)) / 0.3 - 1
    for got in (Z[0] @ head(name, 0.3, r).bilinear(r) @ Z[0].T, net.logits(Z, 0)[0, HEADS.index(name)]):
        torch.testing.assert_close(got[:3, :3], expected if name == "rows" else expected.T, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m", "weighted"), [(6, 6, False), (6, 6, True), (4, 9, True), (9, 4, False), (1, 5, True)])
def test_attention_and_plan_equal_POT_at_convergence(n, m, weighted):
    x, y = points(10 * n + m, (n, 2), (m, 2))
    a = b = None
    wa, wb = torch.full((n,), 1.0 / n, dtype=torch.float64), torch.full((m,), 1.0 / m, dtype=torch.float64)
    if weighted:
        wa, wb = (w / w.sum() for w in points(n, (n,), (m,)))
        a, b = wa, wb
    trace = of.AligningTransformer(2, 0.1, 4000)(x, y, a, b, keep="last")
    expected = pot_plan(squared_cost(x, y), wa, wb, 0.1)
    if a is None:
        expected = expected * n  # the paper's convention: mass n
    assert (trace.plan() - expected).abs().max() < 1e-10
    assert (trace.attention() - expected / expected.sum(1, keepdim=True)).abs().max() < 1e-10
    assert (trace.attention(head="columns") - (expected / expected.sum(0)).T).abs().max() < 1e-10
    assert trace.marginal_error < 1e-9


@pytest.mark.slow
def test_a_ragged_batch_equals_solo_runs():
    net = of.AligningTransformer(2, 0.1, 300)
    sizes = [(3, 5), (7, 7), (1, 2), (6, 4)]
    xs = [points(k, (n, 2))[0] for k, (n, _) in enumerate(sizes)]
    ys = [points(50 + k, (m, 2))[0] for k, (_, m) in enumerate(sizes)]
    weights = [points(90 + k, (n,))[0] for k, (n, _) in enumerate(sizes)]
    together = net(xs, ys, a=weights)
    for k, (n, m) in enumerate(sizes):
        alone = net(xs[k], ys[k], a=weights[k])
        for layer in (1, 17, 300):
            assert (together.plan(layer)[k, :n, :m] - alone.plan(layer)).abs().max() < 1e-12
            assert (together.attention(layer)[k, :n, :m] - alone.attention(layer)).abs().max() < 1e-12
        assert together.plan()[k, n:].abs().sum() == 0
        assert together.plan()[k, :, m:].abs().sum() == 0
        u = together.potentials()[0][k]
        assert torch.isneginf(u[n:]).all()
        assert torch.isfinite(u[:n]).all()


def test_ragged_lists_of_numpy_arrays():
    xs = [points(k, (3 + k, 2))[0] for k in range(2)]
    net = of.AligningTransformer(2, 0.1, 20)
    torch.testing.assert_close(net([x.numpy() for x in xs], [x.numpy() for x in xs]).plan(), net(xs, xs).plan())


@pytest.mark.slow
def test_a_batch_of_equal_sizes_equals_solo_runs():
    x, y = points(5, (3, 6, 2), (3, 6, 2))
    net = of.AligningTransformer(2, 0.1, 100, schedule="relaxed")
    batch = net(x, y)
    for k in range(3):
        torch.testing.assert_close(batch.plan()[k], net(x[k], y[k]).plan(), rtol=0, atol=1e-13)


@pytest.mark.slow
def test_zero_weights_are_absent_points():
    x, y = points(6, (5, 2), (4, 2))
    a = torch.tensor([0.4, 0.0, 0.3, 0.3, 0.0], dtype=torch.float64)
    b = torch.tensor([0.5, 0.0, 0.25, 0.25], dtype=torch.float64)
    net = of.AligningTransformer(2, 0.2, 500)
    whole = net(x, y, a, b)
    part = net(x[a > 0], y[b > 0], a[a > 0], b[b > 0])
    torch.testing.assert_close(whole.plan()[a > 0][:, b > 0], part.plan(), rtol=0, atol=1e-13)
    assert whole.plan()[a == 0].sum() == 0
    assert not torch.isnan(whole.attention()).any()


def costs(x, y):
    W = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    z = x[:, None] - y[None]
    return {
        "mahalanobis": (of.mahalanobis(x, y, W), torch.einsum("nmi,ij,nmj->nm", z, W, z)),
        "cosine": (of.cosine(x, y), 1 - torch.nn.functional.cosine_similarity(x[:, None], y[None], dim=-1)),
        "inner_product": (of.inner_product(x, y), -(x @ y.T)),
        "cost_matrix": (of.cost_matrix(z.abs().sum(-1)), z.abs().sum(-1)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mahalanobis", "cosine", "inner_product", "cost_matrix"])
def test_other_costs_by_prompt_alone(name):
    x, y = points(7, (5, 2), (6, 2))
    features, C = costs(x, y)[name]
    torch.testing.assert_close(features.cost(), C, rtol=1e-12, atol=1e-12)
    trace = of.AligningTransformer(features.x.shape[-1], 0.1, 3000)(features, keep="last")
    uniform = torch.full((5,), 1.0, dtype=torch.float64), torch.full((6,), 5 / 6, dtype=torch.float64)
    assert (trace.plan() - pot_plan(C, *uniform, 0.1)).abs().max() < 1e-10


def test_keep_bounds_what_the_trace_holds():
    x, y = points(8, (3, 1), (3, 1))
    net = of.AligningTransformer(1, 0.1, 40)
    full, some, last = net(x, y), net(x, y, keep=[0, -34]), net(x, y, keep="last")
    assert (len(full), some.layers, last.layers) == (41, [0, 7, 40], [40])
    torch.testing.assert_close(some.plan(7), full.plan(7), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"layer 8 was not kept; this trace holds \[0, 7, 40\]"):
        some.plan(8)


@pytest.mark.slow
def test_weights_travel_through_safetensors(tmp_path):
    x, y = points(9, (4, 2), (4, 2))
    net = of.AligningTransformer(2, 0.1, 60, schedule="annealed")
    path = tmp_path / "net.safetensors"
    before = os.umask(0o022)
    try:
        net.save(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    other = of.AligningTransformer(2, 0.1, 60, schedule="annealed")
    for t in other.buffers():
        t.zero_()
    plan = net(x, y, warn=False).plan()
    for same in (other.load(path), of.AligningTransformer.from_file(path)):
        torch.testing.assert_close(same(x, y, warn=False).plan(), plan, rtol=0, atol=0)
    assert repr(of.AligningTransformer.from_file(path)) == repr(net)
    with pytest.raises(ValueError, match=rf"^W_K of {path} must have shape \(1, 2, 17, 9\), got \(60, 2, 15, 8\)$"):
        of.AligningTransformer(3, 0.1, 60).load(path)
    with pytest.raises(ValueError, match=r"must hold a network of class SinkhornTransformer, got AligningTransformer$"):
        of.SinkhornTransformer.from_file(path)
    save_file(net.state_dict(), path)
    with pytest.raises(ValueError, match="got weights without a description: build the network and use load"):
        of.AligningTransformer.from_file(path)
    path.write_bytes(b"nonsense")
    for read in (net.load, of.AligningTransformer.from_file):
        with pytest.raises(ValueError, match=f"^{path} is not a readable safetensors file$"):
            read(path)


def test_a_file_of_a_sinkhorn_network_gives_one(tmp_path):
    x, y = points(9, (4, 2), (4, 2))
    for k, net in enumerate(
        (of.SinkhornTransformer(2, 0.1, 30), of.SinkhornTransformer(2, 0.1, 30, width=16, scale="auto"))
    ):
        net.save(tmp_path / f"{k}.safetensors")
        other = of.AligningTransformer.from_file(tmp_path / f"{k}.safetensors")
        assert type(other) is of.SinkhornTransformer
        assert torch.equal(other(x, y, warn=False).plan(), net(x, y, warn=False).plan())
        assert repr(other) == repr(net)


@pytest.mark.slow
def test_float32_follows_float64():
    x, y = points(11, (8, 2), (8, 2))
    net = of.AligningTransformer(2, 0.1, 300)
    single = net(x.float(), y.float()).plan()
    assert single.dtype == torch.float32
    assert (single.double() - net(x, y).plan()).abs().max() < 1e-4


def test_attention_with_the_sink_column_is_the_softmax_of_the_paper():
    x, y = points(12, (4, 2), (4, 2))
    trace = of.AligningTransformer(2, 0.1, 30)(x, y, warn=False)
    A = trace.attention(30, sink=True)
    S = trace.plan(30).sum(1)
    torch.testing.assert_close(A[:, -1], 1 / (S + 1), rtol=1e-12, atol=0)
    torch.testing.assert_close(A.sum(1), torch.ones(4, dtype=torch.float64))


def test_a_lambda_beside_which_an_absent_point_would_count_is_refused():
    """exp(−1e18/λ) has to be 0: found by tests/properties/test_layers.py."""
    assert of.AligningTransformer(1, 1e15, 50)([[0.0]], [[0.0], [0.0]]).converged
    assert of.AligningTransformer(1, 1e17, 50)([[0.0]], [[0.0]]).converged
    with pytest.raises(ValueError, match=r"reg must be at most 1e\+15 where points are absent or n ≠ m, got 1e\+17"):
        of.AligningTransformer(1, 1e17, 50)([[0.0]], [[0.0], [0.0]])


def test_points_of_two_precisions_are_promoted_and_points_are_no_cost_matrix():
    net = of.AligningTransformer(2, 0.1, 5)
    x, y = np.random.default_rng(0).random((2, 4, 2))
    low = y.astype(np.float32)
    assert torch.equal(net(x, low, warn=False).plan(), net(x, low.astype(np.float64), warn=False).plan())
    with pytest.raises(ValueError, match=r"the same dtype, got torch\.float64 and torch\.float32: y\.to\(x\) converts y"):
        net(torch.from_numpy(x), torch.from_numpy(low))
    with pytest.raises(ValueError, match=r"M must be one matrix of costs, got 2 arguments: squared_euclidean\(x, y\) takes"):
        of.cost_matrix(x, y)
