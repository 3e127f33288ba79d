r"""The networks of the author's notebook as they ship, and what is asked of them.

``data/author_training.json`` has the scores of every seed, thinned loss curves and the seeds that were stopped;
``data/author_training.safetensors`` the weights of the seeds of some recipes that were not stopped. Those of `HALVED` are
rounded to float16, which moves the share of rows right of a seed by less than 0.2 points. Both files are made from folders
of `otformer.lab.training.author_runs`:

    python -m otformer.lab.experiments.author_training FOLDER …

What does a network do? Three rules give the same answers on the author's lists, or nearly, and differ when points move:

================ ============ ============= ==================================================
rule             x + 0.1      x/2 + 1/4     y + 1/7, one place on
================ ============ ============= ==================================================
a table of x     falls        falls         moves on
counting         stays        stays         moves on: row i takes the x of rank i + 1
transport        stays        stays         stays: the optimal plan does not see a shift of y
================ ============ ============= ==================================================

"A table of x" gives each number a place of its own (`shortcuts`). "Counting" gives x_j the number of smaller ones, and y_i
is the address of rank i. Dual descent is transport: its answer may depend on differences alone.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import ttest_ind
from torch import Tensor

from otformer.files import written
from otformer.lab.experiments.iterative import FITTED, centred, potentials
from otformer.lab.training.author_runs import LOSSES, RUNS, load_run
from otformer.lab.training.data import TEST, Batch, Problems, generator
from otformer.lab.training.shortcuts import lookup
from otformer.learning.model import Architecture, LearningTransformer, Output
from otformer.statistics import student
from otformer.tensor_files import read_tensors, write_tensors

PACKED = Path(__file__).with_name("data") / "author_training"
WITH_WEIGHTS, HALVED = ("author", "sort-draws-sizes"), ("author",)  # recipes whose weights ship, and those in float16
SHARES = ("rows", "value_rows", "lists", "value_lists")
CURVE_STEP = 200  # steps between points of a loss curve
STRESS = 5  # batches of 1,000 lists, as in a step of training, whose largest logits are kept
ASKED = 300  # lists of n points on which a question is asked
PLACE = 1 / 7  # the distance of neighbours y at the size that the author trains on
MOVED: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "as drawn": lambda x, y: (x, y),
    "x + 0.1": lambda x, y: (x + 0.1, y),
    "x/2 + 1/4": lambda x, y: (x / 2 + 0.25, y),
    "y + 1/7": lambda x, y: (x, y + PLACE),
}


# ── Files ──


def pack(folders: Sequence[Path], to: Path = PACKED) -> None:
    """Write both files from folders of `author_runs`; of a recipe in several folders the last counts."""
    runs: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    networks: dict[str, Any] = {}
    for folder in folders:
        found = json.loads((folder / RUNS).read_text(encoding="utf-8"))
        logs = _logs(folder / LOSSES)
        for name, run in found["runs"].items():
            net = load_run(folder, name)
            bare = net.architecture.softmax == "bare"
            runs[name] = _packed(run, logs[name]) | ({"largest logits": _largest_logits(net)} if bare else {})
            if name in WITH_WEIGHTS:
                seeds = [k for k, step in enumerate(run["stopped"]) if not step]
                networks[name] = [run["recipe"]["architecture"], seeds]
                rounded = net.half() if name in HALVED else net
                tensors |= {f"{name}/{each}": t[seeds] for each, t in rounded.state_dict().items()}
    about = {"problems": found["problems"], "shortcuts": found["shortcuts"], "runs": runs}
    with written(to.with_suffix(".json")) as file:
        file.write((json.dumps(about, separators=(",", ":")).replace('},"', '},\n"') + "\n").encode())
    write_tensors(to.with_suffix(".safetensors"), tensors, {"networks": networks})


def _packed(run: dict[str, Any], log: dict[int, dict[int, tuple[float, bool]]]) -> dict[str, Any]:
    """Settings, stopped seeds, loss curve and scores of one recipe."""
    steps = [step for step in log if step % CURVE_STEP == 0 or step == run["steps done"]]
    curve = []
    for step in steps:
        losses = torch.tensor([loss for loss, stopped in log[step].values() if not stopped], dtype=torch.float64)
        low, middle, high = losses.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
        curve.append([step, *(float(f"{each:.4g}") for each in (low, middle, high)), len(losses)])
    last = {seed: loss for each in log.values() for seed, (loss, stopped) in each.items() if not stopped}
    scores = {
        kind: {n: {name: [round(x, 5) for x in own[name]] for name in SHARES} for n, own in sizes.items()}
        for kind, sizes in run["scores"].items()
    }
    kept = ("recipe", "steps done", "finished", "seconds", "stopped")
    first = {
        "first loss": run["median loss of the first step"],
        "last losses": [float(f"{last[k]:.4g}") for k in sorted(last)],
    }
    return {key: run[key] for key in kept} | first | {"curve": curve, "scores": scores}


def _logs(file: Path) -> dict[str, dict[int, dict[int, tuple[float, bool]]]]:
    """recipe → step → seed → (loss, whether it was stopped before)."""
    found: dict[str, dict[int, dict[int, tuple[float, bool]]]] = defaultdict(lambda: defaultdict(dict))
    with file.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            found[row["recipe"]][int(row["step"])][int(row["seed"])] = float(row["loss"]), row["stopped"] != "0"
    return found


@torch.no_grad()
def _largest_logits(net: LearningTransformer) -> list[list[float]]:
    """Of every seed the largest logit of its layers, and of its output head, on `STRESS` batches of lists of 7."""
    net, parts = deepcopy(net).double(), []
    for k in range(STRESS):
        batch = drawn(7, 1_000, k)
        states = net.states(batch.x, batch.y, memory=batch.memory)
        layers = [net.logits(Z, weights).amax((1, 2, 3)) for Z, weights in zip(states, net.weights(), strict=False)]
        parts.append(torch.stack([torch.stack(layers).amax(0), net.output(states[-1]).logits.amax((1, 2, 3))], -1))
    return [[round(each, 1) for each in pair] for pair in torch.stack(parts).amax(0).tolist()]


@cache
def packed() -> dict[str, Any]:
    """What the JSON file holds."""
    found: dict[str, Any] = json.loads(PACKED.with_suffix(".json").read_text(encoding="utf-8"))
    return found


@cache
def network(name: str) -> tuple[LearningTransformer, list[int]]:
    """The networks of a recipe that ship, in float64, and their seeds."""
    tensors, about = read_tensors(PACKED.with_suffix(".safetensors"))
    architecture, seeds = json.loads(about["networks"])[name]
    net = LearningTransformer(Architecture(**architecture), len(seeds))
    net.load_state_dict({each.split("/")[1]: t for each, t in tensors.items() if each.split("/")[0] == name})
    return net.double().requires_grad_(False), seeds


# ── Scores ──


class Mean(NamedTuple):
    """Mean over seeds and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __format__(self, form: str) -> str:
        return f"{self.mean:{form}} ({self.low:{form}} to {self.high:{form}})"


