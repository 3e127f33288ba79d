"""`DoublyStochastic` on a CUDA device against the CPU's float64: plans, gradients, masks, half precision, bad input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import otformer as of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SHAPES = ((1000, 2, 2), (5000, 4, 4), (333, 3, 7), (65, 16, 16), (40, 32, 32), (3, 64, 64), (2, 100, 70))
CASES = [(shape, torch.float32) for shape in SHAPES]  # a kernel takes seconds to compile: not all with all
CASES += [((5000, 4, 4), dtype) for dtype in (torch.float64, torch.bfloat16, torch.float16)]
CASES += [((40, 32, 32), torch.float64), ((40, 32, 32), torch.bfloat16)]
ALLOWED = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 2e-2, torch.float16: 1e-2}  # of the norm


def both(layer: of.nn.DoublyStochastic, logits: Tensor, probe: Tensor, **given: Tensor) -> tuple[Tensor, Tensor]:
    """The plan and the gradient in the logits."""
    x = logits.clone().requires_grad_()
    P = layer(x, **given)
    P.backward(probe.to(P))
    assert x.grad is not None
    return P.detach(), x.grad


@pytest.mark.parametrize(("shape", "dtype"), CASES, ids=str)
def test_equals_the_cpu(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    B, n, m = shape
    generator = torch.Generator().manual_seed(n)
    logits = (2 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
    probe = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    a, b = torch.rand(B, n, generator=generator, dtype=torch.float64) + 0.5, torch.ones(B, m, dtype=torch.float64)
    given = {"a": a / a.sum(1, keepdim=True) * m, "b": b}
    layer = of.nn.DoublyStochastic(temperature=0.8, tol=1e-10 if dtype == torch.float64 else 1e-6)  # stays on the CPU
    here = both(layer, logits.double(), probe.double(), **given)
    there = both(layer, logits.cuda(), probe.cuda(), **{name: t.cuda() for name, t in given.items()})
    assert there[0].dtype == dtype
    assert there[0].is_cuda
    for expected, own in zip(here, there, strict=True):
        assert float((own.cpu().double() - expected).norm()) <= ALLOWED[dtype] * float(expected.norm())


def test_masks_and_a_million() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1 << 20, 4, 4, generator=generator).cuda()
    mask = torch.rand(logits.shape, generator=generator).cuda() < 0.8
    mask |= torch.eye(4, dtype=torch.bool, device="cuda")  # so that there is a plan
    P, gradient = both(of.nn.DoublyStochastic(tol=1e-5), logits, torch.ones_like(logits) + logits, mask=mask)
    assert float((P.double().sum(-1) - 1).abs().max()) < 1.1e-5
    assert float((P.double().sum(-2) - 1).abs().max()) < 1.1e-5
    assert bool((P[~mask] == 0).all())
    assert bool(gradient.isfinite().all())


def test_what_is_no_problem_is_refused() -> None:
    logits = torch.zeros(3, 4, 4, device="cuda")
    logits[1, 2, 2] = torch.nan
    with pytest.raises(ValueError, match="logits"):
        of.nn.DoublyStochastic()(logits)
    logits[1, 2] = -torch.inf
    with pytest.raises(ValueError, match="row"):
        of.nn.DoublyStochastic()(logits)
