"""The training of the author's notebook, run again with many seeds, beside variants of it and a recipe of ours.

The networks were trained on a GPU by `otformer.lab.training.author_runs`; this experiment reads what ships of them
(_author_networks.py) and asks the networks themselves. After a new training

    python -m otformer.lab.experiments.author_training FOLDER …

makes the shipped files from the folders that `author_runs` wrote.

Rows are right by attention (its largest entry is on the right x) or by the returned number (the right x is the nearest one).
The author's loss sees the numbers alone. Means are over the seeds that were not stopped, intervals are Student's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor

from otformer import figures
from otformer.lab.experiments import _author_networks as author
from otformer.lab.experiments._author_networks import MOVED, Answers, Lens, Mean, gap, learned, mean
from otformer.lab.experiments._trained_models import ROWS, picture, spread
from otformer.lab.experiments.experiment import Context, Numbers, Outcome, Row
from otformer.lab.training.author_runs import LOSSES, RUNS, WEIGHTS
from otformer.lab.training.evaluate import DRAWS_SIZES

HIS, HIS_PLAIN, NO_PROMPT_CORRECTED = "author", "author-no-prompt", "author-no-prompt-corrected"
OURS, LITERAL, STABLE = "sort-draws-sizes", "arxiv-literal", "author-stable"
NAMED = {
    HIS: ("the author's, with the prompt", figures.BLUE, "-"),
    HIS_PLAIN: ("the author's, without it", figures.ORANGE, "-"),
    NO_PROMPT_CORRECTED: ("without it, output head corrected", figures.YELLOW, "--"),
    LITERAL: ("arXiv's text to the letter", figures.PURPLE, "-."),
    OURS: ("ours, trained on n = 3 to 15", figures.GREEN, "-"),
}
PRINTED_LOSSES = {  # losses in the author's notebook at steps 0, 1,000, …, 5,000
    HIS: (0.2138, 2.877e-3, 8.782e-4, 3.345e-4, 1.868e-4, 1.293e-4),
    HIS_PLAIN: (0.1608, 0.03985, 4.992e-3, 4.705e-3, 4.451e-3, 4.248e-3),
}
SCORE_NAMES = {
    "rows": "rows by attention",
    "value_rows": "rows by returned numbers",
    "lists": "lists by attention",
    "value_lists": "lists by returned numbers",
}
TAUGHT, NEARBY, DOUBLED_SIZE, LONGEST = 7, 9, 15, 30  # points: trained on, and tested on
LAYERS_PICTURED = (2, 6, 12, 18, 19)  # of the author's figure; 19 is the last
SINGLE, SINGLE_STEPS = "author-single-adam", 2_800  # not finished: its last step
OVERFLOW = 88.7  # the largest logit whose exp float32 holds


def run(context: Context) -> Outcome:
    runs = author.packed()["runs"]
    answers = {name: author.ask(name, TAUGHT, context.seed) for name in (HIS, OURS)}
    context.progress(0.4)
    duals = {name: author.read_duals(name, TAUGHT, context.seed) for name in (HIS, OURS)}
    context.progress(0.6)
    seen = {n: author.lens(HIS, n, context.seed) for n in (TAUGHT, DOUBLED_SIZE)}
    context.progress(0.8)
    nearer = {n: _nearer(each) for n, each in seen.items()}
    finals = {name: _final(runs[name]) for name in PRINTED_LOSSES}
    sizes = TAUGHT, DOUBLED_SIZE
    gaps = {(n, m, o): gap(HIS, o, n, m) for n in sizes for m in SCORE_NAMES for o in (HIS_PLAIN, NO_PROMPT_CORRECTED)}
    nearby = {measure: mean(learned(HIS, NEARBY, measure)) for measure in SCORE_NAMES}
    ours = {measure: mean(learned(OURS, LONGEST, measure)) for measure in SCORE_NAMES}
    checks = {
        "losses": all(0.5 <= finals[name] / PRINTED_LOSSES[name][-1] <= 2 for name in PRINTED_LOSSES),
        "diverges": any(runs[HIS]["stopped"]),
        "overflow": _overflow(runs[HIS]),
        "stable": not any(runs[STABLE]["stopped"]) and 0.5 <= _final(runs[STABLE]) / PRINTED_LOSSES[HIS][-1] <= 2,
        "nearby": max(nearby[measure].mean for measure in ("rows", "value_rows")) >= 90,
        "prompt": all(gaps[TAUGHT, m, o].low > 0 for m in ("rows", "value_rows") for o in (HIS_PLAIN, NO_PROMPT_CORRECTED)),
        "prompt_rows": all(gaps[DOUBLED_SIZE, "rows", o].low > 0 for o in (HIS_PLAIN, NO_PROMPT_CORRECTED)),
        "prompt_values": all(gaps[DOUBLED_SIZE, "value_rows", o].low > 0 for o in (HIS_PLAIN, NO_PROMPT_CORRECTED)),
        "ours": min(ours["rows"].mean, ours["value_rows"].mean) >= 95,
        "layers": bool(nearer[TAUGHT][-1]),
        "layers_each": bool(nearer[TAUGHT][:-1].double().mean() > 0.5),
        "layers_longer": bool(nearer[DOUBLED_SIZE][-1]),
        "relative": _stays(answers[HIS], "x + 0.1"),
        "shift": _stays(answers[HIS], "y + 1/7"),
        "duals": float(duals[HIS][-1, :, :2].mean(-1).median()) >= 0.9,
    }
    numbers = _numbers(runs, answers, duals, seen) | {
        "nearby": nearby,
        "by_table": [author.table_right(moved, TAUGHT, context.seed) for moved in ("as drawn", "x + 0.1", "x/2 + 1/4")],
        "ours": ours,
        "gaps": {f"{m}{n}": [gaps[n, m, o] for o in (HIS_PLAIN, NO_PROMPT_CORRECTED)] for n, m, _ in gaps},
    }
    rows = [*_scores(runs), *_answered(answers, duals, seen)]
    return Outcome(rows, _draw(runs, seen), numbers, checks, _settings(runs))


def _final(run: dict[str, Any]) -> float:
    """The median loss of the last step."""
    return float(run["curve"][-1][2])


def _overflow(run: dict[str, Any]) -> bool:
    """Whether the largest logit of the output head is within 2 of an overflow in every stopped seed, and in at most a third
    of the others."""
    stopped, near = np.array(run["stopped"]) > 0, np.array(run["largest logits"])[:, 1] > OVERFLOW - 2
    return bool(near[stopped].all() and near[~stopped].mean() <= 1 / 3)


def _nearer(seen: Lens) -> Tensor:
    """Whether the distance to P* falls from each layer that is pictured to the next: in every seed, [K], then the median."""
    distance = seen.distance[list(LAYERS_PICTURED)]
    both = torch.cat([distance, distance.quantile(0.5, dim=1, keepdim=True)], 1)
    return (both.diff(dim=0) < 0).all(0)


def _last_share(seen: Lens) -> float:
    """The part of the way from the first to the last pictured layer that the last layer makes, median of seeds."""
    first, before, last = (seen.distance[layer] for layer in (LAYERS_PICTURED[0], LAYERS_PICTURED[-1] - 1, -1))
    return float(((before - last) / (first - last)).quantile(0.5))


def _stays(answers: Answers, moved: str) -> bool:
    """Whether the median seed has at most 5 points fewer rows right by attention after a move."""
    before, after = (float(answers.right[each][0].median()) for each in ("as drawn", moved))
    return after >= before - 5


def _numbers(runs: dict[str, Any], answers: dict[str, Answers], duals: dict[str, Tensor], seen: dict[int, Lens]) -> Numbers:
    stopped, heads = np.array(runs[HIS]["stopped"]), np.array(runs[HIS]["largest logits"])[:, 1]
    chance = binomtest(int((stopped > 0).sum()), len(stopped)).proportion_ci(0.95)
    own = answers[HIS]
    return {
        "problems": author.packed()["problems"],
        "table": [
            {"named": label, "rows": _at_sizes(name, "rows"), "values": _at_sizes(name, "value_rows")}
            | {"whole": [mean(learned(name, TAUGHT, each)) for each in ("lists", "value_lists")]}
            for name, (label, _, _) in NAMED.items()
        ],
        "right": {f"{m}{n}": [mean(learned(name, n, m)) for name in NAMED] for m in SCORE_NAMES for n in DRAWS_SIZES},
        "shortcut": [100 * author.shortcut(n) for n in (TAUGHT, NEARBY, DOUBLED_SIZE, LONGEST)],
        "with_stopped": [float(learned(HIS, n, "rows", everyone=True).mean()) for n in (TAUGHT, NEARBY, DOUBLED_SIZE)],
        "copies": mean(learned(LITERAL, TAUGHT, "value_rows", "permutations")),
        "diverged": int((stopped > 0).sum()),
        "seeds": len(stopped),
        "between": (float(100 * chance.low), float(100 * chance.high)),
        "stopped_at": (int(stopped[stopped > 0].min()), int(stopped.max())),
        "heads": (float(heads[stopped > 0].min()), float(heads[stopped > 0].max())),
        "other_heads": spread(torch.tensor(heads[stopped == 0])),
        "above": [int((heads[chosen] > OVERFLOW).sum()) for chosen in (stopped > 0, stopped == 0)],
        "plain_heads": max(head for name in (HIS_PLAIN, NO_PROMPT_CORRECTED) for _, head in runs[name]["largest logits"]),
        "stable_seeds": len(runs[STABLE]["stopped"]),
        "stable_stopped": sum(map(bool, runs[STABLE]["stopped"])),
        "stable_loss": _final(runs[STABLE]),
        "stable_rows": mean(learned(STABLE, TAUGHT, "rows")),
        "stopped_loss": float(np.median(np.array(runs[HIS]["last losses"])[stopped > 0])),
        "final": [_final(runs[name]) for name in (HIS, HIS_PLAIN)],
        "printed": [PRINTED_LOSSES[name][-1] for name in (HIS, HIS_PLAIN)],
        "moves": [[spread(own.right[moved][by]).median for moved in MOVED] for by in (0, 1)],
        "our_moves": [spread(answers[OURS].right[moved][0]).median for moved in MOVED],
        "one_on": spread(own.one_on),
        "against": spread(own.against_table),
        "along": spread(own.with_table),
        "redrawn": spread(own.redrawn),
        "r2": [spread(duals[HIS][layer, :, :2].mean(-1)) for layer in (0, -1)],
        "our_r2": spread(duals[OURS][-1, :, :2].mean(-1)),
        "nearer": [int(_nearer(each)[:-1].sum()) for each in seen.values()],
        "last_share": _last_share(seen[TAUGHT]),
        "once": [next(line[2] for line in runs[name]["curve"] if line[0] == SINGLE_STEPS) for name in (HIS, SINGLE)],
        "far": {n: [spread(seen[n].distance[layer]).median for layer in LAYERS_PICTURED] for n in seen},
        "near": {n: [spread(seen[n].right[layer]).median for layer in LAYERS_PICTURED] for n in seen},
        "asked_seeds": own.one_on.shape[0],
        "unfinished": [
            f"{name} ({r['steps done']:,} of {r['recipe']['steps']:,} steps)"
            for name, r in runs.items()
            if not r["finished"]
        ],
    }


def _at_sizes(name: str, measure: str) -> list[Mean]:
    return [mean(learned(name, n, measure)) for n in (TAUGHT, NEARBY, DOUBLED_SIZE, LONGEST)]


def _settings(runs: dict[str, Any]) -> dict[str, Any]:
    steps = {name: f"{each['steps done']} of {each['recipe']['steps']} steps" for name, each in runs.items()}
    return {"trained": steps, "problems": author.packed()["problems"], "asked on": author.ASKED}


def _row(recipe: str, data: str, n: int, score: str, values: Any, diverged: int) -> Row:
    found = mean(values)
    median = float(np.median(np.asarray(values, dtype=float)))
    row: Row = {"recipe": recipe, "lists": data, "n": n, "score": score, **found._asdict(), "median": median}
    return row | {"seeds": len(values), "diverged": diverged}


def _scores(runs: dict[str, Any]) -> list[Row]:
    """A line for every recipe, kind of lists, size and score, in per cent."""
    return [
        _row(name, kind, int(n), SCORE_NAMES[m], learned(name, n, m, kind), sum(map(bool, each["stopped"])))
        for name, each in runs.items()
        for kind, sizes in each["scores"].items()
        for n in sizes
        for m in SCORE_NAMES
    ]


def _answered(answers: dict[str, Answers], duals: dict[str, Tensor], seen: dict[int, Lens]) -> list[Row]:
    """What was asked of the networks that ship, as lines of the same table."""
    asked: list[tuple[str, int, str, Tensor]] = []
    for name, own in answers.items():
        asked += [
            (name, TAUGHT, f"{SCORE_NAMES[m]}, {moved}", own.right[moved][by])
            for moved in MOVED
            for by, m in enumerate(("rows", "value_rows"))
        ]
        asked += [(name, TAUGHT, "rows one rank on, y + 1/7", own.one_on)]
        asked += [(name, TAUGHT, "rows right where a table is wrong", own.against_table)]
        asked += [(name, TAUGHT, "rows as the table where it is wrong", own.with_table)]
        asked += [(name, TAUGHT, "rows right, u and v drawn anew", own.redrawn)]
        asked += [
            (name, TAUGHT, f"R² of {what}, {when}", duals[name][at, :, k])
            for k, what in enumerate(("u", "v", "rank"))
            for when, at in (("prompt", 0), ("last layer", -1))
        ]
    for n, each in seen.items():
        asked += [(HIS, n, f"‖A − P*‖/√n after layer {layer}", each.distance[layer]) for layer in LAYERS_PICTURED]
        asked += [(HIS, n, f"rows right after layer {layer}", each.right[layer]) for layer in LAYERS_PICTURED]
    stopped = {name: sum(map(bool, author.packed()["runs"][name]["stopped"])) for name in answers}
    return [_row(name, "draws", n, score, values, stopped[name]) for name, n, score, values in asked]


def _draw(runs: dict[str, Any], seen: dict[int, Lens]) -> figures.Figure:
    fig, axes = figures.figure(12.5, 9, "aabbcc;defghi;jklmno", height_ratios=[1.5, 1, 1])
    _draw_losses(axes["a"], runs)
    for panel, measure, title in (("b", "rows", "Right by attention"), ("c", "value_rows", "Right by returned numbers")):
        _draw_scores(axes[panel], measure, title)
    axes["b"].legend(loc="upper right", bbox_to_anchor=(1.0, 0.9), fontsize=7)
    middle = _middle()
    for panels, (n, each) in zip(("defghi", "jklmno"), seen.items(), strict=True):
        for panel, layer in zip(panels, LAYERS_PICTURED, strict=False):
            last = layer == LAYERS_PICTURED[-1]
            picture(axes[panel], each.matrices[layer, middle], f"layer {layer}{', the last' if last else ''}")
        picture(axes[panels[-1]], each.plan, "P*")
        axes[panels[0]].set_ylabel(f"n = {n}\ny, point number")
        figures.colours(fig, axes[panels[-1]].images[0], axes[panels[-1]])
    return fig


def _middle() -> int:
    """Of the networks that ship, the one of middle accuracy at n = 7."""
    kept = author.network(HIS)[1]
    order = np.argsort([author.packed()["runs"][HIS]["scores"]["draws"][str(TAUGHT)]["rows"][k] for k in kept])
    return int(order[len(order) // 2])


def _draw_losses(ax: Any, runs: dict[str, Any]) -> None:
    for name in (HIS, HIS_PLAIN, NO_PROMPT_CORRECTED, OURS):
        _, colour, dash = NAMED[name]
        first = [1, *[runs[name]["first loss"]] * 3, 0]
        step, low, median, high, _ = zip(first, *runs[name]["curve"], strict=True)
        ax.plot(step, median, color=colour, linestyle=dash)
        ax.fill_between(step, low, high, color=colour, alpha=0.2, linewidth=0)
        if name in PRINTED_LOSSES:
            ax.plot(range(0, 5001, 1000), PRINTED_LOSSES[name], "D", color=colour, markeredgecolor=figures.INK, markersize=5)
    stopped = [(step, loss) for step, loss in zip(runs[HIS]["stopped"], runs[HIS]["last losses"], strict=True) if step]
    label = f"stopped: not a number ({len(stopped)} seeds)"
    ax.plot(*zip(*stopped, strict=True), "x", color=figures.INK, markersize=6, label=label)
    ax.plot([], [], "D", color="white", markeredgecolor=figures.INK, markersize=5, label="printed in the notebook")
    ax.set(yscale="log", xlabel="step", ylabel="squared error of the list", title="Loss: median and quartiles of seeds")
    ax.legend(fontsize=7, loc="upper right")


def _draw_scores(ax: Any, measure: str, title: str) -> None:
    for name, (label, colour, dash) in NAMED.items():
        each = [mean(learned(name, n, measure)) for n in DRAWS_SIZES]
        ax.plot(DRAWS_SIZES, [m.mean for m in each], color=colour, linestyle=dash, label=label, marker="o", markersize=3)
        ax.fill_between(DRAWS_SIZES, [m.low for m in each], [m.high for m in each], color=colour, alpha=0.2, linewidth=0)
    best = [100 * author.shortcut(n) for n in DRAWS_SIZES]
    ax.plot(DRAWS_SIZES, best, color=figures.GREY, linestyle=":", label="best table of x")
    ax.axvline(TAUGHT, color=figures.GREY, linewidth=0.8)
    ax.set(xlabel="n", xticks=DRAWS_SIZES, ylabel=ROWS, ylim=(0, 104), title=title)


def main(arguments: list[str]) -> None:
    """Make the shipped files from folders of `author_runs`."""
    wanted = (WEIGHTS, LOSSES, RUNS)
    for folder in map(Path, arguments):
        if missing := [name for name in wanted if not (folder / name).is_file()]:
            raise SystemExit(f"{folder} has no {missing[0]}: python -m otformer.lab.training.author_runs {folder}")
    if not arguments:
        raise SystemExit("folders of author_runs are expected: python -m otformer.lab.experiments.author_training FOLDER …")
    author.pack([Path(folder) for folder in arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
