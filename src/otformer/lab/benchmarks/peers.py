"""The libraries compared: one small adapter each, at the settings their documentation recommends.

An adapter is given a problem, λ, the L1 marginal error to reach and an *effort*, and returns a function without arguments:
that call is what is timed, conversion of the data and compilation are not. It answers with the logs of the two scalings,
P_ij = exp(f_i + g_j − C_ij/λ): the harness computes the error from these itself. Libraries with a tolerance run at
tol/effort (in their own norm); libraries without one run effort·8 iterations.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from otformer.lab.benchmarks.problems import Array, Problem

MANY = 10**6  # iterations: the time limit ends a run, not the count
STRIDE = 8  # iterations that one unit of effort buys


@dataclass(frozen=True)
class Answer:
    """Log scalings f [n], g [m], and the passes over the matrix that took (one Sinkhorn iteration is two), if known."""

    f: Array
    g: Array
    passes: float | None = None


Call = Callable[[], Answer]


def missing(*packages: str) -> str | None:
    """Which of some packages is not installed, in words, or None."""
    absent = (package for package in packages if importlib.util.find_spec(package) is None)
    return next((f"{package} is not installed" for package in absent), None)


@dataclass(frozen=True)
class Peer:
    """``counts``: effort is a number of iterations. ``points``: needs points; a cost matrix is not enough."""

    name: str
    package: str
    prepare: Callable[[Problem, float, float, float], Call]
    counts: bool = False
    points: bool = False

    def missing(self) -> str | None:
        """Why this peer cannot run here, or None."""
        return missing("torch", *self.package.split("+"))


def ours(result: Any, reg: float) -> Answer:
    """P_ij = exp((u_i + v_j − C_ij)/λ − 1)."""
    u, v = result.potentials
    return Answer(np.asarray(u) / reg - 1, np.asarray(v) / reg, result.depth)


def _otformer(points: bool, p: Problem, reg: float, tol: float, effort: float) -> Call:
    """From the cost matrix; with ``points``, by the executor that never forms it."""
    import otformer as of

    options: Any = {"a": p.a, "b": p.b, "reg": reg, "tol": tol / effort, "max_depth": MANY}
    if points:
        return lambda: ours(of.solve_sample(p.x, p.y, executor="stream", **options), reg)
    return lambda: ours(of.solve(p.C, **options), reg)


# POT's stopThr bounds a Euclidean norm of one marginal, about 1/√n of the L1 norm.

POT_LOGS = {  # where each method tells its scalings, or their logs, and its iterations
    "sinkhorn": ("u", "v", "niter"),
    "sinkhorn_log": ("log_u", "log_v", "niter"),
    "sinkhorn_stabilized": ("logu", "logv", "n_iter"),
}


def _pot(method: str, p: Problem, reg: float, tol: float, effort: float) -> Call:
    import ot

    options = dict(numItermax=MANY, stopThr=tol / effort / np.sqrt(len(p.b)), log=True, warn=False)

    def call() -> Answer:
        log = getattr(ot.bregman, method)(p.a, p.b, p.C, reg, **options)[1]
        f, g, iterations = (log[key] for key in POT_LOGS[method])
        if method == "sinkhorn":
            with np.errstate(divide="ignore"):
                f, g = np.log(f), np.log(g)
        return Answer(f, g, 2 * iterations)

    return call


def _ott(kind: str, p: Problem, reg: float, tol: float, effort: float) -> Call:
    import jax

    jax.config.update("jax_enable_x64", True)
    from ott.geometry import epsilon_scheduler, geometry
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import acceleration, sinkhorn

    options: dict[str, dict[str, Any]] = {
        "kernel": {"lse_mode": False, "inner_iterations": 5},  # 10, its default, was slower on two families at λ = 0.05
        "momentum": {"momentum": acceleration.Momentum(start=30)},
        "anderson": {"anderson": acceleration.AndersonAcceleration(memory=5)},
    }
    solver = sinkhorn.Sinkhorn(threshold=tol / effort, max_iterations=MANY, **options.get(kind, {}))
    # From λ = 1, its decay of 0.9 per iteration; the documentation's example of an ε schedule.
    epsilon = epsilon_scheduler.Epsilon(reg, init=max(1 / reg, 1.0), decay=0.9) if kind == "scaling" else reg

    def run(C: Any, a: Any, b: Any) -> Any:
        out = solver(linear_problem.LinearProblem(geometry.Geometry(C, epsilon=epsilon), a=a, b=b))
        return out.f, out.g, out.n_iters

    arrays = [jax.numpy.asarray(part) for part in (p.C, p.a, p.b)]
    compiled = jax.jit(run).lower(*arrays).compile()

    def call() -> Answer:
        f, g, iterations = compiled(*arrays)
        return Answer(np.asarray(f) / reg, np.asarray(g) / reg, 2 * int(iterations))

    return call


Potentials = Callable[[], tuple[Any, Any]]


def _geomloss(kind: Callable[..., Potentials], p: Problem, reg: float, tol: float, effort: float) -> Call:
    """GeomLoss has no stopping rule and no tolerance.

    Its potentials are relative to the product of the weights, P_ij = a_i b_j exp((f_i + g_j − C_ij)/λ).
    """
    iterations = round(STRIDE * effort)
    potentials = kind(p, reg, iterations)

    def call() -> Answer:
        f, g = (potential.numpy().reshape(-1) / reg for potential in potentials())
        return Answer(f + np.log(p.a), g + np.log(p.b), 2 * iterations)

    return call


def _matrix(p: Problem, reg: float, iterations: int) -> Potentials:
    """Its solver for a cost matrix: ε falls geometrically to λ, which only the last iteration reaches."""
    import torch
    from geomloss import ot as geomloss

    C, a, b = (torch.from_numpy(part) for part in (p.C, p.a, p.b))
    both = attrgetter("potential_a", "potential_b")
    return lambda: both(geomloss.solve(C, a=a, b=b, reg=reg, max_iter=iterations))


def _loop(p: Problem, reg: float, iterations: int) -> Potentials:
    """Its loop with ε halved to λ and then kept: kinder than its public functions, which have no such setting."""
    import torch
    from geomloss._typing import CostMatrices
    from geomloss.ot._abstract_solvers import annealing_parameters, sinkhorn_loop
    from geomloss.ot._implementations.matrix import softmin_dense

    C, a, b = (torch.from_numpy(part)[None] for part in (p.C, p.a, p.b))
    descent = annealing_parameters(maxmin_cost=1.0, eps=reg, n_iter=iterations, scaling=0.5)
    costs = [CostMatrices(xy=C, yx=C.transpose(1, 2).contiguous(), xx=None, yy=None)]
    options = {"softmin": softmin_dense, "C_list": costs, "descent": descent, "debias": False}
    return lambda: attrgetter("f_ba", "g_ab")(sinkhorn_loop(log_a_list=[a.log()], log_b_list=[b.log()], **options))


def _keops(p: Problem, reg: float, iterations: int) -> Potentials:
    """`SamplesLoss` on KeOps: points in, O(n) memory; its ``scaling``, the ratio of successive blurs, goes to 1.

    Cost ½‖x − y‖² and blur² = λ/2 give the potentials of ‖x − y‖² and λ, halved.
    """
    import torch
    from geomloss import SamplesLoss

    given = [torch.from_numpy(part) for part in (p.a, p.x, p.b, p.y)]
    blur = (reg / 2) ** 0.5
    scaling = (blur / 2) ** (1 / iterations)  # from a diameter of at most 2
    loss = SamplesLoss(
        "sinkhorn", p=2, blur=blur, scaling=scaling, diameter=2.0, debias=False, potentials=True, backend="online"
    )
    return lambda: tuple(2 * potential for potential in loss(*given))


def _regot(method: str, p: Problem, reg: float, tol: float, effort: float) -> Call:
    """Its tol bounds the Euclidean norm of the dual gradient. C is handed over in the memory order it wants."""
    import regot

    C = np.asfortranarray(p.C)
    options = dict(tol=tol / effort / np.sqrt(len(p.a)), max_iter=MANY)

    def call() -> Answer:
        r = getattr(regot, f"sinkhorn_{method}")(C, p.a, p.b, reg, **options)
        dual = np.append(r.dual, 0.0)  # it fixes the last potential at 0
        return Answer(dual[: len(p.a)] / reg, dual[len(p.a) : len(p.a) + len(p.b)] / reg)

    return call


def _mdot(p: Problem, reg: float, tol: float, effort: float) -> Call:
    """Its error falls with the temperature, H/γᵖ; p is chosen so that this is ``tol`` at the last one, γ = 1/λ."""
    import torch
    from mdot_tnt.mdot import mdot

    a, b, C = (torch.from_numpy(part) for part in (p.a, p.b, p.C))
    gamma = 1 / reg
    entropy = min(-float((w * np.log(w)).sum()) for w in (p.a, p.b))
    power = max(1.5, np.log(entropy * effort / tol) / np.log(gamma))
    start = 16.0 if gamma > 64 else gamma

    def call() -> Answer:
        u, v, reached, _, logs = mdot(a, b, C, gamma, gamma_i=start, p=power)
        if reached != gamma:
            raise RuntimeError(f"mdot_tnt stopped at λ = {1 / reached:g}")
        # It counts a log-sum-exp as 4 operations and a matrix-vector product as 1; both are one pass here.
        passes = sum(s["newtonsolve_steps"] + (s["n_iter"] - s["newtonsolve_steps"]) / 4 for s in logs["proj_logs"])
        return Answer(u.numpy(), v.numpy(), round(passes))

    return call


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in [
        Peer("otformer", "otformer", partial(_otformer, False)),
        Peer("otformer stream", "otformer", partial(_otformer, True), points=True),
        *(Peer(f"POT {m}", "ot", partial(_pot, m)) for m in ("sinkhorn", "sinkhorn_log", "sinkhorn_stabilized")),
        *(Peer(f"OTT {k}", "jax+ott", partial(_ott, k)) for k in ("plain", "kernel", "momentum", "anderson", "scaling")),
        Peer("GeomLoss", "geomloss", partial(_geomloss, _matrix), counts=True),
        Peer("GeomLoss loop", "geomloss", partial(_geomloss, _loop), counts=True),
        Peer("GeomLoss KeOps", "geomloss+pykeops", partial(_geomloss, _keops), counts=True, points=True),
        *(Peer(f"regot {m}", "regot", partial(_regot, m)) for m in ("lbfgs_dual", "newton", "ssns", "splr")),
        Peer("mdot_tnt", "mdot_tnt", _mdot),
    ]
}
