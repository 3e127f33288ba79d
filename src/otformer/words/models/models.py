"""Models of the transformers library, loaded so that their attention can be read: from a local folder or by a hub name.

A model is one of three kinds, found by looking at it and not by its name:

    translation   encoder and decoder (Marian, T5, …): cross-attention
    encoder       every token sees every other (BERT, XLM-R, …): both sentences in one input
    decoder       a token sees those before it only (GPT-2, …): both sentences in a prompt

Weights become float32 whatever the files hold; attention is computed in the "eager" way, the only one that gives matrices.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from otformer import checks
from otformer.extras import absence
from otformer.memory import lacking
from otformer.words.models.cross_attention import set_rule
from otformer.words.models.shipped import MODELS, named
from otformer.words.models.subwords import encode, encode_pair

NOWHERE = (  # what is said of a name without a folder where there is no network
    "is neither a folder nor in the Hugging Face cache, and the hub cannot be reached: "
    f"give a folder that transformers wrote, or one of {', '.join(MODELS)}"
)


@dataclass(frozen=True)
class Model:
    """A network that gives attentions, and its tokenizer.

    layers, heads : those of the attention between the sentences (of the decoder, in a translation model).
    limit : how many tokens an input may have; None where there is no bound.
    start : the token a decoder begins with; None for other kinds.
    """

    name: str
    kind: str
    tokenizer: Any
    network: Any
    layers: int
    heads: int
    limit: int | None = None
    start: int | None = None

    def __repr__(self) -> str:
        return f"Model({self.name}, {self.kind}, {self.layers} layers of {self.heads} heads)"


def load(name: str | Path, device: str | torch.device = "cpu") -> Model:
    """Load a model so that its attention can be read (words/models/attention.py).

    A folder needs no internet access; a hub name goes through transformers' own download and cache. Code that comes with a
    model is never run: a model that needs its own code is refused.

    Parameters
    ----------
    name : str or Path
        A model that ships ("en-fr", "de-en", "bert-en-fr"), a folder as ``save_pretrained`` writes it, or a hub name.
    device : str or torch.device
        "cpu" or "cuda".

    Returns
    -------
    Model
        The network in float32, its tokenizer, and its kind, layers and heads.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("transformers")
    >>> model = load("bert-en-fr")
    >>> model.kind, model.layers, model.heads
    ('encoder', 12, 5)
    """
    if not isinstance(name, (str, Path)):
        raise checks.ArgumentError("name", "be a folder or a hub name", type(name).__name__)
    name = named(name) if isinstance(name, str) else name
    local = _is_local(name)
    place = checks.device(device)
    transformers = library()
    with _quietly(transformers, local):
        config, tokenizer, network, missing = _from_pretrained(transformers, name, local or not _hub_answers())
    lost = sorted(key for key in missing if "pooler" not in key)  # nothing of ours goes through the pooler
    if lost:
        raise ValueError(f"model {name} lacks weights: {lost[0]}" + (f" and {len(lost) - 1} more" if len(lost) > 1 else ""))
    network = network.eval().requires_grad_(False).to(place)
    network.config.use_cache = False
    if config.model_type == "marian" and getattr(config, "cross_attention", None):  # see lab/translators/variants.py
        set_rule(network, config.cross_attention)
    return _looked_at(str(name), config, tokenizer, network)


def _is_local(name: str | Path) -> bool:
    """Whether it is a folder; what can only be a path but is none is an error, not a hub name."""
    if not str(name).strip():
        raise checks.ArgumentError("model", "be a folder or a hub name", "an empty name")
    if Path(name).is_dir():
        if not (Path(name) / "config.json").is_file():
            raise ValueError(f"model {name} has no config.json: it is not a folder that transformers wrote")
        return True
    text = str(name)
    if isinstance(name, Path) or text.startswith((".", "~", os.sep)) or text.count("/") > 1 or Path(text).exists():
        raise checks.ArgumentError("model", "be a folder or a hub name", repr(text), "no such folder")
    return False


def library() -> Any:
    """Import transformers, or raise with install advice."""
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        why = absence(error, "transformers")
        raise ValueError(f"models need transformers, which is {why}: pip install transformers") from None


@contextmanager
def _quietly(transformers: Any, local: bool) -> Iterator[None]:
    """Without warnings about what is meant, and without progress bars where nothing is downloaded."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if local:
        logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _from_pretrained(transformers: Any, name: str | Path, local: bool) -> tuple[Any, Any, Any, list[str]]:
    """Configuration, tokenizer, network and the names of weights that were not there."""

    def made(part: str, maker: Any, **options: Any) -> Any:
        try:
            return maker.from_pretrained(name, local_files_only=local, trust_remote_code=False, **options)
        except Exception as error:  # files of others, read by code of others: anything can be wrong with them
            if lacking(error):
                raise
            if not Path(name).is_dir() and "cached files" in str(error):
                raise ValueError(f"model {name} {NOWHERE}") from None
            raise ValueError(f"model {name} cannot be loaded ({part}): {_first_line(error)}") from None

    config = made("configuration", transformers.AutoConfig)
    tokenizer = made("tokenizer", transformers.AutoTokenizer)
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):  # what transformers makes up where there are no files
        raise ValueError(f"model {name} has no tokenizer: there are no files of its vocabulary")
    maker = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModel
    options = {"dtype": torch.float32, "attn_implementation": "eager", "output_loading_info": True}
    network, info = made("weights", maker, **options)
    return config, tokenizer, network, list(info["missing_keys"])


