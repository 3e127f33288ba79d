r"""Near-exact transport for almost nothing: an entropic plan rounded to the feasible set, and a proof of how good it is.

**A feasible plan** [1]. Rows of P that carry too much are scaled down, then columns; what is now missing on either side,
e = a − P1 ≥ 0 and d = b − Pᵀ1 ≥ 0 (of equal sum, for the masses agree), is added as a plan of rank one:

    P ← diag(s) P,  s = min(1, a/P1);      P ← P diag(t),  t = min(1, b/Pᵀ1);      P ← P + e dᵀ/‖e‖₁.

**A bound.** By duality Σ a_i f_i + Σ b_j g_j is below the optimum of min Σ P C for all f, g with f_i + g_j ≤ C_ij. Any g has
its best f, and that its best g, the *c-transforms*

    f_i = min_j C_ij − g_j,      g_j = min_i C_ij − f_i,

which are blocks of the network at λ → 0. We start from the plan's own g = v, and the **gap**, value less bound, is

    Σ_ij P_ij C_ij − Σ_i a_i f_i − Σ_j b_j g_j = Σ_ij P_ij (C_ij − f_i − g_j):      no term is negative, nothing cancels.

**Without the matrix** all of this is passes over blocks of it, which agree on every entry to the last bit: the marginals are
as exact as for a matrix, and in floating point, too, no term of the gap is negative (costs/entries.py). What e dᵀ costs,
costs/rounded_plan.py has.

**Forbidden pairs** must stay empty. In a stream labels forbid them: equal labels are separate problems, each with a plan of
rank one. In a matrix what is missing goes along a spanning tree of the pairs with the most mass, on which there is exactly
one way (δ ≷ 0 is added to the plan's entries, and must leave them positive).

[1] J. Altschuler, J. Weed, P. Rigollet: Near-linear time approximation algorithms for optimal transport via Sinkhorn
    iteration. NeurIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from torch import Tensor

from otformer import checks
from otformer.transport.costs.clouds import Rule
from otformer.transport.costs.entries import Entries
from otformer.transport.costs.plan import StreamedPlan
from otformer.transport.costs.rounded_plan import SMALLEST, Correction, RoundedPlan
from otformer.transport.types import Problem

if TYPE_CHECKING:
    from otformer.transport.costs.points import PointsCost

NOT_MISSING = 8 * 2.0**-52  # share of a weight that is not missing but lost to rounding
LOST = 1e-12  # share of the mass that may be missing still where pairs are forbidden
NO_WAY = "rounded needs a better plan: a mass of {:.2g} is missing, and no allowed pair can take it; lower tol"
NOT_ALLOWED = "rounded would put a mass of {:.2g} on pairs that labels forbid: use executor='dense'"


@dataclass(frozen=True, eq=False, repr=False)
class Rounded:
    """A plan that has the marginals, and how far it can be from the optimum of min Σ P C at most.

    Attributes
    ----------
    plan : array (n, m)
        In float64 whatever the input, for in float32 its marginals would be no better than that. Of a streamed result a
        `RoundedPlan`, with products, sums and rows, but no matrix.
    value : float
        Σ P C of this plan: optimum ≤ value.
    bound : float
        Σ a f + Σ b g ≤ optimum.
    gap : float
        value − bound ≥ 0, summed without cancellation.
    marginal_error : float
        Σ_i |Σ_j P_ij − a_i| + Σ_j |Σ_i P_ij − b_j|, rounding only; b is scaled to the mass of a.
    potentials : (f (n,), g (m,))
        The proof: f_i + g_j ≤ C_ij for all pairs; −inf where a weight is 0.

    All in float64, and numbers only: for derivatives there is the entropic result itself.
    """

    plan: Any
    value: float
    bound: float
    gap: float
    marginal_error: float
    potentials: tuple[Any, Any]

    def __repr__(self) -> str:
        n, m = (len(t) for t in self.potentials)
        return f"Rounded({n}×{m} plan, value {self.value:.6g}, at most {self.gap:.2g} above the optimum)"


@torch.no_grad()
def round_matrix(problem: Problem, P: Tensor, v: Tensor) -> Rounded:
    """A plan P [n, m] of potential v [m], rounded in place; the problem's arrays are tensors."""
    C, low, a, b, form = problem.cost.dense, problem.cost.gauge()[0], problem.a, problem.b, problem.form
    P.clamp_(max=problem.mass)  # far from converged, entries may be infinite
    P *= _capped(a, P.sum(1))[:, None]
    P *= _capped(b, P.sum(0))
    e, d = _missing(a, P.sum(1)), _missing(b, P.sum(0))
    forbidden = C.isinf()
    if not bool(forbidden.any()):
        P += torch.outer(e / torch.maximum(e.sum(), d.sum()).clamp_min(SMALLEST), d)
    elif bool(e.any() | d.any()):
        _fill_along_tree(P, ~forbidden, e, d)
    f, g = C.new_zeros(0), C.new_zeros(0)
    if len(a):
        f = (C - v).amin(1)
        g = (C - f[:, None]).amin(0)
    reduced = ((C - f[:, None]) - g).masked_fill(forbidden, 0.0)
    gap, bound = float((P * reduced).sum()), float(a @ f + b @ g) + low * problem.mass
    error = float((P.sum(1) - a).abs().sum() + (P.sum(0) - b).abs().sum())
    value = float((P * C.masked_fill(forbidden, 0.0)).sum()) + low * problem.mass
    potentials = form.give(problem.whole(f + low, 0), True), form.give(problem.whole(g, 1), True)
    return Rounded(form.give(problem.whole_plan(P), True), value, bound, gap, error, potentials)


