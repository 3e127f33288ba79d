r"""Mild problems of `balance` on a CPU, eight at a time: Sinkhorn's iterations without logarithms, and conjugate gradients.

Where logits are of the size of the temperature, as in networks, both gain a digit or so in each step. The plan
P = diag(p) K diag(q), K = exp((L − greatest of the row)/τ), takes some steps

    p = a / K q,    c = Kᵀ p,    q ← b / c,

with one look at K each. What will not be done after `MOST_STEPS` is left to the caller, and soon: rows that spread over more
than `MOST_RANGE` temperatures are not begun with, and a problem is given up whose error, falling as in its last step, would
still be too great. The gradient's system is, as
derivatives/implicit.py derives, (I − D Pᵀ diag(1/r) P D) z = D (g_v − Pᵀ (g_u/r)), D = diag(c)^−½, w_v = D z. Its null
vector √c stays out, since the right side is orthogonal to it.

A block of eight problems is [n, m, 8] in a cache: every line of the loops is one instruction for all of them, whatever n
and m. exp is 2^k times Taylor's polynomial of what is left, at most ln(2)/2: its relative error is that of rounding.
"""

from __future__ import annotations

import math

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.types import Array

LANES = 8  # problems of a block
MOST_STEPS, MOST_CG = 24, 40
MOST_RANGE, ROWS_SEEN = 12.0, 4  # temperatures from the greatest entry of a row to its least; rows that are looked at
JUDGED_FROM, JUDGED_CG = 4, 8  # steps of each, after which hopeless problems are given up
LEAST, LOWEST = 1e-250, -700.0  # of a column sum, whose inverse must not overflow; of an exponent
LOG2_E, LN2_HIGH, LN2_LOW = 1 / math.log(2), 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUND = 1.5 * 2.0**52  # added and taken away, it leaves the nearest whole number
T2, T3, T4, T5, T6, T7, T8, T9, T10, T11, T12, T13 = (1 / math.factorial(k) for k in range(2, 14))


@compiled
def _exp(x: Array, power: Array, scale: Array) -> None:
    """Write exp(x) over x [many]; ``scale`` is a view of the bits ``power``. Two loops, since those have no branches."""
    for e in range(len(x)):
        t = x[e]
        whole = (max(t, LOWEST) * LOG2_E + ROUND) - ROUND
        power[e] = (np.int64(whole) + 1023) << 52
        r = (t - whole * LN2_HIGH) - whole * LN2_LOW
        s = T9 + r * (T10 + r * (T11 + r * (T12 + r * T13)))
        s = 1 + r * (1 + r * (T2 + r * (T3 + r * (T4 + r * (T5 + r * (T6 + r * (T7 + r * (T8 + r * s))))))))
        x[e] = 0.0 if t < LOWEST else s
    for e in range(len(x)):
        x[e] *= scale[e]


