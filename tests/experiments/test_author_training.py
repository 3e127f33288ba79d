"""The author's training: what ships is consistent, and the numbers are those of the networks, by plain loops."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from otformer.lab.experiments import _author_networks as networks
from otformer.lab.experiments import author_training
from otformer.lab.training.author_runs import RUNS
from otformer.lab.training.data import DRAWN_FROM
from otformer.tensor_files import read_tensors

COUNT = 200  # fresh lists of a size


def lists(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, u and v of fresh lists, from the description of the data alone."""
    draw = np.random.default_rng(seed)
    x = np.stack([draw.permutation(DRAWN_FROM)[:n] for _ in range(COUNT)]) / DRAWN_FROM
    return x, draw.standard_normal((COUNT, n)), draw.random((COUNT, n))


def looped(P: np.ndarray, V: np.ndarray, P_out: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The notebook's network on one prompt Z [n+1, 11], head by head: its last attention and the list it returns."""
    for layer in range(len(P)):
        heads = []
        for p, v in zip(P[layer], V[layer], strict=True):
            A = np.exp(Z @ p @ Z.T)
            heads.append(A / A.sum(1, keepdims=True) @ Z @ v)
        Z = Z - 0.1 * heads[0] - 0.1 * heads[1]
    A = np.exp(Z @ P_out @ Z.T)[:-1, :-1]
    A /= A.sum(1, keepdims=True)
    return A, A @ Z[:-1, 0]


def prompt(x: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """[n+1, 11]: the columns of the notebook, in our order."""
    n = len(x)
    y, one, zero = np.arange(n) / n, np.ones(n), np.zeros(n)
    Z = np.zeros((n + 1, 11))
    Z[:n] = np.stack([x, y, x * x, y * y, one, one, one, one, u, v, zero], 1)
    Z[n, 7] = -1 / n
    return Z


def weights() -> tuple[dict[str, np.ndarray], list[int]]:
    tensors, about = read_tensors(networks.PACKED.with_suffix(".safetensors"))
    own = {name.split("/")[1]: t.double().numpy() for name, t in tensors.items() if name.startswith("author/")}
    return own, json.loads(about["networks"])["author"][1]


@pytest.mark.parametrize("n", [7, 15])
def test_recorded_scores_are_those_of_the_shipped_weights(n: int) -> None:
    """A plain loop over the notebook's description, on other lists: within four standard errors and the rounding."""
    own, seeds = weights()
    x, u, v = lists(n, seed=5)
    for k in (0, len(seeds) // 2):
        by_attention, by_number = [], []
        for points, first, second in zip(x, u, v, strict=True):
            A, answer = looped(own["P"][k], own["V"][k], own["P_out"][k], prompt(points, first, second))
            order = points.argsort()
            by_attention.append((A.argmax(1) == order).mean())
            by_number.append((np.abs(answer[:, None] - points).argmin(1) == order).mean())
        recorded = networks.packed()["runs"]["author"]["scores"]["draws"][str(n)]
        for found, name in ((by_attention, "rows"), (by_number, "value_rows")):
            error = np.std(found) * math.sqrt(1 / COUNT + 1 / 500)
            assert abs(np.mean(found) - recorded[name][seeds[k]]) < 4 * error + 0.002


def test_the_network_is_the_plain_loop_and_the_last_lens_is_its_output() -> None:
    own, _ = weights()
    net, batch = networks.network("author")[0], networks.drawn(7, networks.ASKED, 0)
    seen = networks.lens("author", 7, 0)
    output = net(batch.x, batch.y, memory=batch.memory)
    assert torch.equal(seen.matrices[-1], output.attention[:, 0])
    x, (u, v) = batch.x[0, :, 0].numpy(), batch.memory[0].T.numpy()
    A, answer = looped(own["P"][3], own["V"][3], own["P_out"][3], prompt(x, u, v))
    assert np.abs(A - seen.matrices[-1, 3].numpy()).max() < 1e-5  # the data are drawn in float32
    assert np.abs(answer - output.points[3, 0, :, 0].numpy()).max() < 1e-5
    assert np.array_equal(seen.plan.numpy(), np.eye(7)[x.argsort()])


def test_rows_right_after_a_move_are_counted_by_hand() -> None:
    net, answers = networks.network("author")[0], networks.ask("author", 7, 0)
    batch = networks.drawn(7, networks.ASKED, 0)
    A = net(batch.x, batch.y + 1 / 7, memory=batch.memory).attention[2].numpy()
    order = batch.x[..., 0].numpy().argsort(1)
    on = np.mean([A[b, i].argmax() == order[b, i + 1] for b in range(len(A)) for i in range(6)])
    assert float(answers.one_on[2]) == pytest.approx(100 * on)
    assert 0 <= float(answers.with_table.max()) <= 100 - float(answers.against_table.min())


def test_the_file_is_consistent() -> None:
    found = networks.packed()
    assert set(author_training.NAMED) <= set(found["runs"])
    for name, run in found["runs"].items():
        seeds = len(run["stopped"])
        assert run["finished"] == (run["steps done"] == run["recipe"]["steps"])
        assert len(run["last losses"]) == seeds
        steps, low, median, high, learning = zip(*run["curve"], strict=True)
        assert steps[-1] == run["steps done"], name
        assert all(a <= b <= c for a, b, c in zip(low, median, high, strict=True))
        assert [seeds - sum(0 < s <= step for s in run["stopped"]) for step in steps] == list(learning)
        for sizes in run["scores"].values():
            for own in sizes.values():
                assert {len(own[measure]) for measure in author_training.SCORE_NAMES} == {seeds}
                assert all(
                    lists <= rows
                    for kind in ("", "value_")
                    for lists, rows in zip(own[f"{kind}lists"], own[f"{kind}rows"], strict=True)
                )
    kept = {name: networks.network(name)[1] for name in networks.WITH_WEIGHTS}
    assert all(not found["runs"][name]["stopped"][k] for name, seeds in kept.items() for k in seeds)
    assert networks.PACKED.with_suffix(".safetensors").stat().st_size < 600_000


def test_mean_and_gap_are_the_textbooks() -> None:
    values = networks.learned("author", 9, "rows")
    assert len(values) == 17
    assert networks.mean(values).mean == pytest.approx(np.mean(values))
    one, two = values, networks.learned("author-no-prompt", 9, "rows")
    parts = [np.var(each, ddof=1) / len(each) for each in (one, two)]
    free = sum(parts) ** 2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, (one, two), strict=True))
    from scipy.stats import t

    found, half = networks.gap("author", "author-no-prompt", 9, "rows"), t.ppf(0.975, free) * math.sqrt(sum(parts))
    assert (found.low, found.high) == pytest.approx((found.mean - half, found.mean + half))


def test_the_files_are_made_again_from_a_folder_of_runs(tmp_path: Path) -> None:
    """A training of a few steps, packed: scores and losses as its own files have them."""
    from otformer.lab.training import author_runs

    folder = tmp_path / "runs"
    author_runs.main([str(folder), "--device", "cpu", "--only", "author-no-prompt", "--members", "2", "--steps", "3"])
    networks.pack([folder], tmp_path / "packed")
    made = json.loads((tmp_path / "packed.json").read_text())["runs"]["author-no-prompt"]
    own = json.loads((folder / RUNS).read_text())["runs"]["author-no-prompt"]
    assert np.allclose(made["scores"]["draws"]["9"]["rows"], own["scores"]["draws"]["9"]["rows"], atol=1e-5)
    with (folder / "losses.csv").open(newline="") as lines:
        last = [float(row["loss"]) for row in csv.DictReader(lines) if row["step"] == "3"]
    assert np.allclose(made["last losses"], last, rtol=1e-3)
    with pytest.raises(SystemExit, match="author_runs"):
        author_training.main([str(tmp_path)])
