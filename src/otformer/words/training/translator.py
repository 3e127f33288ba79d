"""The translators: transformers' MarianMTModel, 6 + 6 layers, 256 wide, one embedding for both languages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from otformer.words.text.languages import LanguagePair
from otformer.words.training.batches import Array, Gatherer, endless, read_sides
from otformer.words.training.corpus import VOCABULARY
from otformer.words.training.vocabulary import LONGEST

END, PAD = 0, VOCABULARY - 1
SMOOTHING = 0.1


def build(dropout: float = 0.0) -> Any:
    """A new MarianMTModel with the library's own initialisation: σ = 0.02, embeddings 1/√d."""
    from transformers import MarianConfig, MarianMTModel

    width = 256
    network = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=width,
            encoder_layers=6,
            decoder_layers=6,
            encoder_attention_heads=8,
            decoder_attention_heads=8,
            encoder_ffn_dim=4 * width,
            decoder_ffn_dim=4 * width,
            activation_function="swish",
            dropout=dropout,
            scale_embedding=True,
            max_position_embeddings=LONGEST,
            pad_token_id=PAD,
            eos_token_id=END,
            forced_eos_token_id=END,
            decoder_start_token_id=PAD,
            bos_token_id=END,
        )
    )
    with torch.no_grad():
        network.model.shared.weight.normal_(0, width**-0.5)
        network.model.shared.weight[PAD] = 0
    return network


class Translation:
    """The text of one direction as batches, and the loss of a batch."""

    rate, warm, steps, tokens, dropout = 6e-4, 2000, 26_600, 16_384, 0.15

    def __init__(self, name: str, text: Path, device: str) -> None:
        languages = LanguagePair.of(name)
        sides = read_sides(text / str(languages.stored) / "text.npz")
        self.source, self.target = (Gatherer(sides[side], device) for side in (languages.source, languages.target))

    def build(self) -> Any:
        return build(self.dropout)

    def batches(self, seed: int, start: int) -> Iterator[Array]:
        return endless(self.source.lengths, self.target.lengths, self.tokens, seed, start)

    def loss(self, network: Any, numbers: Array) -> Tensor:
        """Cross-entropy of the next target token, with a share of 0.1 spread over all tokens, over the tokens of a batch."""
        target = self.target.rows(numbers, PAD)
        shifted = torch.cat([target.new_full((len(target), 1), PAD), target[:, :-1]], 1)
        logits = network(input_ids=self.source.rows(numbers, PAD), decoder_input_ids=shifted, use_cache=False).logits
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
        )
