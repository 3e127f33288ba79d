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
from otformer.transport.problem.called_metric import called
from otformer.transport.problem.labels import read_labels
from otformer.transport.problem.read import (
    A_BATCH,
    REVERSE_ONLY,
    Given,
    check_digits,
    matrix_problem,
    not_low,
    problem_of,
    read_cost,
    read_reg,
)
from otformer.transport.problem.weights import read_weights
from otformer.transport.types import Array, Form, Penalty, Problem, to_double

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

    executor "stream" forms no matrix, "dense" does, "auto" up to STREAM_ABOVE entries, or where there is no other way. Where
    λ is 0, "auto" forms one up to POINTS_ABOVE entries, and none of features or on a GPU.
    """
    rest: dict[str, Any] = {"potentials": potentials, "mask": mask, "penalty": penalty}
    if isinstance(metric, Features):
        if X_a is not None or X_b is not None:
            raise checks.ArgumentError("X_a and X_b", "be None where cost is Features, which hold the points")
        x, y = not_low(metric).x.detach(), metric.y.detach()
        form = Form(x.device, x.dtype == torch.float32)
    elif callable(metric):
        if executor == "stream":
            raise checks.ArgumentError("metric (or cost)", "be a name or Features where no matrix is formed", "a function")
        M = called(metric, X_a, X_b)
        return read_cost(M, a, b, reg, labels=read_labels(labels, allow, len(X_a), len(X_b)), **rest)
    else:
        if not isinstance(metric, str) or metric not in FEATURES:
            name = "metric (or cost)" if executor == "stream" else "metric"
            raise checks.ArgumentError(name, f"be one of {', '.join(FEATURES)}, or Features", repr(metric))
        x, y = (checks.array(name, t, differentiable=True) for name, t in (("X_a", X_a), ("X_b", X_b)))
        if not isinstance(X_a, Tensor) and not isinstance(X_b, Tensor) and x.dtype != y.dtype:  # as numpy promotes
            x, y = (X_a, X_b) = to_double(x), to_double(y)
        alike = type(X_a) is type(X_b) and getattr(X_a, "dtype", None) == getattr(X_b, "dtype", None)
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or x.dtype != y.dtype or not alike:
            _agree(X_a, X_b, x, y)
        single = x.dtype == torch.float32 if isinstance(x, Tensor) else x.dtype.char == "f"
        form = Form(X_a.device if isinstance(X_a, Tensor) else None, single)
    named = None if labels is None and allow == "equal" else read_labels(labels, allow, len(x), len(y))
    formable = executor == "auto"
    if formable and mask is None:
        many = len(x) * len(y) > (STREAM_ABOVE if reg is not None else POINTS_ABOVE)
        executor = "stream" if many or (reg is None and isinstance(x, Tensor)) else "dense"
    if isinstance(metric, Features) and executor != "stream":
        return read_cost(metric, a, b, reg, labels=named, **rest)
    given = Given(a, b, reg, read_reg(reg), potentials, mask, named, penalty, penalty is None)
    if executor == "stream":
        return _not_formed(X_a, X_b, metric, form, given, formable)
    if form.single:
        x, y = to_double(x), to_double(y)
    C, moving = _formed(X_a, X_b, x, y, metric)
    try:
        return matrix_problem(C, form, moving, given)
    except ValueError:
        _refuse_points(x, y, C)
        raise


def _formed(X_a: Any, X_b: Any, x: Array, y: Array, metric: str) -> tuple[Array, Tensor | None]:
    """The costs between points, and the same with their graph where a gradient is wanted."""
    given = None
    if (isinstance(X_a, Tensor) or isinstance(X_b, Tensor)) and checks.derivative_wanted(X_a, X_b):
        given = [checks.unseen("points", t).double() for t in (X_a, X_b)]
    if metric in ("sqeuclidean", "euclidean"):
        C = squared_distances(x, y)
        moving = None if given is None else SquaredDistances.apply(*given, checks.local(C))
        if metric == "euclidean":
            C, moving = C**0.5, None if moving is None else root_of(moving)
        return C, moving
    features = FEATURES[metric]
    cost, moving = features(x, y).cost(), None if given is None else features(*given).cost()
    return cost.numpy() if cost.device.type == "cpu" else cost, moving


def _agree(X_a: Any, X_b: Any, x: Array, y: Array) -> None:
    """Both sets are points of one dimension, dtype and device."""
    for name, t in (("X_a", x), ("X_b", y)):
        if t.ndim != 2:
            came = f"{tuple(t.shape)}{(A_BATCH if t.ndim == 3 else '')}"
            raise checks.ArgumentError(name, "have shape (n, d)", came, checks.column_hint(name, t))
    if x.shape[1] != y.shape[1]:
        raise checks.ArgumentError("X_a and X_b", "have the same dimension", f"{tuple(x.shape)} and {tuple(y.shape)}")
    kinds = [f"{getattr(t, 'dtype', 'float64')} on {getattr(t, 'device', 'cpu')}" for t in (X_a, X_b)]
    (one, here), (other, there) = (kind.removeprefix("torch.").split(" on ") for kind in kinds)
    if x.dtype != y.dtype or here != there or (one != other and "float16" in one + other):  # bfloat16 too
        raise checks.ArgumentError("X_a and X_b", "have one dtype and device", f"{kinds[0]} and {kinds[1]}")


def _refuse_points(x: Array, y: Array, C: Array) -> None:
    """If it was the points that made a cost wrong, say which."""
    for name, t in (("X_a", x), ("X_b", y)):
        if not math.isfinite(float(abs(t).sum())) and not bool((torch if isinstance(t, Tensor) else np).isfinite(t).all()):
            raise checks.ArgumentError(name, "be finite", checks.first_not_finite(t)) from None
    if 0 not in C.shape and not math.isfinite(float(C.max())):
        largest = max(float(abs(x).max()), float(abs(y).max()))
        raise checks.ArgumentError("X_a and X_b", "have finite squared distances", f"points up to {largest:g}") from None


def _not_formed(X_a: Any, X_b: Any, metric: str | Features, form: Form, given: Given, formable: bool) -> Problem:
    """The problem between points for a cost with features, or its root; not formed, or only where that is faster."""
    checks.no_tangents(REVERSE_ONLY, X_a=X_a, X_b=X_b, a=given.a, b=given.b, reg=given.reg)
    x, y, p, q = _features_of(X_a, X_b, metric)
    n, m, device = len(x), len(y), x.device
    if (n == 0) != (m == 0):
        raise checks.ArgumentError("X_a and X_b", "both have points, or neither", f"{n} and {m}", "mass has nowhere to go")
    known = _finite_ends(x, y) if n else None
    weights = read_weights(given.a, given.b, (n, m), device, given.balanced)
    support, labels, rule = weights.support, given.labels, Rule(root=metric == "euclidean")
    if labels is not None:
        labels, weights = labels.fitted(weights, device, given.balanced)
        rule = labels.rule(rule.root)
    if support is not None:
        x, y, p, q = x[support.rows], y[support.columns], p[support.rows], q[support.columns]
        known = ends(x, y)
    sides: tuple[Tensor, ...] = (x, y, p, q)
    spread = 0.0
    if known is not None:
        sides, spread = _about_origin(x, y, p, q, known, rule)
    check_digits(given.lam, spread)
    x, y, p, q = (t.detach() for t in sides)
    wanted = checks.derivative_wanted(*sides) or given.wants_derivatives()
    return problem_of(
        PointsCost(x, y, p, q, rule, spread, formable), given, weights, form, sides if wanted else None, labels
    )


def _features_of(X_a: Any, X_b: Any, metric: str | Features) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, y, p, q in float64, differentiably, of the cost ‖x − y‖² + p + q; ‖x − y‖ has the same x and y."""
    if isinstance(metric, Features):
        named = {f"cost.{name}": getattr(metric, name) for name in ("x", "y", "x_sq", "y_sq")}
        checks.no_tangents(REVERSE_ONLY, **named)
        x, y, p, q = (checks.tensor(name, t) for name, t in named.items())
        if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or (p.shape, q.shape) != (x.shape[:1], y.shape[:1]):
            raise checks.ArgumentError("cost", "be Features of one problem", f"x of shape {tuple(x.shape)}")
        features = Features(x.double(), y.double(), p.double(), q.double())
        return features.x, features.y, *own_costs(features)
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
