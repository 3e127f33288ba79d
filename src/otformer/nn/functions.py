"""What the autograd functions of the layers share: gradients that have none, and their rule for torch.func.vmap."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Gradient(Function):
    """A function that is another's gradient: nothing is kept for a further derivative, which is refused."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *G: Tensor) -> Any:
        raise RuntimeError("this layer can be differentiated once: its gradient has no derivative")


def merged(V: int, tensors: tuple[Tensor, ...], dims: Any) -> list[Tensor]:
    """Tensors of a stack of stacks [V, B, …] as those of one stack [V B, …]; the first has B, others a divisor of it."""
    full = [t.expand(V, *t.shape) if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims, strict=False)]
    B = full[0].shape[1]
    return [t.repeat(1, B // t.shape[1], *[1] * (t.ndim - 2)).flatten(0, 1) for t in full]
