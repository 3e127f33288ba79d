"""What must hold of an answer, computed here from the input alone; AssertionError where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fuzz import reference
from fuzz.inputs import plain

MODERATE = 200.0  # costs in units of λ up to which `reference` arrives in its steps, mostly


def finite(*values: Any) -> None:
    for value in values:
        assert np.isfinite(plain(value)).all(), f"not finite: {value}"


def uniform(w: Any, other: Any, n: int) -> np.ndarray:
    """Weights as the library reads them: uniform, with the mass of the other side."""
    if w is not None:
        return plain(w)
    return np.full(n, (1.0 if other is None else plain(other).sum()) / max(n, 1))


def dense(plan: Any) -> np.ndarray:
    """A plan as a matrix: of a tensor, a streamed plan, or a sparse one of either kind."""
    if isinstance(plan, torch.Tensor):
        return plain(plan.to_dense() if plan.layout != torch.strided else plan)
    return np.asarray(plan.todense() if hasattr(plan, "todense") else plan, float)


def is_single(*parts: Any) -> bool:
    return any(str(getattr(part, "dtype", "")).endswith(("32", "16")) for part in parts)


def told_true(result: Any, a: Any, b: Any, tol: float, told: list[Any], large: float = 0.0) -> None:
    """Of an entropic `Result`: a plan of finite numbers ≥ 0 whose error is what it says; else a warning.

    large : a number to which the value may come; near the end of its type it may be infinite.
    """
    P = dense(result.plan)
    low = str(getattr(result.plan, "dtype", "")).endswith("16")
    single = is_single(result.plan, result.value)
    finite(P, *((result.value, result.value_linear) if result.converged and large < (1e35 if single else 1e299) else ()))
    for u in result.potentials:  # −∞ where there is no mass
        assert not np.isnan(plain(u)).any(), "a potential that is no number"
    assert (P >= 0).all(), "a negative entry"
    if not P.size:
        return
    a, b = uniform(a, b, P.shape[0]), uniform(b, a, P.shape[1])
    error = np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b * (a.sum() / b.sum())).sum()
    slack = (2e-2 if low else 1e-5 if single else 1e-9) * max(1.0, a.sum())
    slack += 2e-5 * a.sum() * (abs(a.sum() / b.sum() - 1) > 1e-12)
    assert not result.converged or error <= tol * min(1.0, a.sum()) + slack, f"converged, but error {error:.3g}"
    assert result.converged or told, "not converged, and not a word"


def entropic(result: Any, C: Any, a: Any, b: Any, lam: Any, tol: float) -> None:
    """Plan and value of a converged `Result` are those of `reference`, and the value is that of the plan.

    P is the solution for its own marginals. With marginals that are off by tol, the value is off by tol times the range of
    the potentials at most, to first order, and that is of the order of costs and λ log(1/P).
    """
    C, lam, P = plain(C), float(lam), dense(result.plan)
    if not (result.converged and C.size and np.isfinite(C).all()) or np.abs(C).max() / lam > MODERATE:
        return
    a, b = uniform(a, b, len(C)), uniform(b, a, C.shape[1])
    if a.sum() <= 0 or not 1e-3 < a.sum() < 1e3:
        return
    close = 1e-3 if is_single(result.plan, result.value) else 1e-7
    scale = (np.abs(C).max() + lam * 50) * max(1.0, a.sum())
    low = str(getattr(result.plan, "dtype", "")).endswith("16")
    expected = reference.entropic(C, a, b * (a.sum() / b.sum()), lam)
    if expected is None or low:
        return
    if abs(expected[1]) > 1e37 and close > 1e-7:
        return  # infinite in float32
    off = abs(float(result.value) - expected[1])
    assert off <= (10 * tol + close) * scale, f"value {float(result.value)} where {expected[1]} is right"
    assert np.abs(P - expected[0]).max() <= (1e3 * tol + 100 * close) * max(1.0, a.sum()), "another plan"


def optimal(P: Any, C: Any, a: Any, b: Any, value: Any) -> None:
    """An exact plan: its marginals, and no worse than POT's value."""
    import ot

    P = dense(P)
    single, C = is_single(C), plain(C.to_dense() if isinstance(C, torch.Tensor) else C)
    if not C.size:
        return
    close = 1e-5 if single else 1e-9
    a, b = uniform(a, b, C.shape[0]), uniform(b, a, C.shape[1])
    b = b * (a.sum() / (b.sum() or 1.0))
    least = 1e-37 if single else 0.0  # what is less is 0 in float32
    off = np.abs(P.sum(1) - a).sum() + np.abs(P.sum(0) - b).sum()
    assert off <= (1e-5 if single else 1e-6) * a.sum() + least, "marginals"
    forbidden = np.isinf(C)
    assert not (P[forbidden] > 0).any(), "mass on a forbidden pair"
    C = np.where(forbidden | (np.isnan(C) & ((a == 0)[:, None] | (b == 0))), 0.0, C)  # absent points cost nothing
    scale = np.abs(C).max() * a.sum()
    if scale > (1e35 if single else 1e299):
        return  # the value itself may be infinite
    assert abs(float((P * C).sum()) - float(value)) <= close * scale + (2e-45 if single else 1e-320), (
        "value is not that of the plan"
    )
    if a.sum() <= 0 or top_of(C) < 1e-200 or forbidden.any():
        return  # POT knows no forbidden pairs
    theirs = ot.emd2(a / a.sum(), b / b.sum(), C / top_of(C)) * scale
    assert float(value) <= theirs + (1e-5 if single else 1e-6) * scale + (2e-45 if single else 1e-320), (
        f"{float(value)} where POT has {theirs}"
    )


def top_of(C: np.ndarray) -> float:
    return float(np.abs(C).max(initial=0))


def rows_of_one(A: Any, close: float = 1e-4) -> None:
    finite(A)
    assert (plain(A) >= 0).all(), "a negative attention"
    assert np.abs(plain(A).sum(-1) - 1).max(initial=0) < close, "rows do not sum to 1"


def reach(lam: Any, *parts: Any) -> float:
    """How large a value may be: λ or costs or points squared, times masses, times the logarithm of small entries."""
    numbers = [plain(part) for part in parts if part is not None and not isinstance(part, (str, dict, int))]
    tops = [float(np.abs(x[np.isfinite(x)]).max(initial=1)) for x in numbers if x.dtype.kind == "f"]
    return float(np.prod([min(top, 1e150) ** 2 for top in tops])) * max(float(lam), 1.0) * 1e3


def slope(function: Any, at: torch.Tensor, direction: np.ndarray, step: float = 1e-5, close: float = 1e-4) -> None:
    """The gradient of a scalar function agrees with its central difference along a direction."""
    at = at.detach().double().requires_grad_()
    (gradient,) = torch.autograd.grad(function(at), at)
    finite(gradient)
    along = torch.tensor(direction).reshape(at.shape)
    with torch.no_grad():
        ends = [float(function(at + sign * step * along)) for sign in (1.0, -1.0)]
    expected, found = (ends[0] - ends[1]) / (2 * step), float((gradient * along).sum())
    assert abs(found - expected) <= close * (1 + abs(expected)), f"slope {found} where differences have {expected}"
