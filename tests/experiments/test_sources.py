"""Only what changed is run again: the digest of an experiment's sources, and what the runner does with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from otformer import figures
from otformer.lab.experiments import _sources, runner
from otformer.lab.experiments.experiment import Context, Experiment, Outcome

FILES = {
    "lab/experiments/one.py": "from otformer.theory.used import f\n",
    "lab/experiments/two.py": "def run():\n    from otformer.learning import lazily\n",
    "theory/used.py": "import otformer.theory.deep\n",
    "theory/deep.py": "import math\n",
    "theory/unused.py": "",
    "learning/__init__.py": "",
    "learning/lazily.py": "",
    "learning/weights/net.bin": "weights",
    "learning/notes.txt": "notes",
}
ONE, TWO = "otformer.lab.experiments.one", "otformer.lab.experiments.two"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package in the place of ours."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(_sources, "ROOT", tmp_path)
    return tmp_path


def digests() -> tuple[str, str]:
    for cached in (_sources.digest, _sources._imports, _sources._shipped, _sources._contents):
        cached.cache_clear()
    return _sources.digest(ONE), _sources.digest(TWO)


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("lab/experiments/one.py", (True, False)),
        ("theory/used.py", (True, False)),
        ("theory/deep.py", (True, False)),
        ("theory/unused.py", (False, False)),
        ("learning/lazily.py", (False, True)),
        ("learning/__init__.py", (False, True)),
        ("learning/weights/net.bin", (False, True)),
        ("learning/notes.txt", (False, False)),
    ],
)
def test_a_digest_changes_with_what_an_experiment_imports(package: Path, edited: str, changed: tuple[bool, bool]) -> None:
    before = digests()
    with (package / edited).open("a") as file:
        file.write("\n# edited\n")
    after = digests()
    assert tuple(a != b for a, b in zip(before, after, strict=True)) == changed


TEXTS = {"finding": "T", "brief": "B.", "number": "1", "details": "S."}


def counting(runs: list[str]) -> list[Experiment]:
    def make(name: str) -> Experiment:
        def run(context: Context) -> Outcome:
            runs.append(name)
            fig, axes = figures.figure(2, 2)
            axes.plot([0, 1])
            return Outcome([{"n": 1}], fig, {}, {}, {})

        return Experiment(name, "t", "s", "c", run, TEXTS, module=f"otformer.lab.experiments.{name}")

    return [make("one"), make("two")]


def test_a_second_run_does_only_what_changed(package: Path, tmp_path: Path) -> None:
    runs: list[str] = []
    out = tmp_path / "out"
    digests()
    runner.reproduce(counting(runs), out, resume=True)
    runner.reproduce(counting(runs), out, resume=True)
    assert runs == ["one", "two"]
    about = json.loads((out / "one" / "run.json").read_text(encoding="utf-8"))
    assert about["source"] == "s"  # its place in the paper
    assert about["finding"] == {"title": "T", "brief": "B.", "number": "1"}
    (package / "theory/deep.py").write_text("import json\n")
    digests()
    runner.reproduce(counting(runs), out, resume=True)
    assert runs == ["one", "two", "one"]


def test_a_sentence_that_changes_is_filled_again(package: Path, tmp_path: Path) -> None:
    runs: list[str] = []
    first, second = counting(runs)
    digests()
    runner.reproduce([first, second], tmp_path / "out", resume=True)
    runner.reproduce([first, replace(second, texts={**TEXTS, "brief": "C."})], tmp_path / "out", resume=True)
    assert runs == ["one", "two", "two"]


def test_an_interrupted_run_goes_on(package: Path, tmp_path: Path) -> None:
    runs: list[str] = []
    first, second = counting(runs)

    def stop(context: Context) -> Outcome:
        raise KeyboardInterrupt

    stopped = Experiment("two", "t", "s", "c", stop, TEXTS, module=second.module)
    with pytest.raises(KeyboardInterrupt):
        runner.reproduce([first, stopped], tmp_path / "out", resume=True)
    runner.reproduce([first, second], tmp_path / "out", resume=True)
    assert runs == ["one", "two"]
