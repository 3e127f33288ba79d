"""CONTRIBUTING, "How to add": a layer, written as the text says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import otformer as of
from helpers.messages import refuses
from oracles import uniform
from otformer import checks
from otformer.memory import needs, shape
from otformer.nn import inputs
from otformer.nn.balance import balance


class Doubly(torch.nn.Module):
    """A doubly stochastic matrix of logits (..., n, n)."""

    def __init__(self, temperature: float = 1.0, tol: float = 1e-6, max_depth: int = 10_000) -> None:
        super().__init__()
        self.temperature = checks.positive("temperature", temperature)
        self.tol, self.max_depth = tol, checks.count("max_depth", max_depth, least=2)

    @needs(lambda logits, **_: inputs.need(shape(logits)[:-2], *shape(logits)[-2:], held=4))
    def forward(self, logits: torch.Tensor, a: torch.Tensor | None = None) -> torch.Tensor:
        given = tuple(inputs.matrix("logits", logits).shape)
        w_a, w_b = inputs.sums(a, None, None, None, given, logits)
        w_a, w_b = (inputs.stacked(w, given[:-2]) for w in (w_a, w_b))
        temperature = torch.full((1,), self.temperature, device=logits.device)
        return balance(logits.reshape(-1, *given[-2:]), temperature, w_a, w_b, self.tol, self.max_depth).reshape(given)


def test_a_layer():
    logits = uniform(0, 2, 3, 5, 5)
    layer = Doubly(0.5, tol=1e-11)
    P = layer(logits)
    M = of.solve(-logits[1, 2].numpy(), reg=0.5, tol=1e-11).plan * 5
    np.testing.assert_allclose(P[1, 2], M, atol=1e-9)
    assert layer(logits.float()).dtype == torch.float32
    assert layer(logits[0, 0]).shape == (5, 5)
    assert torch.autograd.gradcheck(layer, logits[0, 0].clone().requires_grad_())
    weights = torch.rand(2, 1, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (logits, weights))
    torch.testing.assert_close(torch.func.vmap(layer)(logits), P)
    forbidden = logits.masked_fill(torch.eye(5, dtype=torch.bool), -torch.inf)
    assert float(layer(forbidden).diagonal(dim1=2, dim2=3).abs().max()) == 0
    with refuses("logits", "tensor of floats", "ndarray"):
        layer(logits.numpy())
    with refuses("logits", "be finite", "nan"):
        layer(logits * torch.nan)
    with refuses("temperature", "positive", "0"):
        Doubly(temperature=0)
    with pytest.warns(RuntimeWarning, match="not converge"):
        Doubly(0.001, max_depth=2)(logits)
