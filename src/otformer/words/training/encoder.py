"""The encoder of figure 1: a BERT of 12 layers, 160 wide, that fills in masked words of a sentence and its translation.

A masked word can be read off its translation, so the layers learn to align (Conneau and Lample 2019).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from otformer.words.training.batches import Array, Gatherer, endless, read_sides
from otformer.words.training.corpus import VOCABULARY
from otformer.words.training.vocabulary import LONGEST

BERT_PAD, SPECIAL, MASK = 0, 5, 4  # BERT's first tokens: [PAD] [UNK] [CLS] [SEP] [MASK]
MASKED = 0.25  # share of the tokens


def build(dropout: float = 0.0) -> Any:
    """A new BertForMaskedLM with the library's own initialisation."""
    from transformers import BertConfig, BertForMaskedLM

    width = 160
    return BertForMaskedLM(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            num_hidden_layers=12,
            num_attention_heads=5,
            intermediate_size=3 * width,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=LONGEST,
            pad_token_id=BERT_PAD,
        )
    )


class MaskedPairs:
    """Sentence pairs in one row each, as batches, and the loss of a batch."""

    rate, warm, steps, tokens, dropout = 1e-3, 1000, 5000, 65_536, 0.1

    def __init__(self, name: str, text: Path, device: str) -> None:
        sides = read_sides(text / name / "text.npz")
        self.pairs, first = Gatherer(sides["pair"], device), sides["first"]
        self.first = torch.as_tensor(first.tokens.astype("int64"), device=device)

    def build(self) -> Any:
        return build(self.dropout)

    def batches(self, seed: int, start: int) -> Iterator[Array]:
        return endless(self.pairs.lengths, 0 * self.pairs.lengths, self.tokens, seed, start)

    def loss(self, network: Any, numbers: Array) -> Tensor:
        """Cross-entropy of a quarter of the tokens; of these 80 % are hidden, 10 % replaced, 10 % left, as in BERT."""
        tokens = self.pairs.rows(numbers, BERT_PAD)
        which = torch.as_tensor(numbers, device=tokens.device)
        types = (torch.arange(tokens.shape[1], device=tokens.device) >= self.first[which][:, None]).long()
        chosen = (torch.rand(tokens.shape, device=tokens.device) < MASKED) & (tokens >= SPECIAL)
        fate = torch.rand(tokens.shape, device=tokens.device)
        other = torch.randint(SPECIAL, VOCABULARY, tokens.shape, device=tokens.device)
        seen = torch.where(chosen & (fate < 0.8), MASK, torch.where(chosen & (fate > 0.9), other, tokens))
        logits = network(input_ids=seen, token_type_ids=types).logits
        wanted = torch.where(chosen, tokens, -100)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())
