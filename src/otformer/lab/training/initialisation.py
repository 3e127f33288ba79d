r"""Where training starts: the paper's Gaussian, the author's, or a perturbed copy of the construction.

The construction in these parameters (network/weights.py has the derivation): P of the heads ``rows`` and ``columns`` at λ;
V reads ``sign`` and writes −20γ into u or v, for B is 1/20 (−γ/B for another B); the output head has y on its rows,
so it is the head ``columns``, with the value x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from otformer.lab.training.data import START, generator
from otformer.learning.model import LearningTransformer
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
class AuthorStart:
    """The start of the author's notebook: normal entries, of size 1/(2√w) in the first head and the output head and 1/√w in
    the second head, w the width of the prompt: 11, or 3 without the engineered columns."""

    @torch.no_grad()
    def fill(self, net: LearningTransformer, seed: int) -> None:
        """Set every member's parameters; member k is drawn from seed + k."""
        _noise(net, seed, net.architecture.registers.width**-0.5)
        for first in (net.P[:, :, 0], net.V[:, :, 0], net.P_out):
            first.mul_(0.5)


@dataclass(frozen=True)
class ConstructionStart:
    """The aligning transformer with λ = ``reg`` and γ = ``step`` · λ; normal noise of size ``noise`` on every entry.

    With a learned temperature λ and γ fall along the layers by the factor ``anneal``, and the output head has the last λ.
    """

    reg: float = 0.05
    step: float = 1.0
    noise: float = 0.0
    anneal: float = 1.0

    @torch.no_grad()
    def fill(self, net: LearningTransformer, seed: int) -> None:
        """Set every member's parameters; member k's noise is drawn from seed + k."""
        if net.architecture.prompt != "engineered":
            raise ValueError(f"prompt must be engineered to start from the construction, got {net.architecture.prompt}")
        _noise(net, seed, self.noise)
        r = net.architecture.registers
        first, written = net.architecture.columns_written.start, self.step * self.reg / net.architecture.mix
        for h, name in enumerate(weights.HEADS):
            head = weights.head(name, self.reg, r)
            net.P[:, :, h] += head.bilinear(r).to(net.P)
            net.V[:, :, h, r.column(head.value), r.column(head.writes) - first] -= written
        net.P_out.add_(head.bilinear(r).to(net.P))  # the head "columns", the last
        if net.architecture.value == "learned":
            net.V_out[:, r["x"]] += torch.eye(r.dim, device=net.P.device)
        if net.architecture.temperature:
            net.tau[..., 1], net.step[..., 1] = math.log(self.anneal), -math.log(self.anneal)
            net.tau_out.fill_(math.log(self.anneal))


def _noise(net: LearningTransformer, seed: int, size: float) -> None:
    for k in range(net.ensemble):
        draw = generator(seed + k, START)
        for name, parameter in net.named_parameters():
            if not name.startswith(("tau", "step")):
                parameter[k] = size * torch.randn(parameter[k].shape, generator=draw).to(parameter)


Start = GaussianStart | AuthorStart | ConstructionStart
