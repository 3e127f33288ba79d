r"""Where a trace is going: the plan P*_λ of its prompt, by Sinkhorn from the potentials of its last layer.

With L_ij = −K_ij/λ, the logarithm of the plan at u = v = 0, Sinkhorn makes the marginals right in turn,

    f_i ← log a_i − log Σ_j exp(L_ij + g_j),      g_j ← log b_j − log Σ_i exp(L_ij + f_i),      P_ij = exp(L_ij + f_i + g_j),

and its limit is the limit of the network's layers. A trace that has converged is there after a few steps. One that has not
may be far away; then this gives up, and says so, for a picture is not worth minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

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
    L = -costs(trace, problem) / _reg(trace)
    L = L.masked_fill(~(prompt.x_present[problem][:, None] & prompt.y_present[problem]), -torch.inf)
    f, g = torch.where(a > 0, u / _reg(trace), 0.0), torch.where(b > 0, v / _reg(trace), 0.0)
    for step in range(min(MOST, 10 + WORK // max(L.numel(), 1))):
        f = torch.where(a > 0, a.log() - torch.logsumexp(L + g, 1), 0.0)
        g = torch.where(b > 0, b.log() - torch.logsumexp(L + f[:, None], 0), 0.0)
        if step % 10 == 0:
            P = (L + f[:, None] + g).exp()  # its columns are right
            if float((P.sum(1) - a).abs().sum()) <= CLOSE * float(a.sum()):
                return P
    return None


def _reg(trace: Trace) -> float:
    """λ of the last layer."""
    return float(trace.network.reg[trace.network.layer[-1]])
