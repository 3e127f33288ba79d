r"""Values whose derivatives are known beside them, and tensors that have none.

The derivative of a minimum over P, or of a maximum over potentials, is that with P, or the potentials, held still (the
envelope theorem): numbers, found with the value itself. A derivative of those numbers would be wrong without a word, so it
is refused; so is the derivative of a part of the solution that nobody has computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, is_grad_enabled
from torch.autograd import Function

Slope = Tensor | Callable[[], Tensor]  # a gradient, or a function that finds it
ONCE = "this loss can be differentiated once only: create_graph=True is not supported"


class Envelope(Function):
    """A value () or [B] with given gradients, each shaped as its input, (...) or [B, ...]."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if is_grad_enabled():
            raise RuntimeError(ONCE)
        return None, None, *(g.reshape((*g.shape, *[1] * (t.ndim - g.ndim))) * t for t in ctx.saved_tensors)


class LazyEnvelope(Function):
    """A value () whose gradients are found when they are asked for, and those only."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, slopes: list[Slope], *inputs: Tensor) -> Tensor:
        ctx.slopes = slopes
        return value.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if is_grad_enabled():
            raise RuntimeError(ONCE)
        asked = zip(ctx.slopes, ctx.needs_input_grad[2:], strict=True)
        return None, None, *(g * (slope() if callable(slope) else slope) if needed else None for slope, needed in asked)


class NotDifferentiable(Function):
    """Tensors found from inputs that require a gradient: asking for it is an error, not a silent zero."""

    @staticmethod
    def forward(ctx: Any, what: str, tensors: tuple[Tensor, ...], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.what = what
        return tuple(t.clone() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        raise RuntimeError(ctx.what)
