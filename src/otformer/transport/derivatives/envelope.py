r"""Values whose derivatives are known beside them, and tensors that have none.

The derivative of a minimum over P, or of a maximum over potentials, is that with P, or the potentials, held still (the
envelope theorem): numbers, found with the value itself. A derivative of those numbers would be wrong without a word, so it
is refused; so is the derivative of a part of the solution that nobody has computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch.autograd import Function, grad

Slope = Tensor | Callable[[], Tensor]  # a gradient, or a function that finds it
FORWARD_ALONE = "forward-mode and reverse-mode derivatives do not go together here: use torch.autograd.grad twice"
ONCE = "this loss can be differentiated once only: create_graph=True is not supported"


def forward_alone(*inputs: Tensor) -> None:
    """Of inputs of which some carry a tangent none may require a gradient: that of the tangent would be wrong."""
    if is_grad_enabled() and any(t.requires_grad for t in inputs):
        raise ValueError(FORWARD_ALONE)


class Envelope(Function):
    """A value () or [B] with given gradients, each shaped as its input, (...) or [B, ...]."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        ctx.save_for_forward(*gradients, *inputs)
        return value.clone()

    @staticmethod
    def jvp(ctx: Any, dvalue: Tensor, _: Any, *tangents: Tensor) -> Tensor:
        gradients, inputs = ctx.saved_tensors[: len(tangents)], ctx.saved_tensors[len(tangents) :]
        forward_alone(*inputs)
        moved = (g * t for g, t in zip(gradients, tangents, strict=True))
        return torch.stack([t.reshape(*dvalue.shape, -1).sum(-1) for t in moved]).sum(0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if is_grad_enabled():
            raise RuntimeError(ONCE)
        return None, None, *(g.reshape((*g.shape, *[1] * (t.ndim - g.ndim))) * t for t in ctx.saved_tensors)


class LazyEnvelope(Function):
    """A value () whose gradients are found when they are asked for, and those only.

    ``again``, if there is one, is the same function of the inputs, but for a constant, and twice differentiable.
    """

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, slopes: list[Slope], again: Callable[..., Tensor] | None, *inputs: Tensor
    ) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.slopes, ctx.again = slopes, again
        return value.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[3:]
        if not is_grad_enabled():
            asked = zip(ctx.slopes, needed, strict=True)
            return None, None, None, *(g * (t() if callable(t) else t) if wanted else None for t, wanted in asked)
        if ctx.again is None:
            raise RuntimeError(ONCE)
        inputs = ctx.saved_tensors
        moving = [t for t, wanted in zip(inputs, needed, strict=True) if wanted]
        found = iter(grad(ctx.again(*inputs), moving, g, create_graph=True))
        return None, None, None, *(next(found) if wanted else None for wanted in needed)


class NotDifferentiable(Function):
    """Tensors computed from inputs that require a gradient: requesting the gradient is an error, not a silent zero."""

    @staticmethod
    def forward(ctx: Any, what: str, tensors: tuple[Tensor, ...], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.what = what
        return tuple(t.clone() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        raise RuntimeError(ctx.what)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> tuple[None, ...]:
        raise ValueError(ctx.what)
