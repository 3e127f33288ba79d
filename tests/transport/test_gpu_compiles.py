"""The Triton kernels compile for a GPU on a machine that has none: to PTX of Hopper, in every precision."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from needs import missing

if sys.platform != "linux":
    pytest.skip(missing("linux"), allow_module_level=True)

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from otformer.transport.costs.gpu import mixing_kernels, pass_kernels, product_kernels, settle_kernels
from otformer.transport.costs.gpu.layout import MIXED, SINGLE
from otformer.transport.costs.gpu.passes import CHUNK, FAR_DOUBLE, FAR_SINGLE, MARGIN, PRECISION, ROWS

pytestmark = pytest.mark.slow
IN_NUMBERS = {"x", "y", "h", "tops", "slopes", "boxes", "out_top", "out_tops", "points"}  # pointers to a pass's own numbers
IN_SINGLE = {"moves", "changes", "w"}
WHOLE = {"n", "m", "d", "share", "splits", "size_x", "size_y", "width"}


def compile_for_hopper(kernel: Any, numbers: str, constants: dict[str, Any], **options: int) -> str:
    names = list(inspect.signature(kernel.fn).parameters)
    kinds = {name: "constexpr" for name in constants}
    kinds |= {name: numbers for name in IN_NUMBERS} | {name: "*fp32" for name in IN_SINGLE} | {name: "i32" for name in WHOLE}
    signature = {name: "constexpr" if name in constants else kinds.get(name, "*fp64") for name in names}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]


@pytest.mark.parametrize("precision", [SINGLE, MIXED])
def test_passes_and_what_is_between_them(precision: Any) -> None:
    numbers, mixed = ("*fp32", False) if precision is SINGLE else ("*fp64", True)
    near = dict(ROWS=ROWS, COLUMNS=precision.columns, CHUNK=CHUNK, PAIRS=0, MIXED=mixed, MARGIN=MARGIN)
    near |= dict(EXPONENTIAL=tl.float32)
    for way in (dict(D=3, ROOT=False, TILED=True, HINT=False), dict(D=3, ROOT=False, TILED=True, HINT=True),
                dict(D=2, ROOT=True, TILED=False, HINT=False)):  # fmt: skip
        assert "ex2.approx" in compile_for_hopper(pass_kernels.near, numbers, near | way, num_warps=1)
    far = dict(ROOT=mixed, PAIRS=2, MIXED=mixed, PRECISION="ieee" if mixed else PRECISION)
    shape = FAR_DOUBLE if mixed else FAR_SINGLE[1]
    sizes, options = ({k: v for k, v in shape.items() if k.isupper() == upper} for upper in (True, False))
    assert "mma" in compile_for_hopper(pass_kernels.far, numbers, far | sizes, **options)
    for d in (0, 3):
        columns = dict(D=d, BLOCK=256, COLUMNS=precision.columns, SQUARES=d == 0)
        assert compile_for_hopper(settle_kernels.spread, numbers, columns)
        assert compile_for_hopper(settle_kernels.settle, numbers, columns)
        assert compile_for_hopper(mixing_kernels.advance, numbers, columns | dict(MEMORY=32))
    assert compile_for_hopper(settle_kernels.residual, numbers, dict(BLOCK=256, SQUARES=False))
    assert compile_for_hopper(mixing_kernels.remember, numbers, dict(BLOCK=256))


def test_products() -> None:
    ways = dict(ROOT=False, PAIRS=0, WIDTH=16, PRECISION=PRECISION)
    near = dict(D=3, ROWS=ROWS, COLUMNS=MIXED.columns, CHUNK=CHUNK, TILED=True, GAIN=1)
    for narrow in (dict(NARROW=False), dict(NARROW=True, WIDTH=3)):
        code = compile_for_hopper(product_kernels.near_products, "*fp64", ways | near | narrow, num_warps=1)
        assert ("mma" in code) != narrow["NARROW"]
    far = {name: value for name, value in FAR_DOUBLE.items() if name.isupper()}
    assert "mma" in compile_for_hopper(product_kernels.far_products, "*fp64", ways | far | dict(GAIN=2), num_warps=4)
