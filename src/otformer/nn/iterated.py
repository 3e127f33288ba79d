"""A stated number of Sinkhorn iterations, with the derivatives of these: what others unroll."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import custom_op

from otformer.network.alternating import alternated
from otformer.nn.balance_checks import check_before, check_logits
from otformer.nn.functions import merged

FURTHEST = 1e20  # that logits/τ may be from 0: their derivatives are squares in float32


def iterated(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, iterations: int) -> Tensor:
    """P [B, n, m] after ``iterations`` of rows, then columns of log P brought to their sums; in float32 at least.

    >>> one = torch.ones(1, 2)
    >>> iterated(torch.tensor([[[3.0, 0.0], [0.0, 1.0]]]), torch.ones(1), one, one, 2).sum(1)
    tensor([[1., 1.]])
    """
    kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
    temperature = temperature * Checked.apply(logits.detach(), temperature.detach(), a.detach(), b.detach())
    there = (a > 0)[:, :, None] & (b > 0)[:, None, :] & ~logits.isneginf()
    tau = temperature.to(kind).repeat(len(logits) // len(temperature))[:, None, None]
    for X in alternated(torch.where(there, logits, 0.0).to(kind) / tau, there, a, b, iterations):  # noqa: B007
        pass
    return X.exp().to(logits.dtype)


def _checked(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """1 if all is well, otherwise the error that says what is not; a number that is used is not compiled away."""
    check_before(logits, temperature, a, b, "logits")
    check_logits(logits, temperature, a, b, torch.arange(len(logits), device=logits.device), "logits", FURTHEST)
    return temperature.new_ones(())


_checked_op = custom_op("otformer::checked", mutates_args=())(_checked)


@_checked_op.register_fake
def _(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return temperature.new_empty(())


class Checked(Function):
    """`_checked` with the rules of torch.func."""

    @staticmethod
    def forward(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (_checked_op if torch.compiler.is_compiling() else _checked)(logits, temperature, a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[Tensor, None]:
        return Checked.apply(*merged(info.batch_size, tensors, in_dims)), None
