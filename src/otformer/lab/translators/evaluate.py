"""How good the models are: BLEU on held-out text and on newstest2014, folded; masked words that the encoder guesses.

BLEU needs sacrebleu (pip install sacrebleu). Alignment is measured by `otformer probe` and `otformer align --gold`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from otformer.extras import absence
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import Pair, fold, news_pairs, read_pairs


def held_out(text: Path, languages: LanguagePair, size: int) -> list[Pair]:
    """Return every k-th held-out pair, ``size`` of them."""
    file = text / str(languages.stored) / "held_out.tsv"
    if not file.exists():
        raise ValueError(f"text must be a folder made by `prepare`, got no {file}")
    return every_kth(read_pairs(file, columns=(1, 0) if languages.exchanged else (0, 1)), size)


def every_kth(pairs: Iterable[Pair], size: int) -> list[Pair]:
    """Every k-th pair, ``size`` of them.

    >>> [pair.source for pair in every_kth([Pair(letter, "") for letter in "abcdefg"], 3)]
    ['a', 'c', 'e']
    """
    listed = list(pairs)
    return listed[:: max(len(listed) // size, 1)][:size]


@torch.inference_mode()
def translate_batches(tokenizer: Any, sentences: Sequence[str], batch: int, generate: Callable[[Any], Any]) -> list[str]:
    """Translate sentences of similar length together by ``generate(inputs) -> tokens``; return the texts in order."""
    order = sorted(range(len(sentences)), key=lambda k: len(sentences[k]))
    out = [""] * len(sentences)
    for begin in range(0, len(order), batch):
        which = order[begin : begin + batch]
        given = tokenizer([fold(sentences[k]) for k in which], return_tensors="pt", padding=True, truncation=True)
        for k, text in zip(which, tokenizer.batch_decode(generate(given), skip_special_tokens=True), strict=True):
            out[k] = text
    return out


def translate(network: Any, tokenizer: Any, sentences: Sequence[str], beams: int = 1, batch: int = 32) -> list[str]:
    """Translate by transformers' own search; return the texts in order."""

    def generate(given: Any) -> Any:
        longest = min(2 * given["input_ids"].shape[1] + 10, 127)
        return network.generate(**given, num_beams=beams, max_new_tokens=longest, do_sample=False)

    return translate_batches(tokenizer, sentences, batch, generate)


def bleu_of(made: Sequence[str], pairs: Sequence[Pair]) -> float:
    """sacrebleu's corpus BLEU of folded text, for translations of all the pairs."""
    try:
        import sacrebleu
    except ImportError as error:
        raise ValueError(f"BLEU needs sacrebleu, which is {absence(error, 'sacrebleu')}: pip install sacrebleu") from None
    if len(made) != len(pairs):
        raise ValueError(f"made must have a translation for each of {len(pairs)} pairs, got {len(made)}")
    return float(sacrebleu.corpus_bleu(list(made), [[fold(pair.target) for pair in pairs]]).score)


def bleu(network: Any, tokenizer: Any, pairs: Sequence[Pair], beams: int = 1) -> float:
    """Translate the sources of the pairs and score the translations by BLEU."""
    return bleu_of(translate(network, tokenizer, [pair.source for pair in pairs], beams), pairs)


@torch.inference_mode()
def guessed(network: Any, tokenizer: Any, pairs: Sequence[Pair]) -> float:
    """Share of target tokens, masked one at a time, that an encoder guesses right."""
    right = total = 0
    for pair in pairs:
        row = tokenizer(fold(pair.source), fold(pair.target), return_tensors="pt")
        ids = row["input_ids"][0]
        places = [k for k, side in enumerate(row.sequence_ids(0)) if side == 1]
        if not places or len(ids) > tokenizer.model_max_length:
            continue
        hidden = ids.repeat(len(places), 1)
        hidden[torch.arange(len(places)), places] = tokenizer.mask_token_id
        logits = network(input_ids=hidden, token_type_ids=row["token_type_ids"].repeat(len(places), 1)).logits
        best = logits[torch.arange(len(places)), places].argmax(-1)
        right, total = right + int((best == ids[places]).sum()), total + len(places)
    return right / total


def score(name: str, model: Path, text: Path, size: int = 300) -> dict[str, float]:
    """The numbers of a model card: a translator's BLEU, an encoder's share of masked words guessed."""
    import transformers

    if not (model / "config.json").is_file():
        raise ValueError(f"folder must be one that ship made, got {str(model)!r}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    options = {"dtype": torch.float32}
    if name.startswith("bert-"):
        encoder = transformers.AutoModelForMaskedLM.from_pretrained(model, trust_remote_code=False, **options).eval()
        pairs = held_out(text, LanguagePair.of(name.removeprefix("bert-")), size)
        strange = [Pair(other.source, pair.target) for pair, other in zip(pairs, pairs[1:] + pairs[:1], strict=True)]
        return {
            "held-out target tokens guessed": guessed(encoder, tokenizer, pairs),
            "the same beside another pair's source": guessed(encoder, tokenizer, strange),
        }
    languages = LanguagePair.of(name)
    translator = transformers.AutoModelForSeq2SeqLM.from_pretrained(model, trust_remote_code=False, **options).eval()
    return {
        "BLEU, held-out text": bleu(translator, tokenizer, held_out(text, languages, size)),
        "BLEU, newstest2014": bleu(translator, tokenizer, every_kth(news_pairs(languages, test="newstest2014"), size)),
    }
