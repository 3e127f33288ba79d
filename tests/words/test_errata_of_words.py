"""Errata of the experiments on translation (docs/errata.md, by number)."""

from __future__ import annotations

import pytest

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
import torch
from transformers import MarianMTModel


def test_39_the_block_of_a_concatenated_pair_is_another_matrix(tiny) -> None:
    """Section 4.1 scores "self-attention", then "cross-attention". In a Marian model the second has target rows and source
    columns, and the first has such a block if the pair is concatenated in the encoder: another matrix."""
    model = MarianMTModel.from_pretrained(tiny / "en-fr", attn_implementation="eager").eval()
    source, target = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[10, 11, 12]])

    def run(source: torch.Tensor, target: torch.Tensor) -> object:
        with torch.no_grad():
            return model(input_ids=source, decoder_input_ids=target, output_attentions=True)

    both = run(source, target)
    shapes = {name: tuple(getattr(both, f"{name}_attentions")[0].shape[2:]) for name in ("encoder", "decoder", "cross")}
    assert shapes == {"encoder": (5, 5), "decoder": (3, 3), "cross": (3, 5)}
    joined = run(torch.cat([source, target], 1), target)
    block = joined.encoder_attentions[-1].mean(1)[0, 5:, :5]
    cross = both.cross_attentions[-1].mean(1)[0]
    assert block.shape == cross.shape
    assert float((block.sum(1) - 1).abs().min()) > 0.1  # its rows have to be normalised again, which is not said
    assert torch.allclose(cross.sum(1), torch.ones(3), atol=1e-5)
