"""Every public call gives the same numbers whatever torch, numpy and the process around it have been told."""

from __future__ import annotations

import ast
import asyncio
import gc
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._device import _device_constructors

import otformer
from helpers import public_calls

SOURCE = Path(otformer.__file__).parent
ROOMS = ("network", "nn", "transport", "theory")
MAKERS = {f"torch.{function.__name__}" for function in _device_constructors()}


@pytest.fixture(scope="module")
def usual() -> dict[str, Any]:
    found = public_calls.found()
    assert not {name: got for name, got in found.items() if isinstance(got, Exception)}
    return found


@contextmanager
def told(switch: Callable[[Any], Any], value: Any, usual: Any) -> Iterator[None]:
    switch(value)
    try:
        yield
    finally:
        switch(usual)


@contextmanager
def in_a_folder_that_is_gone(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


SURROUNDINGS: dict[str, Callable[[Path], Any]] = {
    "default device": lambda _: told(torch.set_default_device, "meta", None),
    "default dtype float64": lambda _: told(torch.set_default_dtype, torch.float64, torch.float32),
    "default dtype bfloat16": lambda _: told(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "autocast": lambda _: torch.autocast("cpu", dtype=torch.bfloat16),
    "floating-point errors raise": lambda _: np.errstate(all="raise"),
    "warnings are errors": lambda _: warnings_are_errors(),
    "deterministic": lambda _: told(torch.use_deterministic_algorithms, True, False),
    "anomalies": lambda _: torch.autograd.set_detect_anomaly(True, check_nan=True),
    "no denormals": lambda _: told(torch.set_flush_denormal, True, False),
    "shallow stack": lambda _: told(sys.setrecursionlimit, 250, sys.getrecursionlimit()),
    "no garbage collector": lambda _: told(lambda on: gc.enable() if on else gc.disable(), False, True),
    "folder gone": lambda path: in_a_folder_that_is_gone(path / "gone"),
}


@pytest.mark.parametrize("surroundings", SURROUNDINGS.values(), ids=SURROUNDINGS)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_every_public_call_gives_the_same(surroundings, usual, tmp_path):
    with surroundings(tmp_path):
        found = public_calls.found()
    assert public_calls.differing(usual, found) == {}


def test_every_public_call_gives_the_same_in_threads_and_event_loops(usual):
    seen = []

    async def in_a_loop() -> None:
        seen.append(public_calls.found())

    threads = [threading.Thread(target=lambda: seen.append(public_calls.found())) for _ in range(2)]
    for thread in threads:
        thread.start()
    asyncio.run(in_a_loop())
    for thread in threads:
        thread.join()
    assert [public_calls.differing(usual, found) for found in seen] == [{}, {}, {}]


def test_no_public_call_draws_from_the_global_random_numbers():
    def drawn() -> tuple[float, float]:
        return torch.rand((), dtype=torch.float64).item(), random.random()

    torch.manual_seed(0)
    random.seed(0)
    expected = drawn()
    torch.manual_seed(0)
    random.seed(0)
    public_calls.found()
    assert drawn() == expected


def _without_device(tree: ast.AST, made: bool) -> Iterator[ast.Call]:
    """Calls of torch that make a tensor on its default device; with ``made`` not those in ``__init__``."""
    for node in ast.iter_child_nodes(tree):
        if made and isinstance(node, ast.FunctionDef) and node.name == "__init__":
            continue
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in MAKERS
            and "device" not in {k.arg for k in node.keywords}
        ):
            yield node
        yield from _without_device(node, made)


@pytest.mark.parametrize("room", ROOMS)
def test_new_tensors_say_where_they_live(room):
    """Else `torch.set_default_device` says it. Parameters of layers alone are where torch has those of its own layers."""
    found = [
        f"{file.relative_to(SOURCE)}:{call.lineno}: {ast.unparse(call)}"
        for file in sorted((SOURCE / room).rglob("*.py"))
        for call in _without_device(ast.parse(file.read_text("utf-8")), made=room == "nn")
    ]
    assert found == []
