r"""Sinkhorn's problem on a line from its factors (line_factors.py): P = diag(p) A Bᵀ diag(q), Newton steps on log q.

Rows are exact; the dual, its steps S d = b − c with S = diag(c) − Pᵀ diag(1/a) P, and their length are those of
balance_cpu.py. The proof there needs d·S d = d·(b − c) alone, which holds for every iterate of conjugate gradients from 0.
So steps cut short do not lower the dual either.

**Preconditioner.** d·S d is the sum of a_i times the variance of d in row i. For smooth d it is the energy of a chain,

    Σ_j k_j (d_j+1 − d_j)²,    k_j = Σ_i P_ij v_i/(y_j+1 − y_j)²,    v_i the variance of y in row i

(in a Gaussian row v_i times the density is what the variance of d weighs d'² with: Stein). Where s is an eigenvalue of the
chain relative to diag(c), that of S is about 1 − exp(−s), and 1/(1 − exp(−s)) lies between 1/s + 1/2 and 1/s + 1. So with
the inverse of the chain plus diag(1/c) few steps are needed. That inverse is two running sums: the flow through an edge is
the excess of all before it, and d falls by the flow over k.

**Weak links.** k_j/c_j is the share of the mass at y_j that is exchanged across the edge. v is a difference of squares, so
shares near the rounding of float64 are noise, and d across the edge, which is divided by them, and all gradients are too.
Plans with a share below `LEAST_LINK` are left to the n × n plan: their blur does not reach from one value to the next.
"""

from __future__ import annotations

import math

import numpy as np

from otformer.nn.line_factors import BLOCK, gather, spread
from otformer.transport.compiled import compiled
from otformer.transport.types import Array

LINE_STEPS, MOST_SINKHORN, LINE_CG = 100, 12, 300  # all steps, Sinkhorn's, and steps for each of Newton's
FAR_OFF = 0.5  # relative error of a column sum, from which on Sinkhorn's steps are better
FAR_MOVED = 4.0  # range of log q since the bands were found, from which on they are found anew
LINE_LEAST = 1e-300
LEAST_LINK = 1e-9  # of the mass at one of its ends: an edge of the chain of less is lost in rounding
DONE, AGAIN, UNSOLVED = 0, 1, 2


@compiled
def across(
    A: Array, low: Array, at: Array, p: Array, B: Array, low_b: Array, at_b: Array, q: Array, w: Array, t: Array, out: Array
) -> None:
    """Write P w = p ∘ A Bᵀ (q ∘ w); with the factors in the other order, Pᵀ w."""
    spread(B, low_b, at_b, q * w, t)
    gather(A, low, at, t, out)
    out *= p


@compiled
def find_chain(y: Array, moved: Array, k: Array) -> None:
    """Write the edges k of the chain, of Pᵀ v."""
    for j in range(len(y) - 1):
        k[j] = max(0.5 * (moved[j] + moved[j + 1]) / max((y[j + 1] - y[j]) ** 2, LINE_LEAST), LINE_LEAST)


@compiled
def is_linked(k: Array, c: Array) -> bool:
    """Tell whether every edge carries more than rounding."""
    return bool((k[:-1] > LEAST_LINK * np.minimum(c[1:], c[:-1])).all())


@compiled
def precondition(r: Array, c: Array, k: Array, z: Array) -> float:
    """Write z = (chain⁻¹ + diag 1/c) r, for r of sum 0, with Σ c z = 0; return r·z."""
    step = flow = mean = total = found = 0.0
    for j in range(len(r)):
        z[j] = step + r[j] / c[j]
        mean += c[j] * z[j]
        total += c[j]
        flow += r[j]
        if j + 1 < len(r):
            step -= flow / k[j]
    for j in range(len(r)):
        z[j] -= mean / total
        found += r[j] * z[j]
    return found


@compiled
def solve_columns(
    A: Array, low: Array, at: Array, p: Array, B: Array, low_b: Array, at_b: Array, q: Array, t: Array,
    a: Array, c: Array, k: Array, y: Array, enough: float, d: Array,
) -> float:  # fmt: skip
    """Solve S d = y by conjugate gradients to a preconditioned residual of ``enough`` times the first; return which."""
    d[:] = 0.0
    r, z, row, product = y - c * (y.sum() / c.sum()), np.empty_like(y), np.empty_like(a), np.empty_like(y)
    square = first = precondition(r, c, k, z)
    direction = z.copy()
    for _ in range(LINE_CG):
        if not square > enough * enough * first:
            break
        across(A, low, at, p, B, low_b, at_b, q, direction, t, row)
        row /= a
        across(B, low_b, at_b, q, A, low, at, p, row, t, product)
        product *= -1.0
        product += c * direction
        curvature = (direction * product).sum()
        if not curvature > 0.0:
            break
        length = square / curvature
        d += length * direction
        r -= length * product
        before, square = square, precondition(r, c, k, z)
        direction *= square / before
        direction += z
    return math.sqrt(max(square, 0.0) / max(first, LINE_LEAST))


@compiled
def newton(
    a: Array, y: Array, b: Array, psi: Array, tol: float,
    A: Array, low: Array, at: Array, p: Array, B: Array, low_b: Array, at_b: Array, q: Array, c: Array, k: Array,
    nodes: int, error: Array, most: int,
) -> int:  # fmt: skip
    """Find p, q, column sums c and the chain k; the error goes to error[0]. AGAIN: ψ is better, and needs new factors."""
    n, m, greatest = len(a), len(b), max(a.max(), b.max())
    row, square, moved, d, t = np.empty(n), np.empty(n), np.empty(m), np.empty(m), np.empty(nodes + BLOCK)
    p[:], q[:] = 1.0, 1.0
    for step in range(min(most, LINE_STEPS)):
        across(A, low, at, p, B, low_b, at_b, q, np.ones(m), t, row)
        p *= a / np.maximum(row, LINE_LEAST)
        across(B, low_b, at_b, q, A, low, at, p, np.ones(n), t, c)
        error[0] = np.abs(c - b).max() / greatest
        if not (math.isfinite(error[0]) and c.min() > 0.0):
            return UNSOLVED
        log_q = np.log(q)
        if log_q.max() - log_q.min() > FAR_MOVED:
            psi += log_q + np.log(b / c)  # a Sinkhorn step, after which ψ is concave
            return AGAIN
        if step == 0:
            across(A, low, at, p, B, low_b, at_b, q, y, t, row)
            across(A, low, at, p, B, low_b, at_b, q, y * y, t, square)
            row /= a
            across(B, low_b, at_b, q, A, low, at, p, np.maximum(square / a - row * row, 0.0), t, moved)
            find_chain(y, moved, k)
            if not is_linked(k, c):
                return UNSOLVED
        if error[0] <= tol:
            return DONE
        rough = (np.abs(c - b) / b).max()
        if rough > FAR_OFF and step < MOST_SINKHORN:  # Newton steps would be short: single columns are far off
            q *= b / c
            continue
        enough = min(max(rough, 0.3 * tol / rough, 1e-3), 0.1)
        solve_columns(A, low, at, p, B, low_b, at_b, q, t, a, c, k, b - c, enough, d)
        spread_d = max(d.max() - d.min(), LINE_LEAST)
        q *= np.exp(d * (math.log1p(spread_d) / spread_d))
    return UNSOLVED
