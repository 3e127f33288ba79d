r"""The same weights inside unmodified ``torch.nn.MultiheadAttention``: nothing but standard attention is used.

A layer of the network is Z ← Z + Σ_h softmax(Z W_Q W_Kᵀ Zᵀ) Z W_V W_O. Torch's module, with H heads of width k and
embed_dim E = H k, computes on rows z ∈ R^E

    z ← Σ_h softmax(q_h k_hᵀ/√k) v_h O_h,     q_h = z Q_h,  k_h = z K_h,  v_h = z V_h,     Q_h, K_h, V_h ∈ R^{E×k}

and its caller adds z. So, line by line:

    rows      z = (registers, 0): the width 2d+11 (2d+9 without marginals) is filled up to E = 2(d+6) (or 2(d+5)) with zeros
    queries   Q_h = √k · W_Q, against the division by √k;     keys   K_h = W_K;     k = d+6 (or d+5), one per product
    values    V_h = (W_V, 0, …, 0): a head's first coordinate is ``sign``, the rest is 0
    output    O_h = W_O in its first row, 0 below: −γ times the first coordinate into u or v
    sink      a key and a value that belong to no token: ``add_bias_kv``, with bias_k = z_sink K and bias_v = z_sink V,
              z_sink = (sign = −1, all else 0). No query, so no update: the sink is frozen by construction
    H > 2     the other heads' Q, K, V and O are 0: they attend everywhere and write nothing
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from otformer import checks
from otformer.memory import needs
from otformer.network.prompt import Prompt
from otformer.network.read import Prompted
from otformer.network.registers import Registers
from otformer.network.trace import Run, layer_number
from otformer.network.transformer import AligningTransformer
from otformer.network.weights import HEADS, HeadName

MOST_HEADS = 4096  # of which two do anything
Absent = Literal["value", "mask"]


class StockRun(Run):
    """What stock modules computed: potentials of every layer, attention of the layers asked for."""

    def __init__(self, prompt: Prompt, memory: list[Tensor], weights: dict[int, Tensor]) -> None:
        super().__init__(prompt, list(range(len(memory))), torch.stack(memory))  # [depth+1, B, T, 2]: u and v
        self.weights = weights  # layer -> [B, heads, T, T+1], as the module returned it, sink last

    def __repr__(self) -> str:
        return f"StockRun({self.depth} layers, plan of shape {self.shape}, attention of {sorted(self.weights)})"

    def attention(self, layer: int = -1, head: HeadName = "rows") -> Tensor:
        """Attention of one head reading Z_layer, the sink as last column: [(B,) n, m+1], or [(B,) m, n+1] for columns."""
        number = layer_number("layer", layer, self.depth)
        if number not in self.weights:
            raise checks.ArgumentError("layer", f"be one whose attention was asked for, {sorted(self.weights)}", repr(layer))
        return self.prompt.out(self._of_head(self.weights[number], head, sink=True))

    def plan(self, layer: int = -1) -> Tensor:
        """The plan in the attention: A_ij = M_ij/(S_i + a_i) and A_i,sink = a_i/(S_i + a_i), so M_ij = a_i A_ij/A_i,sink."""
        A = self.attention(layer, "rows")
        return self.prompt.out(self.prompt.a)[..., None] * A[..., :-1] / A[..., -1:]


class Stock(Prompted):
    """What all modules built of torch's layers share: the network they copy, its prompt, and its weights in many heads.

    ``layer`` [depth] says which of the distinct weights a layer uses; ``extra`` are registers behind those of the network.
    """

    layer: Tensor

    def __init__(
        self, net: AligningTransformer, heads: int, dtype: torch.dtype = torch.float64, extra: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        if type(net) is not AligningTransformer:  # a subclass may hold more than attention
            raise checks.ArgumentError("net", "be an AligningTransformer", type(net).__name__)
        self.heads = checks.count("heads", heads, least=2, most=MOST_HEADS)
        self.registers = replace(net.registers, extra=extra)
        self.sink, self.scale, self.about = net.sink, net.scale, net.extra_repr()
        self.head_dim = max(net.W_Q.shape[-1], math.ceil(self.registers.width / self.heads))
        self.embed_dim = self.heads * self.head_dim
        self.memory = [self.registers.column("u"), self.registers.column("v")]
        self.register_buffer("reg", net.reg.to(dtype), persistent=False)
        self.register_buffer("layer", net.layer.clone())

    def __repr__(self) -> str:
        module = type(next(self.children())[0]).__name__  # type: ignore[index]
        return f"{type(self).__name__}({self.about}; nn.{module}, heads={self.heads}, embed_dim={self.embed_dim})"

    def prompt(self, x: Any, y: Any = None, a: Any = None, b: Any = None) -> Prompt:
        """The engineered prompt of a problem, as `AligningTransformer.prompt`; torch's modules take their own dtype only."""
        prompt = super().prompt(x, y, a, b)
        if prompt.Z.dtype != self.reg.dtype:
            given, wanted = (str(t.dtype).removeprefix("torch.") for t in (prompt.Z, self.reg))
            raise checks.ArgumentError("x", f"be {wanted}, the dtype of the modules", given)
        return prompt

    def widen(self, Z: Tensor) -> Tensor:
        """Append zeros to the registers of all tokens, [B, tokens, E]."""
        return nn.functional.pad(Z, (0, self.embed_dim - Z.shape[-1]))

    def attention_state(self, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> dict[str, Tensor]:
        """The table above as a state_dict of ``nn.MultiheadAttention`` without biases, in float64.

        W_Q, W_K [2, width, k], W_V [2, width, 1] and W_O [2, 1, width] of one layer.
        """
        parts = math.sqrt(self.head_dim) * W_Q.double(), W_K, W_V, W_O.mT
        Q, K, V, out = (self.in_heads(W, self.embed_dim) for W in parts)
        return {"in_proj_weight": torch.cat([Q.T, K.T, V.T]), "out_proj.weight": out}  # torch multiplies by the transpose

    def in_heads(self, W: Tensor, rows: int) -> Tensor:
        """Place W [2, r, k] in the first k of head_dim columns of the first two heads, in float64: [rows, E]."""
        two, r, k = W.shape
        placed = torch.zeros(rows, self.heads, self.head_dim, dtype=torch.float64, device=W.device)
        placed[:r, :two, :k] = W.movedim(0, 1)
        return placed.flatten(1)


class StockTransformer(Stock):
    """The layers of a network as ``torch.nn.MultiheadAttention`` modules, one for each of its distinct weights.

    Parameters
    ----------
    net : AligningTransformer
        A network with a frozen sink. Its weights are copied, in float64; ``.float()`` gives a float32 module.
    heads : int
        2 or more; heads beyond the two of the construction have zero weights.

    Examples
    --------
    >>> net = AligningTransformer(dim=1, reg=0.1, depth=50)
    >>> run = StockTransformer(net)([[0.9], [0.1]], [[0.0], [1.0]], attention=[50])
    >>> run.plan(50).round(decimals=3)
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """

    def __init__(self, net: AligningTransformer, heads: int = 2) -> None:
        super().__init__(net, heads)
        if net.sink != "frozen":
            raise checks.ArgumentError("net", "have a frozen sink (a key and value of its own)", f"sink={net.sink!r}")
        self.attention = nn.ModuleList()
        sign = self.registers["sign"]
        for k in range(len(net.reg)):
            W_K, W_V = net.W_K[k], net.W_V[k]
            state = self.attention_state(net.W_Q[k], W_K, W_V, net.W_O[k])
            state |= {name: self.in_heads(-W[:, sign], 1)[None] for name, W in (("bias_k", W_K), ("bias_v", W_V))}
            with torch.device("meta"):  # no random weights are drawn
                module = nn.MultiheadAttention(
                    self.embed_dim, self.heads, bias=False, add_bias_kv=True, batch_first=True, dtype=torch.float64
                )
            module.load_state_dict(copied(state, torch.float64), assign=True)
            self.attention.append(module)
        self.to(net.W_Q.device).eval().requires_grad_(False)

    @needs(lambda self, x, y, **_: self._need(x, y, self.heads))
    def forward(
        self, x: Any, y: Any = None, a: Any = None, b: Any = None, *, absent: Absent = "value", attention: Iterable[int] = ()
    ) -> StockRun:
        """Run on a problem, given as to `AligningTransformer`.

        ``absent``: how absent points are hidden, by a huge square in the prompt or by an attention mask of each head.
        ``attention``: layers whose attention is kept, 0 (the prompt) to depth; after the last layer its heads read once
        more.
        """
        checks.choice("absent", absent, ("value", "mask"))
        depth = len(self.layer)
        kept = {layer_number("attention", k, depth) for k in attention}
        prompt = self.prompt(x, y, a, b)
        Z, mask = prompt.Z[:, :-1], None  # the sink is no token here
        if absent == "mask":
            Z, mask = without_absent(Z, prompt, self.registers), absent_mask(prompt, self.heads)
        Z = self.widen(Z)
        memory, weights = [Z[..., self.memory]], {}
        for k, which in enumerate(self.layer.tolist()):
            update, A = self.attention[which](Z, Z, Z, attn_mask=mask, need_weights=k in kept, average_attn_weights=False)
            Z = Z + update
            memory.append(Z[..., self.memory])
            if k in kept:
                weights[k] = A
        if depth in kept:
            _, weights[depth] = self.attention[which](Z, Z, Z, attn_mask=mask, average_attn_weights=False)
        return StockRun(prompt, memory, weights)


def copied(state: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Copy weights into memory of their own, for a module to keep."""
    return {name: W.to(dtype).clone(memory_format=torch.contiguous_format) for name, W in state.items()}


def without_absent(Z: Tensor, prompt: Prompt, registers: Registers) -> Tensor:
    """Return tokens [B, T, width] whose absent squares are 0 instead of a huge number; a mask must hide them then."""
    Z = Z.clone()
    for square, present in zip(("x_sq", "y_sq"), _present(prompt), strict=True):
        Z[..., registers[square]] *= present[..., None]
    return Z


def absent_mask(prompt: Prompt, heads: int, others: int = 0) -> Tensor:
    """Mark where a head must not look, [B·heads, T + others, T + others]: rows at absent y, columns at absent x.

    ``others`` are tokens behind the T of the prompt, a sink for example: they look everywhere and everyone may look at
    them, as with absent values. (With ``add_bias_kv`` torch itself adds the column of the bias key.)
    """
    x_present, y_present = _present(prompt)
    B, T = x_present.shape
    mask = torch.zeros(B, heads, T + others, T + others, dtype=torch.bool, device=x_present.device)
    mask[:, HEADS.index("rows"), :T, :T] = ~y_present[:, None, :]
    mask[:, HEADS.index("columns"), :T, :T] = ~x_present[:, None, :]
    return mask.flatten(0, 1)


def _present(prompt: Prompt) -> list[Tensor]:
    """Return which tokens hold a point x, and which a point y: [B, T] each."""
    sides = (prompt.x_present, prompt.y_present)
    return [nn.functional.pad(side, (0, prompt.tokens - side.shape[-1])) for side in sides]
