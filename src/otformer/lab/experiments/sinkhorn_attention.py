r"""Sinkhorn attention (Tay et al. 2020, Sander et al. 2022; section 2.2 of the paper) beside layers of softmax attention.

Sinkhorn attention is one layer that normalises the rows and columns of its logits in turn, K times:

    L ← −C/λ;      L ← L − logsumexp_j L,   L ← L − logsumexp_i L,   …;      attention exp(L).

A standard layer has one normalisation per head, its softmax. Depth inside the layer against depth in layers: what counts for
both is a *pass* over the n × n logits, and how many follow each other.

    Sinkhorn attention       1 layer            K passes, one after the other
    gradient (the paper's)   ℓ layers           2ℓ passes, the two heads of a layer side by side
    alternating heads        ℓ layers           ℓ passes, the other head writes nothing
    with feed-forward        ℓ layers           ℓ passes: attention + feed-forward = a half-step (network/sinkhorn_block.py)

Near the solution an error falls by σ in a pass of Sinkhorn attention, by (1 + σ)/2 in a layer of `gradient` (docs/theory.md,
section 6), σ the second singular value of P*_λ. So `gradient` needs 2 log σ/log((1 + σ)/2) times the passes: 4 as σ → 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, product
from statistics import median

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._problems import final, iterates, mean_marginal_error, unit_cube
from otformer.lab.experiments._texts import ends
from otformer.lab.experiments.experiment import Context, Outcome, Row
from otformer.network.schedule import Alternating, Gradient, Relaxed, Schedule
from otformer.network.sinkhorn_block import SinkhornTransformer
from otformer.theory.rates import second_singular_value
from otformer.transport.reference import plan, sinkhorn_half_steps

N, DIM, PROBLEMS = 64, 2, 5  # points per side, dimension, problems for each λ
REGS = (0.2, 0.1, 0.05, 0.02)
ERRORS = (1e-2, 1e-4, 1e-6)  # mean of |marginal − 1|
PASS_LIMIT = 6_000
MANY_PASSES = 0.05  # λ up to which so many passes lie between the last two errors that their whole numbers do not matter
SINKHORN_ATTENTION, GRADIENT = "Sinkhorn attention", "softmax, two heads a layer"
ALTERNATING, RELAXED = "softmax, alternating heads", "softmax, over-relaxed"
SCHEDULES: dict[str, tuple[Schedule, int]] = {  # with the passes of a layer
    GRADIENT: (Gradient(), 2),
    ALTERNATING: (Alternating(), 1),
    RELAXED: (Relaxed(), 1),
}
WAYS = (SINKHORN_ATTENTION, *SCHEDULES)
PREDICTED_RATIO = "2 log σ/log((1+σ)/2)"


def normalisations(logits: Tensor) -> Iterator[Tensor]:
    """The log of Sinkhorn attention of logits [n, n], before the first normalisation and after each: rows, columns, ….

    >>> first, rows, columns = islice(normalisations(torch.tensor([[0.0, 0.0], [0.0, 1.0]])), 3)
    >>> rows.exp().sum(1), columns.exp().sum(0)
    (tensor([1., 1.]), tensor([1., 1.]))
    """
    L = logits
    yield L
    while True:
        for axis in (1, 0):
            L = L - torch.logsumexp(L, axis, keepdim=True)
            yield L


def run(context: Context) -> Outcome:
    generator = context.generator()
    cases = [(reg, k, unit_cube(N, DIM, generator=generator)) for reg, k in product(REGS, range(PROBLEMS))]
    same = max(_distance_to_blocks(x, y, C, reg) for reg, k, (x, y, C) in cases if k == 0)
    rows = [row for reg, k, (_, _, C) in context.each(cases) for row in _measure(C, reg, k)]
    last = [row for row in rows if row["error"] == ERRORS[-1]]
    hard = [(reg, k) for reg, k, _ in cases if reg <= MANY_PASSES]
    ratios = [_asymptotic(rows, reg, k) / _one(rows, reg, k, GRADIENT)[PREDICTED_RATIO] for reg, k in hard]
    turns = [_passes(rows, reg, k, ALTERNATING) / _passes(rows, reg, k, SINKHORN_ATTENTION) for reg, k, _ in cases]
    gains = [_passes(rows, REGS[-1], k, SINKHORN_ATTENTION) / _passes(rows, REGS[-1], k, RELAXED) for k in range(PROBLEMS)]
    checks = {
        "same": same < 1e-9,
        "arrives": all(row["passes"] is not None for row in rows),
        "predicted": all(0.75 < ratio < 1.25 for ratio in ratios),
        "turns": max(turns) <= 1.5,
        "relaxed": median(gains) >= 2,
    }
    settings = {"n": N, "dim": DIM, "problems": PROBLEMS, "regs": REGS, "errors": ERRORS, "limit": PASS_LIMIT}
    cost = {way: median(row["ms"] / row["passes"] for row in rows if row["way"] == way and row["passes"]) for way in WAYS}
    columns = ("layers", "passes", "ms")
    numbers = {
        "same": same,
        "gain": median(gains),
        "gains": ends(gains),
        "ratios": ends(ratios),
        "turns": max(turns),
        "least_reg": REGS[-1],
        "least_error": ERRORS[-1],
        "dearer": cost[ALTERNATING] / cost[SINKHORN_ATTENTION],
        "ways": [{"way": way} | {column: _median(rows, REGS[-1], way, column) for column in columns} for way in WAYS],
    }
    return Outcome(rows, _draw(last, rows), numbers, checks, settings)


def _distance_to_blocks(x: Tensor, y: Tensor, C: Tensor, reg: float) -> float:
    """The largest entry by which Sinkhorn attention differs from the layers of `SinkhornTransformer`, the first 20."""
    trace = SinkhornTransformer(DIM, reg, 20)(x, y, warn=False)
    inside = list(islice(normalisations(-C / reg), 21))
    return max(float((inside[k].exp() - trace.plan(k)).abs().max()) for k in range(1, 21))


def _measure(C: Tensor, reg: float, number: int) -> list[Row]:
    """Layers, passes and processor seconds of every way to every error, on one problem."""
    sigma = second_singular_value(plan(C, *final(C, Relaxed(1.9).layers(reg, 2_000)), reg))
    scale = torch.tensor((1 + sigma) / 2).log()
    about: Row = {"λ": reg, "problem": number, "σ": sigma, PREDICTED_RATIO: float(2 * torch.tensor(sigma).log() / scale)}
    rows: list[Row] = []
    found = _first(C, reg, sinkhorn_half_steps(C, reg), 1)  # the same matrices from their potentials
    rows += [about | {"way": SINKHORN_ATTENTION, "layers": 1, "error": e, "passes": k} for e, k in found.items()]
    for way, (schedule, heads) in SCHEDULES.items():
        found = _first(C, reg, iterates(C, schedule.layers(reg, PASS_LIMIT // heads)), heads)
        rows += [about | {"way": way, "layers": k and k // heads, "error": e, "passes": k} for e, k in found.items()]
    for row in rows:
        row["ms"] = None if row["passes"] is None else 1e3 * _seconds(_work(C, reg, row["way"], row["passes"]))
    return rows


def _first(C: Tensor, reg: float, run: Iterable[tuple[Tensor, Tensor]], heads: int) -> dict[float, int | None]:
    """Passes to each of the errors; None where the limit comes first."""
    found: dict[float, int | None] = dict.fromkeys(ERRORS)
    for k, (u, v) in enumerate(islice(run, PASS_LIMIT // heads + 1)):
        error = mean_marginal_error(C, u, v, reg)
        found |= {e: heads * k for e in ERRORS if found[e] is None and error < e}
        if found[ERRORS[-1]] is not None:
            break
    return found


def _work(C: Tensor, reg: float, way: str, passes: int) -> Callable[[], object]:
    """What is timed: that many passes, nothing measured on the way."""
    if way == SINKHORN_ATTENTION:
        return lambda: next(islice(normalisations(-C / reg), passes, None))
    schedule, heads = SCHEDULES[way]
    return lambda: final(C, schedule.layers(reg, passes // heads))


def _seconds(work: Callable[[], object]) -> float:
    """Processor seconds, the lesser of two runs."""

    def once() -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    return min(once(), once())


def _one(rows: list[Row], reg: float, number: int, way: str, error: float = ERRORS[-1]) -> Row:
    wanted = {"λ": reg, "problem": number, "way": way, "error": error}
    return next(row for row in rows if wanted.items() <= row.items())


def _passes(rows: list[Row], reg: float, number: int, way: str, error: float = ERRORS[-1]) -> int:
    """Passes to an error, the limit where it is not reached."""
    found = _one(rows, reg, number, way, error)["passes"]
    return PASS_LIMIT if found is None else int(found)


def _asymptotic(rows: list[Row], reg: float, number: int) -> float:
    """Passes from the second error to the last, of `gradient` over those of Sinkhorn attention."""
    taken = [_passes(rows, reg, number, way) - _passes(rows, reg, number, way, ERRORS[1]) for way in WAYS[:2]]
    return taken[1] / taken[0]


def _median(rows: list[Row], reg: float, way: str, column: str, error: float = ERRORS[-1]) -> float:
    return median(_one(rows, reg, k, way, error)[column] or 0 for k in range(PROBLEMS))


def _draw(last: list[Row], rows: list[Row]) -> figures.Figure:
    fig, (left, middle, right) = figures.figure(13, 4.2, columns=3)
    for way, marker, colour in zip(WAYS, "soD^", (figures.INK, *figures.CYCLE), strict=False):
        dash = "--" if way == SINKHORN_ATTENTION else "-"
        for axes, column in ((left, "passes"), (middle, "ms")):
            values = [_median(last, reg, way, column) for reg in REGS]
            axes.loglog(REGS, values, dash, marker=marker, color=colour, label=way)
        values = [_median(rows, REGS[-1], way, "passes", error) for error in ERRORS]
        right.loglog(ERRORS, values, dash, marker=marker, color=colour, label=way)
    for axes in (left, middle):
        axes.set_xticks(REGS, [f"{reg:g}" for reg in REGS])
        axes.minorticks_off()
        axes.invert_xaxis()
        axes.set_xlabel("λ (smaller is harder)")
    right.invert_xaxis()
    left.set(ylabel=f"passes to an error of {ERRORS[-1]:g}", title="Over-relaxed layers need the fewest passes")
    middle.set(ylabel="processor ms", title="A pass of a layer forms its logits anew")
    right.set(xlabel="mean |marginal − 1|", ylabel=f"passes at λ = {REGS[-1]:g}", title=f"n = {N}, median of {PROBLEMS}")
    left.legend()
    return fig
