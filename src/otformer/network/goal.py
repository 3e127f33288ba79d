"""The plan that the layers of a run tend to, P*_λ of its prompt, and how far attention is from it.

It is found by Sinkhorn (alternating.py) from the potentials of the last layer: its limit is the limit of the network's
layers. A trace that has converged needs a few steps. One that has not may be far away; then there is no goal, for it is not
worth minutes. Of an edited prompt the goal is that of the prompt before its edits, from potentials 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from otformer.network.alternating import alternated

if TYPE_CHECKING:
    from otformer.network.prompt import Prompt
    from otformer.network.trace import Trace
    from otformer.network.transformer import AligningTransformer

STEPS, ENTRIES = 10_000, 2**26  # of Sinkhorn's iteration at most; entries of all its plans, about a second
CLOSE = 1e-6  # of the mass: the marginal error of a goal


@torch.no_grad()
def goal(trace: Trace, problem: int) -> Tensor | None:
    """Find P*_λ [n, m] of one problem in float64, 0 where a point is absent; None if that takes more than a second or so."""
    prompt = trace.prompt if trace.prompt.original is None else trace.prompt.original
    a, b = prompt.a[problem].double(), prompt.b[problem].double()
    mask = (prompt.x_present[problem] & (a > 0))[:, None] & prompt.y_present[problem] & (b > 0)
    X = -costs(trace.network, prompt, problem) / last_reg(trace.network)
    if not trace.prompt.edits:
        u, v = (t.reshape(-1, t.shape[-1])[problem].double() for t in trace.potentials())
        X = X + (u[:, None] + v) / last_reg(trace.network)
    most = min(STEPS, 10 + ENTRIES // max(X.numel(), 1))
    for step, X in enumerate(alternated(X, mask, a, b, most)):  # noqa: B020
        if step % 10 == 0:
            P = X.exp()  # its columns are right
            if float((P.sum(1) - a).abs().sum()) <= CLOSE * float(a.sum()):
                return P
    return None


@torch.no_grad()
def costs(network: AligningTransformer, prompt: Prompt, problem: int) -> Tensor:
    """Return K [n, m], which is C up to constants that neither softmax sees: what a prompt with u = v = 0 says."""
    Z, (n, m) = prompt.Z[problem : problem + 1].clone(), prompt.shape[-2:]
    Z[..., [network.registers.column(name) for name in "uv"]] = 0
    H = network.logits(Z, network.depth - 1)[:, 0, :n]  # of the head rows
    return -last_reg(network) * network.log_plan(torch.cat([H[..., :m], H[..., -1:]], dim=-1))[0].double()


def last_reg(network: AligningTransformer) -> float:
    """Return λ of the last layer."""
    return float(network.reg[network.layer[-1]])


def distances(trace: Trace, layers: list[int], problem: int, P: Tensor) -> list[float]:
    """Return the mean over x of ½ Σ_j |attention − goal| after every layer, goal rows summing to 1."""
    present, rows = trace.prompt.x_present[problem], P / P.sum(1, keepdim=True).clamp_min(1e-300)
    found = []
    for layer in layers:
        A = trace.attention(layer)
        off = ((A[problem] if trace.prompt.batched else A).to(rows) - rows).abs().sum(1)
        found.append(float(off[present].mean()) / 2)
    return found
