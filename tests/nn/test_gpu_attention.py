"""`SinkhornAttention` on a CUDA device against the CPU's float64: outputs, weights, gradients, masks, and long sequences."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from otformer.nn import SinkhornAttention

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
ALLOWED = {torch.float64: 1e-8, torch.float32: 2e-4, torch.bfloat16: 4e-2}  # of the norm
WAYS = [{}, {"unbalanced": 0.7}, {"executor": "stream"}, {"executor": "stream", "unbalanced": 0.7}]


def run(layer: SinkhornAttention, x: Tensor, y: Tensor, probe: Tensor, **given: Tensor) -> list[Tensor]:
    """Output, and gradients in both inputs and all parameters."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    out, _ = layer(x, y, y, need_weights=False, **given)
    wanted = [x, y, *layer.parameters()]
    return [out.detach(), *torch.autograd.grad((out * probe).sum(), wanted)]


@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_equals_the_cpu(options: dict, dtype: torch.dtype, masked: bool) -> None:
    generator, sizes = torch.Generator().manual_seed(0), {"query": (2, 70, 32), "key": (2, 50, 32)}
    x, y = (torch.randn(s, generator=generator).to(dtype).double() for s in sizes.values())
    probe = torch.randn(sizes["query"], generator=generator).to(dtype).double()
    given = {"key_padding_mask": torch.arange(50) >= torch.tensor([[50], [41]])} if masked else {}
    torch.manual_seed(0)
    own = SinkhornAttention(32, 4, batch_first=True, tol=1e-10 if dtype == torch.float64 else 1e-5, **options).to(dtype)
    here = run(copy.deepcopy(own).double(), x, y, probe, **given)
    there = run(own.cuda(), *(t.to("cuda", dtype) for t in (x, y, probe)), **{k: m.cuda() for k, m in given.items()})
    for expected, found in zip(here, there, strict=True):
        assert found.is_cuda
        assert found.dtype == dtype
        scale = max(float(expected.norm()), 0.05 * float(here[0].norm()))  # a key's bias has no gradient at all
        assert float((found.cpu().double() - expected).norm()) <= ALLOWED[dtype] * scale


def test_16384_tokens_without_the_matrix() -> None:
    torch.manual_seed(0)
    layer = SinkhornAttention(64, 1, batch_first=True, tol=1e-5).cuda()
    x = torch.randn(1, 16_384, 64, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out, _ = layer(x, x, x, need_weights=False)
    out.square().sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 4 * 16_384**2 / 3  # a third of one matrix in float32
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
    # The mean of doubly stochastic rows is the mean of the values.
    values = torch.nn.functional.linear(x, layer.in_proj_weight[128:], layer.in_proj_bias[128:]).double()
    mean = torch.nn.functional.linear(values.mean(1), layer.out_proj.weight.double(), layer.out_proj.bias.double())
    assert float((out.double().mean(1) - mean).abs().max()) < 1e-5


def test_autocast() -> None:
    torch.manual_seed(0)
    layer = SinkhornAttention(32, 4, batch_first=True).cuda().requires_grad_(False)
    x = torch.randn(3, 40, 32, device="cuda")
    exact, _ = layer(x, x, x)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        half, weights = layer(x, x, x)
    assert float((half - exact).norm()) < 0.02 * float(exact.norm())
    assert float((weights.double().sum(-2) - 1).abs().max()) < 2e-2
