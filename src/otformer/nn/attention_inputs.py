"""The inputs of `SinkhornAttention` in one form: batch first, masks as numbers to add, absent queries marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from otformer.errors import ArgumentError
from otformer.nn.inputs import kind

# Added to a logit, this is meant to forbid: −1e4, −1e9 and the least of a dtype are in use. Softmax gives such keys nothing;
# balanced attention would, for what is added to a whole column its bias takes off again.
FORBIDS = -1e4


@dataclass(frozen=True)
class QKV:
    """Queries, keys and values with their masks, of N sequences as given, or of B = N·heads problems when projected."""

    q: Tensor  # [N, L, E], or [B, n, d], scaled
    k: Tensor  # [N, S, E'], or [B, m, d]
    v: Tensor  # [N, S, E''], or [B, m, d]
    key_mask: Tensor  # [N, S] or [B, m], added to the logits of a key; −∞ for an absent one
    rows: Tensor  # [N, L] or [B, n], false for absent queries
    mask: Tensor | None  # [1 or N·heads, L, S], added to the logits
    causal: bool  # the mask is the causal one, and not among the numbers above


def refuse_vmap() -> None:
    """Refuse vmap, inside which masks and errors cannot be read; torch's own message is longer."""
    if torch.compiler.is_compiling():
        return
    levels = torch._C._functorch.get_interpreter_stack() or ()
    if any(level.key() == torch._C._functorch.TransformType.Vmap for level in levels):
        raise ValueError(
            "SinkhornAttention does not run inside vmap of torch.func, nor jacfwd: give it the batch; jacrev runs"
        )


def read(
    query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, query_padding_mask: Tensor | None,
    attn_mask: Tensor | None, is_causal: bool, dims: tuple[int, int, int], heads: int, batch_first: bool,
) -> QKV:  # fmt: skip
    """Check the forward arguments of `SinkhornAttention` by shape and type; ``dims``: of query, key and value."""
    itself, alone = query is key, isinstance(query, Tensor) and query.ndim == 2
    for name, t, dim in zip(("query", "key", "value"), (query, key, value), dims, strict=True):
        order = "L, E" if alone else "N, L, E" if batch_first else "L, N, E"
        if not isinstance(t, Tensor) or not t.is_floating_point() or t.ndim != 3 - alone or t.shape[-1] != dim:
            raise ArgumentError(name, f"be a tensor of floats of shape ({order}) with E = {dim}", kind(t))
    query, key, value = (t[None] if alone else t if batch_first else t.transpose(0, 1) for t in (query, key, value))
    (N, L), S = query.shape[:2], key.shape[1]
    if key.shape[0] != N or value.shape[:2] != (N, S):
        shapes = ", ".join(str(tuple(t.shape[:2])) for t in (query, key, value))
        raise ArgumentError("query, key and value", "have one batch, key and value one length", f"(N, L) = {shapes}")
    key_mask = query.new_zeros(N, S, dtype=torch.float32)
    if key_padding_mask is not None:
        key_mask = _added("key_padding_mask", key_padding_mask, ((S,) if alone else (N, S),), query).reshape(N, S)
    rows = torch.ones(N, L, dtype=torch.bool, device=query.device)
    if query_padding_mask is not None:
        shape = (L,) if alone else (N, L)
        rows = _added("query_padding_mask", query_padding_mask, (shape,), query).reshape(N, L) > -torch.inf
    elif itself:  # a token that is no key is no query
        rows = key_mask > -torch.inf
    mask = None
    if attn_mask is not None and not is_causal:
        mask = _added("attn_mask", attn_mask, ((L, S), (N * heads, L, S)), query).reshape(-1, L, S)
        if not mask.requires_grad and _causal(mask):
            mask, is_causal = None, True
    return QKV(*_present(query, key, value, key_mask, rows), key_mask, rows, mask, is_causal)


def _added(name: str, mask: Any, shapes: tuple[tuple[int, ...], ...], like: Tensor) -> Tensor:
    """Turn a mask into numbers to add, in float32 at least: −∞ where it is true, or a number of FORBIDS or below."""
    fits = isinstance(mask, Tensor) and (mask.dtype == torch.bool or mask.is_floating_point())
    if not fits or tuple(mask.shape) not in shapes:
        expected = " or ".join(map(str, shapes))
        raise ArgumentError(name, f"be a boolean or float tensor of shape {expected}", kind(mask))
    if mask.device != like.device:
        raise ArgumentError(name, f"be on {like.device}", mask.device)
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, device=like.device).masked_fill(mask, -torch.inf)
    if bool((mask.isnan() | mask.isposinf()).any()):
        raise ArgumentError(name, "be finite, or -inf where attention is forbidden", "nan or inf")
    forbids = mask <= mask.new_tensor(FORBIDS)  # as its dtype rounds it: −9984 in bfloat16
    return mask.to(torch.promote_types(mask.dtype, torch.float32)).masked_fill(forbids, -torch.inf)


def _causal(mask: Tensor) -> bool:
    """Return whether a mask [B, L, S] forbids what is after the diagonal, nothing else, and adds nothing."""
    later = torch.ones(mask.shape[1:], dtype=torch.bool, device=mask.device).triu(1)
    return min(mask.shape[1:]) > 1 and bool((mask == torch.zeros_like(mask).masked_fill(later, -torch.inf)).all())


def _present(query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Replace padding by 0: it is not read, not even for the gradients of the projections."""
    keys = key_mask > -torch.inf
    if not rows.shape[1]:  # nothing attends
        return query, key, value
    if not keys.shape[1]:
        raise ArgumentError("key", "have a token to attend to", "a sequence of length 0")
    if not bool(keys.any(1).all()):
        raise ValueError(f"key_padding_mask leaves no key of sequence {int((~keys.any(1)).nonzero()[0, 0])}")
    if not bool(rows.any(1).all()):
        raise ValueError(f"query_padding_mask leaves no query of sequence {int((~rows.any(1)).nonzero()[0, 0])}")
    if bool(keys.all()) and bool(rows.all()):
        return query, key, value
    clean = [t.masked_fill(~kept[:, :, None], 0.0) for t, kept in ((query, rows), (key, keys), (value, keys))]
    return clean[0], clean[1], clean[2]


def nested(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Pad a nested query that is key and value too to [N, L, E]; the mask [N, L] is true where there is no token."""
    if not (query is key and key is value):
        raise ValueError("nested tensors are for self-attention: query, key and value must be the same, got several")
    lengths = torch.tensor([len(t) for t in query.unbind()], device=query.device)
    padded = query.to_padded_tensor(0.0)
    return padded, torch.arange(padded.shape[1], device=query.device) >= lengths[:, None]
