r"""Factors of Gaussian plans between sorted points of a line: P_ij = a_i b_j exp(φ_i + ψ_j + 2 x_i y_j/λ) in O(n) numbers.

**Nodes.** With Φ_i = φ_i + x_i²/λ and Ψ_j = ψ_j + y_j²/λ the exponent is Φ_i + Ψ_j − (x_i − y_j)²/λ. A Gaussian is the
integral of two: with nodes z_k, a distance δ apart,

    exp(−(x − y)²/λ) = δ √(4/(πλ)) Σ_k exp(−2 (x − z_k)²/λ) exp(−2 (y − z_k)²/λ) (1 + e),   |e| ≤ 2 Σ_h≥1 exp(−(π h/δ)² λ/4),

since the exponents add up to −(x − y)²/λ − 4 (z_k − (x + y)/2)²/λ, and the trapezoidal rule of a Gaussian has the relative
error e, whatever x and y. δ is chosen for e = ``loss``. So P = A Bᵀ, up to a factor of each row, with

    A_ik = a_i exp(Φ_i − 2 (x_i − z_k)²/λ − σ_k),    B_jk = b_j exp(Ψ_j − 2 (y_j − z_k)²/λ + σ_k),

and σ_k = max_i Φ_i − 2 (x_i − z_k)²/λ keeps both in range.

**Bands.** Entries all of whose products are below ``loss`` times the greatest of their row (in B: column) are left out. φ
and ψ are concave (minus logarithms of sums of exponentials of linear functions), so what the columns add to row i rises and
falls along j, and where it does so moves with i: two pointers find all bands in O(n + m). Some 20 nodes are left for each
point, whatever λ. Bands have multiples of `BLOCK` entries, which the compiler makes a single instruction.

**Scale.** x s and y/s have the same products: s brings the middle halves of x and y to one length.
"""

from __future__ import annotations

import math

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.types import Array

LONGEST_LINE = 64  # nodes for each point, at most: points so far apart, for their blur, are no case for this
BLOCK = 8  # entries of a band are multiples of it
U8 = np.uint64(BLOCK)  # unsigned: Python's negative indices would be looked for
ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN = (np.uint64(k) for k in range(1, 8))
FOUND, NO_ROOM, TOO_LONG = 0, 1, 2


@compiled
def _reach(x: Array, y: Array, w: Array, c: float, far: float, best: Array, low: Array, high: Array) -> None:
    """Write for every x_i the greatest of w_j − c (x_i − y_j)², and the first and last j within ``far`` of it."""
    j = first = last = 0
    for i in range(len(x)):
        top = w[j] - c * (x[i] - y[j]) ** 2
        while j + 1 < len(y):
            following = w[j + 1] - c * (x[i] - y[j + 1]) ** 2
            if following < top:
                break
            top, j = following, j + 1
        while first < j and w[first] - c * (x[i] - y[first]) ** 2 < top - far:
            first += 1
        last = max(last, j)
        while last + 1 < len(y) and w[last + 1] - c * (x[i] - y[last + 1]) ** 2 >= top - far:
            last += 1
        best[i], low[i], high[i] = top, first, last


@compiled
def _bands(
    x: Array, y: Array, w: Array, least: Array, first_y: Array, last_y: Array, margin: float, z: Array, tau: Array,
    c: float, low: Array, at: Array,
) -> None:  # fmt: skip
    """Write the first node of every x_i, and where its numbers begin [n + 1].

    Surely enough are nodes within ``margin`` of the middles between x_i and its y; the ends below ``least`` are cut off.
    """
    spacing, total = z[1] - z[0], 0
    for i in range(len(x)):
        middle, end = (x[i] + y[first_y[i]]) / 2, (x[i] + y[last_y[i]]) / 2
        first = min(max(math.ceil((middle - margin - z[0]) / spacing), 0), len(z) - 1)
        last = min(max(int((end + margin - z[0]) / spacing), first), len(z) - 1)
        while first < last and w[i] - c * (x[i] - z[first]) ** 2 + tau[first] < least[i]:
            first += 1
        while first < last and w[i] - c * (x[i] - z[last]) ** 2 + tau[last] < least[i]:
            last -= 1
        low[i], at[i] = first, total
        total += (last - first + BLOCK) // BLOCK * BLOCK
    at[len(x)] = total


