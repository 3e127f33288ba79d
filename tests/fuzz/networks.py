"""Families of networks: frozen ones, as stock modules, their traces, prompts and costs, and trained ones."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fuzz import oracles, reference
from fuzz.inputs import Rng, alike, array, formed, number, pick, plain, reg, size, weights
from fuzz.public import of

Told = list[Any]
SCHEDULES = ("gradient", "alternating", "relaxed", "annealed", "paper")


def network(rng: Rng, told: Told) -> None:
    d, n = pick(rng, (1, 2, 3)), size(rng)
    m = size(rng) if rng.random() < 0.2 else n
    kind = pick(rng, ("aligning", "aligning", "sinkhorn"))
    depth = number(rng, (1, 2, 20))
    if kind == "aligning":
        net = of.AligningTransformer(number(rng, (d,)), reg(rng), depth, schedule=pick(rng, SCHEDULES))
    else:
        net = of.SinkhornTransformer(number(rng, (d,)), reg(rng), depth, width=number(rng, (None, 8, 64)))
    trace = net(*alike(rng, array(rng, (n, d)), array(rng, (m, d))))
    assert isinstance(trace, of.Trace), "no trace"
    if n and m:
        oracles.rows_of_one(trace.attention(1, head="rows").detach())
        error = plain(trace.marginal_error)
        assert not np.isnan(error).any(), "an error that is no number"
        assert np.isfinite(error).all() or told, "an infinite plan, and not a word"  # a few layers at λ = 1e-12: e^(1e12)


def network_truth(rng: Rng, told: Told) -> None:
    """A deep network's plan is the entropic one, where its trace says that it has converged."""
    n, m, d = max(1, size(rng)), max(1, size(rng)), 2
    x, y, a, b, lam = array(rng, (n, d)), array(rng, (m, d)), weights(rng, n), weights(rng, m), reg(rng)
    net = (
        of.AligningTransformer(d, lam, 200, schedule="relaxed")
        if rng.random() < 0.5
        else of.SinkhornTransformer(d, lam, 100)
    )
    x, y = alike(rng, x, y)
    trace = net(x, y, a, b, tol=1e-6)
    assert trace.converged or told, "not converged, and not a word"
    C = reference.squares(plain(x), plain(y))
    if not (rng.mild and trace.converged) or C.max() / lam > oracles.MODERATE:
        return
    a = np.ones(n) if a is None and b is None else oracles.uniform(a, b, n)  # a network's own default is rows of 1
    expected = reference.entropic(C, a, oracles.uniform(b, a, m), lam)
    if expected is not None and not oracles.is_single(trace.plan()):
        assert np.abs(plain(trace.plan()) - expected[0]).max() < 1e-3 * max(1.0, expected[0].max()), "another plan"


def minimal(rng: Rng, told: Told) -> None:
    """The transformer of few registers: its plan is the entropic one, where its trace says that it converged."""
    n, m, d, lam = size(rng), size(rng) if rng.random() < 0.2 and not rng.mild else 0, pick(rng, (1, 2)), reg(rng)
    x, y = alike(rng, array(rng, (n, d)), array(rng, (m or n, d)))
    net = of.MinimalTransformer(number(rng, (d,)), lam, number(rng, (200, 2)), pick(rng, SCHEDULES))
    trace = net(x, y, tol=1e-6)
    oracles.rows_of_one(trace.attention(1, head="rows"))
    assert trace.converged or told, "not converged, and not a word"
    C = reference.squares(plain(x), plain(y))
    if rng.mild and trace.converged and C.max() / lam <= oracles.MODERATE and not oracles.is_single(trace.plan()):
        expected = reference.entropic(C, np.ones(n), np.ones(n), lam)
        assert expected is None or np.abs(plain(trace.plan()) - expected[0]).max() < 1e-3, "another plan"


def counting_sorter(rng: Rng, told: Told) -> None:
    """Two layers give distinct numbers in [0, 1) the places that sorting gives them."""
    n, bits = size(rng), number(rng, (53, 53, 8))
    x = rng.random(n) if rng.mild else pick(rng, (rng.random(n), array(rng, (n,)), array(rng, (2, n))))
    values = formed(rng, x)
    A = of.CountingSorter(bits)(values)
    oracles.rows_of_one(A)
    x = plain(values)
    whole = np.floor(x * 2.0**bits)
    if rng.mild and len(set(whole)) == n:
        np.testing.assert_array_equal(plain(A).argmax(-1), whole.argsort().argsort())


