r"""Translators that differ in their cross-attention alone: all else is that of `Translation`.

    softmax     as shipped
    balanced    doubly stochastic; leaks later target tokens (words/models/cross_attention.py says how)
    online      unbalanced transport of the rows so far; causal
    plan        softmax, and in the loss how far attention is from transport between the embeddings

The last leaves the network as it is and adds to the loss, with P [T, S] the entropic plan between the unit embeddings of
target and source tokens (cost ‖x − y‖², λ = 0.05, uniform weights; rows scaled to one; no gradient goes through it) and Ā
the mean over the heads of a layer,

    WEIGHT · mean over layers and target tokens of KL(P_t ‖ Ā_t).

Row t is the position whose *output* is token t, so that a word is looked for before it is said. Why the plan and not a
penalty on columns: embeddings align long before attention does (docs/results/translation.md, against training time), so the
plan has something to teach. P reads the target, but only the loss sees P: nothing leaks into the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.lab.translators.networks import PAD, Translation
from otformer.words.models.cross_attention import alternated, set_rule

VARIANTS = {"softmax": None, "balanced": "balanced", "online": "online", "plan": "softmax"}  # and the rule of each
WEIGHT = 0.5  # of the divergence, beside the cross-entropy of a token
PLAN_REG, PLAN_ITERATIONS = 0.05, 30


class CrossAttention(Translation):
    """`Translation` with one of VARIANTS."""

    def __init__(self, name: str, text: Path, device: str, variant: str = "softmax", tokens: int | None = None) -> None:
        super().__init__(name, text, device)
        self.variant = checks.choice("variant", variant, VARIANTS)
        self.tokens = Translation.tokens if tokens is None else checks.count("tokens", tokens)

    def build(self) -> Any:
        network, rule = super().build(), VARIANTS[self.variant]
        return network if rule is None else set_rule(network, rule)

    def loss(self, network: Any, *inputs: Tensor) -> Tensor:
        """The cross-entropy of `Translation`, and for ``plan`` the divergence."""
        if self.variant != "plan":
            return super().loss(network, *inputs)
        with watched(network) as attentions:
            loss = super().loss(network, *inputs)
        source, target = inputs
        plan = embeddings_plan(network.get_input_embeddings().weight, source, target)
        return loss + WEIGHT * divergence(plan, attentions, target != PAD)


@contextmanager
def watched(network: Any) -> Iterator[list[Tensor]]:
    """The cross-attention [B, H, T, S] of every layer, of the forward passes inside; needs `set_rule`."""
    attentions: list[Tensor] = []
    layers = network.get_decoder().layers
    handles = [layer.encoder_attn.register_forward_hook(lambda *call: attentions.append(call[2][1])) for layer in layers]
    try:
        yield attentions
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def embeddings_plan(embeddings: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """P [B, T, S] of tokens source [B, S] and target [B, T]: rows sum to one, those of padding to 0.

    >>> tokens = torch.tensor([[0, 1, 2]])
    >>> embeddings_plan(torch.eye(4), tokens, tokens.flip(1)).argmax(-1)
    tensor([[2, 1, 0]])
    """
    x, y = (torch.nn.functional.normalize(embeddings[ids].float(), dim=-1) for ids in (target, source))
    there = (target != PAD)[:, :, None] & (source != PAD)[:, None]
    return alternated(2 * x @ y.mT / PLAN_REG, there, PLAN_ITERATIONS)


def divergence(plan: Tensor, attentions: Sequence[Tensor], there: Tensor) -> Tensor:
    """The mean over layers and the target tokens that are there [B, T] of KL(P_t ‖ Ā_t).

    >>> P = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]])
    >>> divergence(P, [P[:, None]], torch.ones(1, 2, dtype=torch.bool)).abs() < 1e-6
    tensor(True)
    """
    mean = torch.stack([A.float().mean(1) for A in attentions])  # [L, B, T, S]
    each = torch.special.xlogy(plan, plan) - plan * (mean + 1e-9).log()
    return (each.sum(-1) * there).sum() / (len(attentions) * there.sum())