@compiled
def _exponents(x: Array, w: Array, z: Array, shift: Array, c: float, low: Array, at: Array, A: Array) -> None:
    """Write w − c (x − z)² + shift; −∞ beyond the last node."""
    for i in range(len(x)):
        first = low[i] - at[i]
        inside = min(at[i + 1], len(z) - first)
        for e in range(at[i], inside):
            A[e] = w[i] - c * (x[i] - z[first + e]) ** 2 + shift[first + e]
        A[inside : at[i + 1]] = -np.inf


@compiled
def find_factors(
    x: Array, log_a: Array, y: Array, log_b: Array, psi: Array, lam: float, loss: float,
    low: Array, at: Array, A: Array, low_b: Array, at_b: Array, B: Array, nodes: Array,
) -> int:  # fmt: skip
    """Write the bands and the logarithms of both factors of a line with concave ψ; the number of nodes in nodes[0]."""
    n, m = len(x), len(y)
    i, j = n // 4, m // 4
    length_x, length_y = x[n - 1 - i] - x[i], y[m - 1 - j] - y[j]
    s = math.sqrt(length_y / length_x) if length_x > 1e-4 * length_y else 1.0
    x, y, c = x * s, y / s, 2 / lam
    spacing = math.pi * math.sqrt(lam / (4 * math.log(2 / loss)))
    far = 1 - math.log(loss) + max(log_a.max() - log_a.min(), log_b.max() - log_b.min())
    margin = math.sqrt(far * lam / 4)
    best_x, from_x, to_x = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    best_y, from_y, to_y = np.empty(m), np.empty(m, np.int64), np.empty(m, np.int64)
    w_y = psi + y * y / lam
    _reach(x, y, w_y, 1 / lam, far, best_x, from_x, to_x)
    w_x = -best_x
    _reach(y, x, w_x, 1 / lam, far, best_y, from_y, to_y)
    start = min(x[0] + y[from_x[0]], y[0] + x[from_y[0]]) / 2 - margin
    width = max(x[-1] + y[to_x[-1]], y[-1] + x[to_y[-1]]) / 2 + margin - start
    if not width < LONGEST_LINE * (n + m) * spacing:
        return TOO_LONG
    z = start + spacing * np.arange(int(width / spacing) + 2)
    nodes[0] = len(z)
    tau, sigma = np.empty(len(z)), np.empty(len(z))
    some, other = np.empty(len(z), np.int64), np.empty(len(z), np.int64)
    _reach(z, y, w_y, c, far, tau, some, other)
    _reach(z, x, w_x, c, far, sigma, some, other)
    _bands(x, y, w_x, np.full(n, -far), from_x, to_x, margin, z, tau, c, low, at)
    _bands(y, x, w_y, w_y + best_y - far, from_y, to_y, margin, z, sigma, c, low_b, at_b)
    if at[n] > len(A) or at_b[m] > len(B):
        return NO_ROOM
    _exponents(x, w_x + log_a, z, -sigma, c, low, at, A)
    _exponents(y, w_y + log_b, z, sigma, c, low_b, at_b, B)
    return FOUND


@compiled
def gather(A: Array, low: Array, at: Array, t: Array, out: Array) -> None:
    """Write A t."""
    for i in range(len(out)):
        e, end, k = np.uint64(at[i]), np.uint64(at[i + 1]), np.uint64(low[i])
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
        while e < end:
            s0 += A[e] * t[k]
            s1 += A[e + ONE] * t[k + ONE]
            s2 += A[e + TWO] * t[k + TWO]
            s3 += A[e + THREE] * t[k + THREE]
            s4 += A[e + FOUR] * t[k + FOUR]
            s5 += A[e + FIVE] * t[k + FIVE]
            s6 += A[e + SIX] * t[k + SIX]
            s7 += A[e + SEVEN] * t[k + SEVEN]
            e, k = e + U8, k + U8
        out[i] = ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@compiled
def spread(A: Array, low: Array, at: Array, w: Array, t: Array) -> None:
    """Write Aᵀ w, which has room for a block beyond the last node."""
    t[:] = 0.0
    for i in range(len(w)):
        e, end, k = np.uint64(at[i]), np.uint64(at[i + 1]), np.uint64(low[i])
        while e < end:
            for u in range(BLOCK):
                t[k + np.uint64(u)] += A[e + np.uint64(u)] * w[i]
            e, k = e + U8, k + U8
