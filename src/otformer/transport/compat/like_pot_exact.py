r"""POT's ``ot.emd`` and ``ot.emd2`` on our engine: change the import, keep the call.

    min_P Σ_ij P_ij M_ij  over P ≥ 0 with P1 = a and Pᵀ1 = b,    max_{u,v} Σ_i a_i u_i + Σ_j b_j v_j  with u_i + v_j ≤ M_ij

have the same optimum. Beside what POT logs, ``gap`` is the difference between what P and (u, v) give: a proof.

**Potentials** are fixed up to a constant that moves from u to v. *Centred* (POT's default) they satisfy Σ a u = Σ b v.
Points without mass take no part, but have potentials here as in POT: the largest that are feasible for all pairs.

**Derivatives** of the optimum are P in M, u in a and v in b (the envelope theorem), where P and, up to the constant, (u, v)
are unique. Those in weights are defined along changes that keep both masses, so that any constant may be added to them: as
in POT, u − mean(u) and v − mean(v) are returned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from otformer import checks
from otformer.transport.exact.result import proved, sparse
from otformer.transport.exact.units import in_units
from otformer.transport.problem.potentials import read_potentials
from otformer.transport.problem.problem import Form, to_numpy
from otformer.transport.problem.read import WIDEST_RANGE, read_cost, wants_gradient
from otformer.transport.problem.weights import read_weights
from otformer.transport.solve import ANY_REG

TOL = 1e-9  # of the cost: a gap above it is not called optimal
OPTIMAL, NOT_PROVED = 1, 3  # POT's codes


def emd(
    a: Any,
    b: Any,
    M: Any,
    numItermax: int = 100_000,
    log: bool = False,
    center_dual: bool = True,
    numThreads: int | str = 1,
    check_marginals: bool = True,
    potentials_init: tuple[Any, Any] | None = None,
) -> Any:
    """POT's ``ot.emd``: the optimal plan between histograms a (n,) and b (m,) for the cost M (n, m).

    Parameters
    ----------
    a, b : weights of equal sum; ``[]`` means uniform.
    M : cost matrix; +inf forbids a pair. A list or numpy array in, numpy out; a tensor in, tensors of its dtype out.
        Of a sparse matrix (scipy, or a sparse tensor) only the pairs it holds are allowed, and the plan is sparse (COO) too.
    numItermax, numThreads : accepted and without effect: a solve always goes to the end.
    log : whether to return a dict too.
    center_dual : choose the constant in the potentials so that Σ a u = Σ b v.
    check_marginals : False scales b to the mass of a, whatever their sums are.
    potentials_init : (u, v) of an earlier, similar problem: a warm start.

    Returns
    -------
    The plan (n, m), without derivatives; with ``log=True`` also ``cost`` Σ P M, potentials ``u`` (n,) and ``v`` (m,) with
    u_i + v_j ≤ M_ij for all pairs, ``gap`` = Σ P (M − u − v) ≥ 0, up to which the plan is proved to be optimal, ``warning``
    (None if it is) and ``result_code`` (1 if it is). Where no plan has these marginals, a ValueError says so.

    >>> emd([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]]).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    >>> plan, log = emd([], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]], log=True)
    >>> plan.tolist(), log["cost"], log["gap"]
    ([[0.25, 0.25], [0.0, 0.5]], 0.25, 0.0)
    """
    _check_unneeded(numItermax, numThreads)
    found = _solve(a, b, M, center_dual, check_marginals, potentials_init)
    return (found.plan(), found.log(found.cost)) if log else found.plan()


def emd2(
    a: Any,
    b: Any,
    M: Any,
    processes: int = 1,
    numItermax: int = 100_000,
    log: bool = False,
    return_matrix: bool = False,
    center_dual: bool = True,
    numThreads: int | str = 1,
    check_marginals: bool = True,
    potentials_init: tuple[Any, Any] | None = None,
) -> Any:
    """POT's ``ot.emd2``: the cost Σ P M of the optimal plan of `emd`, of which all other arguments are.

    Parameters
    ----------
    b : (m,), or (m, k) for k problems with the same a and M: then a list of what one problem returns.
    processes : accepted and without effect.
    return_matrix : whether the log holds the plan too, as ``G``.

    Returns
    -------
    The cost, a float or a tensor without axes; with ``log`` or ``return_matrix`` the pair of it and the log of `emd`. It is
    differentiable in tensors M, a and b, which are dense or sparse, and a tensor where one of these requires it.

    >>> emd2([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]])
    0.25
    >>> emd2([0.5, 0.5], [[0.5, 0.25], [0.5, 0.75]], [[0.0, 1.0], [1.0, 0.0]])
    [0.0, 0.25]
    >>> M = torch.tensor([[0.0, 1.0], [1.0, 0.0]], requires_grad=True)
    >>> torch.autograd.grad(emd2([], [0.25, 0.75], M), M)[0].tolist()
    [[0.25, 0.25], [0.0, 0.5]]
    """
    _check_unneeded(numItermax, numThreads)
    checks.count("processes", processes)

    def one(b: Any) -> Any:
        found = _solve(a, b, M, center_dual, check_marginals, potentials_init)
        cost = found.moving(a, b, M)
        if not (log or return_matrix):
            return cost
        return cost, found.log(cost) | ({"G": found.plan()} if return_matrix else {})

    if not isinstance(b, Tensor):
        b = None if b is None else checks.array("b", b)
    if b is None or b.ndim != 2:
        return one(b)
    return [one(h) for h in (b.unbind(1) if isinstance(b, Tensor) else b.T)]


class _Found(NamedTuple):
    """A solved problem, in float64, and the form in which it is returned."""

    sent: tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, columns, masses, [E] each
    u: np.ndarray  # [n]
    v: np.ndarray  # [m]
    cost: float
    gap: float
    proved: bool
    form: Form
    sparse: bool

    def plan(self) -> Any:
        i, j, masses = self.sent
        shape = len(self.u), len(self.v)
        if self.sparse:
            listed = sparse(self.form.place(i), self.form.place(j), self.form.give(masses), shape)
            return listed if isinstance(listed, Tensor) else listed.tocoo()
        P = np.zeros(shape)
        np.add.at(P, (i, j), masses)
        return self.form.give(P)

    def log(self, cost: Any) -> dict[str, Any]:
        words = None if self.proved else f"not proved optimal: the gap is {self.gap:.3g} of {self.cost:.6g}"
        u, v = (self.form.give(t) for t in (self.u, self.v))
        code = OPTIMAL if self.proved else NOT_PROVED
        return {"cost": cost, "u": u, "v": v, "warning": words, "result_code": code, "gap": self.gap}

    def moving(self, a: Any, b: Any, M: Any) -> Any:
        """The cost with its derivatives, where any are wanted."""
        slopes = ((a, self.u - self.u.mean()), (b, self.v - self.v.mean())) if len(self.u) else ()
        terms = [torch.as_tensor(t, device=w.device) @ w.double() for w, t in slopes if wants_gradient(w)]
        if wants_gradient(M):
            i, j, masses = (torch.as_tensor(t, device=M.device) for t in self.sent)
            terms.append(masses.double() @ _at(M, i, j).double())
        form = self.form if self.form.device is not None or not terms else Form(terms[0].device, self.form.single)
        return form.number(self.cost + sum((t - t.detach()).to(form.device) for t in terms))

    def centred(self) -> _Found:
        i, j, masses = self.sent
        if not len(i):
            return self
        shift = float(masses @ (self.v[j] - self.u[i])) / (2 * float(masses.sum()))
        return self._replace(u=self.u + shift, v=self.v - shift)


def _at(M: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """The entries of a tensor at pairs that it holds, [E], differentiably."""
    if M.layout == torch.strided:
        return M[i, j]
    M = M.to_sparse_coo().coalesce()
    at = M.indices()  # in the order of rows, then of columns
    return M.values()[torch.searchsorted(at[0] * M.shape[1] + at[1], i * M.shape[1] + j)]


def _check_unneeded(numItermax: Any, numThreads: Any) -> None:
    checks.count("numItermax", numItermax)
    if numThreads is not None and numThreads != "max":
        checks.count("numThreads", numThreads)


@torch.no_grad()
def _solve(a: Any, b: Any, M: Any, center_dual: bool, check_marginals: bool, start: Any) -> _Found:
    a, b = _or_uniform(a), _or_uniform(b)
    b = b if check_marginals else _scaled(b, a)
    held_sparsely = hasattr(M, "tocoo") or (isinstance(M, Tensor) and M.layout != torch.strided)
    found = (_solve_sparse if held_sparsely else _solve_dense)(a, b, M, start)
    return found.centred() if center_dual else found


def _or_uniform(w: Any) -> Any:
    """None in place of POT's []."""
    none = w.shape == (0,) if isinstance(w, Tensor | np.ndarray) else isinstance(w, list | tuple) and not w
    return None if none else w


