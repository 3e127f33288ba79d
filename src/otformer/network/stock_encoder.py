r"""The same weights inside unmodified ``torch.nn.TransformerEncoderLayer``: LayerNorm, residuals, feed-forward and all.

**Feed-forward.** Zero weights: its block adds 0, as the paper remarks.

**LayerNorm** maps a token z ∈ R^E to (z − mean(z))/√(var(z) + ε) · w. It disturbs the construction twice, and each has a
remedy that is a number in the prompt or in the weights:

*The mean.* Read every register relative to one that is always 0, ``spare``: (z_c − mean) − (0 − mean) = z_c. In weights,
W ← W − e_spare 1ᵀW for W_Q, W_K and W_V. Exact, whatever the mean.

*The scale.* A constant w cannot undo 1/√(var + ε), which differs from token to token and from layer to layer. So give every
token two constant registers, ``anchor_plus`` = R and ``anchor_minus`` = −R. They do not move the mean, and

    var(z) = (2R² + ‖z₀‖²)/E − mean²  →  √(var + ε) = √(2R²/E + ε) · (1 + O(‖z₀‖²/R²)),

z₀ being the other registers. With w = √(2R²/E + ε) LayerNorm is the identity up to ‖z₀‖²/R², below rounding for R = 2⁴⁸ in
float64 and 2²⁴ in float32. (An enormous ε does the same with R = 0, the usual 1e-5 does not: docs/stock.md.)

**The sink.** An encoder layer has no bias key: the sink is a token, updated like the others. That is the paper's network
(``sink="token"``). To freeze it by prompt alone (``sink="frozen"``, marginals only), add one more token, ``null``:

    register          sink        null
    one3, sign        0, −1       2, 0          the key reading ``one3 − sign`` is 1 for the sink, 2 for null, 0 for a token
    log_a, log_b      L           L             the query that multiplies it: the sink's logits are L, 2L and 0
    x_sq, y_sq        0           Q             real tokens have one1 = 1: their logit towards null is below −Q/λ
    all others        0           0

Sink and null put weight 1 − e^{−L}, in floating point 1, on null, whose value ``sign`` is 0: neither is ever updated.
Real tokens give null weight e^{−Q/λ}, in floating point 0: for them nothing has changed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from otformer import checks
from otformer.memory import needs
from otformer.network.prompt import Prompt
from otformer.network.stock import Stock, StockRun, absent_mask, copied, without_absent
from otformer.network.transformer import AligningTransformer

ANCHOR = {torch.float64: 2.0**48, torch.float32: 2.0**24}
NULL_LOGIT = 1024.0  # L: e^{−L} is 0 in float64
NULL_SQUARE = 4096.0  # Q/λ


class StockEncoder(Stock):
    """The layers of a network as ``torch.nn.TransformerEncoderLayer`` modules, one for each of its distinct weights.

    Parameters
    ----------
    net : AligningTransformer
        A network with either sink; a frozen one needs ``marginals=True``.
    heads : int
        2 or more; heads beyond the two of the construction have zero weights.
    eps, norm_first
        Settings of the encoder layers. Torch's defaults are 1e-5 and False; both orders work.
    anchor : float, optional
        R; 0 leaves LayerNorm as it is.
    dtype : torch.dtype
        The dtype of the modules and of the points they take, float64 or float32.

    Notes
    -----
    Absent points are masked.

    Examples
    --------
    >>> net = AligningTransformer(dim=1, reg=0.1, depth=50)
    >>> u, v = StockEncoder(net)([[0.9], [0.1]], [[0.0], [1.0]]).potentials()
    >>> bool(torch.allclose(u, net([[0.9], [0.1]], [[0.0], [1.0]]).potentials()[0], atol=1e-13))
    True
    """

    def __init__(
        self,
        net: AligningTransformer,
        heads: int = 2,
        eps: float = 1e-5,
        norm_first: bool = True,
        anchor: float | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(net, heads, checks.choice("dtype", dtype, ANCHOR), extra=("anchor_plus", "anchor_minus"))
        self.anchor = ANCHOR[dtype] if anchor is None else checks.not_negative("anchor", anchor)
        if self.sink == "frozen" and not self.registers.marginals:
            raise checks.ArgumentError("net", "have marginals=True", advice="the sink is frozen through log_a and log_b")
        self.null_square = NULL_SQUARE * float(net.reg.max())
        self.layers, eps = nn.ModuleList(), checks.positive("eps", eps)
        for k in range(len(net.reg)):
            options: Any = dict(layer_norm_eps=eps, batch_first=True, norm_first=norm_first, dtype=dtype)
            with torch.device("meta"):  # no random weights are drawn; a feed-forward layer of width 1, no dropout
                module = nn.TransformerEncoderLayer(self.embed_dim, self.heads, 1, 0.0, **options)
            zeros = {name: net.reg.new_zeros(weight.shape) for name, weight in module.state_dict().items()}
            state = zeros | self._state(net, k, eps)  # what _state does not name stays 0
            module.load_state_dict(copied(state, dtype), assign=True)
            self.layers.append(module)
        self.to(net.W_Q.device).eval().requires_grad_(False)

    def _state(self, net: AligningTransformer, k: int, eps: float) -> dict[str, Tensor]:
        """The weights of one layer that are not 0: attention that reads relative to ``spare``, and w of both norms."""
        Q, K, V = (W[k].double().clone() for W in (net.W_Q, net.W_K, net.W_V))
        for W in (Q, K, V):
            W[:, self.registers["spare"]] -= W.sum(1, keepdim=True)  # W − e_spare 1ᵀW, [2, width, k]
        attention = self.attention_state(Q, K, V, net.W_O[k])
        w = Q.new_full((self.embed_dim,), 2 * self.anchor**2 / self.embed_dim + eps).sqrt()
        return {f"self_attn.{name}": weight for name, weight in attention.items()} | {"norm1.weight": w, "norm2.weight": w}

    @needs(lambda self, x, y, **_: self._need(x, y, 2 * self.heads))
    def forward(self, x: Any, y: Any = None, a: Any = None, b: Any = None) -> StockRun:
        """Run on a problem, given as to `AligningTransformer`."""
        prompt = self.prompt(x, y, a, b)
        Z = self.embed(prompt)
        T = prompt.tokens
        mask = None if prompt.complete else absent_mask(prompt, self.heads, others=Z.shape[1] - T)
        memory = [Z[:, :T, self.memory]]
        for which in self.layer.tolist():
            Z = self.layers[which](Z, src_mask=mask)
            memory.append(Z[:, :T, self.memory] - Z[:, :T, self.registers["spare"]])
        return StockRun(prompt, memory, {})

    def embed(self, prompt: Prompt) -> Tensor:
        """The prompt with the sink as a token, then the null token if the sink is to be frozen, and the anchor."""
        r, T = self.registers, prompt.tokens
        tokens = [without_absent(prompt.Z[:, :T], prompt, r), prompt.Z[:, T:].clone()]
        if self.sink == "frozen":
            null = torch.zeros_like(tokens[1])
            null[..., r["one3"]], null[..., r.span("x_sq", "y_sq")] = 2, self.null_square
            for token in (tokens[1], null):
                token[..., r.span("log_a", "log_b")] = NULL_LOGIT
            tokens.append(null)
        Z = self.widen(torch.cat(tokens, dim=1))  # [B, T+1 or T+2, E]
        Z[..., r["anchor_plus"]], Z[..., r["anchor_minus"]] = self.anchor, -self.anchor
        return Z
