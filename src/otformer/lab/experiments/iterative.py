r"""Figure 2 (3) of the paper: does attention move towards P* layer by layer? Three ways of looking at every layer.

``heads``     the layer's own attention, rows over the n points; the better of its two heads and of the two orientations
              (points y or points x on the rows), chosen for each seed and layer by its distance to P*: a generous reading.
``lens``      the output head applied to the layer's state: what the network would answer if it stopped there.
``read-out``  the best linear read-out of the dual variables. With Z̄ and (ū, v̄) the states and the entropic potentials of a
              problem, each less its mean over the points (attention does not see the mean), W = argmin ‖Z̄ W − (ū, v̄)‖² over
              training problems; then on fresh problems R² of Z̄ W, and the attention softmax_j((û_j − (y_i − x_j)²)/λ).

On permutations of the grid a potential is a function of the point's own number, so that x and x² in the prompt tell much of
it before the first layer. On real-valued lists it depends on the whole list: that is the test of the read-out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments import _trained_models as learned
from otformer.lab.experiments._problems import final
from otformer.lab.experiments._texts import joined
from otformer.lab.experiments._trained_models import LAYERS_SHOWN, band, spread
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.lab.training.data import Batch
from otformer.learning.model import HEADS as MODEL_HEADS
from otformer.learning.model import LearningTransformer
from otformer.network.schedule import Relaxed
from otformer.transport.costs.distances import squared_distances

NAME = "paper-attention"
TRAINED, TESTED = 7, 9  # points
REG, SOLVER_LAYERS = 0.05, 400  # of the potentials: the construction's λ
FITTED = 5  # purpose of the random numbers that a probe is fitted on, see data.generator
HEADS, LENS, READ_OUT = "the layer's own heads", "the output head on the layer's state", "linear read-out of u"


class View(NamedTuple):
    """What one way of looking sees: matrices [L, K, n, n] of the first problem, distance and share of rows right [L, K]."""

    matrices: Tensor
    distance: Tensor
    rows: Tensor


def view(A: Tensor, batch: Batch) -> View:
    """Compare attention A [L, K, B, n, n], rows y, with P*."""
    far = (A - batch.plan()).square().sum((-2, -1)).mean(-1) / A.shape[-1]
    return View(A[..., 0, :, :], far.sqrt(), (A.argmax(-1) == batch.target).double().mean((-2, -1)))


@torch.no_grad()
def heads(net: LearningTransformer, states: list[Tensor], batch: Batch) -> View:
    """The best head of every layer 1 … L."""
    n = batch.x.shape[-2]
    logits = [net.logits(Z, weights) for Z, weights in zip(states, net.weights(), strict=False)]
    both = torch.stack(logits).unflatten(3, (-1, MODEL_HEADS))[..., :n, :, :n].softmax(-1).movedim(4, 0)  # without the sink
    straight, across = view(both, batch), view(both, batch._replace(target=batch.target.argsort(-1)))  # P* transposed
    across = across._replace(matrices=across.matrices.mT)
    all_four = [torch.cat(parts) for parts in zip(straight, across, strict=True)]  # [4, L, K, ...]: heads, orientations
    best = all_four[1].argmin(0, keepdim=True)
    return View(*(part.take_along_dim(best.view(*best.shape, *[1] * (part.ndim - 3)), 0)[0] for part in all_four))


@torch.no_grad()
def lens(net: LearningTransformer, states: list[Tensor], batch: Batch) -> View:
    """The output head on the states of layers 0 … L."""
    return view(torch.stack([net.output(Z).attention for Z in states]), batch)


def potentials(batch: Batch) -> Tensor:
    """Entropic potentials (u, v) at λ = `REG` by our solver, each less its mean over the points, [B, n, 2], float64."""
    u, v = final(squared_distances(batch.x.double(), batch.y.double()), Relaxed(omega=1.5).layers(REG, SOLVER_LAYERS))
    return centred(torch.stack([u, v], dim=-1))


def centred(t: Tensor) -> Tensor:
    """Subtract the mean over the points."""
    return t - t.mean(-2, keepdim=True)


@torch.no_grad()
def probe(net: LearningTransformer, fitted: Batch, tested: Batch) -> tuple[Tensor, Tensor]:
    """Linear read-outs of (u, v) from every layer, fitted on some problems: values [L+1, K, B, n, 2] on the tested ones, and
    R² [L+1, K, 2]."""
    wanted, true = potentials(fitted).flatten(0, 1), potentials(tested)
    values = []
    for known, fresh in zip(net.states(fitted.x, fitted.y), net.states(tested.x, tested.y), strict=True):
        X, Z = (centred(t[..., : b.x.shape[-2], :].double()) for t, b in ((known, fitted), (fresh, tested)))
        X = X.flatten(1, 2)  # [K, B·n, w]
        W = torch.linalg.lstsq(X, wanted.expand(len(X), *wanted.shape), driver="gelsd").solution
        values.append(Z @ W[:, None])
    read = torch.stack(values)
    return read, 1 - (read - true).square().sum((2, 3)) / true.square().sum((0, 1))


def read_out(values: Tensor, batch: Batch) -> View:
    """Attention with the potentials u read from the layers 0 … L, values [L+1, K, B, n, 2]."""
    C = squared_distances(batch.y.double(), batch.x.double())
    return view(((values[..., None, :, 0] - C) / REG).softmax(-1), batch)


class Looks(NamedTuple):
    """All three ways on the same problems, up to the last layer; R² on both kinds of lists."""

    views: dict[str, View]
    floor: float  # distance to P* of the read-out with the true u: λ > 0 blurs the plan
    r2: dict[str, Tensor]

    def layers(self, way: str) -> range:
        """The layers that it looks at."""
        total = len(self.views[LENS].rows)
        return range(total - len(self.views[way].rows), total)

    def at(self, way: str, layer: int) -> View:
        """One layer, without the first axis."""
        return View(*(part[self.layers(way).index(layer)] for part in self.views[way]))


def look(name: str, n: int, count: int, seed: int) -> Looks:
    """Look at all seeds of a shipped model on fresh permutations of size n; probes are fitted on n = 7."""
    net, batch = learned.load(name), learned.draw(n, count, seed)
    with torch.no_grad():
        states = net.states(batch.x, batch.y)
    kinds = ("permutations", "values")
    pairs = {kind: (learned.draw(TRAINED, count, seed, kind, FITTED), learned.draw(n, count, seed, kind)) for kind in kinds}
    probes = {kind: probe(net, fitted, tested) for kind, (fitted, tested) in pairs.items()}
    views = {HEADS: heads(net, states, batch), LENS: lens(net, states, batch)}
    views[READ_OUT] = read_out(probes["permutations"][0], batch)
    floor = float(read_out(potentials(batch)[None, None], batch).distance)
    return Looks(views, floor, {kind: probes[kind][1] for kind in kinds})


class Moves(NamedTuple):
    """One way of looking at layers 5, 15 and 20: whether ‖A − P*‖ falls, and the rows right rise, twice, in most seeds."""

    told: str
    nearer: bool
    righter: bool


def moves(looks: Looks, way: str) -> Moves:
    """Test whether the shown layers approach P* in most seeds."""
    shown = [looks.at(way, layer) for layer in LAYERS_SHOWN]
    far, right = (torch.stack([each[k] for each in shown]) for k in (1, 2))  # [3, K]
    nearer, righter = (int((change < 0).all(0).sum()) for change in (far.diff(dim=0), -right.diff(dim=0)))
    seeds = far.shape[1]
    told = (
        f"{', '.join(f'{spread(each):.2f}' for each in far)}, falling in {nearer} of {seeds} seeds; rows right "
        f"{', '.join(f'{spread(100 * each).median:.0f}' for each in right)} %, rising in {righter}"
    )
    return Moves(told, 2 * nearer > seeds, 2 * righter > seeds)


def run(context: Context) -> Outcome:
    count = learned.problems(context)
    looks = look(NAME, TESTED, count, context.seed)
    context.progress(0.9)
    told = {way: moves(looks, way) for way in looks.views}
    r2 = _median(looks.r2["values"].mean(-1))  # of u and v together, [L+1]
    steps = "from layer 5 to 15 to 20 in most seeds"
    checks = {f"{way}: nearer to P* {steps}": told[way].nearer for way in told}
    checks |= {f"{way}: more rows right {steps}": told[way].righter for way in (HEADS, LENS)}
    checks["the layers add the dual variables: R² after the last is 0.1 above the prompt's (real-valued lists)"] = bool(
        r2[-1] > r2[0] + 0.1
    )
    settings = {"recipe": NAME, "n": TESTED, "problems": count, "reg": REG, "probe": f"fitted on n = {TRAINED}"}
    return Outcome(_rows(looks), _draw(looks, context), _numbers(looks, told, count), checks, settings)


def _numbers(looks: Looks, moved: dict[str, Moves], count: int) -> Numbers:
    nearest, answers = (_median(looks.views[way].distance) for way in (HEADS, LENS))
    ways = [way for way in moved if moved[way].nearer]
    return {
        "count": count,
        "seeds": looks.views[LENS].rows.shape[1],
        "floor": looks.floor,
        "uniform": learned.uniform(TESTED),
        "moves": moved[HEADS].nearer,
        "told": [moved[way].told for way in (HEADS, LENS, READ_OUT)],
        "nearer": f"Only {joined(ways)} come" if ways else "Nothing comes",
        "near": ways or ["none of the three"],
        "right": [way for way in moved if moved[way].righter] or ["none of the three"],
        "nearest": (1 + int(nearest.argmin()), float(nearest.min())),
        "late": float((answers[-6] - answers[-1]) / (answers[0] - answers[-1])),
        "prompt": spread(looks.at(READ_OUT, 0).distance).median,
        "paths": [[spread(looks.at(way, k).distance).median for k in LAYERS_SHOWN] for way in (HEADS, LENS)],
        "r2": {kind: _ends_and_best(_median(values.mean(-1))) for kind, values in looks.r2.items()},  # of u and v together
    }


def _ends_and_best(r2: Tensor) -> Numbers:
    """R² [L+1] in the prompt, after the last layer, and in the best layer."""
    return {"first": float(r2[0]), "last": float(r2[-1]), "best": float(r2.max()), "layer": int(r2.argmax())}


def _median(values: Tensor) -> Tensor:
    """Over the seeds, [layers] of [layers, K]."""
    return values.double().quantile(0.5, dim=1)


def _rows(looks: Looks) -> list[Row]:
    rows: list[Row] = []
    for layer in looks.layers(LENS):
        row: Row = {"layer": layer}
        for way in looks.views:
            known = looks.at(way, layer) if layer in looks.layers(way) else None
            for measure, k in (("distance", 1), ("rows right", 2)):
                row |= learned.columns(f"{way}: {measure}", None if known is None else known[k])
        for kind, r2 in looks.r2.items():
            for k, potential in enumerate("uv"):
                row |= learned.columns(f"R² of {potential}, {kind}", r2[layer, :, k])
        rows.append(row)
    return rows


def pictures(axes: Any, looks: Looks, way: str, member: int, target: Tensor) -> None:
    """Layers 5, 15 and 20 of one seed, and P*, in a row of four panels."""
    for ax, layer in zip(axes, LAYERS_SHOWN, strict=False):
        learned.picture(ax, looks.at(way, layer).matrices[member], f"layer {layer}")
    learned.picture(axes[3], target, "P*")
    axes[0].set_ylabel(f"{way}\ny, point number")


def _draw(looks: Looks, context: Context) -> figures.Figure:
    fig, axes = figures.figure(10, 6.4, "abcd;nnuu", height_ratios=[1, 1.15])
    count = learned.problems(context)
    target = learned.draw(TESTED, count, context.seed).plan()[0]
    pictures([axes[panel] for panel in "abcd"], looks, HEADS, learned.middle(NAME, TESTED, count, context.seed), target)
    figures.colours(fig, axes["d"].images[0], axes["d"])
    near, contains = axes["n"], axes["u"]
    for (way, seen), colour, dash in zip(looks.views.items(), figures.CYCLE, ("-", "--", "-."), strict=False):
        band(near, looks.layers(way), seen.distance, way, colour, dash)
    near.axhline(learned.uniform(TESTED), color=figures.GREY, linewidth=0.8, linestyle=":", label="uniform rows")
    near.set(ylabel=learned.DISTANCE, ylim=(0, 1.4), title="Distance to P*: only the last layers' answers fall")
    for k, (potential, colour, dash) in enumerate((("u", figures.BLUE, "-"), ("v", figures.ORANGE, "--"))):
        r2 = looks.r2["values"][..., k].clamp(min=-0.1)
        band(contains, range(len(r2)), r2, f"read-out of {potential}", colour, dash)
    contains.set(ylabel="R² on real-valued lists", ylim=(-0.1, 1.02), title="The dual variables are not built up")
    for ax in (near, contains):
        ax.set(xlabel="layer", xticks=looks.layers(LENS)[::5])
        ax.legend(loc="lower left" if ax is near else "upper right")
    return fig
