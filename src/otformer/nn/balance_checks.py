"""What `balance` refuses, each in one line; and what it warns of."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otformer import callers, checks

LEAST_TEMPERATURE = 1e-300  # below, it is 0


def refuse(bad: Tensor, message: str) -> None:
    """A ValueError with the message where ``bad`` is true; it names the problem, where there are several: [B]."""
    if bool(bad.any()):
        raise ValueError(f"problem {int(bad.nonzero()[0, 0])}: {message}" if bad.ndim and len(bad) > 1 else message)


def check_weights(name: str, w: Tensor, top: float) -> None:
    """Weights [..., n], 0 for what is absent: an entry of a plan may be as large as one of them."""
    refuse(~w.isfinite().all(-1), f"{name} must be finite, got nan or inf among what is there")
    refuse((w < 0).any(-1), f"{name} must not be negative")
    refuse(w.amax(-1) <= 0, f"{name} must have a positive sum over what is there, got all zeros")
    refuse(w.amax(-1) > top, f"{name} must be at most {top:g}, the greatest number of the plan's dtype")


def ordinary(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Whether `check_before` has nothing to say, as a tensor: its conditions on weights, in one."""
    fine = (temperature.isfinite() & (temperature > LEAST_TEMPERATURE)).all()
    for w in (a, b):
        fine = fine & ((w >= 0) & (w <= torch.finfo(logits.dtype).max)).all() & (w.amax(1) > 0).all()
    return fine & checks.masses_agree(*(t.double().sum(1) for t in (a, b))).all()


def check_before(logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, name: str) -> None:
    """Temperatures [H] and weights [A, n], [A', m] before anything is solved; ``name``: "logits", or "values" to sort."""
    if not bool((temperature.isfinite() & (temperature > LEAST_TEMPERATURE)).all()):
        wrong = temperature[~(temperature.isfinite() & (temperature > LEAST_TEMPERATURE))][0].item()
        raise checks.ArgumentError("temperature", "be a positive, finite number", f"{wrong:g}")
    for weight, w in (("a" if name == "logits" else "weights", a), ("b", b)):
        if name != "logits" and w is b:  # pieces of [0, 1]: only too large a k makes one negative
            refuse((w < 0).any(1), "k is more than the values that are there")
        check_weights(weight, w, torch.finfo(logits.dtype).max)
    sums = (t.double().sum(1) for t in (a, b))
    total_a, total_b = torch.broadcast_tensors(*sums)
    bad = ~checks.masses_agree(total_a, total_b)
    if bool(bad.any()):
        k = int(bad.nonzero()[0, 0])
        refuse(
            bad,
            f"row sums a and column sums b must have one total, got {total_a[k]:g} and {total_b[k]:g}; "
            "without weights every row and column that is there has sum 1: give a and b where they are not as many",
        )


def check_logits(
    logits: Tensor, temperature: Tensor, a: Tensor, b: Tensor, left: Tensor, name: str, most: float = math.inf
) -> None:
    """Logits of the problems ``left``: no nan, no +∞, and no row or column with mass whose entries are all forbidden.

    ``most``: what logits/τ must stay below.
    """
    low, high = torch.aminmax(logits)
    if float(max(abs(low), abs(high))) / float(temperature.min()) < most:
        return  # and most often this is all there is to see
    rows, columns = a[left % len(a)] > 0, b[left % len(b)] > 0
    X = logits[left].double().masked_fill(~(rows[:, :, None] & columns[:, None, :]), -torch.inf)
    for wrong, what in ((X.isnan(), "nan"), (X.isposinf(), "inf")):
        if bool(wrong.any()):
            if name != "logits":  # which were made of them
                raise checks.ArgumentError(name, "be finite", "nan or inf among them")
            k, i, j = wrong.nonzero()[0].tolist()
            place = f"({i}, {j})" + (f" of problem {int(left[k])}" if len(logits) > 1 else "")
            raise checks.ArgumentError("logits", "be finite, or -inf for a forbidden entry", f"{what} at {place}")
    X = X / temperature[left % len(temperature)].to(X)[:, None, None]
    if bool((most <= X).any()) or bool(((-most >= X) & X.isfinite()).any()):
        raise ValueError(f"temperature is too small: {name} / temperature overflows")
    for axis, there, side in ((2, rows, "row"), (1, columns, "column")):
        lost = X.isneginf().all(axis) & there
        if bool(lost.any()):
            k, i = lost.nonzero()[0].tolist()
            place = f"problem {int(left[k])}: " if len(logits) > 1 else ""
            raise ValueError(f"{place}{side} {i} has mass, but every entry of it is forbidden: mask the whole {side}")


def check_after(error: Tensor, tol: float, name: str) -> None:
    """A warning if errors [B] are above tol; an error if there is no solution to return."""
    left = ~(error <= tol)
    if not bool(left.any()):
        return
    if not bool(error.isfinite().all()):
        k = int((~error.isfinite()).nonzero()[0, 0])
        raise ValueError(f"problem {k}: {name} / temperature spread too far to be solved: raise the temperature")
    callers.warn(
        f"not converged: {int(left.sum())} of {len(error)} problems, marginal error up to {float(error.max()):.3g}, "
        f"tol is {tol:g}; raise the temperature, tol or max_depth, or forbid less"
    )
