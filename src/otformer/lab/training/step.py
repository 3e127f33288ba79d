"""One step of Adam on K models: run as it is on the CPU, and as one captured CUDA graph on a GPU.

A step is some thousand kernels of microseconds each: launching them one by one takes longer than running them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from otformer.lab.training.data import Batch
from otformer.lab.training.doubled_adam import begin_moments, count_once_more
from otformer.lab.training.guard import Guard
from otformer.lab.training.objectives import OBJECTIVES
from otformer.lab.training.recipes import Recipe
from otformer.learning.model import LearningTransformer, Output


def output_of(net: LearningTransformer, batch: Batch, recipe: Recipe) -> Output:
    """What the network says to a batch of the recipe."""
    present = batch.present if len(recipe.problems.sizes) > 1 else None  # of one size: nothing is absent
    return net(batch.x, batch.y, present, *([batch.memory] if recipe.architecture.memory == "random" else []))


def clip(net: LearningTransformer, largest: float) -> None:
    """Shorten each member's gradient to the norm ``largest``; members stay independent."""
    gradients = [p.grad for p in net.parameters() if p.grad is not None]
    norm = torch.stack([g.flatten(1).square().sum(1) if g.ndim > 1 else g.square() for g in gradients]).sum(0).sqrt()
    scale = (largest / (norm + 1e-12)).clamp(max=1)  # [K]
    for g in gradients:
        g.mul_(scale.view(-1, *[1] * (g.ndim - 1)))


class EagerStep:
    """``step(batch, rate)`` moves the parameters and returns the losses before the move, [K].

    A member that diverges is stopped (guard.py); its last good loss is returned from then on.
    """

    def __init__(self, net: LearningTransformer, recipe: Recipe) -> None:
        self.net, self.recipe = net, recipe
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(recipe.learned == "all" or name.startswith(("tau", "step")))
        self.adam = torch.optim.Adam(net.parameters(), lr=recipe.rate)
        self.guard = Guard(net, net.ensemble, recipe.limit)
        self._begin()

    def _begin(self) -> None:
        """Give Adam its zeros before the first step where its counter is moved by us as well."""
        if self.recipe.doubled == "counted":
            begin_moments(self.adam)

    def __call__(self, batch: Batch, rate: float) -> Tensor:
        self.adam.param_groups[0]["lr"] = rate
        return self.run(batch)

    def run(self, batch: Batch) -> Tensor:
        """Forward, backward, Adam: once, or twice with the same gradient (`Recipe.doubled`)."""
        losses = OBJECTIVES[self.recipe.objective](output_of(self.net, batch, self.recipe), batch)
        self.adam.zero_grad(set_to_none=False)
        losses.sum().backward()  # members share no parameter: each gets the gradient of its own loss
        if self.recipe.clip is not None:
            clip(self.net, self.recipe.clip)
        losses = self.guard.judge(losses.detach())
        if self.recipe.doubled == "counted":
            count_once_more(self.adam)
        for _ in range(2 if self.recipe.doubled == "stepped" else 1):
            self.adam.step()
        self.guard.restore()
        return losses


class GraphedStep(EagerStep):
    """`EagerStep` that captures one step and replays it; batches must all have one shape."""

    def __init__(self, net: LearningTransformer, recipe: Recipe) -> None:
        super().__init__(net, recipe)
        self.rate = torch.tensor(recipe.rate, device=net.P.device)
        self.adam = torch.optim.Adam(net.parameters(), lr=self.rate, capturable=True)
        self._begin()
        self.captured: tuple[Batch, torch.cuda.CUDAGraph, Tensor] | None = None  # its input, the graph, its output

    def __call__(self, batch: Batch, rate: float) -> Tensor:
        self.rate.fill_(rate)
        if self.captured is None:
            self.adam.param_groups[0]["lr"] = self.rate  # a restored checkpoint has put a copy here
            self.captured = self._capture(batch.map(torch.clone))
        held, graph, losses = self.captured
        for own, given in zip(held, batch, strict=True):
            own.copy_(given)
        graph.replay()
        return losses.clone()

    def _capture(self, batch: Batch) -> tuple[Batch, torch.cuda.CUDAGraph, Tensor]:
        """Warm up on a side stream, undo what that changed, and record one step on ``batch``."""
        fresh = len(self.adam.state) == 0
        before = [t.clone() for t in self._tensors()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.run(batch)
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad():
            for t, old in zip(self._tensors(), before, strict=False):  # the moments last, if there were any
                t.copy_(old)
            if fresh:
                for moments in self.adam.state.values():
                    for t in moments.values():
                        t.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses = self.run(batch)
        return batch, graph, losses

    def _tensors(self) -> list[Tensor]:
        moments = [t for each in self.adam.state.values() for t in each.values()]
        return [*(p.data for p in self.net.parameters()), *self.guard.state().values(), *moments]
