"""Reading points whose cost is never formed. All that is asked of their numbers is asked at once: their least and greatest.

On a GPU every question is a wait for it, and those of a few thousand points take no longer than a handful of such waits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.network.features import Features
from otformer.transport.executors.clouds import Rule, ends, middles, moved, own_costs
from otformer.transport.problem.labels import Labels
from otformer.transport.problem.potentials import read_potentials
from otformer.transport.problem.problem import Form, Problem, Sides
from otformer.transport.problem.read import FEATURES, REVERSE_ONLY, check_ratio, read_reg, wanted_of
from otformer.transport.problem.weights import read_weights

MOST_RATIO = 2.0**50  # of the range of costs and λ: beyond, a logit has no digit after the point


def stream_problem(
    X_a: Any, X_b: Any, metric: Any, form: Form, a: Any, b: Any, reg: Any, potentials: Any, balanced: bool,
    labels: Labels | None,
) -> Problem:  # fmt: skip
    """The problem between points for a cost with features, or its root, which is never formed."""
    checks.no_tangents(REVERSE_ONLY, X_a=X_a, X_b=X_b, a=a, b=b, reg=reg)
    x, y, p, q = _read_points(X_a, X_b, metric)
    n, m, device = len(x), len(y), x.device
    if (n == 0) != (m == 0):
        raise ValueError(f"X_a and X_b must have rows and columns, or neither, got shape {(n, m)}: mass has nowhere to go")
    known = _finite_ends(x, y) if n else None
    lam, weights = read_reg(reg), read_weights(a, b, (n, m), device, balanced)
    kept, rule = weights.kept, Rule(root=isinstance(metric, str) and metric == "euclidean")
    if labels is not None:
        labels, weights = labels.fitted(weights, device, balanced)
        rule = labels.rule(rule.root)
    w_a, w_b, target = (torch.as_tensor(w, device=device) for w in (weights.a, weights.b, weights.target))
    start = None if potentials is None else read_potentials(potentials, p, q)
    if kept is not None:
        kept = kept.as_tensors(device)
        x, y, p, q = x[kept.rows], y[kept.columns], p[kept.rows], q[kept.columns]
        known = ends(x, y)
        start = None if start is None else (start[0][kept.rows], start[1][kept.columns])
    sides: tuple[Tensor, ...] = (x, y, p, q)
    spread = 0.0
    if known is not None:
        sides, spread = _about_origin(x, y, p, q, known, rule)
    check_ratio(lam, spread)
    if spread > MOST_RATIO * lam:
        raise ValueError(f"reg is too small for float64: costs may be {spread / lam:.2g} times reg apart, at most 2⁵⁰ times")
    x, y, p, q = (t.detach() for t in sides)
    wanted = None
    if checks.derivative_wanted(*sides, a, b, reg):
        wanted, form = wanted_of(sides, a, b, reg, weights, device, balanced, labels), Form(device, form.single)
    return Problem(Sides(x, y, p, q, rule), w_a, w_b, target, lam, weights.mass, 0.0, spread, form, kept, wanted, start)


def _read_points(X_a: Any, X_b: Any, metric: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, y, p, q in float64, differentiably, of the cost ‖x − y‖² + p + q; ‖x − y‖ has the same x and y."""
    if isinstance(metric, Features):
        named = {f"cost.{name}": getattr(metric, name) for name in ("x", "y", "x_sq", "y_sq")}
        checks.no_tangents(REVERSE_ONLY, **named)
        x, y, p, q = (checks.tensor(name, t) for name, t in named.items())
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or (p.shape, q.shape) != (x.shape[:1], y.shape[:1]):
            raise ValueError(f"cost must be Features of one problem, got shapes {[tuple(t.shape) for t in (x, y, p, q)]}")
        features = Features(x.double(), y.double(), p.double(), q.double())
        return features.x, features.y, *own_costs(features)
    if not isinstance(metric, str) or metric not in FEATURES:
        raise ValueError(f"metric (or cost) must be one of {', '.join(FEATURES)}, or Features, got {metric!r}")
    x, y = checks.unseen("X_a", X_a).double(), checks.unseen("X_b", X_b).double()
    if len(x) and not x.shape[1]:
        raise ValueError(f"X_a and X_b must have coordinates, got shapes {tuple(x.shape)} and {tuple(y.shape)}")
    if metric in ("sqeuclidean", "euclidean"):
        return x, y, x.new_zeros(len(x)), y.new_zeros(len(y))
    features = FEATURES[metric](x, y)
    return features.x, features.y, *own_costs(features)


def _finite_ends(x: Tensor, y: Tensor) -> np.ndarray:
    known = ends(x, y)
    for name, t, own in (("X_a", x, known[:2]), ("X_b", y, known[2:])):
        if not np.isfinite(own).all():
            raise ValueError(f"{name} must be finite, got {checks.first_not_finite(t)}")
    return known


def _about_origin(
    x: Tensor, y: Tensor, p: Tensor, q: Tensor, known: np.ndarray, rule: Rule
) -> tuple[tuple[Tensor, ...], float]:
    """Clouds that lie about the origin, and a bound on the range of c between them, from boxes or balls around them."""
    with np.errstate(over="ignore", invalid="ignore"):
        c, e = middles(known, rule)
        (low_x, high_x), (low_y, high_y) = known[:2] - c, known[2:] - e
        spread = float((np.maximum(high_x - low_y, high_y - low_x) ** 2).sum())
    x, y, p, q = moved(x, y, p, q, c, e)
    if len(c) > 8:
        norms = torch.stack([torch.linalg.vector_norm(t.detach(), dim=1).max() for t in (x, y)]).sum()
        spread = min(spread, float(norms) ** 2)
    with np.errstate(over="ignore", invalid="ignore"):
        far = spread + float((np.abs(c - e) * (np.abs(known).max(0) + np.abs(c) + np.abs(e))).sum())
    if not math.isfinite(far):
        raise ValueError("X_a and X_b must have finite squared distances, got points too far apart")
    return (x, y, p, q), spread**0.5 if rule.root else spread
