r"""Mild problems of `balance` on a CPU: Sinkhorn's iterations without logarithms, and conjugate gradients, eight at a time.

Where logits are of the size of the temperature, as in networks, both contract by a factor of 10 or so in each step: the plan
P = diag(p) K diag(q), K = exp(X − greatest of the row), takes some steps

    p = a / K q,    c = Kᵀ p,    q ← b / c,

with a single look at K each. Whatever is not done after `MOST_STEPS` is left to the caller. The gradient's system is, as
derivatives/implicit.py derives, (I − D Pᵀ diag(1/r) P D) z = D (g_v − Pᵀ (g_u/r)), D = diag(c)^−½, w_v = D z. Its null
vector √c stays out, since the right side is orthogonal to it.

Problems lie in blocks [blocks, n, m, 8]: every line of the loops is one instruction for eight problems, of any size.
"""

from __future__ import annotations

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.types import Array

LANES = 8  # problems of a block
MOST_STEPS, MOST_CG = 24, 40
RESIDUAL = 1e-12  # relative, at which conjugate gradients stop
LEAST = 1e-250  # of a column sum: its inverse must not overflow


@compiled
def _sinkhorn(
    K: Array, a: Array, b: Array, scale: Array, tol: float, p: Array, q: Array, error: Array, s: Array, c: Array
) -> None:
    """Write p, q and the errors of blocks of problems; q was 1."""
    for B in range(len(K)):
        for _ in range(MOST_STEPS):
            c[:] = 0.0
            for i in range(K.shape[1]):
                s[:] = 0.0
                for j in range(K.shape[2]):
                    for u in range(LANES):
                        s[u] += K[B, i, j, u] * q[B, j, u]
                for u in range(LANES):
                    p[B, i, u] = a[B, i, u] / s[u] if a[B, i, u] > 0 else 0.0
                for j in range(K.shape[2]):
                    for u in range(LANES):
                        c[j, u] += K[B, i, j, u] * p[B, i, u]
            error[B] = 0.0
            for j in range(K.shape[2]):
                for u in range(LANES):
                    off = abs(c[j, u] * q[B, j, u] - b[B, j, u])
                    error[B, u] = off if not off <= error[B, u] else error[B, u]
            going = False
            for u in range(LANES):
                going = going or error[B, u] > tol * scale[B, u]
            if not going:
                break
            for j in range(K.shape[2]):
                for u in range(LANES):
                    if error[B, u] > tol * scale[B, u]:
                        q[B, j, u] = b[B, j, u] / max(c[j, u], LEAST)


@compiled
def _normal(P: Array, z: Array, r: Array, D: Array, s: Array, out: Array) -> None:
    """Write D Pᵀ diag(1/r) P D z of one block."""
    out[:] = 0.0
    for i in range(P.shape[0]):
        s[:] = 0.0
        for j in range(P.shape[1]):
            for u in range(LANES):
                s[u] += P[i, j, u] * D[j, u] * z[j, u]
        for u in range(LANES):
            s[u] = s[u] / r[i, u]
        for j in range(P.shape[1]):
            for u in range(LANES):
                out[j, u] += P[i, j, u] * D[j, u] * s[u]


@compiled
def _descend(P: Array, r: Array, D: Array, y: Array, z: Array, done: Array) -> None:
    """Solve for z [blocks, m, 8] by conjugate gradients from 0; ``done``: which residuals are small."""
    m = P.shape[2]
    residual, d, product = np.empty((m, LANES)), np.empty((m, LANES)), np.empty((m, LANES))
    square, first, curved, new, s = (np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES))
    for B in range(len(P)):
        residual[:] = y[B]
        d[:] = y[B]
        z[B] = 0.0
        first[:] = 0.0
        for j in range(m):
            for u in range(LANES):
                first[u] += residual[j, u] ** 2
        square[:] = first
        for _ in range(MOST_CG):
            _normal(P[B], d, r[B], D[B], s, product)
            curved[:] = 0.0
            new[:] = 0.0
            for j in range(m):
                for u in range(LANES):
                    curved[u] += d[j, u] * (d[j, u] - product[j, u])
            for u in range(LANES):
                s[u] = square[u] / curved[u] if curved[u] > 0 and square[u] > RESIDUAL**2 * first[u] else 0.0
            for j in range(m):
                for u in range(LANES):
                    z[B, j, u] += s[u] * d[j, u]
                    residual[j, u] -= s[u] * (d[j, u] - product[j, u])
                    new[u] += residual[j, u] ** 2
            going = False
            for u in range(LANES):
                done[B, u] = new[u] <= RESIDUAL**2 * first[u]
                going = going or (not done[B, u] and s[u] > 0)
                s[u] = new[u] / square[u] if square[u] > 0 else 0.0
                square[u] = new[u]
            if not going:
                break
            for j in range(m):
                for u in range(LANES):
                    d[j, u] = residual[j, u] + s[u] * d[j, u]


def _blocks(t: Array) -> Array:
    """Copy [..., B] to [blocks, ..., 8]; the last problem fills up the last block."""
    B = t.shape[-1]
    count = -(-B // LANES)
    if count * LANES != B:
        t = np.concatenate([t, np.repeat(t[..., -1:], count * LANES - B, axis=-1)], axis=-1)
    return np.ascontiguousarray(np.moveaxis(t.reshape(*t.shape[:-1], count, LANES), -2, 0))


def _along(blocks: Array, B: int) -> Array:
    """Copy [blocks, ..., 8] back to [..., B]."""
    back = np.moveaxis(blocks, 0, -2)
    return back.reshape(*back.shape[:-2], -1)[..., :B]


def scale_plans(X: Array, a: Array, b: Array, tol: float) -> tuple[Array, Array, Array]:
    """Return f [n, B], g [m, B] with P = exp(X + f + g) for X [n, m, B], and which problems are done [B]; rows are exact."""
    B = X.shape[-1]
    top = X.max(1)
    K, w_a, w_b = _blocks(np.exp(X - np.where(a > 0, top, 0.0)[:, None])), _blocks(a), _blocks(b)
    scale, p, q = np.maximum(w_a.max(1), w_b.max(1)), np.empty_like(w_a), np.ones_like(w_b)
    error = np.empty(scale.shape)
    _sinkhorn(K, w_a, w_b, scale, tol, p, q, error, np.empty(LANES), np.empty(w_b.shape[1:]))
    f = np.where(a > 0, np.log(_along(p, B)) - top, 0.0)
    g = np.where(b > 0, np.log(_along(q, B)), 0.0)
    return f, g, (_along(error <= tol * scale, B)) & np.isfinite(f).all(0) & np.isfinite(g).all(0)


def solve_marginals_lanes(P: Array, g_u: Array, g_v: Array) -> tuple[Array, Array, Array]:
    """Solve H w = g for plans P [n, m, B]: w_u [n, B], w_v [m, B], 0 for absent points, and which problems are done [B]."""
    B, r, c = P.shape[-1], P.sum(1), P.sum(0)
    r = np.where(r > LEAST, r, 1.0)
    D = np.where(c > LEAST, 1 / np.sqrt(c), 0.0)
    y = D * (g_v - np.einsum("ijb,ib->jb", P, g_u / r))
    z, done = np.empty_like(_blocks(y)), np.zeros((-(-B // LANES), LANES), np.bool_)
    _descend(_blocks(P), _blocks(r), _blocks(D), _blocks(y), z, done)
    w_v = D * _along(z, B)
    return (g_u - np.einsum("ijb,jb->ib", P, w_v)) / r, w_v, _along(done, B)