@torch.no_grad()
def round_stream(cost: PointsCost, problem: Problem, passes: Entries, plan: StreamedPlan) -> Rounded:
    """A plan of potentials of c alone, rounded in O(n + m) memory, by five passes."""
    a, b, reg, form, P = problem.a, problem.b, problem.entropy, problem.form, plan.operator
    *_, u, v, _ = P.parts
    sums = P.right(torch.ones_like(b))
    if not bool(sums.isfinite().all()):
        raise ValueError("rounded needs a better plan: its sums are infinite; raise reg or max_depth")
    s = _capped(a, sums)
    columns = P.left(s)
    t = _capped(b, columns)
    f = passes.least(v, rows=True)
    g = passes.least(f, rows=False)
    rows, value, gap = passes.totals((u, v), reg, (s, t), (f, g))
    columns = t * columns
    correction = _of_rank_one(passes.rule, _missing(a, rows), _missing(b, columns))
    in_rows, in_columns = correction.right(torch.ones_like(b)), correction.T.right(torch.ones_like(a))
    error = float((rows + in_rows - a).abs().sum() + (columns + in_columns - b).abs().sum())
    more = float(correction.cost(cost.x, cost.y, passes.rule.root))
    gap += max(more - float(in_rows @ f + in_columns @ g), 0.0)  # of what was missing alone: below 0 it is rounding
    own = float(a @ cost.p + b @ cost.q)
    potentials = (form.give(problem.whole(w, k), True) for k, w in enumerate((f + cost.p, g + cost.q)))
    scales = problem.whole(s, 0, 0), problem.whole(t, 1, 0)
    whole = Correction(*(problem.whole(w, k % 2, 0) for k, w in enumerate(correction)))
    rounded = RoundedPlan(plan, scales, whole, form.device is None)
    bound = float(a @ f + b @ g) + own
    return Rounded(rounded, value + more + own, bound, gap, error, (next(potentials), next(potentials)))


def _capped(w: Tensor, sums: Tensor) -> Tensor:
    """min(1, w/sums)."""
    return torch.where(sums > w, w / sums, 1.0)


def _missing(w: Tensor, sums: Tensor) -> Tensor:
    """w − sums where that is more than rounding, otherwise 0."""
    short = w - sums
    return torch.where(short > NOT_MISSING * w, short, 0.0)


def _of_rank_one(rule: Rule, e: Tensor, d: Tensor) -> Correction:
    """Build the rank-one correction that adds the missing mass, e [n] and d [m], where labels allow it."""
    one = torch.zeros_like(e, dtype=torch.long), torch.zeros_like(d, dtype=torch.long)
    labels = rule.labels or one
    in_x, in_y = labels if rule.same else one
    if not rule.same and rule.labels and bool(torch.isin(labels[0][e > 0], labels[1][d > 0]).any()):
        raise ValueError(NOT_ALLOWED.format(float(e.sum())))
    totals = (Correction(torch.ones_like(e), w, in_x, at).right(torch.ones_like(w)) for w, at in ((e, in_x), (d, in_y)))
    return Correction(e / torch.maximum(*totals).clamp_min(SMALLEST), d, in_x, in_y)


def _fill_along_tree(P: Tensor, allowed: Tensor, e: Tensor, d: Tensor) -> None:
    """Adds what is missing, e [n] and d [m], to entries of P [n, m] that are allowed, in place.

    A node of the tree above all rows and columns holds together what allowed pairs do not; nothing may flow to it.
    """
    n, m = P.shape
    i, j = (at.cpu().numpy() for at in allowed.nonzero(as_tuple=True))
    logs = P[allowed].clamp_min(1e-300).log().cpu().numpy()
    nodes, top = np.arange(n + m), n + m
    lengths = np.concatenate([1 + logs.max() - logs, np.full(n + m, 1e6)])  # short where there is much mass
    ends = np.concatenate([i, nodes]), np.concatenate([n + j, np.full(n + m, top)])
    tree = minimum_spanning_tree(coo_array((lengths, ends), shape=(top + 1, top + 1)).tocsr())
    order, above = breadth_first_order(tree, top, directed=False)
    flow = torch.cat([e, d, e.new_zeros(1)]).cpu().numpy()
    lost = 0.0
    for node in order[:0:-1].tolist():  # leaves first: all that a node needs comes from above
        if above[node] == top:
            lost += abs(flow[node])
        else:
            flow[above[node]] -= flow[node]
    inner = np.flatnonzero(above[:-1] < top)
    rows, columns = np.minimum(inner, above[inner]), np.maximum(inner, above[inner]) - n
    P[rows, columns] += checks.local(flow[inner]).to(P)
    if lost > LOST * float(P.sum()) or bool((P < 0).any()):
        raise ValueError(NO_WAY.format(float(e.sum())))
