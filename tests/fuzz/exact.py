"""Families of calls with λ = 0: sorting, the line, assignments, exact plans."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment as of_scipy
from scipy.stats import wasserstein_distance

from fuzz import oracles, reference
from fuzz.inputs import Rng, alike, array, formed, number, pick, plain, size, weights
from fuzz.public import of

Told = list[Any]


def sort(rng: Rng, told: Told) -> None:
    values = formed(rng, np.concatenate([array(rng, (size(rng),)) for _ in range(rng.integers(1, 4))]))
    found, order = of.sort(values), plain(of.argsort(values)).astype(int)
    assert np.array_equal(plain(found), np.sort(plain(values))), "not sorted"
    assert np.array_equal(order, np.argsort(plain(values), kind="stable")), "not stable"


def exact(rng: Rng, told: Told) -> None:
    n, m = size(rng), size(rng)
    M, a, b = formed(rng, array(rng, (n, m))), weights(rng, n), weights(rng, m)
    result = of.solve(M, a, b, reg=0)
    if result.plan.shape[0] and result.plan.shape[1]:
        oracles.optimal(result.plan, M, a, b, result.value)


def exact_points(rng: Rng, told: Told) -> None:
    n, m, d = size(rng), size(rng), max(1, size(rng))
    x, y = alike(rng, array(rng, (n, d)), array(rng, (m, d)))
    a, b, metrics = weights(rng, n), weights(rng, m), ("sqeuclidean", "sqeuclidean", "euclidean", "cosine", "no")
    result = of.solve_sample(x, y, a, b, reg=0, metric=pick(rng, metrics[: 3 if rng.mild else 5]))
    if oracles.is_single(x, y) and oracles.top_of(plain(x)) + oracles.top_of(plain(y)) > 1e15:
        return  # the value may be infinite in float32
    oracles.finite(result.value, result.bound)
    assert float(result.bound) <= float(result.value) + 1e-6 * abs(float(result.value)) + 1e-300, "a bound above the value"
    if rng.mild:
        a, b = oracles.uniform(a, b, n), oracles.uniform(b, a, m)
        P = result.dense()
        assert np.abs(plain(P).sum(1) - a).sum() + np.abs(plain(P).sum(0) - b).sum() <= 1e-5, "marginals"


def emd(rng: Rng, told: Told) -> None:
    n = size(rng)
    M, w = formed(rng, array(rng, (n, n))), weights(rng, n)
    w = [] if w is None else w
    P, log = of.emd(w, w, M, log=True)
    value = of.emd2(w, w, M)
    if np.size(P):
        w = None if np.size(w) == 0 else w
        oracles.optimal(P, M, w, w, log["cost"])
        least = 1e-38 if oracles.is_single(P, value) else 0.0  # below it float32 has fewer digits
        near = abs(float(value) - float(log["cost"])) <= 1e-5 * max(abs(float(log["cost"])), least)
        same = float(value) == float(log["cost"]) or near
        assert same, f"emd2 has {float(value)}, emd {float(log['cost'])}"


def linear_sum_assignment(rng: Rng, told: Told) -> None:
    given, most = formed(rng, array(rng, (size(rng), size(rng)))), bool(rng.integers(2))
    rows, columns = of.linear_sum_assignment(given, most)
    C = plain(given)
    assert len(set(map(int, columns))) == min(C.shape), "not one to one"
    top = np.abs(C[np.isfinite(C)]).max(initial=0)
    if top:
        C = C / top / 32  # sums of what is near the end of float64 are infinite
        found, expected = C[np.asarray(rows), np.asarray(columns)].sum(), C[of_scipy(C, most)].sum()
        assert (found >= expected - 1e-9) if most else (found <= expected + 1e-9), "not optimal"


def assignment(rng: Rng, told: Told) -> None:
    n, d = size(rng), max(1, size(rng))
    m = size(rng) if rng.random() < 0.1 and not rng.mild else n
    x, y = alike(rng, array(rng, (n, d)), array(rng, (m, d)))
    order = plain(of.assignment(x, y, max_time=number(rng, (None, None, 5.0)))).astype(int)
    assert sorted(order) == list(range(n)), "not a permutation"
    if n and rng.mild:
        C = reference.squares(plain(x), plain(y))
        best = C[of_scipy(C)].sum()
        assert C[np.arange(n), order].sum() <= best + (1e-2 if oracles.is_single(x, y) else 1e-8) * (1 + C.max()), (
            "not optimal"
        )


def line(rng: Rng, told: Told) -> None:
    n, m, p = size(rng), size(rng), number(rng, (1, 1, 2, 3.5))
    x, y, a, b = formed(rng, array(rng, (n,))), formed(rng, array(rng, (m,))), weights(rng, n), weights(rng, m)
    found = plain(of.wasserstein_1d(x, y, a, b, p=p))
    low = str(getattr(x, "dtype", "")).endswith("16") or str(getattr(y, "dtype", "")).endswith("16")
    x, y = plain(x), plain(y)
    oracles.finite(found)
    if a is None and b is None and p == 1:
        top = max(np.abs(x).max(), np.abs(y).max()) or 1.0
        close = 1e-2 if low else 1e-5
        assert abs(float(found) / top - wasserstein_distance(x / top, y / top)) < close, "not scipy's"


def barycenter(rng: Rng, told: Told) -> None:
    d = max(1, size(rng))
    clouds = [formed(rng, array(rng, (size(rng), d))) for _ in range(size(rng))]
    found = of.barycenter(clouds, weights(rng, len(clouds)), number(rng, (0, 0, 0.01, 0.1, 1.0, 1e-6, 1e6)), max_steps=5)
    assert isinstance(found, of.Barycenter)
    oracles.finite(found.value, found.error, found.points)


def adapter(rng: Rng, told: Told) -> None:
    d = max(1, size(rng))
    x, y = (array(rng, (size(rng), d)) for _ in range(2))
    found = of.DomainAdapter(number(rng, (0, 0, 0.01, 1.0, 1e-6))).fit(x, Xt=y)
    oracles.finite(found.transform(x), found.inverse_transform(y))


FAMILIES = (sort, exact, exact_points, emd, linear_sum_assignment, assignment, line, barycenter, adapter)
