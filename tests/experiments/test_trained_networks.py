"""Experiments on trained networks: every measure against numpy, scipy, POT or a network whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import ot
import pytest
import torch
from scipy import stats
from scipy.optimize import linear_sum_assignment

from otformer import figures
from otformer.lab.experiments import _trained_models as learned
from otformer.lab.experiments import beyond, generalization, iterative, trained
from otformer.lab.experiments.experiment import Context, Outcome
from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.training import data
from otformer.lab.training.initialisation import ConstructionStart
from otformer.learning import trained as shipped
from otformer.learning.model import Architecture, LearningTransformer

PROBLEMS = 10


@pytest.fixture(autouse=True)
def few_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "problems", lambda context: PROBLEMS)


def construction(reg: float, depth: int = 20) -> LearningTransformer:
    net = LearningTransformer(Architecture(depth=depth, sink="frozen")).double()
    ConstructionStart(reg=reg).fill(net, seed=0)
    return net.requires_grad_(False)


def run(experiment: str) -> Outcome:
    with figures.applied():
        return EXPERIMENTS[experiment].run(Context())


def double(batch: data.Batch) -> data.Batch:
    return batch._replace(x=batch.x.double(), y=batch.y.double())


def test_the_six_are_registered_in_the_order_of_the_report() -> None:
    six = ["generalization", "prompting", "iterative", "generalization-15", "beyond", "trained"]
    assert [name for name in EXPERIMENTS if name in six] == six


def test_a_missing_recipe_is_named_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    with pytest.raises(
        ValueError, match=r"^weights of recipe 'paper-sorted' are missing: `otformer train --recipe paper-sorted`"
    ):
        learned.load.__wrapped__("paper-sorted")


def test_measures_against_numpy_and_scipy() -> None:
    found = learned.score("paper-attention", 9, PROBLEMS, 3)
    batch = learned.draw(9, PROBLEMS, 3)
    for member in (0, 1):
        A = shipped.load_trained("paper-attention", member)(batch.x, batch.y).numpy()
        right, far, entropy = [], [], []
        for attention, x, y in zip(A, batch.x.numpy(), batch.y.numpy(), strict=True):
            columns = linear_sum_assignment((y - x.T) ** 2)[1]
            right.append((attention.argmax(1) == columns).mean())
            far.append(((attention - np.eye(9)[columns]) ** 2).sum() / 9)
            entropy.append(stats.entropy(attention, axis=1).mean())
        assert float(found[learned.ROWS][member]) == pytest.approx(100 * np.mean(right), abs=1e-3)
        assert float(found[learned.DISTANCE][member]) == pytest.approx(np.sqrt(np.mean(far)), rel=1e-4)
        assert float(found[learned.LOSS][member]) == pytest.approx(np.mean(far), rel=1e-4)
        assert float(found[learned.POINTS][member]) == pytest.approx(np.exp(np.mean(entropy)), rel=1e-4)


def test_problems_are_the_same_for_all_and_not_those_of_the_probe() -> None:
    assert torch.equal(learned.draw(9, 5, 0).x, learned.draw(9, 5, 0).x)
    assert not torch.equal(learned.draw(9, 5, 0).x, learned.draw(9, 5, 0, purpose=iterative.FITTED).x)


def test_potentials_are_those_of_pot() -> None:
    batch = learned.draw(7, 3, 0, "values")
    found = iterative.potentials(batch)
    for (u, v), x, y in zip(found.mT, batch.x, batch.y, strict=True):
        C = ((x.double() - y.double().T) ** 2).numpy()
        _, log = ot.sinkhorn(
            np.ones(7), np.ones(7), C, iterative.REG, method="sinkhorn_log", numItermax=20_000, stopThr=1e-13, log=True
        )
        for mine, pot in ((u, log["log_u"]), (v, log["log_v"])):
            wanted = iterative.REG * (pot - pot.mean())
            assert np.allclose(mine.numpy(), wanted, atol=1e-9)


def test_the_probe_of_the_prompt_is_numpys_and_that_of_a_deep_construction_is_exact() -> None:
    fitted, tested = (double(learned.draw(7, 30, seed, "values")) for seed in (0, 1))
    r2 = iterative.probe(construction(iterative.REG, depth=400), fitted, tested)[1]
    assert r2.shape == (401, 1, 2)
    assert float(r2[-1].min()) > 0.9999  # u and v stand in their registers

    def features(batch: data.Batch) -> np.ndarray:
        x, y = batch.x.numpy(), batch.y.numpy()
        raw = np.concatenate([x, y, x**2, y**2], -1)
        return (raw - raw.mean(1, keepdims=True)).reshape(-1, 4)

    wanted, true = (iterative.potentials(batch).flatten(0, 1).numpy() for batch in (fitted, tested))
    read = features(tested) @ np.linalg.lstsq(features(fitted), wanted, rcond=None)[0]
    assert np.allclose(r2[0, 0].numpy(), 1 - ((read - true) ** 2).sum(0) / (true**2).sum(0), atol=1e-9)
    assert float(r2[0].max()) < 0.6


def test_heads_are_seen_in_either_orientation_without_the_sink() -> None:
    net, batch = construction(reg=1e-4, depth=2), double(learned.draw(6, 4, 0))
    net.P[:, 0, 1] = 0  # layer 1 keeps only the head `rows`, x on its rows; layer 2 only `columns`
    net.P[:, 1, 0] = 0
    assert not torch.equal(batch.plan()[0], batch.plan()[0].T)
    seen = iterative.heads(net, net.states(batch.x, batch.y), batch)
    assert seen.distance.shape == (2, 1)
    assert float(seen.distance.max()) < 1e-6
    assert float(seen.rows.min()) == 1
    assert torch.allclose(seen.matrices, batch.plan()[0].expand(2, 1, 6, 6), atol=1e-6)


def test_the_lens_ends_at_the_networks_own_answer() -> None:
    net, batch = learned.load("paper-attention"), learned.draw(9, PROBLEMS, 0)
    last = iterative.lens(net, net.states(batch.x, batch.y), batch).matrices[-1]
    module = shipped.load_trained("paper-attention", 2)
    assert torch.allclose(last[2], module(batch.x[0], batch.y[0]).float(), atol=1e-5)


def test_nearest_match_against_numpy() -> None:
    assert float(beyond.nearest(12, PROBLEMS, 0, "permutations")) == 100
    batch = learned.draw(12, PROBLEMS, 0, "values")
    order = np.argsort(batch.x.numpy()[..., 0], axis=1)
    chosen = np.abs(batch.y.numpy() - batch.x.numpy().transpose(0, 2, 1)).argmin(-1)
    assert float(beyond.nearest(12, PROBLEMS, 0, "values")) == pytest.approx(100 * (order == chosen).mean(), abs=1e-4)


def test_weights_moved_from_the_very_start_that_training_had() -> None:
    found = trained.moved(trained.START)
    # 9,801 entries of noise 0.1; from another seed's noise the way would undo all of it
    assert found.before.mean() == pytest.approx(0.1 * 9_801**0.5, rel=0.02)
    assert float(found.undone.abs().max()) < 0.2
    assert bool((found.way <= found.before + found.after).all())


def test_the_sorted_list_is_read_from_y() -> None:
    with_y, with_x = generalization.value_read(learned.draw(7, 50, 0))
    assert float(with_y.min()) > 0.9
    assert float(with_x.max()) < 0.3


@pytest.mark.slow
def test_generalization_shows_the_negative_result() -> None:
    outcome = run("generalization")
    assert len(outcome.rows) == 3 * len(learned.SIZES)
    line = next(row for row in outcome.rows if row["n"] == 7)
    assert line["objective"] == generalization.SORTED
    assert line["loss: median"] < 1e-5
    assert line["rows right, %: median"] < 25
    held = [claim for claim, value in outcome.checks.items() if value]
    assert held == ["trained", "guess", "sorted_learned"]
    assert set(outcome.checks) - set(held) == {"tested", "sorted_teaches"}


def test_layers_at_15_and_the_checks_that_fail() -> None:
    outcome = run("generalization-15")
    named = {row["what"]: row for row in outcome.rows}
    last = named[f"paper-attention, layer 20, {iterative.LENS}"]
    for measure in (learned.ROWS, learned.DISTANCE):  # the lens on the last layer is the output
        column = f"{measure}: median"
        assert last[column] == pytest.approx(named["paper-attention, output"][column], rel=1e-4)
    assert named["sort-beyond, output"]["rows right, %: median"] >= 90
    assert not outcome.checks["right"]
    assert not outcome.checks["nearer"]


def test_iterative_has_a_line_for_every_layer() -> None:
    outcome = run("iterative")
    assert [row["layer"] for row in outcome.rows] == list(range(21))
    assert outcome.rows[0][f"{iterative.HEADS}: distance: median"] is None
    assert (
        outcome.rows[20][f"{iterative.LENS}: distance: median"]
        < 0.8
        < outcome.rows[5][f"{iterative.LENS}: distance: median"]
    )


def test_prompting_pairs_the_seeds() -> None:
    outcome = run("prompting")
    row = next(row for row in outcome.rows if row["n"] == 9)
    rows_with, rows_without = (
        learned.score(name, 9, PROBLEMS, 0)[learned.ROWS] for name in ("paper-attention", "paper-no-prompt")
    )
    wanted = stats.ttest_rel(rows_with.double().numpy(), rows_without.double().numpy()).confidence_interval(0.95)
    assert row[f"gap, {learned.ROWS}: t low"] == pytest.approx(wanted.low, rel=1e-6)
    assert row[f"gap, {learned.ROWS}: t high"] == pytest.approx(wanted.high, rel=1e-6)


@pytest.mark.slow
def test_trained_and_beyond_run() -> None:
    outcome = run("trained")
    r2 = {
        row["network"]: row["seeds: median"]
        for row in outcome.rows
        if (row["measure"], row["at"]) == ("R² of u (at layer)", 20)
    }
    assert r2[trained.CONSTRUCTED] > 0.9 > 0.6 > r2[trained.FROM_NOISE]
    outcome = run("beyond")
    assert outcome.settings["largest training n"] == list(beyond.LARGEST)
    assert [held for claim, held in outcome.checks.items() if "n = 9 (" in claim or "n = 15 (" in claim] == [True, True]
