"""The scripts that make the shipped models: batches, vocabularies, losses, the loop, and the folder that is shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from otformer.lab.translators import networks
from otformer.lab.translators.__main__ import main
from otformer.lab.translators.corpus import Gatherer, Sentences, divide, endless, plan_epoch, read_sides, write_sides
from otformer.lab.translators.export import ship, small
from otformer.lab.translators.graphs import unmasked
from otformer.lab.translators.vocabulary import learn_pieces, learn_wordpieces, load_pieces
from otformer.words.text.examples import examples
from otformer.words.text.languages import LanguagePair
from otformer.words.text.text import Pair, fold

LINES = [" ".join(side) for example in examples("en-fr") for side in (example.source, example.target)]


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_has_every_sentence_once_in_batches_of_equal_length(epoch: int) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(1, 9, 500), rng.integers(1, 20, 500)
    plan = plan_epoch(first, second, 100, seed=3, epoch=epoch)
    assert sorted(np.concatenate(plan)) == list(range(500))
    for batch in plan:
        assert len(set(first[batch])) == 1
        assert len(batch) * (first[batch[0]] + second[batch].max()) <= 100


def test_batches_go_on_from_any_number() -> None:
    first, second = np.arange(40) % 5 + 1, np.arange(40) % 7 + 1
    whole = endless(first, second, 20, seed=0, start=0)
    batches = [next(whole) for _ in range(60)]  # more than one epoch
    later = endless(first, second, 20, seed=0, start=37)
    assert all(np.array_equal(a, b) for a, b in zip(batches[37:], later, strict=False))


def test_rows_are_the_sentences_padded(tmp_path: Path) -> None:
    sentences = [[5, 6, 7], [8], [9, 10]]
    write_sides(tmp_path / "text.npz", en=Sentences.of(sentences))
    rows = Gatherer(read_sides(tmp_path / "text.npz")["en"], "cpu").rows(np.array([2, 0]), pad=1)
    assert rows.tolist() == [[9, 10, 1], [5, 6, 7]]


def test_no_sentence_that_is_held_out_is_trained_on() -> None:
    pairs = [Pair(f"Sentence {k}.", f"Phrase {k % 1500}.") for k in range(3000)]
    training, held = divide(pairs)
    hidden = {pair.target for pair in held}
    assert 10 <= len(held) <= 32  # 20 expected
    assert training == [pair for pair in pairs if pair not in held and pair.target not in hidden]
    assert not {pair.source for pair in training} & {pair.source for pair in held}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pieces")
    learn_pieces([fold(line) for line in LINES], folder, 300, LanguagePair("en", "fr"))
    return folder


def test_the_vocabulary_folds_as_the_library_does(pieces: Path) -> None:
    model = load_pieces(pieces)
    for text in [*LINES, "« L’ÉTÉ » – DE\u0301JA\u0300… ‘OK’", "Straße\u00adn\u00a0ß"]:
        assert model.encode(text, out_type=str) == model.encode(fold(text), out_type=str)


def test_marian_reads_the_vocabulary(pieces: Path) -> None:
    from transformers import MarianTokenizer

    tokenizer = MarianTokenizer.from_pretrained(pieces)
    assert (tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id) == (0, 1, 299)
    ids = tokenizer(text_target="Le chat dort.")["input_ids"]
    assert ids[:-1] == load_pieces(pieces).encode("le chat dort.")
    assert ids[-1] == 0
    assert tokenizer.decode(ids, skip_special_tokens=True) == "le chat dort."


def test_bert_reads_the_wordpieces(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    learn_wordpieces(LINES, tmp_path, 400)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    first = tokenizer.convert_tokens_to_ids(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    assert (first[0], first[4], max(first) + 1) == (networks.BERT_PAD, networks.MASK, networks.SPECIAL)
    assert tokenizer.tokenize("Été")[0].startswith("é")  # accents stay


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder with a few rows of token numbers."""
    folder, rng = tmp_path_factory.mktemp("text"), np.random.default_rng(0)

    def rows(lengths: list[int]) -> Sentences:
        return Sentences.of([[*rng.integers(2, 6000, size - 1).tolist(), networks.END] for size in lengths])

    for name in ("en-fr", "bert-en-fr"):
        (folder / name).mkdir()
    write_sides(folder / "en-fr" / "text.npz", en=rows([4, 4, 4]), fr=rows([3, 5, 6]))
    words = rng.integers(5, 6000, (400, 7)).tolist()
    pairs = Sentences.of([[2, *row[:3], 3, *row[3:], 3] for row in words])
    write_sides(folder / "bert-en-fr" / "text.npz", pair=pairs, first=Sentences.of([[5]] * 400))
    return folder


