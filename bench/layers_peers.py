"""Projects that normalise small matrices on a GPU, as layers logits → P with 20 iterations; of one that is absent, why.

Their code is not ours and not here: it is looked for as plain folders in carry/peers (a file or package each, as in their
repositories), in the state that `git archive` gives.

- Megatron-LM, `SinkhornKnopp` of megatron/core/transformer/hyper_connection.py, as megatron_mhc/hyper_connection.py: eager
  torch, the iterations run again in the backward. What the file imports of Megatron is not used by that class.
- Liger-Kernel, liger_kernel/ops/mhc.py: Triton, a program for each matrix; its kernels take the logits in one row with those
  of two sigmoids, which are computed beside.
- mHC-triton, package mhc, `sinkhorn_knopp`: Triton, 4 × 4 only; takes positive matrices, here exp(logits).

aiter's kernel (aiter/ops/triton) is one with the product before it, for AMD devices, and has no backward.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

PEERS = Path(__file__).parent.parent / "carry" / "peers"
Layer = Callable[[Tensor], Tensor]


def peers(iterations: int, side: int, logits: Tensor) -> tuple[dict[str, Layer], list[str]]:
    """Layers by name, tried on a few of the logits, and a line for each that cannot be had."""
    sys.path.insert(0, str(PEERS))
    layers, missing = {}, []
    for name, load in {"Megatron-LM": megatron, "Liger-Kernel": liger, "mHC-triton": mhc_triton}.items():
        try:
            layer = load(iterations, side)
            layer(logits[:8])
            layers[name] = layer
        except Exception as error:  # whatever a foreign package fails with, the others are measured
            missing.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    return layers, missing


def megatron(iterations: int, _side: int) -> Layer:
    names = {
        "megatron.core.tensor_parallel.random": "CheckpointWithoutOutputManager",
        "megatron.core.transformer.module": "MegatronModule",
        "megatron.core.transformer.transformer_config": "TransformerConfig",
        "megatron.core.utils": "nvtx_decorator",
    }
    for module, name in names.items():
        sys.modules[module] = ModuleType(module)
        setattr(sys.modules[module], name, torch.nn.Module if name != "nvtx_decorator" else lambda **_: lambda f: f)
    spec = importlib.util.spec_from_file_location("hyper_connection", PEERS / "megatron_mhc" / "hyper_connection.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Any = module.SinkhornKnopp
    return lambda logits: function.apply(logits[None], iterations)[0]


def liger(iterations: int, side: int) -> Layer:
    ops: Any = importlib.import_module("liger_kernel.ops.mhc")
    options = {"tmax": iterations, "sinkhorn_eps": 1e-12}
    one = torch.ones(1, device="cuda")
    zero = torch.zeros(side**2 + 2 * side, device="cuda")

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, logits: Tensor) -> Tensor:
            mix = torch.nn.functional.pad(logits.flatten(1), (2 * side, 0))
            ctx.save_for_backward(mix)
            return ops.mhc_split_sinkhorn_fwd(mix, zero, one, one, one, pre_eps=0.0, post_mult=2.0, **options)[2]

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return ops.mhc_sinkhorn_bwd(*ctx.saved_tensors, zero, one, gradient.contiguous(), **options)

    return Function.apply


def mhc_triton(iterations: int, side: int) -> Layer:
    ops: Any = importlib.import_module("mhc.ops")
    return lambda logits: ops.sinkhorn_knopp(logits.exp(), num_iters=iterations)
