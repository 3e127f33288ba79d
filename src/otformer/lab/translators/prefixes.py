"""Translation and loss with nothing but prefixes: what a decoder that has no future can do.

The network is given the whole prefix at every step and its last position is used. For causal attention this is what teacher
forcing gives; where a row depends on later ones, the two differ, and by how much is what has leaked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from otformer.lab.translators.evaluate import translate_batches
from otformer.lab.translators.networks import END, PAD
from otformer.words.models.models import Model
from otformer.words.text.text import Pair, fold


def translate_prefixes(model: Model, sentences: Sequence[str], batch: int = 150) -> list[str]:
    """Translate greedily; return the texts in order."""

    def generate(given: Any) -> Tensor:
        return _greedy(model.network, given["input_ids"], given["attention_mask"])

    return translate_batches(model.tokenizer, sentences, batch, generate)


def _greedy(network: Any, source: Tensor, mask: Tensor) -> Tensor:
    """Target tokens [B, 1 + steps] of source tokens [B, S]: the start, then until </s> or twice the source and ten."""
    source, mask = source.to(network.device), mask.to(network.device)
    encoded = network.get_encoder()(input_ids=source, attention_mask=mask)
    made = source.new_full((len(source), 1), PAD)
    done = torch.zeros(len(source), dtype=torch.bool, device=source.device)
    for _ in range(min(2 * source.shape[1] + 10, network.config.max_position_embeddings - 1)):
        logits = network(encoder_outputs=encoded, attention_mask=mask, decoder_input_ids=made, use_cache=False).logits[:, -1]
        logits[:, PAD] = -torch.inf
        token = torch.where(done, PAD, logits.argmax(-1))
        made, done = torch.cat([made, token[:, None]], 1), done | (token == END)
        if bool(done.all()):
            break
    return made


@torch.inference_mode()
def losses(model: Model, pairs: Sequence[Pair]) -> dict[str, float]:
    """Nats per target token: ``teacher``, with the whole target given, and ``prefix``, every token from its prefix alone."""
    sums, count = dict.fromkeys(("teacher", "prefix"), 0.0), 0
    for pair in pairs:
        options = {"truncation": True, "return_tensors": "pt"}
        source = model.tokenizer(fold(pair.source), **options)["input_ids"].to(model.network.device)
        target = model.tokenizer(text_target=fold(pair.target), **options)["input_ids"].to(source)  # [1, T]
        T = target.shape[1]
        shifted = torch.cat([target.new_full((1, 1), PAD), target[:, :-1]], 1)
        prefixes = torch.where(torch.ones(T, T, device=source.device).tril().bool(), shifted, PAD)
        for name, given in (("teacher", shifted), ("prefix", prefixes)):
            logits = model.network(
                input_ids=source.expand(len(given), -1), decoder_input_ids=given, use_cache=False
            ).logits  # [1 or T, T, V]
            found = logits[0] if name == "teacher" else logits.diagonal().T
            sums[name] += float(torch.nn.functional.cross_entropy(found, target[0], reduction="sum"))
        count += T
    return {name: total / count for name, total in sums.items()}
