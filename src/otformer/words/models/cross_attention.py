r"""Cross-attention of a Marian translator as transport: softmax by another rule, the same weights.

A layer has logits L [T, S], T target positions over S source tokens, and attends with A [T, S] whose rows sum to one. Two
rules in place of softmax; both give every source token its share of attention, T/S where all are alike.

**balanced.** Columns sum to T/S: A_ti = exp(L_ti + f_t + g_i), doubly stochastic up to the ratio. One g serves all
positions, so row t depends on the rows after it, that is on target tokens that a decoder is yet to guess. **This leaks**:
with the whole target given, a position can be told of the next token; with a prefix alone, A is another matrix. The length
of the target is needed as well, and for a prefix of one position the columns leave no choice, A = 1/S.
In an iteration columns are brought to one and then rows to one: the ratio T/S is a constant, which the rows cancel. Rows are
exact. `nn.DoublyStochastic(iterations=BALANCING)` ends on columns; it computes Aᵀ from Lᵀ, column sums of one
given to it, and has checks, which wait for the device.

**online.** No row may depend on a later one. Unbalanced transport of the first t rows, the columns held to t/S softly,

    min  −⟨A, L⟩ + Σ A log A + ρ KL(Aᵀ1 ‖ t/S),      rows sum to one,

has column potentials g = −ρ log(column sum / (t/S)). Rows that were given out are not taken back: row t alone is new, and
takes g from the mass c that each source token has from the rows before, with an even share 1/S for row t itself:

    A_t = softmax(L_t − ρ log((S c_{t,i} + 1)/t)),      c_{t,i} = Σ_{s<t} A_si;      log t is the same for all i and cancels.

This is one step of mirror descent on the prefix problem, its penalty linearised at c + 1/S. The first row is softmax.
A token that has had its share (c = (t − 1)/S) keeps its logit; with ρ = 1 the odds go with 1/(S c + 1).
Rows would have to be made one by one. Instead c is that of the matrix before, starting with softmax, ROUNDS times:
row t sees rows s < t in every round, so this is causal whatever the number of rounds, and rows 1 … ROUNDS + 1 are exact.
Decoding prefix by prefix gives the rows of training. It takes the prefix, not a cache of keys: those are the earlier rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.network import alternating as sinkhorn

BALANCING = 10  # Sinkhorn iterations of the balanced rule
ROUNDS = 4  # of the online rule
STRENGTH = 1.0  # ρ of the online rule, in units of the temperature
Rule = Callable[[Tensor, Tensor, Tensor], Tensor]


def softmax(logits: Tensor, targets: Tensor, sources: Tensor) -> Tensor:
    """A [B, H, T, S] of logits; targets [B, T] and sources [B, S] are True where there is a token and no padding.

    >>> logits, there = torch.zeros(1, 1, 2, 3), torch.ones(1, 3, dtype=torch.bool)
    >>> softmax(logits, there[:, :2], there)[0, 0, 0]
    tensor([0.3333, 0.3333, 0.3333])
    """
    return _hidden(logits, sources).softmax(-1)


def balanced(logits: Tensor, targets: Tensor, sources: Tensor) -> Tensor:
    """As `softmax`, with columns that sum to the number of targets over that of sources; 0 where a target is padding.

    >>> logits, there = torch.tensor([[[[3.0, 0.0, 0.0], [3.0, 1.0, 0.0]]]]), torch.ones(1, 3, dtype=torch.bool)
    >>> balanced(logits, there[:, :2], there)[0, 0].sum(0)
    tensor([0.6667, 0.6667, 0.6667])
    """
    there = targets[:, None, :, None] & sources[:, None, None]
    return alternated(logits, there, BALANCING)


def alternated(logits: Tensor, there: Tensor, iterations: int) -> Tensor:
    """exp of logits [..., T, S] whose columns and then rows are brought to sum to one, in turn; 0 where not ``there``.

    >>> alternated(torch.tensor([[3.0, 0.0], [3.0, 1.0]]), torch.tensor(True), 30)
    tensor([[0.6225, 0.3775],
            [0.3775, 0.6225]])
    """
    for X in sinkhorn.alternated(logits.mT, there.expand(logits.shape).mT, None, None, iterations):  # noqa: B007
        pass
    return X.mT.exp()


def online(
    logits: Tensor, targets: Tensor, sources: Tensor, strength: float = STRENGTH, rounds: int | None = None
) -> Tensor:
    """As `softmax`, with less for what the rows before have attended to: see above.

    >>> logits, there = torch.tensor([[[[3.0, 0.0], [3.0, 0.0]]]]), torch.ones(1, 2, dtype=torch.bool)
    >>> online(logits, there, there)[0, 0]
    tensor([[0.9526, 0.0474],
            [0.8833, 0.1167]])
    """
    logits = _hidden(logits, sources)
    count = sources.sum(-1)[:, None, None, None]  # S
    A = logits.softmax(-1)
    earlier = torch.ones(A.shape[-2], A.shape[-2], dtype=A.dtype, device=A.device).tril(-1)  # faster than cumsum on a GPU
    for _ in range(ROUNDS if rounds is None else rounds):
        A = (logits - strength * (count * (earlier @ A)).log1p()).softmax(-1)
    return A


CROSS_RULES: dict[str, Rule] = {"softmax": softmax, "balanced": balanced, "online": online}


def _hidden(logits: Tensor, sources: Tensor) -> Tensor:
    return logits.masked_fill(~sources[:, None, None], -torch.inf)


def set_rule(network: Any, name: str) -> Any:
    """Have a MarianMTModel's cross-attention follow a rule, and say so in its configuration; returns the network.

    The network then wants whole prefixes (``use_cache=False``).
    """
    rule = CROSS_RULES[checks.choice("cross_attention", name, CROSS_RULES)]
    network.config.cross_attention = name
    network.config.use_cache = False
    decoder, seen = network.get_decoder(), _Targets(network.config.pad_token_id)
    decoder.register_forward_pre_hook(seen, with_kwargs=True)
    for layer in decoder.layers:
        layer.encoder_attn.forward = partial(_attend, layer.encoder_attn, rule, seen)
    return network


class _Targets:
    """Which target positions are there: noted when the decoder begins, since its layers are not told."""

    def __init__(self, pad: int) -> None:
        self.pad, self.there = pad, torch.ones(0, 0, dtype=torch.bool)

    def __call__(self, decoder: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        past = named.get("past_key_values")
        if past is not None and past.get_seq_length():
            raise ValueError("a translator with transport for cross-attention takes whole prefixes: use_cache must be False")
        tokens = named["input_ids"] if "input_ids" in named else given[0]
        self.there = tokens != self.pad
        self.there[:, 0] = True  # the start token is that of padding


def _attend(
    own: Any, rule: Rule, targets: _Targets, hidden_states: Tensor, key_value_states: Tensor, **named: Any
) -> tuple[Tensor, Tensor]:
    """MarianAttention's forward, with the rule in float32 where softmax stands there."""
    B, T, _ = hidden_states.shape
    q, k, v = (
        projection(x).unflatten(-1, (own.num_heads, own.head_dim)).transpose(1, 2)
        for projection, x in (
            (own.q_proj, hidden_states),
            (own.k_proj, key_value_states),
            (own.v_proj, key_value_states),
        )
    )
    logits = (q @ k.mT).float() * own.scaling  # [B, H, T, S]
    A = rule(logits, targets.there, _sources(named.get("attention_mask"), logits)).to(v.dtype)
    return own.out_proj((A @ v).transpose(1, 2).reshape(B, T, -1)), A


def _sources(mask: Tensor | None, logits: Tensor) -> Tensor:
    """[B, S] of transformers' masks [B, 1, T, S]: True or 0 where a token is, or no mask where all are."""
    if mask is None:
        return torch.ones(len(logits), logits.shape[-1], dtype=torch.bool, device=logits.device)
    row = mask[:, 0, 0].expand(len(logits), -1)
    return row if row.dtype == torch.bool else row == 0
