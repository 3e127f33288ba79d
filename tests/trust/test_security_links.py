"""Links planted in the folder that --out names lead nowhere: what they point at outside is as it was, for every command.

A file that the user has named himself (solve --out plan.npz) may be a link, and is followed, as by every program.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers import tiny_models
from needs import missing
from otformer import figures
from otformer.cli.main import main
from otformer.files import written, written_folder
from otformer.lab.benchmarks import harness
from otformer.lab.experiments.experiment import Experiment, Outcome
from otformer.lab.experiments.runner import reproduce as run
from otformer.lab.report.html import write_report

PRECIOUS = "precious\n"


def command(*arguments: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["otformer", *map(str, arguments)])
        main()


def reproduce(out: Path) -> None:
    outcome = Outcome([{"n": 1}], figures.figure(2, 2)[0], {}, {"it holds": True}, {"n": 1})
    texts = dict.fromkeys(("finding", "brief", "number", "details"), "text")
    run([Experiment("made", "title", "source", "claim", lambda context: outcome, texts)], out)
    write_report(out)


def train(out: Path) -> None:
    command("train", "--recipe", "sort-beyond-3", "--steps", 3, "--out", out)


def bench(out: Path) -> None:
    row = harness.Row("small", "random", 16, 0.1, "otformer", 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(harness.SCENARIOS, "small", lambda *_: [row])
        harness.bench("small", out)


def probe(out: Path) -> None:
    pytest.importorskip("transformers", reason=missing("words"))
    model = out.parent / "model"
    if not model.exists():
        tiny_models.bert(model)
    (out.parent / "text").write_text("the cat ||| le chat\n")
    (out.parent / "gold").write_text("0-0 1-1\n")
    command("probe", model, out.parent / "text", "--gold", out.parent / "gold", "--out", out)


WRITERS = {
    reproduce: ["index.html", "made/figure.png"],
    train: ["log.csv", "log.png", "model.safetensors"],
    bench: ["small.csv", "small.md", "small.png"],
    probe: ["probe.csv", "probe.png"],
}


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITERS)
def test_links_in_the_folder_are_replaced_and_never_followed(write, tmp_path, capsys):
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    for name in WRITERS[write]:
        first, target = name.split("/")[0], outside / name
        target.parent.mkdir(exist_ok=True, parents=True)
        target.write_text(PRECIOUS)
        (out / first).symlink_to(outside / first)
    planted = {f".{name}.0123abcd.otformer-new" for name in WRITERS[write] if "/" not in name}  # names of ours
    for name in planted:
        (out / name).symlink_to(outside / "new")
    write(out)
    capsys.readouterr()
    assert {file.read_text() for file in outside.rglob("*") if file.is_file()} == {PRECIOUS}
    for name in WRITERS[write]:
        assert (out / name).read_bytes() != PRECIOUS.encode()
    assert {path.name for path in out.rglob("*") if path.is_symlink() or path.name.startswith(".")} <= planted


@pytest.mark.parametrize("place", ["links.parts", "probe.csv.parts"])
def test_a_link_in_place_of_the_folder_of_chunks_is_refused(place, tmp_path, capsys):
    (tmp_path / "outside").mkdir()
    (tmp_path / place).symlink_to(tmp_path / "outside")
    if place == "links.parts":
        arguments = ["align", "the cat ||| le chat", "--out", tmp_path / "links"]
    else:
        arguments = ["probe", "en-fr", "--out", tmp_path]
    with pytest.raises(SystemExit):
        command(*arguments)
    assert f"{place} is a link, which is not followed" in capsys.readouterr().err
    assert not list((tmp_path / "outside").iterdir())
    assert (tmp_path / place).is_symlink()


def test_a_file_that_the_user_has_named_may_be_a_link_but_not_the_part_beside_it(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / ".target.0123abcd.otformer-new").symlink_to(tmp_path / "stolen")
    with written(tmp_path / "link") as out:
        out.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    assert not (tmp_path / "stolen").exists()


def test_a_folder_that_is_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text(PRECIOUS)
    (tmp_path / "made").symlink_to(tmp_path / "outside")
    with written_folder(tmp_path / "made") as folder:
        (folder / "file").write_text("new")
    assert (tmp_path / "outside" / "file").read_text() == PRECIOUS
    assert (tmp_path / "made" / "file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "outside"]
