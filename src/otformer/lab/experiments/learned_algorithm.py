"""Is the learned network the constructed one? Logits and updates of `sort-beyond`, regressed on the terms of a head.

`deviate` measures theorem S of docs/exactness.md: how far a network is from the construction, and what follows from it.

A constructed head (network/weights.py) has logits towards token j, less that towards the sink, of

    (2 x_i y_j − x_i² − y_j² + u_i + v_j)/λ − 1:     six terms, and λ is one over the first coefficient;

and writes −γ t_i, t = tanh(½ log S), S the sum of exp of those. A learned head may write more: its value can read any
register of the tokens it attends to.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from otformer import figures
from otformer.lab.experiments import _trained_models as learned
from otformer.lab.experiments._problems import final
from otformer.lab.experiments._trained_models import ROWS, band, spread
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.lab.training.data import Batch
from otformer.learning.model import LearningTransformer
from otformer.network.schedule import Annealed, Layer
from otformer.transport.costs.distances import squared_distances
from otformer.transport.costs.matrix import Dense

RECIPE, N, TESTS = "sort-beyond", 7, (7, 15, 30)  # the network, points of the lists it is fitted on, points of the tests
TRIED = (7, 30)  # points of the lists on which theorem S is measured
KIND = "values"  # real-valued lists: no answer stands in the prompt
SIDES = (("x", "y", "u", "v"), ("y", "x", "v", "u"))  # own and other point, own and other dual, of rows and of columns
READ = ("u", "v", "spare", "x", "y")  # registers that a value may read besides the sign
SAME, IN_TURN, BY_HAND = (
    "constructed, the λ and γ found",
    "constructed, the λ found, alternating heads, ω = 1.5",
    "annealed by hand",
)
DEVIATIONS = {"ε": "logits", "ε'": "values", "written": "written"}  # of theorem S, columns of the CSV
AS_LEARNED = f"{SAME}: as the learned"


class Fitted(NamedTuple):
    """Per loop, head and seed, [L, 2, K]: λ and γ; R² of the six terms, of the tanh alone, and with all that values read."""

    reg: Tensor
    step: Tensor
    logits: Tensor
    tanh: Tensor
    values: Tensor


def run(context: Context) -> Outcome:
    count, seed = learned.problems(context), context.seed
    net = learned.load(RECIPE)
    fitted = fit(net, learned.draw(N, count, seed, KIND))
    right: dict[int, dict[str, Tensor]] = {n: compare(net, fitted, n, count, seed) for n in context.each(TESTS)}
    apart = {n: deviate(net, fitted, learned.draw(n, count, seed, KIND)) for n in TRIED}
    agreed = torch.stack([right[n][AS_LEARNED] for n in TESTS])
    logits, tanh = bool((fitted.logits >= 0.99).all()), bool((fitted.tanh.median(-1).values >= 0.9).all())
    checks = {
        "logits": logits,
        "falls": bool((fitted.reg[1:] < fitted.reg[:-1]).all()),
        "writes": tanh,
        "same_rows": bool((agreed.median(-1).values >= 95).all()),
        "one_layer": all(bool((each.written <= 1.000001 * each.allowed(fitted)).all()) for each in apart.values()),
        "short_steps": bool((fitted.step <= 2 * fitted.reg).all()),
        "useful": all(bool((each.bound < 1).all()) for each in apart.values()),
    }
    settings = {"recipe": RECIPE, "fitted on": N, "tests": TESTS, "problems": count, "lists": KIND, "theorem S": TRIED}
    numbers = _numbers(fitted, right) | _measured(fitted, apart)
    numbers |= {"count": count, "six_terms": logits, "theirs": tanh, "short": checks["short_steps"]}
    return Outcome(_rows(fitted, apart), _draw(fitted, right, apart[TRIED[-1]]), numbers, checks, settings)


def _numbers(fitted: Fitted, right: dict[int, dict[str, Tensor]]) -> Numbers:
    names = {"learned": "learned", "same": SAME, "as_learned": AS_LEARNED, "in_turn": IN_TURN, "by_hand": BY_HAND}
    first, last = (spread(fitted.reg[loop].flatten()) for loop in (0, -1))
    share = (fitted.step / fitted.reg).median(-1).values[[0, -1]]  # of the first and the last loop, [2, 2]
    return {
        "first": first,
        "last": last,
        "share": share.flatten().tolist(),
        "logits": spread(fitted.logits.flatten()),
        "tanh": [spread(fitted.tanh[:, h].flatten()) for h in (0, 1)],
        "values": spread(fitted.values.flatten()),
        "same": spread(right[15][AS_LEARNED]).median,
        "right": {key: learned.by_size({n: spread(right[n][name]) for n in TESTS}, ".0f") for key, name in names.items()},
    }


def _measured(fitted: Fitted, apart: dict[int, Deviation]) -> Numbers:
    """Theorem S: medians over loops and seeds for both heads, and the spread of the seeds, by n."""
    return {
        "longest": [spread((fitted.step[:, h] / fitted.reg[:, h]).amax(0)) for h in (0, 1)],
        "apart": [
            {
                "n": n,
                "logits": [spread(each.logits[:, h].flatten()) for h in (0, 1)],
                "values": [spread(each.values[:, h].flatten()) for h in (0, 1)],
                "bound": spread(each.bound),
                "errors": spread(each.errors),
                "actual": spread(each.actual),
            }
            for n, each in apart.items()
        ],
    }


def regress(features: Tensor, target: Tensor) -> tuple[Tensor, float]:
    """Least squares: coefficients [p] of features [..., p] for target [...], and R².

    >>> t = torch.arange(4.0, dtype=torch.float64)
    >>> c, r2 = regress(torch.stack([t, torch.ones_like(t)], -1), 3 * t + 2)
    >>> c.round(decimals=6).tolist(), round(r2, 6)
    ([3.0, 2.0], 1.0)
    """
    A, b = features.reshape(-1, features.shape[-1]), target.reshape(-1)
    c = torch.linalg.lstsq(A, b[:, None], driver="gelsd").solution[:, 0]  # gelsd: u = v = 0 in the first loop
    return c, 1 - float((b - A @ c).square().sum() / (b - b.mean()).square().sum())


@torch.no_grad()
def fit(net: LearningTransformer, batch: Batch) -> Fitted:
    """Regress every loop, head and seed on lists of a batch."""
    parts, net = [], deepcopy(net).double()
    states = net.states(batch.x.double(), batch.y.double())
    for Z, after, weights in zip(states, states[1:], net.weights(), strict=False):
        H = net.logits(Z, weights).unflatten(2, (-1, 2)).transpose(2, 3)  # [K, B, 2, T, T]
        for h, side in enumerate(SIDES):
            parts += [_fit_head(net, Z[k], after[k] - Z[k], H[k, :, h], side) for k in range(net.ensemble)]
    return Fitted(*(torch.tensor(each, dtype=torch.float64).view(-1, 2, net.ensemble) for each in zip(*parts, strict=True)))


def _fit_head(
    net: LearningTransformer, Z: Tensor, update: Tensor, H: Tensor, side: tuple[str, ...]
) -> tuple[float, float, float, float, float]:
    """λ, γ and the three R² of one head: its input Z and what was added to it [B, T, w], its logits H [B, T, T]."""
    column, tokens = net.architecture.registers.column, Z[:, :-1]
    x, y, u, v = (tokens[..., column(name)] for name in side)
    G = H[:, :-1, :-1] - H[:, :-1, -1:]
    xi, ui, yj, vj, one = x[..., :, None], u[..., :, None], y[..., None, :], v[..., None, :], torch.ones_like(G)
    terms, r2 = regress(torch.stack([2 * xi * yj, -xi * xi * one, -yj * yj * one, ui * one, vj * one, -one], -1), G)
    t, written = torch.tanh(G.logsumexp(-1) / 2), update[:, :-1, column(side[2])]
    ones = torch.ones_like(t)
    _, alone = regress(torch.stack([t, ones], -1), written)
    attended = H.softmax(-1)[:, :-1] @ Z
    c, full = regress(torch.stack([t, *(attended[..., column(name)] for name in READ), ones], -1), written)
    return 1 / float(terms[0]), -float(c[0]), r2, alone, full


def rebuilt(C: Tensor, reg: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """(u, v) of constructed layers on costs C [B, n, n], both heads in each, with their own λ and γ, [L, 2] each."""
    problem = Dense(C, torch.zeros_like(C[..., :, 0]), torch.zeros_like(C[..., 0, :]))
    u, v = problem.log_a, problem.log_b
    for (rows, columns), (by, down) in zip(reg.tolist(), step.tolist(), strict=True):
        moved = by * torch.tanh(problem.log_ratio(u, v, rows, rows=True) / 2)
        v = v - down * torch.tanh(problem.log_ratio(u, v, columns, rows=False) / 2)
        u = u - moved
    return u, v


class Deviation(NamedTuple):
    """The distance of a network from the construction with fitted λ and γ, at the network's own states.

    Per loop, head and seed, [L, 2, K]: ε of the logits (up to a constant per row), ε' of the values, the largest difference
    in what is written. Per seed, [K]: the sum of γ(2 tanh(ε/2) + ε'), the sum of those differences, and the largest
    difference of the potentials.
    """

    logits: Tensor
    values: Tensor
    written: Tensor
    bound: Tensor
    errors: Tensor
    actual: Tensor

    def allowed(self, fitted: Fitted) -> Tensor:
        """γ(2 tanh(ε/2) + ε') of every loop, head and seed, [L, 2, K]."""
        return fitted.step * (2 * torch.tanh(self.logits / 2) + self.values)


@torch.no_grad()
def deviate(net: LearningTransformer, fitted: Fitted, batch: Batch) -> Deviation:
    """Measure theorem S (docs/exactness.md) on a batch; the bounds need γ ≤ 2λ."""
    parts, net = [], deepcopy(net).double()
    column, start = net.architecture.registers.column, net.architecture.columns_written.start
    states = net.states(batch.x.double(), batch.y.double())
    for loop, (Z, after, weights) in enumerate(zip(states, states[1:], net.weights(), strict=False)):
        H = net.logits(Z, weights).unflatten(2, (-1, 2)).transpose(2, 3)[..., :-1, :]  # [K, B, 2, n, T]
        for h, side in enumerate(SIDES):
            reg, step = (t[loop, h][:, None, None] for t in (fitted.reg, fitted.step))  # [K, 1, 1]
            x, y, u, v = (Z[:, :, :-1, column(name)] for name in side)
            own = (u[..., :, None] + v[..., None, :] - (x[..., :, None] - y[..., None, :]) ** 2) / reg[..., None] - 1
            apart = H[:, :, h] - F.pad(own, (0, 1))  # the sink's logit is 0
            both = weights[1][:, None, :, column(side[2]) - start].unflatten(-1, (2, -1))
            read = Z @ both.mT  # [K, B, T, 2]
            values = (read[..., h] / -step - Z[..., column("sign")]).abs() + (read[..., 1 - h] / step).abs()
            moved = (after - Z)[:, :, :-1, column(side[2])] + step * torch.tanh(own.logsumexp(-1) / 2)
            parts.append(((apart.amax(-1) - apart.amin(-1)) / 2, values, moved.abs()))
    logits, values, written = (
        torch.stack([t.amax((1, 2)) for t in each]).unflatten(0, (-1, 2)) for each in zip(*parts, strict=True)
    )
    C, last = squared_distances(batch.x.double(), batch.y.double()), states[-1][:, :, :-1]
    actual = torch.zeros(net.ensemble, dtype=torch.float64)
    for k in range(net.ensemble):
        for name, t in zip("uv", rebuilt(C, fitted.reg[..., k], fitted.step[..., k]), strict=True):
            actual[k] = max(actual[k], (last[k, ..., column(name)] - t).abs().max())
    found = Deviation(logits, values, written, actual, written.amax(1).sum(0), actual)
    return found._replace(bound=found.allowed(fitted).amax(1).sum(0))


@torch.no_grad()
def compare(net: LearningTransformer, fitted: Fitted, n: int, count: int, seed: int) -> dict[str, Tensor]:
    """Percent of rows (y) with the right x, [K]: the learned network and constructed ones of as many layers."""
    batch = learned.draw(n, count, seed, KIND)
    C = squared_distances(batch.x.double(), batch.y.double())
    own = net(batch.x.to(net.P), batch.y.to(net.P)).attention.argmax(-1)  # [K, B, n]

    def chosen(u: Tensor, v: Tensor) -> Tensor:
        return (u[..., :, None] + v[..., None, :] - C).argmax(-2)

    one_reg = fitted.reg.log().mean(1).exp().T.tolist()  # [K, L]: a layer of a schedule has one λ for both heads
    turns = [[Layer(r, 3 * r * (k % 2 == 0), 3 * r * (k % 2)) for k, r in enumerate(each)] for each in one_reg]
    same = torch.stack([chosen(*rebuilt(C, fitted.reg[..., k], fitted.step[..., k])) for k in range(net.ensemble)])
    found = {
        "learned": own,
        SAME: same,
        IN_TURN: torch.stack([chosen(*final(C, layers)) for layers in turns]),
        BY_HAND: chosen(*final(C, Annealed().layers(0.001, len(fitted.reg))))[None],
    }
    right = {name: 100 * (rows == batch.target).double().mean((-2, -1)) for name, rows in found.items()}
    return right | {AS_LEARNED: 100 * (same == own).double().mean((-2, -1))}


def _rows(fitted: Fitted, apart: dict[int, Deviation]) -> list[Row]:
    loops, _, seeds = fitted.reg.shape
    shown = {f"{name}, n = {n}": getattr(each, part) for n, each in apart.items() for name, part in DEVIATIONS.items()}
    return [
        {"seed": k, "loop": loop, "head": head}
        | {name: float(t[loop, h, k]) for name, t in (fitted._asdict() | shown).items()}
        for k in range(seeds)
        for loop in range(loops)
        for h, head in enumerate(("rows", "columns"))
    ]


def _draw(fitted: Fitted, right: dict[int, dict[str, Tensor]], apart: Deviation) -> figures.Figure:
    fig, ((anneal, explained), (score, off)) = figures.figure(10, 8.6, 2, 2)
    allowed = apart.allowed(fitted)
    loops = range(1, len(fitted.reg) + 1)
    for h, (head, colour) in enumerate((("rows", figures.BLUE), ("columns", figures.ORANGE))):
        band(anneal, loops, fitted.reg[:, h], f"λ, head {head}", colour)
        band(anneal, loops, fitted.step[:, h], f"γ, head {head}", colour, "--")
        band(explained, loops, fitted.tanh[:, h], f"update, tanh alone, {head}", colour)
        band(off, loops, apart.written[:, h], f"measured, {head}", colour)
        band(off, loops, allowed[:, h], f"theorem S, {head}", colour, "--")
    band(explained, loops, fitted.logits.flatten(1), "logits, six terms", figures.INK, "--")
    band(explained, loops, fitted.values.flatten(1), "update, all that is read", figures.GREEN, "-.")
    anneal.set(yscale="log", xlabel="loop", title="The learned λ falls: annealing")
    explained.set(xlabel="loop", ylabel="R²", ylim=(-0.05, 1.05), title="Logits are explained, updates only in part")
    for name, colour, dash in zip(("learned", SAME, IN_TURN, BY_HAND), figures.CYCLE, ("-", "--", "-.", ":"), strict=False):
        band(score, TESTS, torch.stack([right[n][name] for n in TESTS]), name, colour, dash)
    score.set(xlabel="n", ylabel=ROWS, ylim=(0, 102), title="With its λ, alternating heads do better")
    off.set(
        yscale="log",
        xlabel="loop",
        ylabel="largest difference",
        title=f"Theorem S allows more than is there, n = {TRIED[-1]}",
    )
    for ax in (anneal, explained, off):
        ax.set_xticks([1, *range(5, len(loops) + 1, 5)])
    for ax in (anneal, explained, score, off):
        columns = 1 if ax is score else 2  # its names are long
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=columns, fontsize=7)  # bands fill the panels
    return fig
