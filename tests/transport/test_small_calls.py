"""What a call on a small problem costs beside its arithmetic: nothing crosses to torch, and the cost is scanned once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import otformer as of
from oracles import problem
from otformer.transport.problem.read import read_cost
from otformer.transport.problem.read_points import read_points

x, y, *_ = problem(10, 20, 20, 2)
M = ((x[:, None] - y) ** 2).sum(-1)
ARRAY, TENSOR = np.ones(2), torch.ones(2)
CROSSINGS = {"from_numpy", "as_tensor", "tensor", "asarray", "_from_dlpack", "frombuffer", "new_tensor"} | {
    "numpy", "tolist", "item", "_to_dlpack_versioned",
}  # fmt: skip


def c_calls(call: Callable[[], Any]) -> list[Any]:
    """The functions written in C that a call goes through."""
    seen: list[Any] = []

    def watch(_frame: Any, event: str, function: Any) -> None:
        if event == "c_call":
            seen.append(function)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def crossings(call: Callable[[], Any]) -> list[str]:
    """Functions of torch, and methods of tensors, that make a tensor of an array or the other way round."""
    return [
        function.__name__
        for function in c_calls(call)
        if function.__name__ in CROSSINGS
        and (isinstance(function.__self__, Tensor) or (function.__module__ or "").split(".")[0] == "torch")
    ]


def scans(call: Callable[[], Any]) -> list[str]:
    """The operations of numpy that reduce an array to fewer numbers: min, max, all, any and sum, however spelled."""
    return [function.__self__.__name__ for function in c_calls(call) if function.__name__ == "reduce"]


@pytest.mark.parametrize(
    ("crossing", "name"),
    [
        (lambda: torch.from_numpy(ARRAY), "from_numpy"),
        (lambda: torch.as_tensor(ARRAY), "as_tensor"),
        (lambda: torch.tensor(ARRAY), "tensor"),
        (lambda: torch.asarray(ARRAY), "asarray"),
        (lambda: torch.from_dlpack(ARRAY), "_from_dlpack"),
        (lambda: torch.frombuffer(ARRAY, dtype=torch.float64), "frombuffer"),
        (lambda: TENSOR.new_tensor(ARRAY), "new_tensor"),
        (lambda: TENSOR.numpy(), "numpy"),
        (lambda: np.asarray(TENSOR), "numpy"),
        (lambda: TENSOR.tolist(), "tolist"),
        (lambda: TENSOR.sum().item(), "item"),
        (lambda: np.from_dlpack(TENSOR), "_to_dlpack_versioned"),
    ],
)
def test_every_crossing_is_seen(crossing, name):
    assert name in crossings(crossing)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: (M.min(), np.max(M)), ["minimum", "maximum"]),
        (lambda: np.isfinite(M).all(), ["logical_and"]),
        (lambda: np.any(M != M), ["logical_or"]),
        (lambda: M.sum(), ["add"]),
    ],
)
def test_every_scan_is_seen(call, names):
    assert scans(call) == names


@pytest.mark.parametrize(
    "call",
    [
        lambda: of.solve_sample(x, y, reg=0.01),
        lambda: of.solve(M, reg=0.01),
        lambda: of.solve(M, reg=0.01).plan,
        lambda: of.solve(M, np.full(20, 0.05), np.full(20, 0.05), reg=0.01).value,
    ],
    ids=["points", "matrix", "plan", "weights"],
)
def test_a_small_problem_of_numpy_stays_in_numpy(call):
    call()  # the first call imports
    assert crossings(call) == []


@pytest.mark.parametrize("read", [lambda: read_points(x, y, reg=0.01), lambda: read_cost(M, reg=0.01)])
def test_reading_scans_the_cost_once_for_each_end_of_its_range(read):
    read()
    assert scans(read) == ["minimum", "maximum"]
