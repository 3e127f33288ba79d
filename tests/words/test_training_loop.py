"""The training loop: against a loop by hand, in float32 and with a bfloat16 network; stopped, broken and wrong runs."""

import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from otformer.lab.training_loop import CHECKPOINT
from otformer.lab.translators.loop import Run, train
from otformer.tensor_files import read_tensors


def averages(folder: Path) -> dict[str, torch.Tensor]:
    return {name: t for name, t in read_tensors(folder / CHECKPOINT)[0].items() if name.startswith("average.")}


def equal(one: Path, other: Path) -> bool:
    a, b = averages(one), averages(other)
    return len(a) > 0 and a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Line:
    """A regression whose answer is known: y = 3x, one number to learn."""

    rate, warm, steps = 0.05, 10, 200

    def build(self) -> Any:
        return torch.nn.Linear(1, 1, bias=False)

    def batches(self, seed: int, start: int) -> Any:
        return (np.array([k]) for k in range(start, 10_000))

    def inputs(self, numbers: np.ndarray[Any, Any]) -> tuple[torch.Tensor, ...]:
        return ()

    def loss(self, network: Any, *inputs: torch.Tensor) -> torch.Tensor:
        x = torch.randn(8, 1)
        return torch.as_tensor(((network(x) - 3 * x) ** 2).mean())


def test_the_loop_learns_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    assert train(Line(), tmp_path / "whole", 200, snapshots=(0, 150))
    kept = [load_file(tmp_path / "whole" / "snapshots" / f"{step:06}.safetensors") for step in (0, 150)]
    assert abs(kept[0]["weight"].float().item()) <= 1  # as torch makes it
    assert kept[1]["weight"].float().item() == pytest.approx(3.0, abs=0.3)
    weight = load_file(tmp_path / "whole" / "model.safetensors")["weight"].float()
    assert weight.item() == pytest.approx(3.0, abs=0.2)  # float8: 3 bits

    class Stop(Exception):
        pass

    class Fragile(Line):
        left = 120

        def loss(self, network: Any, *inputs: torch.Tensor) -> torch.Tensor:
            self.left -= 1
            if self.left < 0:
                raise Stop
            return super().loss(network)

    with pytest.raises(Stop):
        train(Fragile(), tmp_path / "broken", 200)
    assert train(Line(), tmp_path / "broken", 200)
    assert equal(tmp_path / "whole", tmp_path / "broken")
    with pytest.raises(ValueError, match="seed must be 0"):
        train(Line(), tmp_path / "broken", 200, seed=1)


class Curve(Line):
    """A network with more to learn, whose batches are drawn by the seed that the loop sets."""

    rate, warm, steps = 0.02, 5, 40

    def build(self) -> Any:
        torch.manual_seed(7)
        return torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def loss(self, network: Any, *inputs: torch.Tensor) -> torch.Tensor:
        x = torch.randn(8, 3)
        made = network(x.to(next(network.parameters()).dtype)).float()
        return torch.as_tensor(10 * ((made - x.sum(1, keepdim=True).sin()) ** 2).mean())


@pytest.mark.parametrize("half", [False, True])
def test_against_a_loop_by_hand(half: bool, tmp_path: Path) -> None:
    """AdamW as in the paper of Loshchilov and Hutter, the norm of all gradients cut at 1, a warm-up under a cosine, and an
    average that forgets: with a network in bfloat16 all of it is of float32 weights, which the network has rounded."""
    task = Curve()
    network = task.build()
    w = [p.detach().clone() for p in network.parameters()]
    first, second = ([torch.zeros_like(p) for p in w] for _ in range(2))
    mean = [p.clone() for p in w]
    for t in range(1, 41):
        for p, value in zip(network.parameters(), w, strict=True):
            p.data = value.to(torch.bfloat16 if half else torch.float32).clone()
        torch.manual_seed(t - 1)
        grads = torch.autograd.grad(task.loss(network), list(network.parameters()))
        g = [each.float() for each in grads]
        norm = math.sqrt(sum(float((each**2).sum()) for each in g))
        rate = 0.02 * min(t / 5, 0.5 * (1 + math.cos(math.pi * t / 40)))
        for k in range(len(w)):
            each = g[k] * min(1.0, 1 / (norm + 1e-6))
            first[k] = 0.9 * first[k] + 0.1 * each
            second[k] = 0.98 * second[k] + 0.02 * each**2
            step = first[k] / (1 - 0.9**t) / ((second[k] / (1 - 0.98**t)).sqrt() + 1e-8)
            w[k] = w[k] * (1 - 0.01 * rate) - rate * step
            keep = min(0.999, t / (9 + t))
            mean[k] = keep * mean[k] + (1 - keep) * w[k]
    train(task, tmp_path, 40, half=half)
    state = read_tensors(tmp_path / CHECKPOINT)[0]
    names = [name for name, _ in network.named_parameters()]
    for kind, expected in (("net", w), ("average", mean)):
        for one, other in zip((state[f"{kind}.{name}"] for name in names), expected, strict=True):
            assert one.dtype == torch.float32
            torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_ctrl_c_waits_for_the_end_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pressed in the middle of the twelfth step: that step is whole, and the run goes on to what it would have been."""
    step = torch.optim.AdamW.step

    def pressed(self: Any, *given: Any) -> Any:
        made = step(self, *given)
        pressed.count += 1  # type: ignore[attr-defined]
        if pressed.count == 12:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGINT)
        return made

    pressed.count = 0  # type: ignore[attr-defined]
    train(Curve(), tmp_path / "whole", 40)
    monkeypatch.setattr(torch.optim.AdamW, "step", pressed)
    with pytest.raises(KeyboardInterrupt):
        train(Curve(), tmp_path / "broken", 40)
    assert read_tensors(tmp_path / "broken" / CHECKPOINT)[1]["done"] == "12"
    train(Curve(), tmp_path / "broken", 40)
    assert equal(tmp_path / "whole", tmp_path / "broken")


def test_a_run_of_another_model_is_named(tmp_path: Path) -> None:
    train(Line(), tmp_path, 20)
    with pytest.raises(ValueError, match=r"out must hold a run of this model, got another one's .*checkpoint.safetensors"):
        train(Curve(), tmp_path, 40)
    save_file({"net.weight": torch.zeros(1, 1)}, tmp_path / CHECKPOINT)
    with pytest.raises(ValueError, match="out must hold a run of this model"):
        Run(Line(), tmp_path, 20, "cpu", 0, None, ())
