"""The best iterate so far, of every problem of a batch."""

from __future__ import annotations

import torch
from torch import Tensor


class Least:
    """``state``, tensors [..., k], at the least ``error`` [...] seen; the first state is kept until one is better."""

    def __init__(self, *state: Tensor) -> None:
        self.state = state
        self.error = torch.full(state[0].shape[:-1], torch.inf, dtype=state[0].dtype, device=state[0].device)

    def see(self, error: Tensor, *state: Tensor) -> None:
        better = error < self.error
        self.error = torch.where(better, error, self.error)
        self.state = tuple(torch.where(better[..., None], new, old) for new, old in zip(state, self.state, strict=True))