def _scaled(b: Any, a: Any) -> Any:
    """b with the mass of a, whatever its own is."""
    given = (None if w is None else to_numpy(checks.array(name, w)).astype(np.float64) for name, w in (("a", a), ("b", b)))
    w_a, w_b = given
    if w_b is None or not w_b.sum() > 0:
        return b  # uniform, or refused later
    return w_b * ((1.0 if w_a is None else w_a.sum()) / w_b.sum())


def _solve_dense(a: Any, b: Any, M: Any, start: Any) -> _Found:
    from otformer.transport.exact.solve import solve_exact

    problem = read_cost(M, a, b, ANY_REG, start)
    r = solve_exact(problem, TOL)
    u, v = (to_numpy(t) for t in r.potentials)
    if problem.kept is not None:
        u, v = _everywhere(u, v, to_numpy(checks.array("M", M)).astype(np.float64))
    i, j, masses = (to_numpy(t) for t in r.pairs)
    return _Found((i, j, masses), u, v, r.bound + r.gap, r.gap, r.converged, problem.form, False)


def _everywhere(u: np.ndarray, v: np.ndarray, C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest feasible potentials of points without mass too, for which −inf stands in u and v; of columns first.

    Where all pairs are forbidden any number is feasible: 0.
    """
    rows, columns, u, v = np.isfinite(u), np.isfinite(v), u.copy(), v.copy()
    v[~columns] = _or_zero((C[rows][:, ~columns] - u[rows, None]).min(0))
    u[~rows] = _or_zero((C[~rows] - v).min(1))
    return u, v


def _or_zero(t: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(t), 0.0, t)


def _solve_sparse(a: Any, b: Any, M: Any, start: Any) -> _Found:
    """The pairs of a sparse matrix are a graph already: all at once, and none to look at besides (exact/rounds.py).

    Points without mass stay on it, and have potentials like all others.
    """
    from otformer.transport.exact.graphs import Clock, empty_graph
    from otformer.transport.exact.start import usable

    form, (n, m), i, j, c = _read_sparse(M)
    weights = read_weights(a, b, (n, m), form.device)
    units = in_units(to_numpy(weights.a), to_numpy(weights.b), weights.mass)
    supply, demand = np.zeros(n, np.int64), np.zeros(m, np.int64)
    rows, columns = (slice(None), slice(None)) if weights.kept is None else (to_numpy(t) for t in weights.kept[:2])
    supply[rows], demand[columns] = units.supply, units.demand
    v, spread = np.zeros(m), float(np.ptp(c)) if len(c) else 0.0
    if start is not None:
        v = usable(read_potentials(start, *(torch.from_numpy(np.empty(k)) for k in (n, m)))[1].numpy(), spread)
    graph = empty_graph(supply, demand, _or_zero(_least(i, c - v[j], n)), v)
    graph.add(i, j, c)
    graph.run(Clock(None), spread)
    left, g = graph.unsent()[0], graph.g
    if left.any():
        where = f"row {np.flatnonzero(left)[0]} and others that have mass"
        raise ValueError(f"M holds no plan with these marginals: {where} can only send it to columns that want less")
    f, sent = _or_zero(_least(i, c - g[j], n)), graph.sent()
    masses = sent.units * units.unit
    moved = units.moved(to_numpy(weights.a), to_numpy(weights.b), f[rows], g[columns])
    cost, gap = float(masses @ sent.cost), sent.gap(f, g) * units.unit + moved
    sure = bool(proved(gap, cost, float(masses @ abs(sent.cost)), TOL))
    return _Found((sent.i, sent.j, masses), f, g, cost, gap, sure, form, True)


def _least(i: np.ndarray, values: np.ndarray, n: int) -> np.ndarray:
    """The least of the values of each row, inf where it has none, [n]."""
    found = np.full(n, np.inf)
    np.minimum.at(found, i, values)
    return found


def _read_sparse(M: Any) -> tuple[Form, tuple[int, int], np.ndarray, np.ndarray, np.ndarray]:
    """Its form and shape, and the pairs it allows: rows, columns and costs, [E] each, in the order of rows."""
    if len(M.shape) != 2 or 0 in M.shape:
        raise ValueError(f"M must have shape (n, m), both at least 1 where it is sparse, got {tuple(M.shape)}")
    if isinstance(M, Tensor):
        listed = M.to_sparse_coo().coalesce()
        (i, j), costs, device = to_numpy(listed.indices()), to_numpy(checks.array("M", listed.values())), M.device
    else:
        listed = M.tocsr(copy=True)
        listed.sum_duplicates()
        listed = listed.tocoo()
        i, j, costs, device = listed.row, listed.col, checks.array("M", listed.data), None
    allowed = costs != np.inf
    if not np.isfinite(costs[allowed]).all():
        wrong = checks.first_not_finite(costs[allowed])
        raise ValueError(f"M must hold finite numbers, or inf for a forbidden pair, got {wrong}")
    finite = costs[allowed].astype(np.float64)
    if len(finite) and not float(finite.max()) - float(finite.min()) <= WIDEST_RANGE:
        raise ValueError("M must hold costs that lie less than 1e300 apart, got a wider range")
    i, j, c = i[allowed].astype(np.int64), j[allowed].astype(np.int64), finite
    return Form(device, costs.dtype == np.float32), (M.shape[0], M.shape[1]), i, j, c
