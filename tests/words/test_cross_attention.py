"""Cross-attention as transport: the rules against POT and their literal definitions, and what leaks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import ot
import pytest
import torch
from scipy.stats import entropy
from torch import Tensor

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
from otformer.lab.translators import variants
from otformer.lab.translators.compare import main
from otformer.lab.translators.compare_digest import digest
from otformer.lab.translators.evaluate import translate
from otformer.lab.translators.networks import PAD
from otformer.lab.translators.prefixes import losses, translate_prefixes
from otformer.nn import DoublyStochastic
from otformer.words.models import cross_attention as rules
from otformer.words.models.models import Model, load
from otformer.words.models.shipped import folder
from otformer.words.text.text import Pair

PAIRS = [
    Pair("the black cat sleeps on the sofa.", "le chat noir dort sur le canapé."),
    Pair("i do not know what to say.", "je ne sais pas quoi dire."),
]


def problem(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [3, 2, 6, 7], and masks: the second has three targets, the third four sources."""
    logits = 2 * torch.randn(3, 2, 6, 7, generator=torch.Generator().manual_seed(0), dtype=dtype)
    targets, sources = torch.ones(3, 6, dtype=torch.bool), torch.ones(3, 7, dtype=torch.bool)
    targets[1, 3:] = sources[2, 4:] = False
    return logits, targets, sources


@pytest.fixture(scope="module")
def shipped() -> Model:
    return load(folder("en-fr"))


@pytest.fixture
def model(shipped: Model, request: pytest.FixtureRequest) -> Model:
    """The shipped translator with the rule of the test's parameter."""
    rules.set_rule(shipped.network, request.param)
    return shipped


def test_balanced_rows_are_those_of_pot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "BALANCING", 300)
    logits, targets, sources = problem()
    A = rules.balanced(logits, targets, sources)
    for b in range(len(logits)):
        t, s = int(targets[b].sum()), int(sources[b].sum())
        assert (A[b, :, t:] == 0).all()
        assert (A[b, :, :, s:] == 0).all()
        for h in range(logits.shape[1]):
            L = logits[b, h, :t, :s].numpy()
            P = ot.sinkhorn(np.ones(t), np.full(s, t / s), -L, 1.0, "sinkhorn_log", numItermax=10_000, stopThr=1e-14)
            np.testing.assert_allclose(A[b, h, :t, :s].numpy(), P, atol=1e-9)


def test_few_iterations_leave_rows_exact() -> None:
    logits, targets, sources = problem()
    torch.testing.assert_close(rules.balanced(logits, targets, sources).sum(-1)[0], torch.ones(2, 6).double())


@pytest.mark.parametrize("size", [(6, 6), (6, 7)])
def test_balanced_is_the_transpose_of_doubly_stochastic_which_ends_on_columns(size: tuple[int, int]) -> None:
    T, S = size
    L = 4 * problem()[0][0, 0, :, :S]  # far from balanced after few iterations, so that the order tells
    A = rules.alternated(L, torch.tensor(True), rules.BALANCING)
    layer = DoublyStochastic(iterations=rules.BALANCING)
    torch.testing.assert_close(layer(L.mT, b=torch.ones(T).double()).mT, A, atol=1e-14, rtol=0)
    assert (layer(L, a=torch.ones(T).double()) - A).abs().max() > 1e-3


def one_by_one(L: Tensor, strength: float) -> Tensor:
    """The online rule as it is defined, for logits [T, S]: every row from those that were given out before it."""
    rows: list[Tensor] = []
    for t, row in enumerate(L, 1):
        c = torch.stack(rows).sum(0) if rows else torch.zeros_like(row)
        rows.append((row - strength * ((len(row) * c + 1) / t).log()).softmax(-1))
    return torch.stack(rows)


@pytest.mark.parametrize("strength", [0.0, 0.5, 3.0])
def test_online_rows_are_made_one_by_one(strength: float) -> None:
    logits, targets, sources = problem()
    for rounds, exact in ((2, 3), (5, 6)):
        A = rules.online(logits, targets, sources, strength, rounds)
        for b in range(len(logits)):
            s = int(sources[b].sum())
            assert (A[b, :, :, s:] == 0).all()
            for h in range(logits.shape[1]):
                wanted = one_by_one(logits[b, h, :, :s], strength)
                torch.testing.assert_close(A[b, h, :exact, :s], wanted[:exact])


