"""Linear attention beside softmax attention (section 3 of the paper: the one for least squares, the other for matching).

The section on linear attention of docs/exactness.md has the theorem: without a softmax in its layers no network gives P*_λ
for all points from n = 3 on. It also says what the constructed network computes without its softmax.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from otformer import figures
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.lab.training.data import TEST, Batch, Problems, generator
from otformer.lab.training.initialisation import ConstructionStart, GaussianStart, Start
from otformer.lab.training.objectives import rows_right
from otformer.lab.training.recipes import Recipe
from otformer.lab.training.step import EagerStep
from otformer.lab.training.train import batches
from otformer.learning.model import HEADS, Architecture, LayerWeights, LearningTransformer
from otformer.network.schedule import Gradient
from otformer.network.transformer import AligningTransformer
from otformer.statistics import student
from otformer.transport.solve import solve

REG, SIZES, BUILT_LISTS = 0.05, (2, 3, 5, 9, 15), 100  # of the construction: λ, numbers in a list, lists of each size
CORNERS = (2, 3, 8)  # n of the proof's family
SPREADS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)  # s of the proof's family, λ = 1
TRAINED_ON, LONGER = 5, 9  # numbers in a list
STEPS, MEMBERS, TRAINING_LAYERS = 200, 4, 4  # of Adam; seeds; layers
SOFTMAX, LINEAR = ATTENTIONS = ("softmax", "linear")
ATTENTION_COLOURS = {SOFTMAX: figures.BLUE, LINEAR: figures.ORANGE}
STARTS: dict[str, tuple[Start, Architecture]] = {
    "random weights": (GaussianStart(), Architecture(depth=TRAINING_LAYERS, sink="frozen")),
    "the construction": (
        ConstructionStart(reg=REG, noise=0.1),
        Architecture(depth=TRAINING_LAYERS, tied=True, written="memory", sink="frozen", temperature=True),
    ),
}
TRIALS = {  # numbers in a list, factor on points
    f"n = {TRAINED_ON}, as trained": (TRAINED_ON, 1.0),
    f"n = {LONGER}": (LONGER, 1.0),
    f"n = {TRAINED_ON}, points doubled": (TRAINED_ON, 2.0),
}
AS_TRAINED, _, DOUBLED = TRIALS
EACH_SEED = "rows right in %, each seed"


class LinearAligningTransformer(AligningTransformer):
    """The aligning transformer with the mean of logit times value in the place of softmax attention.

    >>> net = LinearAligningTransformer(dim=1, reg=0.1, depth=60, schedule=Gradient(step=0.05))
    >>> net([[0.9], [0.1]], [[0.2], [0.6]], warn=False).attention(-1).argmax(1)       # two points: the plan itself
    tensor([1, 0])
    """

    def block(self, Z: Tensor, layer: int) -> Tensor:
        k, T = int(self.layer[layer]), Z.shape[1] - 1
        update = (self.logits(Z, layer) / T @ (Z[:, None] @ self.W_V[k].to(Z)) @ self.W_O[k].to(Z)).sum(1)
        update[:, -1] = 0  # the frozen sink
        return Z + update


class LinearLearningTransformer(LearningTransformer):
    """The trainable transformer with linear attention in its layers; its output head stays a softmax."""

    def block(self, Z: Tensor, weights: LayerWeights, bias: Tensor | None = None) -> Tensor:
        K, B, T, w = Z.shape
        mixed = self.logits(Z, weights, bias) / T @ Z  # [K, B, T·2, w]
        update = (mixed.view(K, B * T, HEADS * w) @ weights[1]).unflatten(1, (B, T))
        columns = self.architecture.columns_written
        return Z + F.pad(update[..., : T - 1, :], (columns.start, w - columns.stop, 0, 1))  # the frozen sink


LEARNERS = {SOFTMAX: LearningTransformer, LINEAR: LinearLearningTransformer}


def run(context: Context) -> Outcome:
    built = [_construct(n, context.seed) for n in SIZES]
    family = [{"n": n, "s": s, "log(p/q) − s²": corner(n, s) - s * s} for n in CORNERS for s in SPREADS]
    cases = [(start, kind) for start in STARTS for kind in ATTENTIONS]
    trained = [row for start, kind in context.each(cases) for row in _train(start, kind, context.seed)]
    gaps = {start: _gap(trained, start, AS_TRAINED) for start in STARTS}
    limits = {n: next(row for row in family if (row["n"], row["s"]) == (n, SPREADS[-1])) for n in CORNERS}
    checks = {
        "centred": all(
            row["distance to doubly centred"] < 1e-9 and (row["n"] > 2 or row["|A − P*_λ|"] < 1e-9) for row in built
        ),
        "two_placed": all(abs(row[LINEAR] - 2 / row["n"]) < 0.01 and row[SOFTMAX] > 0.9 for row in built if row["n"] > 2),
        "no_polynomial": all(abs(row["log(p/q) − s²"] - 0.5 * math.log(n - 1)) < 1e-3 for n, row in limits.items()),
        **{
            f"trained {STEPS} steps from {start}: softmax has more rows right (95 % interval of the gap above 0)": low > 0
            for start, (_, low, _) in gaps.items()
        },
        "doubled": all(_gap(trained, start, DOUBLED)[0] > 0 for start in STARTS),
    }
    settings = {"λ": REG, "sizes": SIZES, "lists": BUILT_LISTS, "steps": STEPS, "seeds": MEMBERS, "layers": TRAINING_LAYERS}
    rows = [*({"part": "constructed", **row} for row in built), *({"part": "no polynomial", **row} for row in family)]
    rows += [{"part": "trained", **row} for row in trained]
    names = dict.fromkeys(name for row in rows for name in row)
    rows = [{name: row.get(name) for name in names} for row in rows]
    means = [{"start": start, "test": test, **_means(trained, start, test)} for start in STARTS for test in TRIALS]
    numbers: Numbers = {
        "built": built,
        "largest": max(built, key=lambda row: row["n"]),
        "trained": means,
        "gaps": [{"start": start, "gap": list(gap)} for start, gap in gaps.items()],
        "ahead": " and from ".join(start for start, (_, low, _) in gaps.items() if low > 0) or "neither start",
    }
    return Outcome(rows, _draw(built, family, trained), numbers, checks, settings)


def _means(rows: list[Row], start: str, test: str) -> dict[str, float]:
    """Rows right of both kinds, mean of the seeds."""
    return {kind: fmean(_scores(rows, start, kind, test)) for kind in ATTENTIONS}


def _construct(n: int, seed: int) -> Row:
    """Rows right of both constructed networks on random lists, and what linear layers arrive at."""
    batch = Problems(("values",), (n,)).draw(BUILT_LISTS, generator(seed, TEST, n))
    x, y = batch.x.double(), batch.y.double()
    linear = LinearAligningTransformer(1, REG, 60, Gradient(step=REG / 2))(x, y, warn=False, keep="last")
    network = AligningTransformer(1, 0.1 / n**2, 40 * n, "annealed")(x, y, warn=False, keep="last")
    C = (x - y.mT) ** 2
    R = C - C.mean(1, keepdim=True) - C.mean(2, keepdim=True) + C.mean((1, 2), keepdim=True)
    A, ones = linear.attention(-1), torch.ones(n, dtype=torch.float64)
    plan = solve(C[0], ones, ones, reg=REG, tol=1e-10).plan
    row: Row = {"n": n, SOFTMAX: _placed(network.attention(-1), batch), LINEAR: _placed(A, batch)}
    row["distance to doubly centred"] = float((A - torch.softmax(-R / REG, -1)).abs().max())
    return row | {"|A − P*_λ|": float((A[0] - plan).abs().max())}


def _placed(A: Tensor, batch: Batch) -> float:
    """The share of places j whose number x_i is the one that row i looks for; A has x on its rows, ``target`` y."""
    columns = A.argmax(-1)  # [B, n]: the place of each x
    return float((columns.gather(1, batch.target) == torch.arange(A.shape[-1])).double().mean())


def corner(n: int, s: float) -> float:
    """log(P_11/P_12) of the plan for x = y = (s, 0, …, 0) at λ = 1, from p + (n−1)q = 1 = q + (n−1)r and pr = q² e^{2s²}.

    The last is (1 − (n−1)q)(1 − q) = (n−1) q² e^{2s²}, a quadratic in q.

    >>> abs(corner(5, 0.0)) < 1e-12, round(corner(2, 1.0), 12)
    (True, 1.0)
    """
    m = n - 1
    a, b = m - m * math.exp(2 * s * s), -(m + 1)
    q = 1 / (m + 1) if abs(a) < 1e-12 else (-b - math.sqrt(b * b - 4 * a)) / (2 * a)
    return math.log((1 - m * q) / q)


def _train(start: str, kind: str, seed: int) -> list[Row]:
    """Members trained from one start, and their rows right in every test, in per cent."""
    first, architecture = STARTS[start]
    numbers = Problems(("values",), (TRAINED_ON,))
    recipe = Recipe(
        kind, "", architecture, numbers, "entropy", STEPS, 3e-2, "cosine", samples=None, batch=48, start=first, clip=1.0
    )
    net = LEARNERS[kind](architecture, MEMBERS)
    first.fill(net, seed)
    move = EagerStep(net, recipe)
    for k, batch in enumerate(batches(recipe, range(seed, seed + MEMBERS), "cpu")):
        move(batch, recipe.rate_at(k))
    return [{"start": start, "kind": kind, "test": test, EACH_SEED: _score(net, *TRIALS[test])} for test in TRIALS]


@torch.no_grad()
def _score(net: LearningTransformer, n: int, factor: float) -> list[float]:
    """Rows right in per cent, of each member on the same fresh lists."""
    fresh = Problems(("values",), (n,)).draw(200, generator(0, TEST, n))
    return [round(100 * share, 1) for share in rows_right(net(factor * fresh.x, factor * fresh.y), fresh).tolist()]


def _scores(rows: list[Row], start: str, kind: str, test: str) -> list[float]:
    wanted = {"start": start, "kind": kind, "test": test}
    return next(list(row[EACH_SEED]) for row in rows if wanted.items() <= row.items())


def _gap(rows: list[Row], start: str, test: str) -> tuple[float, float, float]:
    """Softmax less linear in points of per cent, paired by seed: the mean, and Student's interval."""
    pairs = zip(*(_scores(rows, start, kind, test) for kind in ATTENTIONS), strict=True)
    gaps = [a - b for a, b in pairs]
    return fmean(gaps), *student(gaps)


