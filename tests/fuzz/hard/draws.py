"""Problems with big M, must-link entries and blocks, drawn from a generator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

WIDEST = 1e300  # the range of finite costs that the library documents
SIZES = (5, 300)
LARGE = (
    1e3,
    1e4,
    1e6,
    1e8,
    1e10,
    1e12,
    1e14,
    1e14,
    1e15,
    1e15,
    1e16,
    1e16,
    1e17,
    1e17,
    1e20,
    1e30,
    1e60,
    1e100,
    1e200,
    4e299,
)
WEIGHTS = ("none", "equal", "random", "integer", "orders", "tiny", "zeros")


@dataclass
class Case:
    """One problem: costs, weights, and which entries are not of ordinary size."""

    M: np.ndarray  # [n, m], +inf forbids
    a: np.ndarray | None
    b: np.ndarray | None
    big: np.ndarray  # [n, m]: entries drawn as ±M
    words: list[str] = field(default_factory=list)  # what was drawn
    labels: tuple[np.ndarray, np.ndarray] | None = None  # blocks

    @property
    def shape(self) -> tuple[int, int]:
        return self.M.shape  # type: ignore[return-value]


def one_of(rng: Any, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def sides(rng: Any, most: int, assigned: bool = False) -> tuple[int, int]:
    """Sizes, alike on a log scale or as they are; every third problem is square."""
    if assigned and most >= SIZES[1] and rng.random() < 0.2:  # as many as the library does not leave to scipy
        n = int(rng.integers(most, most + 30))
        return n, n + int(rng.integers(6))
    low, high = np.log(SIZES[0]), np.log(most + 1)
    if rng.random() < 0.5:
        n, m = (int(np.exp(rng.uniform(low, high))) for _ in range(2))
    else:
        n, m = (int(k) for k in rng.integers(SIZES[0], most + 1, 2))
    return (n, n) if rng.random() < 0.35 else (n, m)


def useful(rng: Any, n: int, m: int) -> tuple[np.ndarray, str]:
    """Costs of ordinary kinds and of one size from 1e-9 to 1e9."""
    kind = one_of(rng, ("random", "random", "integer", "distances", "normal", "ties"))
    x, y = rng.random((n, 1, 2)), rng.random((1, m, 2))
    C = {
        "random": lambda: rng.random((n, m)),
        "integer": lambda: rng.integers(0, 100, (n, m)).astype(float),
        "distances": lambda: ((x - y) ** 2).sum(-1),
        "normal": lambda: rng.standard_normal((n, m)),
        "ties": lambda: rng.integers(0, 3, (n, m)).astype(float),
    }[kind]()
    size = one_of(rng, (1.0, 1.0, 1.0, 1e-9, 1e-3, 1e3, 1e9))
    return C * size, f"{kind}*{size:g}"


def weights(rng: Any, n: int, kind: str) -> np.ndarray | None:
    """Positive weights, of sum 1 but for integers; some are 0 where zeros are asked for."""
    if kind == "none":
        return None
    w = np.ones(n)
    if kind in ("random", "zeros"):
        w = rng.random(n) + 1e-3
    if kind == "zeros":
        w[rng.random(n) < 0.3] = 0.0
        w[rng.integers(n)] = 1.0
    if kind == "orders":
        w = 10.0 ** rng.uniform(-12, 0, n)
    if kind == "tiny":
        w = np.where(rng.random(n) < 0.3, 10.0 ** rng.uniform(-17, -12, n), rng.random(n))
        w[rng.integers(n)] = 1.0
    if kind == "integer":
        return rng.integers(1, 50, n).astype(float)
    return w / w.sum()


def both_weights(rng: Any, n: int, m: int, kind: str = "") -> tuple[np.ndarray | None, np.ndarray | None, str]:
    kinds = (
        (kind, kind)
        if kind
        else (one_of(rng, WEIGHTS), one_of(rng, WEIGHTS))
        if rng.random() < 0.3
        else (one_of(rng, WEIGHTS),) * 2
    )
    if "integer" in kinds:
        kinds = ("integer", "integer")
    a, b = weights(rng, n, kinds[0]), weights(rng, m, kinds[1])
    if kinds[0] == "integer":
        a, b = _same_sum(rng, a, b)
    return a, b, kinds[0] if kinds[0] == kinds[1] else "/".join(kinds)


def _same_sum(rng: Any, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers of equal sum: the smaller side gets what it lacks, one by one."""
    short = a if a.sum() < b.sum() else b
    lack = int(abs(a.sum() - b.sum()))
    short += np.bincount(rng.integers(len(short), size=lack), minlength=len(short))
    return a, b


