"""Clouds, weights and dense counterparts for the tests of streams."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from otformer.network.features import Features, cosine, inner_product, mahalanobis, squared_euclidean
from otformer.transport.costs.clouds import PLAIN, Rule, ends, middles, moved
from otformer.transport.costs.matrix import Dense
from otformer.transport.costs.tiles import Stream

COSTS = {
    "squared Euclidean": squared_euclidean,
    "inner product": inner_product,
    "cosine": cosine,
    "Mahalanobis": lambda x, y: mahalanobis(x, y, torch.eye(x.shape[1], dtype=x.dtype) + 0.3),
}


def clouds(n: int, m: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Uniform points, scaled so that costs are about 1 in every dimension."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.rand(k, d, generator=generator, dtype=torch.float64) / (d / 3) ** 0.5 for k in (n, m))


def weights(n: int, seed: int = 1) -> Tensor:
    w = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    return w / w.sum()


def cast(features: Features, dtype: torch.dtype, device: str = "cpu") -> Features:
    return Features(*(t.to(dtype).to(device) for t in (features.x, features.y, features.x_sq, features.y_sq)))


def pair(
    features: Features, dtype: torch.dtype = torch.float64, device: str = "cpu", **options: Any
) -> tuple[Dense, Stream]:
    """The same problem for both executors: dense always in float64, from the very numbers the stream is given."""
    log_a, log_b = weights(len(features.x)).log(), weights(len(features.y), 2).log()
    given = cast(features, dtype, device)
    stream = Stream(given, log_a.to(given.x), log_b.to(given.x), **options)
    rounded = cast(given, torch.float64)
    cost = rounded.x_sq[:, None] + rounded.y_sq[None, :] - 2 * rounded.x @ rounded.y.mT
    return Dense(cost, stream.log_a.double().cpu(), stream.log_b.double().cpu()), stream


def duals(dense: Dense, reg: float, dtype: torch.dtype = torch.float64, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Potentials of a plan whose rows are nearly right: what a solver asks about."""
    generator = torch.Generator().manual_seed(seed)
    v = 0.1 * torch.rand(len(dense.log_b), generator=generator, dtype=torch.float64).to(dtype).double()
    u = -reg * dense.log_ratio(torch.zeros_like(dense.log_a), v, reg, rows=True)
    return u.to(dtype), v.to(dtype)


def centred(x: Tensor, y: Tensor, p: Tensor, q: Tensor, rule: Rule = PLAIN) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same costs from clouds that lie about the origin."""
    return moved(x, y, p, q, *middles(ends(x, y), rule))


def cubes(n: int = 130, m: int = 90, d: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.rand(k, d, generator=generator, dtype=torch.float64) for k in (n, m))


def masses(n: int, seed: int, zeros: int = 0) -> Tensor:
    w = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    w[:: n // zeros if zeros else n + 1] = 0 if zeros else w[0]
    return w / w.sum()


def stream_of(x: Tensor, y: Tensor, a: Tensor | None = None, b: Tensor | None = None, block: int | None = None) -> Stream:
    """Squared distances between points; weights positive, by default uniform with mass 1."""
    logs = [
        torch.full_like(points[:, 0], 1 / len(points)).log() if w is None else torch.as_tensor(w).to(points).log()
        for points, w in ((x, a), (y, b))
    ]
    return Stream(squared_euclidean(x, y), *logs, block)


class Sizes(TorchDispatchMode):
    """Records the most elements that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        returned = out if isinstance(out, (tuple, list)) else [out]
        self.largest = max([self.largest, *(t.numel() for t in returned if isinstance(t, Tensor))])
        return out


def close(ours: Any, theirs: Any, loose: float) -> None:
    """Tensors that agree to ``loose`` of the largest entry, or of 1."""
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=loose, atol=loose * max(1.0, float(other.detach().abs().max())))
