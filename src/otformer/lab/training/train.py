"""Training K models at once: the batches, the steps and the files of a run (the loop itself is in lab/training_loop.py)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import groupby, islice, repeat
from pathlib import Path

import torch
from torch import Tensor

from otformer import checks
from otformer.files import writable_folder
from otformer.lab import training_loop
from otformer.lab.training import checkpoint, data
from otformer.lab.training.data import Batch
from otformer.lab.training.objectives import rows_right
from otformer.lab.training.recipes import Recipe
from otformer.lab.training.recipes import recipe as named
from otformer.lab.training.step import EagerStep, GraphedStep, output_of
from otformer.lab.training_loop import CHUNK, Log, Progress
from otformer.learning.model import LearningTransformer
from otformer.locks import LOCK, held

LARGEST_ENSEMBLE = 256  # models: each has up to 100,000 problems of its own, 12 MB


def train(
    recipe: Recipe | str,
    out: str | Path,
    *,
    seed: int = 0,
    ensemble: int = 1,
    device: str = "cpu",
    resume: bool = False,
    progress: Progress | None = None,
) -> LearningTransformer:
    """Train ``ensemble`` models, from seeds seed, seed + 1, …, and return them.

    The folder ``out`` gets ``log.csv``, ``checkpoint.safetensors`` and at the end ``model.safetensors`` (see trained.py).
    With ``resume`` the run goes on from the checkpoint, if there is one; on the CPU it ends with the very weights of a run
    that was never stopped (with as many threads). While a run works in the folder, another is refused.
    ``progress(done, steps, loss)`` is called from the first step on. A member that diverges is stopped and keeps the last
    weights whose loss was good; a warning, the log and the model's file say when.
    """
    recipe = named(recipe) if isinstance(recipe, str) else recipe
    seed, ensemble = checks.count("seed", seed, least=0), checks.count("ensemble", ensemble, most=LARGEST_ENSEMBLE)
    place = checks.device(device)
    folder = writable_folder(out)
    with held(folder / LOCK, out):
        if not resume and (folder / training_loop.CHECKPOINT).exists():
            raise ValueError(f"out already holds a run, got {str(out)!r}: resume it, or name another folder")
        run = TrainingRun(recipe, folder, seed, ensemble, place)
        training_loop.train(run, recipe.steps, progress=progress)
        checkpoint.save_model(folder / training_loop.MODEL, run.net, recipe, seed, run.stopped)
    _tell_stopped(run)
    return run.net


def _tell_stopped(run: TrainingRun) -> None:
    """Warn of members that diverged."""
    stopped = [f"{run.seed + k} at step {step:,}" for k, step in enumerate(run.stopped) if step]
    if stopped:
        count = f"{len(stopped)} of {run.net.ensemble} models diverged and were stopped, at their last good weights"
        warnings.warn(f"{count}: seed {', '.join(stopped)}", stacklevel=3)


class TrainingRun:
    """The state of a training run and its folder, where it goes on from the checkpoint, if there is one."""

    def __init__(self, recipe: Recipe, folder: Path, seed: int, ensemble: int, device: torch.device) -> None:
        self.recipe, self.path, self.seed, self.done = recipe, folder / training_loop.CHECKPOINT, seed, 0
        self.net = LearningTransformer(recipe.architecture, ensemble).to(device)
        self.move = (GraphedStep if device.type == "cuda" else EagerStep)(self.net, recipe)
        if self.path.exists():
            self.done = checkpoint.load(self.path, self.net, self.move, recipe, seed)
        else:
            recipe.start.fill(self.net, seed)
            self.move.guard.begin()
        self.lines = Log(folder, "step,seed,loss,rows,stopped", self.done)
        self.batches = batches(recipe, range(seed, seed + ensemble), device, self.done)

    def step(self) -> Tensor:
        """One step of Adam; the losses of the members before it, [K]."""
        self.batch = next(self.batches)
        losses = self.move(self.batch, self.recipe.rate_at(self.done))
        self.done += 1
        return losses

    def log(self, loss: Tensor) -> None:
        """One line per member: its mean loss since the last line (nan: it diverged), the share of right rows in the last
        batch, and the step at which it was stopped, or 0."""
        with torch.no_grad():
            rows = rows_right(output_of(self.net, self.batch, self.recipe), self.batch)
        loss = loss.masked_fill(self.move.guard.stopped > 0, torch.nan)
        each = enumerate(zip(loss.tolist(), rows.tolist(), self.stopped, strict=True))
        self.lines.write(f"{self.done},{self.seed + k},{a:.6g},{b:.4f},{c}" for k, (a, b, c) in each)

    @property
    def stopped(self) -> list[int]:
        """The step at which each member was stopped, for it diverged; 0: it was not."""
        return self.move.guard.stopped.tolist()

    def save(self) -> None:
        """Write a checkpoint, once there is something to save."""
        if self.done:
            checkpoint.save(self.path, self.net, self.move, self.recipe, self.seed, self.done)


def batches(recipe: Recipe, seeds: range, device: str | torch.device, step: int = 0) -> Iterator[Batch]:
    """The batches of a run from ``step`` on, [K, B, n, d] each. Member k sees what it would see alone, from its own seed.

    They are drawn for `CHUNK` steps at a time, or for as long as a batch serves.
    """
    size, memory = recipe.batch, recipe.architecture.memory == "random"

    def draw(count: int, purpose: int, start: int) -> Batch:
        each = [recipe.problems.draw(count, data.generator(s, purpose, start), memory) for s in seeds]
        return Batch(*(torch.stack(parts).to(device) for parts in zip(*each, strict=True)))

    if recipe.redraw is not None:
        for which, served in groupby(range(step, recipe.steps), recipe.batch_at):
            yield from repeat(draw(size, data.DRAW, which), len(list(served)))
        return
    chosen = None if recipe.samples is None else draw(recipe.samples, data.SET, 0)
    if chosen is not None and size == recipe.samples:  # the whole set in every step
        yield from repeat(chosen, recipe.steps - step)
        return
    members = torch.arange(len(seeds), device=device)[:, None]
    for start in range(step - step % CHUNK, recipe.steps, CHUNK):
        count = min(CHUNK, recipe.steps - start) * size
        if chosen is None:
            drawn = draw(count, data.DRAW, start)
        else:  # with repetition
            each = [torch.randint(len(chosen.x[0]), (count,), generator=data.generator(s, data.DRAW, start)) for s in seeds]
            picked = torch.stack(each).to(device)
            drawn = Batch(*(t[members, picked] for t in chosen))
        steps = zip(*(t.split(size, dim=1) for t in drawn), strict=True)
        yield from (Batch(*parts) for parts in islice(steps, max(0, step - start), None))
