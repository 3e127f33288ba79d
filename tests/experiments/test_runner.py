"""Experiments: the registry, what the runner writes, and the numbers of the quick ones against independent oracles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import ot
import pytest
import torch

from otformer import figures
from otformer.experiments import _problems as problems
from otformer.experiments import convergence, experiment, sizes, sorting, theorem_bound, theorem_gd
from otformer.experiments.experiment import Context, Experiment, Finding, Outcome
from otformer.experiments.registry import EXPERIMENTS, chosen, left_out, listing
from otformer.experiments.runner import FILES, reproduce
from otformer.network.schedule import Gradient
from otformer.network.transformer import AligningTransformer
from otformer.theory import depth_bounds
from otformer.transport.reference import gradient_descent


def tiny(name: str = "tiny", value: float = 1.0, fails: bool = False) -> Experiment:
    """An experiment that takes no time; the name is not registered."""

    def run(context: Context) -> Outcome:
        context.progress(0.5)
        if fails:
            raise ArithmeticError("it failed")
        fig, ax = figures.figure(2, 2)
        ax.plot([0, 1], [0, value])
        checks, found = {"it holds": True, "it does not": False}, Finding("It holds", "One < two.", "1")
        return Outcome([{"n": 1, "<λ>": value}], fig, "One < two.", checks, {"n": 1}, found)

    return Experiment(name, f"Title of {name}", "figure 0", "A & B", run)


def test_registry_has_the_experiments_of_the_paper() -> None:
    asked = {"convergence", "sizes", "theorem-gd", "theorem-bound", "sorting", "depth", "errata", "ablation"}
    assert asked <= set(EXPERIMENTS)
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())
    assert all(experiment.title and experiment.claim and experiment.source for experiment in EXPERIMENTS.values())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nope", "known are convergence, sizes"),
        ("convergance", r"did you mean convergence\?"),
        ("figure-10", r"did you mean .*figure-1"),
        ("figure", "did you mean"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest_or_all(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"unknown experiment '{name}'; {hint}"):
        chosen(["sizes", name])


@pytest.mark.parametrize(
    ("alias", "names"),
    [
        ("figure-1", ["fox"]),
        ("figure-2", ["generalization", "prompting", "iterative"]),
        ("fig2.2", ["prompting"]),
        ("Figure 2 (3)", ["iterative"]),
        ("figure-3", ["convergence"]),
        ("fig3", ["convergence"]),
        ("fig. 4", ["sizes"]),
        ("figure_5", ["translation-attention"]),
        ("figure-6", ["translation-attention-de"]),
        ("figure-7", ["embedding-ot"]),
        ("figure-8", ["sketch"]),
        ("figure-9", ["generalization-15"]),
        ("theorem-3.1", ["theorem-gd"]),
        ("thm3.2", ["theorem-bound"]),
        ("theorem-3", ["theorem-gd", "theorem-bound"]),
    ],
)
def test_figures_and_theorems_of_the_paper_are_names(alias: str, names: list[str]) -> None:
    assert [each.name for each in chosen([alias])] == names


def test_the_listing_has_every_experiment_and_a_time() -> None:
    found = listing()
    assert [name for name, *_ in found] == list(EXPERIMENTS)
    assert all(1 <= seconds <= 60 and title for _, _, seconds, title in found)


def test_the_listing_loads_neither_torch_nor_matplotlib() -> None:
    """With stubs for the packages above the registry, since `otformer` itself may load what it likes."""
    code = (
        "import sys, types\n"
        "for name in ('otformer', 'otformer.experiments'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "    sys.modules[name].__path__ = [f'{sys.argv[1]}/' + name.replace('.', '/')]\n"
        "from otformer.experiments.registry import chosen, listing\n"
        "assert len(listing()) == int(sys.argv[2]) and chosen(['fig3'])\n"
        "print([name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules])"
    )
    source = Path(experiment.__file__).parents[2]
    call = [sys.executable, "-c", code, str(source), str(len(EXPERIMENTS))]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_chosen_keeps_the_order_of_the_report_and_each_once() -> None:
    assert [each.name for each in chosen(["depth", "sizes", "depth", "figure-4"])] == ["sizes", "depth"]
    assert [each.name for each in chosen(None)] == list(EXPERIMENTS)


def test_without_an_extra_its_experiments_are_left_out_or_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otformer.experiments.registry.find_spec", lambda name: None)
    models = {"fox", "translation-attention", "translation-attention-de"}
    assert left_out() == dict.fromkeys(models, "words")
    assert [each.name for each in chosen(None)] == [name for name in EXPERIMENTS if name not in models]
    with pytest.raises(ValueError, match=r"fox needs an extra: pip install 'otformer\[words\]'"):
        chosen(["convergence", "fox"])


def test_files_are_written_whole(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    (record,) = reproduce([tiny()], tmp_path / "a" / "out", seed=3, progress=lambda *args: told.append(args))
    folder = tmp_path / "a" / "out" / "tiny"
    assert record.folder == folder
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["tiny"]
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "figure.svg").read_text()
    assert (folder / "numbers.csv").read_text(encoding="utf-8").splitlines() == ["n,<λ>", "1,1.0"]
    assert record.numbers == [{"n": "1", "<λ>": "1.0"}]
    assert json.loads((folder / "run.json").read_text(encoding="utf-8")) == record.about
    assert (record.about["seed"], record.about["full"]) == (3, False)
    assert record.checks == {"it holds": True, "it does not": False}
    assert record.about["versions"]["torch"] == torch.__version__
    assert record.about["versions"]["POT"] == ot.__version__
    assert record.about["seconds"] >= 0
    assert told == [("tiny", 0.5), ("tiny", 1.0)]


def test_items_in_turn_tell_their_share_of_the_work_when_done() -> None:
    told: list[float] = []
    seen = [(item, len(told)) for item in Context(progress=told.append).each("abcd", 0.8)]
    assert seen == [("a", 0), ("b", 1), ("c", 2), ("d", 3)]  # told after an item, not before
    assert told == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_torch_has_one_thread_inside_and_its_own_number_after(tmp_path: Path) -> None:
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        reproduce([tiny()], tmp_path, progress=lambda *args: seen.append(torch.get_num_threads()))
        assert set(seen) == {1}
        with pytest.raises(ArithmeticError):
            reproduce([tiny(fails=True)], tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_same_seed_gives_the_same_figure(tmp_path: Path) -> None:
    for name in ("one", "two"):
        reproduce([tiny()], tmp_path / name)
    for file in ("figure.png", "figure.svg", "numbers.csv"):
        assert (tmp_path / "one" / "tiny" / file).read_bytes() == (tmp_path / "two" / "tiny" / file).read_bytes()


def test_a_failure_leaves_nothing_and_keeps_the_old(tmp_path: Path) -> None:
    with pytest.raises(ArithmeticError):
        reproduce([tiny(), tiny("other", fails=True)], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny"]
    before = (tmp_path / "tiny" / "run.json").read_bytes()
    with pytest.raises(ArithmeticError):
        reproduce([tiny(fails=True)], tmp_path)
    assert (tmp_path / "tiny" / "run.json").read_bytes() == before


def test_a_failure_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full_disk)
    with pytest.raises(ValueError, match=r"tiny cannot be written: No space left on device"):
        reproduce([tiny()], tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="cannot be written"):
        reproduce([tiny()], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_resume_skips_what_is_done_with_the_same_settings(tmp_path: Path) -> None:
    reproduce([tiny()], tmp_path)

    def run(value: float, **options: Any) -> list[str]:
        return [record.numbers[0]["<λ>"] for record in reproduce([tiny(value=value), tiny("other")], tmp_path, **options)]

    assert run(2.0, resume=True) == ["1.0", "1.0"]
    assert (tmp_path / "other" / "run.json").is_file()
    assert run(2.0, seed=1, resume=True) == ["2.0", "1.0"]
    assert run(3.0, seed=1) == ["3.0", "1.0"]


def test_resume_redoes_a_folder_that_is_not_whole(tmp_path: Path) -> None:
    reproduce([tiny()], tmp_path)
    (tmp_path / "tiny" / "figure.svg").unlink()
    reproduce([tiny()], tmp_path, resume=True)
    assert (tmp_path / "tiny" / "figure.svg").is_file()


def test_unwritable_out_and_bad_seed_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"out must be a folder that can be written to, got .*file"):
        reproduce([tiny()], tmp_path / "file" / "out")
    with pytest.raises(ValueError, match="seed must be a whole number"):
        reproduce([tiny()], tmp_path / "new", seed=-1)
    assert not (tmp_path / "new").exists()


def test_pot_plan_is_doubly_stochastic_and_of_the_right_form() -> None:
    x, y, C = problems.unit_cube(6, 2, generator=torch.Generator().manual_seed(1))
    assert np.allclose(C, ot.dist(x.numpy(), y.numpy()))
    P = problems.pot_plan(C, 0.1)
    assert torch.allclose(P.sum(0), torch.ones(6, dtype=P.dtype), atol=1e-9)
    assert torch.allclose(P.sum(1), torch.ones(6, dtype=P.dtype), atol=1e-9)
    H = P.log() + C / 0.1  # log P + C/λ must be u_i + v_j
    assert float((H - H[:1] - H[:, :1] + H[0, 0]).abs().max()) < 1e-9


def test_dense_iterates_are_gradient_descent_and_the_module() -> None:
    x, y, C = problems.unit_cube(5, 2, generator=torch.Generator().manual_seed(2))
    u, v = problems.final(C, Gradient().layers(0.1, 50))
    descent = gradient_descent(C, 0.1, 0.1)
    expected = [next(descent) for _ in range(51)][-1]
    module = AligningTransformer(2, 0.1, 50)(x, y).potentials()
    for found in (expected, module):
        assert float((u - found[0]).abs().max()) < 1e-13
        assert float((v - found[1]).abs().max()) < 1e-13


def test_mean_marginal_error_counts_both_sides() -> None:
    C, zero = torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    # P = e^{-1} everywhere: every sum is 2/e, off by 1 − 2/e
    assert problems.mean_marginal_error(C, zero, zero, 1.0) == pytest.approx(1 - 2 / np.e, abs=1e-15)


@pytest.mark.parametrize(
    ("measured", "first", "compared", "share"),
    [
        ([1.0, 0.5, 0.1], 2, 1, 0.5),  # says something at layer 2 alone; at layer 1 it is finite, and compared too
        ([0.3, 0.5, 0.1], 3, 0, 0.5),  # not below the distance at layer 0 within the run
        ([1.0, 0.9, 0.8], 2, 1, 1.6),  # broken at layer 2
    ],
)
def test_theorem_bound_compares_at_every_layer(
    monkeypatch: pytest.MonkeyPatch, measured: list[float], first: int, compared: int, share: float
) -> None:
    values = {0: np.inf, 1: 1.0, 2: 0.5}
    monkeypatch.setattr(theorem_bound, "RUN", 2)
    monkeypatch.setattr(theorem_bound.Problem, "bound", lambda self, name, depth: values.get(depth, 0.25))
    problem = theorem_bound.Problem(3, 1.0, 1.0, 1.0, (1.0, 1.0), torch.tensor(measured, dtype=torch.float64))
    row = theorem_bound.compared(problem, theorem_bound.CORRECTED)
    assert (row[theorem_bound.SPEAKS], row["layers compared"]) == (first, compared)
    assert row["largest measured / bound"] == pytest.approx(share)
    assert theorem_bound.compared(problem, theorem_bound.INFORMAL)["largest measured / bound"] == 0


@pytest.mark.slow
def test_theorem_bound_holds_and_would_fail_if_the_bound_were_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem_bound, "RUN", 100)
    monkeypatch.setattr(theorem_bound, "REGS", (1.0,))
    monkeypatch.setattr(theorem_bound, "SIZES", (2, 4))
    true = depth_bounds.start_distance
    for factor, holds in ((1.0, True), (0.02, False)):
        monkeypatch.setattr(depth_bounds, "start_distance", lambda *given, f=factor: f * true(*given))
        with figures.applied():
            checks = list(theorem_bound.run(Context()).checks.values())
        assert checks == [holds, False]  # two problems are not eight


@pytest.mark.slow
def test_sizes_holds_where_sigma_is_close_to_1_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "SIZES", (8, 4))
    with figures.applied():
        outcome = sizes.run(Context(seed=7))  # draws a problem of 8 points with σ = 0.998
    assert all(outcome.checks.values())
    slow = outcome.rows[0]
    assert slow["n"] == 8
    assert slow[sizes.ERROR] > 1e-6
    assert slow[sizes.ERROR] == pytest.approx(slow[sizes.PREDICTED], rel=0.5)


def test_theorem_gd_gaps_tell_the_frozen_sink_from_the_token() -> None:
    x, y, C = problems.unit_cube(8, 2, generator=torch.Generator().manual_seed(0))
    descent = gradient_descent(C, 0.1, 0.1)
    first = [next(descent) for _ in range(41)]
    frozen = theorem_gd.gaps(AligningTransformer(2, 0.1, 40), x, y, first)
    token = theorem_gd.gaps(AligningTransformer(2, 0.1, 40, sink="token"), x, y, first)
    assert len(frozen) == 41
    assert max(frozen) < 1e-13
    assert token[1] < 1e-13 < 0.05 < token[40]


def test_the_sorting_network_sorts_random_numbers_as_numpy_does() -> None:
    x = torch.rand(3, 12, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    ranks = torch.as_tensor(np.argsort(np.argsort(x.numpy(), axis=1), axis=1))
    y = (torch.arange(12, dtype=torch.float64) + 1).div(12).expand(3, 12)[..., None]
    row = sorting.sort_lists("sort numbers", x[..., None], y, ranks)
    assert (row["problems"], row["exact"], row["layers"]) == (3, 3, 288)
    assert sorting.sort_lists("sort numbers", x[..., None], y, ranks.flip(1))["exact"] == 0


@pytest.mark.slow
def test_convergence_runs_and_holds_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence, "PROBLEMS", 3)
    with figures.applied():
        outcome = convergence.run(Context())
    assert len(outcome.rows) == convergence.DEPTH + 1
    assert all(outcome.checks.values())
    assert outcome.rows[600][f"{convergence.FROZEN}: largest"] < 0.1 < outcome.rows[600][f"{convergence.PAPER}: median"]
