r"""Reading once: whatever a caller can hand over becomes a checked `Problem`.

Costs as a matrix, or points with the name of a cost; lists, numpy arrays or tensors, in either precision, on a CPU or a GPU;
weights that may be missing, or 0 for some points; pairs that may be forbidden; potentials of an earlier problem. The cost is
looked at once, for its least and its greatest entry: a number that is none shows there too.
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
from otformer.transport.derivatives.implicit import SquaredDistances
from otformer.transport.problem.forbidden import check_reachable, greatest_allowed, masked, parts, unmasked
from otformer.transport.problem.labels import Labels, read_labels
from otformer.transport.problem.potentials import started
from otformer.transport.problem.problem import Array, Form, Problem, Wanted, squared_distances
from otformer.transport.problem.weights import Weights, read_weights

SMALL = 200**3  # n·m·min(n, m), the multiplications in one Newton matrix: up to here a problem is solved in numpy
WIDEST_RANGE = 1e300  # of finite costs: sums and multiples of them stay finite
ANY_REG = 1e300  # where λ is not looked at
FEW_BITS_LEFT = 2.0**-26  # of the least cost: what is smaller keeps 26 bits once that is subtracted
UNNOTICED = 1e-6  # of λ: an error of a cost that changes no plan by more than that
STREAM_ABOVE = 10**8  # entries of a cost matrix that is not formed any more unless asked for
POINTS_ABOVE = 3 * 10**5  # entries of a cost matrix, which an exact solve leaves out for the most part
FEATURES: dict[str, Callable[[Any, Any], Features]] = {
    "sqeuclidean": squared_euclidean,
    "euclidean": squared_euclidean,  # of which the root is taken
    "inner": inner_product,
    "cosine": cosine,
}
REVERSE_ONLY = "use torch.autograd.grad, or a balanced solve with reg > 0 on a matrix (executor='dense')"
A_BATCH = ": for a batch there are solve_batch and nn.Transport"


def is_small(n: int, m: int) -> bool:
    """Whether Newton steps cost no more than the calls of other layers."""
    return n * m * min(n, m) <= SMALL


def read_cost(
    M: Any, a: Any = None, b: Any = None, reg: Any = 0.1, potentials: Any = None, mask: Any = None, balanced: bool = True,
    labels: Labels | None = None,
) -> Problem:  # fmt: skip
    """The problem of a cost matrix M (n, m), or of `Features`; +inf, or False in ``mask`` (n, m), forbids a pair."""
    if isinstance(M, Features):
        M = _not_low(M).cost()
    M = unmasked(M)
    if not balanced:
        checks.no_tangents(REVERSE_ONLY, M=M, a=a, b=b, reg=reg)
    C = checks.array("M", M, differentiable=True)
    single = C.dtype == torch.float32 if isinstance(C, Tensor) else C.dtype.char == "f"
    form = Form(M.device if isinstance(M, Tensor) else None, single)
    moving = M if form.device is not None and checks.derivative_wanted(M) else None
    return _matrix_problem(C, form, moving, a, b, reg, potentials, mask, balanced, labels)


def read_points(
    X_a: Any, X_b: Any, a: Any = None, b: Any = None, reg: Any = 0.1, potentials: Any = None, mask: Any = None,
    metric: Any = "sqeuclidean", executor: str = "dense", balanced: bool = True, labels: Any = None, allow: Any = "equal",
) -> Problem:  # fmt: skip
    """The problem between points X_a (n, d) and X_b (m, d) for a cost by name, `Features`, or a function of both.

    executor "stream" forms no matrix, "dense" does, "auto" up to STREAM_ABOVE entries, or where there is no other way.
    """
    if isinstance(metric, Features):
        if X_a is not None or X_b is not None:
            raise ValueError("X_a and X_b must be None where cost is Features: they have the points already")
        x, y = _not_low(metric).x.detach(), metric.y.detach()
        form = Form(x.device, x.dtype == torch.float32)
    elif callable(metric):
        if executor == "stream":
            raise ValueError("metric (or cost) must be a name or Features where no matrix is formed, got a function")
        M = metric(X_a, X_b)
        if np.shape(M) != (len(X_a), len(X_b)):
            raise ValueError(f"metric must give a matrix of shape {(len(X_a), len(X_b))}, got {np.shape(M)}")
        return read_cost(M, a, b, reg, potentials, mask, balanced, read_labels(labels, allow, len(X_a), len(X_b)))
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
        from otformer.transport.problem.read_stream import stream_problem

        return stream_problem(X_a, X_b, metric, form, a, b, reg, potentials, balanced, named)
    if isinstance(metric, Features):
        return read_cost(metric, a, b, reg, potentials, mask, balanced, named)
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
        return _matrix_problem(C, form, moving, a, b, reg, potentials, mask, balanced, named)
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


def _not_low(features: Features) -> Features:
    """Features that are not computed with in low precision."""
    if features.x.dtype in checks.LOW:
        raise ValueError(f"cost must be Features in float32 or float64, got {features.x.dtype}: of_points(x.float(), …)")
    return features


def _agree(X_a: Any, X_b: Any, x: Array, y: Array) -> None:
    """Both sets are points of one dimension, dtype and device."""
    for name, t in (("X_a", x), ("X_b", y)):
        if t.ndim != 2:
            raise ValueError(f"{name} must have shape (n, d), got {tuple(t.shape)}{A_BATCH if t.ndim == 3 else ''}")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"X_a and X_b must have the same dimension, got {tuple(x.shape)} and {tuple(y.shape)}")
    kinds = [f"{getattr(t, 'dtype', 'float64')} on {getattr(t, 'device', 'cpu')}" for t in (X_a, X_b)]
    (one, here), (other, there) = (kind.removeprefix("torch.").split(" on ") for kind in kinds)
    if x.dtype != y.dtype or here != there or (one != other and "float16" in one + other):  # bfloat16 too
        raise ValueError(f"X_a and X_b must agree, got {kinds[0]} and {kinds[1]}")


def root_of(squares: Tensor) -> Tensor:
    """√C with gradient 0 where points coincide."""
    there = squares > 0
    return torch.where(there, torch.where(there, squares, 1.0).sqrt(), 0.0)


def _refuse_points(x: Array, y: Array, C: Array) -> None:
    """If it was the points that made a cost wrong, say which."""
    for name, t in (("X_a", x), ("X_b", y)):
        if not math.isfinite(float(abs(t).sum())) and not bool((torch if isinstance(t, Tensor) else np).isfinite(t).all()):
            raise ValueError(f"{name} must be finite, got {checks.first_not_finite(t)}") from None
    if 0 not in C.shape and not math.isfinite(float(C.max())):
        largest = max(float(abs(x).max()), float(abs(y).max()))
        raise ValueError(f"X_a and X_b must have finite squared distances, got points up to {largest:g}") from None


def _matrix_problem(
    C: Array, form: Form, moving: Tensor | None, a: Any, b: Any, reg: Any, potentials: Any, mask: Any, balanced: bool,
    labels: Labels | None,
) -> Problem:  # fmt: skip
    """The problem of a cost matrix; ``moving`` is the same as a tensor with a graph, where a gradient is wanted in it."""
    if C.ndim != 2:
        raise ValueError(f"M must have shape (n, m), got {tuple(C.shape)}{A_BATCH if C.ndim == 3 else ''}")
    n, m = C.shape
    if (n == 0) != (m == 0):
        raise ValueError(f"M must have rows and columns, or neither, got shape {(n, m)}: mass has nowhere to go")
    lam = reg if type(reg) is float and 1e-300 < reg <= 1e300 else read_reg(reg)
    device = C.device if isinstance(C, Tensor) else None
    weights = read_weights(a, b, (n, m), device, balanced)
    kept = weights.kept
    if mask is not None:
        C = masked(C, mask)
    if labels is not None:
        C = masked(C, labels.allowed())
        labels, weights = labels.fitted(weights, device, balanced)
    if kept is not None:
        C = C[kept.rows][:, kept.columns]
    low, high, forbids = 0.0, 0.0, False
    if n:  # the one look at all costs
        low, high = torch.stack(torch.aminmax(C)).tolist() if isinstance(C, Tensor) else (float(C.min()), float(C.max()))
    if not (math.isfinite(low) and math.isfinite(high)):
        high, forbids = greatest_allowed(C, low), True
    if forbids:
        check_reachable(C)
        together = parts(C, kept) if balanced else None
        if together is not None:
            labels, weights = together.fitted(weights._replace(kept=None), device, balanced)
            weights = weights._replace(kept=kept)
    if not (high - low <= WIDEST_RANGE and (high - low) / lam < math.inf):
        check_ratio(lam, high - low)
    low = low if low >= 0 else _shift(C, low, lam)
    C = C.double() - low if isinstance(C, Tensor) else np.subtract(C, low, dtype=np.float64, order="C")
    wanted = None
    others = a is not None or b is not None or type(reg) is not float
    if moving is not None or (others and checks.derivative_wanted(a, b, reg)):
        cost = checks.local(C) if moving is None else moving.double() - low
        cost = cost if kept is None or moving is None else cost[checks.local(kept.rows)][:, checks.local(kept.columns)]
        cost = torch.where(checks.local(C).isinf(), math.inf, cost) if forbids else cost
        wanted = wanted_of((cost,), a, b, reg, weights, cost.device, balanced, labels)
        form = Form(cost.device, form.single)
    problem = Problem(C, weights.a, weights.b, weights.target, lam, weights.mass, low, high - low, form, kept, wanted)
    if device is None and n * m * min(n, m) > SMALL:
        problem = problem.as_tensors()
    return problem if potentials is None else started(problem, potentials)


def _shift(C: Array, low: float, reg: float) -> float:
    """What to subtract from all costs: the least, unless the digits of many others would go with it."""
    if reg == ANY_REG:
        return 0.0  # exact solves take costs as they are
    small = int(((abs(C) <= FEW_BITS_LEFT * -low) & (C != 0)).sum())
    if 2 * small >= min(C.shape) and math.ulp(low) > UNNOTICED * reg:
        raise ValueError(
            f"M must not lie so far below its other costs that their digits are lost: its least entry is {low:g}, beside "
            f"which float64 resolves {math.ulp(low):.2g}, and reg is {reg:g}; an exact solve keeps them"
        )
    return low


def read_reg(reg: Any) -> float:
    """λ as a number."""
    if type(reg) is float and 1e-300 < reg <= 1e300:
        return reg
    lam = checks.positive("reg", reg.detach() if isinstance(reg, Tensor) else reg)
    if lam > 1e300:
        raise ValueError(f"reg must be at most 1e300, got {lam:g}")
    return lam


def check_ratio(reg: float, spread: float) -> None:
    """Nothing may overflow: neither costs over λ, nor what stands for a forbidden pair, which is larger than all costs."""
    if spread > WIDEST_RANGE:
        raise ValueError(f"costs must lie less than 1e300 apart, got a range of {spread:g}")
    if not spread / reg < math.inf:
        raise ValueError(f"reg is too small: cost/reg overflows, got reg = {reg:g}, costs {spread:g} apart")


def wanted_of(
    cost: tuple[Tensor, ...], a: Any, b: Any, reg: Any, weights: Weights, device: torch.device, balanced: bool = True,
    labels: Labels | None = None,
) -> Wanted:  # fmt: skip
    """Tensors with their graphs; weights that want no gradient are those read."""
    kept = weights.kept
    sides = []
    for k, (given, read) in enumerate(((a, weights.a), (b, weights.target))):
        if checks.derivative_wanted(given):
            w = given.double()
            sides.append(w if kept is None else w[torch.as_tensor(kept[k], device=device)])
        else:
            sides.append(torch.as_tensor(read, device=device))
    w_a, target = sides
    w_b = target * (w_a.sum() / target.sum()) if len(target) and balanced else target
    if labels is not None and balanced:
        w_b = labels.scaled(w_a, target)
    return Wanted(cost, w_a, w_b, torch.as_tensor(reg, dtype=torch.float64, device=device).reshape(()))
