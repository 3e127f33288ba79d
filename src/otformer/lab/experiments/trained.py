"""The constructed network beside trained ones: what training does to it, and whether the dual variables are inside."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from otformer import figures
from otformer.lab.experiments import _trained_models as learned
from otformer.lab.experiments import iterative
from otformer.lab.experiments._trained_models import DISTANCE, ROWS, SIZES, at, spread
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.lab.training.initialisation import ConstructionStart
from otformer.lab.training.recipes import recipe
from otformer.learning.model import LearningTransformer

CONSTRUCTED, PERTURBED = "constructed, λ = 0.05", "the same with noise 0.1: before training"
AFTER, FROM_NOISE = "trained from it (paper-from-construction)", "trained from noise (paper-attention)"
LOOPED, LOOPED_NOISE = "looped, from it (sort-beyond)", "looped, from noise (sort-scratch)"
Right = dict[tuple[str, int], learned.Spread]  # label and n -> percent of rows right
START = "paper-from-construction"  # the recipe whose weights before and after training are compared
TRAINED_NETWORKS = {AFTER: START, FROM_NOISE: "paper-attention", LOOPED: "sort-beyond", LOOPED_NOISE: "sort-scratch"}
LOOKS = {
    CONSTRUCTED: figures.INK,
    PERTURBED: figures.GREY,
    AFTER: figures.BLUE,
    FROM_NOISE: figures.ORANGE,
    LOOPED: figures.GREEN,
    LOOPED_NOISE: figures.PURPLE,
}
N, LENS_N = 7, 9  # points in a probe's problems, and under the lens
MEASURED = (7, 9, 15, 30)  # points at which rows right are told
KIND = "values"  # of the probe's problems: potentials that depend on the whole list


class Seen(NamedTuple):
    """One network: rows right [sizes, K], the lens's distance [L+1, K], R² of u and v [L+1, K, 2]."""

    rows: Tensor
    distance: Tensor
    r2: Tensor


def constructed(name: str, noisy: bool) -> LearningTransformer:
    """The construction that a recipe starts from: exact, or every seed's perturbed copy as it was before training."""
    start = recipe(name).start
    assert isinstance(start, ConstructionStart)
    net = LearningTransformer(recipe(name).architecture, learned.load(name).ensemble if noisy else 1)
    (start if noisy else ConstructionStart(start.reg, start.step)).fill(net, seed=0)
    return net.requires_grad_(False)


def see(label: str, net: LearningTransformer, count: int, seed: int) -> Seen:
    """Accuracy against n, and every layer through the lens and the probe."""
    name = TRAINED_NETWORKS.get(label)  # of a recipe that other experiments may have measured already
    each = (learned.score(name, n, count, seed) if name else learned.measure(net, n, count, seed) for n in SIZES)
    rows = torch.stack([found[ROWS] for found in each])
    batch = learned.draw(LENS_N, count, seed)
    far = iterative.lens(net, net.states(batch.x, batch.y), batch).distance
    fitted, tested = learned.draw(N, count, seed, KIND, iterative.FITTED), learned.draw(N, count, seed, KIND)
    return Seen(rows, far, iterative.probe(net, fitted, tested)[1])


class Moved(NamedTuple):
    """Weights of a recipe, [K] each: ‖start − construction‖, ‖end − construction‖, ‖end − start‖; the share of the first
    that the last takes back."""

    before: Tensor
    after: Tensor
    way: Tensor
    undone: Tensor


def moved(name: str) -> Moved:
    """The distance that training moved the weights that its objective reads (all but V_out)."""

    def flat(net: LearningTransformer) -> Tensor:
        return torch.cat([t.flatten(1) for t in (net.P, net.V, net.P_out)], dim=1)

    exact, start, end = (flat(each) for each in (constructed(name, False), constructed(name, True), learned.load(name)))
    noise, left, way = start - exact, end - exact, end - start
    undone = -(way * noise).sum(1) / noise.square().sum(1)
    return Moved(noise.norm(dim=1), left.norm(dim=1), way.norm(dim=1), undone)


def run(context: Context) -> Outcome:
    count, seed = learned.problems(context), context.seed
    networks = {CONSTRUCTED: constructed(START, noisy=False), PERTURBED: constructed(START, noisy=True)}
    networks |= {label: learned.load(name) for label, name in TRAINED_NETWORKS.items()}
    seen = {label: see(label, net, count, seed) for label, net in context.each(networks.items(), 0.9)}
    weights = moved(START)
    right = {(label, n): spread(at(each.rows, n)) for label, each in seen.items() for n in MEASURED}
    last = {label: spread(each.distance[-1]) for label, each in seen.items()}
    checks = {
        "accuracy": all(right[AFTER, n].median >= right[PERTURBED, n].median for n in MEASURED),
        "duals_kept": _holds(seen[AFTER]),
        "nearer": last[AFTER].median < last[CONSTRUCTED].median,
        "beats_noise": all(right[AFTER, n].median > right[FROM_NOISE, n].median for n in (9, 15)),
        "duals_constructed": bool((seen[CONSTRUCTED].r2[-1] > 0.95).all()),
        "duals_paper": _holds(seen[FROM_NOISE]),
        "duals_beyond": _holds(seen[LOOPED]),
    }
    probed = {"n": N, "lists": KIND, "reg": iterative.REG}
    settings = {"recipes": TRAINED_NETWORKS, "sizes": [*SIZES], "problems": count, "probe": probed}
    return Outcome(_rows(seen, weights), _draw(seen), _numbers(seen, right, weights) | {"count": count}, checks, settings)


