"""The kernels of `balance` without a GPU: in Triton's interpreter against the CPU's solver, and compiled for Hopper."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from needs import missing

if sys.platform != "linux":
    pytest.skip(missing("linux"), allow_module_level=True)

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from otformer.nn import balance_kernels
from otformer.nn.balance_gpu import THREAD_ENTRIES, THREADS, shape

pytestmark = pytest.mark.slow
WHOLE = {"count", "n", "m", "step_k", "step_i", "step_j", "heads", "rows_a", "rows_b", "sinkhorn", "most"}
FLOATS = {"tol", "enough"}
IN_THE_CALLERS = {"logits", "plan", "gradient", "moved"}


def test_in_the_interpreter() -> None:
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    call = [sys.executable, str(Path(__file__).with_name("interpreted_balance.py"))]
    done = subprocess.run(call, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def ptx(kernel: Any, numbers: str, given: str, side: int) -> str:
    kinds = {name: "i32" for name in WHOLE} | {name: "fp32" for name in FLOATS} | {name: given for name in IN_THE_CALLERS}
    batch, warps = shape(side**2, torch.float32 if numbers == "*fp32" else torch.float64)
    near = "step_k" if batch >= THREADS else "step_j"  # what is 1, which Triton knows when it compiles
    constants = dict(BATCH=batch, N=side, M=side, NUMBERS=tl.float32 if numbers == "*fp32" else tl.float64) | {near: 1}
    names = list(inspect.signature(kernel.fn).parameters)
    signature = {name: "constexpr" if name in constants else kinds.get(name, numbers) for name in names}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["ptx"]


@pytest.mark.parametrize(
    ("numbers", "given", "side"), [("*fp32", "*fp32", 4), ("*fp32", "*bf16", 32), ("*fp64", "*fp64", 2)]
)
def test_for_hopper(numbers: str, given: str, side: int) -> None:
    for kernel in (balance_kernels.solve, balance_kernels.backward):
        code = ptx(kernel, numbers, given, side)
        assert "ex2.approx" in code or numbers == "*fp64"
        assert ".local" not in code  # all is in registers
        if side**2 <= THREAD_ENTRIES:  # sums stay within a thread: what is exchanged is whether all are done
            assert code.count("shfl.sync") < 50