def test_the_loss_is_that_of_transformers(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "SMOOTHING", 0.0)
    task = networks.Translation("en-fr", text, "cpu")
    network = networks.build_translator().eval()
    numbers = np.array([0, 1, 2])
    labels = task.target.rows(numbers, -100)
    with torch.no_grad():
        theirs = network(input_ids=task.source.rows(numbers, networks.PAD), labels=labels).loss
        assert task.loss(network, *task.inputs(numbers)).item() == pytest.approx(theirs.item(), rel=1e-5)


def test_without_masks_the_loss_is_the_same(text: Path) -> None:
    """Targets have 3, 5 and 6 tokens here: padding lies behind what counts."""
    from transformers import AttentionInterface

    AttentionInterface.register("unmasked", unmasked)
    for task in (networks.Translation("en-fr", text, "cpu"), networks.MaskedPairs("bert-en-fr", text, "cpu")):
        network, inputs, losses = task.build().eval(), task.inputs(np.array([0, 1, 2])), []
        for kind in ("sdpa", "unmasked"):
            network.set_attn_implementation(kind)
            torch.manual_seed(0)
            losses.append(task.loss(network, *inputs).item())
        assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_reverse_direction_exchanges_the_sides(text: Path) -> None:
    there, back = (networks.Translation(name, text, "cpu") for name in ("en-fr", "fr-en"))
    assert there.source.tokens.tolist() == back.target.tokens.tolist()


class Recorder:
    """A network that keeps what it is given and knows nothing."""

    def __call__(self, **given: torch.Tensor) -> Any:
        self.given = given
        shape = (*given["input_ids"].shape, networks.VOCABULARY)
        return type("Out", (), {"logits": torch.zeros(shape)})


def test_the_encoder_hides_a_quarter_of_the_words_and_no_mark(text: Path) -> None:
    task, network = networks.MaskedPairs("bert-en-fr", text, "cpu"), Recorder()
    torch.manual_seed(0)
    numbers = np.arange(400)
    loss = task.loss(network, *task.inputs(numbers))
    tokens, seen = task.pairs.rows(numbers, 0), network.given["input_ids"]
    special = tokens < networks.SPECIAL
    assert torch.equal(seen[special], tokens[special])
    assert network.given["token_type_ids"][0].tolist() == [0] * 5 + [1] * 5
    hidden = (seen == networks.MASK)[~special].float().mean().item()
    assert hidden == pytest.approx(0.25 * 0.8, abs=0.03)  # 2,800 words: σ = 0.008
    assert loss.item() == pytest.approx(np.log(networks.VOCABULARY), rel=1e-5)  # uniform logits


def test_small_weights_are_near() -> None:
    W = torch.randn(200, 200) * 0.05
    rounded = small({"W": W})["W"].float()
    assert ((rounded - W).abs() <= torch.maximum(W.abs() / 16, torch.tensor(2.0**-10))).all()
    assert (rounded - W).std() < 0.04 * W.std()


def test_a_shipped_folder_is_an_ordinary_one(pieces: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from transformers import MarianMTModel

    network = networks.build_translator()
    names = dict(network.named_parameters())
    save_file(small({name: p.detach() for name, p in names.items() if p.requires_grad}), tmp_path / "w.safetensors")
    size = ship(networks.build_translator(), tmp_path / "w.safetensors", pieces, tmp_path / "model")
    assert size < 13.5e6
    loaded = MarianMTModel.from_pretrained(tmp_path / "model")
    for name, p in loaded.named_parameters():
        assert p.dtype == torch.float32
        assert torch.allclose(p, names[name], rtol=1 / 16, atol=2**-10), name
    assert json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())["tokenizer_class"] == "MarianTokenizer"