def planted(rng: Any, a: np.ndarray | None, b: np.ndarray | None, n: int, m: int) -> np.ndarray:
    """Pairs that carry a plan: the staircase of two orders at random, wide where steps meet to rounding."""
    ends = []
    orders = rng.permutation(n), rng.permutation(m)
    for w, k, order in ((a, n, orders[0]), (b, m, orders[1])):
        w = np.full(k, 1 / k) if w is None else w / w.sum()
        ends.append(np.concatenate([[0.0], np.cumsum(w[order])]))
    touch = (ends[0][:-1, None] <= ends[1][None, 1:] + 1e-9) & (ends[1][None, :-1] <= ends[0][1:, None] + 1e-9)
    held = np.zeros((n, m), bool)
    held[np.ix_(*orders)] = touch
    return held


def _large_values(rng: Any, count: int, sign: float, M: np.ndarray) -> tuple[np.ndarray, str]:
    top = one_of(rng, LARGE)
    top = float(np.clip(top, 0, WIDEST / 3))
    kind = one_of(rng, ("one", "one", "several", "jitter", "noise"))
    values = np.full(count, top)
    if kind == "several":
        values = rng.choice(np.array([v for v in LARGE if v <= top]), count)
    if kind == "jitter":
        values = top * (1 + 0.2 * rng.random(count))
    if kind == "noise":
        values = top + rng.choice(M[np.isfinite(M)], count)
    return sign * values, f"{'-' if sign < 0 else ''}{top:g} {kind}"


def big_m(rng: Any, most: int = SIZES[1], assigned: bool = False) -> Case:
    """Few useful entries, ±M elsewhere, inf beside them at times; a plan without M is planted in every second."""
    if rng.random() < 0.35:
        return usual_m(rng, most, assigned)
    n, m = sides(rng, most, assigned)
    M, told = useful(rng, n, m)
    a, b, weighted = both_weights(rng, n, m, "none" if assigned else "")
    words = [f"{n}x{m}", told, weighted]
    big = rng.random((n, m)) < one_of(rng, (0.3, 0.5, 0.8, 0.9, 0.95, 0.95, 0.95, 0.99))
    free = planted(rng, a, b, n, m)
    if rng.random() < 0.5:
        big &= ~free
        words.append("planted")
    scale = np.abs(M).max()
    M[big], told = _large_values(rng, big.sum(), 1.0, M)
    if scale > 1 and rng.random() < 0.5:  # M in units of the rest
        M[big] = np.minimum(M[big] * scale, WIDEST / 2)
    words.append(told)
    if rng.random() < 0.25:
        forbidden = big & (rng.random((n, m)) < 0.5) & ~free
        M[forbidden] = np.inf
        words.append("inf beside")
    if rng.random() < 0.2:
        small = rng.random((n, m)) < 2 / max(n, m)
        small &= np.isfinite(M)
        M[small], told = _large_values(rng, small.sum(), -1.0, M[~big & np.isfinite(M)] if (~big).any() else M)
        big |= small
        words.append(told)
    return Case(M, a, b, big & np.isfinite(M), words)


def usual_m(rng: Any, most: int = SIZES[1], assigned: bool = False) -> Case:
    """What people write for "forbidden": one value, near the end of the digits that the rest has."""
    n, m = sides(rng, most, assigned) if assigned else (int(k) for k in rng.integers(min(30, most), min(200, most) + 1, 2))
    M, big = rng.random((n, m)), rng.random((n, m)) < one_of(rng, (0.9, 0.95, 0.95, 0.97))
    a, b, weighted = both_weights(rng, n, m, "none" if assigned else "")
    M[big] = value = one_of(rng, (1e13, 1e14, 1e15, 1e16, 1e17, 1e17, 1e18))
    return Case(M, a, b, big, [f"{n}x{m}", weighted, f"usual {value:g}"])