def _numbers(seen: dict[str, Seen], right: Right, weights: Moved) -> Numbers:
    keys = ("constructed", "perturbed", "after", "noise", "looped", "looped_noise")
    networks = [_summary(label, each, [right[label, n] for n in MEASURED]) for label, each in seen.items()]
    inside = [TRAINED_NETWORKS[label] for label in TRAINED_NETWORKS if _holds(seen[label])]
    return {
        **dict(zip(keys, networks, strict=True)),
        "networks": networks,
        "inside": len(inside) or "none",
        "names": f": {', '.join(inside)}" if inside else "",
        "weights": {name: spread(values) for name, values in weights._asdict().items()},
        "undone": spread(100 * weights.undone),
        "verdict": _verdict(right),
    }


def _summary(label: str, seen: Seen, rows: list[learned.Spread]) -> Numbers:
    """Rows right by size, distance by layer, and medians of R² of u and v in the prompt, at best and at the end."""
    r2 = seen.r2.quantile(0.5, dim=1)  # [L+1, 2]
    best = int(seen.r2.mean(-1).quantile(0.5, dim=1).argmax())
    return {
        "label": label,
        "rows": rows,
        "distance": spread(seen.distance[-1]),
        "path": [spread(each).median for each in seen.distance[::5]],
        "prompt": r2[0].tolist(),
        "best": r2[best].tolist(),
        "last": r2[-1].tolist(),
    }


def _holds(seen: Seen) -> bool:
    return bool((seen.r2[-1].quantile(0.5, dim=0) > 0.9).all())


def _verdict(right: Right) -> str:
    change = {n: right[AFTER, n].median - right[PERTURBED, n].median for n in MEASURED}
    sizes = {"gains": [n for n in MEASURED if change[n] > 0], "loses": [n for n in MEASURED if change[n] < 0]}
    parts = [f"{word} at n = {', '.join(map(str, found))}" for word, found in sizes.items() if found]
    return f"Against its start, training on n = 7 {' and '.join(parts) or 'changes nothing'}."


def _rows(seen: dict[str, Seen], weights: Moved) -> list[Row]:
    """Long form: network, measure, at which n or layer, and the seeds."""
    lines: list[tuple[str, str, int | None, Tensor]] = []
    for label, each in seen.items():
        lines += [(label, f"{ROWS} (at n)", n, at(each.rows, n)) for n in SIZES]
        lines += [(label, f"{DISTANCE}, n = {LENS_N} (at layer)", k, t) for k, t in enumerate(each.distance)]
        for j, potential in enumerate("uv"):
            lines += [(label, f"R² of {potential} (at layer)", k, t[:, j]) for k, t in enumerate(each.r2)]
    words = ("‖start − construction‖", "‖end − construction‖", "‖end − start‖", "share of the noise taken back")
    lines += [(AFTER, f"weights: {word}", None, t) for word, t in zip(words, weights, strict=True)]
    return [{"network": a, "measure": b, "at": k} | learned.columns("seeds", t) for a, b, k, t in lines]


def _draw(seen: dict[str, Seen]) -> figures.Figure:
    """A row for each network, as the caption of the report has it."""
    fig, (right, near, duals) = figures.figure(12, 4.6, 1, 3)
    for y, (label, each) in enumerate(seen.items()):
        colour = LOOKS[label]
        for n, marker, shift in ((9, "o", -0.12), (30, "s", 0.12)):
            _mark(right, at(each.rows, n), y + shift, colour, marker)
        for layer, marker, shift in ((0, "o", -0.2), (10, "s", 0.0), (20, "D", 0.2)):
            _mark(near, each.distance[layer], y + shift, colour, marker)
        for k, marker, shift in ((0, "o", -0.12), (1, "s", 0.12)):
            _mark(duals, each.r2[-1, :, k].clamp(min=0), y + shift, colour, marker)
    for ax, named in ((right, ("n = 9", "n = 30")), (near, ("layer 0", "layer 10", "layer 20")), (duals, ("u", "v"))):
        for name, marker in zip(named, "osD", strict=False):
            ax.plot([], [], marker, color=figures.INK, label=name)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
        ax.set_yticks(range(len(seen)), list(seen))
        ax.invert_yaxis()
        ax.tick_params(labelleft=ax is right)
        ax.grid(visible=False, axis="y")
    right.set(xlabel=f"{ROWS}, permutations", xlim=(-3, 103), title="Looped networks keep most at n = 30")
    near.set(xlabel=f"{DISTANCE}, n = {LENS_N}", xlim=(-0.04, 1.4), title="Looped networks arrive at P*")
    duals.set(xlabel=f"R², real-valued lists, n = {N}", xlim=(-0.03, 1.03), title="Separate layers lose u and v")
    return fig


def _mark(axes: Any, values: Tensor, y: float, colour: str, marker: str) -> None:
    """The median of the seeds as a mark, their range as a line."""
    found = spread(values)
    axes.plot([found.least, found.most], [y, y], color=colour, linewidth=1.2, alpha=0.6)
    axes.plot(found.median, y, marker, color=colour)
