"""Families of layers (`otformer.nn`): forward against the formula, backward against differences, masks, half precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fuzz import oracles, reference
from fuzz.inputs import Rng, array, number, pick, plain, reg, size, tensor, weights
from fuzz.public import of

Told = list[Any]
DTYPES = (torch.float64, torch.float64, torch.float32, torch.float16, torch.bfloat16)
CLOSE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def given(rng: Rng, shape: tuple[int, ...]) -> Any:
    """A tensor for a layer; at times something else."""
    if rng.random() < 0.04 and not rng.mild:
        return pick(rng, (array(rng, shape), array(rng, shape).tolist(), torch.zeros(shape, dtype=torch.long), None, "x"))
    return tensor(rng, array(rng, shape), DTYPES)


def mask(rng: Rng, shape: tuple[int, ...]) -> Any:
    """None, or True for what is there; at times a mask of a wrong kind."""
    kind = rng.random() * (0.9 if rng.mild else 1.0)
    if kind < 0.6:
        return None
    drawn = torch.tensor(rng.random(shape) < 0.75)
    if kind < 0.9:
        return drawn
    return pick(
        rng, (drawn.float(), drawn[..., :1], drawn.numpy(), torch.zeros_like(drawn), "mask", drawn[None, None, None])
    )


def differentiated(out: torch.Tensor, x: torch.Tensor, told: Told) -> None:
    """Out and the gradient of a sum of its parts are finite, and have the dtype of the input."""
    assert out.dtype == x.dtype, f"{out.dtype} of {x.dtype}"
    if told:
        return
    oracles.finite(out)
    if out.requires_grad and out.numel():
        (gradient,) = torch.autograd.grad(
            (out.double() * torch.arange(1, out.numel() + 1).reshape(out.shape)).sum(), x, allow_unused=True
        )
        if gradient is not None and x.dtype in (torch.float64, torch.float32):
            oracles.finite(gradient)
        assert gradient is None or not gradient.isnan().any(), "a gradient that is no number"


def doubly_stochastic(rng: Rng, told: Told) -> None:
    n, m, lead = size(rng), size(rng), pick(rng, ((), (), (2,), (1, 3), (0,)))
    m = n if rng.random() < 0.6 else m
    iterations = number(rng, (None, None, 5))
    layer = of.nn.DoublyStochastic(
        number(rng, (0.1, 1.0, 10.0)), bool(rng.integers(2)), iterations=iterations, max_depth=300
    )
    L, masks = given(rng, (*lead, n, m)), (mask(rng, (*lead, n, m)), mask(rng, (*lead, n)), mask(rng, (*lead, m)))
    a = None if n == m or rng.random() < 0.1 else tensor(rng, rng.random((*lead, n)) + 0.01)
    P = layer(L, a, None, *(t if rng.random() < 0.4 else None for t in masks))
    differentiated(P, L, told)
    assert (plain(P) >= 0).all(), "a negative entry"
    if told or not P.numel() or layer.iterations is not None:
        return
    if a is None and masks[1] is None and masks[2] is None:
        close = CLOSE[L.dtype] * (max(n, m) if L.dtype in (torch.float16, torch.bfloat16) else 1)
        assert np.abs(plain(P).sum(-1) - 1).max() < close, "rows do not sum to 1"
    if rng.mild and a is None and all(t is None for t in masks) and L.dtype == torch.float64 and not lead:
        expected = reference.scaled(-plain(L), np.ones(n), np.ones(n), float(layer.temperature))
        assert expected is None or np.abs(plain(P) - expected[0]).max() < 1e-3, "another matrix"


def transport_layer(rng: Rng, told: Told) -> None:
    n, m, d, lead = size(rng), size(rng), max(1, size(rng)), pick(rng, ((), (), (2,), (0,)))
    output = pick(rng, ("plan", "plan", "points", "no")[: 3 if rng.mild else 4])
    layer = of.nn.Transport(reg(rng), bool(rng.integers(2)), max_depth=300, output=output)
    dtype = pick(rng, DTYPES)
    x, y = tensor(rng, array(rng, (*lead, n, d)), (dtype,)), tensor(rng, array(rng, (*lead, m, d)), (dtype,))
    a, b = (None if (w := weights(rng, k)) is None or lead else torch.tensor(w) for k in (n, m))
    masks = mask(rng, (*lead, n)), mask(rng, (*lead, m))
    if rng.random() < 0.2:
        x = given(rng, (*lead, n, m))
        out = layer(None, None, a, b, *masks, cost=x)
    else:
        out = layer(x, y, a, b, *masks)
    differentiated(out, x, told)
    if told or output != "plan" or not out.numel() or lead or any(t is not None for t in masks):
        return
    P, w = plain(out), oracles.uniform(a, b, n)
    assert (P >= 0).all(), "a negative entry"
    assert np.abs(P.sum(1) - w).sum() < CLOSE[x.dtype] * max(1.0, w.sum()) * 2, "marginals, and not a word"


def sorting_layers(rng: Rng, told: Told) -> None:
    n, lead = size(rng), pick(rng, ((), (), (2,), (2, 1), (0,)))
    kind, lam = int(rng.integers(5)), reg(rng)
    if kind == 0:
        layer = of.nn.SoftSort(lam, max_depth=300)
    elif kind == 1:
        layer = of.nn.SoftRank(lam, max_depth=300)
    elif kind == 2:
        layer = of.nn.SoftTopK(number(rng, (1, 2, n)), lam, bool(rng.integers(2)), max_depth=300)
    elif kind == 3:
        layer = of.nn.SoftQuantile(number(rng, (0.0, 0.5, 1.0, [0.1, 0.9], [])), lam, max_depth=300)
    else:
        layer = of.nn.SoftSort(lam, max_depth=300)
    x, there = given(rng, (*lead, n)), mask(rng, (*lead, n))
    w = None if rng.random() < 0.7 else torch.tensor(array(rng, (*lead, n), positive=True))
    if kind == 4:
        table = given(rng, (*lead, n, 2))
        out = layer.carry(x, table, w, there)
        assert out.shape == table.shape, "another table"
        assert told or not plain(table).size or not np.isfinite(plain(table)).all() or np.isfinite(plain(out)).all(), (
            "not finite"
        )
        return
    out = layer(x, w, there)
    differentiated(out, x, told)
    if told or w is not None or there is not None or not out.numel() or not rng.mild:
        return
    v, y, close = plain(x), plain(out), CLOSE[x.dtype] * 20
    span = 1e-9 + np.abs(v).max()
    if kind == 0:
        assert np.abs(y.sum(-1) - v.sum(-1)).max() < close * span * n, "sums differ"
        assert (np.diff(y) >= -close * span).all(), "not ascending"
    elif kind == 1:
        assert np.abs(y.sum(-1) - n * (n - 1) / 2).max() < close * n * n, "ranks do not sum up"
    elif kind == 2:
        assert np.abs(y.sum(-1) - layer.k).max() < close * n, "shares do not sum to k"


def attention(rng: Rng, told: Told) -> None:
    """Rows of the attention sum to one, columns of a balanced one to their share; padding, masks and odd settings."""
    heads, n, m, lead = pick(rng, (1, 2)), max(1, size(rng)), max(1, size(rng)), pick(rng, ((), (2,), (0,)))
    balanced = rng.random() < 0.5
    layer = of.nn.SinkhornAttention(
        number(rng, (4, 8)), heads, number(rng, (0.0, 0.0, 0.5)), batch_first=True, dtype=torch.float64,
        unbalanced=None if balanced else number(rng, (0.1, 1.0, 10.0)), temperature=number(rng, (0.1, 1.0)),
        max_depth=300, executor=pick(rng, ("auto", "dense", "stream")),
    )  # fmt: skip
    d, weights = layer.embed_dim, bool(rng.integers(2))
    x = tensor(rng, array(rng, (*lead, n, d)), (torch.float64,))
    y = x if rng.random() < 0.4 else tensor(rng, array(rng, (*lead, m, d)), (torch.float64,))
    there = mask(rng, (*lead, y.shape[-2]))
    padding = ~there if isinstance(there, torch.Tensor) and there.dtype == torch.bool else there
    out, A = layer.eval()(x, y, y, key_padding_mask=padding, need_weights=weights)
    differentiated(out, x, told)
    if told or A is None or not A.numel() or padding is not None:
        return
    assert np.abs(plain(A).sum(-1) - 1).max() < 1e-5, "rows do not sum to 1"
    if balanced:
        assert np.abs(plain(A).sum(-2) - A.shape[-2] / A.shape[-1]).max() < 1e-3, "columns have no equal sums"


def layer_gradients(rng: Rng, told: Told) -> None:
    """Slopes of every layer in float64."""
    n, lam = max(2, size(rng)), pick(rng, (0.1, 1.0))
    x, along = torch.tensor(rng.random(n)), rng.standard_normal(n)
    target, tight = torch.tensor(rng.standard_normal(n)), {"tol": 1e-11}
    of_values = pick(rng, (of.nn.SoftSort(lam, **tight), of.nn.SoftRank(lam, **tight), of.nn.SoftTopK(1, lam, **tight),
                           of.nn.SoftQuantile([0.2] * n, lam, **tight)))  # fmt: skip
    oracles.slope(lambda x: (of_values(x) * target).sum(), x, along)
    points, y, T = torch.tensor(rng.random((n, 2))), torch.tensor(rng.random((n, 2))), torch.tensor(rng.random((n, n)))
    transport = of.nn.Transport(lam, **tight)
    oracles.slope(lambda x: (transport(x, y) * T).sum(), points, rng.standard_normal((n, 2)))
    balanced = of.nn.DoublyStochastic(lam, **tight)
    oracles.slope(lambda L: (balanced(L) * T).sum(), torch.tensor(rng.random((n, n))), rng.standard_normal((n, n)))


FAMILIES = (doubly_stochastic, transport_layer, sorting_layers, attention, layer_gradients)
