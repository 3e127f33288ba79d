r"""A Triton kernel of assignments, exact/small_assignments.py on a CUDA device: one program per matrix, thousands at once.

All there is of the columns is in registers: potentials g, distances, the rows they were reached from, the rows they are
matched with. A step of a search loads one row of costs, and needs three reductions over the columns:

    length_k = base + (c_ik − g_k) − (c_ij − g_j),     where (c_ij − g_j) is picked out of the row by a sum;
    base = min length;
    the column at base and the row it is matched with, as one number: free columns first, then the least.

One warp holds up to 128 columns, so no reduction waits for another warp, and nothing is in shared memory.
"""

from __future__ import annotations

from otformer.transport.costs.gpu.language import constant, tl
from otformer.transport.costs.gpu.pass_kernels import jit

MOST = constant(2**10)  # above any row or column
MATCHED = constant(2**20)
NOTHING = constant(2**21)


@jit
def assign(costs, potentials, to, n, COLUMNS: tl.constexpr):
    """to [B, n]: the columns of all rows, as far as there are finite ways; costs [B, n, n] ≥ 0, and COLUMNS ≥ n.

    ``potentials`` [B, n] come at or below the least cost of each column, and are changed.
    """
    problem, column = tl.program_id(0).to(tl.int64), tl.arange(0, COLUMNS)
    inside = column < n
    costs += problem * n * n + column
    g = tl.load(potentials + problem * n + column, mask=inside, other=0.0)
    back = tl.full([COLUMNS], -1, tl.int32)
    row_of = tl.zeros([COLUMNS], tl.int32)
    source = 0
    while source < n:
        code = tl.where(back < 0, 0, MATCHED) + column * MOST + tl.where(back < 0, 0, back)
        dist = tl.full([COLUMNS], float("inf"), tl.float64)
        passed = column < 0
        base = tl.sum(g * 0, 0)  # 0 in float64
        i, j, best = source, -1, MATCHED
        while best >= MATCHED:
            length = tl.load(costs + i * n, mask=inside, other=float("inf")) - g
            own = tl.sum(tl.where(column == j, length, 0.0), 0)
            length = tl.maximum(length + (base - own), base)
            closer = (length < dist) & ~passed
            dist, row_of = tl.where(closer, length, dist), tl.where(closer, i, row_of)
            ahead = tl.where(passed, float("inf"), dist)
            base = tl.min(ahead, 0)
            best = tl.min(tl.where((ahead == base) & (ahead < float("inf")), code, NOTHING), 0)
            best = tl.where(best == NOTHING, -1, best)
            i, j = best % MOST, best % MATCHED // MOST
            passed = passed | ((column == j) & (best >= MATCHED))
        if best < 0:  # no way on
            source = n
        else:
            g = tl.where(passed, g - (base - dist), g)
            while j >= 0:  # the path changes sides, from its end to the source, which has had no column
                here = column == j
                i = tl.max(tl.where(here, row_of, -1), 0)
                j = tl.max(tl.where(back == i, column, -1), 0)
                back = tl.where(here, i, back)
            source += 1
    tl.store(potentials + problem * n + column, g, mask=inside)
    tl.store(to + problem * n + back, column.to(tl.int64), mask=inside & (back >= 0))
