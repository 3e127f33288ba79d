"""The training loop of translators and encoder: AdamW, a warm-up and a cosine, averaged weights; to be stopped at will.

    rate(t) = rate · min(t / warm, ½ (1 + cos πt/T)),      average ← average + (1 − β_t)(weights − average),
    β_t = min(0.999, (1 + t)/(10 + t))

On a GPU the network computes in bfloat16; the weights that are learnt, their gradients' norm and their average are float32.

A run is a folder with ``state.pt`` (everything to go on from), ``log.csv`` and, at the end, ``model.safetensors``: the
averaged weights in the small form of ship.py. ``snapshots/`` holds those of steps on the way, for curves against time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from otformer.files import writable_folder, written
from otformer.jobs.jobs import interrupts_held
from otformer.words.training.batches import Array
from otformer.words.training.export import small

CHUNK = 100  # steps between two lines of the log
Progress = Callable[[int, int, float], None]  # steps done, steps in all, loss


class Task(Protocol):
    """What is trained: a network, batches and a loss."""

    rate: float
    warm: int
    steps: int

    def build(self) -> Any: ...
    def batches(self, seed: int, start: int) -> Any: ...
    def loss(self, network: Any, numbers: Array) -> Tensor: ...


def train(
    task: Task,
    out: Path,
    steps: int,
    *,
    device: str = "cpu",
    seed: int = 0,
    seconds: float = math.inf,
    snapshots: tuple[int, ...] = (),
    progress: Progress | None = None,
    half: bool | None = None,
) -> bool:
    """Train up to ``steps`` steps, or for so many seconds; goes on where the folder's last run stopped. True when done.

    half : whether the network computes in bfloat16; by default on a GPU only.
    """
    writable_folder(out)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every shape, 8 ms each
    torch.manual_seed(seed)
    run = Run(task, out, steps, device, seed, half)
    began, before, losses = time.monotonic(), run.spent, []
    if run.done in snapshots:  # 0: weights as they are made
        run.snapshot()
    try:
        for numbers in task.batches(seed, run.done):
            if run.done >= steps or run.spent - before > seconds:
                break
            losses.append(run.step(numbers))
            run.spent = before + time.monotonic() - began
            if run.done in snapshots:
                run.snapshot()
            if run.done % CHUNK == 0 or run.done == steps:
                mean = torch.stack(losses).mean().item()
                run.log(mean)
                losses.clear()
                if progress:
                    progress(run.done, steps, mean)
    finally:
        run.save()
    if run.done >= steps:
        put_tensors(out / "model.safetensors", small(run.weights()))
    return run.done >= steps


class Run:
    """The state of a training run and its folder."""

    def __init__(self, task: Task, out: Path, steps: int, device: str, seed: int, half: bool | None = None) -> None:
        self.task, self.out, self.steps, self.seed = task, out, steps, seed
        gpu = torch.device(device).type != "cpu"
        self.network = task.build().to(device).train()
        self.computing = [p for p in self.network.parameters() if p.requires_grad]
        self.parameters = [p.detach().clone() for p in self.computing]
        self.average = [p.clone() for p in self.parameters]
        for p in self.parameters:
            p.grad = torch.zeros_like(p)
        self.network.to(torch.bfloat16 if (gpu if half is None else half) else torch.float32)
        self.adam = torch.optim.AdamW(self.parameters, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=gpu)
        self.done, self.spent = 0, 0.0
        if (out / "state.pt").exists():
            self.restore(torch.load(out / "state.pt", map_location=device, weights_only=True))

    def restore(self, state: dict[str, Any]) -> None:
        if state["seed"] != self.seed:
            raise ValueError(f"seed must be {state['seed']}, that of the run in out, got {self.seed}")
        if [p.shape for p in state.get("parameters", [])] != [p.shape for p in self.parameters]:
            raise ValueError(f"out must hold a run of this model, got another one's {self.out / 'state.pt'}")
        torch._foreach_copy_(self.parameters, state["parameters"])
        self.round()
        self.adam.load_state_dict(state["adam"])
        self.average, self.done, self.spent = list(state["average"]), state["done"], state["spent"]

    def save(self) -> None:
        state = {
            "parameters": self.parameters,
            "adam": self.adam.state_dict(),
            "average": self.average,
            "done": self.done,
            "spent": self.spent,
            "seed": self.seed,
        }
        with written(self.out / "state.pt") as stream:
            torch.save(state, stream)

    @torch.no_grad()
    def round(self) -> None:
        """The network's weights from those that are learnt."""
        torch._foreach_copy_(self.computing, self.parameters)

    def rate(self) -> float:
        t = self.done + 1
        return self.task.rate * min(t / self.task.warm, 0.5 * (1 + math.cos(math.pi * t / self.steps)))

    def step(self, numbers: Array) -> Tensor:
        """One step; the loss stays on the device. The random numbers of a step depend on seed and step alone."""
        torch.manual_seed(self.seed * 1_000_003 + self.done)
        self.adam.param_groups[0]["lr"] = self.rate()
        loss = self.task.loss(self.network, numbers)
        loss.backward()
        with interrupts_held():  # what is saved is the state after a whole step
            self._update()
        return loss.detach()

    def _update(self) -> None:
        torch._foreach_copy_([p.grad for p in self.parameters], [p.grad for p in self.computing])
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.adam.step()
        self.network.zero_grad()
        keep = min(0.999, (1 + self.done) / (10 + self.done))
        torch._foreach_lerp_(self.average, self.parameters, 1 - keep)
        self.round()
        self.done += 1

    def weights(self) -> dict[str, Tensor]:
        """The averaged weights by their names, without what is tied or not learnt."""
        names = [name for name, p in self.network.named_parameters() if p.requires_grad]
        return {name: t.cpu().contiguous() for name, t in zip(names, self.average, strict=True)}

    def snapshot(self) -> None:
        (self.out / "snapshots").mkdir(exist_ok=True)
        put_tensors(self.out / "snapshots" / f"{self.done:06}.safetensors", small(self.weights()))

    def log(self, loss: float) -> None:
        """A line of the log: step, mean loss since the last line, seconds of training so far."""
        file = self.out / "log.csv"
        lines = [] if not file.exists() else file.read_text().splitlines()
        lines = [line for line in lines[1:] if int(line.split(",")[0]) < self.done]
        lines.append(f"{self.done},{loss:.4f},{self.spent:.1f}")
        file.write_text("\n".join(["step,loss,seconds", *lines]) + "\n")


def put_tensors(file: Path, tensors: dict[str, Tensor]) -> None:
    """A safetensors file, whole or not at all."""
    from safetensors.torch import save

    with written(file) as stream:
        stream.write(save(tensors, {"format": "pt"}))