def _draw(built: list[Row], family: list[Row], trained: list[Row]) -> figures.Figure:
    fig, ((left, middle), random_and_built) = figures.figure(10, 7.4, 2, 2)
    sizes = [row["n"] for row in built]
    for kind, colour in ATTENTION_COLOURS.items():
        left.plot(sizes, [100 * row[kind] for row in built], "o-", color=colour, label=kind)
    left.plot(sizes, [200 / n for n in sizes], ":", color=figures.INK, label="2/n")
    left.set(xlabel="n", ylabel="numbers in their place, %", ylim=(0, 103), title="Without softmax only 2 of n are placed")
    for n in CORNERS:
        curve = [row for row in family if row["n"] == n]
        line = middle.plot([row["s"] for row in curve], [row["log(p/q) − s²"] for row in curve], "o-", label=f"n = {n}")
        middle.axhline(0.5 * math.log(n - 1), color=line[0].get_color(), linestyle=":", linewidth=1)
    middle.set(xlabel="s", ylabel=figures.mathtext("log(P_{11}/P_{12}) − s²"))
    middle.set_title("The plan levels off, as no polynomial does")
    for axes, start in zip(random_and_built, STARTS, strict=True):
        _bars(axes, trained, start)
    for axes in (left, middle, *random_and_built):
        axes.legend()
    return fig


def _bars(axes: Any, trained: list[Row], start: str) -> None:
    """Rows right after training from one start: a group of bars for each test, with a dot for each seed."""
    for kind, shift in ((SOFTMAX, -0.2), (LINEAR, 0.2)):
        found = [_scores(trained, start, kind, test) for test in TRIALS]
        places = [k + shift for k in range(len(TRIALS))]
        axes.bar(places, [fmean(each) for each in found], 0.38, color=ATTENTION_COLOURS[kind], label=kind)
        for place, each in zip(places, found, strict=True):
            axes.plot([place] * len(each), each, ".", color=figures.INK, markersize=3)
    axes.set_xticks(range(len(TRIALS)), [test.replace(", ", ",\n") for test in TRIALS])
    axes.axhline(100 / TRAINED_ON, color=figures.GREY, linewidth=0.8, label=f"chance, n = {TRAINED_ON}")
    gap, low, _ = _gap(trained, start, AS_TRAINED)
    verdict = "softmax is ahead" if low > 0 else "no clear difference" if gap > 0 else "softmax is not ahead"
    axes.set(ylabel=f"rows right after {STEPS} steps, %", ylim=(0, 103), title=f"From {start}: {verdict}")
