"""Calls of public functions on hostile input. A family draws its input and checks its answer; a ValueError of one line is an
answer too, everything else that is raised a finding."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance

import otformer as of
from fuzz import oracles
from fuzz.inputs import Rng, array, formed, number, pick, plain, reg, size, weights

DEPTH = 300  # layers: a case is to be short
Told = list[Any]


def solve(rng: Rng, told: Told) -> None:
    n, m = size(rng), size(rng)
    M, a, b, lam = formed(rng, array(rng, (n, m))), formed(rng, weights(rng, n)), formed(rng, weights(rng, m)), reg(rng)
    tol = pick(rng, (1e-6, 1e-3))
    schedule = pick(rng, ("auto", "auto", "auto", "relaxed", "annealed", "no"))
    result = of.solve(M, a, b, reg=lam, tol=tol, max_depth=DEPTH, schedule=schedule)
    oracles.told_true(result, a, b, tol, told, oracles.reach(lam, M, a, b))


def solve_sample(rng: Rng, told: Told) -> None:
    n, m, d = size(rng), size(rng), size(rng)
    x, y, a, b = formed(rng, array(rng, (n, d))), formed(rng, array(rng, (m, d))), weights(rng, n), weights(rng, m)
    how = {"executor": pick(rng, ("dense", "stream", "auto")), "metric": pick(rng, ("sqeuclidean", "euclidean", "cosine"))}
    lam = reg(rng)
    result = of.solve_sample(x, y, a, b, reg=lam, tol=1e-6, max_depth=DEPTH, **how)
    oracles.told_true(result, a, b, 1e-6, told, oracles.reach(lam, x, y, a, b))


def solve_batch(rng: Rng, told: Told) -> None:
    problems, lam = [], reg(rng)
    for _ in range(rng.integers(4)):
        n, m = size(rng), size(rng)
        a, b = weights(rng, n), weights(rng, m)
        problems.append((formed(rng, array(rng, (n, m))), a, b) if a is not None and b is not None else array(rng, (n, m)))
    for given, result in zip(problems, of.solve_batch(problems, reg=lam, max_depth=DEPTH), strict=True):
        M, a, b = given if isinstance(given, tuple) else (given, None, None)
        oracles.told_true(result, a, b, 1e-6, told, oracles.reach(lam, M, a, b))


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


def emd(rng: Rng, told: Told) -> None:
    n = size(rng)
    M, w = formed(rng, array(rng, (n, n))), weights(rng, n)
    w = [] if w is None else w
    P, log = of.emd(w, w, M, log=True)
    if np.size(P):
        oracles.optimal(P, M, None if np.size(w) == 0 else w, None if np.size(w) == 0 else w, log["cost"])


def assignment(rng: Rng, told: Told) -> None:
    given = formed(rng, array(rng, (size(rng), size(rng))))
    rows, columns = of.linear_sum_assignment(given)
    C = plain(given)
    top = np.abs(C[np.isfinite(C)]).max(initial=0)
    if top < 1e300:  # beyond, sums are infinite
        expected = C[linear_sum_assignment(C)].sum()
        assert C[np.asarray(rows), np.asarray(columns)].sum() <= expected + 1e-9 * top, "not optimal"


def line(rng: Rng, told: Told) -> None:
    n, m = size(rng), size(rng)
    x, y, a, b = formed(rng, array(rng, (n,))), formed(rng, array(rng, (m,))), weights(rng, n), weights(rng, m)
    found = plain(of.wasserstein_1d(x, y, a, b))
    x, y = plain(x), plain(y)
    oracles.finite(found)
    if a is None and b is None:
        top = max(np.abs(x).max(), np.abs(y).max()) or 1.0
        assert abs(float(found) / top - wasserstein_distance(x / top, y / top)) < 1e-5, "not scipy's"


def samples_loss(rng: Rng, told: Told) -> None:
    n, m, d = size(rng), size(rng), max(1, size(rng))
    x, y = array(rng, (n, d)), array(rng, (m, d))
    how = {"p": pick(rng, (1, 2, 2)), "debias": bool(rng.integers(2)), "reach": pick(rng, (None, None, 0.01, 1.0, 1e6))}
    loss = of.SamplesLoss(blur=number(rng, (1e-4, 0.01, 0.05, 1.0, 1e3)), **how)
    value = loss(torch.tensor(x), torch.tensor(y))
    if not told:
        oracles.finite(value)
        if how["debias"]:
            top = max(float(np.abs(x).max(initial=0)), float(np.abs(y).max(initial=0)), loss.blur) ** how["p"]
            assert float(value) >= -1e-5 * top, f"a debiased loss of {float(value)}"


def divergence(rng: Rng, told: Told) -> None:
    n, m, d = size(rng), size(rng), max(1, size(rng))
    x, y, lam = array(rng, (n, d)), array(rng, (m, d)), reg(rng)
    found = [float(of.divergence(*pair, reg=lam)) for pair in ((formed(rng, x), y), (y, x))]
    if not told:
        oracles.finite(found)
        top = max(float(np.abs(x).max(initial=0)), float(np.abs(y).max(initial=0))) ** 2 + float(lam)
        assert found[1] >= -1e-6 * top, f"a divergence of {found[1]}"


def sinkhorn(rng: Rng, told: Told) -> None:
    n, m = max(1, size(rng)), max(1, size(rng))
    a, b = np.full(n, 1 / n), np.full(m, 1 / m)
    start = None if rng.random() < 0.6 else (array(rng, (n,)), array(rng, (m,)))
    P = plain(of.sinkhorn(a, b, formed(rng, array(rng, (n, m))), reg(rng), warmstart=start))
    oracles.finite(P)
    assert told or np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum() < 1e-4, "marginals, and not a word"


def network(rng: Rng, told: Told) -> None:
    d, n = pick(rng, (1, 2, 3)), size(rng)
    m = size(rng) if rng.random() < 0.2 else n
    schedule = pick(rng, ("gradient", "alternating", "relaxed", "annealed", "paper"))
    net = of.AligningTransformer(number(rng, (d,)), reg(rng), number(rng, (1, 2, 20)), schedule=schedule)
    trace = net(formed(rng, array(rng, (n, d))), formed(rng, array(rng, (m, d))))
    if n and m:
        oracles.rows_of_one(trace.attention(1, head="rows").detach())


def trained(rng: Rng, told: Told) -> None:
    n = size(rng)
    name = pick(rng, ("sort-beyond", "cloud-beyond", "paper-attention", "nearest"))
    shape = (n, 2) if name == "cloud-beyond" else (n,)
    oracles.rows_of_one(of.load_trained(name, number(rng, (0, 7)))(formed(rng, array(rng, shape)), array(rng, shape)))


ENTROPIC = (solve, solve_sample, solve_batch, samples_loss, divergence, sinkhorn)
OTHERS = (sort, exact, emd, assignment, line, network, trained)
FAMILIES: dict[str, Callable[[Rng, Told], None]] = {each.__name__: each for each in (*ENTROPIC, *OTHERS)}


def run(family: str, seed: int) -> str:
    """One case: ``answered``, or ``refused`` in one line; raises what is a finding."""
    rng = np.random.default_rng([sum(map(ord, family)), seed])
    torch.manual_seed(seed)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            FAMILIES[family](rng, told)
    except ValueError as error:
        said = str(error)
        assert said, "a refusal without words"
        assert len(said.splitlines()) == 1, f"a refusal of several lines: {said[:200]}"
        return "refused"
    return "answered"
