"""The author's network and training against a plain loop written from a description of his notebook, and against torch."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from otformer.lab.training import author_runs
from otformer.lab.training.data import Problems, generator
from otformer.lab.training.doubled_adam import doubled_as
from otformer.lab.training.initialisation import AuthorStart
from otformer.lab.training.objectives import sorted_error
from otformer.lab.training.recipes import Recipe, recipe
from otformer.lab.training.shortcuts import constant_error, counting, shortcut_scores
from otformer.lab.training.step import EagerStep, output_of
from otformer.lab.training.train import batches, train
from otformer.learning.model import LearningTransformer

GAMMA = 0.1
ORDER = [2, 0, 3, 1, 4, 5, 6, 7, 8, 9, 10]  # his columns x², x, y², y, 1, 1, 1, ±, u, v, spare, in ours


def plain_loop(net: LearningTransformer, x: np.ndarray, y: np.ndarray, u: np.ndarray, v: np.ndarray) -> tuple:
    """One problem in his order of columns, token by token: the states of all layers, and the list that is returned."""
    prompt, n = net.architecture.prompt == "engineered", len(x)
    rows = [[a * a, a, b * b, b, 1, 1, 1, 1, c, d, 0] for a, b, c, d in zip(x, y, u, v, strict=True)]
    sink = [[0, 0, 0, 0, 0, 0, 0, -1 / n, 0, 0, 0]]
    Z = np.array(rows + sink if prompt else [[a, b, 0] for a, b in zip(x, y, strict=True)], dtype=float)
    order = ORDER if prompt else [0, 1, 2]
    P = net.P[0].detach().numpy()[..., order, :][..., order]
    V = net.V[0].detach().numpy()[..., order, :][..., order]
    states = [Z]
    for layer in range(len(P)):
        new = Z.copy()
        for i in range(len(Z)):
            for head in range(2):
                e = [math.exp(Z[i] @ P[layer, head] @ Z[j]) for j in range(len(Z))]
                new[i] -= GAMMA * sum(e[j] / sum(e) * Z[j] for j in range(len(Z))) @ V[layer, head]
        Z = new
        states.append(Z)
    last = net.P_out[0].detach().numpy()[order][:, order]
    answer = []
    for i in range(n):
        e = [math.exp(Z[i] @ last @ Z[j]) for j in range(len(Z) - 1)]  # the last token is masked, a sink or not
        answer.append(sum(e[j] * Z[j][1] for j in range(len(e))) / sum(e))  # his second column: x, or y without a prompt
    return states, np.array(answer)


@pytest.mark.parametrize("name", ["author", "author-no-prompt"])
@pytest.mark.parametrize("n", [3, 7])
def test_every_layer_is_that_of_a_plain_loop(name: str, n: int) -> None:
    architecture = recipe(name).architecture
    net = LearningTransformer(architecture).double()
    AuthorStart().fill(net, seed=5)
    batch = (
        Problems(("draws",), (n,))
        .draw(2, generator(1, n), memory=True)
        .map(lambda t: t.double() if t.is_floating_point() else t)
    )
    memory = batch.memory if architecture.memory == "random" else None
    states = net.requires_grad_(False).states(batch.x, batch.y, memory=memory)
    assert len(states) == 20
    order = ORDER if architecture.prompt == "engineered" else [0, 1, 2]
    for k in range(2):
        expected, answer = plain_loop(net, *(t[k, :, 0].numpy() for t in (batch.x, batch.y)), *batch.memory[k].T.numpy())
        for own, his in zip(states, expected, strict=True):
            assert np.abs(own[0, k].numpy()[:, order] - his).max() < 1e-12
        found = net(batch.x, batch.y, memory=memory).points[0, k, :, 0].numpy()
        assert np.abs(found - answer).max() < 1e-12


def test_his_data_and_start() -> None:
    batch = Problems(("draws",), (7,)).draw(400, generator(3), memory=True)
    places = batch.x[..., 0] * 50
    assert float((places - places.round()).abs().max()) < 1e-5
    assert sorted({int(p) for p in places.round().flatten()}) == list(range(50))
    assert bool((places.sort(1).values.diff(dim=1) > 0.5).all())
    assert batch.y[0, :, 0].tolist() == pytest.approx([j / 7 for j in range(7)])
    assert torch.equal(batch.x.gather(1, batch.target[..., None]), batch.x.sort(1).values)
    u, v = batch.memory.unbind(-1)
    assert abs(float(u.mean())) < 0.1
    assert float(u.std()) == pytest.approx(1, abs=0.05)
    assert 0 <= float(v.min()) < 0.01 < 0.99 < float(v.max()) <= 1
    for name, width in (("author", 11), ("author-no-prompt", 3)):
        net = LearningTransformer(recipe(name).architecture, ensemble=24)
        AuthorStart().fill(net, seed=0)
        for t in (net.P, net.V):
            sizes = t.detach().std((0, 1, 3, 4)) * width**0.5
            assert sizes.tolist() == pytest.approx([0.5, 1.0], rel=0.05)
        assert float(net.P_out.detach().std()) * width**0.5 == pytest.approx(0.5, rel=0.1)
        assert not hasattr(net, "V_out")


def test_batches_serve_as_in_his_loop() -> None:
    """He redraws after the step 0 and then after every 50th, so the first batch serves once."""
    short = replace(recipe("author"), steps=103, batch=3)
    assert [short.batch_at(step) for step in (0, 1, 50, 51, 100, 101)] == [0, 1, 1, 2, 2, 3]
    found = list(batches(short, range(2), "cpu"))
    assert len(found) == 103
    changes = [k for k in range(1, 103) if not torch.equal(found[k].x, found[k - 1].x)]
    assert changes == [1, 51, 101]
    assert torch.equal(next(batches(short, range(2), "cpu", step=60)).memory, found[60].memory)


def test_doubled_adam_is_torch_with_a_doubled_list_for_20_steps() -> None:
    """Our step on a whole network, and torch's Adam on the list that his notebook gives it, in float64."""
    given = replace(recipe("author-two-steps"), batch=4, steps=20)
    ours, his = (LearningTransformer(given.architecture).double() for _ in range(2))
    for net in (ours, his):
        AuthorStart().fill(net, seed=2)
    move = EagerStep(ours, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adam = torch.optim.Adam([p for p in his.parameters() for _ in range(2)], lr=given.rate)
    for batch in batches(given, range(1), "cpu"):
        batch = batch.map(lambda t: t.double() if t.is_floating_point() else t)
        move(batch, given.rate)
        adam.zero_grad()
        sorted_error(output_of(his, batch, given), batch).sum().backward()
        adam.step()
        for own, other in zip(ours.parameters(), his.parameters(), strict=True):
            assert float((own - other).detach().abs().max()) == 0
    assert int(adam.state[his.P]["step"]) == 40
    found = doubled_as("cpu", torch.float64)
    assert found["two steps"] == 0
    assert min(found["one step"], found["one step, counted twice"]) > 1


def test_counted_adam_is_one_step_whose_counter_goes_on_by_two() -> None:
    """Kingma and Ba's rule written out with t = 2k at call k, which is what a doubled list does on an H200."""
    given = replace(recipe("author"), batch=4, steps=20)
    net = LearningTransformer(given.architecture).double()
    AuthorStart().fill(net, seed=2)
    move, m, v = EagerStep(net, given), 0.0, 0.0
    for k, batch in enumerate(batches(given, range(1), "cpu"), 1):
        before = net.P.detach().clone()
        move(batch.map(lambda t: t.double() if t.is_floating_point() else t), given.rate)
        assert net.P.grad is not None
        m, v = 0.9 * m + 0.1 * net.P.grad, 0.999 * v + 0.001 * net.P.grad**2
        moved = given.rate * (m / (1 - 0.9 ** (2 * k))) / ((v / (1 - 0.999 ** (2 * k))).sqrt() + 1e-8)
        torch.testing.assert_close(net.P.detach(), before - moved, atol=1e-14, rtol=0)


def diverging(**changes: object) -> Recipe:
    """A short run of which seed 1 overflows: exp of a logit above 709 or 88."""
    return replace(recipe("author"), steps=12, batch=4, redraw=3, **changes)  # type: ignore[arg-type]


class OneLoud(AuthorStart):
    """His start, with the seed 1 so loud that a bare softmax overflows after some steps."""

    def fill(self, net: LearningTransformer, seed: int) -> None:
        super().fill(net, seed)
        with torch.no_grad():
            for k in range(net.ensemble):
                if seed + k == 1:
                    net.P_out[k] *= LOUD


LOUD = 150.0


def test_a_member_that_diverges_is_stopped_and_the_others_learn_on(tmp_path: Path) -> None:
    given = diverging(start=OneLoud(), rate=0.05)
    with pytest.warns(
        UserWarning, match=r"1 of 3 models diverged and were stopped, at their last good weights: seed 1 at step"
    ):
        net = train(given, tmp_path / "three", ensemble=3)
    alone = train(given, tmp_path / "alone", seed=2)
    torch.testing.assert_close(net.P[2], alone.P[0], atol=1e-5, rtol=1e-4)
    assert all(bool(p.isfinite().all()) for p in net.parameters())
    lines = [line.split(",") for line in (tmp_path / "three" / "log.csv").read_text().splitlines()]
    assert lines[0][-1] == "stopped"
    stops = {int(line[1]): int(line[4]) for line in lines[1:]}
    assert stops[0] == stops[2] == 0 < stops[1] <= 12
    assert [line[2] for line in lines[1:] if line[1] == "1"] == ["nan"]


def test_a_stopped_member_keeps_its_last_good_weights_and_resumes(tmp_path: Path) -> None:
    """By a limit on the loss between two steps of the same run."""
    free = diverging(rate=0.1, architecture=replace(recipe("author").architecture, softmax="stable"))
    net = LearningTransformer(free.architecture)
    free.start.fill(net, 0)
    move, before, losses = EagerStep(net, free), [], []
    for batch in batches(free, range(1), "cpu"):
        before.append(net.P.detach().clone())
        losses.append(float(move(batch, free.rate)))
    worst = max(range(1, 12), key=lambda k: losses[k])
    assert losses[worst] > max(losses[:worst])
    strict = replace(free, limit=0.5 * (losses[worst] + max(losses[:worst])))
    with pytest.warns(UserWarning, match=f"seed 0 at step {worst + 1}$"):
        stopped = train(strict, tmp_path / "run")
    assert torch.equal(stopped.P, before[worst - 1])
    with pytest.warns(UserWarning, match="stopped"):
        assert torch.equal(train(strict, tmp_path / "run", resume=True).P, stopped.P)


def test_a_stable_softmax_does_not_overflow() -> None:
    given = diverging(start=OneLoud())
    for name, finite in (("bare", False), ("stable", True)):
        net = LearningTransformer(replace(given.architecture, softmax=name), 2)
        OneLoud().fill(net, 0)
        with torch.no_grad():
            net.P_out[1] *= 100
        output = output_of(net, next(batches(given, range(2), "cpu")), given)
        assert bool(output.points[1].isfinite().all()) is finite
        assert bool(output.points[0].isfinite().all())


def test_shortcuts_do_not_sort_his_data() -> None:
    scores = shortcut_scores(7)
    assert scores["counting"] == {"rows": 1.0, "lists": 1.0, "error": 0.0}
    assert 0.4 < scores["nearest"]["rows"] < scores["lookup"]["rows"] < scores["table"]["rows"] < 0.6
    assert all(scores[name]["lists"] < 0.1 for name in ("nearest", "lookup", "table"))
    x = Problems(("draws",), (7,)).draw(20_000, generator(8)).x[..., 0].double()
    assert constant_error(7) == pytest.approx(float(x.sort(1).values.var(0).mean()), rel=0.02)
    assert torch.equal(x.gather(1, counting(x)), x.sort(1).values)


@pytest.mark.slow
def test_the_gpu_script_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(author_runs, "PROBLEMS", 10)
    monkeypatch.setattr(author_runs, "TOGETHER", 5)
    monkeypatch.setattr(author_runs, "DRAWS_SIZES", (5, 7))
    names = ["author", "author-no-prompt", "sort-draws"]
    author_runs.main([str(tmp_path), "--device", "cpu", "--steps", "2", "--members", "2", "--only", *names])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["losses.csv", "runs.json", "weights.safetensors"]
    assert "author: rows right in % at n = 5: " in capsys.readouterr().out
    assert author_runs.load_run(tmp_path, "author-no-prompt").P.shape == (2, 19, 2, 3, 3)
    with pytest.raises(ValueError, match="recipe must be one of author, author-no-prompt, sort-draws, got 'nearest'"):
        author_runs.load_run(tmp_path, "nearest")
