"""What a run leaves behind: every kept layer's residual stream, potentials, attention and plan.

Layer ℓ is Z_ℓ: the state after ℓ layers, Z_0 the prompt. ``attention(ℓ)`` is what a head sees when it reads Z_ℓ (the
paper's A^(ℓ)); after the last layer, the last layer's heads read once more.
Only the written columns of Z are stored, a few numbers a token and layer; everything else is made when asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from otformer import checks
from otformer.network.prompt import Prompt
from otformer.network.weights import HEADS, HeadName

if TYPE_CHECKING:
    from otformer.network.transformer import AligningTransformer


class Trace:
    """The run of a network on a prompt. Results carry a leading batch axis if the points did.

    A trace reads the weights of its network when asked for attention or a plan: do not change them in between.
    """

    def __init__(
        self, network: AligningTransformer, prompt: Prompt, written: list[int], memory: dict[int, Tensor]
    ) -> None:
        self.network = network
        self.prompt = prompt
        self._written = written
        self._memory = memory  # layer -> [B, T+1, len(written)]

    @property
    def depth(self) -> int:
        return self.network.depth

    @property
    def layers(self) -> list[int]:
        """The layers that were kept."""
        return sorted(self._memory)

    def Z(self, layer: int | None = None) -> Tensor:
        """The residual stream after ``layer`` layers (default: the last), sink row last; [(B,) T+1, width]."""
        return self._out(self._Z(layer))

    def potentials(self, layer: int | None = None) -> tuple[Tensor, Tensor]:
        """(u, v) after ``layer`` layers, [(B,) n] and [(B,) m]; −inf where a point is absent."""
        Z, r = self._Z(layer), self.network.registers
        n, m = self.prompt.x_present.shape[-1], self.prompt.y_present.shape[-1]
        u = Z[:, :n, r.column("u")].masked_fill(~self.prompt.x_present, -torch.inf)
        v = Z[:, :m, r.column("v")].masked_fill(~self.prompt.y_present, -torch.inf)
        return self._out(u), self._out(v)

    def attention(self, layer: int | None = None, head: HeadName = "rows", sink: bool = False) -> Tensor:
        """Attention of a head reading Z_layer: over real tokens, rows summing to 1, or with the sink as last column.

        ``head="rows"``: [(B,) n, m], row i is where x_i looks; ``head="columns"``: [(B,) m, n], row j is where y_j looks.
        Rows of absent points are 0.
        """
        H = self._logits(layer, head, sink)
        A = torch.softmax(H, dim=-1)
        queries = self.prompt.x_present if head == "rows" else self.prompt.y_present
        return self._out(A * queries[..., None])

    def plan(self, layer: int | None = None) -> Tensor:
        """P_ij = exp((u_i + v_j − C_ij)/λ − 1), [(B,) n, m], before any normalisation: its marginals tend to a and b."""
        both = self.prompt.x_present[:, :, None] & self.prompt.y_present[:, None, :]
        return self._out(self._logits(layer, "rows", sink=False).exp() * both)

    def marginal_error(self, layer: int | None = None) -> Tensor:
        """Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j| of the plan after ``layer`` layers; [(B,)]."""
        P = self.plan(layer).reshape(len(self.prompt.a), self.prompt.a.shape[-1], self.prompt.b.shape[-1])
        error = (P.sum(-1) - self.prompt.a).abs().sum(-1) + (P.sum(-2) - self.prompt.b).abs().sum(-1)
        return self._out(error)

    def save(self, path: str | Path) -> None:
        """Write an HTML page with a layer slider over both heads' attention; it needs no network to open."""
        from otformer.network.trace_page import write_trace_page

        write_trace_page(self, path)

    def _Z(self, layer: int | None) -> Tensor:
        layer = self._layer(layer)
        Z = self.prompt.Z.clone()
        Z[..., self._written] = self._memory[layer]
        return Z

    def _layer(self, layer: int | None) -> int:
        if layer is None:
            return self.depth
        checks.count("layer", layer, least=0)
        if layer not in self._memory:
            kept = self.layers
            shown = str(kept) if len(kept) <= 6 else f"{kept[:3]} … {kept[-1]}"
            raise ValueError(f"layer {layer} was not kept; this trace holds {shown} of 0 to {self.depth}")
        return layer

    def _logits(self, layer: int | None, head: Any, sink: bool) -> Tensor:
        """Logits [B, queries, keys] of one head, real tokens only, the sink last if asked for."""
        checks.choice("head", head, HEADS)
        layer = self._layer(layer)
        H = self.network.logits(self._Z(layer), min(layer, self.depth - 1))[:, HEADS.index(head)]
        n, m = self.prompt.x_present.shape[-1], self.prompt.y_present.shape[-1]
        queries, keys = (n, m) if head == "rows" else (m, n)
        H = H[:, :queries]
        return torch.cat([H[..., :keys], H[..., -1:]], dim=-1) if sink else H[..., :keys]

    def _out(self, t: Tensor) -> Tensor:
        return t if self.prompt.batched else t[0]
