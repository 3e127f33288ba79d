"""Cases that were findings once, and the first of every family; the fuzzer itself is `make fuzz`."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
import torch.distributed as dist

import otformer as of
from fuzz import environments
from fuzz.__main__ import RUNS, Found, case, never_tried, record
from fuzz.commands import called
from fuzz.language import SHIPPED

FIRST = 4  # cases of every family
FEWER = {"new process": 1, "load": 2, "look_at": 2, "samples_loss": 2, "divergence": 2}  # of those that take long
X = np.eye(2)
FINDINGS = {  # calls that the fuzzer found, and what they raised, gave or took
    "OverflowError": lambda: of.divergence(X, X, reg=10**400),
    "OverflowError of a depth": lambda: of.AligningTransformer(2, 0.1, 10**400),
    "OverflowError of a schedule": lambda: of.solve(X, reg=0.1, schedule=of.Paper(10**400)),
    "another library's words": lambda: of.AligningTransformer(10**400, 0.1, 1),
    "NaN attention": lambda: of.AligningTransformer(1, 1e300, 1),
    "NaN attention in float32": lambda: of.AligningTransformer(1, 1e-45, 1),
    "no end": lambda: of.AligningTransformer(2, 1.0, 10**29, schedule="relaxed"),
    "an infinite distance": lambda: of.wasserstein_1d([1.0], [3e307], [1e8], [1e8]),
    "an infinite distance in float32": lambda: of.wasserstein_1d(np.zeros(1, "f4"), np.full(1, 1e29, "f4"), p=2),
    "AttributeError of Newton": lambda: of.solve([[1e308, 0.0, np.inf], [1e308, 0.0, 1e308]], reg=1e100),
    "a NaN bound": lambda: of.solve([[1e308, np.inf], [np.inf, 0.0]], reg=0),
    "a NaN cost": lambda: of.emd([0.5, 0.5], [0.5, 0.5], [[1e308, np.inf], [np.inf, 0.0]]),
    "IndexError": lambda: of.solve_sample(np.ones((2, 0)), np.ones((3, 0)), metric="cosine"),
    "TypeError of a memory": lambda: of.solve([[1.0]], reg=0.1, solver=of.Mixed(memory=10**400)),
    "another library's words for a width": lambda: of.SinkhornTransformer(1, 0.1, 1, width=10**400),
    "an infinite plan in float16": lambda: of.nn.Transport()(*(torch.ones(1, 1).half(),) * 2, *(torch.tensor([1e8]),) * 2),
    "TypeError of heads": lambda: of.StockTransformer(of.AligningTransformer(1, 0.1, 1), heads=10**400),
    "iterations without end": lambda: of.nn.DoublyStochastic(iterations=10**400),
    "AttributeError of a layer": lambda: of.nn.SoftSort().carry(None, torch.ones(2, 2)),
    "TypeError of a pair": lambda: of.align([None]),
    "TypeError of pairs": lambda: of.align(7),
    "TypeError of a model": lambda: of.words.load(None),
    "TypeError of an aligner": lambda: of.words.load_aligner(None),
    "TypeError of a text": lambda: of.words.train(7, "aligner"),
    "TypeError of a folder": lambda: of.words.train(["a ||| b"], 7),
    "another library's words for a folder": lambda: of.words.train(["a ||| b"], "\x00"),
    "half a character": lambda: of.align(["\ud800 ||| x"], method="vectors"),
    "infinite and NaN costs": lambda: of.squared_euclidean([[1e308, 1e308]], [[0.0, 0.0]]),
    "LinAlgError": lambda: of.mahalanobis(X, X, [[1e308, 1e308], [1e308, 1e308]]),
    "a width without memory": lambda: of.SmoothCost(lambda s, t: s * t, 10**400, 0.0, 1.0),
    "an infinite plan in float32": lambda: of.solve_unbalanced(torch.tensor([[-3e3, 0.0]]), reg=10.0, reg_type="entropy"),
}


@pytest.mark.parametrize("was", FINDINGS)
def test_what_was_found_is_refused_in_one_line(was):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        FINDINGS[was]()


def test_an_array_without_axes_is_refused_by_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.array(1.0))
    code, out, err = called(["solve", "x.npy", "x.npy"])
    assert (code, out, err) == (2, "", "otformer: x.npy must have shape (n, d), got ()\n")


def test_a_model_whose_tokenizer_has_damaged_settings_is_refused(tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(SHIPPED / "bert-en-fr", copy, copy_function=shutil.copyfile)
    settings = copy / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": "x"}))
    with pytest.raises(ValueError, match=r"^model [^\n]* has a tokenizer that does not work: [^\n]*$"):
        of.words.load(copy)


def test_a_network_whose_file_has_damaged_settings_is_refused(tmp_path):
    file = tmp_path / "net.safetensors"
    of.AligningTransformer(2, 0.1, 3).save(file)
    good = file.read_bytes()
    for was, now in (
        (b'\\"dim\\": 2', b'\\"dim\\": ,'),
        (b'\\"dim\\": 2', b'\\"dim\\": 3'),
        (b'\\"sink', b'\\"sonk'),
        (b'"W_Q"', b'"W_X"'),
    ):
        assert was in good
        file.write_bytes(good.replace(was, now))
        with pytest.raises(ValueError, match=r"^[^\n]*(damaged|not a readable)[^\n]*$"):
            of.AligningTransformer.from_file(file)


@pytest.mark.parametrize("maximize", [False, True])
def test_assignments_of_costs_whose_sums_are_infinite_are_optimal(maximize):
    """scipy calls this one infeasible, since lengths of its paths are infinite."""
    inf = np.inf
    C = np.array([[1, -3.3, inf, 0.5, inf], [-1, -1, -3.3, inf, -3.3], [1, inf, -1, inf, -1], [inf, 0, -1, 0.5, 0],
                  [-1, 2.5, inf, inf, inf]])  # fmt: skip
    C = -C if maximize else C
    found = of.linear_sum_assignment(C * 5e307, maximize)
    assert C[found].sum() == pytest.approx(C[of.linear_sum_assignment(C, maximize)].sum())


def test_a_layer_whose_plan_is_not_what_its_potentials_promise_says_so():
    far = torch.tensor([[2e29, 9e29], [4e29, 6e29]], dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="not converged"):
        of.nn.Transport(0.01)(torch.zeros_like(far[:1]), far, None, torch.tensor([0.7, 0.3], dtype=torch.float64))


def test_a_partial_plan_of_another_mass_has_not_converged():
    with pytest.warns(RuntimeWarning, match="not converged"):
        result = of.solve_partial(np.array([[2.7e299], [6e299], [6.8e299]]), reg=1.0, mass=1.0, max_depth=300)
    assert not result.converged


def test_a_sharded_plan_is_finite_or_refused():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        far = of.solve_sharded(np.zeros((2, 1), "f4"), np.ones((1, 1), "f4"), reg=1e100, max_depth=300)
        assert far.converged
        np.testing.assert_allclose(far.plan, [[0.5], [0.5]])  # λ is beyond the range of float32, the plan is not
        with pytest.raises(ValueError, match="reg must be at least 2⁻⁵⁰ of the range"):
            of.solve_sharded([[2.3e-8], [-1.4e-8]], [[7e14], [1.7e13]], [0.7, 0.3], [0.3, 0.7], reg=1e6, max_depth=300)
    finally:
        dist.destroy_process_group()


def test_a_batch_with_a_broken_problem_warns_of_the_others():
    hard = np.random.default_rng(0).random((9, 9)) * 1e3
    with pytest.warns(RuntimeWarning, match="not converged: 1 of 2"), pytest.raises(of.BrokenProblems):
        of.solve_batch([hard, [[np.nan]]], reg=1e-9, max_depth=2)


def test_rounding_a_plan_with_infinite_entries_is_finite():
    rng = np.random.default_rng(0)
    for _ in range(5):
        with pytest.warns(RuntimeWarning, match="not converged"):
            found = of.solve(rng.random((3, 5)) * 1e15, reg=1e-12, max_depth=300).rounded()
        assert np.isfinite([found.value, found.bound, found.marginal_error]).all()


def test_quantiles_of_values_near_the_end_of_float64_have_gradients():
    x = torch.tensor([6.9e307, 2.2e307, 4.7e307], dtype=torch.float64, requires_grad=True)
    for layer in (of.nn.SoftQuantile(0.5, 1.0), of.nn.SoftSort(1.0)):
        expected = torch.autograd.functional.jacobian(layer, x.detach() / 1e307)  # they are homogeneous of degree 1
        torch.testing.assert_close(torch.autograd.functional.jacobian(layer, x), expected, atol=1e-9, rtol=0)


def test_layers_of_empty_batches_are_empty_and_differentiable():
    x = torch.zeros(0, 3, requires_grad=True)
    for layer in (of.nn.SoftSort(), of.nn.SoftRank(), of.nn.SoftTopK(1), of.nn.SoftQuantile([0.1, 0.9])):
        layer(x).sum().backward()
    assert of.nn.SoftSort().carry(x, torch.zeros(0, 3, 2)).shape == (0, 3, 2)
    assert of.nn.DoublyStochastic()(torch.zeros(0, 3, 3), torch.zeros(0, 3)).shape == (0, 3, 3)


def test_points_one_with_a_gradient_and_one_with_a_negative_stride():
    x, y = torch.ones(1, 3, dtype=torch.float64, requires_grad=True), np.ones((1, 3))[::-1]
    assert torch.autograd.grad(of.solve_sample(x, y).value, x)[0].abs().sum() == 0


def test_counts_are_recorded_in_a_page_beside_those_of_other_families(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- counts: by us -->\n<!-- end of counts -->\nafter\n")
    for family, counts in (("sort", {"answered": 2, "refused": 1}), ("emd", {"answered": 5}), ("sort", {"refused": 7})):
        record(page, [Found(family, Counter(counts), [], Counter(), 1.0)], 10)
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("# Title", "after")
    assert "| sort | 10 | 7 | 0 | 7 | 0 |" in lines
    assert "| emd | 10 | 5 | 5 | 0 | 0 |" in lines
    assert "| all | | 12 | 5 | 7 | 0 |" in lines


def test_every_public_name_command_and_option_has_a_family():
    assert never_tried() == []


@pytest.mark.parametrize("name", environments.SURROUNDINGS)
def test_a_command_in_hostile_surroundings(name, tmp_path):
    np.save(tmp_path / "x.npy", X)
    code, _, err = environments.forked(name, ["solve", "x.npy", "x.npy", "--out", "o.npz"], tmp_path, b"")
    assert code in (0, 2), err
    assert "Traceback" not in err


@pytest.mark.parametrize("family", RUNS)
def test_the_first_cases_of_every_family(family):
    for seed in range(FEWER.get(family, FIRST)):
        came, said = case(family, seed)
        assert came != "found", f"seed {seed}: {said}"


def test_the_fuzzer_finds_what_is_wrong(monkeypatch):
    """A sort that swaps two numbers, and an answer that is no number, are findings."""
    monkeypatch.setattr(of, "sort", lambda values: np.sort(np.asarray(values, float))[::-1])
    monkeypatch.setattr(of, "sinkhorn", lambda *_, **__: np.full((1, 1), np.nan))
    assert any(case("sort", seed)[0] == "found" for seed in range(20))
    assert any(case("sinkhorn", seed)[0] == "found" for seed in range(20))
