"""The aligning transformer: residual layers of two softmax heads, frozen, run exactly as the matrices say.

    Z_{ℓ+1} = Z_ℓ + Σ_heads softmax(Z_ℓ W_Q W_Kᵀ Z_ℓᵀ) Z_ℓ W_V W_O

W_Q and W_K are the paper's K and Q, and W_V W_O its V B: W_V picks the register ``sign``, W_O puts −γ times it into
u or v. The same weights serve every n and every input.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from otformer import checks
from otformer.network.prompt import Prompt
from otformer.network.read import read_prompt
from otformer.network.registers import Registers
from otformer.network.schedule import Layer, Schedule, named
from otformer.network.trace import Trace
from otformer.network.weights import HEADS, head

Sink = Literal["frozen", "token"]
Keep = Literal["all", "last"] | Iterable[int]


class AligningTransformer(nn.Module):
    """A transformer whose attention converges to the entropic transport plan of its prompt.

    Parameters
    ----------
    dim : dimension d of the points (or of the cost's features).
    reg : λ > 0; multiplies Σ P log P. The cost is the squared Euclidean distance, not half of it.
    depth : number of layers.
    schedule : ``"paper"``, ``"gradient"``, ``"alternating"``, ``"relaxed"``, ``"annealed"``, or a schedule.
    sink : ``"frozen"`` (a token that is only a key and a value: equal to gradient descent at every layer) or ``"token"``
        (the paper's: updated like the others; marginals tend to 1/n, see docs/errata.md).
    marginals : whether tokens have the two registers that carry weights a and b (2d+11 columns instead of 2d+9).

    The logits are 2x·y − ‖x‖² − ‖y‖² over λ, as in the paper: an offset common to all points costs digits, so centre them.

    Buffers, all in ``state_dict``: ``W_Q``, ``W_K`` [weights, 2, width, head], ``W_V`` [weights, 2, width, 1],
    ``W_O`` [weights, 2, 1, width], ``reg`` [weights], and ``layer`` [depth], which of the weights a layer uses.

    >>> net = AligningTransformer(dim=1, reg=0.01, depth=200, schedule="annealed")
    >>> trace = net([[0.9], [0.1], [0.5]], [[0.0], [0.5], [1.0]])
    >>> trace.attention(200).argmax(1)         # x_1 = 0.9 goes to y_3, x_2 = 0.1 to y_1, x_3 = 0.5 to y_2
    tensor([2, 0, 1])
    """

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    reg: Tensor
    layer: Tensor

    def __init__(
        self,
        dim: int,
        reg: float,
        depth: int,
        schedule: str | Schedule = "gradient",
        sink: Sink = "frozen",
        marginals: bool = True,
    ) -> None:
        super().__init__()
        self.registers = Registers(checks.count("dim", dim), marginals)
        self.sink = checks.choice("sink", sink, ("frozen", "token"))
        layers = named(schedule).layers(checks.positive("reg", reg), checks.count("depth", depth))
        distinct = list(dict.fromkeys(layers))
        for name, weights in self._weights(distinct).items():
            self.register_buffer(name, weights)
        self.register_buffer("reg", torch.tensor([each.reg for each in distinct], dtype=torch.float64))
        self.register_buffer("layer", torch.tensor([distinct.index(each) for each in layers]))

    def _weights(self, layers: list[Layer]) -> dict[str, Tensor]:
        """W_Q, W_K, W_V, W_O of each layer, from the heads of weights.py."""
        r = self.registers
        heads = [[head(name, layer.reg, r) for name in HEADS] for layer in layers]
        W_V = torch.zeros(len(layers), 2, r.width, 1, dtype=torch.float64)
        W_O = torch.zeros(len(layers), 2, 1, r.width, dtype=torch.float64)
        for k, layer in enumerate(layers):
            for h, step in enumerate((layer.rows, layer.columns)):
                W_V[k, h, r.column(heads[k][h].value)] = 1
                W_O[k, h, 0, r.column(heads[k][h].writes)] = -step
        W_Q = torch.stack([torch.stack([each.query(r) for each in pair]) for pair in heads])
        W_K = torch.stack([torch.stack([each.key(r) for each in pair]) for pair in heads])
        return {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}

    @property
    def depth(self) -> int:
        return len(self.layer)

    def written(self) -> list[int]:
        """The columns that any layer writes: u and v. All others keep the prompt's numbers."""
        return (self.W_O != 0).flatten(0, 2).any(0).nonzero()[:, 0].tolist() or [self.registers.column("u")]

    def logits(self, Z: Tensor, layer: int) -> Tensor:
        """Logits of both heads in layer ``layer`` (0-based), from its input Z [B, T+1, width]; [B, 2, T+1, T+1]."""
        k = int(self.layer[layer])
        Z = Z[:, None]
        return (Z @ self.W_Q[k].to(Z)) @ (Z @ self.W_K[k].to(Z)).mT

    def block(self, Z: Tensor, layer: int) -> Tensor:
        """Layer ``layer`` (0-based): Z_ℓ → Z_{ℓ+1}, [B, T+1, width]."""
        k = int(self.layer[layer])
        A = torch.softmax(self.logits(Z, layer), dim=-1)  # [B, 2, T+1, T+1]
        update = (A @ (Z[:, None] @ self.W_V[k].to(Z)) @ self.W_O[k].to(Z)).sum(1)  # [B, T+1, width]
        if self.sink == "frozen":
            update[:, -1] = 0
        return Z + update

    def forward(
        self,
        x: Any,
        y: Any = None,
        a: Any = None,
        b: Any = None,
        *,
        keep: Keep = "all",
    ) -> Trace:
        """Run the network on points x (n, d) and y (m, d), on batches (B, n, d), or on lists of them (ragged).

        ``x`` may also be a `Features` value (any other cost). A weight of 0 in a or b marks a point as absent.
        ``keep``: the layers whose memory the trace holds, ``"all"``, ``"last"`` or some layer numbers.
        """
        kept = _layers_to_keep(keep, self.depth)
        prompt = self.prompt(x, y, a, b)
        written = self.written()
        Z = prompt.Z
        memory = {}
        for layer in range(self.depth + 1):
            if layer in kept:
                memory[layer] = Z[..., written].clone()
            if layer < self.depth:
                Z = self.block(Z, layer)
        return Trace(self, prompt, written, memory)

    def prompt(self, x: Any, y: Any = None, a: Any = None, b: Any = None) -> Prompt:
        """The engineered prompt of a problem, checked."""
        return read_prompt(x, y, a, b, self.registers, self.sink, self.W_Q, float(self.reg.min()))

    def save(self, path: str | Path) -> None:
        """Write the weights as safetensors."""
        from safetensors.torch import save_file

        if not Path(path).parent.is_dir():
            raise ValueError(f"path must be in an existing folder, got {str(path)!r}")
        save_file({name: t.contiguous() for name, t in self.state_dict().items()}, str(path))

    def load(self, path: str | Path) -> AligningTransformer:
        """Read weights written by `save` for a network of the same shape; returns the network."""
        from safetensors.torch import load_file

        try:
            self.load_state_dict(load_file(str(path)))
        except Exception as error:  # safetensors has an error class of its own
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"path does not hold weights of this network: {reason}") from None
        return self


def _layers_to_keep(keep: Keep, depth: int) -> set[int]:
    if keep == "all":
        return set(range(depth + 1))
    if keep == "last":
        return {depth}
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        raise ValueError(f"keep must be 'all', 'last' or layer numbers, got {keep!r}")
    kept = {checks.count("keep", k, least=0) for k in keep}
    if any(not 0 <= k <= depth for k in kept):
        raise ValueError(f"keep must name layers from 0 to {depth}, got {sorted(kept)}")
    return kept | {depth}
