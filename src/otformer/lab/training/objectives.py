r"""What to minimise, each a mean over the problems and rows of a batch, one number per member: [K].

``sorted``     Σ_i ‖f_i − x_{σ(i)}‖² / n: squared error on the sorted list, as the paper's text suggests. Row i of A
               needs only the right *mean* of x: many attentions give loss 0, and P* is one of them.
``attention``  ‖A − P*‖²_F / n: squared error on the attention. Flat where a row is confidently wrong.
``entropy``    −Σ_i log A_{iσ(i)} / n: cross-entropy of the rows. Its gradient does not vanish on wrong rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from otformer.lab.training.data import Batch
from otformer.learning.model import Output


def _mean(rows: Tensor, batch: Batch) -> Tensor:
    """Mean over problems of the mean over the rows that are there; rows [K, B, n] → [K]."""
    present = batch.present.to(rows)
    return ((rows * present).sum(-1) / present.sum(-1)).mean(-1)


def sorted_error(output: Output, batch: Batch) -> Tensor:
    """Squared error of the list that the network returns."""
    wanted = batch.x.gather(-2, batch.target[..., None].expand_as(batch.x))
    return _mean((output.points - wanted).square().sum(-1), batch)


def attention_error(output: Output, batch: Batch) -> Tensor:
    """Squared Frobenius error of the output attention."""
    return _mean((output.attention - batch.plan()).square().sum(-1), batch)


def cross_entropy(output: Output, batch: Batch) -> Tensor:
    """Cross-entropy of the rows of the output attention."""
    right = output.logits.log_softmax(-1).gather(-1, batch.target.expand(output.logits.shape[:-1])[..., None])
    return _mean(-right[..., 0].masked_fill(~batch.present, 0.0), batch)


OBJECTIVES: dict[str, Callable[[Output, Batch], Tensor]] = dict(
    sorted=sorted_error, attention=attention_error, entropy=cross_entropy
)


def rows_right(output: Output, batch: Batch) -> Tensor:
    """Hits@1, [K]: the share of rows whose largest attention is on the right column."""
    return _mean((output.logits.argmax(-1) == batch.target).to(output.logits), batch)


def lists_right(output: Output, batch: Batch) -> Tensor:
    """The share of problems all of whose rows are right, [K]."""
    right = (output.logits.argmax(-1) == batch.target) | ~batch.present
    return right.all(-1).to(output.logits).mean(-1)


def values_right(output: Output, batch: Batch) -> tuple[Tensor, Tensor]:
    """The share of rows, and of problems, whose returned number is nearest to the right x of all x, [K] each; for d = 1.

    A network that is trained on the list may return the right numbers by an attention that is not the right permutation.
    """
    far = (output.points - batch.x.mT).abs()  # [K, B, n, n]: of the number in row i from x_j
    far = far.masked_fill(~batch.present[..., None, :], torch.inf).nan_to_num(nan=0.0, posinf=torch.inf)
    right = (far.argmin(-1) == batch.target) & output.points[..., 0].isfinite()
    return _mean(right.to(far), batch), (right | ~batch.present).all(-1).to(far).mean(-1)


def distance(output: Output, batch: Batch) -> Tensor:
    """‖A − P*‖_F/√n, [K], root of the mean over problems: 0 is perfect, √2 all mass on wrong columns."""
    return torch.sqrt(attention_error(output, batch))
