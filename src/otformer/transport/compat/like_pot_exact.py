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
from otformer.memory import needs
from otformer.transport.costs.cost import Cost
from otformer.transport.costs.graph import GraphCost, is_sparse, read_sparse
from otformer.transport.costs.matrix import MatrixCost
from otformer.transport.needs import of_cost
from otformer.transport.problem.forbidden import unmasked
from otformer.transport.problem.read import read_cost
from otformer.transport.result.exact_finish import solve_exact
from otformer.transport.result.exact_result import sparse
from otformer.transport.types import Form, to_numpy

TOL = 1e-9  # of the cost: a gap above it is not called optimal
OPTIMAL, NOT_PROVED = 1, 3  # POT's codes


@needs(lambda M, **_: of_cost(M))
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
    M : cost matrix; +inf forbids a pair. A list or numpy array gives numpy; a tensor gives tensors of its dtype. A sparse
        matrix (scipy, or a sparse tensor) allows only its stored pairs, and gives a sparse (COO) plan.
    numItermax, numThreads : accepted and without effect: every solve runs to the end.
    log : whether to return a dict too.
    center_dual : choose the constant in the potentials so that Σ a u = Σ b v.
    check_marginals : False scales b to the mass of a without comparing their sums.
    potentials_init : (u, v) of an earlier, similar problem: a warm start.

    Returns
    -------
    The plan (n, m), without derivatives; with ``log=True`` also ``cost`` Σ P M, potentials ``u`` (n,) and ``v`` (m,) with
    u_i + v_j ≤ M_ij for all pairs, ``gap`` = Σ P (M − u − v) ≥ 0, up to which the plan is proved optimal, ``warning`` (None
    if it is optimal) and ``result_code`` (1 if it is). If no plan has these marginals, a ValueError says so.

    >>> emd([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]]).tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    >>> plan, log = emd([], [0.25, 0.75], [[0.0, 1.0], [1.0, 0.0]], log=True)
    >>> plan.tolist(), log["cost"], log["gap"]
    ([[0.25, 0.25], [0.0, 0.5]], 0.25, 0.0)
    """
    _check_unneeded(numItermax, numThreads)
    checks.no_tangents("a plan of emd has none, emd2 gives that of the cost", a=a, b=b, M=M)
    found = _solve(a, b, M, center_dual, check_marginals, potentials_init)
    return (found.plan(), found.log(found.cost)) if log else found.plan()


@needs(lambda M, **_: of_cost(M))
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
    """POT's ``ot.emd2``: the cost Σ P M of the optimal plan. All other arguments are those of `emd`.

    Parameters
    ----------
    b : (m,), or (m, k) for k problems with the same a and M. The result is then a list with one entry per problem.
    processes : accepted and without effect.
    return_matrix : whether the log holds the plan too, as ``G``.

    Returns
    -------
    The cost, a float or a tensor without axes; with ``log`` or ``return_matrix`` the pair (cost, log of `emd`). The cost is
    differentiable in tensors M, a and b, dense or sparse. It is a tensor if one of these requires a gradient.

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

    b = b if b is None or isinstance(b, Tensor) else checks.array("b", b)
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
        (i, j, masses), shape = self.sent, (len(self.u), len(self.v))
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
        terms = [torch.as_tensor(t, device=w.device) @ w.double() for w, t in slopes if checks.derivative_wanted(w)]
        if checks.derivative_wanted(M):
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
    a, b, M = (t.detach() if isinstance(t, Tensor) else t for t in (_or_uniform(a), _or_uniform(b), unmasked(M)))
    b = b if check_marginals else _scaled(b, a)
    pairs = read_sparse(M) if is_sparse(M) else None
    problem = read_cost(M if pairs is None else GraphCost(pairs), a, b, None, potentials=start)
    r, form = solve_exact(problem, TOL, warn=pairs is None), problem.form
    u, v = (to_numpy(t) for t in r.potentials)
    if problem.support is not None:
        u, v = _everywhere(u, v, MatrixCost(to_numpy(checks.array("M", M))) if pairs is None else GraphCost(pairs))
    if pairs is not None:
        form = Form(M.device if isinstance(M, Tensor) else None, pairs.dtype == np.float32)
    i, j, masses = (to_numpy(t) for t in r.pairs)
    found = _Found((i, j, masses), u, v, float(r.value), r.gap, r.converged, form, pairs is not None)
    return found.centred() if center_dual else found


def _or_uniform(w: Any) -> Any:
    """None in place of POT's []."""
    none = w.shape == (0,) if isinstance(w, Tensor | np.ndarray) else isinstance(w, list | tuple) and not w
    return None if none else w


def _scaled(b: Any, a: Any) -> Any:
    """b with the mass of a, whatever its own is."""
    w_a, w_b = (None if w is None else to_numpy(checks.array(t, w)).astype(np.float64) for t, w in (("a", a), ("b", b)))
    if w_b is None or not w_b.sum() > 0:
        return b  # uniform, or refused later
    return w_b * ((1.0 if w_a is None else w_a.sum()) / w_b.sum())


def _everywhere(u: np.ndarray, v: np.ndarray, pairs: Cost) -> tuple[np.ndarray, np.ndarray]:
    """The largest feasible potentials of points without mass too, for which −inf stands in u and v; of columns first.

    Where all pairs are forbidden any number is feasible: 0.
    """
    v = np.where(np.isneginf(v), _or_zero(pairs.least(u, 1, rows=False)[0][:, 0]), v)
    return np.where(np.isneginf(u), _or_zero(pairs.least(v, 1, rows=True)[0][:, 0]), u), v


def _or_zero(t: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(t), 0.0, t)
