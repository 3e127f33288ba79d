r"""Where a trace is going: the plan P*_λ of its prompt, by Sinkhorn from the potentials of its last layer.

Sinkhorn's iteration (alternating.py) makes the marginals right in turn, and its limit is the limit of the network's layers.
A trace that has converged is there after a few steps. One that has not may be far away; then this gives up, and says so,
for a picture is not worth minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from otformer.network.alternating import alternated

if TYPE_CHECKING:
    from otformer.network.trace import Trace

WORK = 2**26  # entries of plans that are computed at most, about a second
MOST = 10_000  # steps
CLOSE = 1e-6  # of the mass: the marginal error of a goal


@torch.no_grad()
def costs(trace: Trace, problem: int) -> Tensor:
    """K [n, m], so that after every layer attention is the softmax of (u_i + v_j − K_ij)/λ, over j or over i.

    K is C up to constants, which neither softmax sees.
    """
    net, prompt = trace.network, trace.prompt
    H = trace._of_head(net.logits(prompt.Z[problem : problem + 1], net.depth - 1), "rows", sink=True)
    return -_reg(trace) * net.log_plan(H)[0].double()


@torch.no_grad()
def goal(trace: Trace, problem: int) -> Tensor | None:
    """P*_λ [n, m] of one problem in float64, 0 where a point is absent; None if it is not found within a second or so."""
    prompt = trace.prompt
    a, b = prompt.a[problem].double(), prompt.b[problem].double()
    u, v = (t.reshape(-1, t.shape[-1])[problem].double() for t in trace.potentials())
    there = (prompt.x_present[problem] & (a > 0))[:, None] & prompt.y_present[problem] & (b > 0)
    X = (u[:, None] + v - costs(trace, problem)) / _reg(trace)
    for step, X in enumerate(alternated(X, there, a, b, min(MOST, 10 + WORK // max(X.numel(), 1)))):  # noqa: B020
        if step % 10 == 0:
            P = X.exp()  # its columns are right
            if float((P.sum(1) - a).abs().sum()) <= CLOSE * float(a.sum()):
                return P
    return None


def _reg(trace: Trace) -> float:
    """λ of the last layer."""
    return float(trace.network.reg[trace.network.layer[-1]])
