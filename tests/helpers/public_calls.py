"""One call of every public function, layer and network, on inputs that say their dtype and device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import otformer as of

RNG = np.random.default_rng(0)
X, Y, C = RNG.random((9, 2)), RNG.random((8, 2)) + 0.2, RNG.random((9, 8))
A, B = RNG.random(9) + 0.1, RNG.random(8) + 0.1
A, B = A / A.sum(), B / B.sum()
LABELS = np.arange(9) % 2, np.arange(8) % 2
ROW, SQUARE, TOKENS = RNG.random(7), RNG.random((7, 7)), RNG.random((2, 5, 4))


def t(array: np.ndarray, learn: bool = False) -> torch.Tensor:
    """A tensor on the CPU, whatever the default is."""
    return torch.from_numpy(array.copy()).requires_grad_(learn)


def grad(value: Callable[[torch.Tensor], Any], array: np.ndarray) -> torch.Tensor:
    """The gradient of a sum of what comes out."""
    x = t(array, learn=True)
    (found,) = torch.autograd.grad(value(x).sum(), x)
    return found


def attention(**options: Any) -> of.nn.SinkhornAttention:
    torch.manual_seed(0)
    return of.nn.SinkhornAttention(4, 2, batch_first=True, dtype=torch.float64, device="cpu", **options)


def numbers(found: Any) -> list[np.ndarray]:
    """Everything numeric that a call has given."""
    if isinstance(found, torch.Tensor):
        assert found.device.type == "cpu", f"came back on {found.device}"
        return [found.detach().double().numpy()]
    if isinstance(found, of.Result | of.ExactResult):
        found = [found.value, found.plan, *found.potentials, found.converged]
        return [each for part in found for each in numbers(part)]
    if isinstance(found, of.Trace):
        return numbers([found.plan(), *found.potentials(), found.marginal_error])
    if isinstance(found, of.Features):
        return numbers([found.x, found.y, found.x_sq, found.y_sq])
    if isinstance(found, list | tuple):
        return [each for part in found for each in numbers(part)]
    if hasattr(found, "dense"):
        return numbers(found.dense())
    if hasattr(found, "toarray"):
        return numbers(found.toarray())
    return [np.asarray(found, float)]


LAYERS: dict[str, torch.nn.Module] = {
    "Transport": of.nn.Transport(0.1),
    "Transport, points": of.nn.Transport(0.1, learnable=True, output="points"),
    "DoublyStochastic": of.nn.DoublyStochastic(0.5),
    "DoublyStochastic, iterations": of.nn.DoublyStochastic(0.5, iterations=5),
    "SoftSort": of.nn.SoftSort(),
    "SoftRank": of.nn.SoftRank(),
    "SoftTopK": of.nn.SoftTopK(2),
    "SoftQuantile": of.nn.SoftQuantile([0.2, 0.7]),
    "SinkhornAttention": attention(),
    "SinkhornAttention, unbalanced": attention(unbalanced=1.0),
    "SamplesLoss": of.SamplesLoss("sinkhorn", p=2, blur=0.3),
}
L = LAYERS

CALLS: dict[str, Callable[[], Any]] = {
    "solve": lambda: of.solve(C, A, B, reg=0.05),
    "solve, list": lambda: of.solve(C.tolist(), reg=0.05),
    "solve, tensor": lambda: of.solve(t(C), t(A), t(B), reg=0.05),
    "solve, float32": lambda: of.solve(t(C.astype(np.float32)), reg=0.05),
    "solve, gradient": lambda: grad(lambda M: of.solve(M, t(A), t(B), reg=0.05).value, C),
    "solve, gradient of the plan": lambda: grad(lambda M: of.solve(M, reg=0.05).plan[:3] ** 2, C),
    "solve, mask": lambda: of.solve(C, reg=0.05, mask=C < 0.9),
    "solve, small reg": lambda: of.solve(C, A, B, reg=1e-3),
    "solve, tiny reg": lambda: of.solve(C[:8], reg=1e-4),
    "solve, large costs": lambda: of.solve(1e4 * C, reg=0.05),
    "solve_batch, small reg": lambda: of.solve_batch([C, SQUARE], reg=1e-3),
    "sinkhorn, small reg": lambda: of.sinkhorn(A, B, C, 1e-3),
    "solve, small reg in float32": lambda: of.solve(C.astype(np.float32), reg=1e-3, tol=1e-5),
    "solve, Newton": lambda: of.solve(C, reg=0.05, solver=of.Newton()),
    "solve, Mixed": lambda: of.solve(C, reg=0.05, solver=of.Mixed()),
    "solve, Network": lambda: of.solve(C, reg=0.5, solver=of.Network("relaxed")),
    "solve, schedule": lambda: of.solve(C, reg=0.5, schedule="alternating"),
    "solve, warm": lambda: of.solve(C, A, B, reg=0.05, potentials=of.solve(C, A, B, reg=0.06).potentials),
    "solve, exact": lambda: of.solve(C, A, B, reg=0),
    "solve, exact gradient": lambda: grad(lambda M: of.solve(M, t(A), t(B), reg=0).value, C),
    "solve_sample": lambda: of.solve_sample(X, Y, A, B, reg=0.05),
    "solve_sample, euclidean": lambda: of.solve_sample(X, Y, reg=0.05, metric="euclidean"),
    "solve_sample, cosine": lambda: of.solve_sample(X, Y, reg=0.05, metric="cosine"),
    "solve_sample, exact": lambda: of.solve_sample(X, Y, A, B, reg=0),
    "solve_sample, labels": lambda: of.solve_sample(X[:8], Y, reg=0.05, labels=(LABELS[1], LABELS[1])),
    "solve_sample, gradient": lambda: grad(lambda x: of.solve_sample(x, t(Y), reg=0.05).value, X),
    "solve_sample, stream": lambda: of.solve_sample(X, Y, A, B, reg=0.05, executor="stream"),
    "solve_sample, stream of labels": lambda: of.solve_sample(
        X[:8], Y, reg=0.05, labels=(LABELS[1], LABELS[1]), executor="stream"
    ),
    "solve_sample, stream of distances": lambda: of.solve_sample(X, Y, reg=0.05, metric="euclidean", executor="stream"),
    "solve_sample, function": lambda: of.solve_sample(X, Y, reg=0.05, metric=lambda x, y: abs(x[:, None] - y).sum(2)),
    "solve, features": lambda: of.solve(of.squared_euclidean(X, Y), reg=0.05),
    "solve_streamed": lambda: of.solve_streamed(X, Y, A, B, reg=0.05),
    "solve_streamed, float32": lambda: of.solve_streamed(t(X).float(), t(Y).float(), reg=0.05),
    "solve_streamed, gradient": lambda: grad(lambda x: of.solve_streamed(x, t(Y), reg=0.05).value, X),
    "solve_streamed, product": lambda: grad(lambda x: (of.solve_streamed(x, t(Y), reg=0.05).plan @ t(Y)) ** 2, X),
    "solve_streamed, unbalanced": lambda: of.solve_streamed(X, Y, A, B, reg=0.05, unbalanced=1.0),
    "rounded": lambda: [(r := of.solve(C, A, B, reg=0.05).rounded()).value, r.gap, r.plan, *r.potentials],
    "rounded, stream": lambda: [(r := of.solve_streamed(X, Y, A, B, reg=0.05).rounded()).value, r.gap, r.plan],
    "solve_batch": lambda: of.solve_batch([(X, Y), C, SQUARE], reg=0.05),
    "solve_batch, exact": lambda: of.solve_batch([(X, Y), C, SQUARE], reg=0),
    "solve_batch, gradient": lambda: grad(lambda M: of.solve_batch([M, t(SQUARE)], reg=0.05)[0].value, C),
    "solve_unbalanced": lambda: of.solve_unbalanced(C, A, 2 * B, reg=0.05, reg_m=1.0),
    "solve_unbalanced, gradient": lambda: grad(lambda M: of.solve_unbalanced(M, t(A), t(B), reg=0.05, reg_m=1.0).value, C),
    "solve_partial": lambda: of.solve_partial(C, A, B, mass=0.5, reg=0.05),
    "sinkhorn": lambda: of.sinkhorn(A, B, C, 0.05),
    "sinkhorn2": lambda: of.sinkhorn2(A, B, C, 0.05),
    "emd": lambda: of.emd(A, B, C),
    "emd2": lambda: of.emd2(A, B, C),
    "emd2, gradient": lambda: grad(lambda M: of.emd2(t(A), t(B), M), C),
    "assignment": lambda: of.assignment(X[:8], Y),
    "linear_sum_assignment": lambda: of.linear_sum_assignment(SQUARE),
    "linear_sum_assignment, a list": lambda: of.linear_sum_assignment([SQUARE, C]),
    "emd_batch": lambda: [of.emd_batch(t(X)[None], t(Y)[None]).cost, of.emd_batch([t(X), t(Y)], [t(Y), t(Y)]).cost],
    "nn.EarthMover": lambda: grad(lambda x: of.nn.EarthMover()(x, t(Y), t(A), t(B)), X),
    "nn.OTPlanSampler": lambda: of.nn.OTPlanSampler(generator=0).pairs(t(X), t(Y)),
    "wasserstein_1d": lambda: of.wasserstein_1d(ROW, ROW[:5] + 0.1),
    "wasserstein_1d, gradient": lambda: grad(lambda x: of.wasserstein_1d(x, t(ROW + 0.1)), ROW),
    "divergence": lambda: of.divergence(t(X), t(Y), reg=0.1),
    "divergence, gradient": lambda: grad(lambda x: of.divergence(x, t(Y), reg=0.1), X),
    "SamplesLoss": lambda: grad(lambda x: L["SamplesLoss"](x, t(Y)), X),
    "sort": lambda: [of.sort(ROW), of.sort(ROW.tolist()), of.sort(t(ROW))],
    "argsort": lambda: [of.argsort(ROW), of.argsort(t(ROW))],
    "AligningTransformer": lambda: of.AligningTransformer(2, 0.5, 30, schedule="relaxed")(X, Y, warn=False),
    "AligningTransformer, tensors": lambda: of.AligningTransformer(2, 0.5, 30)(t(X), t(Y), t(A), t(B), warn=False),
    "SinkhornTransformer": lambda: of.SinkhornTransformer(2, 0.5, 20)(X, Y, warn=False),
    "SinkhornTransformer, width": lambda: of.SinkhornTransformer(2, 0.5, 20, width=16)(X, Y, warn=False),
    "StockTransformer": lambda: of.StockTransformer(of.AligningTransformer(2, 0.5, 3))(X, Y).potentials(),
    "StockEncoder": lambda: of.StockEncoder(of.AligningTransformer(2, 0.5, 3))(X, Y).potentials(),
    "features": lambda: [of.squared_euclidean(X, Y), of.inner_product(X, Y), of.cosine(X, Y), of.cost_matrix(C)],
    "mahalanobis": lambda: of.mahalanobis(X, Y, [[2.0, 0.5], [0.5, 1.0]]),
    "EuclideanDistance": lambda: of.EuclideanDistance(2, 40, -1.0, 2.0)(X, Y),
    "SmoothCost": lambda: of.SmoothCost(lambda s, u: (s - u) ** 4, 20, -1.0, 2.0)(X[:, :1], Y[:, :1]),
    "best_omega": lambda: of.best_omega(0.5),
    "load_trained": lambda: of.load_trained(next(iter(of.trained_models())))(X, X[::-1] + 0.1),
    "nn.Transport": lambda: L["Transport"](t(X), t(Y), t(A), t(B)),
    "nn.Transport, points": lambda: grad(lambda x: L["Transport, points"](x, t(Y)), X),
    "nn.DoublyStochastic": lambda: grad(lambda M: L["DoublyStochastic"](M)[:3] ** 2, SQUARE),
    "nn.DoublyStochastic, iterations": lambda: L["DoublyStochastic, iterations"](t(SQUARE)),
    "nn.SoftSort": lambda: grad(lambda x: L["SoftSort"](x) ** 2, ROW),
    "nn.SoftRank": lambda: grad(lambda x: L["SoftRank"](x) ** 2, ROW),
    "nn.SoftTopK": lambda: grad(lambda x: L["SoftTopK"](x) ** 2, ROW),
    "nn.SoftQuantile": lambda: grad(lambda x: L["SoftQuantile"](x), ROW),
    "nn.SinkhornAttention": lambda: grad(lambda x: L["SinkhornAttention"](x, x, x)[0] ** 2, TOKENS),
    "nn.SinkhornAttention, unbalanced": lambda: L["SinkhornAttention, unbalanced"](*[t(TOKENS)] * 3),
}


def found() -> dict[str, list[np.ndarray] | Exception]:
    """What every call gives, in numbers; or its error."""
    out: dict[str, Any] = {}
    for name, call in CALLS.items():
        try:
            out[name] = numbers(call())
        except Exception as error:
            out[name] = error
    return out


def differing(one: dict[str, Any], other: dict[str, Any], rtol: float = 1e-9) -> dict[str, str]:
    """Names of the calls that do not give the same, and what the other one gave."""
    out = {}
    for name, expected in one.items():
        got = other[name]
        if isinstance(got, Exception):
            out[name] = f"{type(got).__name__}: {got}"
        elif len(got) != len(expected) or any(p.shape != q.shape for p, q in zip(expected, got, strict=True)):
            out[name] = "other shapes"
        elif not all(np.allclose(p, q, rtol=rtol, atol=rtol, equal_nan=True) for p, q in zip(expected, got, strict=True)):
            out[name] = "other numbers"
    return out
