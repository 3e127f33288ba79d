"""Training: kill and resume to the very same weights, independent members, refusals before any work."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from otformer.lab import training_loop
from otformer.lab.training.data import Problems
from otformer.lab.training.initialisation import ConstructionStart, GaussianStart
from otformer.lab.training.plot import log_figure
from otformer.lab.training.recipes import RECIPES, Recipe, recipe
from otformer.lab.training.step import EagerStep, clip
from otformer.lab.training.train import batches, train
from otformer.learning.model import Architecture, LearningTransformer
from otformer.learning.trained import load_trained

TINY = Recipe(
    "tiny", "For tests.", Architecture(depth=2), Problems(("values",), (2, 3)), "entropy", 500, 1e-2, "cosine", None, 8
)


@pytest.mark.slow
def test_a_killed_and_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, torch; torch.set_num_threads(1)\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_train import TINY, train\n"
        f"train(TINY, {str(tmp_path / 'killed')!r}, seed=4, ensemble=2)\n"
    )
    process = subprocess.Popen([sys.executable, str(script)])
    log = tmp_path / "killed" / "log.csv"
    while process.poll() is None and not (log.exists() and log.read_text().count("\n") >= 3):
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(TINY, tmp_path / "killed", seed=4, ensemble=2, resume=True)
        train(TINY, tmp_path / "whole", seed=4, ensemble=2)
    finally:
        torch.set_num_threads(threads)
    assert (tmp_path / "killed" / "log.csv").read_bytes() == (tmp_path / "whole" / "log.csv").read_bytes()
    for name in ("model.safetensors", "checkpoint.safetensors"):
        one, other = (load_file(tmp_path / run / name) for run in ("killed", "whole"))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[each], other[each]) for each in one)
        assert metadata_of(tmp_path / "killed" / name) == metadata_of(tmp_path / "whole" / name)


@pytest.mark.slow
def test_ctrl_c_in_mid_chunk_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    """Stopped after 130 steps: the 130th is saved, and the resumed run ends with the weights of one never stopped."""
    given = replace(TINY, steps=230)
    pressed = []

    def press(done: int, steps: int, loss: float) -> None:
        pressed.append(done)
        if done == 130:
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_loop, "REPORT_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            train(given, tmp_path / "stopped", progress=press)
    assert pressed == list(range(1, 131))  # from the first step on
    assert metadata_of(tmp_path / "stopped" / "checkpoint.safetensors")["step"] == "130"
    resumed, whole = train(given, tmp_path / "stopped", resume=True), train(given, tmp_path / "whole")
    assert all(torch.equal(one, other) for one, other in zip(resumed.parameters(), whole.parameters(), strict=True))


def test_a_member_learns_what_it_would_learn_alone(tmp_path: Path) -> None:
    short = replace(TINY, steps=30, clip=0.1)
    both = train(short, tmp_path / "both", seed=1, ensemble=2)
    alone = train(short, tmp_path / "alone", seed=2)
    torch.testing.assert_close(both.P[1], alone.P[0], atol=1e-4, rtol=1e-3)
    assert float((both.P[0] - both.P[1]).detach().abs().max()) > 0.1


@pytest.mark.slow
def test_training_learns_to_order_two_points(tmp_path: Path) -> None:
    seen: list[tuple[int, int, float]] = []
    easy = replace(TINY, problems=Problems(("permutations",), (2,)), steps=200)
    train(easy, tmp_path, progress=lambda *each: seen.append(each))
    assert seen[0][:2] == (1, 200)
    assert [each[0] for each in seen if each[0] % 100 == 0] == [100, 200]
    lines = [line.split(",") for line in (tmp_path / "log.csv").read_text().splitlines()]
    assert lines[0] == ["step", "seed", "loss", "rows", "stopped"]
    assert float(lines[-1][2]) < 0.1 < float(lines[1][2])
    loss, rows = log_figure(tmp_path / "log.csv").axes
    assert loss.lines[0].get_xdata().tolist() == [100, 200]
    assert rows.lines[0].get_ydata()[-1] == 100
    module = load_trained(tmp_path / "model.safetensors")
    assert module([1.0, 0.5], [0.5, 1.0]).argmax(1).tolist() == [1, 0]


@pytest.mark.parametrize(("samples", "batch"), [(None, 4), (10, 4), (10, 10)])
def test_batches_are_functions_of_seed_and_step(samples: int | None, batch: int) -> None:
    given = replace(TINY, samples=samples, batch=batch)
    one = list(batches(given, range(3, 5), "cpu", step=120))
    other = list(batches(given, range(4, 5), "cpu", step=123))  # seed 4 is member 1 of an ensemble from seed 3
    assert (len(one), len(other)) == (given.steps - 120, given.steps - 123)
    for a, b in zip(one[3:], other, strict=True):
        assert a.x.shape == (2, batch, 3, 1)
        assert torch.equal(a.x[1], b.x[0])
        assert torch.equal(a.target[1], b.target[0])
    assert torch.equal(one[0].x, one[1].x) == (samples == batch)


def test_clipping_is_per_member() -> None:
    net = LearningTransformer(Architecture(depth=1, temperature=True), ensemble=2)
    for p in net.parameters():
        p.grad = torch.ones_like(p) * torch.tensor([1e-6, 2.0]).view(-1, *[1] * (p.ndim - 1))
    clip(net, 0.5)
    squares = [p.grad.reshape(2, -1).square().sum(1) for p in net.parameters() if p.grad is not None]
    norms = torch.stack(squares).sum(0).sqrt()
    count = sum(p[0].numel() for p in net.parameters())
    assert norms.tolist() == pytest.approx([1e-6 * count**0.5, 0.5], rel=1e-4)


def test_a_step_is_adam_on_the_sum_of_losses() -> None:
    """The first step of Adam moves every weight with a gradient by the stepsize, against its sign."""
    net = LearningTransformer(TINY.architecture)
    GaussianStart().fill(net, seed=0)
    before = net.P_out.detach().clone()
    EagerStep(net, TINY)(next(batches(TINY, range(1), "cpu")), rate=0.25)
    moved = (net.P_out.detach() - before).abs()
    assert net.P_out.grad is not None
    steep = net.P_out.grad.abs() > 1e-4
    assert bool(steep.any())
    assert moved[steep].tolist() == pytest.approx([0.25] * int(steep.sum()), rel=1e-3)


def test_stepsize_falls_along_a_cosine() -> None:
    assert [TINY.rate_at(step) for step in (0, 250, 500)] == pytest.approx([1e-2, 5e-3, 0.0])
    assert recipe("paper-attention").rate_at(9_999) == 1e-3


def test_the_papers_recipes_have_the_papers_numbers() -> None:
    for name in ("paper-sorted", "paper-attention", "paper-no-prompt"):
        r = recipe(name)
        assert (r.architecture.depth, r.architecture.tied, r.architecture.written) == (20, False, "all")
        assert (r.steps, r.rate, r.samples, r.problems.sizes, r.start) == (10_000, 1e-3, 1_000, (7,), GaussianStart())
    assert recipe("paper-no-prompt").architecture.registers.width == 3
    assert max(recipe("sort-beyond").problems.sizes) == 7


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"recipe must be one of paper-sorted, paper-attention.*got 'paper'"):
        train("paper", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="out must be a folder that can be written"):
        train(TINY, tmp_path / "file" / "run")
    with pytest.raises(ValueError, match="batch must not exceed the 10 samples, got 11"):
        replace(TINY, samples=10, batch=11)
    with pytest.raises(ValueError, match="problems must have dim 1, got 2"):
        replace(TINY, problems=Problems(("clouds",), (3,), 2))


@pytest.mark.parametrize("device", ["banana", "", "meta", "cuda:99", "mps"])
def test_devices_that_are_not_here_are_refused(tmp_path: Path, device: str) -> None:
    with pytest.raises(ValueError, match=r"^device must be cpu or (cuda, got|an available CUDA device, got cuda:99)"):
        train(TINY, tmp_path / "none", device=device)
    assert not (tmp_path / "none").exists()


def test_a_read_only_folder_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", denied)  # works for root too, who may write anywhere
    monkeypatch.setattr(ConstructionStart, "fill", None)
    with pytest.raises(ValueError, match=r"out must be a folder that can be written to, got '.*' \(Permission denied\)"):
        train(replace(TINY, start=ConstructionStart()), tmp_path)


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(str(path), "pt") as file:
        return dict(file.metadata())


@pytest.mark.parametrize("objective", ["sorted", "attention"])
def test_runs_of_all_objectives_and_no_layers_resume(tmp_path: Path, objective: str) -> None:
    given = replace(TINY, objective=objective, steps=2, architecture=Architecture(depth=0, tied=True, temperature=True))
    net = train(given, tmp_path)
    assert torch.equal(train(given, tmp_path, resume=True).P_out, net.P_out)


def test_files_have_the_usual_mode_and_nothing_is_left(tmp_path: Path) -> None:
    short = replace(TINY, steps=2)
    before = os.umask(0o027)
    try:
        train(short, tmp_path)
        (tmp_path / ".model.safetensors.0123abcd.otformer-new").touch()
        (tmp_path / "notes.part").touch()
        train(short, tmp_path, resume=True)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.name != "notes.part"}
    assert modes == dict.fromkeys(("checkpoint.safetensors", "log.csv", "model.safetensors"), 0o640)
    assert (tmp_path / "notes.part").exists()


def test_every_recipe_makes_its_network() -> None:
    for each in RECIPES.values():
        net = LearningTransformer(each.architecture, 2)
        each.start.fill(net, seed=0)
        batch = next(batches(replace(each, batch=2, samples=None), range(2), "cpu"))
        losses = EagerStep(net, each)(batch, each.rate)
        assert losses.shape == (2,)
        assert bool(torch.isfinite(losses).all())


@pytest.mark.gpu
def test_a_captured_step_is_the_eager_step(tmp_path: Path) -> None:
    given = replace(TINY, steps=250, clip=0.5, architecture=Architecture(depth=3, temperature=True))
    captured = train(given, tmp_path / "gpu", ensemble=3, device="cuda")
    eager = train(given, tmp_path / "cpu", ensemble=3)
    torch.testing.assert_close(captured.P.cpu(), eager.P, atol=0.02, rtol=0.02)


@pytest.mark.gpu
def test_a_captured_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(TINY, steps=200)

    def stop(done: int, steps: int, loss: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(given, tmp_path / "stopped", device="cuda", progress=stop)
    resumed = train(given, tmp_path / "stopped", device="cuda", resume=True)
    whole = train(given, tmp_path / "whole", device="cuda")
    torch.testing.assert_close(resumed.P, whole.P, atol=1e-3, rtol=1e-3)
