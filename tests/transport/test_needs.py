"""What is said of sizes, for every form in which problems are given."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import otformer as of
from otformer.learning import trained
from otformer.nn import attention
from otformer.transport.ragged import batch

M, x, y, a = np.zeros((300, 200)), np.zeros((300, 2)), np.zeros((200, 2)), np.full(300, 1 / 300)
FORMS = {
    "costs": ([M, M], "2 problems up to 300 × 200"),
    "a tuple of costs": ((M, M), "2 problems up to 300 × 200"),
    "lists": ([M.tolist()], "1 problem up to 300 × 200"),
    "with weights": ([(M, a), (M, a, None)], "2 problems up to 300 × 200"),
    "points": ([(x, y), (x, y, a, None)], "2 problems up to 300 × 200"),
    "stacked costs": (np.zeros((7, 300, 200)), "7 problems up to 300 × 200"),
    "stacked tensors": (torch.zeros(7, 300, 200), "7 problems up to 300 × 200"),
    "stacked points": ((np.zeros((7, 300, 2)), np.zeros((7, 200, 2)), None, None), "7 problems up to 300 × 200"),
    "an iterator": (iter([M]), "problems of an iterator"),
}


def fail(*args: object, **options: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("form", FORMS)
def test_sizes_of_a_batch(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problems, what = FORMS[form]
    monkeypatch.setattr(batch, "read", fail)
    with pytest.raises(MemoryError, match=f"not enough memory: solve_batch of {what} needs about"):
        of.solve_batch(problems)


@pytest.mark.parametrize("batch_first", [True, False])
def test_sizes_of_attention(batch_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "heads_attend", fail)
    layer = of.nn.SinkhornAttention(4, 2, batch_first=batch_first)
    q, k = torch.zeros(3, 50, 4), torch.zeros(3, 70, 4)
    several = (q, k, k) if batch_first else tuple(t.transpose(0, 1) for t in (q, k, k))
    with pytest.raises(MemoryError, match="SinkhornAttention of 6 matrices of 50 × 70 needs about"):
        layer(*several)
    with pytest.raises(MemoryError, match="SinkhornAttention of 2 matrices of 50 × 70 needs about"):
        layer(q[0], k[0], value=k[0])


def test_sizes_of_sequences_of_several_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "heads_attend", fail)
    nested = torch.nested.nested_tensor([torch.zeros(50, 4), torch.zeros(30, 4), torch.zeros(2, 4)])
    layer = of.nn.SinkhornAttention(4, 2, batch_first=True)
    with pytest.raises(MemoryError, match="SinkhornAttention of 6 matrices of 50 × 50 needs about"):
        layer(nested, nested, nested, need_weights=False)


@pytest.mark.parametrize("given", [np.zeros(40), np.zeros((40, 1)), np.zeros((3, 40, 1)), [0.0] * 40], ids=np.shape)
def test_sizes_of_a_trained_network(given: object, monkeypatch: pytest.MonkeyPatch) -> None:
    module = of.load_trained("sort-beyond")
    monkeypatch.setattr(trained.Trained, "_known", fail)
    what = "3 attentions of 40 × 40" if np.ndim(given) == 3 else "a 40 × 40 attention"
    with pytest.raises(MemoryError, match=f"not enough memory: Trained of {what} needs about"):
        module(given, y=given)


def test_sizes_of_what_is_read_from_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    r = of.solve_sample(x, y, executor="stream")
    monkeypatch.setattr(of.Result, "_part", fail)
    for read in (lambda: r.plan, lambda: r.rounded()):
        with pytest.raises(MemoryError, match=r"Result\.\w+ of a 300 × 200 plan needs about"):
            read()
    trace = of.AligningTransformer(2, 0.1, 1)(x, y, warn=False)
    monkeypatch.setattr(type(trace), "_logits", fail)
    for read in (trace.plan, trace.attention):
        with pytest.raises(MemoryError, match=r"Trace\.\w+ of a 301 × 301 attention needs about"):
            read()
