"""What a run leaves behind: every kept layer's residual stream, potentials, attention and plan.

Layer ℓ is Z_ℓ: the state after ℓ layers, Z_0 the prompt, Z_{−1} the state after the last. ``attention(ℓ)`` is what a head
sees when it reads Z_ℓ (the paper's A^(ℓ)); after the last layer, the last layer's heads read once more.
Only the written columns of Z are stored, a few numbers per token and layer; everything else is made when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.memory import Need, matrices, needs
from otformer.network.prompt import Prompt
from otformer.network.weights import HEADS, HeadName
from otformer.show.card import PICTURES, Card, Shown

if TYPE_CHECKING:
    from otformer.network.transformer import AligningTransformer

FINE = 1024  # cells on a side of a picture by matplotlib
TOLERANCE = 1e-3  # of the mass: the marginal error up to which a plan counts as converged
REMAINS = 0.99  # least share of attention in the right place for a run of an edited prompt to count as converged


def layer_number(name: str, layer: Any, depth: int) -> int:
    """A layer from 0 (the prompt) to ``depth``; negative numbers count from the end.

    >>> layer_number("layer", -1, depth=600)
    600
    """
    if isinstance(layer, bool) or not isinstance(layer, (int, np.integer)) or not -depth - 1 <= layer <= depth:
        raise checks.ArgumentError(name, f"be from 0 to {depth}, or negative to count from the end", repr(layer))
    return int(layer) % (depth + 1)


class Run:
    """The prompt of a run, and u and v of every token after the layers that were kept: duals [kept, B, T, 2]."""

    def __init__(self, prompt: Prompt, layers: list[int], duals: Tensor) -> None:
        self.prompt, self.layers, self._duals = prompt, layers, duals
        self._place = {layer: k for k, layer in enumerate(layers)}

    def __len__(self) -> int:
        """The number of layers that were kept, the prompt among them."""
        return len(self.layers)

    @property
    def depth(self) -> int:
        """The number of layers that ran."""
        return self.layers[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """((B,) n, m): the shape of a plan."""
        return self.prompt.shape

    def potentials(self, layer: int = -1) -> tuple[Tensor, Tensor]:
        """(u, v) after ``layer`` layers, [(B,) n] and [(B,) m]; −inf where a point is absent."""
        u, v = self._cut(self._duals[self._kept(layer)][None])
        return u[0], v[0]

    def all_potentials(self) -> tuple[Tensor, Tensor]:
        """(u, v) after every kept layer, [kept, (B,) n] and [kept, (B,) m], in the order of ``layers``."""
        return self._cut(self._duals)

    def _cut(self, duals: Tensor) -> tuple[Tensor, Tensor]:
        """u and v of real points, −inf where one is absent, from [kept, B, T, 2]."""
        present = (self.prompt.x_present, self.prompt.y_present)
        u, v = (t[..., : p.shape[-1]].masked_fill(~p, -torch.inf) for t, p in zip(duals.unbind(-1), present, strict=True))
        return self.prompt.out(u, 1), self.prompt.out(v, 1)

    def _of_head(self, t: Tensor, head: Any, sink: bool) -> Tensor:
        """From [B, heads, T(+1), T+1] what real queries of a head have for real keys, the sink last if asked for."""
        n, m = self.shape[-2:]
        queries, keys = (n, m) if checks.choice("head", head, HEADS) == "rows" else (m, n)
        t = t[:, HEADS.index(head), :queries]
        return torch.cat([t[..., :keys], t[..., -1:]], dim=-1) if sink else t[..., :keys]

    def _kept(self, layer: int) -> int:
        """The place of a layer among those that were kept."""
        number = layer_number("layer", layer, self.depth)
        if number not in self._place:
            shown = str(self.layers) if len(self) <= 6 else f"{self.layers[:3]} … {self.depth}"
            raise ValueError(f"layer {number} was not kept; this trace holds {shown} of 0 to {self.depth}")
        return self._place[number]


class Trace(Run, Shown):
    """The run of an `AligningTransformer` on a problem.

    Results carry a leading batch axis if the points did. A trace reads the weights of its network when asked for
    attention or a plan: do not change them in between.

    Attributes
    ----------
    layers : list of int
        The layers that were kept, 0 (the prompt) to ``depth``; ``len(trace)`` is their number.
    shape : tuple of int
        (n, m), or (B, n, m) for a batch: the shape of a plan.
    marginal_error : float, or tensor [B] for a batch
        Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j| of the plan after the last layer.
    converged : bool
        Whether that error is at most ``tol`` times the mass, in every problem of a batch. For an edited prompt also whether
        ``remains`` is at least 0.99.
    remains : float, or tensor [B] for a batch
        The share of attention that agrees with the plan of the problem; see below.
    scale : float, or tensor [B] for a batch
        The problem's costs are ``scale`` times the network's: 1 unless the network has ``scale="auto"``. The plan is the one
        of the regularisation ``scale`` · λ, and ``scale`` · u, ``scale`` · v are its potentials.

    Examples
    --------
    >>> from otformer import AligningTransformer
    >>> trace = AligningTransformer(dim=1, reg=0.1, depth=50)([[0.9], [0.1]], [[0.0], [1.0]])
    >>> trace.shape, trace.converged, trace.attention(-1).round(decimals=3)
    ((2, 2), True, tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64))
    """

    def __init__(
        self, network: AligningTransformer, prompt: Prompt, written: list[int], memory: dict[int, Tensor], tol: float
    ) -> None:
        self.network, self.tol = network, tol
        self._written = written
        self._memory = torch.stack(list(memory.values()))  # [kept, B, T+1, len(written)]
        duals = [written.index(network.registers.column(name)) for name in ("u", "v")]
        super().__init__(prompt, list(memory), self._memory[:, :, :-1, duals])

    def __repr__(self) -> str:
        *batch, n, m = self.shape
        problem = f"{batch[0]} plans of {n}×{m}" if batch else f"{n}×{m} plan"
        kept = "" if len(self) == self.depth + 1 else f" ({len(self)} kept)"
        return f"Trace({self.depth} layers{kept}, {problem}, {self.verdict()})"

    def verdict(self) -> str:
        """Whether it has converged, and the marginal error; for an edited prompt also the edits and what remains."""
        error = f"marginal error {float(checks.local(self.marginal_error).max()):.2g}"
        if not self.prompt.edits:
            return f"{'converged' if self.converged else 'not converged'}: {error}"
        least = None if self.remains is None else float(checks.local(self.remains).min())
        share = "an unknown share" if least is None else f"{100 * least:.1f} %"
        return f"prompt edited ({'; '.join(self.prompt.edits)}): {share} of the attention is as in the plan; {error}"

    def Z(self, layer: int = -1) -> Tensor:
        """The residual stream after ``layer`` layers, the sink's row last; [(B,) T+1, width]."""
        return self.prompt.out(self._Z(layer))

    @needs(lambda self, **_: self._need())
    def attention(self, layer: int = -1, head: HeadName = "rows", sink: bool = False) -> Tensor:
        """Attention of a head reading Z_layer: over real tokens, rows summing to 1, or with the sink as last column.

        ``head="rows"``: [(B,) n, m], row i is where x_i looks; ``head="columns"``: [(B,) m, n], row j is where y_j looks.
        Rows of absent points are 0.
        """
        H = self._logits(layer, head, sink)
        A = torch.softmax(H, dim=-1)
        queries = self.prompt.x_present if head == "rows" else self.prompt.y_present
        return self.prompt.out(A * queries[..., None])

    @needs(lambda self, **_: self._need())
    def plan(self, layer: int = -1) -> Tensor:
        """P_ij = exp((u_i + v_j − C_ij)/λ − 1), [(B,) n, m], before any normalisation: its marginals tend to a and b."""
        return self.prompt.out(self._plan(layer))

    def _need(self) -> Need:
        count, tokens = self.prompt.Z.shape[:2]
        return Need(matrices("attention", tokens, tokens, count), 4 * count * tokens**2, "potentials() takes less")

    @cached_property
    def marginal_error(self) -> float | Tensor:
        """Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j| of the plan after the last layer; a tensor [B] for a batch."""
        error = self.marginal_errors([-1])[0]
        return error if self.prompt.batched else float(error)

    @torch.no_grad()
    def marginal_errors(self, layers: Iterable[int] | None = None) -> Tensor:
        """The marginal error after every kept layer, or after those named, [layers, (B,)]."""
        a, b, errors = self.prompt.a, self.prompt.b, []
        for layer in self.layers if layers is None else layers:
            P = self._plan(layer)
            errors.append((P.sum(-1) - a).abs().sum(-1) + (P.sum(-2) - b).abs().sum(-1))
        return self.prompt.out(torch.stack(errors), 1)

    @property
    def converged(self) -> bool:
        """Whether the marginal error is at most ``tol`` times the mass, in every problem, and the plan is the problem's."""
        fits = bool((checks.local(self.marginal_error) <= self.tol * self.prompt.out(self.prompt.a.sum(-1))).all())
        if not fits or not self.prompt.edits:  # edited costs have a plan too, which need not be the problem's
            return fits
        return self.remains is not None and bool((checks.local(self.remains) >= REMAINS).all())

    @cached_property
    @torch.no_grad()
    def remains(self) -> float | Tensor | None:
        """The share of attention in the right place, from 0 to 1: 1 − mean over x of ½ Σ_j |A_ij − P_ij / Σ_k P_ik|.

        P is P*_λ of the problem, before any edit of its prompt. A tensor [B] for a batch; None if P would take more than
        about a second.
        """
        from otformer.network.goal import distances, goal

        shares = []
        for k in range(len(self.prompt.a)):
            if (P := goal(self, k)) is None:
                return None
            shares.append(1 - distances(self, [self.depth], k, P)[0])
        return self.prompt.a.new_tensor(shares) if self.prompt.batched else shares[0]

    @property
    def scale(self) -> float | Tensor:
        """The factor from the network's costs to the problem's; a tensor [B] for a batch."""
        scale = self.prompt.a.new_ones(len(self.prompt.a)) if self.prompt.unit is None else self.prompt.unit
        return scale if self.prompt.batched else float(scale)

    def complaint(self) -> str:
        """One line for a plan that has not converged: its error, and a remedy."""
        error = checks.local(self.marginal_error).reshape(-1)
        mass = self.prompt.a.sum(-1)
        k = int((error / mass).nan_to_num(torch.inf).argmax())
        which = f" in problem {k}" if self.prompt.batched else ""
        reg = float(self.network.reg[self.network.layer[-1]])
        present = self.prompt.x_present[k][:, None] & self.prompt.y_present[k]
        H = self._of_head(self.network.logits(self.prompt.Z[k : k + 1], -1), "rows", sink=False)[0]
        largest = float((reg * (H + 1))[present].abs().max())  # H = −C/λ − 1 on the prompt
        annealed = self.network.schedule.startswith("Annealed")
        advice = "give more layers or a larger reg" if annealed else 'give more layers, a larger reg or schedule="annealed"'
        if largest > 4:
            advice = f'costs reach {largest:.3g} where reg = {reg:g} expects about 1; make the network with scale="auto"'
        return f"not converged{which}: marginal error {error[k]:.3g} of mass {mass[k]:.3g}; {advice}"

    def save(self, path: str | Path, labels: Any = None, goal: Any = None) -> None:
        """Write an HTML page with a slider over the layers, or a picture of attention after the last (.svg, .pdf, .png).

        The page needs no network to open, and page.html#layer=40 is a link.

        labels : two lists of texts, for the points x and for the points y; for a batch, a list of such pairs.
        goal : the plan [(B,) n, m] that layers are compared with; by default P*_λ, the limit of the layers.
        """
        if Path(checks.path("path", path, ".html", ".htm", *PICTURES)).suffix.lower() in PICTURES:
            if goal is not None:
                raise checks.ArgumentError("goal", "be left out of a picture: a page compares layers with it")
            return self._save(path, layers=[-1], labels=labels, cells=FINE)
        from otformer.network.trace_page import write_trace_page

        write_trace_page(self, path, labels, goal)

    def plot(self, layer: int = -1, head: HeadName = "rows", *, labels: Any = None, problem: int = 0, ax: Any = None) -> Any:
        """Draw the attention of a head after ``layer`` layers on axes of matplotlib, which are returned.

        labels : two lists of texts, for x and y.   problem : which of a batch.
        """
        return self._plot(ax, layers=[layer], head=head, labels=labels, problem=problem, cells=FINE)

    def animate(
        self,
        path: str | Path,
        *,
        seconds: float = 6.0,
        frames: int = 48,
        labels: Any = None,
        problem: int = 0,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Write a film of the layers, x looking at y: a .gif, or an .mp4 where ffmpeg is installed.

        Beside attention it shows the points if they have one or two dimensions, otherwise the marginal error.
        It takes seconds: ``progress`` is called with the fraction done after every frame.
        """
        from otformer.network.trace_film import write_film

        write_film(self, path, seconds, frames, labels, problem, progress)

    def _card(self, **options: Any) -> Card:
        from otformer.network.trace_card import card

        return card(self, **options)

    def _Z(self, layer: int) -> Tensor:
        Z = self.prompt.Z.clone()
        Z[..., self._written] = self._memory[self._kept(layer)]
        return Z

    def _plan(self, layer: int) -> Tensor:
        both = self.prompt.x_present[:, :, None] & self.prompt.y_present[:, None, :]
        return self.network.log_plan(self._logits(layer, "rows", sink=True)).exp().where(both, 0.0)

    def _logits(self, layer: int, head: Any, sink: bool) -> Tensor:
        """Logits [B, queries, keys] of one head, real tokens only, the sink last if asked for."""
        layer = self.layers[self._kept(layer)]
        return self._of_head(self.network.logits(self._Z(layer), min(layer, self.depth - 1)), head, sink)
