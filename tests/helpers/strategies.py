"""Hard inputs for hypothesis: ties, repeated points, one point, n ≠ m, tiny and huge scales, skewed weights, weights of 0.

Coordinates and costs are whole numbers, or 64ths of them, times a power of two: then sums, differences and squares of a few
of them are exact in float64, and a property holds to the rounding of the solver alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

MOST = 6  # points of a side
SCALES = (2.0**-30, 1.0, 1.0, 1.0, 2.0**30)
sizes = st.integers(1, MOST)
seeds = st.integers(0, 2**31 - 1)


class Case(NamedTuple):
    """A problem: points, weights of mass ``a.sum()`` on both sides, λ."""

    x: np.ndarray  # [n, d]
    y: np.ndarray  # [m, d]
    a: np.ndarray  # [n]
    b: np.ndarray  # [m]
    reg: float

    @property
    def C(self) -> np.ndarray:
        return cost(self.x, self.y)


def cost(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """‖x_i − y_j‖², [n, m]."""
    return np.square(x[:, None] - y[None]).sum(2)


def numbers(shape: int | tuple[int, ...], least: int = -8, most: int = 8) -> st.SearchStrategy[np.ndarray]:
    """Few whole numbers, so that many are equal; or 64ths, so that few are."""
    whole = arrays(np.float64, shape, elements=st.integers(least, most).map(float), fill=st.nothing())
    fine = arrays(np.float64, shape, elements=st.integers(64 * least, 64 * most).map(lambda k: k / 64), fill=st.nothing())
    few = arrays(np.float64, shape, elements=st.integers(max(least, 0), 1).map(float), fill=st.nothing())
    return st.one_of(whole, fine, few)


@st.composite
def weights(draw: st.DrawFn, n: int, zeros: bool = True) -> np.ndarray:
    """Weights of mass 1: equal, small whole numbers (0 among them), or up to a million times as large as others."""
    kind = draw(st.sampled_from(("equal", "whole", "skewed")))
    if kind == "equal":
        return np.full(n, 1 / n)
    if kind == "whole":
        w = draw(arrays(np.float64, n, elements=st.integers(0 if zeros else 1, 4).map(float), fill=st.nothing()))
        w[draw(st.integers(0, n - 1))] += 1  # some mass there must be
    else:
        w = 10.0 ** -draw(arrays(np.float64, n, elements=st.integers(0, 6).map(float), fill=st.nothing()))
    return w / w.sum()


@st.composite
def cases(
    draw: st.DrawFn, zeros: bool = True, steepest: float = 100.0, scales: tuple[float, ...] = SCALES, most: int = MOST
) -> Case:
    """Points on a grid, scaled; λ from ten times the greatest cost down to 1/``steepest`` of it."""
    n, m, d = draw(st.integers(1, most)), draw(st.integers(1, most)), draw(st.integers(1, 3))
    scale = draw(st.sampled_from(scales))
    x, y = (scale * draw(numbers((k, d))) for k in (n, m))
    a, b = draw(weights(n, zeros)), draw(weights(m, zeros))
    share = draw(st.sampled_from((0.1, 1.0, 10.0, steepest)))
    return Case(x, y, a, b, float(cost(x, y).max() or scale**2) / share)


@st.composite
def matrices(draw: st.DrawFn, square: bool = False, least: int = -8, scales: tuple[float, ...] = SCALES) -> np.ndarray:
    """Costs of any sign, with ties, at any scale, and sometimes one that is a million times as large."""
    n = draw(sizes)
    C = draw(numbers((n, n if square else draw(sizes)), least))
    if draw(st.booleans()):
        C.flat[draw(st.integers(0, C.size - 1))] *= 2.0**20
    return C * draw(st.sampled_from(scales))


@st.composite
def orders(draw: st.DrawFn, *lengths: int) -> list[np.ndarray]:
    """A permutation of each length."""
    return [np.array(draw(st.permutations(range(n))), dtype=np.int64) for n in lengths]