def must_link(rng: Any, most: int = SIZES[1], assigned: bool = False) -> Case:
    """Ordinary costs with some entries at −M, few or many."""
    n, m = sides(rng, most, assigned)
    M, told = useful(rng, n, m)
    a, b, weighted = both_weights(rng, n, m, "none" if assigned else "")
    few = one_of(rng, ("one", "few", "many", "block"))
    big = np.zeros((n, m), bool)
    if few == "block":
        big[: n // 2, : m // 3] = True
    else:
        count = {"one": 1, "few": 4, "many": max(n, m)}[few]
        big[rng.integers(n, size=count), rng.integers(m, size=count)] = True
    M[big], value = _large_values(rng, big.sum(), -1.0, M)
    words = [f"{n}x{m}", told, weighted, few, value]
    if rng.random() < 0.2:
        forbidden = (rng.random((n, m)) < 0.3) & ~planted(rng, a, b, n, m) & ~big
        M[forbidden] = np.inf
        words.append("inf beside")
    return Case(M, a, b, big, words)


def blocks(rng: Any, most: int = SIZES[1], balanced: bool = True, holes: float = 0.3) -> Case:
    """Blocks of uneven sizes, shuffled; the masses of a block agree to rounding, or differ if not balanced."""
    n, m = sides(rng, most)
    count = int(rng.integers(1 if balanced else 2, min(20, n, m) + 1))
    row, column = _parts(rng, n, count), _parts(rng, m, count)
    M, told = useful(rng, n, m)
    kind = one_of(rng, ("equal", "random", "integer", "orders", "tiny", "blocks over orders"))
    mass = 10.0 ** rng.uniform(-12, 0, count) if kind == "blocks over orders" else rng.random(count) + 0.05
    a, b = np.zeros(n), np.zeros(m)
    shares = mass.copy()
    if not balanced:
        shares = mass * np.where(np.arange(count) == mass.argmax(), one_of(rng, (0.5, 0.9, 0.99)), 1.0)
    for k in range(count):
        here = row == k, column == k
        left, right = (weights(rng, int(part.sum()), "random" if kind == "blocks over orders" else kind) for part in here)
        if kind == "integer":
            left, right = _same_sum(rng, left, right)
            right += one_of(rng, (1.0, 7.0)) * (k == 0 and not balanced)
        else:
            left, right = left * mass[k], right * shares[k]  # type: ignore[operator]
        a[here[0]], b[here[1]] = left, right
    a, b, rounding = _rounded(rng, a, b)
    M[row[:, None] != column] = np.inf
    words = [f"{n}x{m}", f"{count} blocks", told, kind, rounding]
    if rng.random() < holes:
        held = np.zeros((n, m), bool)
        for k in range(count):
            at = np.ix_(row == k, column == k)
            held[at] = planted(rng, a[row == k], b[column == k], int((row == k).sum()), int((column == k).sum()))
        M[(rng.random((n, m)) < 0.5) & ~held] = np.inf
        words.append("holes")
    return Case(M, a, b, np.zeros((n, m), bool), words, (row, column))


def _parts(rng: Any, n: int, count: int) -> np.ndarray:
    """Labels 0…count−1 for n points, each at least once, uneven, in a random order."""
    shares = rng.dirichlet(np.full(count, one_of(rng, (0.3, 1.0, 10.0))))
    return rng.permutation(np.concatenate([np.arange(count), rng.choice(count, n - count, p=shares)]))


def _rounded(rng: Any, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """Weights as people have them: normalised on their own, in float32, as they are."""
    how = one_of(rng, ("normalised", "normalised", "float32", "as drawn", "scaled"))
    if how == "normalised":
        a, b = a / a.sum(), b / b.sum()
    if how == "float32":
        a, b = ((w / w.sum()).astype(np.float32) for w in (a, b))
    if how == "scaled":
        a, b = a * 1e3 / 7, b * 1e3 / 7
    return a, b, how


def unequal_blocks(rng: Any, most: int = SIZES[1]) -> Case:
    """Blocks of which one has another mass on either side: no plan exists."""
    return blocks(rng, most, balanced=False)


def blocks_by_m(rng: Any, most: int = SIZES[1]) -> Case:
    """Blocks that a big M holds apart, not inf: a rounding error of their masses would cost M."""
    case = blocks(rng, most)
    case.big = np.isinf(case.M)
    case.M[case.big], told = _large_values(rng, int(case.big.sum()), 1.0, case.M)
    case.words.append(told)
    return case


def full_blocks(rng: Any, most: int = SIZES[1]) -> Case:
    """Blocks without holes: in an entropic plan every allowed pair has mass."""
    return blocks(rng, min(most, 100), holes=0.0)


def unequal_full_blocks(rng: Any, most: int = SIZES[1]) -> Case:
    return blocks(rng, min(most, 100), balanced=False, holes=0.0)
