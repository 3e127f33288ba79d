"""Train what the author's notebook trains, and what stands beside it, in one go on a GPU.

    PYTHONPATH=src python -m otformer.lab.training.author_runs OUT --device cuda --minutes 9

The folder OUT gets ``weights.safetensors`` (every parameter of every network, as ``RECIPE/parameter``), ``losses.csv`` (the
logs, one line per 100 steps and seed) and ``runs.json`` (settings, stopped seeds, scores). They are written again after
every recipe, so that a run that is cut off keeps what was done. `load_run` reads a network back.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from otformer.files import written
from otformer.lab import training_loop
from otformer.lab.training.doubled_adam import doubled_as
from otformer.lab.training.evaluate import DRAWS_SIZES, Score, evaluate, interval
from otformer.lab.training.recipes import Recipe
from otformer.lab.training.recipes import recipe as named
from otformer.lab.training.shortcuts import shortcut_scores
from otformer.lab.training.train import TrainingRun
from otformer.learning.model import Architecture, LearningTransformer
from otformer.tensor_files import read_tensors, write_tensors

WEIGHTS, LOSSES, RUNS = "weights.safetensors", "losses.csv", "runs.json"
MEMBERS = {  # networks of each recipe, the most wanted first
    "author": 24,
    "author-no-prompt": 24,
    "sort-draws": 8,
    "author-two-steps": 24,
    "author-stable": 24,
    "sort-draws-sizes": 8,
    "arxiv-literal": 24,
    "author-no-prompt-corrected": 24,
    "author-clipped": 24,
    "author-single-adam": 24,
    "arxiv-literal-attention": 12,
}
KINDS = ("draws", "permutations")  # problems on which every network is scored
SCORED = ("rows", "lists", "value_rows", "value_lists", "sorted_error", "distance")
PROBLEMS = 500  # of each size, for a score
TOGETHER = 100  # problems in memory at a time
RESERVE = 20.0  # seconds for scores and files at the end


Scores = dict[int, dict[str, list[float]]]  # by size and name, of every member


@dataclass
class Trained:
    """A recipe that was trained: its networks, on the CPU, the step at which each was stopped (0: none), and its log."""

    recipe: Recipe
    net: LearningTransformer
    done: int
    seconds: float
    stopped: list[int]
    first_loss: float
    log: list[str]
    before: Scores
    scores: dict[str, Scores]

    def about(self) -> dict[str, Any]:
        """Everything but weights and log."""
        learned = torch.tensor(self.stopped) == 0
        intervals = {
            kind: {n: {name: interval(torch.tensor(own[name]), learned) for name in SCORED} for n, own in sizes.items()}
            for kind, sizes in self.scores.items()
        }
        counts = {"steps done": self.done, "finished": self.done == self.recipe.steps, "seconds": round(self.seconds, 1)}
        losses = {
            "median loss of the first step": self.first_loss,
            "stopped": self.stopped,
            "diverged": sum(map(bool, self.stopped)),
        }
        settings = json.loads(self.recipe.to_json())
        return {
            "recipe": settings,
            **counts,
            **losses,
            "draws before training": self.before,
            "scores": self.scores,
            "of those not stopped": intervals,
        }


def train_one(recipe: Recipe, members: int, device: torch.device, seconds: float) -> Trained:
    """Train a recipe from seeds 0, 1, … for so many seconds at most, and score it."""
    began, first = time.monotonic(), []

    def tell(done: int, steps: int, loss: float) -> None:
        first.append(loss)
        if done == 1 or done % 500 == 0 or done == steps:
            stopped = sum(map(bool, run.stopped))
            spent = time.monotonic() - began
            print(
                f"{recipe.name}: step {done:,} of {steps:,}, loss {loss:.3g}, {stopped} stopped, {spent:.0f} s", flush=True
            )

    with tempfile.TemporaryDirectory() as folder:
        run = TrainingRun(recipe, Path(folder), 0, members, device)
        before = scored(run.net, KINDS[0])
        training_loop.train(run, recipe.steps, seconds=seconds, progress=tell)
        log = (Path(folder) / training_loop.LOG).read_text().splitlines()[1:]
    trained_for = time.monotonic() - began
    net = run.net.requires_grad_(False)
    scores = {kind: scored(net, kind) for kind in KINDS}
    return Trained(recipe, net.cpu(), run.done, trained_for, run.stopped, first[0], log, before, scores)


def scored(net: LearningTransformer, kind: str) -> Scores:
    """Scores of every member at every size, in float64: means over fresh problems."""
    with net.P.device:
        exact = LearningTransformer(net.architecture, net.ensemble).double()
    exact.load_state_dict(net.state_dict())
    found = {}
    for n in DRAWS_SIZES:
        parts = [evaluate(exact, [n], kind=kind, problems=TOGETHER, seed=k)[0] for k in range(PROBLEMS // TOGETHER)]
        found[n] = {name: _mean(parts, name) for name in SCORED}
    return found


def _mean(parts: Iterable[Score], name: str) -> list[float]:
    """One score of every member, mean over parts of equal size; distances as roots of mean squares."""
    power = 2 if name == "distance" else 1
    values: Tensor = torch.stack([getattr(part, name) for part in parts]).pow(power).mean(0).pow(1 / power)
    return [round(value, 8) for value in values.tolist()]


def write(folder: Path, done: list[Trained], doubled: dict[str, float]) -> None:
    """Write all files of the networks so far."""
    tensors = {f"{each.recipe.name}/{name}": t for each in done for name, t in each.net.state_dict().items()}
    networks = {each.recipe.name: [asdict(each.recipe.architecture), each.net.ensemble] for each in done}
    write_tensors(folder / WEIGHTS, tensors, {"networks": networks})
    lines = ["recipe,step,seed,loss,rows,stopped", *(f"{each.recipe.name},{line}" for each in done for line in each.log)]
    shortcuts = {n: shortcut_scores(n) for n in DRAWS_SIZES}
    about = {"doubled Adam": doubled, "problems": PROBLEMS, "shortcuts": shortcuts}
    texts = {
        LOSSES: "\n".join(lines) + "\n",
        RUNS: json.dumps({**about, "runs": {each.recipe.name: each.about() for each in done}}),
    }
    for name, text in texts.items():
        with written(folder / name, ours=True) as stream:
            stream.write(text.encode())


def load_run(folder: str | Path, name: str) -> LearningTransformer:
    """All members of a recipe that was trained into a folder, in float32, without gradients."""
    tensors, metadata = read_tensors(Path(folder) / WEIGHTS)
    networks = json.loads(metadata["networks"])
    if name not in networks:
        raise ValueError(f"recipe must be one of {', '.join(networks)}, got {name!r}")
    architecture, ensemble = networks[name]
    net = LearningTransformer(Architecture(**architecture), ensemble)
    net.load_state_dict({each.split("/")[1]: t for each, t in tensors.items() if each.split("/")[0] == name})
    return net.requires_grad_(False)


def main(words: list[str] | None = None) -> None:
    """Train the recipes one after the other until the minutes are over."""
    given = _parsed(words)
    began, device, done = time.monotonic(), torch.device(given.device), list[Trained]()
    given.out.mkdir(parents=True, exist_ok=True)
    doubled = doubled_as(device)
    print(f"Adam with every parameter twice, on {device}: farthest from {doubled}", flush=True)
    for name in given.only or MEMBERS:
        left = 60 * given.minutes - (time.monotonic() - began) - RESERVE
        if left <= 0:
            print(f"{name}: not begun, the time is over", flush=True)
            continue
        recipe = named(name) if given.steps is None else replace(named(name), steps=given.steps)
        done.append(train_one(recipe, given.members or MEMBERS[name], device, left))
        write(given.out, done, doubled)
        _tell(done[-1])


def _tell(trained: Trained) -> None:
    """Print the rows and lists right on the author's data, mean of the networks that were not stopped."""
    sizes = trained.about()["of those not stopped"]["draws"]
    for name in ("rows", "lists", "value_rows", "value_lists"):
        each = ", ".join(f"{n}: {100 * own[name].get('mean', math.nan):.1f}" for n, own in sizes.items())
        print(f"{trained.recipe.name}: {name} right in % at n = {each}", flush=True)


def _parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="author_runs", description="Train the networks of the author's notebook.")
    parser.add_argument("out", type=Path, help="folder for weights, logs and scores")
    parser.add_argument("--device", default="cuda", help="cpu or cuda")
    parser.add_argument("--minutes", type=float, default=9.0, help="time limit in all; runs not started by then are skipped")
    parser.add_argument("--only", nargs="*", choices=list(MEMBERS), metavar="RECIPE", help=f"of {', '.join(MEMBERS)}")
    parser.add_argument("--members", type=int, help="networks of each recipe, for a trial")
    parser.add_argument("--steps", type=int, help="steps of each recipe, for a trial")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
