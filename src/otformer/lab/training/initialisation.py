r"""Where training starts: the paper's Gaussian, or a perturbed copy of the construction.

The construction in these parameters (network/weights.py has the derivation): P of the heads ``rows`` and ``columns`` at λ;
V reads ``sign`` and writes −20γ into u or v, for B is 1/20; the output head has y on its rows, so it is the head
``columns``, with the value x.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from otformer.lab.training.data import START, generator
from otformer.learning.model import MIX, LearningTransformer
from otformer.network import weights


@dataclass(frozen=True)
class GaussianStart:
    """Independent normal entries of variance 1/(2d+9), with or without the engineered prompt.

    With ``silent`` V starts at 0: the layers write nothing yet, and the output head learns first. ``sharp`` is where the
    learned temperatures τ₀ start.
    """

    silent: bool = False
    sharp: float = 0.0

    @torch.no_grad()
    def fill(self, net: LearningTransformer, seed: int) -> None:
        """Set every member's parameters; member k is drawn from seed + k."""
        _noise(net, seed, (2 * net.architecture.dim + 9) ** -0.5)
        if self.silent:
            net.V.zero_()
        if net.architecture.temperature:
            net.tau[..., 0] = self.sharp
            net.tau_out.fill_(self.sharp)


@dataclass(frozen=True)
class ConstructionStart:
    """The aligning transformer with λ = ``reg`` and γ = ``step`` · λ; normal noise of size ``noise`` on every entry."""

    reg: float = 0.05
    step: float = 1.0
    noise: float = 0.0

    @torch.no_grad()
    def fill(self, net: LearningTransformer, seed: int) -> None:
        """Set every member's parameters; member k's noise is drawn from seed + k."""
        if net.architecture.prompt != "engineered":
            raise ValueError(f"prompt must be engineered to start from the construction, got {net.architecture.prompt}")
        _noise(net, seed, self.noise)
        r = net.architecture.registers
        first = net.architecture.columns_written.start
        for h, name in enumerate(weights.HEADS):
            head = weights.head(name, self.reg, r)
            net.P[:, :, h] += head.bilinear(r).to(net.P)
            net.V[:, :, h, r.column(head.value), r.column(head.writes) - first] -= self.step * self.reg / MIX
        net.P_out.add_(head.bilinear(r).to(net.P))  # the head "columns", the last
        net.V_out[:, r["x"]] += torch.eye(r.dim, device=net.P.device)


def _noise(net: LearningTransformer, seed: int, size: float) -> None:
    for k in range(net.ensemble):
        draw = generator(seed + k, START)
        for name, parameter in net.named_parameters():
            if not name.startswith(("tau", "step")):
                parameter[k] = size * torch.randn(parameter[k].shape, generator=draw).to(parameter)


Start = GaussianStart | ConstructionStart
