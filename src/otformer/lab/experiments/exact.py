r"""How deep a frozen network must be, and how small its λ, until it holds the exact optimum.

Two readings of the potentials after the last layer, both without looking at the optimum:

    arg-max     row i goes to argmax_j P_ij = argmin_j (C_ij − v_j)
    k pairs     the k pairs of least C_ij − v_j in every row and of least C_ij − u_i in every column

The second is what exact transport starts from: if the pairs contain the optimum, a sparse solver finds it among them. The
first asks more of λ. Depth takes the network to P*_λ, and no further: the arg-max of its rows must be the optimum already.
The largest λ for which it is, λ*, depends on the problem by Δ and ρ (bias.py): the gap to the second-best permutation, and
the least increase of the cost per point moved. Far above ρ, points that can be exchanged at little cost share their places
evenly, and the largest share of a row may be another's. But

    λ < ρ/(1 + log n + log(n − 1))        is always small enough.

Proof. Number columns so that P* = I, and let m = Σ_i (1 − P_ii) for P = P*_λ. What is beside the diagonal is a circulation,
a sum of cycles, and every cycle costs ρ at least for each row in it: ⟨C, P − I⟩ ≥ ρ m. P is no worse than I for the
regularised cost, so ρ m ≤ λ H(P). A row with 1 − P_ii = m_i has an entropy of h(m_i) + m_i log(n − 1) at most, h that of a
coin, which is concave, and h(p) ≤ p (1 + log 1/p): H(P) ≤ n h(m/n) + m log(n − 1) ≤ m (1 + log(n/m) + log(n − 1)). If the
arg-max of a row is not the optimum, P_ii ≤ ½; half a unit leaves that row along cycles, each through another row too, so m ≥
1, and ρ ≤ λ (1 + log n + log(n − 1)). ∎

**12 pairs.** On the line, where it is hardest, P*_λ takes a row to a mean over √λ of the line, n√λ points, from which n
random points wander by √(n√λ) places; of many rows the farthest by three times that, to either side. By this rule 12 pairs
are enough while 6 √(n√λ) ≤ 12, or n√λ ≤ 4.

**λ fixed.** A layer moves a potential by 2λ at most, and every second layer moves v: after L layers v lies between −λL and
λL. The arg-max is the optimum only if v_k − v_i ≤ C_ik − C_ii for all pairs, columns numbered as above: the least range of
such v is the greatest −dist(i, k), dist the length of a shortest path in these costs. Where it is more than 2λL, no such
network can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments._optimum import Optimum, optimum
from otformer.lab.experiments._problems import final, unit_cube
from otformer.lab.experiments._texts import ends
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.network.schedule import Alternating, Annealed, Schedule
from otformer.network.transformer import AligningTransformer
from otformer.transport.solve import solve

SIZES, DIMS, PROBLEMS = (32, 64, 128, 256), (1, 2, 3, 16), 3  # points per side, dimensions, problems of each
ARGMAX_SIZES = (32, 64, 128)  # where the arg-max is asked for; with `full` at every size, and at 512
REGS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
DEPTHS_TRIED = (18, 36, 72, 144, 288, 576)
BY_NETWORK = 64  # points up to which the network itself runs; the dense executor has the same numbers, without the prompt
SHORTLIST = 12  # pairs of least reduced cost, per point and side
NETWORKS: dict[str, Schedule] = {"annealed": Annealed(), "alternating": Alternating()}
FIXED_FROM = 1e-4  # smallest λ of `alternating`: a layer moves a potential by 2λ at most, so smaller ones never arrive
SCANNED = [10 ** (-k / 4) for k in range(4, 29)]  # values of λ at which λ* is looked for, from 0.1 to 1e-7
STEP = 10**-0.25  # from one of them to the next
STAGED = 72  # layers of `annealed` with one pair for each of its stages
TO_ARGMAX, TO_PAIRS, WORST = "layers to arg-max", "layers to 12 pairs", ", worst"
WITHIN_REACH = "arg-max within reach"  # problems whose potentials a network with λ from the first layer on can reach
AT_START, AT_STAGED = "pairs needed, 0 layers", f"pairs needed, {STAGED} layers"


@dataclass(frozen=True)
class Batch:
    """Problems of one n and d: points [B, n, d] in a cube of diagonal 1, costs [B, n, n], their optima and λ*."""

    x: Tensor
    y: Tensor
    C: Tensor
    optima: list[Optimum]
    sharp: list[float]  # λ*, 0 where it is below every λ scanned or was not looked for

    @property
    def best(self) -> Tensor:
        """The optimal permutations, [B, n]."""
        return torch.stack([each.best for each in self.optima])


def run(context: Context) -> Outcome:
    generator = context.generator()
    sizes = (*SIZES, 512) if context.full else SIZES
    asked = sizes if context.full else ARGMAX_SIZES
    rows, batches = [], []
    for n, d in context.each(product(sizes, DIMS)):
        batch = _problems(n, d, PROBLEMS, n in asked, generator)
        names = NETWORKS if n in asked else ("annealed",)
        rows += [
            _measured(name, reg, batch) for name, reg in product(names, REGS) if name == "annealed" or reg >= FIXED_FROM
        ]
        batches.append(batch)
    settings = {"sizes": sizes, "dims": DIMS, "regs": REGS, "depths": DEPTHS_TRIED, "arg-max asked at n": asked}
    checks = _checks(rows, batches)
    return Outcome(rows, _draw(rows, batches), _numbers(rows, batches), checks, settings)


def _numbers(rows: list[Row], batches: list[Batch]) -> Numbers:
    annealed = [row for row in rows if row["schedule"] == "annealed"]
    sharp, deepest = _sharpness(batches), DEPTHS_TRIED[-1]
    possible, found = (sum(row[key] for row in annealed) for key in ("arg-max possible", "arg-max found"))
    unmoved, moved = (sum(row["arg-max found"] for row in rows if _stays(row, name)) for name in ("alternating", "annealed"))
    missed = [f"n = {row['n']}, d = {row['d']}, λ = {row['λ']:g}" for row in annealed if row[TO_PAIRS + WORST] is None]
    return {
        "problems": rows[0]["problems"],
        "largest": max(row["n"] for row in rows),
        "limit": deepest,
        "possible": possible,
        "found": found,
        "unmoved": unmoved,
        "moved": moved,
        "missed": missed or ["none"],
        "start": max(row[AT_START] for row in annealed),
        "pairs": max(row[AT_STAGED] for row in annealed if 1e-5 <= row["λ"] <= 1e-4),
        "small": max(row[AT_STAGED] for row in annealed if row["λ"] <= 1e-3),
        "staged": max(row[AT_STAGED] for row in _wide_enough(annealed)),
        "deepest": max(row[TO_ARGMAX + WORST] or deepest for row in annealed if row["arg-max possible"]),
        "reached": sum(row[WITHIN_REACH] for row in rows if _stays(row, "alternating")),
        "sharp": ends(each for *_, each in sharp),
        "least_reg": SCANNED[-1],
        "to_gap": _range([each / best.gap for _, best, each in sharp]),
        "to_rho": _range([each / best.gap_per_row for _, best, each in sharp]),
        "sure": min(each / sure_reg(best.gap_per_row, len(best.best)) for _, best, each in sharp),
        "unknown": sum(each == 0 for batch in batches if any(batch.sharp) for each in batch.sharp),
    }


def _problems(n: int, d: int, count: int, scan: bool, generator: torch.Generator) -> Batch:
    x, y, C = unit_cube(count, n, d, generator=generator)
    C = C / d
    optima = [optimum(each) for each in C]
    sharp = [sharp_reg(each, found.best) if scan else 0.0 for each, found in zip(C, optima, strict=True)]
    return Batch(x / math.sqrt(d), y / math.sqrt(d), C, optima, sharp)


def sharp_reg(C: Tensor, best: Tensor) -> float:
    """λ*: the first λ of those scanned, falling, for which the arg-max of every row of P*_λ is the optimum; 0 if none is."""
    ones = torch.ones_like(C[0])
    plans = ((reg, solve(C, ones, ones, reg=reg, tol=1e-6 * len(C)).plan) for reg in SCANNED)
    return next((reg for reg, P in plans if torch.equal(P.argmax(1), best)), 0.0)


def potentials(batch: Batch, schedule: Schedule, reg: float, depth: int) -> tuple[Tensor, Tensor]:
    """(u, v) after the last layer of a network of that depth, [B, n] each."""
    if batch.C.shape[-1] > BY_NETWORK:
        return final(batch.C, schedule.layers(reg, depth))
    network = AligningTransformer(batch.x.shape[-1], reg, depth, schedule)
    return network(batch.x, batch.y, keep="last", warn=False).potentials()


def pairs_needed(C: Tensor, u: Tensor, v: Tensor, best: Tensor) -> Tensor:
    """The least k for which the k pairs of least reduced cost, by rows and columns, contain the optimum, [B]."""
    own, n = best[..., None], C.shape[-1]
    by_rows, by_columns = C - v[:, None, :], (C - u[:, :, None]).gather(2, best[:, None, :].expand(-1, n, -1))
    in_rows = (by_rows < by_rows.gather(2, own)).sum(2)  # pairs before (i, best_i) in row i
    in_columns = (by_columns < by_columns.diagonal(dim1=1, dim2=2)[:, None, :]).sum(1)  # and in column best_i
    return torch.minimum(in_rows, in_columns).amax(1) + 1


def _measured(name: str, reg: float, batch: Batch) -> Row:
    """The first depths at which the problems of a batch are read exactly, by one schedule and λ."""
    count, n, d = batch.x.shape
    can = torch.tensor([reg <= sharp for sharp in batch.sharp])  # of the others P*_λ itself has another arg-max
    argmax, pairs = torch.full((2, count), math.inf)
    zero = torch.zeros_like(batch.C[..., 0])
    needed = {0: int(pairs_needed(batch.C, zero, zero, batch.best).max())}
    for depth in DEPTHS_TRIED:
        u, v = potentials(batch, NETWORKS[name], reg, depth)
        right = ((batch.C - v[:, None, :]).argmin(2) == batch.best).all(1)
        least = pairs_needed(batch.C, u, v, batch.best)
        argmax[right] = argmax[right].clamp(max=depth)
        pairs[least <= SHORTLIST] = pairs[least <= SHORTLIST].clamp(max=depth)
        needed[depth] = int(least.max())
        if depth >= STAGED and bool(pairs.isfinite().all()) and bool(argmax[can].isfinite().all()):
            break
    row: Row = {"schedule": name, "run by": "network" if n <= BY_NETWORK else "executor", "n": n, "d": d, "λ": reg}
    row |= {"problems": count, AT_START: needed[0], AT_STAGED: needed[STAGED]} | _spread(TO_PAIRS, pairs)
    row |= {"arg-max possible": int(can.sum()), "arg-max found": int(argmax[can].isfinite().sum())}
    row[WITHIN_REACH] = sum(each.reach <= 2 * reg * DEPTHS_TRIED[-1] for each in batch.optima)
    return row | _spread(TO_ARGMAX, argmax[can])


def _spread(name: str, depths: Tensor) -> Row:
    """Median (the upper of two) and worst of depths; None where that is not reached, or nothing was asked for."""
    ranked = sorted(depths.tolist()) or [math.inf]
    found = {name: ranked[len(ranked) // 2], name + WORST: ranked[-1]}
    return {key: int(value) if math.isfinite(value) else None for key, value in found.items()}


def _sharpness(batches: list[Batch]) -> list[tuple[int, Optimum, float]]:
    """(d, optimum, λ*) of every problem whose λ* was found."""
    found = ((batch.x.shape[-1], *each) for batch in batches for each in zip(batch.optima, batch.sharp, strict=True))
    return [(d, best, sharp) for d, best, sharp in found if sharp]


def sure_reg(rho: float, n: int) -> float:
    """ρ/(1 + log n + log(n − 1)): below it the arg-max of P*_λ is the optimum."""
    return rho / (1 + math.log(n) + math.log(n - 1))


def _checks(rows: list[Row], batches: list[Batch]) -> dict[str, bool]:
    annealed, fixed = ([row for row in rows if row["schedule"] == name] for name in NETWORKS)
    largest = max(row["n"] for row in rows)
    nearest = max(row[AT_START] for row in rows if row["n"] == largest)
    possible, found = (sum(row[key] for row in annealed) for key in ("arg-max possible", "arg-max found"))
    at_fixed = {name: sum(row["arg-max found"] for row in rows if _stays(row, name)) for name in NETWORKS}
    return {
        "pairs": max(row[AT_STAGED] for row in _wide_enough(annealed)) <= SHORTLIST,
        "nearest": nearest > SHORTLIST,
        "sure": all(sharp >= STEP * sure_reg(best.gap_per_row, len(best.best)) for _, best, sharp in _sharpness(batches)),
        "argmax": found >= 0.8 * possible > 0,
        "fixed": 2 * at_fixed["alternating"] <= at_fixed["annealed"] > 0,
        "out_of_reach": all(row["arg-max found"] <= row[WITHIN_REACH] for row in fixed),
    }


def _wide_enough(rows: list[Row]) -> list[Row]:
    return [row for row in rows if 1e-5 <= row["λ"] <= (4 / row["n"]) ** 2]


def _stays(row: Row, name: str) -> bool:
    """Rows of one schedule at the λ, and of the sizes, at which both run."""
    return row["schedule"] == name and row["λ"] == FIXED_FROM


def _range(values: list[float]) -> str:
    return f"{min(values):.2g} to {max(values):.3g} (median {median(values):.2g})"


def _draw(rows: list[Row], batches: list[Batch]) -> figures.Figure:
    """Pairs needed, layers to the arg-max at the smallest λ, and λ* beside ρ, by dimension."""
    fig, (pairs, layers, scale) = figures.figure(11.5, 3.8, 1, 3)
    annealed = [row for row in rows if row["schedule"] == "annealed"]
    for d, colour, marker in zip(DIMS, figures.CYCLE, "osD^", strict=False):
        drawn = [row for row in annealed if row["d"] == d and row["λ"] == 1e-4]
        sizes = [row["n"] for row in drawn]
        pairs.loglog(sizes, [row[AT_STAGED] for row in drawn], "-", marker=marker, color=colour, label=f"d = {d}")
        pairs.loglog(sizes, [row[AT_START] for row in drawn], ":", marker=marker, color=colour, markerfacecolor="white")
        asked = [row for row in annealed if row["d"] == d and row["λ"] == REGS[-1] and row["arg-max possible"]]
        _depths(layers, asked, 1.06 ** (DIMS.index(d) - 1.5), colour, marker)
        points = [(best.gap_per_row, sharp) for each, best, sharp in _sharpness(batches) if each == d]
        scale.loglog(*zip(*points, strict=True), " ", marker=marker, color=colour)
    pairs.axhline(SHORTLIST, color=figures.GREY, linestyle="--", label=f"{SHORTLIST} pairs")
    pairs.plot([], [], ":", color=figures.INK, label="without layers")
    pairs.set(title="Soon few pairs contain the optimum", xlabel="n", ylabel=f"pairs per point, {STAGED} layers, λ = 1e-4")
    layers.set(title="The arg-max takes more layers", xlabel="n", xscale="log", yscale="log")
    layers.set_ylabel(f"layers at λ = {REGS[-1]:g}, median to worst")
    layers.set_yticks(DEPTHS_TRIED, [str(depth) for depth in DEPTHS_TRIED])
    for ax, those in ((pairs, rows), (layers, [row for row in rows if row["arg-max possible"]])):
        sizes = sorted({row["n"] for row in those})
        ax.set_xticks(sizes, map(str, sizes))
        ax.minorticks_off()
    ends = (1e-9, 1e-2)
    scale.loglog(ends, ends, "--", color=figures.INK, label="λ* = ρ")
    scale.set(
        title="The λ it needs falls with ρ",
        xlabel="ρ, least increase of the cost per point moved",
        ylabel="λ*, the largest λ with an exact arg-max",
    )
    handles, labels = (
        a + b for a, b in zip(pairs.get_legend_handles_labels(), scale.get_legend_handles_labels(), strict=True)
    )
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return fig


def _depths(axes: Any, rows: list[Row], shift: float, colour: str, marker: str) -> None:
    """Layers to the arg-max against n: a mark at the median problem, joined, and a line up to the worst one."""
    deepest = DEPTHS_TRIED[-1]
    medians = []
    for row in rows:
        x = row["n"] * shift
        middle, worst = (row[key] or math.inf for key in (TO_ARGMAX, TO_ARGMAX + WORST))
        axes.plot([x, x], [min(middle, deepest), min(worst, deepest)], color=colour, linewidth=1)
        if math.isinf(worst):
            figures.not_reached(axes, x, deepest, colour, marker)
        medians.append((x, middle if math.isfinite(middle) else math.nan))
    if medians:
        axes.plot(*zip(*medians, strict=True), "-", marker=marker, color=colour, linewidth=1.3)
