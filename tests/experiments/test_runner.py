"""Experiments: the registry, and what the runner writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ot
import pytest
import torch

from otformer import figures
from otformer.lab.experiments import experiment
from otformer.lab.experiments.experiment import Context, Experiment, Outcome
from otformer.lab.experiments.registry import EXPERIMENTS, chosen, left_out, listing
from otformer.lab.experiments.runner import FILES, reproduce


def tiny(name: str = "tiny", value: float = 1.0, fails: bool = False) -> Experiment:
    """An experiment that takes no time; the name is not registered."""

    def run(context: Context) -> Outcome:
        context.progress(0.5)
        if fails:
            raise ArithmeticError("it failed")
        fig, ax = figures.figure(2, 2)
        ax.plot([0, 1], [0, value])
        checks = {"holds": True, "it does not": False}
        return Outcome([{"n": 1, "<λ>": value}], fig, {"value": value, "n": 1}, checks, {"n": 1})

    texts = {"finding": "It holds", "brief": "One < two.", "number": "{value:.2f}", "details": "It is {value}."}
    return Experiment(name, f"Title of {name}", "figure 0", "A & B", run, texts, {"holds": "it holds at n = {n}"})


def test_registry_has_the_experiments_of_the_paper() -> None:
    asked = {"convergence", "sizes", "theorem-gd", "theorem-bound", "sorting", "depth", "errata", "ablation"}
    assert asked <= set(EXPERIMENTS)
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())
    assert all(experiment.title and experiment.claim and experiment.source for experiment in EXPERIMENTS.values())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nope", "known are fox, generalization"),
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
        "for name in ('otformer', 'otformer.lab', 'otformer.lab.experiments'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "    sys.modules[name].__path__ = [f'{sys.argv[1]}/' + name.replace('.', '/')]\n"
        "from otformer.lab.experiments.registry import chosen, listing\n"
        "assert len(listing()) == int(sys.argv[2]) and chosen(['fig3'])\n"
        "print([name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules])"
    )
    source = Path(experiment.__file__).parents[3]
    call = [sys.executable, "-c", code, str(source), str(len(EXPERIMENTS))]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_chosen_keeps_the_order_of_the_report_and_each_once() -> None:
    assert [each.name for each in chosen(["depth", "sizes", "depth", "figure-4"])] == ["sizes", "depth"]
    assert [each.name for each in chosen(None)] == list(EXPERIMENTS)


def test_without_a_module_its_experiments_are_left_out_or_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otformer.lab.experiments.registry.find_spec", lambda name: None)
    models = {"fox", "translation-attention", "translation-attention-de"}
    assert left_out() == dict.fromkeys(models, "transformers")
    assert [each.name for each in chosen(None)] == [name for name in EXPERIMENTS if name not in models]
    with pytest.raises(ValueError, match="fox needs transformers, which is not installed: pip install transformers"):
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
    assert record.checks == {"it holds at n = 1": True, "it does not": False}
    assert record.about["finding"] == {"title": "It holds", "brief": "One < two.", "number": "1.00"}
    assert record.about["summary"] == "It is 1.0."
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


def test_figures_are_written_as_pdf_where_that_is_asked_for(tmp_path: Path) -> None:
    reproduce([tiny()], tmp_path)
    (record,) = reproduce([tiny(value=2.0)], tmp_path, resume=True, pdf=True)  # done, but without the PDF
    assert (tmp_path / "tiny" / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert record.numbers[0]["<λ>"] == "2.0"
    assert reproduce([tiny(value=3.0)], tmp_path, resume=True, pdf=True)[0].numbers[0]["<λ>"] == "2.0"
    reproduce([tiny()], tmp_path)  # the folder is ours with it, and is replaced
    assert not (tmp_path / "tiny" / "figure.pdf").exists()


def test_resume_redoes_a_folder_that_is_not_whole(tmp_path: Path) -> None:
    reproduce([tiny()], tmp_path)
    (tmp_path / "tiny" / "figure.svg").unlink()
    reproduce([tiny()], tmp_path, resume=True)
    assert (tmp_path / "tiny" / "figure.svg").is_file()


@pytest.mark.parametrize("name", ["thesis.tex", ".notes", "numbers.csv"])
def test_a_folder_with_files_of_others_is_refused_before_anything_is_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / name).touch()
    with pytest.raises(ValueError, match=rf"{name} would be removed, as .*tiny is replaced: move it, or name another"):
        reproduce([tiny("other"), tiny()], tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["tiny", name]


@pytest.mark.parametrize("edit", [{"checks": "x"}, {"name": "other"}])
def test_resume_redoes_a_folder_whose_record_is_none_of_ours(tmp_path: Path, edit: dict[str, str]) -> None:
    (made,) = reproduce([tiny()], tmp_path)
    file = tmp_path / "tiny" / "run.json"
    file.write_text(json.dumps(made.about | edit))
    (again,) = reproduce([tiny(value=2.0)], tmp_path, resume=True)
    assert again.numbers[0]["<λ>"] == "2.0"
    assert again.checks == made.checks


def test_unwritable_out_and_bad_seed_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"out must be a folder that can be written to, got .*file"):
        reproduce([tiny()], tmp_path / "file" / "out")
    with pytest.raises(ValueError, match="seed must be a whole number"):
        reproduce([tiny()], tmp_path / "new", seed=-1)
    assert not (tmp_path / "new").exists()
