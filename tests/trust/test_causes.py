"""Errors name their own cause: a lack of memory is no damaged file, and a module that is broken is not a missing one."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import otformer as of
from helpers.shell import ENVIRONMENT, SRC
from otformer.lab.translators.compare_scores import bleu_of
from otformer.lab.translators.evaluate import bleu
from otformer.memory import lacking
from otformer.transport import sharded
from otformer.words.align.hmm import file as hmm
from otformer.words.jobs import jobs
from otformer.words.models import models

NO_MEMORY = RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to …")


def failing(error: Exception) -> Any:
    def fail(*args: object, **options: object) -> None:
        raise error

    return fail


def test_what_the_system_says_of_memory_counts():
    assert lacking(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert lacking(RuntimeError("unable to mmap 120000096 bytes from file <x.safetensors>: Cannot allocate memory (12)"))
    assert not lacking(OSError(errno.ENOSPC, "No space left on device"))


@pytest.mark.parametrize("error", [NO_MEMORY, MemoryError(), PermissionError(errno.EACCES, "Permission denied")])
def test_a_kept_chunk_that_cannot_be_read_now_is_not_called_damaged(error: Exception, tmp_path: Path) -> None:
    (tmp_path / "chunk").write_bytes(b"whole")
    with pytest.raises(type(error)):
        jobs._unpacked(SimpleNamespace(unpack=failing(error)), tmp_path / "chunk")
    with pytest.raises(ValueError, match="chunk is damaged: remove the folder"):
        jobs._unpacked(SimpleNamespace(unpack=failing(KeyError("scores"))), tmp_path / "chunk")


def test_alignment_models_that_do_not_fit_into_memory_are_not_called_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hmm, "read_npz", failing(MemoryError("Unable to allocate 8 TiB")))
    with pytest.raises(MemoryError, match="8 TiB"):
        hmm.read_models("models.npz")


@pytest.mark.parametrize("part", ["AutoConfig", "AutoTokenizer", "AutoModel"])
def test_a_model_that_does_not_fit_into_memory_is_not_called_broken(part: str) -> None:
    class Tokenizer(list[int]):
        all_special_ids = ()

    made = {"AutoConfig": SimpleNamespace(is_encoder_decoder=False), "AutoTokenizer": Tokenizer([0]), "AutoModel": None}
    makers = {name: SimpleNamespace(from_pretrained=lambda *_, each=each, **__: each) for name, each in made.items()}
    makers[part] = SimpleNamespace(from_pretrained=failing(NO_MEMORY))
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        models._from_pretrained(SimpleNamespace(**makers), "some/model", local=False)
    makers[part] = SimpleNamespace(from_pretrained=failing(KeyError("hidden_size")))
    with pytest.raises(ValueError, match=r"model some/model cannot be loaded .*hidden_size"):
        models._from_pretrained(SimpleNamespace(**makers), "some/model", local=False)


def test_a_model_that_runs_out_of_memory_is_not_said_to_give_no_attentions() -> None:
    network = SimpleNamespace(parameters=lambda: iter([torch.zeros(1)]), base_model=failing(NO_MEMORY))
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        models._looked_at("m", SimpleNamespace(is_encoder_decoder=False), lambda text: {"input_ids": [1, 2]}, network)


def test_mahalanobis_blames_w_for_its_range_and_not_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    x = [[0.0, 1.0]]
    with pytest.raises(ValueError, match=r"W must have eigenvalues within torch\.float64, got entries to 1e\+308"):
        of.mahalanobis(x, x, np.full((2, 2), 1e308))
    monkeypatch.setattr(torch.linalg, "eigh", failing(torch.linalg.LinAlgError("linalg.eigh: failed to converge")))
    with pytest.raises(ValueError, match="W must have eigenvalues within"):
        of.mahalanobis(x, x, np.eye(2))
    monkeypatch.setattr(torch.linalg, "eigh", failing(NO_MEMORY))
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        of.mahalanobis(x, x, np.eye(2))


class Lazy:
    """An array that is made when somebody looks at it."""

    def __init__(self, error: Exception) -> None:
        self.error, self.shape = error, (700, 600)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise self.error


def test_an_array_that_cannot_be_made_for_lack_of_memory_is_not_called_no_array() -> None:
    with pytest.raises(MemoryError, match="solve of a 700 × 600 cost needs about"):
        of.solve(Lazy(NO_MEMORY))
    with pytest.raises(ValueError, match="M must be an array of numbers, got Lazy"):
        of.solve(Lazy(RuntimeError("no graph")))


def test_ranks_say_whose_memory_is_lacking_and_that_it_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((30, 2))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        monkeypatch.setattr(sharded, "_checked", failing(NO_MEMORY))
        with pytest.raises(MemoryError, match="solve_sharded of a 30 × 30 cost needs about") as caught:
            of.solve_sharded(x, X_b=x)
        assert str(caught.value.__cause__).startswith("rank 0: ")
        monkeypatch.undo()
        ranks = sharded.Ranks()
        ranks.group = SimpleNamespace(allreduce=failing(NO_MEMORY))
        with pytest.raises(RuntimeError, match=r"^\[enforce fail"):
            ranks.reduce(torch.ones(2))
        ranks.group = SimpleNamespace(allreduce=failing(RuntimeError("Connection closed by peer")))
        with pytest.raises(RuntimeError, match="a rank stopped answering; heard by rank 0 of 1: Connection closed"):
            ranks.reduce(torch.ones(2))
    finally:
        dist.destroy_process_group()


NEEDED = {
    "transformers": lambda: models.library(),
    "sacrebleu": lambda: bleu_of([], []),
    "sacrebleu of one": lambda: bleu(None, None, []),
    "ray": lambda: list(jobs.stream(jobs.Job(lambda: lambda pairs: b"", engine="ray"), [("a", "b")])),
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_module_that_is_broken_is_not_called_missing(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = name.split()[0]
    for each in [each for each in sys.modules if each.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, each)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, module, None)
        without.setitem(sys.modules, f"{module}.data", None)
        with pytest.raises(ValueError, match=f"{module}.* is not installed: pip install"):
            NEEDED[name]()
    (tmp_path / f"{module}.py").write_text("raise ImportError('it wants another numpy')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=rf"{module}.* is broken \(it wants another numpy\): pip install"):
        NEEDED[name]()


WITHOUT = """
import importlib, pathlib, sys, warnings
import otformer as of
from otformer.transport.costs.points import has_triton

for file in pathlib.Path(sys.argv[1]).rglob("*kernels.py"):
    importlib.import_module(".".join(file.relative_to(sys.argv[1]).with_suffix("").parts))
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    assert not has_triton()
print(seen[0].message)
try:
    of.solve([[0.0, 1.0], [1.0, 0.0]], reg=0)
except ImportError as error:
    print(error)
"""


def test_kernels_can_be_read_and_compiled_functions_called_where_their_compilers_are_broken(tmp_path: Path) -> None:
    for module in ("numba", "triton"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('it wants another numpy')")
    environment = ENVIRONMENT | {"PYTHONPATH": f"{tmp_path}:{SRC}"}
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(SRC)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("triton is broken (it wants another numpy): streams on the GPU run in blocks")
    assert second.startswith("exact transport needs numba, which is broken (it wants another numpy): pip install")
