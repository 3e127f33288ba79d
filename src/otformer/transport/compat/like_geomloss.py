r"""GeomLoss's ``SamplesLoss("sinkhorn")`` on our engine, and the debiased divergence in our own conventions.

Between weighted points (α, x) and (β, y), with a cost C and ε > 0,

    OT(α, β) = min_P Σ P C + ε KL(P | α⊗β) = Σ α f + Σ β g,      P_ij = α_i β_j exp((f_i + g_j − C_ij)/ε),
    S(α, β)  = OT(α, β) − ½ OT(α, α) − ½ OT(β, β)                                        (debiased).

With ``reach`` the marginals are penalised by ρ KL instead (transport/variants/unbalanced.py), and Σ α f becomes Σ α φ(f)
with φ(f) = (ρ + ε/2)(1 − exp(−f/ρ)) [Séjourné et al. 2019, prop. 12]. transport/variants/debiased.py finds f and g.

**Gradients** are those of the envelope theorem: P for C, and through it for x and y; f for α (with reach
(ρ + ε)(1 − exp(−f/ρ)) − ε/2); the same for β. Without matrices they are found when they are asked for, and those of the
balanced debiased loss of squared distances can be differentiated once more; any other second derivative is an error, not a
wrong number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks, weight_checks
from otformer.callers import own_keywords
from otformer.memory import Need, needs, shape
from otformer.network.features import pair
from otformer.transport.costs.distances import moving_squares, root_of
from otformer.transport.needs import DIVERGENCE, of_points, of_stream
from otformer.transport.variants.debiased import PointsLoss, matrix_losses

Cost = Callable[[Tensor, Tensor], Tensor]  # [B, N, D], [B, M, D] → [B, N, M]
ONLINE_ABOVE = 5000**2  # entries of a cost matrix, above which "auto" forms none; GeomLoss's number


class SamplesLoss(torch.nn.Module):
    """GeomLoss's loss between point clouds: ``SamplesLoss("sinkhorn", p=2, blur=.05)(x, y)``.

    Parameters, with GeomLoss's names and meaning
    ---------------------------------------------
    loss : "sinkhorn"; the kernel losses of GeomLoss are not transport, and are not offered.
    p : cost ½‖x − y‖² (p = 2, the default) or ‖x − y‖ (p = 1), and ε = blurᵖ.
    blur : the length below which differences are ignored.
    reach : None (balanced, equal masses) or the length of ρ = reachᵖ (unbalanced, any masses).
    cost : a function of (B, N, D) and (B, M, D) tensors that gives (B, N, M), instead of the above.
    debias : S(α, β), else OT(α, β).
    potentials : return (F, G), shaped as the weights, instead of the loss: f and g, less those of OT(α, α) and OT(β, β) if
        debiased. Balanced f and g are fixed up to a constant, chosen so that Σ α f = Σ β g.
    tol : ours. The relative L1 error of the marginals to reach (with reach: the error of `solve_unbalanced`), by default
        1e-8 in float64 and 1e-4 in float32. The error of the loss itself is of second order in it.
    backend : "tensorized" works on matrices; "online" and "multiscale" without, in O(N + M) memory; "auto" forms none above
        5000² entries. All agree. A custom cost is always a matrix.
    diameter, scaling, truncate, cluster_scale, kernel, verbose : accepted, without effect: they trade accuracy for time,
        but here ``tol`` is always reached.

    Call it with (x, y) or (α, x, β, y); points (N, D), or (B, N, D) for B losses at once; weights (N,) or (B, N).

    >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [2.0]])
    >>> round(float(SamplesLoss("sinkhorn", p=2, blur=0.01)(x, y)), 4)
    0.5
    """

    def __init__(
        self,
        loss: str = "sinkhorn",
        p: int = 2,
        blur: float = 0.05,
        reach: float | None = None,
        diameter: float | None = None,
        scaling: float = 0.5,
        truncate: float | None = 5,
        cost: Cost | None = None,
        kernel: Any = None,
        cluster_scale: float | None = None,
        debias: bool = True,
        potentials: bool = False,
        verbose: bool = False,
        backend: str = "auto",
        tol: float | None = None,
    ) -> None:
        super().__init__()
        checks.choice("loss", loss, ("sinkhorn",))
        checks.choice("p", p, (1, 2))
        checks.choice("backend", backend, ("auto", "tensorized", "online", "multiscale"))
        if cost is not None and not callable(cost):
            raise ValueError(f"cost must be a function of two tensors (KeOps formulas are not read), got {cost!r}")
        self.loss, self.p, self.blur, self.reach, self.cost = loss, p, checks.positive("blur", blur), reach, cost
        self.diameter, self.scaling, self.truncate, self.kernel = diameter, scaling, truncate, kernel
        self.cluster_scale, self.verbose, self.backend = cluster_scale, verbose, backend
        self.debias, self.potentials, self.tol = debias, potentials, tol
        self.eps = self.blur if p == 1 else checks.positive("blur²", self.blur * self.blur)
        length = None if reach is None else checks.positive("reach", reach)
        self.rho = length if length is None or p == 1 else checks.positive("reach²", length * length)
        if self.rho is not None and self.rho + self.eps == self.rho:
            raise ValueError(f"blur is too small beside reach for float64, got blur {self.blur:g} and reach {length:g}")

    @needs(lambda self, args, **_: _need(args[-3 if len(args) == 4 else 0], args[-1], self.backend, self.cost))
    def forward(self, *args: Any) -> Any:
        """The loss, () or (B,), or the potentials, of (x, y) or (α, x, β, y)."""
        if len(args) == 6:
            raise ValueError("cluster labels (l_x, α, x, l_y, β, y) are not supported: give x, y or α, x, β, y")
        if len(args) not in (2, 4):
            raise ValueError(f"SamplesLoss takes x, y or α, x, β, y, got {len(args)} arguments")
        α, x, β, y = args if len(args) == 4 else (None, args[0], None, args[1])
        x, y = pair(x, y)
        a, b = _weights("α", α, x), _weights("β", β, y)
        if _nothing(x, y):
            return (a, b) if self.potentials else (x.sum((-2, -1)) + y.sum((-2, -1)))
        if self.rho is None:
            weight_checks.same_mass(a, b, "α and β")
        batch = (x, y, a, b) if x.ndim == 3 else tuple(t[None] for t in (x, y, a, b))
        scale = 0.5 if self.p == 2 else 1.0
        loss = PointsLoss(self.eps, self.rho, _tol(self.tol, x), self.debias, scale, self.p == 1)
        F, G, value = _losses(batch, loss, self.cost, _large(x, y, self.backend, self.cost))
        if self.potentials:
            checks.no_tangents("potentials have no derivatives", x=x, y=y, α=a, β=b)
            F, G = F.to(x), G.to(x)
            return F.reshape(a.shape if α is None else np.shape(α)), G.reshape(b.shape if β is None else np.shape(β))
        return value.to(x).reshape(x.shape[:-2])


@own_keywords
@needs(lambda x, y, **_: _need(x, y))
def divergence(x: Any, y: Any, a: Any = None, b: Any = None, reg: float = 0.1, tol: float | None = None) -> Any:
    """The debiased divergence in the conventions of `solve_sample`: cost ‖x − y‖², not half of it, and reg = λ,

        D(x, y) = W(x, y) − ½ W(x, x) − ½ W(y, y),      W = min Σ P C + λ Σ P log P.

    It is non-negative, and 0 only if the weighted points are equal, up to ``tol``. (Σ P log P and KL(P | a⊗b) give the
    same: their difference cancels.) It is twice ``SamplesLoss(p=2, blur=√(λ/2))``. Points (n, d) and (m, d); weights of
    equal sum, default uniform with mass 1. Tensors give a tensor, differentiable once in points and weights; arrays or
    lists give a float. Above 5000² entries no matrix is formed: memory is O(n + m), and the divergence can be
    differentiated twice. ``tol`` as in `SamplesLoss`.

    >>> round(divergence([[0.0], [1.0]], [[1.0], [2.0]], reg=0.01), 6)
    1.0
    """
    reg = checks.positive("reg", reg)
    checks.points("x", x), checks.points("y", y)
    p, q = pair(x, y)
    w_a, w_b = _weights("a", a, p), _weights("b", b, q)
    loss = PointsLoss(reg, None, _tol(tol, p), debias=True, scale=1.0, root=False)
    if _nothing(p, q):
        return p.sum() + q.sum() if isinstance(x, Tensor) or isinstance(y, Tensor) else 0.0
    weight_checks.same_mass(w_a, w_b)
    _, _, values = _losses((p[None], q[None], w_a[None], w_b[None]), loss, None, _large(p, q))
    moving = isinstance(x, Tensor) or isinstance(y, Tensor) or checks.derivative_wanted(values)
    return values[0].to(p) if moving else float(values[0])


def _need(x: Any, y: Any, backend: str = "auto", cost: Any = None) -> Need:
    """Estimate the memory of a loss between points, with matrices or without."""
    if _large(x, y, backend, cost):
        return of_stream(x, y)
    return of_points(x, y, DIVERGENCE, "SamplesLoss(backend='online') forms none")


def _losses(batch: tuple[Tensor, ...], loss: PointsLoss, cost: Cost | None, large: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return (F [B, N], G [B, M], losses [B]) of a batch x [B, N, D], y [B, M, D], a [B, N], b [B, M], in float64.

    The losses are differentiable. A ``large`` batch has no matrices: its problems are solved one by one.
    """
    if large:
        forward = "use torch.autograd.grad, or a loss on matrices (backend='tensorized')"
        checks.no_tangents(forward, **dict(zip("xyab", batch, strict=True)))
        F, G, values = (torch.stack(t) for t in zip(*(loss(*one) for one in zip(*batch, strict=True)), strict=True))
        return F, G, values
    x, y, a, b = (t.double() for t in batch)
    pairs = ((x, y), (x, x), (y, y)) if loss.debias else ((x, y),)
    return matrix_losses(loss, [_cost(cost or partial(_own_cost, loss), *pair) for pair in pairs], a, b)


