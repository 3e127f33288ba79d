"""`Transport`: the plan between two point sets, or for a cost, as a layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from otformer import checks, weight_checks
from otformer.memory import needs
from otformer.nn.balance_large import find_potentials, stack_size
from otformer.nn.balance_problems import check_weights, refuse, warn_unconverged
from otformer.nn.inputs import SMALLER, kind
from otformer.transport.costs.distances import moving_squares
from otformer.transport.derivatives.implicit import Potentials, log_plan
from otformer.transport.needs import VARIANT, of_cost, of_points
from otformer.transport.solve import eager
from otformer.transport.types import ABSENT_WEIGHT

PLAN_ROUNDING = 1e-6  # of the mass: marginal error of a plan whose potentials converged, up to which it is as it should be


class Transport(nn.Module):
    """The entropic plan between two point sets (squared Euclidean cost) or for a cost matrix; or the images of x under it.

    reg : λ. With ``learnable`` a parameter, kept positive as exp(log_reg).
    output : "plan" gives P (n, m); "points" gives Σ_j P_ij y_j / Σ_j P_ij, (n, d): the mean of each x's partners.
    tol, max_depth : as in `otformer.solve`.

    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> Transport(reg=0.01, output="points")(x, x.flip(0) + 0.1).round(decimals=2).tolist()
    [[0.10000000149011612], [1.100000023841858], [2.0999999046325684]]
    """

    log_reg: Tensor

    def __init__(
        self, reg: float = 0.1, learnable: bool = False, tol: float = 1e-6, max_depth: int = 10_000, output: str = "plan"
    ) -> None:
        super().__init__()
        log_reg = torch.tensor(math.log(checks.positive("reg", reg)), dtype=torch.float64)
        if learnable:
            self.log_reg = nn.Parameter(log_reg)
        else:
            self.register_buffer("log_reg", log_reg)
        self.tol, self.max_depth = checks.not_negative("tol", tol), checks.count("max_depth", max_depth, least=2)
        self.output = checks.choice("output", output, ("plan", "points"))

    @property
    def reg(self) -> Tensor:
        return self.log_reg.double().exp()

    @eager
    @needs(lambda x, y, cost, **_: of_points(x, y, VARIANT, SMALLER) if cost is None else of_cost(cost, VARIANT, SMALLER))
    def forward(
        self,
        x: Tensor | None = None,
        y: Tensor | None = None,
        a: Tensor | None = None,
        b: Tensor | None = None,
        x_mask: Tensor | None = None,
        y_mask: Tensor | None = None,
        *,
        cost: Tensor | None = None,
    ) -> Tensor:
        """x (n, d) and y (m, d), or cost (n, m); either all with a leading batch axis or all without.

        a, b : weights (n,), (m,), default uniform over the points that are present.
        x_mask, y_mask : boolean, True = present. Absent points are ignored; their rows and columns of the output are 0.
        """
        given = {"x": x, "y": y} if cost is None else {"cost": cost}
        if any(t is None for t in given.values()) or (cost is not None and (x is not None or y is not None)):
            came = ", ".join(name for name, t in (("x", x), ("y", y), ("cost", cost)) if t is not None)
            raise ValueError(f"give two point sets x and y, or a cost alone, got {came or 'neither'}")
        if cost is not None and self.output == "points":
            raise ValueError("output='points' needs x and y, got a cost")
        _refuse_transforms(*given.values(), a, b, x_mask, y_mask)
        first, *_ = sets = alike(given, {"a": a, "b": b, "x_mask": x_mask, "y_mask": y_mask})
        batch, n, m = first.shape[:-2], first.shape[-2], sets[-1].shape[-2 if cost is None else -1]
        if n == m == 0:  # no points have an empty plan
            return first.new_zeros(*batch, 0, 0 if self.output == "plan" else first.shape[-1])
        rows, columns = point_mask("x_mask", x_mask, (*batch, n), first), point_mask("y_mask", y_mask, (*batch, m), first)
        top = torch.finfo(first.dtype).max if self.output == "plan" else math.inf
        w_a, w_b = point_weights("a", a, rows, top), point_weights("b", b, columns, top)
        weight_checks.same_mass(w_a, w_b)
        present = (rows[..., None], columns[..., None]) if cost is None else (rows[..., None] & columns[..., None, :],)
        sets = [_masked(name, t, mask) for name, t, mask in zip(given, sets, present, strict=True)]
        *sets, w_a, w_b = (t if batch else t[None] for t in (*sets, w_a, w_b))
        C = moving_squares(*sets) if cost is None else sets[0]
        checks.positive("reg", float(self.reg.detach()))  # a learned one can have run away
        P = plans(C, w_a, w_b, self.reg, self.tol, self.max_depth)
        if self.output == "points":
            mass = P.sum(2, keepdim=True)
            P = P @ sets[1] / torch.where(mass > 0, mass, 1.0)
        return (P if batch else P[0]).to(first.dtype)

    def extra_repr(self) -> str:
        return f"reg={float(self.reg.detach()):.4g}, learnable={self.log_reg.requires_grad}, output={self.output!r}"


def plans(C: Tensor, a: Tensor, b: Tensor, reg: Tensor, tol: float, max_depth: int) -> Tensor:
    """Compute entropic plans [B, n, m] of costs C [B, n, m] and weights a [B, n], b [B, m], float64, checked.

    Differentiable in all four tensors, by implicit differentiation. b is scaled to the mass of a first. A point without
    mass is absent: its row or column of the plan is 0, and so is the gradient in its costs.
    """
    if not C.numel():
        return torch.zeros_like(C)
    mass = a.sum(1, keepdim=True)
    present = (a > 0)[:, :, None] & (b > 0)[:, None, :]
    least = ABSENT_WEIGHT * mass.detach()  # of an absent point: far below rounding, and its potential is finite
    a, b = torch.maximum(a, least), torch.maximum(b * (mass / b.sum(1, keepdim=True)), least)
    low = torch.where(present, C.detach(), torch.inf).amin((1, 2), keepdim=True)
    C = torch.where(present, C - low, 0.0)  # only differences of costs matter
    reg, total = reg.to(C), a.detach().sum(1)
    stacks = zip(*(t.detach().split(stack_size(C)) for t in (C, a, b, tol * total.clamp_max(1))), strict=True)
    found = [find_potentials(c, w_a, w_b, float(reg.detach()), enough, max_depth) for c, w_a, w_b, enough in stacks]
    u, v, done = (torch.cat(parts) for parts in zip(*found, strict=True))
    if checks.derivative_wanted(C, a, b, reg):
        u, v = Potentials.apply(C, a, b, reg, u, v)
    P = log_plan(C, u, v, reg).exp()
    # The plan that is returned is judged: it is rounded otherwise than the solver's, where C ≫ λ.
    error = (P.detach().sum(2) - a.detach()).abs().sum(1) + (P.detach().sum(1) - b.detach()).abs().sum(1)
    unsolved = ~(done & (error <= max(tol, PLAN_ROUNDING) * total))
    if bool(unsolved.any()):
        warn_unconverged(unsolved, error, tol, "raise reg, tol or max_depth")
    return torch.where(present, P, 0.0)


def _refuse_transforms(*sets: Tensor | None) -> None:
    if any(isinstance(t, Tensor) and checks.is_transformed(t) for t in sets):
        raise ValueError(
            "Transport does not run inside torch.func (vmap, grad, jacrev): use torch.autograd.grad, "
            "or DoublyStochastic(temperature=reg) on the logits -cost"
        )


def alike(given: Mapping[str, Tensor | None], others: Mapping[str, Tensor | None]) -> list[Tensor]:
    """Check that points or costs share dtype, batch and dimension, and one device with weights and masks."""
    sets: list[Tensor] = []
    for name, t in given.items():
        if not isinstance(t, Tensor) or not t.is_floating_point():
            raise checks.ArgumentError(name, "be a tensor of floats", t.dtype if isinstance(t, Tensor) else type(t).__name__)
        if t.ndim not in (2, 3):
            last = "m" if name == "cost" else "d"
            raise checks.ArgumentError(name, f"have shape (n, {last}) or (batch, n, {last})", tuple(t.shape))
        sets.append(t)
    if len({(*t.shape[:-2], t.shape[-1]) for t in sets}) > 1:
        shapes = " and ".join(str(tuple(t.shape)) for t in sets)
        raise checks.ArgumentError("x and y", "have the same batch and dimension", shapes)
    dtype, device = sets[0].dtype, sets[0].device
    for name, t in {**given, **others}.items():
        if isinstance(t, Tensor) and (t.device != device or (name in given and t.dtype != dtype)):
            expected = f"x's {dtype} on {device}" if name in given else f"on {device}"
            raise checks.ArgumentError(name, f"be {expected}", f"{t.dtype} on {t.device}")
    return sets


def point_mask(name: str, mask: Tensor | None, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Check a boolean mask, by default all true; a side without points is an error."""
    if mask is None:
        if not shape[-1]:
            raise checks.ArgumentError(name.removesuffix("_mask"), "have points", "none", "mass has nowhere to go")
        return torch.ones(shape, dtype=torch.bool, device=like.device)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or tuple(mask.shape) != shape:
        raise checks.ArgumentError(name, f"be a boolean tensor of shape {shape}", kind(mask))
    refuse(~mask.any(-1), f"{name} leaves no point: mass has nowhere to go")
    return mask


def point_weights(name: str, weights: Tensor | None, present: Tensor, top: float) -> Tensor:
    """Read weights in float64, 0 for absent points; by default uniform with total 1."""
    if weights is None:
        return present / present.sum(-1, keepdim=True, dtype=torch.float64)
    if not isinstance(weights, Tensor) or weights.shape != present.shape:
        raise checks.ArgumentError(name, f"be a tensor of shape {tuple(present.shape)}", kind(weights))
    weights = torch.where(present, weights.double(), 0.0)
    check_weights(name, weights, top)
    return weights


def _masked(name: str, t: Tensor, present: Tensor) -> Tensor:
    """Convert present numbers to float64, which must be finite, others to 0. The last two axes are a problem's."""
    t = torch.where(present, t.double(), 0.0)
    refuse(~t.isfinite().flatten(-2).all(-1), f"{name} must be finite, got nan or inf among the present entries")
    return t
