r"""A network simplex in whole numbers of any size: sums and signs of costs where float64 has too few bits.

Costs of very different size, such as 0.3 beside a "big M" of 10¹⁵ for pairs that must not match, or −10¹⁶ for pairs that
must, have potentials in which the small ones lose their digits. A float is a whole number times a power of 2. So all costs
are whole multiples of one power 2^e, and a sum of them is one too: the network simplex (simplex.py) runs on these.

**Digits.** A whole number is written in base 2⁴⁰, d_0 + d_1 2⁴⁰ + …, with digits −2³⁹ ≤ d_t < 2³⁹, one int64 each, the last
of any size. The digits of a sum are the sums of the digits, then each is brought back into its range from the lowest on,
and the excess goes to the next (`carry`). The rest below a digit d_t ≠ 0 is at most half of 2^{40 t}, so the sign of a
number is the sign of its highest digit that is not 0, and its float64 value has no cancellation.

**It ends.** Weights are whole numbers and every comparison is exact, so every arc that enters has a negative reduced cost,
and the tree stays strongly feasible: no tree comes twice [1], and there are finitely many. It ends at the optimum, or with
as little left over as there can be. Most signs are clear from float64, and few numbers are compared digit by digit.

[1] W. H. Cunningham: A network simplex method. Mathematical Programming, 1976.
"""

from __future__ import annotations

import numpy as np

from otformer.transport.compiled import compiled
from otformer.transport.exact.assignment import COST_ROUNDING, Floats, Ints
from otformer.transport.exact.simplex import LEVEL, NEXT, PARENT, SIZE, UP, Span, turn
from otformer.transport.problem.read import FEW_BITS_LEFT

IN_WHOLE_NUMBERS = "a network simplex in whole numbers"
UP_TO = 2**25  # pairs, at 60 bytes each, or up to 430 where costs span all of float64
BITS = 40  # of a digit: sums of 2²³ of them fit into 64
SPARE_BITS = 32  # for sums along a path through all points
SOME, NONE = 256, 64  # small ones are some if one entry in 256 is; hardly any are larger if 64 times as many are not
VOID = 2.0**10  # times the largest of the small ones: up to there are hardly any
ENOUGH = 4 * 10**6  # entries that tell whether costs are wide