def test_an_online_row_takes_a_mirror_step_on_the_prefix_problem() -> None:
    """Row t minimises −⟨a, L⟩ + Σ a log a + ρ⟨a, ∇KL⟩ over the simplex: no other row that was tried is below it."""
    logits, targets, sources = problem()
    L, rho = logits[0, 0], 2.0
    A = rules.online(logits, targets, sources, rho, rounds=5)[0, 0]
    before = A.cumsum(0) - A
    penalty = rho * torch.log((before + 1 / 7) / (torch.arange(1, 7)[:, None] / 7))
    others = torch.distributions.Dirichlet(torch.ones(7).double()).sample((1000, 6))

    def value(a: Tensor) -> Tensor:
        return (torch.special.xlogy(a, a) - a * L + a * penalty).sum(-1)

    assert (value(A) <= value(others) + 1e-12).all()
    assert (value(A) <= value(0.999 * A + 0.001 * others)).all()


def test_gradients_are_finite_where_tokens_are_absent() -> None:
    for rule in (rules.softmax, rules.balanced, rules.online):
        logits, targets, sources = problem(torch.float32)
        logits = (20 * logits).requires_grad_()
        (rule(logits, targets, sources) ** 2).sum().backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()
        assert (logits.grad[2, :, :, 4:] == 0).all()


@torch.inference_mode()
def logits_of(model: Model, targets: list[list[int]], **options: bool) -> Tensor:
    source = torch.tensor([[50, 60, 70, 80, 0], [90, 100, 0, PAD, PAD]])
    given = {"input_ids": source, "attention_mask": (source != PAD).long(), "decoder_input_ids": torch.tensor(targets)}
    return torch.as_tensor(model.network(**given, use_cache=False).logits)


def test_softmax_as_a_rule_is_marians_own() -> None:
    model = load(folder("en-fr"))
    targets = [[PAD, 20, 21, 22], [PAD, 30, 31, 32]]
    wanted = logits_of(model, targets)
    rules.set_rule(model.network, "softmax")
    torch.testing.assert_close(logits_of(model, targets), wanted)


@pytest.mark.parametrize(("model", "leaks"), [("softmax", False), ("online", False), ("balanced", True)], indirect=["model"])
def test_what_a_position_sees_of_the_target(model: Model, leaks: bool) -> None:
    """A later token changes an earlier position's logits only where the rule leaks; padding never does."""
    one, other = [[PAD, 20, 21, 22], [PAD, 30, 31, 32]], [[PAD, 20, 21, 500], [PAD, 30, 31, 600]]
    moved = (logits_of(model, one) - logits_of(model, other))[:, :3].abs().max()
    assert (moved > 0.1) == leaks
    padded = [[*row[:3], PAD, PAD] for row in one]
    short = [row[:3] for row in one]
    torch.testing.assert_close(logits_of(model, padded)[:, :3], logits_of(model, short), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(("model", "leaks"), [("softmax", False), ("online", False), ("balanced", True)], indirect=["model"])
def test_the_loss_from_prefixes_shows_what_leaks(model: Model, leaks: bool) -> None:
    found = losses(model, PAIRS)
    assert (abs(found["teacher"] - found["prefix"]) > 1e-3) == leaks


def test_prefixes_translate_as_generate_does() -> None:
    model = load(folder("en-fr"))
    sentences = [pair.source for pair in PAIRS]
    assert translate_prefixes(model, sentences) == translate(model.network, model.tokenizer, sentences)


def test_a_folder_says_its_rule(tmp_path: Path) -> None:
    shutil.copytree(folder("en-fr"), tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"cross_attention": "online"}))
    model, plain = load(tmp_path / "model"), load(folder("en-fr"))
    targets = [[PAD, 20, 21, 22], [PAD, 30, 31, 32]]
    assert (logits_of(model, targets) - logits_of(plain, targets))[:, 1:].abs().max() > 0.1
    with pytest.raises(ValueError, match="use_cache must be False"):
        model.network.generate(torch.tensor([[50, 60, 0]]), use_cache=True, max_new_tokens=4)
    file.write_text(json.dumps(settings | {"cross_attention": "softsign"}))
    with pytest.raises(ValueError, match="cross_attention must be one of softmax, balanced, online, got 'softsign'"):
        load(tmp_path / "model")