def _tol(given: float | None, points: Tensor) -> float:
    """The error to reach: what was given, else a hundredth of what GeomLoss reaches in single precision, or 1e-8.

    The loss is stationary in the potentials: its own error is of second order in this, its gradient's of first.
    """
    if given is None:
        return 1e-8 if points.dtype == torch.float64 else 1e-4
    return checks.not_negative("tol", given)


def _large(x: Any, y: Any, backend: str = "auto", cost: Cost | None = None) -> bool:
    """Return whether no matrix is to be formed."""
    many = max(shape(x)[-2], shape(y)[-2]) ** 2 > ONLINE_ABOVE
    return cost is None and {"auto": many, "tensorized": False}.get(backend, True)


def _nothing(x: Tensor, y: Tensor) -> bool:
    """Return whether there are no points at all; on one side only is an error."""
    n, m = x.shape[-2], y.shape[-2]
    if (n == 0) != (m == 0):
        raise ValueError(f"x and y must both have points, or neither, got {n} and {m}: mass has nowhere to go")
    return n == 0


def _weights(name: str, given: Any, points: Tensor) -> Tensor:
    """Weights [..., N], uniform with mass 1 if not given."""
    shape = tuple(points.shape[:-1])
    if given is None:
        return points.new_full(shape, 1 / max(shape[-1], 1))
    w = checks.tensor(name, given)
    w = w if isinstance(given, Tensor) else w.to(points)
    return weight_checks.weights(name, w[..., 0] if tuple(w.shape) == (*shape, 1) else w, shape, points)


def _cost(cost: Cost, x: Tensor, y: Tensor) -> Tensor:
    """Evaluate a cost that may be the user's, and check its shape."""
    C, shape = cost(x, y), (*x.shape[:2], y.shape[1])
    if not isinstance(C, Tensor) or tuple(C.shape) != shape:
        raise ValueError(
            f"cost must give a tensor of shape {shape}, got {tuple(getattr(C, 'shape', ())) or type(C).__name__}"
        )
    return C.to(x)


def _own_cost(loss: PointsLoss, x: Tensor, y: Tensor) -> Tensor:
    """Form s ‖x_i − y_j‖² or ‖x_i − y_j‖, the latter from differences: no cancellation, gradient 0 where points coincide."""
    if not loss.root:
        return moving_squares(x, y) if loss.scale == 1 else loss.scale * moving_squares(x, y)
    if checks.has_tangent(x) or checks.has_tangent(y):
        return root_of(moving_squares(x, y))  # torch's cdist has no forward mode
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")  # no N × M × D array
