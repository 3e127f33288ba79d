r"""Triton kernels of `balance` for small problems (balance_cpu.py on CUDA): a program holds several problems in registers.

Problems are on the last axis. Triton lays threads along what is consecutive in memory: where problems are, each thread has a
whole problem, and no sum over rows or columns leaves it; where the entries of a row are, a warp has a problem or several.
A thread should have one of them, not four at once: so how rows lie (``step_i``) is not known when a kernel is compiled.

What differs from balance_cpu.py is the linear system S d = y, S = diag(c) − Pᵀ diag(1/r) P: conjugate gradients,
preconditioned by 1/c, need only products with P over its two axes, so no vector ever changes the threads that hold it.
After any number of their steps d·y = d·S d, all that the length log(1 + κ)/κ of a Newton step is derived from. The null
vector 1 is kept out by taking Σρ/Σc off ρ/c, ρ the residual.

Short moves multiply P itself. Going through X + f + g would round it by 6·10⁻⁸ max(|X|, |f|, |g|) in every step, and no sum
could be trusted beyond that; long ones have to, so that what has underflowed can come back.

Weights are in units of the problem's greatest. −∞ is LEAST here, as differences are taken. Logits that are nan or +∞, and
rows or columns with mass all of whose entries are forbidden, make the error ∞; they are named afterwards.
"""

from __future__ import annotations

from otformer.transport.costs.gpu import language
from otformer.transport.costs.gpu.language import constant, tl
from otformer.transport.costs.gpu.pass_kernels import LEAST

SMALLEST = constant(1e-30)  # stands for 0 where it divides
LONG_MOVE = constant(1.0)  # of a step in g
GREATEST = constant(1e30)  # logits from here on are no numbers to calculate with
jit, kernel = language.jit(), language.jit("step_i")


