"""Training that can be stopped at will: one loop, one log and one form of checkpoint for every model.

A run is a folder with ``checkpoint.safetensors`` (everything to go on from), ``log.csv`` and, at the end,
``model.safetensors``. What a step does, and what is saved, is the run's own business (`Trainable`).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from otformer.files import written
from otformer.words.jobs.jobs import interrupts_held

CHECKPOINT, LOG, MODEL = "checkpoint.safetensors", "log.csv", "model.safetensors"
CHUNK = 100  # steps between two lines of the log and two checkpoints
NUMBER = r",(?:[-+.\de]+|nan|-?inf)"  # in a line of the log, behind the first
REPORT_SECONDS = 1.0  # between two calls of ``progress``
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam keeps for a parameter

Progress = Callable[[int, int, float], None]  # steps done, steps in all, median over the models of the mean loss


class Trainable(Protocol):
    """What is trained: ``step`` moves the weights, counts in ``done`` and returns the loss of every model, on its device."""

    done: int

    def step(self) -> Tensor: ...
    def log(self, loss: Tensor) -> None: ...
    def save(self) -> None: ...


def train(run: Trainable, steps: int, *, seconds: float = math.inf, progress: Progress | None = None) -> bool:
    """Train until ``steps`` steps are done, or for so many seconds; True when all are done.

    Every `CHUNK` steps, and at the end, the mean loss is logged and the run saved; so it is when the loop is broken off.
    ``progress`` is called after the first step, then about once per second, and with every line of the log.
    """
    began = time.monotonic()
    told = -math.inf
    losses: list[Tensor] = []
    try:
        while run.done < steps and time.monotonic() - began <= seconds:
            with interrupts_held():  # what is saved is the state after a whole step
                losses.append(run.step())
            full = run.done % CHUNK == 0 or run.done == steps
            if progress is not None and (full or time.monotonic() - told >= REPORT_SECONDS):
                progress(run.done, steps, float(torch.stack(losses).mean(0).median()))
                told = time.monotonic()
            if full:
                run.log(torch.stack(losses).mean(0))
                losses.clear()
                if run.done < steps:
                    run.save()
    finally:
        run.save()
    return run.done >= steps


class Log:
    """``log.csv``: numbers under a header, the step first. A resumed run drops the lines behind its checkpoint."""

    def __init__(self, folder: Path, header: str, done: int) -> None:
        self.path, lines, columns = folder / LOG, [header], header.count(",") + 1
        if done and self.path.exists():  # a killed run may have left a part of a line at the end
            lines = self.path.read_bytes().decode(errors="replace").split("\n")[:-1] or [""]
        for k, line in enumerate(lines):
            if not (re.fullmatch(rf"\d+({NUMBER}){{{columns - 1}}}", line) if k else line == header):
                wanted = f"{columns} numbers" if k else repr(header)
                raise ValueError(f"{self.path} is damaged: line {k + 1} must be {wanted}, got {line[:40]!r}")
        kept = [line for line in lines[1:] if int(line.split(",")[0]) <= done]
        with written(self.path, ours=True) as stream:
            stream.write("".join(f"{line}\n" for line in [header, *kept]).encode())

    def write(self, lines: Iterable[str]) -> None:
        """Add lines."""
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)


def moments(adam: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """Adam's state as tensors ``adam.<parameter>.<moment>``; ``names`` are those of its parameters, in order."""
    state = adam.state_dict()["state"]
    return {f"adam.{names[k]}.{each}": own[each] for k, own in state.items() for each in MOMENTS}


def load_moments(adam: torch.optim.Optimizer, names: list[str], tensors: dict[str, Tensor]) -> None:
    """Fill Adam from the tensors of `moments`; parameters without any have not been stepped."""
    state = adam.state_dict()
    state["state"] = {
        k: {each: tensors[f"adam.{name}.{each}"] for each in MOMENTS}
        for k, name in enumerate(names)
        if f"adam.{name}.step" in tensors
    }
    adam.load_state_dict(state)
