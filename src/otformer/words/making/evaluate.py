"""How well a translator translates: BLEU on held-out text and on newstest2014, folded, by greedy search or a beam.

Needs sacrebleu (pip install sacrebleu). Alignment is measured by `otformer probe` and `otformer align --gold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from otformer.words.text import Pair, data_folder, fold, read_pairs


def held_out(text: Path, languages: str, swapped: bool, size: int) -> list[Pair]:
    """Every so manieth pair of those held out."""
    pairs = list(read_pairs(text / languages / "held_out.tsv", columns=(1, 0) if swapped else (0, 1)))
    return pairs[:: max(len(pairs) // size, 1)][:size]


def news(languages: str, size: int) -> list[Pair]:
    """Every so manieth pair of newstest2014."""
    codes = {"en": "eng", "fr": "fra", "de": "deu"}
    source, target = (codes[name] for name in languages.split("-"))
    folder = data_folder() / "wmt_newstest"
    stem = next(stem for stem in (f"{source}-{target}", f"{target}-{source}") if list(folder.glob(f"{stem}.newstest2014.*")))
    first, second = (folder / f"{stem}.newstest2014.{code}.gz" for code in (source, target))
    pairs = list(read_pairs(first, second))
    return pairs[:: max(len(pairs) // size, 1)][:size]


@torch.inference_mode()
def translate(network: Any, tokenizer: Any, sentences: Sequence[str], beams: int = 1, batch: int = 32) -> list[str]:
    """Translations, in order."""
    order = sorted(range(len(sentences)), key=lambda k: len(sentences[k]))
    out = [""] * len(sentences)
    for begin in range(0, len(order), batch):
        which = order[begin : begin + batch]
        given = tokenizer([fold(sentences[k]) for k in which], return_tensors="pt", padding=True, truncation=True)
        longest = min(2 * given["input_ids"].shape[1] + 10, 127)
        made = network.generate(**given, num_beams=beams, max_new_tokens=longest, do_sample=False)
        for k, text in zip(which, tokenizer.batch_decode(made, skip_special_tokens=True), strict=True):
            out[k] = text
    return out


def bleu(network: Any, tokenizer: Any, pairs: Sequence[Pair], beams: int = 1) -> float:
    """sacrebleu's corpus BLEU of folded text."""
    import sacrebleu

    made = translate(network, tokenizer, [pair.source for pair in pairs], beams)
    return float(sacrebleu.corpus_bleu(made, [[fold(pair.target) for pair in pairs]]).score)
