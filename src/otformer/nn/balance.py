r"""A stack of matrices brought to given sums, as a function that learns: what every layer of otformer.nn but `Transport` is.

P_ij = exp(X_ij + f_i + g_j), X = (L − max L)/τ, with P1 = a and Pᵀ1 = b: the entropic plan of the cost −L at λ = τ. For a
loss of gradient G in P, M = P ∘ G and w the solution of H w = (M1, Mᵀ1), H = [diag(P1) P; Pᵀ diag(Pᵀ1)] as in
derivatives/implicit.py, differentiating the sums gives

    P_ij (G_ij − w_i − w_j) =: Y_ij in X_ij,    Y_ij/τ in L_ij,    −Σ_ij Y_ij X_ij/τ in τ,    w_i in a_i,    w_j in b_j,

where max L is a constant, since rows and columns of Y have the sum 0.

w + t in rows, w − t in columns solves H w = … as well. b is scaled to the mass of a first, b' = s b with s = Σa/Σb, and with
the derivative of that the gradients no longer depend on t: w_i + q/Σa in a_i and s w_j − q/Σb in b_j, q = Σ_j b'_j w_j.

Only L, τ, a, b and f, g are kept for it: n + m numbers for each problem beside what the caller has.

Problem k has the temperature τ[k mod H] and the weights a[k mod A], b[k mod A'], so that heads and weights that all problems
share need no copies. L = −∞ forbids an entry; a point of weight 0 is absent, and its logits are not read. The two operators
are opaque to torch.compile; `Balance` has the rules of torch.func. It has no ``jvp``: the compiler takes none that do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import custom_op

from otformer.nn import balance_cpu, balance_gpu, balance_large
from otformer.nn.balance_cpu import LANES_SIDE, SMALL_SIDE
from otformer.nn.balance_lanes import LANES
from otformer.nn.balance_problems import Gradients, LogitStack, Plans, check_after, check_before, check_logits, ordinary
from otformer.transport.types import Goal

SINGLE_TOL = 1e-6  # the least tol for which float32 will do, on a GPU


def balance(
    logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int, name: str = "logits"
) -> Tensor:
    """P [B, n, m] in the dtype of logits [B, n, m], temperatures [H] and weights a [A, n], b [A', m], divisors of B.

    Converged when every row and column sum is within ``tol`` of its weight, in units of the problem's greatest weight.
    ``name``: what logits are to the caller, for messages.

    >>> one = torch.ones(1, 2)
    >>> balance(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.ones(1), one, one, 1e-9, 100).sum(1)
    tensor([[1., 1.]])
    """
    if not len(logits):
        return logits.clone()  # no problems have no plans
    return Balance.apply(logits, temperature, a, b, tol, max_depth, name)[0]


def _numbers(logits: Tensor, tol: float) -> torch.dtype:
    """Choose the dtype of f and g: float32 for small problems on a GPU whose tol it reaches, float64 otherwise."""
    single = logits.is_cuda and logits.dtype != torch.float64 and tol >= SINGLE_TOL and max(logits.shape[1:]) <= SMALL_SIDE
    return torch.float32 if single else torch.float64


def _balance(
    logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int, name: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return P, f [B, n] and g [B, m]. On a GPU one number is read for errors and checks together: waiting takes longer
    than solving."""
    B, n, m = logits.shape
    stack, goal = LogitStack(logits, temperature, a, b), Goal(tol, max_depth)
    if not logits.is_cuda:
        check_before(stack, name)
    f, g = (logits.new_empty(B, size, dtype=_numbers(logits, tol)) for size in (n, m))
    out = Plans(torch.empty_like(logits, memory_format=torch.contiguous_format), f, g, f.new_full((B,), torch.inf))
    backend = _backend(logits)
    if backend is not balance_large:
        backend.solve(stack, goal, out)
    done = (out.error <= tol).all()
    if not bool(done & ordinary(stack) if logits.is_cuda else done):
        check_before(stack, name)
        unsolved = (~(out.error <= tol)).nonzero()[:, 0]
        check_logits(stack, unsolved, name)
        balance_large.finish(stack, goal, out, unsolved)
        check_after(out.error, tol, name)
    return out.P, f, g


_balance_op = custom_op("otformer::balance", mutates_args=())(_balance)


@_balance_op.register_fake
def _(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int, name: str) -> Any:
    B, n, m = logits.shape
    kind = _numbers(logits, tol)
    like = torch.empty_like(logits, memory_format=torch.contiguous_format)
    return like, logits.new_empty(B, n, dtype=kind), logits.new_empty(B, m, dtype=kind)


def _backward(
    G: Tensor, logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor, weights: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gradients in logits, temperature, a and b (0 unless ``weights``), summed over problems that share a number."""
    Y = torch.empty_like(logits, memory_format=torch.contiguous_format)
    out = Gradients(Y, torch.empty_like(f), torch.empty_like(g), f.new_empty(len(f)))
    _backend(logits).backward(LogitStack(logits, temperature, a, b), G, f, g, out)
    heat = out.heat.reshape(-1, len(temperature)).sum(0).to(temperature)
    if not weights:
        return Y, heat, torch.zeros_like(a), torch.zeros_like(b)
    k = torch.arange(len(f), device=f.device)
    w_a, w_b = a[k % len(a)].double(), b[k % len(b)].double()
    total_a, total_b = w_a.sum(1, keepdim=True), w_b.sum(1, keepdim=True)
    q = (total_a / total_b) * (w_b * out.w_v).sum(1, keepdim=True)
    moved = (out.w_u + q / total_a, out.w_v * (total_a / total_b) - q / total_b)
    in_a, in_b = (t.reshape(-1, *to.shape).sum(0).to(to) for t, to in zip(moved, (a, b), strict=True))
    return Y, heat, in_a, in_b


_backward_op = custom_op("otformer::balance_backward", mutates_args=())(_backward)


@_backward_op.register_fake
def _(G: Tensor, logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor, weights: bool) -> Any:
    like = torch.empty_like(logits, memory_format=torch.contiguous_format)
    return like, torch.empty_like(temperature), torch.empty_like(a), torch.empty_like(b)


class Gradient(Function):
    """A function that computes another's gradient; it refuses to be differentiated itself."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *G: Tensor) -> Any:
        raise RuntimeError("this layer can be differentiated once: its gradient has no derivative")


def merged(V: int, tensors: tuple[Tensor, ...], dims: Any) -> list[Tensor]:
    """Flatten tensors [V, B, …] to [V B, …]; the first has B problems, others a divisor of B, and are repeated."""
    full = [t.expand(V, *t.shape) if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims, strict=False)]
    B = full[0].shape[1]
    return [t.repeat(1, B // t.shape[1], *[1] * (t.ndim - 2)).flatten(0, 1) for t in full]


class Balance(Function):
    """`balance` and its derivative, with their rules for torch.func; f and g come with P and have no derivative."""

    @staticmethod
    def forward(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, tol: float, max_depth: int, name: str) -> Any:
        # A call of an operator imports the compiler, which takes seconds: not before somebody compiles.
        run = _balance_op if torch.compiler.is_compiling() else _balance
        return run(logits, temperature, a, b, tol, max_depth, name)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, f, g = output
        ctx.mark_non_differentiable(f, g)
        ctx.save_for_backward(*inputs[:4], f, g)

    @staticmethod
    def backward(ctx: Any, *G: Tensor) -> tuple[Tensor | None, ...]:
        weights = ctx.needs_input_grad[2] or ctx.needs_input_grad[3]
        return *BalanceBackward.apply(G[0], *ctx.saved_tensors, weights), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        V, tensors = info.batch_size, merged(info.batch_size, inputs[:4], in_dims)
        return tuple(t.unflatten(0, (V, -1)) for t in Balance.apply(*tensors, *inputs[4:])), (0, 0, 0)


class BalanceBackward(Gradient):
    """Compute the derivative of `Balance`, as a function that vmap can batch."""

    @staticmethod
    def forward(
        G: Tensor, logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, f: Tensor, g: Tensor, weights: bool
    ) -> Any:
        run = _backward_op if torch.compiler.is_compiling() else _backward
        return run(G, logits, temperature, a, b, f, g, weights)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        V, tensors = info.batch_size, merged(info.batch_size, inputs[:7], in_dims)
        Y, *shared = BalanceBackward.apply(*tensors, inputs[7])
        sizes = (
            t.shape[0] if d is None else t.movedim(d, 0).shape[1] for t, d in zip(inputs[2:5], in_dims[2:5], strict=True)
        )
        sums = (t.unflatten(0, (V, -1, size)).sum(1) for t, size in zip(shared, sizes, strict=True))
        return (Y.unflatten(0, (V, -1)), *sums), (0, 0, 0, 0)


def _backend(logits: Tensor) -> Any:
    """Choose the module that does the work."""
    side = max(logits.shape[1:])
    if logits.device.type == "cpu":
        many = side <= LANES_SIDE and len(logits) >= LANES // 2  # fewer take as long as a whole block
        return balance_cpu if side <= SMALL_SIDE or many else balance_large
    return balance_gpu if side <= SMALL_SIDE and balance_gpu.usable(logits) else balance_large
