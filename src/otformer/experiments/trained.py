"""The constructed network beside trained ones: what training does to it, and whether the dual variables are inside."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from otformer import figures
from otformer.experiments import _trained_models as learned
from otformer.experiments import iterative
from otformer.experiments._trained_models import DISTANCE, ROWS, SIZES, at, spread
from otformer.experiments.experiment import Context, Finding, Outcome, Row
from otformer.learning.initialisation import ConstructionStart
from otformer.learning.model import LearningTransformer
from otformer.learning.recipes import recipe

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
    """How far training carried the weights that its objective reads (all but V_out)."""

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
        "training keeps or improves the accuracy of its start at n = 7, 9, 15 and 30 (medians)": all(
            right[AFTER, n].median >= right[PERTURBED, n].median for n in MEASURED
        ),
        "training keeps the dual variables: R² of u and v above 0.9 after the last layer (medians)": _holds(seen[AFTER]),
        "training improves it where it trains: nearer to P* at n = 9 than the construction (medians)": (
            last[AFTER].median < last[CONSTRUCTED].median
        ),
        "trained from the construction beats trained from noise at n = 9 and 15 (medians; another schedule too)": all(
            right[AFTER, n].median > right[FROM_NOISE, n].median for n in (9, 15)
        ),
        "the construction's last layer holds the dual variables: R² of u and v above 0.95": bool(
            (seen[CONSTRUCTED].r2[-1] > 0.95).all()
        ),
        "the paper's recipe holds them: R² of u and v above 0.9 after the last layer (medians)": _holds(seen[FROM_NOISE]),
        "sort-beyond holds them: R² of u and v above 0.9 after the last layer (medians)": _holds(seen[LOOPED]),
    }
    probed = {"n": N, "lists": KIND, "reg": iterative.REG}
    settings = {"recipes": TRAINED_NETWORKS, "sizes": [*SIZES], "problems": count, "probe": probed}
    summary = _told(seen, right, last, weights, count)
    return Outcome(_rows(seen, weights), _draw(seen), summary, checks, settings, _found(seen, right))


def _found(seen: dict[str, Seen], right: Right) -> Finding:
    inside = [label for label in TRAINED_NETWORKS if _holds(seen[label])]
    names = ", ".join(TRAINED_NETWORKS[label] for label in inside)
    return Finding(
        f"Of four trained networks {len(inside) or 'none'} can be read for the dual variables of the construction"
        f"{': ' if inside else ''}{names}",
        "A linear read-out looks for u and v in every layer. The constructed network has them after its last layer, and so "
        "has the looped one that was trained from it; separate layers trained for n = 7, from the construction or from "
        f"noise, lose them. Trained from the construction, {right[AFTER, 9].median:.0f} % of rows are right at n = 9, from "
        f"noise {right[FROM_NOISE, 9].median:.0f} %, looped {right[LOOPED, 9].median:.0f} %.",
        f"R² of u | v after the last layer: {_r2_told(seen[CONSTRUCTED].r2, -1)} constructed, "
        f"{_r2_told(seen[LOOPED].r2, -1)} sort-beyond, {_r2_told(seen[FROM_NOISE].r2, -1)} the paper's recipe",
    )


def _told(seen: dict[str, Seen], right: Right, last: dict[str, learned.Spread], weights: Moved, count: int) -> str:
    rows = {label: ", ".join(f"{right[label, n]:.0f}" for n in MEASURED) for label in seen}
    best = {label: int(each.r2.mean(-1).quantile(0.5, dim=1).argmax()) for label, each in seen.items()}  # layer, for R²
    return (
        f"{count} fresh problems of each kind; median and range of the seeds. Rows right on permutations at n = 7, 9, 15 "
        f"and 30: {'; '.join(f'{label}: {found} %' for label, found in rows.items())}. ‖A − P*‖/√n at n = {LENS_N} after "
        f"the last layer: constructed {last[CONSTRUCTED]:.2f} (λ = 0.05 blurs the plan), perturbed {last[PERTURBED]:.2f}, "
        f"trained from it {last[AFTER]:.2f}, from noise {last[FROM_NOISE]:.2f}. Layer by layer (0, 5, 10, 15, 20) that "
        f"distance is {_path_told(seen[LOOPED])} in sort-beyond and {_path_told(seen[LOOPED_NOISE])} in sort-scratch, so "
        f"looped networks do approach P*, and {_path_told(seen[AFTER])} and {_path_told(seen[FROM_NOISE])} in the two of "
        f"separate layers. Training moves the weights by {spread(weights.way):.1f} (Euclidean) from a start "
        f"{spread(weights.before):.1f} away from the construction, and ends {spread(weights.after):.1f} away from it: of "
        f"the noise it takes back {spread(100 * weights.undone):.0f} %. {_verdict(right)} From noise the training is "
        "another one too (10,000 steps of 100 samples, here 1,500 steps of all 1,000), so the start is not all that "
        f"differs between the two. R² of the linear read-out of u | v on real-valued lists of n = {N}, in the prompt "
        f"{_r2_told(seen[CONSTRUCTED].r2, 0)}, then at best and after the last layer: "
        f"{'; '.join(f'{name}: {_r2_told(each.r2, best[name])}, {_r2_told(each.r2, -1)}' for name, each in seen.items())}. "
        "A row of attention over x needs u alone, and the network looped from noise learns only u."
    )


def _holds(seen: Seen) -> bool:
    return bool((seen.r2[-1].quantile(0.5, dim=0) > 0.9).all())


def _r2_told(r2: Tensor, layer: int) -> str:
    """Of u and v at a layer, medians over the seeds."""
    return " | ".join(f"{float(each):.2f}" for each in r2[layer].quantile(0.5, dim=0))


def _path_told(seen: Seen) -> str:
    return ", ".join(f"{spread(each).median:.2f}" for each in seen.distance[::5])


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
    right.set(xlabel=ROWS, xlim=(0, 102), title="Rows right on permutations")
    near.set(xlabel=f"{DISTANCE}, n = {LENS_N}", xlim=(0, 1.4), title="Distance to P*, by layer")
    duals.set(xlabel=f"R², real-valued lists, n = {N}", xlim=(0, 1.02), title="Dual variables in the last layer")
    return fig


def _mark(axes: Any, values: Tensor, y: float, colour: str, marker: str) -> None:
    """The median of the seeds as a mark, their range as a line."""
    found = spread(values)
    axes.plot([found.least, found.most], [y, y], color=colour, linewidth=1.2, alpha=0.6)
    axes.plot(found.median, y, marker, color=colour)