def _hub_answers() -> bool:
    """Whether the hub can be asked; without it there is only the cache, and transformers would try for half a minute."""
    hub = importlib.import_module("huggingface_hub")
    try:
        hub.utils.get_session().head(hub.constants.ENDPOINT, timeout=10)
    except Exception:  # of whatever library it uses for the network
        return False
    return True


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _looked_at(name: str, config: Any, tokenizer: Any, network: Any) -> Model:
    """Run a short text to find kind, layers and heads, and to check that attention and offsets are returned."""
    try:
        read = list(tokenizer("a b")["input_ids"]) or [0]
    except Exception as error:  # and a damaged file can be read, but not be used
        raise ValueError(f"model {name} has a tokenizer that does not work: {_first_line(error)}") from None
    ids = torch.tensor([read * 2], device=next(network.parameters()).device)
    both = {"decoder_input_ids": ids} if config.is_encoder_decoder else {}
    with torch.inference_mode():
        try:
            out = network.base_model(input_ids=ids, **both, output_attentions=True)
        except Exception as error:  # code of others again
            if lacking(error):
                raise
            raise ValueError(f"model {name} gives no attentions: {_first_line(error)}") from None
    attentions = out.get("cross_attentions" if both else "attentions")
    if not attentions or any(not isinstance(A, Tensor) for A in attentions):
        raise ValueError(f"model {name} gives no attentions")
    if any(A.shape[2:] != 2 * ids.shape[1:] for A in attentions):
        raise ValueError(f"model {name} gives attentions that are not from every token to every token")
    first = torch.stack([A[0, :, 0, 1:].amax() for A in attentions])  # what the first token gives to those after it
    kind = "translation" if both else "decoder" if not first.any() else "encoder"
    if kind == "encoder":
        encode_pair(tokenizer, "a", "b")
    else:
        encode(tokenizer, "a b")
    start, limit = _start(name, network) if both else None, _limit(config, tokenizer, network)
    return Model(name, kind, tokenizer, network, len(attentions), attentions[0].shape[1], limit, start)


def _start(name: str, network: Any) -> int:
    for config in (network.config, getattr(network, "generation_config", None)):
        start = getattr(config, "decoder_start_token_id", None)
        if start is not None:
            return int(start)
    raise ValueError(f"model {name} has no decoder_start_token_id: where its decoder begins is not known")


def _limit(config: Any, tokenizer: Any, network: Any) -> int | None:
    """The smallest of the bounds that configuration and tokenizer name; tokenizers say 1e30 for none.

    Where positions are counted from after that of padding (RoBERTa's kind), as many fewer are left.
    """
    named = [getattr(config, "max_position_embeddings", None), getattr(config, "n_positions", None)]
    for part, module in network.named_modules():
        if part.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            named.append(module.num_embeddings - module.padding_idx - 1)
    bounds = [int(bound) for bound in (*named, tokenizer.model_max_length) if bound is not None and 0 < bound < 1e9]
    return min(bounds, default=None)