@jit
def read(
    logits, temperature, a, b, count, n, m, step_k, step_i, step_j, heads, rows_a, rows_b,
    BATCH: tl.constexpr, N: tl.constexpr, M: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """X [N, M, BATCH] = (logits − max)/τ, LEAST where P is 0; τ, the greatest weight [BATCH]; weights in its units; bad."""
    k = tl.program_id(0).to(tl.int64) * BATCH + tl.arange(0, BATCH)
    i, j = tl.arange(0, N).to(tl.int64), tl.arange(0, M).to(tl.int64)  # times a step: beyond 2³¹ where problems are many
    tau = tl.load(temperature + k % heads).to(NUMBERS)
    rows, columns = (i < n)[:, None] & (k < count)[None, :], (j < m)[:, None] & (k < count)[None, :]
    w_a = tl.load(a + (k % rows_a)[None, :] * n + i[:, None], mask=rows, other=0.0).to(NUMBERS)
    w_b = tl.load(b + (k % rows_b)[None, :] * m + j[:, None], mask=columns, other=0.0).to(NUMBERS)
    scale = tl.maximum(tl.maximum(tl.max(w_a, 0), tl.max(w_b, 0)), SMALLEST)
    w_a, w_b = w_a / scale[None, :], w_b / scale[None, :]
    w_b = w_b * (tl.sum(w_a, 0) / tl.maximum(tl.sum(w_b, 0), SMALLEST))[None, :]
    there = (w_a > 0)[:, None, :] & (w_b > 0)[None, :, :]
    place = k[None, None, :] * step_k + i[:, None, None] * step_i + j[None, :, None] * step_j
    X = tl.load(logits + place, mask=there, other=0.0).to(NUMBERS)
    wrong = there & ~(X < GREATEST)  # of nan too
    there = there & (X > LEAST) & (X < GREATEST)
    top = tl.max(tl.max(tl.where(there, X, LEAST), 0), 0)
    X = tl.where(there, tl.maximum((X - top[None, None, :]) / tau[None, None, :], 0.9 * LEAST), LEAST)
    bad = tl.max(tl.max(wrong.to(tl.int32), 0), 0)
    bad = tl.maximum(bad, tl.max(((w_a > 0) & (tl.max(X, 1) <= LEAST)).to(tl.int32), 0))
    bad = tl.maximum(bad, tl.max(((w_b > 0) & (tl.max(X, 0) <= LEAST)).to(tl.int32), 0))
    return k, i, j, X, tau, scale, w_a, w_b, bad


@jit
def conjugate(P, r, c, y, going, enough, most):
    """d [M, BATCH] with S d = y, to ``enough`` of y in the preconditioned norm, in ``most`` steps at most."""
    inverse = tl.where(c > 0, 1 / tl.maximum(c, SMALLEST), 0.0)
    total = tl.maximum(tl.sum(c, 0), SMALLEST)
    rho, d = tl.where(c > 0, y, 0.0), y * 0
    z = tl.where(c > 0, rho * inverse - (tl.sum(rho, 0) / total)[None, :], 0.0)
    s, size = z, tl.sum(rho * z, 0)
    target = size * enough
    going = going & (size > 0)
    step = 0
    while (step < most) & (tl.max(going.to(tl.int32), 0) > 0):
        image = c * s - tl.sum(P * (tl.sum(P * s[None, :, :], 1) / r)[:, None, :], 0)
        bend = tl.sum(s * image, 0)
        going = going & (bend > 0)  # unless it moves mass between parts that exchange none
        alpha = tl.where(going, size / tl.where(going, bend, 1.0), 0.0)
        d += alpha[None, :] * s
        rho -= alpha[None, :] * image
        z = tl.where(c > 0, rho * inverse - (tl.sum(rho, 0) / total)[None, :], 0.0)
        before, size = size, tl.sum(rho * z, 0)
        s = z + tl.where(going, size / tl.where(going, before, 1.0), 0.0)[None, :] * s
        going = going & (size > target)
        step += 1
    return d


@kernel
def solve(
    logits, temperature, a, b, plan, f_out, g_out, error_out,
    count, n, m, step_k, step_i, step_j, heads, rows_a, rows_b, tol, sinkhorn, most,
    BATCH: tl.constexpr, N: tl.constexpr, M: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """P [B, n, m], f [B, n], g [B, m] and the error [B], as in `balance_cpu.solve_small`."""
    k, i, j, X, _, scale, w_a, w_b, bad = read(
        logits, temperature, a, b, count, n, m, step_k, step_i, step_j, heads, rows_a, rows_b, BATCH, N, M, NUMBERS
    )
    top = tl.max(X, 1)
    sums = tl.maximum(tl.sum(tl.exp(X - top[:, None, :]), 1), SMALLEST)
    f = tl.where(w_a > 0, tl.log(tl.maximum(w_a, SMALLEST) / sums) - top, 0.0)
    Y = tl.maximum(X + f[:, None, :], LEAST)
    top = tl.max(Y, 0)
    sums = tl.maximum(tl.sum(tl.exp(Y - top[None, :, :]), 0), SMALLEST)
    g = tl.where(w_b > 0, tl.log(tl.maximum(w_b, SMALLEST) / sums) - top, 0.0)
    P, error, done, going = tl.exp(X + f[:, None, :] + g[None, :, :]), scale, 0, 1
    while going > 0:
        ratio = tl.where(w_a > 0, w_a / tl.maximum(tl.sum(P, 1), SMALLEST), 1.0)
        f += tl.log(ratio)
        P = P * ratio[:, None, :]
        c = tl.sum(P, 0)
        error = tl.max(tl.abs(w_b - c), 0)
        active = (error > tol) & (bad == 0)
        done += 1
        going = tl.where(done < most, tl.max(active.to(tl.int32), 0), 0)
        if going > 0:
            if done <= sinkhorn:
                d = tl.where(w_b > 0, tl.log(tl.maximum(w_b, SMALLEST) / tl.maximum(c, SMALLEST)), 0.0)
            else:
                d = conjugate(P, tl.maximum(w_a, SMALLEST), c, w_b - c, active, 1e-6, M)
                high, low = tl.max(tl.where(w_b > 0, d, LEAST), 0), tl.min(tl.where(w_b > 0, d, -LEAST), 0)
                spread = tl.maximum(high - low, 1e-6)
                d = d * (tl.log(1 + spread) / spread)[None, :]
            d = tl.where(active[None, :], d, 0.0)
            g += d
            if tl.max(tl.max(tl.abs(d), 0), 0) > LONG_MOVE:
                P = tl.exp(X + f[:, None, :] + g[None, :, :])
            else:
                P = P * tl.exp(d)[None, :, :]
    inside = (i < n)[:, None, None] & (j < m)[None, :, None] & (k < count)[None, None, :]
    kind = plan.dtype.element_ty
    place = k[None, None, :] * step_k + i[:, None, None] * step_i + j[None, :, None] * step_j
    tl.store(plan + place, (P * scale[None, None, :]).to(kind), mask=inside)
    f = tl.where(w_a > 0, f + tl.log(scale)[None, :], 0.0)
    tl.store(f_out + k[None, :] * n + i[:, None], f, mask=(i < n)[:, None] & (k < count)[None, :])
    tl.store(g_out + k[None, :] * m + j[:, None], g, mask=(j < m)[:, None] & (k < count)[None, :])
    tl.store(error_out + k, tl.where(bad > 0, float("inf"), error), mask=k < count)


@kernel
def backward(
    gradient, logits, temperature, a, b, f_in, g_in, moved, w_u_out, w_v_out, heat,
    count, n, m, step_k, step_i, step_j, heads, rows_a, rows_b, enough,
    BATCH: tl.constexpr, N: tl.constexpr, M: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Gradients in logits [B, n, m], a [B, n], b [B, m] and τ [B]; balance.py has their derivation."""
    k, i, j, X, tau, scale, _w_a, _w_b, _bad = read(
        logits, temperature, a, b, count, n, m, step_k, step_i, step_j, heads, rows_a, rows_b, BATCH, N, M, NUMBERS
    )
    rows, columns = (i < n)[:, None] & (k < count)[None, :], (j < m)[:, None] & (k < count)[None, :]
    f = tl.load(f_in + k[None, :] * n + i[:, None], mask=rows, other=0.0) - tl.log(scale)[None, :]
    g = tl.load(g_in + k[None, :] * m + j[:, None], mask=columns, other=0.0)
    P = tl.exp(X + f[:, None, :] + g[None, :, :])
    place = k[None, None, :] * step_k + i[:, None, None] * step_i + j[None, :, None] * step_j
    G = tl.load(gradient + place, mask=P > 0, other=0.0).to(NUMBERS)
    r, c = tl.maximum(tl.sum(P, 1), SMALLEST), tl.sum(P, 0)
    g_u, g_v = tl.sum(P * G, 1), tl.sum(P * G, 0)
    y = g_v - tl.sum(P * (g_u / r)[:, None, :], 0)
    w_v = conjugate(P, r, c, y, k < count, enough, 2 * M)
    w_u = (g_u - tl.sum(P * w_v[None, :, :], 1)) / r
    Y = P * (G - w_u[:, None, :] - w_v[None, :, :]) * (scale / tau)[None, None, :]
    tl.store(heat + k, -tl.sum(tl.sum(tl.where(P > 0, Y * X, 0.0), 0), 0), mask=k < count)
    inside = rows[:, None, :] & columns[None, :, :]
    tl.store(moved + place, Y.to(moved.dtype.element_ty), mask=inside)
    tl.store(w_u_out + k[None, :] * n + i[:, None], w_u, mask=rows)
    tl.store(w_v_out + k[None, :] * m + j[:, None], w_v, mask=columns)
