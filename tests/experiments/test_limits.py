"""The experiments behind docs/limits.md: their numbers on networks whose answer is known, and their claims."""

from __future__ import annotations

import pytest
import torch

from otformer import figures
from otformer.lab.experiments import _trained_models as learned
from otformer.lab.experiments import ablation, learned_algorithm, two_point
from otformer.lab.experiments._problems import pot_plan, unit_cube
from otformer.lab.experiments.experiment import Context, Outcome
from otformer.lab.experiments.registry import EXPERIMENTS
from otformer.lab.training.initialisation import ConstructionStart
from otformer.learning.model import Architecture, LearningTransformer
from otformer.network.transformer import AligningTransformer


def run(name: str) -> Outcome:
    with figures.applied():
        return EXPERIMENTS[name].run(Context())


def test_two_point_holds_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_point, "DEPTH", 6_000)
    outcome = run("two-point")
    held = {text: value for text, value in outcome.checks.items() if "ω = 1.8" not in text}
    assert all(held.values())
    assert len(outcome.checks) == len(held) + 1
    slow = [row for row in outcome.rows if row["schedule"] == "alternating" and row["layers"] == 576]
    assert [row["error × layers"] for row in slow] == pytest.approx([2.0, 2.0], rel=0.02)


def test_the_fit_finds_the_construction_it_was_given() -> None:
    """λ = γ = 0.1 in every loop and all R² 1. The rebuilt network has the rows of the given one, and nothing is off."""
    net = LearningTransformer(Architecture(depth=6, tied=True, written="memory", sink="frozen"), 2).double()
    ConstructionStart(reg=0.1).fill(net, seed=0)
    fitted = learned_algorithm.fit(net.requires_grad_(False), learned.draw(7, 20, 0, "values"))
    one = torch.ones(6, 2, 2, dtype=torch.float64)
    for name, value in {"reg": 0.1, "step": 0.1, "logits": 1, "tanh": 1, "values": 1}.items():
        assert torch.allclose(getattr(fitted, name), value * one, atol=1e-6), name
    right = learned_algorithm.compare(net, fitted, 7, 20, 0)
    assert right[f"{learned_algorithm.SAME}: as the learned"].tolist() == [100, 100]
    assert torch.equal(right["learned"], right[learned_algorithm.SAME])
    apart = learned_algorithm.deviate(net, fitted, learned.draw(7, 20, 0, "values"))
    assert all(float(part.max()) < 1e-4 for part in apart)


def test_theorem_s_bounds_networks_near_the_construction() -> None:
    """Logits and values off by 1 %, λ = γ: potentials are within the bound, and the bound is below the largest cost."""
    net = LearningTransformer(Architecture(depth=6, tied=True, written="memory", sink="frozen"), 2).double()
    ConstructionStart(reg=0.1).fill(net, seed=0)
    batch = learned.draw(7, 20, 0, "values")
    fitted = learned_algorithm.fit(net.requires_grad_(False), batch)
    net.P *= 1.01
    net.V *= 1.01
    apart = learned_algorithm.deviate(net, fitted, batch)
    assert (apart.logits > 1e-3).all()
    assert torch.allclose(apart.values, torch.full_like(apart.values, 0.01), atol=1e-6)
    assert (apart.written <= apart.allowed(fitted)).all()
    assert (apart.actual > 1e-4).all()
    assert (apart.actual <= apart.errors).all()
    assert (apart.errors <= apart.bound).all()
    assert (apart.bound < 1).all()


def test_the_learned_logits_are_the_constructed_ones_and_the_steps_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "problems", lambda context: 40)
    before = learned.load(learned_algorithm.RECIPE).P.dtype
    outcome = run("learned-algorithm")
    assert [*outcome.checks.values()] == [True, True, False, False, True, False, False]
    assert len(outcome.rows) == 20 * 2 * 8
    assert learned.load(learned_algorithm.RECIPE).P.dtype == before  # the shared network is not touched


def test_every_column_of_the_weights_is_ternary_and_int8_of_a_matrix_is_not_enough() -> None:
    net = AligningTransformer(2, 0.07, 3)
    for W in (net.W_Q, net.W_K, net.W_V, net.W_O):
        assert torch.equal(ablation.rounded(W, 1, -2), W)
        assert torch.equal(ablation.rounded(W, 127, -2), W)
    assert not torch.equal(ablation.rounded(net.W_Q, 127, (-2, -1)), net.W_Q)


def test_ablation_of_the_minimal_prompt_and_of_rounded_weights() -> None:
    x, y, costs = unit_cube(2, ablation.N, ablation.DIM, generator=torch.Generator().manual_seed(1))
    target = torch.stack([pot_plan(C, ablation.REG) for C in costs])
    error = {}
    for group, name, change in ablation.CHANGES:
        if group in ("whole", "minimal", "rounding"):
            network = ablation._network(group)
            Z = ablation._changed(network, network.prompt(x, y).Z, group, change)
            error[name] = ablation._errors(network, Z, target)[ablation.ATTENTION_ERROR]
    assert error[ablation.MINIMAL_PROMPT] < 1e-4
    assert error[ablation.TERNARY] == error[ablation.WHOLE] < 1e-4
    assert error[ablation.INT8] > 0.05
    blanked = [value for name, value in error.items() if name.startswith("minimal prompt without")]
    assert len(blanked) == 5
    assert min(blanked) > 0.05
