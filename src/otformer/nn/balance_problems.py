"""The stack of problems that `balance` solves, what it fills in, and what it refuses or warns of, each in one line."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from otformer import callers, checks, weight_checks

LEAST_TEMPERATURE = 1e-300  # below, it is 0


class LogitStack(NamedTuple):
    """B matrices of logits; problem k has the temperature τ[k mod H] and the weights a[k mod A], b[k mod A']."""

    logits: Tensor  # [B, n, m]
    temperature: Tensor  # [H]
    a: Tensor  # [A, n]
    b: Tensor  # [A', m]

    def numbers(self, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return τ [K], a [K, n] and b [K, m] of the problems k in float64, b scaled to the mass of a."""
        tau, a, b = (t[k % len(t)].double() for t in self[1:])
        return tau, a, b * (a.sum(1, keepdim=True) / b.sum(1, keepdim=True))


class Plans(NamedTuple):
    """Arrays that solving fills in: P = exp(X + f + g), and the greatest error of a sum in units of the greatest weight."""

    P: Tensor  # [B, n, m]
    f: Tensor  # [B, n]
    g: Tensor  # [B, m]
    error: Tensor  # [B], inf before anything is solved


class Gradients(NamedTuple):
    """The arrays that the backward pass fills in; balance.py has the derivation."""

    Y: Tensor  # [B, n, m], in the logits
    w_u: Tensor  # [B, n], in a
    w_v: Tensor  # [B, m], in b
    heat: Tensor  # [B], in the temperature


def refuse(bad: Tensor, message: str) -> None:
    """Raise a ValueError with the message where ``bad`` is true; of several problems [B] it names the first bad one."""
    if bool(bad.any()):
        raise ValueError(f"problem {int(bad.nonzero()[0, 0])}: {message}" if bad.ndim and len(bad) > 1 else message)


def check_weights(name: str, w: Tensor, top: float) -> None:
    """Check weights [..., n], 0 for absent points; ``top``: an entry of a plan may be as large as a weight."""
    refuse(~w.isfinite().all(-1), f"{name} must be finite, got nan or inf among the present entries")
    refuse((w < 0).any(-1), f"{name} must not be negative")
    refuse(w.amax(-1) <= 0, f"{name} must have a positive sum over the present entries, got all zeros")
    refuse(w.amax(-1) > top, f"{name} must be at most {top:g}, the greatest number of the plan's dtype")


def _positive(temperature: Tensor) -> Tensor:
    return temperature.isfinite() & (temperature > LEAST_TEMPERATURE)


def ordinary(stack: LogitStack) -> Tensor:
    """Return whether `check_before` would pass, as a tensor: its conditions on weights in as few operations as will do."""
    logits, temperature, a, b = stack
    fine = _positive(temperature).all()
    for w in (a, b):
        fine = fine & ((w >= 0) & (w <= torch.finfo(logits.dtype).max)).all() & (w.amax(1) > 0).all()
    return fine & weight_checks.masses_agree(*(t.double().sum(1) for t in (a, b))).all()


def check_before(stack: LogitStack, name: str) -> None:
    """Check temperatures and weights before anything is solved; ``name``: "logits", or "values" to sort."""
    logits, temperature, a, b = stack
    bad = ~_positive(temperature)
    if bool(bad.any()):
        raise checks.ArgumentError("temperature", "be a positive, finite number", f"{temperature[bad][0].item():g}")
    for weight, w in (("a" if name == "logits" else "weights", a), ("b", b)):
        if name != "logits" and w is b:  # pieces of [0, 1]: only too large a k makes one negative
            refuse((w < 0).any(1), "k exceeds the number of present values")
        check_weights(weight, w, torch.finfo(logits.dtype).max)
    sums = (t.double().sum(1) for t in (a, b))
    total_a, total_b = torch.broadcast_tensors(*sums)
    bad = ~weight_checks.masses_agree(total_a, total_b)
    if bool(bad.any()):
        k = int(bad.nonzero()[0, 0])
        refuse(
            bad,
            f"row sums a and column sums b must have equal totals, got {total_a[k]:g} and {total_b[k]:g}; "
            "without weights every present row and column has sum 1: give a and b if their numbers differ",
        )


def check_logits(stack: LogitStack, at: Tensor, name: str, most: float = math.inf) -> None:
    """Refuse nan, +∞, and rows or columns with mass whose entries are all forbidden, in the logits of the problems ``at``.

    ``most``: what logits/τ must stay below.
    """
    logits, temperature, a, b = stack
    low, high = torch.aminmax(logits)
    if float(max(abs(low), abs(high))) / float(temperature.min()) < most:
        return  # and most often this is all there is to see
    rows, columns = a[at % len(a)] > 0, b[at % len(b)] > 0
    X = logits[at].double().masked_fill(~(rows[:, :, None] & columns[:, None, :]), -torch.inf)
    for wrong, what in ((X.isnan(), "nan"), (X.isposinf(), "inf")):
        if bool(wrong.any()):
            if name != "logits":  # which were made of them
                raise checks.ArgumentError(name, "be finite", "nan or inf among them")
            k, i, j = wrong.nonzero()[0].tolist()
            place = f"({i}, {j})" + (f" of problem {int(at[k])}" if len(logits) > 1 else "")
            raise checks.ArgumentError("logits", "be finite, or -inf for a forbidden entry", f"{what} at {place}")
    X = X / temperature[at % len(temperature)].to(X)[:, None, None]
    if bool((most <= X).any()) or bool(((-most >= X) & X.isfinite()).any()):
        raise ValueError(f"temperature is too small: {name} / temperature overflows")
    for axis, present, side in ((2, rows, "row"), (1, columns, "column")):
        forbidden = X.isneginf().all(axis) & present
        if bool(forbidden.any()):
            k, i = forbidden.nonzero()[0].tolist()
            place = f"problem {int(at[k])}: " if len(logits) > 1 else ""
            raise ValueError(f"{place}{side} {i} has mass, but every entry of it is forbidden: mask the whole {side}")


def check_after(error: Tensor, tol: float, name: str) -> None:
    """Warn if errors [B] are above tol; raise if there is no solution to return."""
    unsolved = ~(error <= tol)
    if not bool(unsolved.any()):
        return
    if not bool(error.isfinite().all()):
        k = int((~error.isfinite()).nonzero()[0, 0])
        raise ValueError(f"problem {k}: {name} / temperature spread too far to be solved: raise the temperature")
    warn_unconverged(unsolved, error, tol, "raise the temperature, tol or max_depth, or forbid less")


def warn_unconverged(unsolved: Tensor, error: Tensor, tol: float, advice: str) -> None:
    """Warn of problems that are not solved [B], with the greatest of their errors [B]."""
    callers.warn(
        f"not converged: {int(unsolved.sum())} of {len(error)} problems, "
        f"marginal error up to {float(error[unsolved].max()):.3g}, tol is {tol:g}; {advice}"
    )
