"""The networks that are trained: translators and an encoder, each with its text as batches and its loss.

A translator is transformers' MarianMTModel, 6 + 6 layers, 256 wide, one embedding for both languages. The encoder (figure 1)
is a BERT of 12 layers, 160 wide, that fills in masked words of a sentence and its translation: a masked word can be read off
its translation, so the layers learn to align (Conneau and Lample 2019).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from otformer.lab.translators.corpus import VOCABULARY, Array, Gatherer, endless, read_sides
from otformer.words.models.shipped import shipped_folder
from otformer.words.text.languages import LanguagePair

END, PAD = 0, VOCABULARY - 1  # of the translators, as in their config.json
SMOOTHING = 0.1
BERT_PAD, SPECIAL, MASK = 0, 5, 4  # BERT's first tokens: [PAD] [UNK] [CLS] [SEP] [MASK]
MASKED = 0.25  # share of the tokens


def build_translator(dropout: float = 0.0) -> Any:
    """Make a MarianMTModel of the shipped shape, with the library's own initialisation: σ = 0.02, embeddings 1/√d."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig.from_pretrained(shipped_folder() / "en-fr", dropout=dropout, trust_remote_code=False)
    network = MarianMTModel(config)
    with torch.no_grad():
        network.model.shared.weight.normal_(0, config.d_model**-0.5)
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
        return build_translator(self.dropout)

    def batches(self, seed: int, start: int) -> Iterator[Array]:
        return endless(self.source.lengths, self.target.lengths, self.tokens, seed, start)

    def inputs(self, numbers: Array) -> tuple[Tensor, ...]:
        """Tokens of the sources [B, S] and of the targets [B, T]."""
        return self.source.rows(numbers, PAD), self.target.rows(numbers, PAD)

    def loss(self, network: Any, *inputs: Tensor) -> Tensor:
        """Cross-entropy of the next target token, with a share of 0.1 spread over all tokens, over the tokens of a batch."""
        source, target = inputs
        shifted = torch.cat([target.new_full((len(target), 1), PAD), target[:, :-1]], 1)
        logits = network(input_ids=source, decoder_input_ids=shifted, use_cache=False).logits
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
        )


def build_encoder(dropout: float = 0.0) -> Any:
    """Make a BertForMaskedLM of the shipped shape, with the library's own initialisation."""
    from transformers import BertConfig, BertForMaskedLM

    place = shipped_folder() / "bert-en-fr"
    return BertForMaskedLM(BertConfig.from_pretrained(place, hidden_dropout_prob=dropout, trust_remote_code=False))


class MaskedPairs:
    """Sentence pairs in one row each, as batches, and the loss of a batch."""

    rate, warm, steps, tokens, dropout = 1e-3, 1000, 5000, 65_536, 0.1

    def __init__(self, name: str, text: Path, device: str) -> None:
        sides = read_sides(text / name / "text.npz")
        self.pairs, first = Gatherer(sides["pair"], device), sides["first"]
        self.first = torch.as_tensor(first.tokens.astype("int64"), device=device)

    def build(self) -> Any:
        return build_encoder(self.dropout)

    def batches(self, seed: int, start: int) -> Iterator[Array]:
        return endless(self.pairs.lengths, 0 * self.pairs.lengths, self.tokens, seed, start)

    def inputs(self, numbers: Array) -> tuple[Tensor, ...]:
        """Tokens of the rows [B, L], and how many are of the first sentence [B]."""
        return self.pairs.rows(numbers, BERT_PAD), self.first[torch.as_tensor(numbers, device=self.first.device)]

    def loss(self, network: Any, *inputs: Tensor) -> Tensor:
        """Cross-entropy of a quarter of the tokens; of these 80 % are hidden, 10 % replaced, 10 % left, as in BERT."""
        tokens, first = inputs
        types = (torch.arange(tokens.shape[1], device=tokens.device) >= first[:, None]).long()
        chosen = (torch.rand(tokens.shape, device=tokens.device) < MASKED) & (tokens >= SPECIAL)
        fate = torch.rand(tokens.shape, device=tokens.device)
        other = torch.randint(SPECIAL, VOCABULARY, tokens.shape, device=tokens.device)
        seen = torch.where(chosen & (fate < 0.8), MASK, torch.where(chosen & (fate > 0.9), other, tokens))
        logits = network(input_ids=seen, token_type_ids=types).logits
        wanted = torch.where(chosen, tokens, -100)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten())
