"""Everything that is read from outside is bounded before memory is asked for it, and what is not ours is one line.

npy and npz: test_hostile_arrays.py. Lines of text, devices and numbers of options: test_commands.py, test_streams.py. Here
are the others: text of numbers, gzip, safetensors and the networks they describe, JSON and CSV in the folder of --out, kept
chunks, standard input, models' folders.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sys
import zipfile

import numpy as np
import pytest
import torch

from needs import missing
from otformer import array_files, problem_files
from otformer.cli import solve as solve_command
from otformer.cli.main import main
from otformer.lab.benchmarks import harness
from otformer.lab.report.records import read_records, read_table
from otformer.learning.trained import load_trained
from otformer.network.transformer import AligningTransformer
from otformer.tensor_files import read_tensors, write_tensors
from otformer.words.jobs.jobs import ChunkFolder, Job, run
from otformer.words.probe.probe import Tally
from otformer.words.text.text import read_lines


def test_a_text_of_numbers_has_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr(problem_files, "TEXT_BYTES", 100)
    (tmp_path / "x.csv").write_text("1,2\n" * 26)
    with pytest.raises(ValueError, match=r"x\.csv must have at most 100 bytes as text, got more: give it as \.npy"):
        problem_files.read_weights(tmp_path / "x.csv")


@pytest.mark.parametrize("kind", ["x.csv", "x.npy", "x.npz"])
def test_a_link_to_a_device_is_no_file_of_numbers(kind, tmp_path):
    (tmp_path / kind).symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="is a device or a pipe, not a file"):
        problem_files.read_problem(tmp_path / kind, cost=True)


def test_a_gzip_of_many_lines_may_not_unpack_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "UNPACKED_BYTES", 10**6)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"\n" * 2_000_000))
    with pytest.raises(ValueError, match=r"bomb\.gz unpacks to over 100 times its size"):
        for _ in read_lines(tmp_path / "bomb.gz"):
            pass


def test_a_zip_bomb_among_kept_chunks_is_refused(monkeypatch):
    monkeypatch.setattr(array_files, "UNPACKED_BYTES", 10**6)
    stream = io.BytesIO()
    np.savez_compressed(stream, rows=np.zeros(10**6))
    with pytest.raises(ValueError, match="over 100 times its size"):
        Tally.unpack(stream.getvalue())


@pytest.mark.parametrize("data", [b"", b"[", b"\x80\x04.", pickle.dumps(os.getcwd), b"[[1]]", b"null"])
def test_a_kept_chunk_that_is_not_ours_is_one_line_and_never_unpickled(data, tmp_path):
    from otformer.words.aligning import AlignWork

    job, pairs = AlignWork().job(), [("the cat", "le chat")]
    folder = ChunkFolder(tmp_path / "links")
    folder.folder.mkdir()
    folder.file(job.key(pairs)).write_bytes(data)
    with pytest.raises(ValueError, match=r"is damaged: remove the folder .*links\.parts and give the command again"):
        run(job, pairs, tmp_path / "links")


def test_a_kept_chunk_has_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr("otformer.words.jobs.jobs.LARGEST_CHUNK", 10)
    job = Job(lambda: lambda chunk: b"x" * 11, chunk=1)
    with pytest.raises(ValueError, match="is damaged"):
        run(job, [("a", "b")], tmp_path / "out")


HUGE = {"dim": 10**5, "depth": 10**6}


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"architecture": HUGE}, "must have shape"),
        ({"architecture": {"dim": 10**30}}, "is damaged"),
        ({"architecture": [1]}, "is damaged"),
        ({"ensemble": 10**12}, "must have shape"),
        ({"ensemble": -1}, "is damaged"),
    ],
)
def test_a_network_is_not_built_larger_than_its_file(about, said, tmp_path):
    """1e6 layers of (2e5)² weights would be 1e17 bytes."""
    whole = {"version": 1, "name": "n", "about": "a", "architecture": {}, "ensemble": 1, "recipe": "{}"}
    write_tensors(tmp_path / "m.safetensors", {"P": torch.zeros(2)}, whole | about)
    with pytest.raises(ValueError, match=said):
        load_trained(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("names", "settings"),
    [(["forward"], None), (["a.b"], None), (["W_Q"], None), ([], {"dim": "x"}), ([], []), ([], {"evil": 1})],
)
def test_a_file_of_weights_that_are_none_is_one_line(names, settings, tmp_path):
    net = AligningTransformer(dim=1, reg=0.1, depth=2)
    known = net._settings() if settings is None else settings
    write_tensors(
        tmp_path / "n.safetensors",
        {name: torch.zeros(1) for name in names} or dict(net.state_dict()),
        {"network": "AligningTransformer", "settings": known},
    )
    with pytest.raises(ValueError, match=r"is damaged|does not fit"):
        AligningTransformer.from_file(tmp_path / "n.safetensors")


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 100, (2**62).to_bytes(8, "little") + b"{}", (2).to_bytes(8, "little") + b"[]"]
)
def test_a_hostile_header_of_safetensors_is_one_line(data, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(ValueError, match=r"is not a readable safetensors file"):
        read_tensors(tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", ["run.json", "numbers.csv"])
def test_a_record_that_is_a_device_a_pipe_or_too_large_is_passed_over(name, tmp_path, monkeypatch):
    monkeypatch.setattr("otformer.lab.experiments.runner.LARGEST_RECORD", 1000)
    monkeypatch.setattr("otformer.lab.report.records.LARGEST_TABLE", 1000)
    for kind in ("device", "pipe", "large", "deep"):
        (tmp_path / kind).mkdir()
    (tmp_path / "device" / name).symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe" / name)
    (tmp_path / "large" / name).write_text(" " * 2000)
    (tmp_path / "deep" / name).write_text("[" * 900)
    if name == "run.json":
        assert read_records(tmp_path) == ([], ["deep", "device", "large", "pipe"])
    else:
        assert [read_table(tmp_path / kind / name, 5) for kind in ("device", "pipe", "large")] == [([], 0)] * 3


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "peer\nnobody\n", "\0", '"' * 10, "scenario,n\nsmall,many\n"])
def test_a_table_of_someone_else_is_not_appended_to_and_said_before_the_work(text, tmp_path, monkeypatch):
    monkeypatch.setitem(harness.SCENARIOS, "small", lambda *_: pytest.fail("the work began"))
    (tmp_path / "small.csv").write_text(text)
    with pytest.raises(ValueError, match=r"small\.csv is not a table of this program"):
        harness.bench("small", tmp_path, append=True)
    assert (tmp_path / "small.csv").read_text() == text


def test_numbers_on_standard_input_have_a_largest_size(monkeypatch, capsys):
    monkeypatch.setattr(solve_command, "LONGEST_INPUT", 10)
    monkeypatch.setattr(sys, "argv", ["otformer", "sort"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("1 " * 6))
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "otformer: values must be at most 10 characters on standard input, got more\n"


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (self.marker, "w")


@pytest.mark.slow
def test_a_model_folder_with_a_pickle_for_weights_runs_nothing(tmp_path):
    pytest.importorskip("transformers", reason=missing("words"))
    from helpers import tiny_models
    from otformer.words.models.models import load

    model, marker = tiny_models.bert(tmp_path / "model"), tmp_path / "ran"
    (model / "model.safetensors").unlink()
    torch.save({"weights": Evil(str(marker))}, model / "pytorch_model.bin")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(model)
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(str(marker)), protocol=2))
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(model)
    assert not marker.exists()


@pytest.mark.slow
def test_a_model_is_not_built_larger_than_its_files(tmp_path):
    """A configuration of 1e12 words would ask for 64 TB before a weight is looked for."""
    pytest.importorskip("transformers", reason=missing("words"))
    from helpers import tiny_models
    from otformer.words.models.models import load

    model = tiny_models.bert(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"vocab_size": 10**12}))
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(model)


def test_an_npz_with_a_member_of_a_thousand_names_is_read_once_each(tmp_path):
    """A zip may list one stretch of bytes many times (a quine bomb): sizes in the directory are added up."""
    with zipfile.ZipFile(tmp_path / "p.npz", "w") as archive:
        for k in range(1000):
            archive.writestr(f"{k}.npy", b"")
    with pytest.raises(ValueError, match=r"p\.npz is not a readable|not a readable \.npy"):
        problem_files.read_problem(tmp_path / "p.npz")
