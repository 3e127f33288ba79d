r"""Barycenters of point clouds with free support: n points x of fixed weights b that are near all clouds at once.

    F(x) = Σ_k w_k OT_λ((b, x), (a_k, y_k)),      OT_λ = min_P Σ P C + λ Σ P log P,   C = ‖x_i − y_j‖².

**The step.** With all plans P_k fixed, F is quadratic in every x_i, and least at

    T_i(x) = Σ_k w_k Σ_j P_k,ij y_k,j / b_i  =  x_i − ∂F/∂x_i / (2 b_i)                       (envelope theorem),

so x ← T(x) never raises F [1, 2]. Exact plans are finitely many, and the iteration ends; with λ > 0 it converges linearly
and is extrapolated (solvers/anderson.py). An extrapolation that raises F is replaced by the plain step.

**Debiased** [3]. Of D = OT_λ(x, y) − ½ OT_λ(x, x) − ½ OT_λ(y, y) the gradient is 2 b_i (S_i(x) − T_i(x)), with S the map of
x to itself, so T(x) + x − S(x) takes the place of T(x). Entropy draws the points of F together; here it does not. The step
may raise F, and is then halved.

F is not convex: what is found is a point where no small move lowers it, and depends on the start.

[1] M. Cuturi, A. Doucet: Fast computation of Wasserstein barycenters, 2014, algorithm 2.
[2] P. Álvarez-Esteban et al.: A fixed-point approach to barycenters in Wasserstein space, 2016.
[3] H. Janati et al.: Debiased Sinkhorn barycenters, 2020.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import callers, checks, weight_checks
from otformer.callers import own_keywords
from otformer.memory import Need, needs, shape
from otformer.transport.ragged.batch import solve_batch
from otformer.transport.result.barycenter_result import Barycenter
from otformer.transport.result.result import Result
from otformer.transport.solvers.anderson import Anderson, Mixing

EXTRAPOLATED = Mixing(memory=8)
INNER = 1e-2  # of the tolerance of the points: that of the plans
RISE = 1e-10  # of the squared radius: a rise of F that is rounding
RADIUS_ROUNDING = 1e-9  # of the largest coordinate: a radius below it is rounding
SHORTEST = 2.0**-20  # of a step: what does not lower F then is at its rounding


def _need(clouds: Any, n: Any, start: Any, **_: Any) -> Need:
    sizes = [shape(cloud)[-2] for cloud in clouds] if isinstance(clouds, (list, tuple)) else [*shape(clouds, 3)[:2]]
    rows = n or (shape(start)[-2] if start is not None else max(sizes, default=0))
    return Need(f"{len(sizes)} plans of {rows:,} points", 4 * rows * sum(sizes), "give fewer points")


@own_keywords
@needs(_need)
def barycenter(
    clouds: Any,
    weights: Any = None,
    reg: float | None = 0,
    n: int | None = None,
    a: Any = None,
    b: Any = None,
    start: Any = None,
    debiased: bool = False,
    tol: float = 1e-5,
    max_steps: int = 1000,
    seed: int = 0,
) -> Barycenter:
    r"""The barycenter of K clouds: n points x that minimise Σ_k w_k OT(x, y_k), with squared Euclidean costs.

    Parameters
    ----------
    clouds : list of arrays (m_k, d), or array (K, m, d)
        Points y_k, of any numbers.
    weights : array (K,), optional
        w ≥ 0 for each cloud, scaled to sum 1; by default uniform. A cloud of weight 0 has no influence.
    reg : float
        λ of every OT problem; 0 (the default) and None are exact.
    n : int, optional
        The number of points; by default as many as the cloud of largest weight has.
    a : list of arrays (m_k,), optional
        Weights of the points of every cloud (None: uniform), each scaled to the sum 1.
    b : array (n,), optional
        Positive weights of the points x, which stay fixed; by default uniform.
    start : array (n, d), optional
        Initial points. By default those of the cloud of largest weight if it has n points, otherwise n points drawn by
        ``seed`` from all clouds.
    debiased : bool
        Minimise the debiased divergence instead, which does not draw points together; needs λ > 0.
    tol : float
        Converged if a step moves the points by less (root mean square, in units of the clouds' radius).
    max_steps : int
        The most times that the plans to all clouds are computed. ``start=found.points`` continues from the last points.

    Returns
    -------
    Barycenter
        ``points``, ``value``, ``error``, ``converged``, and in ``results`` the transport to every cloud. All K plans are
        held: memory is O(n Σ m_k) for λ > 0.

    Examples
    --------
    >>> found = barycenter([[[0.0, 0.0], [1.0, 0.0]], [[1.0, 2.0], [0.0, 2.0]]], weights=[3, 1])
    >>> found.points.tolist(), found.value, found.converged
    ([[0.0, 0.5], [1.0, 0.5]], 0.75, True)
    >>> barycenter([[[0.0], [1.0]], [[4.0], [7.0]]], n=1).points.tolist()
    [[3.0]]
    """
    reg = 0.0 if reg is None else checks.not_negative("reg", reg)
    if debiased and not reg:
        raise checks.ConflictError("debiased=True", "reg=0", advice="exact transport has no bias")
    problem = _read(clouds, weights, reg, n, a, b, start, bool(debiased), checks.positive("tol", tol), seed)
    most = checks.count("max_steps", max_steps)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not converged", RuntimeWarning)  # of plans on the way
        found, steps, errors = _minimised(problem, most)
    plans_found = all(result.converged for result in found.results)
    converged = bool(found.error <= problem.tol and plans_found)
    if not converged:
        instead = "raise reg, or tol" if not plans_found else "raise max_steps or tol"
        callers.warn(f"not converged: the last step was {found.error:.3g} radii, tol is {tol:g}; {instead}")
    return problem.given(found, steps, errors, converged)


class _Found(NamedTuple):
    """What was computed at points x [n, d]: F, T(x) [n, d], how far T(x) is from x, and the results of all plans."""

    x: Tensor
    value: float
    image: Tensor
    error: float
    results: list[Result]


@dataclass(frozen=True)
class _Clouds:
    """A barycenter to find, in float64. ``active`` are the clouds of positive weight, in order."""

    clouds: list[Any]
    y: list[Tensor]
    a: list[Tensor]
    weights: list[float]
    active: list[int]
    b: Tensor
    start: Tensor
    reg: float
    debiased: bool
    tol: float
    radius: float

    def at(self, x: Tensor) -> _Found:
        """Compute all plans of the points x."""
        problems: list[Any] = [(x, self.y[k], self.b, self.a[k]) for k in self.active]
        if self.debiased:
            problems += [(x, x, self.b, self.b)]
        results = solve_batch(problems, reg=self.reg, tol=INNER * min(1.0, self.tol))
        image, value = torch.zeros_like(x), 0.0
        for k, result in zip(self.active, results, strict=False):
            image += self.weights[k] * result.map(self.y[k])
            value += self.weights[k] * float(result.value)
        if self.debiased:
            image, value = image + x - results[-1].map(x), value - float(results[-1].value) / 2
        move = float((self.b @ (image - x).square()).sum().sqrt())
        return _Found(x, value, image, move / self.radius, results)

    def own(self) -> float:
        """½ Σ w_k OT(y_k, y_k), which is left out of F on the way, for it does not depend on x."""
        problems = [(self.y[k], self.y[k], self.a[k], self.a[k]) for k in self.active]
        results = solve_batch(problems, reg=self.reg, tol=INNER * min(1.0, self.tol))
        return sum(self.weights[k] * float(r.value) for k, r in zip(self.active, results, strict=True)) / 2

    def given(self, found: _Found, steps: int, errors: list[float], converged: bool) -> Barycenter:
        """The result, in the form of the clouds."""
        results: list[Result | None] = [None] * len(self.clouds)
        for k, result in zip(self.active, found.results, strict=False):
            results[k] = result
        points, b = (_like(t, self.clouds[0]) for t in (found.x, self.b))
        value = found.value - self.own() if self.debiased else found.value
        kind = "exact" if not self.reg else f"{'debiased, ' if self.debiased else ''}λ = {self.reg:.4g}"
        return Barycenter(points, b, value, found.error, converged, steps, errors, results, self.clouds, self.weights, kind)


def _minimised(problem: _Clouds, most: int) -> tuple[_Found, int, list[float]]:
    """The best points found, the number of steps, and the error after each that was taken."""
    weight = problem.b[:, None].expand_as(problem.start).flatten()
    best, length, errors = problem.at(problem.start), 1.0, []
    rounding = RISE * problem.radius**2
    mixing = Anderson(weight, EXTRAPOLATED) if problem.reg else None
    plain = mixing is None
    for steps in range(1, most + 1):
        errors.append(best.error)
        if best.error <= problem.tol or steps == most or length < SHORTEST:
            break
        move = best.image - best.x
        if plain or mixing is None:
            x = best.x + length * move
        else:
            x = mixing.step(best.x.flatten(), move.flatten()).reshape(move.shape)
        found = problem.at(x)
        if found.value <= best.value + rounding:
            best, plain = found, mixing is None
            continue
        errors.pop()
        length = length / 2 if plain else length  # F rose: first without the extrapolation, then by shorter steps
        plain, mixing = True, mixing and Anderson(weight, EXTRAPOLATED)
    return best, steps, errors


def _read(
    clouds: Any, weights: Any, reg: float, n: Any, a: Any, b: Any, start: Any, debiased: bool, tol: float, seed: Any
) -> _Clouds:
    """Check all that was given, and say by its name what is wrong."""
    given = _listed(clouds)
    y = [_cloud(f"clouds[{k}]", cloud, given[0]) for k, cloud in enumerate(given)]
    d = y[0].shape[1]
    for k, cloud in enumerate(y):
        if cloud.shape[1] != d:
            raise checks.ArgumentError(f"clouds[{k}]", f"have {d} coordinates, as clouds[0] has", cloud.shape[1])
    w = _weights("weights", weights, len(y), y[0])
    if a is not None and (not isinstance(a, (list, tuple)) or len(a) != len(y)):
        came = f"{len(a)} of them" if isinstance(a, (list, tuple)) else type(a).__name__
        raise checks.ArgumentError("a", f"be a list of {len(y)} weights, one for every cloud", came)
    masses = [_weights(f"a[{k}]", None if a is None else a[k], len(cloud), cloud) for k, cloud in enumerate(y)]
    x = _started(start, n if n is not None or b is None else len(b), y, w, masses, checks.count("seed", seed, 0))
    b = _weights("b", b, len(x), x)
    if not bool((b > 0).all()):
        raise checks.ArgumentError("b", "be positive: a point without mass has no place", f"{float(b.min()):g}")
    active = [k for k in range(len(y)) if w[k] > 0]
    middle = sum(w[k] * (masses[k] @ y[k]) for k in active)
    spread = sum(w[k] * (masses[k] @ (y[k] - middle).square()).sum() for k in active)
    largest = max(float(y[k].abs().max()) for k in active)
    radius = max(math.sqrt(float(spread)), RADIUS_ROUNDING * largest) or 1.0
    if not math.isfinite(float(spread) + largest * largest):
        raise checks.ArgumentError("clouds", "have squared distances within float64", f"coordinates up to {largest:.3g}")
    return _Clouds(given, y, masses, w.tolist(), active, b, x, reg, debiased, tol, radius)


def _listed(clouds: Any) -> list[Any]:
    """The clouds as a list, of a list or an array with an axis in front."""
    if isinstance(clouds, (list, tuple)) or getattr(clouds, "ndim", 0) == 3:
        if len(clouds):
            return list(clouds)
        raise checks.ArgumentError("clouds", "hold at least one cloud", "none")
    came = f"shape {tuple(clouds.shape)}" if hasattr(clouds, "shape") else type(clouds).__name__
    raise checks.ArgumentError("clouds", "be a list of arrays (m, d), or an array (K, m, d)", came)


def _cloud(name: str, given: Any, first: Any) -> Tensor:
    """Points [m, d] in float64, one at least, without a graph, on the device of the first cloud."""
    if checks.derivative_wanted(given):
        raise checks.ArgumentError(name, "not require a gradient", advice="a barycenter has none here; give cloud.detach()")
    t = checks.points(name, given)
    if not t.numel():
        raise checks.ArgumentError(name, "have points", f"shape {tuple(t.shape)}")
    place = first.device if isinstance(first, Tensor) else torch.device("cpu")
    if t.device != place:
        raise checks.ArgumentError(name, f"be on {place}, where clouds[0] is", t.device)
    return t.detach().double()


def _weights(name: str, given: Any, size: int, like: Tensor) -> Tensor:
    """Weights [size] with sum 1, by default uniform."""
    if given is None:
        return like.new_full((size,), 1 / size)
    if checks.derivative_wanted(given):
        raise checks.ArgumentError(name, "not require a gradient", advice="a barycenter has none here")
    t = weight_checks.weights(name, given, (size,), like.new_zeros(0))
    return t / t.sum()


def _started(start: Any, n: Any, y: list[Tensor], w: Tensor, masses: Sequence[Tensor], seed: int) -> Tensor:
    """The points to begin at, [n, d]."""
    if start is not None:
        if checks.derivative_wanted(start):
            raise checks.ArgumentError("start", "not require a gradient", advice="a barycenter has none here")
        x = checks.points("start", start, y[0].shape[1]).detach().to(y[0].device, torch.float64)
        if not len(x) or (n is not None and len(x) != n):
            raise checks.ArgumentError("start", f"have {'at least one point' if n is None else f'{n} points'}", len(x))
        return x
    largest = y[int(w.argmax())]
    n = len(largest) if n is None else checks.count("n", n)
    if len(largest) == n:
        return largest.clone()
    pool, share = torch.cat(y), torch.cat([w[k] * mass for k, mass in enumerate(masses)]).cpu().numpy()
    rng = np.random.default_rng(seed)
    again = n > int((share > 0).sum())
    return pool[torch.as_tensor(rng.choice(len(pool), n, again, share / share.sum()), device=pool.device)]


def _like(t: Tensor, given: Any) -> Any:
    """A tensor in the form of a cloud that was given: its dtype, if it is one of floats, and its kind."""
    kept = checks.unseen("clouds", given).dtype
    t = t.to(kept) if kept == torch.float32 else t
    return t if isinstance(given, Tensor) else t.cpu().numpy()
