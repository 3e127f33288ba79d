"""The loss of a batch and its gradients as CUDA graphs, one for each shape of a batch.

A step of a translator is some 2,300 kernels of a few microseconds each; to start them one by one from Python takes four
times as long as to run them. A graph is started at once. It wants its inputs at fixed places and of a fixed shape, and the
batches of an epoch have the same shapes as those of any other (corpus.py, `plan_epoch`): 842 for En→Fr, so that each graph
is made once and replayed in every epoch. Graphs run one after the other and share their memory; what one leaves is read
before the next begins. Random numbers are those of the seed that is set before a replay, as without graphs.

During a capture transformers makes masks for all attention, since it cannot look whether they say anything; with masks the
slow kernels are chosen. Sentences of a batch are equally long, or padded behind on the side that is causal: no mask says
anything (`unmasked`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

PLAIN_STEPS = 10  # steps without a graph: libraries make themselves ready, which a capture does not allow


def unmasked(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Any, scaling: float | None = None, **_: Any
) -> tuple[Tensor, None]:
    """Attention for transformers' AttentionInterface, where the only mask is that of the past; nothing is dropped."""
    causal = bool(getattr(module, "is_causal", False))
    made = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling, is_causal=causal)
    return made.transpose(1, 2).contiguous(), None


class Plain:
    """``plain(*inputs)`` is ``loss(network, *inputs)``; its gradients go into ``gradients``, in place of what was there."""

    def __init__(self, loss: Callable[..., Tensor], network: Any, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        self.loss, self.network, self.parameters, self.gradients = loss, network, parameters, gradients

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The loss of one batch, on its device."""
        loss = self.loss(self.network, *inputs)
        torch._foreach_copy_(self.gradients, torch.autograd.grad(loss, self.parameters))
        return loss.detach()


class Graphed(Plain):
    """`Plain` that captures a graph for every shape of a batch and replays it."""

    def __init__(self, *given: Any) -> None:
        from transformers import AttentionInterface

        super().__init__(*given)
        AttentionInterface.register(unmasked.__name__, unmasked)
        self.network.set_attn_implementation(unmasked.__name__)
        self.left = PLAIN_STEPS
        self.graphs: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Tensor]] = {}
        self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The loss of one batch, on the device."""
        if self.left:
            self.left -= 1
            return super().__call__(*inputs)
        shapes = tuple(t.shape for t in inputs)
        if shapes not in self.graphs:
            self.graphs[shapes] = self._captured(tuple(t.clone() for t in inputs))
        graph, places, loss = self.graphs[shapes]
        for place, new in zip(places, inputs, strict=True):
            place.copy_(new)
        graph.replay()
        return loss.clone()

    def _captured(self, places: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Tensor]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            loss = super().__call__(*places)
        return graph, places, loss
