"""Training K models at once: the batches, the steps and the files of a run (the loop itself is in jobs/training.py)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from otformer import checks
from otformer.files import writable_folder
from otformer.jobs import training
from otformer.jobs.training import CHUNK, Log, Progress
from otformer.learning import checkpoint, data
from otformer.learning.data import Batch
from otformer.learning.model import LearningTransformer
from otformer.learning.objectives import rows_right
from otformer.learning.recipes import Recipe
from otformer.learning.recipes import recipe as named
from otformer.learning.step import EagerStep, GraphedStep, output_of


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
    that was never stopped (with as many threads). ``progress(done, steps, loss)`` is called from the first step on.
    """
    recipe = named(recipe) if isinstance(recipe, str) else recipe
    seed, ensemble = checks.count("seed", seed, least=0), checks.count("ensemble", ensemble)
    place = checks.device(device)
    folder = writable_folder(out)
    path = folder / training.CHECKPOINT
    if not resume and path.exists():
        raise ValueError(f"out already holds a run, got {str(out)!r}: resume it, or name another folder")
    saved = checkpoint.load(path, recipe, seed, ensemble) if resume and path.exists() else None
    run = Run(recipe, folder, seed, ensemble, place, saved)
    training.train(run, recipe.steps, progress=progress)
    checkpoint.save_model(folder / training.MODEL, run.net, recipe, seed)
    return run.net


class Run:
    """The state of a training run and its folder."""

    def __init__(
        self, recipe: Recipe, folder: Path, seed: int, ensemble: int, device: torch.device, saved: checkpoint.Saved | None
    ) -> None:
        self.recipe, self.folder, self.seed = recipe, folder, seed
        self.net = LearningTransformer(recipe.architecture, ensemble)
        recipe.start.fill(self.net, seed)
        self.net.to(device)
        self.move = (GraphedStep if device.type == "cuda" else EagerStep)(self.net, recipe)
        self.done = 0
        if saved is not None:
            checkpoint.restore(saved, self.net, self.move.adam, recipe)
            self.done = saved.step
        training.tidy(folder)
        self.lines = Log(folder / training.LOG, "step,seed,loss,rows", self.done)
        self.batches = Batches(recipe, seed, ensemble, device)

    def step(self) -> Tensor:
        """One step of Adam; the losses of the members before it, [K]."""
        self.batch = self.batches.at(self.done)
        losses = self.move(self.batch, self.recipe.rate_at(self.done))
        self.done += 1
        return losses

    def log(self, loss: Tensor) -> None:
        """One line per member: its mean loss since the last line, and the share of right rows in the last batch."""
        with torch.no_grad():
            rows = rows_right(output_of(self.net, self.batch, self.recipe), self.batch)
        each = enumerate(zip(loss.tolist(), rows.tolist(), strict=True))
        self.lines.write(f"{self.done},{self.seed + k},{a:.6g},{b:.4f}" for k, (a, b) in each)

    def save(self) -> None:
        """Write a checkpoint, once there is something to save."""
        if self.done:
            path = self.folder / training.CHECKPOINT
            checkpoint.save(path, self.net, self.move.adam, self.recipe, self.seed, self.done)


class Batches:
    """The batches of a run, [K, B, n, d] each. Member k sees what it would see alone: all is drawn from seed + k."""

    def __init__(self, recipe: Recipe, seed: int, ensemble: int, device: str | torch.device) -> None:
        self.recipe, self.device = recipe, device
        self.drawn: tuple[int, list[Batch]] = (-1, [])  # the first step of a chunk, and its batches
        self.seeds = range(seed, seed + ensemble)
        self.set: Batch | None = None
        if recipe.samples is not None:
            self.set = self._draw(recipe.samples, data.SET, 0)

    def _draw(self, count: int, purpose: int, start: int) -> Batch:
        """``count`` problems for every member, [K, count, …]."""
        each = [self.recipe.problems.draw(count, data.generator(s, purpose, start)) for s in self.seeds]
        return Batch(*(torch.stack(parts).to(self.device) for parts in zip(*each, strict=True)))

    def at(self, step: int) -> Batch:
        """The batch of a step. Batches are drawn for `CHUNK` steps at a time."""
        start = step - step % CHUNK
        if self.drawn[0] != start:
            self.drawn = start, self.chunk(start, min(CHUNK, self.recipe.steps - start))
        return self.drawn[1][step - start]

    def chunk(self, start: int, count: int) -> list[Batch]:
        """The batches of ``count`` steps from step ``start`` on."""
        size = self.recipe.batch
        if self.set is not None and size == self.recipe.samples:
            return [self.set] * count
        drawn = self._draw(count * size, data.DRAW, start) if self.set is None else self._pick(self.set, count * size, start)
        parts = [t.split(size, dim=1) for t in drawn]
        return [Batch(*part) for part in zip(*parts, strict=True)]

    def _pick(self, chosen: Batch, count: int, start: int) -> Batch:
        """``count`` problems of the training set for every member, with repetition."""
        total = chosen.x.shape[1]
        drawn = [torch.randint(total, (count,), generator=data.generator(s, data.DRAW, start)) for s in self.seeds]
        picked = torch.stack(drawn).to(self.device)
        members = torch.arange(len(self.seeds), device=self.device)[:, None]
        return chosen.map(lambda t: t[members, picked])