@pytest.mark.slow
def test_a_curve_has_every_snapshot(pieces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    from otformer.lab.translators.alignment_over_training import COLUMNS, curve
    from otformer.words.text.dictionary import Dictionary

    news = [Pair("the cat sleeps here", "le chat dort ici"), Pair("a dog sleeps now", "un chien dort maintenant")]
    known = Dictionary([("cat", "chat"), ("sleeps", "dort")])
    monkeypatch.setattr("otformer.lab.translators.alignment_over_training.news_pairs", lambda name: news)
    monkeypatch.setattr("otformer.lab.translators.alignment_over_training.muse", lambda name: known)
    run, text = tmp_path / "run", tmp_path / "text"
    (run / "snapshots").mkdir(parents=True)
    text.mkdir()
    (text / "en-fr").symlink_to(pieces)
    (run / "log.csv").write_text("step,loss,seconds\n100,9.5,15.0\n200,7.0,30.0\n")
    network = networks.build_translator()
    weights = small({name: p.detach() for name, p in network.named_parameters() if p.requires_grad})
    for file in (run / "snapshots" / "000050.safetensors", run / "model.safetensors"):
        save_file(weights, file)
    rows = curve("en-fr", run, text, pairs=2)
    assert {(row["step"], row["seconds"]) for row in rows} == {(50, 15.0), (200, 30.0)}
    assert sum(row["method"] == "attention" for row in rows) == 2 * 2 * 6  # snapshots, readings, layers
    early, late = ([row["Hits@1"] for row in rows if row["step"] == step] for step in (50, 200))
    assert early == late  # the same weights
    given = ["curve", "en-fr", "--run", str(run), "--text", str(text), "--pairs", "2", "--out", str(tmp_path / "curve.csv")]
    main(given)
    lines = (tmp_path / "curve.csv").read_text().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == len(rows) + 1
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit):
        main([*given[:-1], str(tmp_path / "curve.png")])


def test_the_figure_of_a_curve_has_a_panel_for_each_reading() -> None:
    from otformer.lab.translators.alignment_over_training import draw

    ways = [("attention", f"cross-{end}", layer) for end in ("input", "output") for layer in (1, 2)]
    ways += [(method, "embeddings", 0) for method in ("nearest", "transport")]
    rows = [
        {"step": 10 * seconds, "seconds": seconds, "method": method, "reading": reading, "layer": layer}
        | {"Hits@1": value, "Hits@1_low": value - 0.01, "Hits@1_high": value + 0.01}
        for seconds, gain in ((10.0, 0.0), (100.0, 0.05))
        for k, (method, reading, layer) in enumerate(ways)
        for value in [k / 10 + gain]
    ]
    for k, axes in enumerate(draw(rows).axes):
        drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
        layers = {f"_layer {n}": [[10, 10 * (2 * k + n - 1)], [100, 10 * (2 * k + n - 1) + 5]] for n in (1, 2)}
        vectors = {"nearest, embeddings": [[10, 40], [100, 45]], "OT, embeddings": [[10, 50], [100, 55]]}
        assert drawn.keys() == (layers | vectors).keys()
        assert all(np.allclose(drawn[name], points) for name, points in (layers | vectors).items())


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in (
        ["train", "en-fr", "--text", str(tmp_path), "--out", str(tmp_path / "run"), "--device", "cpu"],
        ["ship", "en-fr", "--weights", str(tmp_path / "no"), "--text", str(tmp_path), "--out", str(tmp_path / "model")],
    ):
        with pytest.raises(SystemExit) as stopped:
            main(given)
        assert stopped.value.code == 2
        assert not (tmp_path / "model").exists()
    assert "got no" in capsys.readouterr().err
