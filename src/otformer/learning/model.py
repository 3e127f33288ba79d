r"""The trainable transformer of appendix A, K of them side by side.

    Z_{ℓ+1} = Z_ℓ + B Σ_{j=1,2} A_j Z_ℓ V_j,      A_j = softmax(Z_ℓ P_j Z_ℓᵀ),      B = 1/20,
    output:   A = softmax(Z P Zᵀ) over the first n rows (not the sink),      f = (A Z V)_{:, 0:d}.

P = K Qᵀ is one matrix, as in the paper. Row i of the output attention A is y_i, column j is x_j: with y sorted, the right
A is the permutation that sorts x, and f is the sorted list.

Every parameter has a leading axis K: an *ensemble* of K models that never mix, trained in one batched run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from otformer import checks
from otformer.network.features import Features
from otformer.network.prompt import tokens
from otformer.network.registers import ENGINEERED, PLAIN, Registers

HEADS = 2
MIX = 1 / 20  # the paper's B
LEAST_SUM = 1e-12  # the sum by which a row of a bare softmax is divided, at least: torch.nn.functional.normalize's
LayerWeights = tuple[Tensor, Tensor]  # of one layer: P [K, w, 2w] and V [K, 2w, columns written], heads side by side, B in V


@dataclass(frozen=True)
class Architecture:
    """What is fixed before training.

    Parameters
    ----------
    dim : int
        d, coordinates per point.
    depth : int
        Layers, or turns of the one layer when ``tied``.
    tied : bool
        Whether there is one layer, looped.
    prompt : {"engineered", "plain"}
        2d+9 columns and a sink, or Z' = [x, y, 0] without one.
    written : {"all", "memory"}
        The columns that layers write: all, or u, v and spare (of the plain prompt, its one zero column).
    sink : {"token", "frozen"}
        The paper's, updated like the other tokens, or never updated.
    temperature : bool
        Whether layer ℓ of L has the weights P exp(τ₀ + τ₁ ℓ/L) and V exp(s₀ + s₁ ℓ/L), τ and s learned for every head and
        0 at the start; the output head P exp(τ₀). Attention stays standard: each layer's weights are constants. A tied
        layer can so anneal, and a head become sharp in fewer steps of Adam, whose steps are short for large weights.
    mix : float
        B, by which everything that layers write is multiplied; the author's notebook has −γ = −0.1.
    memory : {"zero", "random"}
        What u and v start from: 0, or numbers given with every problem (the author's: u normal, v uniform on [0, 1]).
    weight : {"one", "share"}
        The weight of a point: the sink's entry is −1, or −1/n as in the author's notebook.
    value : {"learned", "x", "y"}
        What the output head returns the mean of: Z V_out, or the column x or y of Z, which layers may have overwritten.
    hidden : {"sink", "last"}
        The token that the output head does not see: the sink, if there is one, or the last token, whatever it is. The
        author's notebook hides the last one, so that without a sink no answer can take the last point.
    softmax : {"stable", "bare"}
        Bare is exp(logits) over its sum, as in the author's notebook: not a number once a logit exceeds 88.7 in float32.
    """

    dim: int = 1
    depth: int = 20
    tied: bool = False
    prompt: Literal["engineered", "plain"] = "engineered"
    written: Literal["all", "memory"] = "all"
    sink: Literal["token", "frozen"] = "token"
    temperature: bool = False
    mix: float = MIX
    memory: Literal["zero", "random"] = "zero"
    weight: Literal["one", "share"] = "one"
    value: Literal["learned", "x", "y"] = "learned"
    hidden: Literal["sink", "last"] = "sink"
    softmax: Literal["stable", "bare"] = "stable"

    def __post_init__(self) -> None:
        checks.count("dim", self.dim)
        checks.count("depth", self.depth, least=0)
        checks.choice("prompt", self.prompt, ("engineered", "plain"))
        checks.choice("written", self.written, ("all", "memory"))
        checks.choice("sink", self.sink, ("token", "frozen"))
        checks.choice("memory", self.memory, ("zero", "random") if self.prompt == "engineered" else ("zero",))
        checks.choice("weight", self.weight, ("one", "share") if self.prompt == "engineered" else ("one",))
        checks.choice("value", self.value, ("learned", "x", "y"))
        checks.choice("hidden", self.hidden, ("sink", "last"))
        checks.choice("softmax", self.softmax, ("stable", "bare"))

    @property
    def registers(self) -> Registers:
        """The columns of the prompt."""
        return Registers(self.dim, marginals=False, names=ENGINEERED if self.prompt == "engineered" else PLAIN)

    @property
    def columns_written(self) -> slice:
        """The columns that layers write."""
        r = self.registers
        return slice(0, r.width) if self.written == "all" else r.span("u" if "u" in r else "spare", "spare")

    @property
    def layers(self) -> int:
        """Layers with weights of their own."""
        return min(1, self.depth) if self.tied else self.depth


class Output(NamedTuple):
    """What the output head says: logits of its attention [K, B, n, n] and the list it returns [K, B, n, d]."""

    logits: Tensor
    points: Tensor

    @property
    def attention(self) -> Tensor:
        """A, [K, B, n, n]: rows y, columns x; absent columns are 0."""
        return self.logits.softmax(-1)


class LearningTransformer(nn.Module):
    """K trainable transformers of one architecture. Parameters start at 0: see initialisation.py for the paper's Gaussian.

    P [K, layers, 2, w, w], V [K, layers, 2, w, columns written], P_out [K, w, w], with a learned value V_out [K, w, d], and
    with a learned temperature tau and step [K, layers, 2, 2] and tau_out [K].

    >>> net = LearningTransformer(Architecture(), ensemble=3)
    >>> x = torch.tensor([[[0.5], [1.0]]])
    >>> net(x, x).attention.shape, sum(p.numel() for p in net.parameters()) // 3
    (torch.Size([3, 1, 2, 2]), 9812)
    """

    def __init__(self, architecture: Architecture, ensemble: int = 1) -> None:
        super().__init__()
        self.architecture = a = architecture
        self.ensemble = checks.count("ensemble", ensemble)
        w, written = a.registers.width, a.columns_written

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(self.ensemble, *shape, dtype=torch.float32))

        self.P, self.V = zeros(a.layers, HEADS, w, w), zeros(a.layers, HEADS, w, written.stop - written.start)
        self.P_out = zeros(w, w)
        if a.value == "learned":
            self.V_out = zeros(w, a.dim)
        if a.temperature:
            self.tau, self.step, self.tau_out = zeros(a.layers, HEADS, 2), zeros(a.layers, HEADS, 2), zeros()

    def extra_repr(self) -> str:
        a, count = self.architecture, sum(p[0].numel() for p in self.parameters())
        layers = f"{a.depth} loops of one layer" if a.tied else f"{a.depth} layers"
        return f"{layers}, dim={a.dim}, {a.prompt} prompt, {count:,} parameters, ensemble of {self.ensemble}"

    def prompt(self, x: Tensor, y: Tensor, present: Tensor | None = None, memory: Tensor | None = None) -> Tensor:
        """Z₀ of every member, [K, B, T, w], from x and y [B, n, d] (shared by the members) or [K, B, n, d].

        ``memory`` [(K,) B, n, 2] is what u and v start from in a network with random memory; None: 0.
        """
        a, r, n = self.architecture, self.architecture.registers, x.shape[-2]
        x, y = (t.expand(self.ensemble, *t.shape[-3:]) for t in (x, y))
        Z = tokens(Features.of_points(x, y), r)
        if a.weight == "share":
            Z[..., n, r.column("sign")] = -1 / n if present is None else -1 / present.sum(-1).to(Z)
        if a.memory == "random" and memory is not None:
            Z[..., :n, r.span("u", "v")] = memory
        return Z

    def bias(self, present: Tensor | None) -> Tensor | None:
        """−∞ towards absent tokens, [K, B, 1, T], from the points that are present, [B, n] or [K, B, n]."""
        if present is None:
            return None
        there = present.expand(self.ensemble, *present.shape[-2:])
        there = F.pad(there, (0, int(self.architecture.prompt == "engineered")), value=True)
        return torch.zeros_like(there, dtype=self.P.dtype).masked_fill(~there, -torch.inf)[..., None, :]

    def weights(self) -> list[LayerWeights]:
        """The weights of every layer."""
        a, (K, _, _, w, written) = self.architecture, self.V.shape
        if a.layers == 0:
            return []
        P, V = (t.expand(K, a.depth, *t.shape[2:]) if a.tied else t for t in (self.P, self.V))
        if a.temperature:
            time = torch.arange(P.shape[1], device=P.device).to(P)[:, None] / P.shape[1]  # [L, 1]
            P, V = (t * (e[..., 0] + e[..., 1] * time).exp()[..., None, None] for t, e in ((P, self.tau), (V, self.step)))
        P = P.transpose(2, 3).reshape(K, -1, w, HEADS * w)
        V = a.mix * V.reshape(K, -1, HEADS * w, written)
        return list(zip(P.unbind(1), V.unbind(1), strict=True))

    def logits(self, Z: Tensor, weights: LayerWeights, bias: Tensor | None = None) -> Tensor:
        """Logits of both heads of a layer, [K, B, T·2, T], rows (token, head)."""
        K, B, T, w = Z.shape
        queries = (Z.reshape(K, B * T, w) @ weights[0]).view(K, B, T * HEADS, w)
        logits = queries @ Z.mT
        return logits if bias is None else logits + bias

    def shares(self, logits: Tensor, least: float = LEAST_SUM) -> Tensor:
        """Softmax of the last axis, as the architecture computes it."""
        if self.architecture.softmax == "stable":
            return logits.softmax(-1)
        powers = logits.exp()
        return powers / powers.sum(-1, keepdim=True).clamp_min(least)

    def attention(self, Z: Tensor, weights: LayerWeights, bias: Tensor | None = None) -> Tensor:
        """Attention of both heads of a layer on its input Z, [K, B, 2, T, T]."""
        return self.shares(self.logits(Z, weights, bias)).unflatten(2, (Z.shape[2], HEADS)).transpose(2, 3)

    def block(self, Z: Tensor, weights: LayerWeights, bias: Tensor | None = None) -> Tensor:
        """Z_ℓ → Z_{ℓ+1}, [K, B, T, w]."""
        K, B, T, w = Z.shape
        mixed = self.shares(self.logits(Z, weights, bias)) @ Z  # [K, B, T·2, w]
        update = (mixed.view(K, B * T, HEADS * w) @ weights[1]).unflatten(1, (B, T))
        columns = self.architecture.columns_written
        frozen = int(self.architecture.sink == "frozen" and self.architecture.prompt == "engineered")
        return Z + F.pad(update[..., : T - frozen, :], (columns.start, w - columns.stop, 0, frozen))

    def output(self, Z: Tensor, bias: Tensor | None = None) -> Output:
        """The output head, applied to the state of any layer."""
        a = self.architecture
        if a.prompt == "engineered":
            Z, bias = Z[..., :-1, :], None if bias is None else bias[..., :-1]
        P = self.P_out * self.tau_out.exp()[:, None, None] if a.temperature else self.P_out
        logits = Z @ P[:, None] @ Z.mT  # [K, B, n, n]
        logits = logits if bias is None else logits + bias
        if a.hidden == "last" and a.prompt == "plain":
            logits = F.pad(logits[..., :-1], (0, 1), value=-torch.inf)
        values = Z @ self.V_out[:, None] if a.value == "learned" else Z[..., a.registers[a.value]]
        return Output(logits, self.shares(logits, least=0.0) @ values)

    def states(self, x: Tensor, y: Tensor, present: Tensor | None = None, memory: Tensor | None = None) -> list[Tensor]:
        """Z₀, …, Z_L, each [K, B, T, w]; `output` reads any of them."""
        found, bias = [self.prompt(x, y, present, memory)], self.bias(present)
        for weights in self.weights():
            found.append(self.block(found[-1], weights, bias))
        return found

    def forward(self, x: Tensor, y: Tensor, present: Tensor | None = None, memory: Tensor | None = None) -> Output:
        """The output head after the last layer, of points x and y as `prompt` takes them."""
        return self.output(self.states(x, y, present, memory)[-1], self.bias(present))

    def member(self, k: int) -> LearningTransformer:
        """One of the K models, alone."""
        checks.count("member", k, least=0, most=self.ensemble - 1)
        with self.P.device:
            alone = LearningTransformer(self.architecture).to(self.P.dtype)
        alone.load_state_dict({name: t[k : k + 1] for name, t in self.state_dict().items()})
        return alone