def mean(values: Any) -> Mean:
    """Mean of some seeds, with Student's interval, cut at 0 and 100 per cent.

    >>> mean([1.0, 1.0]), mean([99.0, 100.0]).high
    (Mean(mean=1.0, low=1.0, high=1.0), 100.0)
    """
    kept = np.asarray(values, dtype=float)
    low, high = student(kept) if np.ptp(kept) > 0 else (kept[0], kept[0])
    return Mean(float(kept.mean()), max(float(low), 0.0), min(float(high), 100.0))


def learned(name: str, n: int, measure: str, kind: str = "draws", everyone: bool = False) -> Any:
    """A score in per cent of every seed that was not stopped; with ``everyone`` of all, the stopped at their last good."""
    run = packed()["runs"][name]
    return 100 * np.array(run["scores"][kind][str(n)][measure])[(np.array(run["stopped"]) == 0) | everyone]


def gap(name: str, other: str, n: int, measure: str) -> Mean:
    """A recipe minus another, in points; the interval is Welch's."""
    one, two = learned(name, n, measure), learned(other, n, measure)
    low, high = ttest_ind(one, two, equal_var=False).confidence_interval(0.95)
    return Mean(float(one.mean() - two.mean()), float(low), float(high))


def shortcut(n: int) -> float:
    """The share of rows right by the best rule that does not compare numbers."""
    return max(packed()["shortcuts"][str(n)][rule]["rows"] for rule in ("nearest", "lookup", "table"))


# ── Questions ──


def drawn(n: int, count: int, seed: int, purpose: int = TEST) -> Batch:
    """Fresh lists of the author's data with starts of u and v, in float64."""
    batch = Problems(("draws",), (n,)).draw(count, generator(seed, purpose, n), memory=True)
    return batch._replace(x=batch.x.double(), y=batch.y.double(), memory=batch.memory.double())