@compiled
def _mild(L: Array, tau: float, a: Array, b: Array) -> bool:
    """Tell from some rows of L [n, m] whether steps may be few; entries whose exponential is 0 do not count."""
    total, seen, stride = 0.0, 0, max(1, L.shape[0] // ROWS_SEEN)
    for i in range(0, L.shape[0], stride):
        if not a[i] > 0:
            continue
        high = -np.inf
        for j in range(L.shape[1]):
            if b[j] > 0 and L[i, j] > high:
                high = L[i, j]
        low = high
        for j in range(L.shape[1]):
            if b[j] > 0 and L[i, j] < low and (L[i, j] - high) / tau > LOWEST:
                low = L[i, j]
        if high > low:
            total += (high - low) / tau
        seen += 1
    return total <= MOST_RANGE * seen


@compiled
def _any_mild(L: Array, first: int, tau: Array, a: Array, b: Array) -> bool:
    for k in range(first, min(first + LANES, len(L))):  # noqa: SIM110 (numba compiles no generator)
        if _mild(L[k], tau[k], a[k], b[k]):
            return True
    return False


@compiled
def _load(L: Array, first: int, a: Array, b: Array, K: Array, top: Array) -> None:
    """Write the logits of a block, −∞ for absent points, and their greatest; the last problem fills up the last block."""
    top[:] = -np.inf
    for u in range(LANES):
        k = min(first + u, len(L) - 1)
        for i in range(L.shape[1]):
            for j in range(L.shape[2]):
                own = L[k, i, j] if a[k, i] > 0 and b[k, j] > 0 else -np.inf
                K[i, j, u] = own
                if not own <= top[u]:
                    top[u] = own


@compiled
def _iterate(K: Array, a: Array, b: Array, enough: Array, p: Array, q: Array, off: Array, c: Array) -> None:
    """Sinkhorn's iterations of one block; q was 1. ``off``: the greatest |c q − b|, which is to be at most ``enough``."""
    before, going = np.full(LANES, np.inf), np.ones(LANES, np.bool_)
    for step in range(1, MOST_STEPS + 1):
        c[:], p[:] = 0.0, 0.0
        for j in range(K.shape[1]):  # the sums of all rows at once: none waits for the one before it
            for i in range(K.shape[0]):
                for u in range(LANES):
                    p[i, u] += K[i, j, u] * q[j, u]
        for i in range(K.shape[0]):
            for u in range(LANES):
                p[i, u] = a[i, u] / p[i, u] if a[i, u] > 0 else 0.0
        for i in range(K.shape[0]):
            for j in range(K.shape[1]):
                for u in range(LANES):
                    c[j, u] += K[i, j, u] * p[i, u]
        off[:] = 0.0
        for j in range(K.shape[1]):
            for u in range(LANES):
                away = abs(c[j, u] * q[j, u] - b[j, u])
                off[u] = off[u] if away <= off[u] else away
        for u in range(LANES):
            going[u] = going[u] and off[u] > enough[u]
            if step >= JUDGED_FROM and going[u]:
                going[u] = off[u] * (off[u] / before[u]) ** (MOST_STEPS - step) <= enough[u]
            before[u] = off[u]
        if not going.any():
            break
        for j in range(K.shape[1]):
            for u in range(LANES):
                q[j, u] = b[j, u] / max(c[j, u], LEAST) if going[u] else q[j, u]


@compiled
def scale_plans(L: Array, tau: Array, a: Array, b: Array, tol: float, P: Array, f: Array, g: Array, error: Array) -> None:
    """Fill in P = exp((L − greatest)/τ + f + g) [B, n, m], f, g and errors of the problems that are done."""
    B, n, m = L.shape
    K, p, q = np.empty((n, m, LANES)), np.empty((n, LANES)), np.empty((m, LANES))
    w_a, w_b, rows, c = np.empty((n, LANES)), np.empty((m, LANES)), np.empty((n, LANES)), np.empty((m, LANES))
    top, scale, off, s, enough = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    power = np.empty(n * m * LANES, np.int64)
    bits = power.view(np.float64)
    for first in range(0, B, LANES):
        if not _any_mild(L, first, tau, a, b):
            continue
        _load(L, first, a, b, K, top)
        scale[:] = 0.0
        for u in range(LANES):
            k = min(first + u, B - 1)
            w_a[:, u], w_b[:, u] = a[k], b[k]
            scale[u], s[u] = max(a[k].max(), b[k].max()), 1 / tau[k]
            enough[u] = tol * scale[u]
        for i in range(n):
            for u in range(LANES):
                rows[i, u] = -np.inf
            for j in range(m):
                for u in range(LANES):
                    rows[i, u] = max(rows[i, u], K[i, j, u])
            for u in range(LANES):
                rows[i, u] = rows[i, u] if w_a[i, u] > 0 else 0.0
            for j in range(m):
                for u in range(LANES):
                    K[i, j, u] = (K[i, j, u] - rows[i, u]) * s[u]
        _exp(K.reshape(n * m * LANES), power, bits)
        q[:] = 1.0
        _iterate(K, w_a, w_b, enough, p, q, off, c)
        for u in range(min(LANES, B - first)):
            k = first + u
            if not (off[u] <= enough[u]):
                continue
            for i in range(n):
                f[k, i] = math.log(p[i, u]) - (rows[i, u] - top[u]) / tau[k] if p[i, u] > 0 else 0.0
            for j in range(m):
                g[k, j] = math.log(q[j, u]) if q[j, u] > 0 else 0.0
            for i in range(n):
                for j in range(m):
                    P[k, i, j] = K[i, j, u] * p[i, u] * q[j, u]
            error[k] = off[u] / scale[u]


@compiled
def _normal(P: Array, z: Array, r: Array, rows: Array, out: Array) -> None:
    """Write Pᵀ diag(1/r) P z of one block."""
    out[:], rows[:] = 0.0, 0.0
    for j in range(P.shape[1]):
        for i in range(P.shape[0]):
            for u in range(LANES):
                rows[i, u] += P[i, j, u] * z[j, u]
    for i in range(P.shape[0]):
        for u in range(LANES):
            rows[i, u] /= r[i, u]
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            for u in range(LANES):
                out[j, u] += P[i, j, u] * rows[i, u]


@compiled
def _descend(P: Array, r: Array, D: Array, y: Array, least: float, rows: Array, z: Array, done: Array) -> None:
    """Solve for z [m, 8] by conjugate gradients from 0, with P D in P's place; ``done``: which residuals are small."""
    d, turned, product = y.copy(), np.empty_like(y), np.empty_like(y)
    square, first, new, s = np.empty(LANES), np.zeros(LANES), np.empty(LANES), np.empty(LANES)
    z[:] = 0.0
    for j in range(len(y)):
        for u in range(LANES):
            first[u] += y[j, u] ** 2
    square[:] = first
    done[:] = first == 0.0
    for step in range(1, MOST_CG + 1):
        for j in range(len(y)):
            for u in range(LANES):
                turned[j, u] = D[j, u] * d[j, u]
        _normal(P, turned, r, rows, product)
        new[:] = 0.0
        for j in range(len(y)):
            for u in range(LANES):
                product[j, u] = d[j, u] - D[j, u] * product[j, u]
                new[u] += d[j, u] * product[j, u]
        for u in range(LANES):
            s[u] = square[u] / new[u] if new[u] > 0 and not done[u] else 0.0
        new[:] = 0.0
        for j in range(len(y)):
            for u in range(LANES):
                z[j, u] += s[u] * d[j, u]
                y[j, u] -= s[u] * product[j, u]
                new[u] += y[j, u] ** 2
        going = False
        for u in range(LANES):
            stuck = not s[u] > 0 or (step == JUDGED_CG and new[u] > least ** (JUDGED_CG / MOST_CG) * first[u])
            done[u] = done[u] or new[u] <= least * least * first[u]
            going = going or not (done[u] or stuck)
            s[u] = new[u] / square[u] if square[u] > 0 else 0.0
            square[u] = new[u]
        if not going:
            break
        for j in range(len(y)):
            for u in range(LANES):
                d[j, u] = y[j, u] + s[u] * d[j, u]


@compiled
def pull_plans(
    L: Array, tau: Array, a: Array, b: Array, f: Array, g: Array, G: Array, least: float,
    Y: Array, w_u: Array, w_v: Array, heat: Array, finished: Array,
) -> None:  # fmt: skip
    """Fill in the gradients of balance.py for a loss with the gradient G in the plans, of the problems that are finished."""
    B, n, m = L.shape
    X, P, M = np.empty((n, m, LANES)), np.empty((n, m, LANES)), np.empty((n, m, LANES))
    r, g_u = np.zeros((n, LANES)), np.zeros((n, LANES))
    c, g_v, z = np.zeros((m, LANES)), np.zeros((m, LANES)), np.zeros((m, LANES))
    top, s, done, rows = np.empty(LANES), np.empty(LANES), np.zeros(LANES, np.bool_), np.empty((n, LANES))
    power = np.empty(n * m * LANES, np.int64)
    bits = power.view(np.float64)
    for first in range(0, B, LANES):
        if not _any_mild(L, first, tau, a, b):
            continue
        _load(L, first, a, b, X, top)
        for u in range(LANES):
            k = min(first + u, B - 1)
            for i in range(n):
                for j in range(m):
                    X[i, j, u] = (X[i, j, u] - top[u]) / tau[k]
                    P[i, j, u] = X[i, j, u] + f[k, i] + g[k, j]
                    M[i, j, u] = G[k, i, j]
        _exp(P.reshape(n * m * LANES), power, bits)
        r[:], g_u[:], c[:], g_v[:] = 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            for j in range(m):
                for u in range(LANES):
                    M[i, j, u] = P[i, j, u] * M[i, j, u] if P[i, j, u] > 0 else 0.0
                    r[i, u] += P[i, j, u]
                    g_u[i, u] += M[i, j, u]
                    c[j, u] += P[i, j, u]
                    g_v[j, u] += M[i, j, u]
            for u in range(LANES):
                r[i, u] = r[i, u] if r[i, u] > LEAST else 1.0
                s[u] = g_u[i, u] / r[i, u]
            for j in range(m):
                for u in range(LANES):
                    g_v[j, u] -= P[i, j, u] * s[u]
        for j in range(m):
            for u in range(LANES):
                c[j, u] = 1 / math.sqrt(c[j, u]) if c[j, u] > LEAST else 0.0
                g_v[j, u] *= c[j, u]
        _descend(P, r, c, g_v, least, rows, z, done)
        z *= c
        for u in range(min(LANES, B - first)):
            k = first + u
            finished[k] = done[u]
            if not done[u]:
                continue
            heat[k] = 0.0
            for j in range(m):
                w_v[k, j] = z[j, u]
            for i in range(n):
                own = g_u[i, u]
                for j in range(m):
                    own -= P[i, j, u] * z[j, u]
                own /= r[i, u]
                w_u[k, i] = own
                for j in range(m):
                    y = (M[i, j, u] - P[i, j, u] * (own + z[j, u])) / tau[k]
                    Y[k, i, j] = y
                    if y != 0:
                        heat[k] -= y * X[i, j, u]