def is_wide(C: np.ndarray) -> bool:
    """Return whether some costs, of a matrix or a list, are far below the largest, so that sums with it lose their digits.

    >>> is_wide(np.array([[0.3, 0.7], [1.0, 0.0]])), is_wide(np.array([[0.3, 1e15], [1e15, 0.7]]))
    (False, True)
    """
    if C.size == 0:
        return False
    sample = C[:: -(-C.size // ENOUGH)]
    size = np.abs(sample, dtype=np.float64)
    small = size <= FEW_BITS_LEFT * size.max(where=size < np.inf, initial=0.0)
    count = np.count_nonzero(small & (size > 0))
    return bool(count and SOME * count >= size.size and np.ptp(sample[small]) > 0)


@compiled
def falls_apart(C: np.ndarray) -> bool:
    """A cheaper `is_wide` of a matrix [n, n]: detect costs that split into two groups of very different size."""
    largest, count, above, least, greatest, top = 0.0, 0, 0, np.inf, -np.inf, 0.0
    for row in C:
        for value in row:
            if abs(value) < np.inf:
                largest = max(largest, abs(value))
    for row in C:
        for value in row:
            if abs(value) <= FEW_BITS_LEFT * largest:
                least, greatest, top = min(least, value), max(greatest, value), max(top, abs(value))
                count += value != 0
    if count == 0 or SOME * count < C.size or least == greatest:
        return False
    for row in C:
        for value in row:
            above += top < abs(value) <= VOID * top
    return NONE * above <= count


def split(c: Floats) -> tuple[Ints, int]:
    """Return the exact digits [E, K] of c/2^e, and the exponent e; K leaves room for sums of all of them.

    >>> digits, e = split(np.array([0.5, -2.0**50, 0.0]))
    >>> e, digits.tolist()
    (-1, [[1, 0, 0, 0], [0, -2048, 0, 0], [0, 0, 0, 0]])
    """
    mantissa, exponent = np.frexp(c)
    whole, place = np.abs(np.ldexp(mantissa, 53)).astype(np.int64), exponent.astype(np.int64) - 53
    some = whole > 0
    zeros = np.zeros_like(whole)  # at the end of a mantissa
    zeros[some] = np.frexp((whole[some] & -whole[some]).astype(np.float64))[1] - 1
    whole, place = whole >> zeros, place + zeros
    lowest = int(place[some].min()) if some.any() else 0
    place = np.where(some, place - lowest, 0)
    count = -(-(int(place.max(initial=0)) + 53 + SPARE_BITS) // BITS)
    digits, sign = np.zeros((len(c), count), np.int64), np.sign(c).astype(np.int64)
    first, within, rows = place // BITS, place % BITS, np.arange(len(c))
    room = BITS - within
    digits[rows, first] = sign * ((whole & ((1 << room) - 1)) << within)
    whole >>= room  # 53 bits reach into three digits at most
    digits[rows, first + 1] = sign * (whole & ((1 << BITS) - 1))
    digits[rows, first + 2] = sign * (whole >> BITS)
    return digits, lowest


@compiled
def carry(p: Ints, node: int, units: Floats) -> float:
    """Bring the digits of a number p[node] back into their range, in place; return its value in float64."""
    excess, last, total = np.int64(0), len(units) - 1, 0.0
    for t in range(last):
        digit = p[node, t] + excess
        excess = (digit + (1 << (BITS - 1))) >> BITS
        p[node, t] = digit - (excess << BITS)
    p[node, last] += excess
    for t in range(last, -1, -1):
        if p[node, t] != 0:  # the unit of a digit that nothing uses may be infinite
            total += p[node, t] * units[t]
    return total


@compiled
def is_negative(digits: Ints, arc: int, p: Ints, i: int, j: int) -> bool:
    """Return whether the reduced cost c − p_i + p_j of an arc is below 0."""
    excess, sign, last = np.int64(0), np.int64(0), digits.shape[1] - 1
    for t in range(last + 1):
        digit = digits[arc, t] - p[i, t] + p[j, t] + excess
        if t < last:
            excess = (digit + (1 << (BITS - 1))) >> BITS
            digit -= excess << BITS
        sign = digit if digit != 0 else sign
    return bool(sign < 0)


@compiled
def recompute(tree: Span, arc: Ints, p: Ints, rounded: Floats, digits: Ints, units: Floats) -> None:
    """Compute potentials p [nodes, K], their float64 values and levels of all nodes from the tree, in place.

    Artificial arcs, which have the number −1, cost nothing but a level.
    """
    root = len(p) - 1
    tree[LEVEL, root] = 0
    node = tree[NEXT, root]
    while node != root:
        above, new, sign = tree[PARENT, node], arc[node], 1 if tree[UP, node] else -1
        for t in range(len(units)):
            p[node, t] = p[above, t] + (sign * digits[new, t] if new >= 0 else 0)
        rounded[node] = carry(p, node, units)
        tree[LEVEL, node] = tree[LEVEL, above] + (sign if new < 0 else 0)
        node = tree[NEXT, node]


@compiled
def pivot(
    source: Ints, target: Ints, costs: Floats, digits: Ints, tree: Span, arc: Ints, cost: Floats, flow: Ints, p: Ints,
    rounded: Floats, units: Floats, at: int, block: int, most: int,
) -> tuple[int, int]:  # fmt: skip
    """Make up to ``most`` pivots, in place; return how many (fewer: it is optimal), and the arc to go on from."""
    arcs, shift = len(source), np.empty(len(units), np.int64)
    for made in range(most):
        best, least, lowest, looked = -1, np.inf, 0, 0
        while looked < arcs and best < 0:
            for _ in range(min(block, arcs - looked)):
                at = at + 1 if at + 1 < arcs else 0
                i, j = source[at], target[at]
                level = tree[LEVEL, j] - tree[LEVEL, i]
                reduced = costs[at] - rounded[i] + rounded[j]
                if level < lowest or (level == lowest and reduced < least):
                    unclear = COST_ROUNDING * (abs(costs[at]) + abs(rounded[i]) + abs(rounded[j]))
                    if level < 0 or reduced < -unclear or (reduced <= unclear and is_negative(digits, at, p, i, j)):
                        best, lowest, least = at, level, reduced
                looked += 1
        if best < 0:
            return made, at
        i, j = source[best], target[best]
        level = tree[LEVEL, j] - tree[LEVEL, i]
        for t in range(len(units)):
            shift[t] = digits[best, t] - p[i, t] + p[j, t]
        node, sign = turn(tree, arc, cost, flow, i, j, best, costs[best])
        for _ in range(tree[SIZE, node]):
            for t in range(len(units)):
                p[node, t] += sign * shift[t]
            rounded[node] = carry(p, node, units)
            tree[LEVEL, node] += sign * level
            node = tree[NEXT, node]
    return most, at
