"""The kernel of assignments compiles for a GPU on a machine that has none: to PTX of Hopper."""

from __future__ import annotations

import sys

import pytest

from needs import missing

if sys.platform != "linux":
    pytest.skip(missing("linux"), allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from otformer.transport.costs.gpu.assign import A_WARP, LEAST_COLUMNS
from otformer.transport.costs.gpu.assign_kernels import assign

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("columns", [LEAST_COLUMNS, 64, 512])
def test_columns(columns: int) -> None:
    kinds = {"costs": "*fp64", "potentials": "*fp64", "to": "*i64", "n": "i32", "COLUMNS": "constexpr"}
    source = ASTSource(assign, kinds, {(4,): columns})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": max(1, columns // A_WARP)})
    ptx = made.asm["ptx"]
    assert "shfl" in ptx
    assert ("bar.sync" in ptx) == (columns > A_WARP)  # a warp waits for nobody
