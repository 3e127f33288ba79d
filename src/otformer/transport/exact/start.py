r"""Potentials to begin with: from coarse to fine for many points, rough layers of the network for all else.

Rounds end at the optimum from any v, sooner from a good one (rounds.py). Points without labels go from coarse to fine
(coarse.py). On a GPU all others have layers on all points. On a CPU these take more than the rounds of an easy problem:
v = 0 is tried first, which is nearly right where both sides are alike, beside what layers on a sample of the points say,
extended to all columns by one more of them,

    v_j = −λ log Σ_i exp((u_i − c_ij)/λ)      over the rows i of the sample.

How good a v is, its bound says, for which one scan of all pairs is enough: Σ a_i f_i + Σ b_j v_j with f_i = min_j (c_ij −
v_j), below which no plan goes. Where that of the sample is the better one, the sides are not alike, and layers on all
points go on from there.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import torch
from scipy.special import logsumexp

from otformer.transport.costs.cost import Cost
from otformer.transport.exact.coarse import from_coarse
from otformer.transport.exact.flow_graph import Clock
from otformer.transport.problem.read import read_cost
from otformer.transport.solvers.blocks import LAYERS
from otformer.transport.solvers.mixed import Mixed
from otformer.transport.types import Goal, Problem, to_numpy

EASY = 3 * 10**5  # pairs: rounds from v = 0 take no longer than a sample
ALL = 4 * 10**6  # pairs from where layers on all points pay, if v = 0 is not good
SAMPLE = 512  # points of each side
REG_SAMPLE, REG_CPU = 3e-3, 1e-3  # λ of the sample, and of all points on a CPU, as a share of the range of costs
REG_GPU, REG_FAR = 1e-5, 3e-4  # on a GPU, in few dimensions and in many, where a layer costs more
ROUGH = {"cpu": 0.1, "cuda": 0.02}  # marginal error, as a share of the mass, at which layers have done enough
MOST_LAYERS = 600


def start(problem: Problem, pairs: Cost, clock: Clock) -> tuple[np.ndarray, int]:
    """Return potentials of the columns [m] for the costs that ``pairs`` has, and the layers that led to them.

    Once time is up they are 0: no more passes, and one scan of all pairs is still to come.
    """
    n, m = pairs.shape
    if problem.start is not None:
        return usable(to_numpy(problem.start[1]), problem.cost.spread), 0
    zero = np.zeros(m)
    if n * m <= EASY or problem.cost.spread == 0 or clock.expired:
        return zero, 0
    clouds = problem.cost.clouds()
    v = None if clouds is None else from_coarse(clouds, problem.a, problem.b, clock.half())
    if v is not None:
        return v, 0
    if problem.cost.device.type == "cuda" and problem.cost.dense is None:
        return _layers(problem, None, REG_GPU if problem.cost.near else REG_FAR, clock)
    a, b = to_numpy(problem.a), to_numpy(problem.b)
    v, depth = _sampled(pairs, a, b, clock)
    if v is None or clock.expired or _bound(pairs, a, b, v) <= _bound(pairs, a, b, zero):
        return zero, depth
    if n * m <= ALL or clock.expired:
        return v, depth
    v, more = _layers(problem, v, REG_CPU, clock)
    return v, depth + more


def usable(v: np.ndarray, spread: float) -> np.ndarray:
    """Make potentials usable as a start: finite, centred, clipped to ±2·spread."""
    v = np.nan_to_num(v, posinf=0.0, neginf=0.0)
    return np.clip(v - np.median(v), -2 * spread, 2 * spread)


def _layers(problem: Problem, v: np.ndarray | None, share: float, clock: Clock) -> tuple[np.ndarray, int]:
    """Run layers on all points from v, within half the remaining time as measured on the first two."""
    tensors = problem.as_tensors()
    first = None if v is None else (torch.zeros_like(tensors.a), torch.from_numpy(v).to(tensors.a))
    cost = tensors.cost.from_zero()  # exact solves keep the digits of negative costs
    tensors = replace(tensors, cost=cost, reg=share * cost.spread, wanted=None, start=first)
    rough, most, solver = ROUGH[tensors.a.device.type] * problem.mass, MOST_LAYERS, Mixed(newton_up_to=0)
    if clock.remaining < math.inf:
        began = time.monotonic()
        solved = solver.run(tensors, Goal(rough, LAYERS))
        most = min(most, int(clock.remaining / 2 / (time.monotonic() - began)) * LAYERS)
    if most >= LAYERS:
        solved = solver.run(tensors, Goal(rough, most))
    return to_numpy(solved.v), solved.depth


def _bound(pairs: Cost, a: np.ndarray, b: np.ndarray, v: np.ndarray) -> float:
    """Return Σ a_i f_i + Σ b_j v_j with f_i = min_j (c_ij − v_j)."""
    return float(a @ pairs.least(v, 1, rows=True)[0][:, 0] + b @ v)


@np.errstate(under="ignore")
def _sampled(pairs: Cost, a: np.ndarray, b: np.ndarray, clock: Clock) -> tuple[np.ndarray | None, int]:
    """Extend potentials of a sample, drawn by weight, to all columns; None if a pair of it is forbidden, or time is up."""
    m = pairs.shape[1]
    rng = np.random.default_rng(0)
    shares = (np.maximum(w / w.sum(), 1e-9) for w in (a, b))
    rows, columns = (np.sort(rng.choice(len(p), min(SAMPLE, len(p)), False, p / p.sum())) for p in shares)
    C = pairs.costs(np.repeat(rows, len(columns)), np.tile(columns, len(rows))).reshape(len(rows), len(columns))
    if not np.isfinite(C).all() or np.ptp(C) == 0:
        return None, 0
    reg = REG_SAMPLE * float(np.ptp(C))
    solved = Mixed(newton_up_to=0).run(read_cost(C, reg=reg), Goal(ROUGH["cpu"], MOST_LAYERS))
    u = solved.u.numpy()
    v = np.empty(m)
    for some in np.array_split(np.arange(m), -(-m // 2048)):
        if clock.expired:
            return None, solved.depth
        costs = pairs.costs(np.repeat(rows, len(some)), np.tile(some, len(rows))).reshape(len(rows), -1)
        v[some] = -reg * logsumexp((u[:, None] - costs) / reg, axis=0)
    return v, solved.depth
