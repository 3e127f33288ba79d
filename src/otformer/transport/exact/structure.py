r"""Structure that is seen before anything is solved: a plan and potentials are proposed, and all pairs prove them or do not.

    equal weights and costs that are small whole numbers        paths from all free rows at once       tied_assignment.py
    costs that are Monge in some order of rows and columns      a staircase                                      monge.py

Both are rejected by a few entries where a problem has neither. What is proposed has potentials g of the columns. With
f*_i = min_j (c_ij − g_j) over all pairs the gap Σ P (c − f* − g) is a proof, whatever made the plan (rounds.py). Where it is
more than rounding leaves, because costs are of that structure only nearly, rounds go on from g.
"""

from __future__ import annotations

import math

import numpy as np

from otformer.transport.costs.cost import Cost
from otformer.transport.exact.assignment import COST_ROUNDING, Floats, middle
from otformer.transport.exact.flow_graph import Clock, Sent
from otformer.transport.exact.monge import staircase_plan
from otformer.transport.exact.rounds import Optimum
from otformer.transport.exact.tied_assignment import tied_assignment
from otformer.transport.exact.units import Units
from otformer.transport.types import Problem

FEW_PAIRS = 2**14  # up to here anything else takes no longer than a look for structure
WORTH_A_START = 2.0**-4  # of Σ P |C|: a proposal that misses the optimum by less is a start


def structured(problem: Problem, pairs: Cost, units: Units, clock: Clock) -> Optimum | None:
    """Propose a plan and potentials where a problem has structure; otherwise, if it is small or time is up, return None."""
    if clock.expired or math.prod(pairs.shape) <= FEW_PAIRS:
        return None
    plan, method = None, "augmenting paths from all rows at once"
    if (units.supply == 1).all() and (units.demand == 1).all():
        plan = tied_assignment(problem.cost, clock)
    if plan is None:
        plan, method = staircase_plan(pairs, units), "a staircase, for the costs are Monge"
    return None if plan is None else _proved(*plan, method, pairs)


def is_tight(found: Optimum) -> bool:
    """Return whether the gap is no more than the rounding of numbers as large as those that it is summed from."""
    i, j, units, cost = found.sent
    return found.gap <= COST_ROUNDING * float(units @ (abs(cost) + abs(found.f[i]) + abs(found.g[j])))


def _proved(sent: Sent, g: Floats, method: str, pairs: Cost) -> Optimum | None:
    """Return a plan that sends all, with its gap; None if that is too large to be of use."""
    g = g - middle(g)  # a constant is free, and a large one costs digits
    f = pairs.least(g, 1, rows=True)[0][:, 0]
    unsent, unmet = np.zeros(len(f), np.int64), np.zeros(len(g), np.int64)
    found = Optimum(sent, f, g, sent.gap(f, g), 1, unsent, unmet, method)
    return found if is_tight(found) or found.gap <= WORTH_A_START * float(sent.units @ abs(sent.cost)) else None
