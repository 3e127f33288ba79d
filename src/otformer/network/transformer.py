"""The aligning transformer: residual layers of two softmax heads, frozen, run exactly as the matrices say.

    Z_{ℓ+1} = Z_ℓ + Σ_heads softmax(Z_ℓ W_Q W_Kᵀ Z_ℓᵀ) Z_ℓ W_V W_O

W_Q and W_K are the paper's K and Q, and W_V W_O its V B: W_V picks the register ``sign``, W_O puts −γ times it into
u or v. The same weights serve every n and every input.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from otformer import callers, checks
from otformer.memory import Need, needs
from otformer.network.prompt import Prompt
from otformer.network.read import Prompted, Scale, SinkValue
from otformer.network.registers import Registers
from otformer.network.schedule import Layer, Schedule, named
from otformer.network.trace import TOLERANCE, Trace, layer_number
from otformer.network.weights import HEADS, Head, HeadName, head
from otformer.tensor_files import load_weights, read_tensors, write_tensors

Sink = Literal["frozen", "token"]
Keep = Literal["all", "last"] | Iterable[int]

LEAST_REG = 1e-30
MOST_COORDINATES = 10**5  # coordinates of a point: weights have the square of that
DEEPEST = 10**6  # layers, which are laid out one by one


class AligningTransformer(Prompted):
    """A transformer whose attention converges to the entropic transport plan of its prompt,

        P = argmin Σ_ij C_ij P_ij + λ Σ_ij P_ij log P_ij   over   Σ_j P_ij = a_i,  Σ_i P_ij = b_j.

    Parameters
    ----------
    dim : int
        Dimension d of the points (or of the cost's features).
    reg : float
        λ > 0. It suits costs of order 1: a head moves u and v by at most γ ≈ λ per layer. For points outside the unit cube
        λ should grow like the square of their distances; or set ``scale="auto"``. The cost is the squared Euclidean
        distance, not half of it.
    depth : int
        Number of layers.
    schedule : str or schedule
        ``"paper"``, ``"gradient"``, ``"alternating"``, ``"relaxed"``, ``"annealed"``, or a schedule (schedule.py).
    sink : {"frozen", "token"}
        ``"frozen"``: a token that is only a key and a value; equal to gradient descent at every layer. ``"token"``: the
        paper's, updated like the others; its plan's marginals tend to 1/n (docs/errata.md), so only its attention is a
        plan, and there are no warnings.
    marginals : bool
        Whether tokens have the two registers that carry weights a and b (2d+11 columns instead of 2d+9).
    scale : {"auto", None}
        ``"auto"`` solves every problem in units of its largest cost: points are centred and divided by √k, k = max C_ij.
        λ is then a share of the largest cost: the plan is exactly the one for the costs C and the regularisation k·λ.
        Potentials and logits are in those units; ``trace.scale`` is k.
    sink_value : {"one", "mean"}
        What heads read from the sink: −1, as printed, or −1/n, as in the author's notebooks. A layer then takes
        u ← u − γ (S − 1/n)/(S + 1), and sums tend to 1/n. Needs ``marginals=False``.

    Notes
    -----
    The logits are 2x·y − ‖x‖² − ‖y‖² over λ, as in the paper: without ``scale`` an offset common to all points costs digits.

    Buffers, all in ``state_dict``: ``W_Q``, ``W_K`` [weights, 2, width, head], ``W_V`` [weights, 2, width, 1],
    ``W_O`` [weights, 2, 1, width], ``reg`` [weights], and ``layer`` [depth], the index of each layer's weights.

    References
    ----------
    Hadi Daneshmand, arXiv 2410.19931; corrected as in docs/errata.md.

    Examples
    --------
    >>> AligningTransformer(dim=2, reg=0.1, depth=600)
    AligningTransformer(dim=2, reg=0.1, depth=600, schedule=Gradient(step=None), sink=frozen, columns=15)
    >>> net = AligningTransformer(dim=1, reg=0.01, depth=200, schedule="annealed")
    >>> trace = net([[0.9], [0.1], [0.5]], [[0.0], [0.5], [1.0]])
    >>> trace.attention(-1).argmax(1)         # x_1 = 0.9 goes to y_3, x_2 = 0.1 to y_1, x_3 = 0.5 to y_2
    tensor([2, 0, 1])
    """

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    reg: Tensor
    layer: Tensor

    @needs(lambda dim, depth, **_: Need(f"{depth:,} layers of {dim:,} coordinates", 24 * dim**2, "use fewer coordinates"))
    def __init__(
        self,
        dim: int,
        reg: float,
        depth: int,
        schedule: str | Schedule = "gradient",
        sink: Sink = "frozen",
        marginals: bool = True,
        scale: Scale = None,
        sink_value: SinkValue = "one",
    ) -> None:
        super().__init__()
        chosen = named(schedule)
        lam = checks.positive("reg", reg)
        if not LEAST_REG <= lam <= 1 / LEAST_REG:
            raise checks.ArgumentError("reg", f"lie from {LEAST_REG:g} to {1 / LEAST_REG:g} in float32", f"{lam:g}")
        layers = chosen.layers(lam, checks.count("depth", depth, most=DEEPEST))
        self._describe(checks.count("dim", dim, most=MOST_COORDINATES), marginals, sink, scale, repr(chosen), sink_value)
        distinct = list(dict.fromkeys(layers))
        for name, weights in self._weights(distinct).items():
            self.register_buffer(name, weights)
        self.register_buffer("reg", torch.tensor([each.reg for each in distinct], dtype=torch.float64, device="cpu"))
        self.register_buffer("layer", torch.tensor([distinct.index(each) for each in layers], device="cpu"))

    def _describe(
        self, dim: int, marginals: bool, sink: Sink, scale: Scale, schedule: str, sink_value: SinkValue = "one"
    ) -> None:
        """Set what a file of weights must say besides its tensors."""
        self.registers, self.schedule = Registers(dim, marginals), schedule
        self.sink: Sink = checks.choice("sink", sink, ("frozen", "token"))
        self.scale: Scale = checks.choice("scale", scale, ("auto", None))
        self.sink_value: SinkValue = checks.choice("sink_value", sink_value, ("one", "mean"))

    def extra_repr(self) -> str:
        reg, scale = float(self.reg[self.layer[-1]]), ", scale=auto" if self.scale else ""
        problem = f"dim={self.registers.dim}, reg={reg:g}, depth={self.depth}, schedule={self.schedule}"
        value = ", sink_value=mean" if self.sink_value == "mean" else ""
        return f"{problem}, sink={self.sink}{value}{scale}, columns={self.registers.width}"

    def _weights(self, layers: list[Layer]) -> dict[str, Tensor]:
        """W_Q, W_K, W_V, W_O of each layer, from the heads of weights.py."""
        r, unit = self.registers, torch.eye(self.registers.width, dtype=torch.float64, device="cpu")
        parts = []
        for layer in layers:
            for name, step in zip(HEADS, (layer.rows, layer.columns), strict=True):
                h = self._head(name, layer.reg)
                parts.append((h.query(r), h.key(r), unit[:, r[h.value]], -step * unit[r[h.writes]]))
        stacked = (torch.stack(each).unflatten(0, (len(layers), 2)) for each in zip(*parts, strict=True))
        return dict(zip(("W_Q", "W_K", "W_V", "W_O"), stacked, strict=True))

    def _head(self, name: HeadName, reg: float) -> Head:
        """One head at one λ, in terms of this network's registers."""
        return head(name, reg, self.registers)

    def log_plan(self, logits: Tensor) -> Tensor:
        """log P [..., n, m] from the logits of the head ``rows`` towards real tokens and, last, the sink."""
        return logits[..., :-1]

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.layer)

    def written(self) -> list[int]:
        """u and v, and any other column that a layer writes. All others keep the prompt's numbers."""
        found = (self.W_O != 0).flatten(0, 2).any(0).nonzero()[:, 0].tolist()
        return sorted({*found, self.registers.column("u"), self.registers.column("v")})

    def logits(self, Z: Tensor, layer: int) -> Tensor:
        """Logits of both heads in layer ``layer`` (0-based), from its input Z [B, T+1, width]; [B, 2, T+1, T+1]."""
        k = int(self.layer[layer])
        Z = Z[:, None]
        return (Z @ self.W_Q[k].to(Z)) @ (Z @ self.W_K[k].to(Z)).mT

    def block(self, Z: Tensor, layer: int) -> Tensor:
        """One layer of the network, ``layer`` (0-based): Z_ℓ → Z_{ℓ+1}, [B, T+1, width]."""
        k = int(self.layer[layer])
        A = torch.softmax(self.logits(Z, layer), dim=-1)  # [B, 2, T+1, T+1]
        update = (A @ (Z[:, None] @ self.W_V[k].to(Z)) @ self.W_O[k].to(Z)).sum(1)  # [B, T+1, width]
        if self.sink == "frozen":
            update[:, -1] = 0
        return Z + update

    @needs(lambda self, x, y, **_: self._need(x, y, 8))
    def forward(
        self,
        x: Any,
        y: Any = None,
        a: Any = None,
        b: Any = None,
        *,
        start: tuple[Any, Any] | None = None,
        keep: Keep = "all",
        tol: float = TOLERANCE,
        warn: bool = True,
    ) -> Trace:
        """Run the network on points x (n, d) and y (m, d), on batches (B, n, d), or on lists of them (ragged).

        Parameters
        ----------
        x, y : arrays, tensors or lists
            Points; or ``x`` alone: a `Features` value (any other cost), or a prompt, as ``net.prompt(x, y)`` gives it and
            its ``blank``, ``scale``, ``add`` and ``copy`` edit it (edits.py).
        a, b : arrays, tensors or lists, optional
            Weights of equal sum; default a = 1 and b = n/m, the paper's. A weight of 0 marks a point as absent.
        start : (u, v), optional
            Potentials that the prompt holds, [(B,) n] and [(B,) m], in the units of the prompt; by default 0.
        keep : {"all", "last"} or layer numbers
            The layers that the trace keeps.
        tol : float
            The plan has converged if its marginal error is at most ``tol`` times the mass.
        warn : bool
            Whether to warn if the plan has not converged (with a frozen sink). The check costs one more layer. An edited
            prompt gives no warning: the trace says what remains.
        """
        kept = _layers_to_keep(keep, self.depth)
        tol = checks.not_negative("tol", tol)
        prompt = self.prompt(x, y, a, b)
        written = self.written()
        Z = prompt.Z if start is None else self._started(prompt, start)
        memory = {}
        for layer in range(self.depth + 1):
            if layer in kept:
                memory[layer] = Z[..., written].clone()
            if layer < self.depth:
                Z = self.block(Z, layer)
        if prompt.edits and not bool(self.logits(Z, self.depth - 1).isfinite().all()):
            found = f"be smaller: the numbers of the layers leave the range of {Z.dtype}"
            raise checks.ArgumentError("edits of the prompt", found, "; ".join(prompt.edits))
        trace = Trace(self, prompt, written, memory, tol)
        if warn and not prompt.edits and self.sink == "frozen" and not trace.converged:
            callers.warn(trace.complaint())
        return trace

    def _started(self, prompt: Prompt, start: tuple[Any, Any]) -> Tensor:
        """Write the potentials of a start into the registers u and v of the prompt."""
        if not isinstance(start, (tuple, list)) or len(start) != 2:
            raise checks.ArgumentError("start", "be a pair (u, v)", type(start).__name__)
        Z = prompt.Z.clone()
        for name, given, count in zip("uv", start, prompt.shape[-2:], strict=True):
            values = checks.tensor(f"start: {name}", given).to(Z)
            wanted = (*prompt.shape[:-2], count)
            if tuple(values.shape) != wanted:
                raise checks.ArgumentError(f"start: {name}", f"have shape {wanted}", str(tuple(values.shape)))
            Z[:, :count, self.registers.column(name)] = values
        return Z

    def _settings(self) -> dict[str, Any]:
        """The arguments of `_describe`, by name."""
        r = self.registers
        known = {"dim": r.dim, "marginals": r.marginals, "sink": self.sink, "scale": self.scale, "schedule": self.schedule}
        return known | ({"sink_value": self.sink_value} if self.sink_value != "one" else {})

    def save(self, path: str | Path) -> None:
        """Write the weights and the settings that `from_file` needs, as safetensors."""
        if not checks.path("path", path).parent.is_dir():
            raise checks.ArgumentError("path", "be in an existing folder", repr(str(path)))
        write_tensors(Path(path), self.state_dict(), {"network": type(self).__name__, "settings": self._settings()})

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The network that `save` has written: class, weights and settings come from the file."""
        tensors, about = read_tensors(checks.path("path", path))
        kinds = {each.__name__: each for each in (cls, *cls.__subclasses__())}
        found = about.get("network", "weights without a description: build the network and use load")
        if found not in kinds or "settings" not in about:
            raise checks.ArgumentError(path, f"hold a network of class {' or '.join(kinds)}", found)
        net = kinds[found].__new__(kinds[found])
        nn.Module.__init__(net)
        try:
            net._describe(**json.loads(about["settings"]))
        except (ValueError, TypeError, RecursionError):
            raise ValueError(f"{path} is damaged: no network has the settings {about['settings'][:100]!r}") from None
        if set(tensors) != set(kinds[found](1, 1.0, 1).state_dict()) or tensors["W_Q"].shape[-2] != net.registers.width:
            raise ValueError(f"{path} is damaged: its tensors are not those of a {found} of these settings")
        for name, tensor in tensors.items():
            net.register_buffer(name, tensor)
        return net

    def load(self, path: str | Path) -> Self:
        """Read weights written by `save` for a network of the same shape; returns the network."""
        load_weights(self, read_tensors(checks.path("path", path))[0], Path(path))
        return self


def _layers_to_keep(keep: Keep, depth: int) -> set[int]:
    if keep == "all":
        return set(range(depth + 1))
    if keep == "last":
        return {depth}
    if isinstance(keep, str) or not isinstance(keep, Iterable):
        raise checks.ArgumentError("keep", "be 'all', 'last' or layer numbers", repr(keep))
    return {layer_number("keep", k, depth) for k in keep} | {depth}
