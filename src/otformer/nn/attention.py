"""`SinkhornAttention`: torch.nn.MultiheadAttention whose keys are attended to equally, exactly or as far as it pays."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from otformer import callers, checks
from otformer.memory import Need, needs, shape
from otformer.nn import attention_inputs, inputs
from otformer.nn.attention_heads import heads_attend
from otformer.nn.attention_inputs import QKV

MOST_CHANNELS = 2**20  # of a token: weights have the square of that


class SinkhornAttention(nn.MultiheadAttention):
    r"""Multi-head attention whose matrices also have fixed column sums: a drop-in for ``torch.nn.MultiheadAttention``.

    In each head, with X_ij = q_i·k_j/(τ √d) + masks, rows of sum 1 and b_j = (queries there)/(keys there), A maximises

        Σ_ij A_ij X_ij − Σ_ij A_ij log A_ij      over A ≥ 0 with A1 = 1 and Aᵀ1 = b,

    n times the entropic plan of uniform weights: doubly stochastic if there are as many queries as keys. With
    ``unbalanced=ρ`` column sums are not fixed but have the penalty (ρ/τ) KL(Aᵀ1|b). Either way A_ij ∝ exp(X_ij + g_j):
    softmax attention with a bias for each key, found to ``tol`` in every forward; ρ → 0 is softmax attention
    (nn/attention_bias.py).

    All arguments and parameters are those of ``MultiheadAttention``, whose ``state_dict`` loads here and back, and
    unbalanced : ρ, in the units of q·k/√d; None for exact columns.
    temperature : τ.
    tol : every column sum is within a factor 1 ± tol of its target, or a warning gives the deviation. Rows always sum to 1
        within tol, even if columns cannot reach their sums. Gradients are implicit.
    max_depth : the most passes over the matrix.
    executor : "dense" holds the n × m matrix of every head, "stream" never does, "auto" streams from 2¹⁸ entries per head
        on, if it can: need_weights=False, no attn_mask but the causal one, no dropout on a CPU.

    Causal masks: balanced attention refuses them, because a doubly stochastic lower triangular matrix is the identity. With
    ``unbalanced`` they hold for A, but g_j depends on all queries: *later tokens do reach earlier ones* through g, and a
    warning says so. Do not use such attention in a model that predicts the next token.

    >>> attention = SinkhornAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
    >>> out, weights = attention(x, x, x)
    >>> out.shape, weights.shape
    (torch.Size([1, 5, 8]), torch.Size([1, 5, 5]))
    >>> [torch.allclose(weights.sum(axis), torch.ones(5), atol=1e-5) for axis in (1, 2)]
    [True, True]
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        unbalanced: float | None = None,
        temperature: float = 1.0,
        tol: float = 1e-6,
        max_depth: int = 10_000,
        executor: str = "auto",
    ) -> None:
        checks.count("embed_dim", embed_dim, most=MOST_CHANNELS)
        if embed_dim % checks.count("num_heads", num_heads):
            raise checks.ArgumentError("num_heads", f"divide embed_dim = {embed_dim}", num_heads)
        if not 0 <= checks.not_negative("dropout", dropout) < 1:
            raise checks.ArgumentError("dropout", "be at least 0 and below 1", repr(dropout))
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        # TransformerEncoderLayer reads this before it computes softmax attention itself, in one kernel, from our weights.
        self._qkv_same_embed_dim = False
        self.unbalanced = None if unbalanced is None else checks.positive("unbalanced", unbalanced)
        self.temperature, self.tol = checks.positive("temperature", temperature), checks.positive("tol", tol)
        self.max_depth = checks.count("max_depth", max_depth, least=2)
        self.executor = checks.choice("executor", executor, ("auto", "dense", "stream"))

    @needs(lambda self, query, key, **_: self._need(query, key))
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        query_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """As `MultiheadAttention.forward`: (output, weights), weights None unless ``need_weights``.

        key_padding_mask, attn_mask : True, or a number of −10⁴ or less, forbids; other numbers are added to X. Keys
            forbidden to all queries are ignored.
        is_causal : row i sees keys up to i; attn_mask is then ignored, and may be left out.
        query_padding_mask : (N, L), True for absent queries: they are ignored, and their weights are 0. By default the
            key_padding_mask if query and key are the same tensor, otherwise no mask.
        """
        attention_inputs.refuse_vmap()
        if any(isinstance(t, Tensor) and t.is_nested for t in (query, key, value)):
            return self._nested(query, key, value, key_padding_mask, attn_mask, is_causal, need_weights)
        alone = isinstance(query, Tensor) and query.ndim == 2
        same = query is key and key is value and query_padding_mask is None  # a key need not be a query
        given = attention_inputs.read(
            query, key, value, key_padding_mask, query_padding_mask, attn_mask, is_causal,
            (self.embed_dim, self.kdim, self.vdim), self.num_heads, self.batch_first,
        )  # fmt: skip
        self._accept(given)
        q, k, v = self._projected(given, same)
        core = torch.compiler.disable(heads_attend) if torch.compiler.is_compiling() else heads_attend
        out, weights = core(self._heads(given, q, k, v), self, need_weights)
        out = self.out_proj(out.unflatten(0, (-1, self.num_heads)).transpose(1, 2).flatten(2))
        if weights is not None:
            weights = weights.unflatten(0, (-1, self.num_heads))
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights[0] if alone else weights
        return out[0] if alone else out if self.batch_first else out.transpose(0, 1), weights

    def _need(self, query: Tensor, key: Tensor) -> Need:
        """Estimate the memory of every head's matrix; without matrices much less is needed."""
        if query.is_nested:
            N, L = query.size(0), max(len(t) for t in query.unbind())
            S = L
        else:
            (N, L, _), (_, S, _) = shape(query, 3), shape(key, 3)
            if query.ndim == 3 and not self.batch_first:
                N, L, S = L, N, len(key)
        return inputs.need((N, self.num_heads), L, S, 3, "executor='stream' with need_weights=False forms none")

    def _accept(self, given: QKV) -> None:
        """Check what depends on the module and the input together."""
        checks.positive("temperature", self.temperature)  # it is an attribute that can be set
        weight = self.out_proj.weight
        if given.q.dtype != weight.dtype and not torch.is_autocast_enabled(given.q.device.type):
            expected = f"be {weight.dtype} as the weights are, or under autocast"
            raise checks.ArgumentError("query", expected, given.q.dtype)
        if not given.causal:
            return
        if self.unbalanced is None and given.q.shape[1] <= given.k.shape[1] and not self._added:
            raise ValueError(
                "attn_mask is causal, and unbalanced is None: a doubly stochastic lower triangular matrix is the identity; "
                "give unbalanced, or no causal mask"
            )
        callers.warn(
            "with a causal mask attention only looks back, but the biases of its keys depend on later queries: "
            "later tokens change earlier outputs"
        )

    @property
    def _added(self) -> int:
        """Count the keys that are added to those given."""
        return (self.bias_k is not None) + self.add_zero_attn

    def _projected(self, given: QKV, same: bool) -> list[Tensor]:
        """Project to q [N, L, E], k and v [N, S, E]."""
        if self.in_proj_weight is not None and same:
            return list(F.linear(given.q, self.in_proj_weight, self.in_proj_bias).chunk(3, -1))
        own = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        weights = own if self.in_proj_weight is None else self.in_proj_weight.chunk(3)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [F.linear(t, w, b) for t, w, b in zip((given.q, given.k, given.v), weights, biases, strict=True)]

    def _heads(self, given: QKV, q: Tensor, k: Tensor, v: Tensor) -> QKV:
        """Make each head of each sequence a problem of its own, added keys among its keys."""
        N, H = len(q), self.num_heads
        mask, causal, key_mask = given.mask, given.causal, given.key_mask
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (torch.cat([t, more.expand(N, 1, -1).to(t)], 1) for t, more in ((k, self.bias_k), (v, self.bias_v)))
        if self.add_zero_attn:
            k, v = (F.pad(t, (0, 0, 0, 1)) for t in (k, v))
        if self._added:  # every query sees these
            if causal:
                later = torch.ones(q.shape[1], key_mask.shape[1], dtype=torch.bool, device=q.device).triu(1)
                mask, causal = torch.zeros(later.shape, device=q.device).masked_fill(later, -torch.inf)[None], False
            key_mask, mask = F.pad(key_mask, (0, self._added)), None if mask is None else F.pad(mask, (0, self._added))
        q = q * (1 / (math.sqrt(self.head_dim) * self.temperature))
        q, k, v = (t.unflatten(2, (H, -1)).transpose(1, 2).flatten(0, 1) for t in (q, k, v))
        return QKV(q, k, v, key_mask.repeat_interleave(H, 0), given.rows.repeat_interleave(H, 0), mask, causal)

    def _nested(
        self, query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, is_causal: bool, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within sequences of different lengths; the output is nested again, without weights, as torch's is."""
        if padding is not None or mask is not None or need_weights:
            raise checks.ConflictError("a nested query", "key_padding_mask, attn_mask or need_weights=True")
        padded, absent = attention_inputs.nested(query, key, value)
        given = padded if self.batch_first else padded.transpose(0, 1)
        out, _ = self.forward(given, given, given, absent, need_weights=False, is_causal=is_causal)
        out = out if self.batch_first else out.transpose(0, 1)
        return torch.nested.as_nested_tensor([t[~gone] for t, gone in zip(out, absent, strict=True)]), None

    def _reset_parameters(self) -> None:
        """Run torch's, which reads the attribute that __init__ sets to False."""
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = False

    def extra_repr(self) -> str:
        columns = "" if self.unbalanced is None else f", unbalanced={self.unbalanced:g}"
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}{columns}, tol={self.tol:g}"
