"""The kernels of `GpuPairs.least` compile for a GPU on a machine that has none: to PTX of Hopper."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from needs import missing

if sys.platform != "linux":
    pytest.skip(missing("linux"), allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from otformer.transport.costs.gpu.layout import DOUBLE
from otformer.transport.costs.gpu.least_kernels import far_least, near_first, near_least
from otformer.transport.costs.gpu.passes import CHUNK, FAR_DOUBLE, ROWS

pytestmark = pytest.mark.slow
IN_INT32 = {"labels_x", "labels_y", "places", "nearest"}
WHOLE = {"n", "m", "k", "d", "turns", "share", "size_x", "size_y"}


def compile_for_hopper(kernel: Any, constants: dict[str, Any], **options: int) -> Any:
    names = list(inspect.signature(kernel.fn).parameters)
    kinds = dict.fromkeys(IN_INT32, "*i32") | dict.fromkeys(WHOLE, "i32") | dict.fromkeys(constants, "constexpr")
    signature = {name: kinds.get(name, "*fp64") for name in names}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize(("D", "K", "ROOT", "PAIRS"), [(3, 16, False, 0), (2, 1, True, 1), (8, 32, False, 2)])
def test_few_dimensions(D: int, K: int, ROOT: bool, PAIRS: int) -> None:
    sizes = dict(ROWS=ROWS, COLUMNS=DOUBLE.columns, CHUNK=CHUNK)
    for kernel in (near_first, near_least):
        made = compile_for_hopper(kernel, dict(D=D, K=K, ROOT=ROOT, PAIRS=PAIRS) | sizes, num_warps=ROWS // 32)
        assert "ld.shared" in made.asm["ptx"]


@pytest.mark.parametrize(("K", "ROOT", "PAIRS"), [(16, False, 0), (1, True, 1)])
def test_many_dimensions(K: int, ROOT: bool, PAIRS: int) -> None:
    sizes, options = ({k: v for k, v in FAR_DOUBLE.items() if k.isupper() == upper} for upper in (True, False))
    assert "mma" in compile_for_hopper(far_least, dict(K=K, ROOT=ROOT, PAIRS=PAIRS) | sizes, **options).asm["ptx"]
