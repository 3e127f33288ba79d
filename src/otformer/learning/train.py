"""The training loop: Adam on K models at once, logged and saved every `CHUNK` steps, to be killed and resumed at will."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from otformer import checks
from otformer.learning import checkpoint, data
from otformer.learning.data import Batch
from otformer.learning.model import LearningTransformer
from otformer.learning.objectives import rows_right
from otformer.learning.recipes import Recipe
from otformer.learning.recipes import recipe as named
from otformer.learning.step import EagerStep, GraphedStep, output_of

CHUNK = 100  # steps between two lines of the log, two checkpoints and two calls of ``progress``

Progress = Callable[[int, int, float], None]  # steps done, steps in all, median loss of the members


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
    that was never stopped (with as many threads).
    """
    recipe = named(recipe) if isinstance(recipe, str) else recipe
    seed, ensemble = checks.count("seed", seed, least=0), checks.count("ensemble", ensemble)
    graphed = _kind(device) == "cuda"
    folder = Path(out)
    checkpoint.prepare(folder, resume)
    path = folder / checkpoint.CHECKPOINT
    saved = checkpoint.load(path, recipe, seed, ensemble) if resume and path.exists() else None

    net = LearningTransformer(recipe.architecture, ensemble)
    recipe.start.fill(net, seed)
    net.to(device)
    step = (GraphedStep if graphed else EagerStep)(net, recipe)
    if saved is not None:
        checkpoint.restore(saved, net, step.adam, recipe)
    done = saved.step if saved is not None else 0
    checkpoint.tidy(folder)
    log = Log(folder / checkpoint.LOG, seed, done)
    batches = Batches(recipe, seed, ensemble, device)
    while done < recipe.steps:
        count = min(CHUNK, recipe.steps - done)
        losses = torch.zeros(ensemble, device=device)
        for k, batch in enumerate(batches.chunk(done, count)):
            losses += step(batch, recipe.rate_at(done + k), recipe.loops_at(done + k)) / count
        done += count
        loss = losses.cpu()
        with torch.no_grad():
            rows = rows_right(output_of(net, batch, recipe), batch).cpu()
        log.write(done, loss, rows)
        checkpoint.save(path, net, step.adam, recipe, seed, done)
        if progress is not None:
            progress(done, recipe.steps, float(loss.median()))
    checkpoint.save_model(folder / checkpoint.MODEL, net, recipe, seed)
    return net


def _kind(device: str) -> str:
    """The kind of a device that is here: cpu, cuda or mps."""
    here = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": torch.mps.device_count()}
    try:
        named = torch.device(device)
        found = (named.index or 0) < here.get(named.type, 0)
    except (RuntimeError, TypeError):
        found = False
    if not found:
        raise ValueError(f"device must be one that this machine has, got {device!r}")
    return named.type


class Batches:
    """The batches of a run, [K, B, n, d] each. Member k sees what it would see alone: all is drawn from seed + k."""

    def __init__(self, recipe: Recipe, seed: int, ensemble: int, device: str) -> None:
        self.recipe, self.device = recipe, device
        self.seeds = range(seed, seed + ensemble)
        self.set: Batch | None = None
        if recipe.samples is not None:
            self.set = self._draw(recipe.samples, data.SET, 0)

    def _draw(self, count: int, purpose: int, start: int) -> Batch:
        """``count`` problems for every member, [K, count, …]."""
        each = [self.recipe.problems.draw(count, data.generator(s, purpose, start)) for s in self.seeds]
        return Batch(*(torch.stack(parts).to(self.device) for parts in zip(*each, strict=True)))

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


class Log:
    """``log.csv``: a line for every member and chunk. A resumed run first drops the lines behind its checkpoint."""

    HEADER = "step,seed,loss,rows\n"

    def __init__(self, path: Path, seed: int, done: int) -> None:
        self.path, self.seed = path, seed
        kept = [line for line in self._lines() if int(line.split(",")[0]) <= done] if done and path.exists() else []
        checkpoint.put(path, "".join([self.HEADER, *kept]).encode())

    def _lines(self) -> list[str]:
        """The whole lines of an earlier run: a killed one may have left a part of a line at the end."""
        header, *lines = self.path.read_bytes().decode(errors="replace").split("\n")[:-1] or [""]
        for k, line in enumerate(lines):
            try:
                step, seed, loss, rows = line.split(",")
                int(step), int(seed), float(loss), float(rows)
            except ValueError:
                raise ValueError(f"{self.path} is damaged: line {k + 2} must be four numbers, got {line[:40]!r}") from None
        if header + "\n" != self.HEADER:
            raise ValueError(f"{self.path} is damaged: line 1 must be {self.HEADER.strip()!r}, got {header[:40]!r}")
        return [line + "\n" for line in lines]

    def write(self, step: int, loss: Tensor, rows: Tensor) -> None:
        """The mean loss of the chunk and the share of right rows in its last batch, of every member."""
        with self.path.open("a") as file:
            for k, (a, b) in enumerate(zip(loss.tolist(), rows.tolist(), strict=True)):
                file.write(f"{step},{self.seed + k},{a:.6g},{b:.4f}\n")