# The regulariser


def test_the_plan_of_embeddings_is_pots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "PLAN_ITERATIONS", 500)
    embeddings = torch.randn(40, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    embeddings = torch.cat([embeddings, torch.zeros(PAD - 39, 8)])
    source, target = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[2, 7, 9, PAD]])
    P = variants.embeddings_plan(embeddings, source, target)[0]
    x, y = (torch.nn.functional.normalize(embeddings[ids[0]]).numpy() for ids in (target[:, :3], source))
    wanted = 3 * ot.sinkhorn(np.ones(3) / 3, np.ones(4) / 4, ot.dist(x, y), 0.05, "sinkhorn_log", numItermax=10_000)
    np.testing.assert_allclose(P[:3].numpy(), wanted, atol=1e-4)
    assert (P[3] == 0).all()


def test_the_divergence_is_scipys_mean_over_layers_and_tokens() -> None:
    generator = torch.Generator().manual_seed(2)
    plan = torch.rand(2, 3, 4, generator=generator).softmax(-1)
    heads = [torch.rand(2, 5, 3, 4, generator=generator).softmax(-1) for _ in range(6)]
    there = torch.tensor([[True, True, True], [True, False, False]])
    each = [entropy(plan[b, t], A[b, :, t].mean(0)) for A in heads for b, t in there.nonzero().tolist()]
    assert float(variants.divergence(plan, heads, there)) == pytest.approx(np.mean(each), rel=1e-4)


@pytest.mark.parametrize("model", ["softmax"], indirect=True)
def test_attention_is_watched_inside_the_block_only(model: Model) -> None:
    with variants.watched(model.network) as seen:
        logits_of(model, [[PAD, 20], [PAD, 30]])
    logits_of(model, [[PAD, 20], [PAD, 30]])
    assert [tuple(A.shape) for A in seen] == 6 * [(2, 8, 2, 5)]


# The comparison's files


def test_a_folder_that_is_no_comparison_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["digest", "--out", str(tmp_path), "--text", str(tmp_path), "--to", str(tmp_path / "x.json")])
    assert "out must be a folder that `compare run` has filled" in capsys.readouterr().err


@pytest.mark.parametrize("run", ["softmax", "soft-0", "plan-x", "-1"])
def test_a_run_that_is_no_variant_and_seed_is_refused(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [f"--{name}={tmp_path / name}" for name in ("out", "text")]
    with pytest.raises(SystemExit):
        main(["run", *places, f"--runs={run}"])
    wanted = "runs must be variant-seed, the variant one of softmax, balanced, online, plan"
    assert f"{wanted}, got '{run}'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_digest_has_runs_curves_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otformer.lab.translators.compare_digest.translated_sets", lambda text, size: {})
    line = dict.fromkeys(("distance", "marginal_error", "row_entropy", "uniform", "Hits@1_low", "Hits@1_high"), 0.123456)
    line |= {
        "method": "attention",
        "reading": "cross-input",
        "layer": 1,
        "head": 0,
        "Hits@1": 0.5,
        "sentences": 2,
        "pairs": 3,
    }
    lines = [
        {"set": "run", "variant": "online", "seed": 1, "finished": False, "steps": 9, "done": 7, "seconds": 3.5},
        {"set": "loss", "teacher": 2.0, "prefix": 2.5},
        {"set": "news", "table": [line, line | {"head": 3}]},
        {"set": "early", "step": 2, "table": [line, line | {"head": 3}]},
    ]
    files = {"scores.jsonl": "\n".join(map(json.dumps, lines)), "log.csv": "step,loss,seconds\n3,4.5,1.5\n7,3.25,3.5\n"}
    (tmp_path / "online-1").mkdir()
    for name, text in files.items():
        (tmp_path / "online-1" / name).write_text(text)
    found = digest(tmp_path, tmp_path)
    (run,) = found["runs"]
    assert (found["steps"], run["variant"], run["done"], run["finished"]) == (9, "online", 7, False)
    assert run["curve"] == [[3.0, 4.5, 1.5], [7.0, 3.25, 3.5]]
    assert found["together"] == {"online-1": 0.5}
    assert len(run["news"]) == 2
    assert len(run["early"]) == 1  # the mean of heads
    assert dict(zip(found["columns"]["news"], run["news"][0], strict=True))["distance"] == 0.1235
    assert run["hansards"] == []
