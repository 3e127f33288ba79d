"""Loading models: kinds, sizes and dtypes of tiny folders made here, and what is wrong with others."""

from __future__ import annotations

import importlib
import json
import shutil
import socket
import time
from types import SimpleNamespace

import pytest
import torch

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
from helpers import tiny_models
from otformer.words.models.models import _start, load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    tiny_models.marian(place / "marian", layers=3, heads=2)
    tiny_models.bert(place / "bert", layers=2, heads=4)
    tiny_models.gpt2(place / "gpt2", layers=2, heads=8)
    return place


@pytest.fixture
def offline(monkeypatch):
    """No name is looked up and no connection is made."""

    def refuse(*args, **kwargs):
        raise AssertionError("touched the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("offline")
def test_kinds(folder, capfd):
    found = {name: load(folder / name) for name in ("marian", "bert", "gpt2")}
    seen = {name: (m.kind, m.layers, m.heads, m.limit) for name, m in found.items()}
    assert seen == {"marian": ("translation", 3, 2, 40), "bert": ("encoder", 2, 4, 64), "gpt2": ("decoder", 2, 8, 200)}
    assert repr(found["marian"]).endswith("marian, translation, 3 layers of 2 heads)")
    assert found["marian"].start == found["marian"].tokenizer.pad_token_id
    for model in found.values():
        assert not model.network.training
        assert model.network.device == torch.device("cpu")
        assert not any(p.requires_grad for p in model.network.parameters())
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_small_weights_become_float32(folder, tmp_path):
    from safetensors.torch import load_file, save_file

    place = shutil.copytree(folder / "marian", tmp_path / "small")
    full = load_file(place / "model.safetensors")
    kept = {k: t.to(torch.float8_e4m3fn if t.ndim == 2 else torch.float16) for k, t in full.items()}
    save_file(kept, place / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((place / "config.json").read_text()) | {"dtype": "float16"}
    (place / "config.json").write_text(json.dumps(config))
    weights = load(place).network.state_dict()
    for name, t in kept.items():
        assert weights[name].dtype == torch.float32
        assert torch.equal(weights[name], t.float())


def test_unknown(folder, monkeypatch):
    with pytest.raises(ValueError, match=r"^model must be a folder or a hub name, got './nowhere': no such folder$"):
        load("./nowhere")
    with pytest.raises(ValueError, match=r"no such folder$"):
        load(folder / "nowhere")
    with pytest.raises(ValueError, match=r"^model must be a folder or a hub name, got an empty name$"):
        load("")
    with pytest.raises(ValueError, match=r"^model .* has no config.json"):
        load(folder)
    with pytest.raises(ValueError, match=r"^device must be cpu or cuda, got 'tpux'$"):
        load(folder / "bert", device="tpux")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"^device must be cpu or an available CUDA device, got cuda: torch finds 0"):
            load(folder / "bert", device="cuda")

    def unknown(name, **options):
        raise OSError(f"{name} is not a local folder and is not a valid model identifier\nIf this is a private repository")

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", unknown)
    message = r"^model no/such cannot be loaded \(configuration\): no/such is not .* model identifier$"
    with pytest.raises(ValueError, match=message):
        load("no/such")


def test_a_hub_that_cannot_be_reached_is_no_long_wait(monkeypatch, capfd):
    """transformers alone tries six times within half a minute, and says so every time."""

    def nobody(*args, **options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    begun = time.monotonic()
    with pytest.raises(ValueError, match=r"^model nosuch is neither a folder nor in the .* cannot be reached: give [^\n]+$"):
        load("nosuch")
    assert time.monotonic() - begun < 10
    assert capfd.readouterr() == ("", "")


def test_damaged(folder, tmp_path):
    place = shutil.copytree(folder / "bert", tmp_path / "cut")
    with (place / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ValueError, match=r"^model .*cut cannot be loaded \(weights\): [^\n]+$"):
        load(place)
    (place / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"^model .*cut cannot be loaded \(configuration\): [^\n]+$"):
        load(place)


@pytest.mark.parametrize(
    ("name", "message"),
    [("bert", "has no tokenizer"), ("gpt2", "has no tokenizer"), ("marian", r"cannot be loaded \(tokenizer\): ")],
)
def test_without_a_tokenizer(folder, tmp_path, name, message):
    """For BERT and GPT-2 transformers makes one up that knows no word at all."""
    (tmp_path / name).mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(folder / name / file, tmp_path / name)
    with pytest.raises(ValueError, match=rf"^model .*{name} {message}"):
        load(tmp_path / name)


def test_positions_behind_padding(tmp_path):
    """RoBERTa counts positions from after that of padding: with 66 of them and padding 3, there is room for 62 tokens."""
    from transformers import RobertaConfig, RobertaModel

    tiny_models._tokenizer(tmp_path, "wordpiece")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    RobertaModel(RobertaConfig(vocab_size=80, max_position_embeddings=66, pad_token_id=3, **sizes)).save_pretrained(tmp_path)
    model = load(tmp_path)
    assert model.limit == 62
    model.network(input_ids=torch.full((1, 62), 5))
    with pytest.raises((IndexError, RuntimeError)):
        model.network(input_ids=torch.full((1, 63), 5))


def test_lost_weights_are_not_made_up(folder, tmp_path):
    from safetensors.torch import load_file, save_file

    place = shutil.copytree(folder / "bert", tmp_path / "less")
    full = load_file(place / "model.safetensors")
    save_file({k: t for k, t in full.items() if "pooler" not in k}, place / "model.safetensors", metadata={"format": "pt"})
    assert load(place).kind == "encoder"
    save_file({k: t for k, t in full.items() if "key" not in k}, place / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"^model .*less lacks weights: encoder.*self.key.bias and 3 more$"):
        load(place)


def test_no_attentions(folder, tmp_path):
    from transformers import FNetConfig, FNetModel

    place = shutil.copytree(folder / "bert", tmp_path / "fnet")
    config = FNetConfig(vocab_size=100, hidden_size=8, num_hidden_layers=1, intermediate_size=8)
    FNetModel(config).save_pretrained(place)
    with pytest.raises(ValueError, match=r"^model .*fnet gives no attentions"):
        load(place)


def test_attentions_of_pooled_tokens(folder, tmp_path):
    from transformers import FunnelConfig, FunnelModel

    place = shutil.copytree(folder / "bert", tmp_path / "funnel")
    sizes = {"d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 8, "block_sizes": [1, 1]}
    FunnelModel(FunnelConfig(vocab_size=100, **sizes)).save_pretrained(place)
    with pytest.raises(ValueError, match=r"^model .*funnel gives (no attentions: |attentions that are not from every)"):
        load(place)


def test_no_offsets(folder, tmp_path, monkeypatch):
    """A slow tokenizer under an encoder, which needs two sentences in one input; and one whose pieces spell nothing."""
    from transformers import AutoTokenizer

    slow = load(folder / "marian").tokenizer
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *args, **options: slow)
    with pytest.raises(ValueError, match=r"^tokenizer MarianTokenizer has no offsets .* need a fast tokenizer$"):
        load(folder / "bert")
    monkeypatch.setattr(type(slow), "convert_ids_to_tokens", lambda self, ids: ["@@" for _ in ids])
    with pytest.raises(ValueError, match=r"^tokenizer MarianTokenizer has no offsets .*, and its piece '@@' does not spell"):
        load(folder / "marian")


def test_code_of_a_model_is_never_run_nor_asked_about(folder, tmp_path, monkeypatch):
    """A folder with code of its own: without the flag transformers would ask on standard input, for 15 seconds."""
    place = tmp_path / "own"
    shutil.copytree(folder / "bert", place)
    settings = json.loads((place / "config.json").read_text())
    settings |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Model"}}
    (place / "config.json").write_text(json.dumps(settings))
    (place / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *asked: pytest.fail("asked on standard input"))
    with pytest.raises(ValueError, match=r"^model .*own cannot be loaded \(configuration\): "):
        load(place)
    assert not (tmp_path / "ran").exists()


def test_no_start():
    configs = {"config": SimpleNamespace(decoder_start_token_id=None), "generation_config": SimpleNamespace()}
    with pytest.raises(ValueError, match=r"^model lost has no decoder_start_token_id"):
        _start("lost", SimpleNamespace(**configs))
    configs["generation_config"].decoder_start_token_id = 0
    assert _start("found", SimpleNamespace(**configs)) == 0


def test_without_transformers(folder, monkeypatch):
    real = importlib.import_module

    def missing(name, *rest):
        if name == "transformers":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ValueError, match=r"^models need transformers, .*: pip install transformers$"):
        load(folder / "bert")
