"""`DoublyStochastic`: a matrix with given row and column sums from logits, as a layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.library import custom_op

from otformer import checks
from otformer.memory import Need, needs, shape
from otformer.network.alternating import alternated
from otformer.nn import inputs
from otformer.nn.balance import balance, merged
from otformer.nn.balance_problems import LogitStack, check_before, check_logits

MOST_ITERATIONS = 10**6  # more would not end
FURTHEST = 1e20  # that logits/τ may be from 0: their derivatives are squares in float32


class DoublyStochastic(nn.Module):
    r"""The matrix P_ij = exp(L_ij/τ + f_i + g_j) with given row and column sums. Among all such matrices it maximises

        Σ_ij P_ij L_ij − τ Σ_ij P_ij log P_ij.

    temperature : τ, or one per head; logits are then [..., heads, n, m].
    learnable : τ = exp(log_temperature) is a parameter.
    tol : every row and column sum is within tol of its target, in units of the greatest (1 by default). Gradients are
        implicit, those of the solution: they need n + m stored numbers per matrix.
    iterations : a fixed number of Sinkhorn iterations instead of tol, rows first, then columns. Gradients go through the
        iterations, with 2 iterations · n · m stored numbers. Column sums are then exact; row sums are not adjusted further.
    max_depth : the most half-steps, if tol is used.

    Up to 32 × 32, all matrices at once: on a GPU by one kernel, on a CPU along the axis of problems. Larger matrices use
    the engine of `otformer.solve_batch`. Outputs have the dtype of the logits; sums are computed in float64 (on a GPU
    float32, if the logits are not float64 and tol is at least 1e-6). A row of m bfloat16 entries is rounded by up to 2⁻⁹ of
    its sum.

    >>> layer = DoublyStochastic(temperature=0.5)
    >>> P = layer(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]))
    >>> P.sum(0).round(decimals=5), P.sum(1).round(decimals=5)
    (tensor([1., 1., 1.]), tensor([1., 1., 1.]))
    >>> layer(torch.zeros(2, 3), a=torch.ones(2)).sum(0)  # column sums by default: equal, with the mass of the rows
    tensor([0.6667, 0.6667, 0.6667])
    """

    log_temperature: Tensor

    def __init__(
        self,
        temperature: float | Sequence[float] | Tensor = 1.0,
        learnable: bool = False,
        tol: float = 1e-6,
        iterations: int | None = None,
        max_depth: int = 10_000,
    ) -> None:
        super().__init__()
        several = temperature.ndim == 1 if isinstance(temperature, Tensor) else isinstance(temperature, (list, tuple))
        each: Any = temperature if several else [temperature]
        if not len(each):
            raise checks.ArgumentError("temperature", "be a positive number, or one for each head", "none")
        log_temperature = torch.tensor([math.log(checks.positive("temperature", t)) for t in each], dtype=torch.float64)
        log_temperature = log_temperature if several else log_temperature[0]
        if learnable:
            self.log_temperature = nn.Parameter(log_temperature)
        else:
            self.register_buffer("log_temperature", log_temperature)
        self.tol, self.max_depth = checks.not_negative("tol", tol), checks.count("max_depth", max_depth, least=2)
        self.iterations = None if iterations is None else checks.count("iterations", iterations, most=MOST_ITERATIONS)

    @property
    def temperature(self) -> Tensor:
        return self.log_temperature.double().exp()

    @needs(lambda self, logits, **_: self._need(logits))
    def forward(
        self,
        logits: Tensor,
        a: Tensor | None = None,
        b: Tensor | None = None,
        mask: Tensor | None = None,
        row_mask: Tensor | None = None,
        column_mask: Tensor | None = None,
    ) -> Tensor:
        """logits (..., n, m) → P (..., n, m).

        a, b : row sums (..., n) and column sums (..., m), of equal totals. If both are left out, all sums are 1, and the
            numbers of present rows and columns must be equal. If one is left out, it is constant with the other's total.
        mask : boolean, broadcast to the logits, True where an entry may be positive; a logit of −inf forbids one too.
        row_mask, column_mask : boolean (..., n) and (..., m), True = present. Absent rows and columns are ignored, and 0 in
            P.
        """
        shape = tuple(inputs.matrix("logits", logits).shape)
        lead, (n, m) = shape[:-2], shape[-2:]
        rows = inputs.mask("row_mask", row_mask, (*lead, n), logits)
        columns = inputs.mask("column_mask", column_mask, (*lead, m), logits)
        if a is None and b is None and n != m and rows is None and columns is None:
            raise ValueError(f"logits of {n} × {m} have no default sums: give row sums a, column sums b, or both")
        w_a, w_b = inputs.sums(a, b, rows, columns, shape, logits)
        allowed = inputs.mask("mask", mask, shape, logits)
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -torch.inf)
        temperature, (w_a, w_b) = self._heads(lead).to(logits.device), (inputs.stacked(w, lead) for w in (w_a, w_b))
        if 0 in shape:
            return torch.zeros_like(logits)
        flat = logits.reshape(-1, n, m)
        if self.iterations is None:
            P = balance(flat, temperature, w_a, w_b, self.tol, self.max_depth)
        else:
            P = iterated(flat, temperature, w_a, w_b, self.iterations)
        return P.reshape(shape)

    def _need(self, logits: Tensor) -> Need:
        *lead, n, m = shape(logits)
        kept = 2 * self.iterations if self.iterations is not None and logits.requires_grad else 0
        return inputs.need(lead, n, m, 4 + kept)

    def _heads(self, lead: tuple[int, ...]) -> Tensor:
        """Return temperatures [H], of which problem k has number k mod H."""
        temperature = self.temperature
        if temperature.ndim == 0:
            return temperature[None]
        if not lead or lead[-1] != len(temperature):
            shape = f"(..., {len(temperature)}, n, m)"
            raise checks.ArgumentError(
                "logits", f"have shape {shape}, a matrix for each temperature", f"axes {tuple(lead)} in front"
            )
        return temperature

    def extra_repr(self) -> str:
        shown = ", ".join(f"{t:.4g}" for t in self.temperature.detach().reshape(-1).tolist())
        goal = f"tol={self.tol:g}" if self.iterations is None else f"iterations={self.iterations}"
        return f"temperature={shown}, learnable={isinstance(self.log_temperature, nn.Parameter)}, {goal}"


def iterated(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, iterations: int) -> Tensor:
    """Return P [B, n, m] after ``iterations``, rows then columns of log P brought to their sums; in float32 at least.

    >>> one = torch.ones(1, 2)
    >>> iterated(torch.tensor([[[3.0, 0.0], [0.0, 1.0]]]), torch.ones(1), one, one, 2).sum(1)
    tensor([[1., 1.]])
    """
    kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
    temperature = temperature * Checked.apply(logits.detach(), temperature.detach(), a.detach(), b.detach())
    allowed = (a > 0)[:, :, None] & (b > 0)[:, None, :] & ~logits.isneginf()
    tau = temperature.to(kind).repeat(len(logits) // len(temperature))[:, None, None]
    for X in alternated(torch.where(allowed, logits, 0.0).to(kind) / tau, allowed, a, b, iterations):  # noqa: B007
        pass
    return X.exp().to(logits.dtype)


def _checked(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Check the input and return 1: the compiler does not remove a number that is used."""
    stack = LogitStack(logits, temperature, a, b)
    check_before(stack, "logits")
    check_logits(stack, torch.arange(len(logits), device=logits.device), "logits", FURTHEST)
    return temperature.new_ones(())


_checked_op = custom_op("otformer::checked", mutates_args=())(_checked)


@_checked_op.register_fake
def _(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return temperature.new_empty(())


class Checked(Function):
    """Run `_checked` under torch.func too."""

    @staticmethod
    def forward(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (_checked_op if torch.compiler.is_compiling() else _checked)(logits, temperature, a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[Tensor, None]:
        return Checked.apply(*merged(info.batch_size, tensors, in_dims)), None
