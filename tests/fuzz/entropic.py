"""Families of calls with λ > 0: solve and its kin, other libraries' names, results and gradients."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
import torch.distributed as dist

from fuzz import oracles, reference
from fuzz.inputs import Rng, alike, array, formed, number, pick, plain, reg, size, tensor, weights
from fuzz.public import of

DEPTH = 300  # layers: a case is to be short
Told = list[Any]


def a_schedule(rng: Rng) -> Any:
    """A name, or a value with its numbers."""
    if rng.random() < 0.6:
        return pick(rng, ("auto", "auto", "auto", "relaxed", "annealed", "no"))
    kind = int(rng.integers(5))
    if kind == 0:
        return of.Gradient(number(rng, (None, 0.1, 1e-3)))
    if kind == 1:
        return of.Relaxed(of.best_omega(number(rng, (0.0, 0.5, 0.999, 1.0))))
    if kind == 2:
        return of.Annealed(number(rng, (1.0, 10.0)), number(rng, (1.5, 1.0, 1.9)), number(rng, (36, 1, 5)))
    return of.Paper(number(rng, (8, 1)), number(rng, (1.0, 0.1))) if kind == 3 else of.Alternating()


def a_solver(rng: Rng) -> Any:
    kind = int(rng.integers(3))
    if kind == 0:
        return of.Newton()
    if kind == 1:
        return of.Mixed(number(rng, (32, 1, 5)), number(rng, (1e-12, 1e-3)), number(rng, (1000, 3)), number(rng, (1000, 2)))
    return of.Network(pick(rng, ("relaxed", "annealed", of.Alternating())))


def solve(rng: Rng, told: Told) -> None:
    n, m = size(rng), size(rng)
    M, a, b, lam = formed(rng, array(rng, (n, m))), formed(rng, weights(rng, n)), formed(rng, weights(rng, m)), reg(rng)
    tol = pick(rng, (1e-6, 1e-3))
    how: dict[str, Any] = {"schedule": a_schedule(rng)} if rng.random() < 0.6 else {"solver": a_solver(rng)}
    if rng.random() < 0.15:
        how["potentials"] = (array(rng, (n,)), array(rng, (m,)))
    result = of.solve(M, a, b, reg=lam, tol=tol, max_depth=DEPTH, **how)
    oracles.told_true(result, a, b, tol, told, oracles.reach(lam, M, a, b))
    oracles.entropic(result, M, a, b, lam, tol)


def graphs(rng: Rng, told: Told) -> None:
    """Sparse costs as a graph, and the neighbours of points: the plan of the matrix with all other pairs forbidden."""
    n, m, lam = size(rng), size(rng), reg(rng)
    if rng.random() < 0.5:
        x, y = array(rng, (n, 2)), array(rng, (m, 2))
        graph = of.neighbour_graph(x, y, number(rng, (3, 1, 5)))
    else:
        held = rng.random((n, m)) < 0.7
        graph = of.GraphCost(scipy.sparse.csr_array((plain(array(rng, (n, m)))[held], np.nonzero(held)), shape=(n, m)))
    i, j = graph.allowed()
    M = np.full((n, m), math.inf)
    M[i, j] = graph.costs(i, j)
    a, b = weights(rng, n), weights(rng, m)
    result = of.solve(graph, a, b, reg=lam, tol=1e-6, max_depth=DEPTH)
    oracles.told_true(result, a, b, 1e-6, told, oracles.reach(lam, M, a, b))
    if result.converged:
        assert (np.asarray(result.plan)[np.isinf(M)] == 0).all(), "mass on a forbidden pair"
        best = of.solve(graph, a, b, reg=0)
        truth = of.solve(M, a, b, reg=0)
        assert abs(best.value - truth.value) <= 1e-6 * max(1.0, np.abs(M[i, j]).max()), "another optimum"


def masked(rng: Rng, told: Told) -> None:
    n, m = size(rng), size(rng)
    M, a, b, lam = array(rng, (n, m)), weights(rng, n), weights(rng, m), reg(rng)
    mask = rng.random((n, m)) < 0.8
    given = pick(rng, (mask, mask, mask.tolist(), torch.tensor(mask), mask.astype(float), mask[:1], "mask"))
    result = of.solve(formed(rng, M), a, b, reg=lam, max_depth=DEPTH, mask=given)
    oracles.told_true(result, a, b, 1e-6, told, oracles.reach(lam, M, a, b))
    assert not (oracles.dense(result.plan)[~mask] > 0).any(), "mass on a forbidden pair"


def solve_sample(rng: Rng, told: Told) -> None:
    n, m, d = size(rng), size(rng), size(rng)
    x, y = alike(rng, array(rng, (n, d)), array(rng, (m, d)))
    a, b = weights(rng, n), weights(rng, m)
    how = {"executor": pick(rng, ("dense", "stream", "auto")), "metric": pick(rng, ("sqeuclidean", "euclidean", "cosine"))}
    lam = reg(rng)
    result = of.solve_sample(x, y, a, b, reg=lam, tol=1e-6, max_depth=DEPTH, **how)
    oracles.told_true(result, a, b, 1e-6, told, oracles.reach(lam, x, y, a, b))
    if how["metric"] == "sqeuclidean" and not oracles.is_single(x, y):
        oracles.entropic(result, reference.squares(plain(x), plain(y)), a, b, lam, 1e-6)


def solve_streamed(rng: Rng, told: Told) -> None:
    n, m, d = size(rng), size(rng), max(1, size(rng))
    x, y = alike(rng, array(rng, (n, d)), array(rng, (m, d)))
    a, b, lam = weights(rng, n), weights(rng, m), reg(rng)
    how: dict[str, Any] = {
        "cost": pick(rng, ("sqeuclidean", "sqeuclidean", "cosine", "euclidean", "no")[: 3 if rng.mild else 5])
    }
    if rng.random() < 0.2:
        how["labels"] = (rng.integers(0, 2, n), rng.integers(0, 2, m))
        how["allow"] = pick(rng, ("equal", "different", "no"))
    if rng.random() < 0.2:
        how["unbalanced"] = number(rng, (1.0, 0.1, (1.0, 2.0)))
    result = of.solve_streamed(x, y, a, b, reg=lam, max_depth=DEPTH, **how)
    if "unbalanced" in how:
        assert told or result.converged, "not converged, and not a word"
        oracles.finite(np.asarray(result.plan))
        return
    oracles.told_true(result, a, b, 1e-6, told, oracles.reach(lam, x, y, a, b))
    if how["cost"] == "sqeuclidean" and "labels" not in how and not oracles.is_single(x, y):
        oracles.entropic(result, reference.squares(plain(x), plain(y)), a, b, lam, 1e-6)


def solve_sharded(rng: Rng, told: Told) -> None:
    """One rank, which has everything; tests/transport/test_sharded.py has several."""
    n, m, d = size(rng), size(rng), max(1, size(rng))
    x, y = alike(rng, array(rng, (n, d)), array(rng, (m, d)))
    a, b, lam = weights(rng, n), weights(rng, m), reg(rng)
    if rng.random() < 0.1:  # no process group
        assert not dist.is_initialized()
        of.solve_sharded(x, y, a, b, reg=lam)
        raise AssertionError("solved without a process group")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        result = of.solve_sharded(x, y, a, b, reg=lam, max_depth=DEPTH, timeout=number(rng, (10.0,)))
    finally:
        dist.destroy_process_group()
    oracles.told_true(result, a, b, 1e-6, told, oracles.reach(lam, x, y, a, b))
    if not oracles.is_single(x, y):
        oracles.entropic(result, reference.squares(plain(x), plain(y)), a, b, lam, 1e-6)


def solve_batch(rng: Rng, told: Told) -> None:
    problems, lam = [], reg(rng)
    for _ in range(rng.integers(4)):
        n, m = size(rng), size(rng)
        a, b = weights(rng, n), weights(rng, m)
        problems.append((formed(rng, array(rng, (n, m))), a, b) if a is not None and b is not None else array(rng, (n, m)))
    try:
        results = of.solve_batch(problems, reg=lam, max_depth=DEPTH)
        broke: list[int] = []
    except of.BrokenProblems as broken:
        results, broke = broken.results, sorted(broken.errors)
    assert [k for k, result in enumerate(results) if result is None] == broke, "others are without a result"
    for given, result in zip(problems, results, strict=True):
        if result is None:
            continue
        M, a, b = given if isinstance(given, tuple) else (given, None, None)
        if lam == 0:
            oracles.optimal(result.plan, M, a, b, result.value)
            continue
        oracles.told_true(result, a, b, 1e-6, told, oracles.reach(lam, M, a, b))
        oracles.entropic(result, M, a, b, lam, 1e-6)


def solve_unbalanced(rng: Rng, told: Told) -> None:
    n, m = size(rng), size(rng)
    M, a, b, lam = formed(rng, array(rng, (n, m), positive=rng.mild)), weights(rng, n), weights(rng, m), reg(rng)
    rho, kind = number(rng, (0.1, 1.0, 10.0)), pick(rng, ("kl", "entropy"))
    result = of.solve_unbalanced(M, a, b, reg=lam, reg_m=rho, max_depth=DEPTH, reg_type=kind)
    P = plain(result.plan)
    oracles.finite(P)
    assert (P >= 0).all(), "a negative entry"
    assert result.converged or told, "not converged, and not a word"
    if not rng.mild or not result.converged or oracles.is_single(M) or np.abs(plain(M)).max() / lam > oracles.MODERATE:
        return
    a, b = (np.full(k, 1 / k) if w is None else w for w, k in ((a, n), (b, m)))
    rows, columns = a > 0, b > 0
    expected = reference.scaled(plain(M)[rows][:, columns], a[rows], b[columns], lam, rho, product=kind == "kl")
    if expected is not None:
        assert np.abs(P[rows][:, columns] - expected[0]).max() <= 1e-5 * max(1.0, expected[0].max()), "another plan"


def solve_partial(rng: Rng, told: Told) -> None:
    n, m = size(rng), size(rng)
    M, a, b, lam = formed(rng, array(rng, (n, m))), weights(rng, n), weights(rng, m), reg(rng)
    mass = number(rng, (None, 0.5, 0.01, 1.0))
    result = of.solve_partial(M, a, b, reg=lam, mass=mass, max_depth=DEPTH)
    P = plain(result.plan)
    oracles.finite(P)
    a, b = (np.full(k, 1 / max(k, 1)) if w is None else w for w, k in ((a, n), (b, m)))
    least = min(a.sum(), b.sum())
    close = 1e-3 if oracles.is_single(M, result.plan) else 1e-6
    assert result.converged or told, "not converged, and not a word"
    if P.size and result.converged:
        moved = least if mass is None else mass
        assert abs(P.sum() - moved) <= 2 * close * max(moved, least), f"mass {P.sum()} instead of {moved}"
        assert (P.sum(1) <= a + close * least).all(), "a row gives more than it has"
        assert (P.sum(0) <= b + 2 * close * max(1.0, least)).all(), "a column takes more than it has"


def samples_loss(rng: Rng, told: Told) -> None:
    n, m, d = size(rng), size(rng), max(1, size(rng))
    x, y = array(rng, (n, d)), array(rng, (m, d))
    how = {"p": pick(rng, (1, 2, 2)), "debias": bool(rng.integers(2)), "reach": pick(rng, (None, None, 0.01, 1.0, 1e6))}
    blur = number(rng, (0.1, 0.3, 1.0)) if rng.mild else number(rng, (1e-4, 0.01, 0.05, 1.0, 1e3))
    loss = of.SamplesLoss(blur=blur, backend=pick(rng, ("auto", "auto", "online", "no")[: 3 if rng.mild else 4]), **how)
    X = torch.tensor(x, dtype=pick(rng, (torch.float64, torch.float64, torch.float32)), requires_grad=True)
    value = loss(X, torch.tensor(y).to(X.dtype))
    if told:
        return
    oracles.finite(value.detach(), *torch.autograd.grad(value, X, allow_unused=True) if value.requires_grad else ())
    top = max(float(np.abs(x).max(initial=0)), float(np.abs(y).max(initial=0)), loss.blur) ** how["p"]
    single = X.dtype == torch.float32
    if how["debias"]:
        assert float(value) >= -(1e-3 if single else 1e-5) * top, f"a debiased loss of {float(value)}"
    if not (rng.mild and n and m) or top / loss.eps > oracles.MODERATE:
        return
    rho = math.inf if loss.rho is None else loss.rho
    expected = reference.loss(x, y, np.full(n, 1 / n), np.full(m, 1 / m), how["p"], loss.eps, rho, how["debias"])
    if expected is not None:
        assert abs(float(value) - expected) <= (1e-3 if single else 1e-5) * top, f"{float(value)} where {expected} is right"


def divergence(rng: Rng, told: Told) -> None:
    n, m, d = size(rng), size(rng), max(1, size(rng))
    x, y, lam = array(rng, (n, d)), array(rng, (m, d)), reg(rng)
    found = [float(of.divergence(*pair, reg=lam)) for pair in ((formed(rng, x), y), (y, x))]
    if told:
        return
    oracles.finite(found)
    top = max(float(np.abs(x).max(initial=0)), float(np.abs(y).max(initial=0))) ** 2 + float(lam)
    assert found[1] >= -1e-6 * top, f"a divergence of {found[1]}"
    if rng.mild and top / lam <= oracles.MODERATE:  # twice GeomLoss's, of half the ε
        expected = reference.loss(x, y, np.full(n, 1 / n), np.full(m, 1 / m), 2, lam / 2, math.inf, debias=True)
        assert expected is None or abs(found[1] - 2 * expected) <= 1e-5 * top, f"{found[1]} where {2 * expected} is right"


def sinkhorn(rng: Rng, told: Told) -> None:
    n, m = max(1, size(rng)), max(1, size(rng))
    a, b, M, lam = np.full(n, 1 / n), np.full(m, 1 / m), formed(rng, array(rng, (n, m))), reg(rng)
    start = None if rng.random() < 0.6 else (array(rng, (n,)), array(rng, (m,)))
    method = pick(rng, ("sinkhorn", "sinkhorn_log", "sinkhorn_stabilized", "no")[: 3 if rng.mild else 4])
    P = plain(of.sinkhorn(a, b, M, lam, method=method, warmstart=start, log=False))
    oracles.finite(P)
    close = 2e-2 if str(getattr(M, "dtype", "")).endswith("16") else 1e-4
    assert told or np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum() < close, "marginals, and not a word"
    value = of.sinkhorn2(a, b, M, lam, method=method, warn=True)
    if not told and np.abs(plain(M)).max() < 1e30:
        top = oracles.top_of(plain(M))
        assert abs(float(value) - (P * plain(M)).sum()) <= 10 * close * (top + 1e-300), "a value that is not the plan's"


def results(rng: Rng, told: Told) -> None:
    """What a result does with itself: its parts, its pictures, products, rounding."""
    n, m = size(rng), size(rng)
    M, lam = array(rng, (n, m)), pick(rng, (reg(rng), 0))
    result = of.solve(formed(rng, M), reg=lam, max_depth=DEPTH)
    assert isinstance(result, of.ExactResult if lam == 0 else of.Result), "another kind of result"
    assert "nan" not in repr(result), repr(result)
    assert result._repr_html_(), "an empty card"
    oracles.finite(*result.marginals)
    if n and m and lam != 0:
        vector = array(rng, (m,))
        if np.isfinite(vector).all() and np.abs(vector).max() < 1e100:
            oracles.finite(result.apply(vector), result.map(vector[:, None]))
        rounded = result.rounded()
        oracles.finite(rounded.value, rounded.bound)
        assert rounded.gap >= -1e-9 * abs(rounded.value), "a bound above the value"
    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder, pick(rng, ("r.html", "r.html", "r.png", "r.no", "no/r.html")[: 2 if rng.mild else 5])))


def gradients(rng: Rng, told: Told) -> None:
    """Slopes of the value in M, a and λ, and of a divergence in x."""
    n, m = max(2, size(rng)), max(2, size(rng))
    M, a, lam = tensor(rng, array(rng, (n, m))), rng.random(n) + 0.1, reg(rng)
    a /= a.sum()
    value = of.solve(M, a, reg=lam, max_depth=DEPTH).value
    (gradient,) = torch.autograd.grad(value, M)
    assert told or np.isfinite(plain(gradient)).all(), "a gradient that is no number"
    if not rng.mild or M.dtype != torch.float64 or oracles.top_of(plain(M)) / lam > 50:
        return
    of_cost = lambda C: of.solve(C, a, reg=lam, tol=1e-11).value  # noqa: E731
    oracles.slope(of_cost, M, rng.standard_normal((n, m)))
    oracles.slope(
        lambda lam: of.solve(M.detach(), a, reg=lam, tol=1e-11).value, torch.tensor(float(lam)), np.ones(1), 1e-4 * lam
    )
    x = torch.tensor(rng.random((n, 2)))
    oracles.slope(lambda x: of.divergence(x, M.detach()[:, :2], reg=lam, tol=1e-11), x, rng.standard_normal((n, 2)))


FAMILIES = (solve, graphs, masked, solve_sample, solve_streamed, solve_sharded, solve_batch, solve_unbalanced, solve_partial,
            samples_loss, divergence, sinkhorn, results, gradients)  # fmt: skip
