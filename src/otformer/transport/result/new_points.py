r"""Maps of new points: where a plan sends points that it was not computed for.

**Entropic** [1]. A row of the plan depends on its point by the costs alone,

    P_ij / Σ_k P_ik = softmax_j((v_j − c(x_i, y_j))/λ),    so for any x:    T(x) = Σ_j softmax_j((v_j − c(x, y_j))/λ) y_j.

This is one head of attention: x is the query, y_j the keys and values, v_j/λ the biases of the keys. At the points of the
plan T is `Result.map`.

**Exact** (λ → 0) [2]. x goes to the y_j of least c(x, y_j) − g_j, the potentials g being those of the optimum. For squared
distances that is a subgradient of a convex function, and T is optimal between any distribution and its image. Potentials
of a matching are not unique, and at points of the plan several y_j may be least: these go where the plan sends them, to
Σ_j P_ij y_j / Σ_j P_ij.

The map back, of new points y, has x, u and i in place of y, v and j.

**On the way** [3]. An exact plan moves the mass P_ij along the line from x_i to y_j; at time t it lies at (1 − t) x_i +
t y_j. With entropy every x_i moves to its mean T(x_i), so that n points arrive, drawn together by λ.

[1] A.-A. Pooladian, J. Niles-Weed: Entropic estimation of optimal transport maps, 2021.
[2] C. Villani: Optimal transport, old and new, theorem 5.10, 2009.
[3] R. McCann: A convexity principle for interacting gases, 1997.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from otformer import checks
from otformer.transport.costs.distances import SquaredDistances, root_of, squared_distances
from otformer.transport.problem.called_metric import called
from otformer.transport.problem.read_points import FEATURES
from otformer.transport.result.known_points import KnownPoints
from otformer.transport.types import to_numpy

COSTS_AT_ONCE = 2**22  # costs that are held at once


def transported(
    known: KnownPoints, reg: float, potentials: tuple[Any, Any], pairs: Any, points: Any, values: Any, inverse: bool
) -> Any:
    """Return T(points) [k, d], or the means of ``values`` [m, c] that come there, as arrays or tensors like X_a."""
    given = known.X_a if inverse else known.X_b
    tensors = isinstance(known.X_a, Tensor)
    y, x = _read("points kept", given, None), _read("points", points, None)
    if x.ndim != 2 or x.shape[1] != y.shape[1]:
        expected = f"have shape (k, {y.shape[1]}), as the points of the {'columns' if inverse else 'rows'} have"
        raise checks.ArgumentError("points", expected, tuple(x.shape))
    if x.device != y.device:
        raise checks.ArgumentError("points", f"be on {y.device}, where those of the result are", x.device)
    if not bool(x.detach().isfinite().all()):
        raise checks.ArgumentError("points", "be finite", checks.first_not_finite(x.detach()))
    carried = y.detach() if values is None else _read("values", values, len(y)).to(y.device)
    h = torch.as_tensor(potentials[0 if inverse else 1], device=y.device).detach().double()
    step = max(1, COSTS_AT_ONCE // max(1, len(y)))
    found = [
        _block(x[k : k + step], y.detach(), h, carried, known.metric, reg, tensors, inverse) for k in range(0, len(x), step)
    ]
    mapped = torch.cat(found) if found else carried.new_zeros((0, *carried.shape[1:]))
    if reg == 0:
        mapped = _planned(
            mapped, x, _read("points kept", known.X_b if inverse else known.X_a, None), pairs, carried, inverse
        )
    double = any(_is_double(t) for t in (points, given if values is None else values))
    mapped = mapped if double else mapped.float()
    return mapped if tensors else mapped.detach().numpy()


def between(known: KnownPoints, t: float, mapped: Any, masses: Any, pairs: Any) -> tuple[Any, Any]:
    """Return the points at time t, [k, d], and their masses [k], as arrays or tensors like X_a."""
    x, y = (side if isinstance(side, Tensor) else np.asarray(side) for side in (known.X_a, known.X_b))
    if pairs is None:
        return (1 - t) * x + t * mapped, masses
    i, j, weight = pairs
    return (1 - t) * x[i] + t * y[j], weight


def _planned(mapped: Tensor, x: Tensor, own: Tensor, pairs: Any, values: Tensor, inverse: bool) -> Tensor:
    """Send those of the points that the plan has, ``own``, where it sends them."""
    both = np.concatenate([to_numpy(t.detach()) for t in (own, x)]) + 0.0  # −0 is 0
    group = np.unique(both, axis=0, return_inverse=True)[1].ravel()
    place = np.full(len(both), -1)
    place[group[: len(own)]] = np.arange(len(own))
    at = torch.as_tensor(place[group[len(own) :]], device=x.device)
    i, j, mass = (torch.as_tensor(t, device=x.device) for t in pairs)
    i, j = (j, i) if inverse else (i, j)
    mass = mass.double()
    total = mass.new_zeros(len(own)).index_add(0, i, mass)
    column = (mass / total[i]).reshape(-1, *[1] * (values.ndim - 1))
    sent = values.new_zeros((len(own), *values.shape[1:])).index_add(0, i, column * values[j])
    there = (at >= 0) & (total[at] > 0)
    return torch.where(there.reshape(-1, *[1] * (values.ndim - 1)), sent[at], mapped)


def _is_double(given: Any) -> bool:
    """Whether these are numbers in float64, or whole ones or lists, which become float64."""
    return str(getattr(given, "dtype", "float64")).removeprefix("torch.") not in ("float16", "bfloat16", "float32")


def _read(name: str, given: Any, rows: int | None) -> Tensor:
    """A tensor of float64 with its graph; of values there are as many as points."""
    t = checks.tensor(name, given)
    if rows is not None and (t.ndim not in (1, 2) or len(t) != rows):
        raise checks.ArgumentError(name, f"have shape ({rows},) or ({rows}, c)", tuple(t.shape))
    return t.double()


def _block(x: Tensor, y: Tensor, h: Tensor, values: Tensor, metric: Any, reg: float, tensors: bool, inverse: bool) -> Tensor:
    """T of some points. What a gradient needs is computed again in the backward pass, so no block is kept."""
    if torch.is_grad_enabled() and (x.requires_grad or values.requires_grad):
        found: Tensor = checkpoint(_mapped, x, y, h, values, metric, reg, tensors, inverse, use_reentrant=False)
        return found
    return _mapped(x, y, h, values, metric, reg, tensors, inverse)


def _mapped(
    x: Tensor, y: Tensor, h: Tensor, values: Tensor, metric: Any, reg: float, tensors: bool, inverse: bool
) -> Tensor:
    reduced = h - _costs(x, y, metric, tensors, inverse)  # −inf where y_j has no mass
    if reg == 0:
        return values[reduced.argmax(1)]
    return (reduced / reg).softmax(1) @ values


def _costs(x: Tensor, y: Tensor, metric: Any, tensors: bool, inverse: bool) -> Tensor:
    """c(x, y_j) [k, m], differentiably; c(y, x) where the map is that of the columns."""
    if callable(metric):
        sides = (t if tensors else t.detach().numpy() for t in ((y, x) if inverse else (x, y)))
        found = torch.as_tensor(called(metric, *sides), device=x.device).to(x)
        return found.mT if inverse else found
    if metric in ("sqeuclidean", "euclidean"):
        C = squared_distances(x.detach(), y)
        C = SquaredDistances.apply(x, y, C) if x.requires_grad else C
        return C if metric == "sqeuclidean" else root_of(C)
    return FEATURES[metric](x, y).cost()  # cosines and products are symmetric
