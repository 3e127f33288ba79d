"""Vocabularies, learnt from text: SentencePiece BPE for the translators, WordPiece for the encoder.

Both fold text by themselves as `text.fold` does, so that a folder can be used with plain text.
"""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import fold

LONGEST = 128  # tokens per sentence, at most


def folding_rules() -> str:
    """SentencePiece's table of `text.fold`: a line ``characters <tab> replacement`` in hexadecimal for all that changes.

    >>> [line for line in folding_rules().splitlines() if line.startswith(("2019", "C9\\t", "45 301"))]
    ['2019\\t27', '45 301\\tE9', 'C9\\tE9']
    """
    characters = (chr(code) for code in range(0x21, 0xFFFE))
    single = {c: fold(c) for c in characters if unicodedata.category(c) not in ("Cs", "Cn")}
    rules = {c: folded for c, folded in single.items() if folded != c}
    composed = (c for c in single if c.isalpha() and len(unicodedata.normalize("NFD", c)) == 2 and c < "Ḁ")
    rules |= {unicodedata.normalize("NFD", c): fold(c) for c in composed}
    codes = {" ".join(f"{ord(c):X}" for c in a): " ".join(f"{ord(c):X}" for c in b) for a, b in rules.items()}
    return "".join(f"{a}\t{b}\n" for a, b in sorted(codes.items()) if a != b)


def learn_pieces(sentences: Iterable[str], folder: Path, size: int, languages: LanguagePair) -> None:
    """A MarianTokenizer folder with one BPE vocabulary of ``size`` tokens for both languages; </s> is 0, <pad> the last."""
    import sentencepiece

    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "folding.tsv"
    table.write_text(folding_rules(), encoding="ascii")
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(sentences),
        model_prefix=str(folder / "source"),
        model_type="bpe",
        vocab_size=size - 1,  # and <pad>
        character_coverage=0.9998,
        normalization_rule_tsv=str(table),
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        minloglevel=2,
    )
    (folder / "source.model").rename(folder / "source.spm")
    shutil.copy(folder / "source.spm", folder / "target.spm")
    pieces = load_pieces(folder)
    for rest in (table, folder / "source.vocab"):
        rest.unlink()
    vocabulary = {pieces.id_to_piece(k): k for k in range(pieces.get_piece_size())} | {"<pad>": pieces.get_piece_size()}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": languages.source,
        "target_lang": languages.target,
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": LONGEST,
        "separate_vocabs": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def learn_wordpieces(sentences: Iterable[str], folder: Path, size: int) -> None:
    """A BertTokenizer folder with ``size`` WordPieces."""
    from tokenizers import BertWordPieceTokenizer

    learner = BertWordPieceTokenizer(lowercase=True, strip_accents=False)
    learner.train_from_iterator((fold(s) for s in sentences), vocab_size=size, min_frequency=2, show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    learner.save_model(str(folder))
    tokenizer = wordpieces(folder, do_lower_case=True, strip_accents=False, model_max_length=LONGEST)
    tokenizer.save_pretrained(folder)


def wordpieces(folder: Path, **settings: Any) -> Any:
    """The fast BERT tokenizer of a folder that `learn_wordpieces` made."""
    import transformers

    maker: Any = transformers
    return maker.BertTokenizerFast.from_pretrained(folder, trust_remote_code=False, **settings)


def load_pieces(folder: Path) -> Any:
    """The SentencePiece model of a folder that `learn_pieces` made."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