def picked(net: LearningTransformer, batch: Batch, moved: str = "as drawn") -> tuple[Tensor, Tensor]:
    """The column of every row by attention and by the returned number, [K, B, n] each, after a move of the points."""
    x, y = MOVED[moved](batch.x, batch.y)
    output: Output = net(x, y, memory=batch.memory)
    return output.logits.argmax(-1), (output.points - x.mT).abs().argmin(-1)


def share(chosen: Tensor, wanted: Tensor) -> Tensor:
    """Per cent of rows, [K], of columns [K, B, n]."""
    return 100 * (chosen == wanted).double().mean((-2, -1))


class Answers(NamedTuple):
    """Per cent of rows, [K]: right by attention and by number after each move; one rank on after y + 1/7; right, and as the
    table has it, where a table is wrong; right with u and v drawn anew."""

    right: dict[str, tuple[Tensor, Tensor]]
    one_on: Tensor
    against_table: Tensor
    with_table: Tensor
    redrawn: Tensor


def ask(name: str, n: int, seed: int) -> Answers:
    """Ask the networks of a recipe on lists of n."""
    net, batch, other = network(name)[0], drawn(n, ASKED, seed), drawn(n, ASKED, seed + 1)
    found = {moved: picked(net, batch, moved) for moved in MOVED}
    right = {moved: (share(a, batch.target), share(b, batch.target)) for moved, (a, b) in found.items()}
    table = lookup(batch.x[..., 0])
    wrong, own = table != batch.target, found["as drawn"][0]
    against, along = (100 * (own == wanted)[:, wrong].double().mean(1) for wanted in (batch.target, table))
    on = share(found["y + 1/7"][0][..., :-1], batch.target[..., 1:])
    redrawn = picked(net, batch._replace(memory=other.memory))[0]
    return Answers(right, on, against, along, share(redrawn, batch.target))


def table_right(moved: str, n: int, seed: int) -> float:
    """Per cent of rows right by `shortcuts.lookup`, after a move of the points."""
    batch = drawn(n, ASKED, seed)
    return float(share(lookup(MOVED[moved](batch.x, batch.y)[0][..., 0]), batch.target))


def read_duals(name: str, n: int, seed: int) -> Tensor:
    """R² of linear read-outs of the dual variables u, v and of the rank of x from every layer, [L+1, K, 3], on fresh lists.

    All as in `iterative.probe`: potentials at λ = 0.05, everything less its mean over the points.
    """
    net, fitted, tested = network(name)[0], drawn(n, ASKED, seed, FITTED), drawn(n, ASKED, seed)
    known, true = (_wanted(batch) for batch in (fitted, tested))
    parts = []
    states = (net.states(batch.x, batch.y, memory=batch.memory) for batch in (fitted, tested))
    for before, fresh in zip(*states, strict=True):
        X, Z = (centred(t[..., :n, :]).flatten(1, 2) for t in (before, fresh))  # [K, B·n, w]
        W = torch.linalg.lstsq(X, known.expand(len(X), *known.shape), driver="gelsd").solution
        parts.append(1 - (Z @ W - true).square().sum(1) / true.square().sum(0))
    return torch.stack(parts)


def _wanted(batch: Batch) -> Tensor:
    """u, v and the rank of x, each less its mean, [B·n, 3]."""
    rank = batch.target.argsort(-1).double()[..., None]
    return torch.cat([potentials(batch), centred(rank)], -1).flatten(0, 1)


class Lens(NamedTuple):
    """The output head on the state after each layer 0 … L: attention of one list [L+1, K, n, n] beside its P* [n, n];
    ‖A − P*‖/√n and per cent of rows right, [L+1, K]."""

    matrices: Tensor
    plan: Tensor
    distance: Tensor
    right: Tensor


def lens(name: str, n: int, seed: int) -> Lens:
    """Look at the networks of a recipe as the author's figure does: the sink is masked."""
    net, batch = network(name)[0], drawn(n, ASKED, seed)
    outputs = [net.output(Z) for Z in net.states(batch.x, batch.y, memory=batch.memory)]
    far = [((out.attention - batch.plan()).square().sum((-2, -1)).mean(-1) / n).sqrt() for out in outputs]
    right = [share(out.logits.argmax(-1), batch.target) for out in outputs]
    first = torch.stack([out.attention[:, 0] for out in outputs])
    return Lens(first, batch.plan()[0], torch.stack(far), torch.stack(right))
