"""Which stream a problem between points gets: kernels on a CUDA device, blocks of torch operations elsewhere."""

from __future__ import annotations

import functools
import importlib
import os
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor

from otformer import callers
from otformer.extras import absence
from otformer.network.features import Features
from otformer.transport.executors.stream import Stream

if TYPE_CHECKING:
    from otformer.transport.executors.gpu.executor import OnGpu
    from otformer.transport.problem.problem import Sides

AnyStream: TypeAlias = "Stream | OnGpu"


def open_stream(
    sides: Sides, log_a: Tensor, log_b: Tensor, spread: float, reg: float, mass: float | None = None
) -> AnyStream:
    """The stream of the cost c_ij, without p and q; ``spread`` bounds the range of c, ``reg`` is the λ it is used at."""
    if (sides.x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1") and has_triton():
        from otformer.transport.executors.gpu.executor import OnGpu

        return OnGpu(sides.x, sides.y, log_a, log_b, spread, reg, sides.rule, mass)
    return Stream(Features.of_points(sides.x, sides.y), log_a, log_b, rule=sides.rule)


@functools.cache
def has_triton() -> bool:
    """Whether kernels can run; says so once if they cannot."""
    try:
        importlib.import_module("triton")
        return True
    except ImportError as error:
        why = absence(error, "triton")
    callers.warn(f"triton is {why}: streams on the GPU run in blocks of torch operations, several times slower")
    return False
