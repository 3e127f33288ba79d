"""Clouds of points, and their costs by scipy."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial.distance import cdist


def normal(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def squares_of(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    return cdist(x.double().numpy(), y.double().numpy(), "sqeuclidean")
