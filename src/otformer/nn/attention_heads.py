r"""The heads of `SinkhornAttention`, all problems of one size: with their matrices, or without.

Streamed, the bias of a key is one more feature of it, [q_i, 1]·[k_j, g_j] = q_i·k_j + g_j, so the last step is torch's own
fused attention. In bfloat16 g has three features, g = g' + g'' + g''', each the rounding error of those before: a bias with
eight digits of two would put the column sums off by a percent.

float32 rounds logits there by 6·10⁻⁸ of their size, and column sums move with them. Where tol is missed by that a CPU takes
the last step in float64.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from otformer import callers
from otformer.errors import ArgumentError
from otformer.nn.attention_bias import BiasGoal, KeyBias, Passes
from otformer.nn.attention_inputs import QKV
from otformer.nn.balance import balance

STREAM_FROM = 2**18  # entries of the matrix of a head
FEATURES_OF = {torch.bfloat16: 3, torch.float32: 1, torch.float64: 1}  # that a bias takes
ABSENT_BIAS = -1e30  # the bias of an absent key: a feature must not be −∞
NO_KEY = "attn_mask, with key_padding_mask, leaves query {} no key to attend to, in head {} of the batch's"
WIDTH_OF = 8  # what fused kernels want the number of features to be a multiple of


def _check_products(heads: QKV) -> None:
    """Refuse numbers so large that gradients, sums of products of values with keys and queries over all pairs, overflow."""
    most = torch.finfo(torch.promote_types(heads.v.dtype, torch.float32)).max
    q, k, v = (float(t.detach().abs().max()) if t.numel() else 0.0 for t in (heads.q, heads.k, heads.v))
    if max(q, k, 1.0) * max(v, 1.0) * heads.q.shape[1] * heads.k.shape[1] * heads.k.shape[2] > most:
        raise ValueError(
            f"query, key and value are too large for {heads.v.dtype}: {q:.2g}, {k:.2g} and {v:.2g} when projected"
        )


def heads_attend(heads: QKV, module: Any, need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """Return outputs [B, n, d], 0 for absent queries; and the matrices [B, n, m], where needed."""
    for name, t in (("query", heads.q), ("key", heads.k), ("value", heads.v)):
        if not bool(t.isfinite().all()):
            raise ArgumentError(name, f"be finite, and its projection within {t.dtype}", "nan or inf in the projection")
    _check_products(heads)
    dropout = module.dropout if module.training else 0.0
    rho = torch.inf if module.unbalanced is None else module.unbalanced / module.temperature
    goal = BiasGoal(rho, module.tol, module.max_depth)
    if 0 in heads.q.shape:
        empty = heads.q.new_zeros(*heads.rows.shape, heads.key_mask.shape[1])
        return heads.q, empty if need_weights else None
    with torch.autocast(heads.q.device.type, enabled=False):
        if _streams(heads, module.executor, need_weights, dropout):
            return streamed(heads, goal, dropout), None
        A = matrices(heads, goal).to(heads.v.dtype)
        A = F.dropout(A, dropout) if dropout else A
        return A @ heads.v, A if need_weights else None


def _streams(heads: QKV, executor: str, need_weights: bool, dropout: float) -> bool:
    """Return whether to form no matrices; raise where that is asked for and impossible."""
    reasons = {
        "need_weights=True returns it": need_weights,
        "an attn_mask that is not causal, or one with added keys, is as large": heads.mask is not None,
        "dropout on a CPU draws its entries": bool(dropout) and not heads.q.is_cuda,
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    if executor == "stream" and why:
        raise ValueError(f"executor='stream' does not hold the matrix, but {why}")
    large = heads.rows.shape[1] * heads.key_mask.shape[1] >= STREAM_FROM
    return executor == "stream" or (executor == "auto" and large and why is None)


def matrices(heads: QKV, goal: BiasGoal) -> Tensor:
    """Form A [B, n, m], in float32 at least."""
    dtype = torch.promote_types(heads.q.dtype, torch.float32)
    X = heads.q.to(dtype) @ heads.k.to(dtype).mT + heads.key_mask[:, None].to(dtype)
    if heads.mask is not None:
        X = X + heads.mask.to(dtype)
    n, m = X.shape[1:]
    if heads.causal:
        X = X.masked_fill(torch.ones(n, m, dtype=torch.bool, device=X.device).triu(1), -torch.inf)
    X = X.masked_fill(~heads.rows[:, :, None], 0.0)
    _check_logits(X)
    passes = Passes(X, None, torch.where(heads.key_mask > -torch.inf, 0.0, -torch.inf), heads.rows)
    if goal.rho == torch.inf:
        return _rows_exact(_balanced(X, heads.rows, passes.target, goal), heads.rows, goal.tol)
    g = KeyBias.apply(X, None, passes.key_mask, heads.rows, False, goal)
    # In float64, for X + g is as large as logits are, and its rounding in float32 would be seen in the columns.
    return (X.double() + g[:, None]).softmax(2).to(dtype).masked_fill(~heads.rows[:, :, None], 0.0)


def _balanced(X: Tensor, rows: Tensor, b: Tensor, goal: BiasGoal) -> Tensor:
    """Call `balance`, whose tol is in units of the greatest weight, max(1, b): min(b, 1/b) tol keeps sums in 1 ± tol."""
    top = b.amax(1)
    one = torch.ones(1, dtype=torch.float64, device=X.device)
    return balance(X, one, rows.double(), b, goal.tol * float(torch.minimum(top, 1 / top).min()), goal.max_depth)


def _rows_exact(A: Tensor, rows: Tensor, tol: float) -> Tensor:
    """Normalise rows that did not converge, so that outputs stay averages."""
    sums = torch.where(rows, A.sum(2), 1.0)[:, :, None]
    if bool(((sums - 1).abs() <= tol).all()):
        return A
    return A / sums.clamp_min(torch.finfo(A.dtype).tiny)


def _check_logits(X: Tensor) -> None:
    """Refuse nan, +∞ and rows without a key."""
    top = X.detach().amax(2)
    if bool((top == -torch.inf).any()):
        k, i = (top == -torch.inf).nonzero()[0].tolist()
        raise ValueError(NO_KEY.format(i, k))
    if not bool(top.isfinite().all()):
        raise ArgumentError("query and key", "have finite products", f"some beyond {X.dtype}", "scale them down")


def streamed(heads: QKV, goal: BiasGoal, dropout: float) -> Tensor:
    """Compute A V [B, n, d] without A: a block of rows of it at a time, or a tile in torch's kernels."""
    passes = Passes(heads.q, heads.k, heads.key_mask, heads.rows, heads.causal)
    if not math.isfinite(passes.to(torch.promote_types(heads.q.dtype, torch.float32)).spread()):
        raise ArgumentError("query and key", "have finite products", f"some beyond {heads.q.dtype}", "scale them down")
    if heads.causal:
        _check_first_keys(heads)
    g = KeyBias.apply(heads.q, heads.k, heads.key_mask, heads.rows, heads.causal, goal)
    dtype = heads.v.dtype if heads.v.dtype in FEATURES_OF else torch.float32
    if dtype == torch.float32 and not _single_will_do(passes, g, goal):
        dtype = torch.float64
    bias = torch.where(heads.key_mask > -torch.inf, heads.key_mask + g, ABSENT_BIAS)
    pieces = [bias.to(dtype)]
    for _ in range(FEATURES_OF[dtype] - 1):  # the first has the gradient
        pieces.append((bias.detach() - sum(p.detach().double() for p in pieces)).to(dtype))
    d, more = heads.v.shape[2], len(pieces)
    width = -(d + more) // WIDTH_OF * -WIDTH_OF
    q = F.pad(F.pad(heads.q.to(dtype), (0, more), value=1.0), (0, width - d - more))
    k = F.pad(torch.cat([heads.k.to(dtype), torch.stack(pieces, 2)], 2), (0, width - d - more))
    v = F.pad(heads.v.to(dtype), (0, width - d))
    q, k, v = q[None], k[None], v[None]  # problems as heads
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=heads.causal, scale=1.0)
    return out[0, :, :, :d].masked_fill(~heads.rows[:, :, None], 0.0).to(heads.v.dtype)


@torch.no_grad()
def _single_will_do(passes: Passes, g: Tensor, goal: BiasGoal) -> bool:
    """Return whether columns are within tol where logits are rounded to float32, as in the last step.

    On a GPU nothing else does without the matrix: the answer is yes, and a warning says what is missed.
    """
    single = passes.to(torch.float32)
    off = max(float(single.at(part).residual(g[part], 1 / goal.rho).abs().max()) for part in single.parts())
    if off > goal.tol and g.is_cuda:
        callers.warn(
            f"float32 rounds the logits: column sums off by a factor of up to {math.exp(min(off, 700.0)):.7g}, "
            f"tol is {goal.tol:g}; raise tol or the temperature"
        )
    return off <= goal.tol or g.is_cuda


def _check_first_keys(heads: QKV) -> None:
    """Refuse present queries that come before the first present key, under a causal mask: they see none."""
    first = (heads.key_mask > -torch.inf).to(torch.uint8).argmax(1, keepdim=True)
    blind = heads.rows & (torch.arange(heads.rows.shape[1], device=first.device) < first)
    if bool(blind.any()):
        k, i = blind.nonzero()[0].tolist()
        raise ValueError(NO_KEY.format(i, k))
