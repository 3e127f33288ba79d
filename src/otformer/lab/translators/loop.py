"""Training of translators and encoder: AdamW, a warm-up and a cosine, averaged weights (the loop: lab/training_loop.py).

    rate(t) = rate · min(t / warm, ½ (1 + cos πt/T)),      average ← average + (1 − β_t)(weights − average),
    β_t = min(0.999, t/(9 + t))

On a GPU the network computes in bfloat16, by graphs (graphs.py); the weights that are learnt, their gradients' norm and
their average are float32.
``model.safetensors`` holds the averaged weights in the small form of export.py, ``snapshots/`` those of steps on the way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from otformer.files import writable_folder
from otformer.lab import training_loop
from otformer.lab.training_loop import Log, Progress, load_moments, moments
from otformer.lab.translators.corpus import Array
from otformer.lab.translators.export import small
from otformer.lab.translators.graphs import Graphed, Plain
from otformer.locks import LOCK, held
from otformer.tensor_files import read_tensors, write_tensors


class Task(Protocol):
    """What is trained: a network, batches and a loss."""

    rate: float
    warm: int
    steps: int

    def __init__(self, name: str, text: Path, device: str) -> None: ...
    def build(self) -> Any: ...
    def batches(self, seed: int, start: int) -> Any: ...
    def inputs(self, numbers: Array) -> tuple[Tensor, ...]: ...
    def loss(self, network: Any, *inputs: Tensor) -> Tensor: ...


def train(
    task: Task,
    out: Path,
    steps: int,
    *,
    device: str = "cpu",
    seed: int = 0,
    seconds: float = math.inf,
    snapshots: Sequence[int] = (),
    progress: Progress | None = None,
    half: bool | None = None,
) -> bool:
    """Train up to ``steps`` steps, or for so many seconds; goes on where the folder's last run stopped. True when done.

    half : whether the network computes in bfloat16; by default on a GPU only.
    """
    writable_folder(out)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every shape, 8 ms each
    torch.manual_seed(seed)
    with held(out / LOCK, out):
        run = Run(task, out, steps, device, seed, half, *snapshots)
        done = training_loop.train(run, steps, seconds=seconds, progress=progress)
        if done:
            write_tensors(out / training_loop.MODEL, run.weights(), {"format": "pt"})
    return done


class Run:
    """The state of a training run and its folder, where it goes on from the checkpoint, if there is one."""

    def __init__(
        self, task: Task, out: Path, steps: int, device: str, seed: int, half: bool | None = None, *snapshots: int
    ) -> None:
        self.task, self.out, self.steps, self.seed, self.snapshots = task, out, steps, seed, snapshots
        self.path, gpu = out / training_loop.CHECKPOINT, torch.device(device).type != "cpu"
        self.network = task.build().to(device).train()
        learnt = {name: p for name, p in self.network.named_parameters() if p.requires_grad}
        self.names, self.computing = list(learnt), list(learnt.values())
        self.parameters = [p.detach().clone() for p in self.computing]
        self.average = [p.clone() for p in self.parameters]
        gradients = [torch.zeros_like(p) for p in self.parameters]
        for p, gradient in zip(self.parameters, gradients, strict=True):
            p.grad = gradient
        self.network.to(torch.bfloat16 if (gpu if half is None else half) else torch.float32)
        self.loss = (Graphed if gpu else Plain)(task.loss, self.network, self.computing, gradients)
        self.adam = torch.optim.AdamW(self.parameters, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=gpu)
        self.done, self.spent = 0, 0.0
        if self.path.exists():
            self.restore()
        self.lines = Log(out, "step,loss,seconds", self.done)
        self.batches = iter(task.batches(seed, self.done))
        self.began = time.monotonic() - self.spent
        self.snapshot()  # of step 0: weights as they are made

    def restore(self) -> None:
        """Resume from the checkpoint, which must belong to this model and seed."""
        tensors, about = read_tensors(self.path)
        shapes = {name: tuple(t.shape) for name, t in tensors.items()}
        same = all(shapes.get(f"net.{name}") == tuple(p.shape) for name, p in zip(self.names, self.parameters, strict=True))
        if not same or not {"seed", "done", "spent"} <= about.keys():
            raise ValueError(f"out must hold a run of this model, got another one's {self.path}")
        if int(about["seed"]) != self.seed:
            raise ValueError(f"seed must be {about['seed']}, that of the run in out, got {self.seed}")
        for kind, own in (("net", self.parameters), ("average", self.average)):
            torch._foreach_copy_(own, [tensors[f"{kind}.{name}"].to(own[0].device) for name in self.names])
        self.round()
        load_moments(self.adam, self.names, tensors)
        self.done, self.spent = int(about["done"]), float(about["spent"])

    def save(self) -> None:
        """Write the checkpoint: weights, averages, Adam's moments, and the steps and seconds so far."""
        named = {"net": self.parameters, "average": self.average}
        tensors = {f"{kind}.{name}": t for kind, own in named.items() for name, t in zip(self.names, own, strict=True)}
        about = {"seed": self.seed, "done": self.done, "spent": self.spent}
        write_tensors(self.path, tensors | moments(self.adam, self.names), about)

    @torch.no_grad()
    def round(self) -> None:
        """Copy the float32 weights into the network."""
        torch._foreach_copy_(self.computing, self.parameters)

    def step(self) -> Tensor:
        """One step; the loss stays on the device. The random numbers of a step depend only on seed and step."""
        torch.manual_seed(self.seed * 1_000_003 + self.done)
        t = self.done + 1
        rate = self.task.rate * min(t / self.task.warm, 0.5 * (1 + math.cos(math.pi * t / self.steps)))
        self.adam.param_groups[0]["lr"] = rate
        loss = self.loss(*self.task.inputs(next(self.batches)))
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.adam.step()
        torch._foreach_lerp_(self.average, self.parameters, 1 - min(0.999, t / (9 + t)))
        self.round()
        self.done, self.spent = t, time.monotonic() - self.began
        self.snapshot()
        return loss

    def weights(self) -> dict[str, Tensor]:
        """The averaged weights by their names, without what is tied or not learnt, in the small form of export.py."""
        return small(dict(zip(self.names, self.average, strict=True)))

    def snapshot(self) -> None:
        """Keep the averaged weights, if they are asked for at this step."""
        if self.done in self.snapshots:
            (self.out / "snapshots").mkdir(exist_ok=True)
            write_tensors(self.out / "snapshots" / f"{self.done:06}.safetensors", self.weights(), {"format": "pt"})

    def log(self, loss: Tensor) -> None:
        """A line of the log: step, mean loss since the last line, seconds of training so far."""
        self.lines.write([f"{self.done},{loss.item():.4f},{self.spent:.1f}"])
