"""Members that diverge are stopped, and keep the last parameters whose loss was good; the others learn on."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Guard:
    """Stops a member at the step whose loss is not finite or above ``limit``, or whose gradient is not finite.

    Everything is a tensor on the device, so that a step can be captured as a CUDA graph. ``stopped`` [K] is the step,
    counted from 1, at which a member was stopped, 0 while it learns; ``loss`` [K] is its last good loss, and ``last`` holds
    the parameters that had it.
    """

    def __init__(self, net: nn.Module, ensemble: int, limit: float) -> None:
        self.parameters, self.limit = dict(net.named_parameters()), limit
        first = next(iter(self.parameters.values()))
        device = first.device
        self.stopped = torch.zeros(ensemble, dtype=torch.int64, device=device)
        self.done = torch.zeros((), dtype=torch.int64, device=device)
        self.loss = torch.full((ensemble,), torch.nan, dtype=first.dtype, device=device)
        self.last = {name: p.detach().clone() for name, p in self.parameters.items()}

    def begin(self, done: int = 0) -> None:
        """Accept the parameters as they are, after ``done`` steps."""
        self.done.fill_(done)
        for name, p in self.parameters.items():
            self.last[name].copy_(p.detach())

    @torch.no_grad()
    def judge(self, losses: Tensor) -> Tensor:
        """Stop members by their losses [K] and gradients, clear the gradients of the stopped; the last good losses, [K]."""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None and p.grad.numel()]
        sizes = torch.stack([g.abs().flatten(1).amax(1) if g.ndim > 1 else g.abs() for g in gradients]).sum(0)
        good = (losses <= self.limit) & losses.isfinite() & sizes.isfinite()
        self.done.add_(1)
        self.stopped.copy_(torch.where((self.stopped == 0) & ~good, self.done, self.stopped))
        learns = self.stopped == 0
        self.loss.copy_(torch.where(learns, losses, self.loss))
        for name, p in self.parameters.items():
            self.last[name].copy_(torch.where(_like(learns, p), p, self.last[name]))
        for g in gradients:
            g.masked_fill_(~_like(learns, g), 0.0)
        return self.loss.clone()

    @torch.no_grad()
    def restore(self) -> None:
        """Give the stopped members their last good parameters."""
        learns = self.stopped == 0
        for name, p in self.parameters.items():
            p.copy_(torch.where(_like(learns, p), p, self.last[name]))

    def state(self) -> dict[str, Tensor]:
        """All tensors by name, for a checkpoint."""
        last = {f"guard.last.{name}": t for name, t in self.last.items()}
        return {"guard.stopped": self.stopped, "guard.done": self.done, "guard.loss": self.loss, **last}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from the tensors of `state`."""
        for name, own in self.state().items():
            own.copy_(tensors[name])


def _like(members: Tensor, t: Tensor) -> Tensor:
    """[K] as [K, 1, …], to be compared with a tensor of that many axes."""
    return members.view(-1, *[1] * (t.ndim - 1))