def stock(rng: Rng, told: Told) -> None:
    """torch's own modules with our weights say what our network says."""
    d, n = pick(rng, (1, 2)), max(1, size(rng))
    net = of.AligningTransformer(d, reg(rng), number(rng, (1, 3)), schedule=pick(rng, SCHEDULES))
    x, y = alike(rng, array(rng, (n, d)), array(rng, (n, d)))
    if rng.random() < 0.5:
        run = of.StockTransformer(net, heads=number(rng, (2, 4)))(x, y)
        u, v = run.potentials()
        expected = net(x, y, warn=False).potentials()
        oracles.finite(u, v)
        if rng.mild:
            off = max(np.abs(plain(u) - plain(expected[0])).max(), np.abs(plain(v) - plain(expected[1])).max())
            assert off < 1e-4 * (1 + np.abs(plain(expected[0])).max()), f"potentials are {off} off"
    else:
        encoder = of.StockEncoder(net, number(rng, (2, 4)), number(rng, (1e-5, 1e-3)), bool(rng.integers(2)))
        oracles.finite(*encoder(x, y).potentials())


def traces(rng: Rng, told: Told) -> None:
    """What a trace gives: layers, heads, pages and films; and a network's file."""
    d, n = pick(rng, (1, 2)), max(1, size(rng))
    net = of.AligningTransformer(d, pick(rng, (0.1, 1.0)), 6, schedule=pick(rng, SCHEDULES[:4]))
    usual = 2 if rng.mild else None  # the first so many of what can be chosen
    keep = pick(rng, ("all", "all", "last", [0, 3], [99], "no")[:usual])
    trace = net(*alike(rng, array(rng, (n, d)), array(rng, (n, d))), keep=keep)
    layer = number(rng, (-1, 6, 0, 3, 99, -8)[:usual])
    oracles.finite(trace.Z(layer), trace.plan(layer), *trace.potentials(layer))
    oracles.rows_of_one(trace.attention(layer, head=pick(rng, ("rows", "columns", "no")[:usual])))
    hostile = (["<script>alert(1)</script>"] * n, ["</script>\x00"] * n)
    labels = pick(rng, (None, hostile, (hostile[0], ["a"] * n), ["one"], 7)[:usual])
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, pick(rng, ("t.html", "t.html", "t.no", "no/t.html")[:usual]))
        weights_file = Path(folder, "net.safetensors")
        trace.save(page, labels=labels)
        assert "<script>alert(1)" not in page.read_text("utf-8"), "a label came through as it is"
        net.save(weights_file)
        raw = bytearray(weights_file.read_bytes())
        if rng.random() < 0.7:
            raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
            weights_file.write_bytes(raw[: int(rng.integers(len(raw)))] if rng.random() < 0.3 else raw)
        of.AligningTransformer.from_file(weights_file)


def features(rng: Rng, told: Told) -> None:
    """Costs as features: C = p + q − 2 f·g of points, by formula and by ReLU layers."""
    n, m, d = size(rng), size(rng), max(1, size(rng))
    x, y = alike(rng, array(rng, (n, d)), array(rng, (m, d)))
    kind = int(rng.integers(7))
    if kind == 0:
        made, exact = of.squared_euclidean(x, y), lambda x, y: reference.squares(x, y)
    elif kind == 1:
        made, exact = of.inner_product(x, y), lambda x, y: -x @ y.T
    elif kind == 2:
        made, exact = (
            of.cosine(x, y),
            lambda x, y: 1 - x @ y.T / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(y, axis=1),
        )
    elif kind == 3:
        W = array(rng, (d, d))
        W = W @ W.T + np.eye(d) if rng.mild else W
        made, exact = of.mahalanobis(x, y, W), lambda x, y: np.einsum("ijd,de,ije->ij", x[:, None] - y, W, x[:, None] - y)
    elif kind == 4:
        made, exact, x, y = of.cost_matrix(x), lambda x, y: x, x, np.zeros((1, d))
    elif kind == 5:
        layer = of.EuclideanDistance(
            number(rng, (d,)), number(rng, (4 * d, 100)), number(rng, (-50.0,)), number(rng, (50.0,))
        )
        made, exact = layer(x, y), None
    else:
        layer = of.SmoothCost(lambda s, t: (s - t) ** 2, number(rng, (4, 100)), number(rng, (-50.0,)), number(rng, (50.0,)))
        made, exact = layer(formed(rng, array(rng, (n, 1))), array(rng, (m, 1))), None
    assert isinstance(made, of.Features), "no features"
    C = plain(made.cost())
    oracles.finite(C)
    if exact is not None and rng.mild and not oracles.is_single(x, y, made.x):
        assert np.abs(C - exact(plain(x), plain(y))).max(initial=0) <= 1e-9 * (1 + np.abs(C).max(initial=0)), "another cost"


def trained(rng: Rng, told: Told) -> None:
    n = size(rng)
    name = pick(rng, (*of.trained_models(), "no", "../x", ""))
    flat = not name.startswith("cloud")
    shape = (n,) if flat else (n, 2)
    net = of.load_trained(name, number(rng, (0, 0, 7)))
    net = net.double() if rng.random() < 0.3 else net
    A = net(formed(rng, array(rng, shape)), array(rng, shape))
    oracles.rows_of_one(A.detach() if isinstance(A, torch.Tensor) else A)


FAMILIES = (network, network_truth, minimal, counting_sorter, stock, traces, features, trained)
