r"""Reading points: with a cost by name, `Features`, or a function of both sides; formed into a matrix or not.

All that is asked of points that are not formed into a matrix is asked at once, their least and greatest coordinates: on a
GPU every question is a wait for it, and those of a few thousand points take no longer than a handful of such waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.network.features import Features, cosine, inner_product, squared_euclidean
from otformer.transport.costs.clouds import Rule, ends, middles, moved, own_costs
from otformer.transport.costs.distances import SquaredDistances, root_of, squared_distances
from otformer.transport.costs.points import PointsCost
from otformer.transport.problem.labels import Labels, read_labels
from otformer.transport.problem.potentials import read_potentials
from otformer.transport.problem.read import (
    A_BATCH,
    REVERSE_ONLY,
    check_digits,
    inputs_of,
    matrix_problem,
    not_low,
    read_cost,
    read_reg,
)
from otformer.transport.problem.weights import read_weights
from otformer.transport.types import Array, Form, Penalty, Problem

STREAM_ABOVE = 10**8  # entries of a cost matrix that is not formed any more unless asked for
POINTS_ABOVE = 3 * 10**5  # entries of a cost matrix, which an exact solve leaves out for the most part
FEATURES: dict[str, Callable[[Any, Any], Features]] = {
    "sqeuclidean": squared_euclidean,
    "euclidean": squared_euclidean,  # of which the root is taken
    "inner": inner_product,
    "cosine": cosine,
}


def read_points(
    X_a: Any, X_b: Any, a: Any = None, b: Any = None, reg: Any = 0.1, *, potentials: Any = None, mask: Any = None,
    metric: Any = "sqeuclidean", executor: str = "dense", labels: Any = None, allow: Any = "equal",
    penalty: Penalty | None = None,
) -> Problem:  # fmt: skip
    """The problem between points X_a (n, d) and X_b (m, d) for a cost by name, `Features`, or a function of both.

    executor "stream" forms no matrix, "dense" does, "auto" up to STREAM_ABOVE entries, or where there is no other way.
    """
    if isinstance(metric, Features):
        if X_a is not None or X_b is not None:
            raise checks.ArgumentError("X_a and X_b", "be None where cost is Features, which have the points")
        x, y = not_low(metric).x.detach(), metric.y.detach()
        form = Form(x.device, x.dtype == torch.float32)
    elif callable(metric):
        if executor == "stream":
            raise checks.ArgumentError("metric (or cost)", "be a name or Features where no matrix is formed", "a function")
        M = metric(X_a, X_b)
        if np.shape(M) != (len(X_a), len(X_b)):
            raise checks.ArgumentError("metric", f"give a matrix of shape {(len(X_a), len(X_b))}", np.shape(M))
        named = read_labels(labels, allow, len(X_a), len(X_b))
        return read_cost(M, a, b, reg, potentials=potentials, mask=mask, labels=named, penalty=penalty)
    else:
        x, y = (checks.array(name, t, differentiable=True) for name, t in (("X_a", X_a), ("X_b", X_b)))
        alike = type(X_a) is type(X_b) and getattr(X_a, "dtype", None) == getattr(X_b, "dtype", None)
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or x.dtype != y.dtype or not alike:
            _agree(X_a, X_b, x, y)
        single = x.dtype == torch.float32 if isinstance(x, Tensor) else x.dtype.char == "f"
        form = Form(X_a.device if isinstance(X_a, Tensor) else None, single)
    named = None if labels is None and allow == "equal" else read_labels(labels, allow, len(x), len(y))
    known = isinstance(metric, Features) or (isinstance(metric, str) and metric in FEATURES)
    if executor == "stream" or (executor == "auto" and known and mask is None and len(x) * len(y) > STREAM_ABOVE):
        return _not_formed(X_a, X_b, metric, form, a, b, reg, potentials, named, penalty)
    if isinstance(metric, Features):
        return read_cost(metric, a, b, reg, potentials=potentials, mask=mask, labels=named, penalty=penalty)
    if form.single:
        x, y = (t.double() if isinstance(t, Tensor) else t.astype(np.float64) for t in (x, y))
    if not isinstance(metric, str) or metric not in ("sqeuclidean", "euclidean"):
        C, moving = _feature_cost(X_a, X_b, x, y, metric)
    else:
        C, moving = squared_distances(x, y), None
        if (form.device is not None or isinstance(X_b, Tensor)) and checks.derivative_wanted(X_a, X_b):
            moving = SquaredDistances.apply(*(checks.unseen("points", t).double() for t in (X_a, X_b)), checks.local(C))
        if metric == "euclidean":
            C, moving = C**0.5, None if moving is None else root_of(moving)
    try:
        return matrix_problem(
            C,
            form,
            moving,
            a,
            b,
            reg,
            potentials=potentials,
            mask=mask,
            labels=named,
            balanced=penalty is None,
            penalty=penalty,
        )
    except ValueError:
        _refuse_points(x, y, C)
        raise


def exact_executor(X_a: Any, X_b: Any, metric: Any) -> str:
    """How all pairs are best looked at where λ is 0: without the matrix, if there are many."""
    known = isinstance(metric, Features) or (isinstance(metric, str) and metric in FEATURES)
    if not isinstance(metric, Features):
        try:
            many = len(X_a) * len(X_b) > POINTS_ABOVE or (isinstance(X_a, Tensor) and X_a.is_cuda)
        except TypeError:  # no points, which is said when they are read
            return "auto"
    return "stream" if known and (isinstance(metric, Features) or many) else "auto"


def _feature_cost(X_a: Any, X_b: Any, x: Array, y: Array, metric: Any) -> tuple[Array, Tensor | None]:
    """A cost by the name of its features, and the same with its graph where a gradient is wanted."""
    features = FEATURES[checks.choice("metric", metric, FEATURES)]
    cost = features(x, y).cost()
    moving = None
    if checks.derivative_wanted(X_a, X_b):
        moving = features(*(checks.unseen("points", t).double() for t in (X_a, X_b))).cost()
    return cost.numpy() if cost.device.type == "cpu" else cost, moving


def _agree(X_a: Any, X_b: Any, x: Array, y: Array) -> None:
    """Both sets are points of one dimension, dtype and device."""
    for name, t in (("X_a", x), ("X_b", y)):
        if t.ndim != 2:
            raise checks.ArgumentError(name, "have shape (n, d)", f"{tuple(t.shape)}{(A_BATCH if t.ndim == 3 else '')}")
    if x.shape[1] != y.shape[1]:
        raise checks.ArgumentError("X_a and X_b", "have the same dimension", f"{tuple(x.shape)} and {tuple(y.shape)}")
    kinds = [f"{getattr(t, 'dtype', 'float64')} on {getattr(t, 'device', 'cpu')}" for t in (X_a, X_b)]
    (one, here), (other, there) = (kind.removeprefix("torch.").split(" on ") for kind in kinds)
    if x.dtype != y.dtype or here != there or (one != other and "float16" in one + other):  # bfloat16 too
        raise checks.ArgumentError("X_a and X_b", "agree", f"{kinds[0]} and {kinds[1]}")


def _refuse_points(x: Array, y: Array, C: Array) -> None:
    """If it was the points that made a cost wrong, say which."""
    for name, t in (("X_a", x), ("X_b", y)):
        if not math.isfinite(float(abs(t).sum())) and not bool((torch if isinstance(t, Tensor) else np).isfinite(t).all()):
            raise checks.ArgumentError(name, "be finite", checks.first_not_finite(t)) from None
    if 0 not in C.shape and not math.isfinite(float(C.max())):
        largest = max(float(abs(x).max()), float(abs(y).max()))
        raise checks.ArgumentError("X_a and X_b", "have finite squared distances", f"points up to {largest:g}") from None


def _not_formed(
    X_a: Any, X_b: Any, metric: Any, form: Form, a: Any, b: Any, reg: Any, potentials: Any, labels: Labels | None,
    penalty: Penalty | None,
) -> Problem:  # fmt: skip
    """The problem between points for a cost with features, or its root, which is never formed."""
    checks.no_tangents(REVERSE_ONLY, X_a=X_a, X_b=X_b, a=a, b=b, reg=reg)
    x, y, p, q = _read_points(X_a, X_b, metric)
    n, m, device, balanced = len(x), len(y), x.device, penalty is None
    if (n == 0) != (m == 0):
        raise checks.ArgumentError("X_a and X_b", "both have points, or neither", f"{n} and {m}", "mass has nowhere to go")
    known = _finite_ends(x, y) if n else None
    lam, weights = read_reg(reg), read_weights(a, b, (n, m), device, balanced)
    support, rule = weights.support, Rule(root=isinstance(metric, str) and metric == "euclidean")
    if labels is not None:
        labels, weights = labels.fitted(weights, device, balanced)
        rule = labels.rule(rule.root)
    w_a, w_b, target = (torch.as_tensor(w, device=device) for w in (weights.a, weights.b, weights.target))
    start = None if potentials is None else read_potentials(potentials, p, q)
    if support is not None:
        support = support.as_tensors(device)
        x, y, p, q = x[support.rows], y[support.columns], p[support.rows], q[support.columns]
        known = ends(x, y)
        start = None if start is None else (start[0][support.rows], start[1][support.columns])
    sides: tuple[Tensor, ...] = (x, y, p, q)
    spread = 0.0
    if known is not None:
        sides, spread = _about_origin(x, y, p, q, known, rule)
    check_digits(lam, spread)
    x, y, p, q = (t.detach() for t in sides)
    wanted = None
    if checks.derivative_wanted(*sides, a, b, reg):
        wanted, form = inputs_of(sides, a, b, reg, weights, device, balanced, labels), Form(device, form.single)
    start = None if start is None else (start[0] - p, start[1] - q)
    cost = PointsCost(x, y, p, q, rule, spread)
    return Problem(cost, w_a, w_b, target, lam, weights.mass, form, support, wanted, start, penalty)


def _read_points(X_a: Any, X_b: Any, metric: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, y, p, q in float64, differentiably, of the cost ‖x − y‖² + p + q; ‖x − y‖ has the same x and y."""
    if isinstance(metric, Features):
        named = {f"cost.{name}": getattr(metric, name) for name in ("x", "y", "x_sq", "y_sq")}
        checks.no_tangents(REVERSE_ONLY, **named)
        x, y, p, q = (checks.tensor(name, t) for name, t in named.items())
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or (p.shape, q.shape) != (x.shape[:1], y.shape[:1]):
            raise checks.ArgumentError("cost", "be Features of one problem", f"x of shape {tuple(x.shape)}")
        features = Features(x.double(), y.double(), p.double(), q.double())
        return features.x, features.y, *own_costs(features)
    if not isinstance(metric, str) or metric not in FEATURES:
        raise checks.ArgumentError("metric (or cost)", f"be one of {', '.join(FEATURES)}, or Features", repr(metric))
    x, y = checks.unseen("X_a", X_a).double(), checks.unseen("X_b", X_b).double()
    if len(x) and not x.shape[1]:
        raise checks.ArgumentError("X_a and X_b", "have coordinates", f"shapes {tuple(x.shape)} and {tuple(y.shape)}")
    if metric in ("sqeuclidean", "euclidean"):
        return x, y, x.new_zeros(len(x)), y.new_zeros(len(y))
    features = FEATURES[metric](x, y)
    return features.x, features.y, *own_costs(features)


def _finite_ends(x: Tensor, y: Tensor) -> np.ndarray:
    known = ends(x, y)
    for name, t, own in (("X_a", x, known[:2]), ("X_b", y, known[2:])):
        if not np.isfinite(own).all():
            raise checks.ArgumentError(name, "be finite", checks.first_not_finite(t))
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
        raise checks.ArgumentError("X_a and X_b", "have finite squared distances", "points too far apart")
    return (x, y, p, q), spread**0.5 if rule.root else spread
