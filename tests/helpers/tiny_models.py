"""Folders of tiny random models, as transformers writes them: Marian, BERT and GPT-2 tokenizers of a few lines."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch

TEXT = [
    "the cat sleeps in the house",
    "le chat dort dans la maison",
    "l'homme, la femme: l'été",
    "the man, the woman: the summer",
    "a small dog sees the red house and the old man",
    "un petit chien voit la maison rouge et le vieil homme",
]
PAIRS = [(TEXT[0], TEXT[1]), (TEXT[4], TEXT[5]), (TEXT[3], TEXT[2]), ("the cat", "le chat"), (TEXT[4], TEXT[1])]


def marian(folder: Path, layers: int = 2, heads: int = 2, encoder_layers: int | None = None) -> Path:
    import sentencepiece
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    folder.mkdir()
    pieces = {"</s>": 0, "<unk>": 1}
    for side in ("source", "target"):
        options = {"model_prefix": str(folder / side), "vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT * 5), **options)
        trained = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.model"))
        for k in range(trained.get_piece_size()):
            pieces.setdefault(trained.id_to_piece(k), len(pieces))
    pieces["<pad>"] = len(pieces)
    (folder / "vocab.json").write_text(json.dumps(pieces))
    files = {"source_spm": "source.model", "target_spm": "target.model", "vocab": "vocab.json"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about sacremoses
        tokenizer = MarianTokenizer(**{key: str(folder / file) for key, file in files.items()}, model_max_length=40)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=len(pieces),
        d_model=16,
        encoder_layers=encoder_layers or layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=40,
        pad_token_id=pieces["<pad>"],
        decoder_start_token_id=pieces["<pad>"],
        eos_token_id=0,
        forced_eos_token_id=0,
        scale_embedding=True,
        init_std=0.4,  # so that attention is far from uniform
    )
    MarianMTModel(config).save_pretrained(folder)
    return folder


def bert(folder: Path, layers: int = 2, heads: int = 2) -> Path:
    from transformers import BertConfig, BertModel

    size = _tokenizer(folder, "wordpiece")
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": 16}
    config = BertConfig(vocab_size=size, max_position_embeddings=64, pad_token_id=3, initializer_range=0.5, **sizes)
    BertModel(config).save_pretrained(folder)
    return folder


def gpt2(folder: Path, layers: int = 2, heads: int = 2) -> Path:
    from transformers import GPT2Config, GPT2LMHeadModel

    size = _tokenizer(folder, "bytes")
    torch.manual_seed(2)
    config = GPT2Config(vocab_size=size, n_positions=200, n_embd=16, n_layer=layers, n_head=heads, initializer_range=0.5)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def _tokenizer(folder: Path, kind: str) -> int:
    """Writes a fast tokenizer and gives its number of tokens; without special tokens around a text for ``bytes``."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<s>", "</s>", "<pad>"]
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    if kind == "bytes":
        core, names = Tokenizer(models.BPE()), {}
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=290, initial_alphabet=core.pre_tokenizer.alphabet()))
    else:
        core = Tokenizer(models.WordPiece(unk_token="<unk>"))
        core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        core.train_from_iterator(TEXT, trainers.WordPieceTrainer(vocab_size=70, special_tokens=special))
        marks = [("<s>", 1), ("</s>", 2)]
        core.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B:1 </s>:1", marks)
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if names else ["input_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=core, model_input_names=inputs, **names).save_pretrained(folder)
    return core.get_vocab_size()
