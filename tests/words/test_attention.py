"""Word attention of tiny random models: against `output_attentions` of one sentence pair at a time, pooled by loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from needs import missing

pytest.importorskip("transformers", reason=missing("words"))
from helpers import tiny_models
from helpers.tiny_models import PAIRS
from otformer.words.models import attention
from otformer.words.models.attention import read
from otformer.words.models.models import load
from otformer.words.text.text import Pair, words

CORPUS = [Pair(*pair) for pair in PAIRS]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    makers = {"translation": tiny_models.marian, "encoder": tiny_models.bert, "decoder": tiny_models.gpt2}
    return {kind: load(make(place / kind)) for kind, make in makers.items()}


def pieces_of(tokenizer, ids):
    """What stands for each token in the vocabulary; None for special ones."""
    special = set(tokenizer.all_special_ids)
    return [None if k in special else tokenizer.convert_ids_to_tokens([k])[0] for k in ids]


def groups(pieces, sentence):
    """Token numbers of every word, by counting letters: a word ends where they are used up; a blank is of the next word."""
    out, t = [], 0
    for word in sentence:
        own, letters = [], ""
        while len(letters) < len(word):
            if pieces[t] is not None:
                own.append(t)
                letters += pieces[t].strip("▁#Ġ")
            t += 1
        assert letters == word
        out.append(own)
    return out


def pooled(A, rows, columns):
    """Mean of A over the token pairs of each word pair, one number after another."""
    out = np.zeros((len(rows), len(columns)))
    for j, ts in enumerate(rows):
        for i, ss in enumerate(columns):
            out[j, i] = sum(float(A[t, s]) for t in ts for s in ss) / (len(ts) * len(ss))
    return out


def agree(found, tensors, rows, columns, transposed=False):
    assert found.dtype == np.float32
    assert found.shape[:2] == (len(tensors), tensors[0].shape[1])
    for layer, A in enumerate(tensors):
        for head in range(A.shape[1]):
            right = pooled(A[0, head], rows, columns)
            assert np.allclose(found[layer, head], right.T if transposed else right, atol=1e-6)


def by_space(sentence):
    return sentence.split()


def test_translation_against_output_attentions(models):
    model = models["translation"]
    tokenizer, network = model.tokenizer, model.network
    names = ["cross-input", "cross-output", "encoder-self", "decoder-self"]
    found = list(read(model, CORPUS, by="spaces", readings=names, states=True))
    assert len(found) == len(CORPUS)
    for pair, reading in zip(CORPUS, found, strict=True):
        assert (reading.source, reading.target) == (by_space(pair.source), by_space(pair.target))
        ids = tokenizer(pair.source, return_tensors="pt")["input_ids"]
        labels = tokenizer(text_target=pair.target, return_tensors="pt")["input_ids"]
        out = network(input_ids=ids, labels=labels, output_attentions=True, output_hidden_states=True)  # shifts by itself
        source = groups(pieces_of(tokenizer, ids[0].tolist()), reading.source)
        output = groups(pieces_of(tokenizer, labels[0].tolist()), reading.target)
        given = [[t + 1 for t in word] for word in output]
        agree(reading.matrices["cross-output"], out.cross_attentions, output, source)
        agree(reading.matrices["cross-input"], out.cross_attentions, given, source)
        agree(reading.matrices["encoder-self"], out.encoder_attentions, source, source)
        agree(reading.matrices["decoder-self"], out.decoder_attentions, given, given)
        for name, hidden, word_tokens in (
            ("source", out.encoder_hidden_states, source),
            ("target", out.decoder_hidden_states, given),
        ):
            right = torch.stack([torch.stack([h[0, ts].mean(0) for ts in word_tokens]) for h in hidden]).detach().numpy()
            assert np.allclose(reading.states[name], right, atol=1e-5)
        table = network.model.shared.weight if hasattr(network.model, "shared") else network.get_input_embeddings().weight
        right = torch.stack([table[labels[0, ts]].mean(0) for ts in output]).detach().numpy() * np.sqrt(16)
        assert np.allclose(reading.states["target-embeddings"], right, atol=1e-5)
        assert reading.whole


def test_output_is_one_step_before_input(models):
    """Where every target word is one subword, row j of the one is row j + 1 of the other's positions."""
    model = models["translation"]
    tokenizer = model.tokenizer
    single = [p for p in tokenizer.get_vocab() if p.startswith("▁") and p[1:].isalpha()]
    single = [p[1:] for p in single if len(tokenizer(text_target=p[1:])["input_ids"]) == 2][:5]
    assert len(single) >= 3
    (reading,) = read(model, [Pair("the cat sleeps", " ".join(single))])
    into, out = reading.matrices["cross-input"], reading.matrices["cross-output"]
    assert np.array_equal(into[:, :, :-1], out[:, :, 1:])
    assert not np.allclose(into, out, atol=1e-3)


def test_translation_against_generation(models):
    """The step that gives a token has its row of cross-output; the step after, which takes it, its row of cross-input."""
    model, pair = models["translation"], CORPUS[1]
    tokenizer = model.tokenizer
    ids = tokenizer(pair.source, return_tensors="pt")["input_ids"]
    wanted = tokenizer(text_target=pair.target)["input_ids"]
    forced = lambda _, given: [wanted[len(given) - 1]]  # noqa: E731  # all but the start token came from here
    told = {"use_cache": True, "output_attentions": True, "return_dict_in_generate": True}
    out = model.network.generate(ids, max_length=1 + len(wanted), num_beams=1, prefix_allowed_tokens_fn=forced, **told)
    assert out.sequences[0, 1:].tolist() == wanted
    steps = [torch.cat([A[:, :, -1] for A in step]) for step in out.cross_attentions]  # [L, H, S] each
    tensors = [A[None] for A in torch.stack(steps, 2)]
    (reading,) = read(model, [pair], by="spaces")
    source = groups(pieces_of(tokenizer, ids[0].tolist()), reading.source)
    output = groups(pieces_of(tokenizer, wanted), reading.target)
    agree(reading.matrices["cross-output"], tensors, output, source)
    agree(reading.matrices["cross-input"], tensors, [[t + 1 for t in word] for word in output], source)


def test_encoder_against_output_attentions(models):
    model = models["encoder"]
    tokenizer = model.tokenizer
    for pair, reading in zip(CORPUS, read(model, CORPUS, states=True), strict=True):
        assert (reading.source, reading.target) == (words(pair.source), words(pair.target))
        given = tokenizer(*pair, return_tensors="pt")
        out = model.network(**given, output_attentions=True, output_hidden_states=True)
        ids, types = given["input_ids"][0].tolist(), given["token_type_ids"][0].tolist()
        assert set(types) == {0, 1}
        pieces = pieces_of(tokenizer, ids)
        source = groups([p if t == 0 else None for p, t in zip(pieces, types, strict=True)], reading.source)
        target = groups([p if t == 1 else None for p, t in zip(pieces, types, strict=True)], reading.target)
        agree(reading.matrices["target-source"], out.attentions, target, source)
        agree(reading.matrices["source-target"], out.attentions, source, target, transposed=True)
        right = torch.stack([torch.stack([h[0, ts].mean(0) for ts in target]) for h in out.hidden_states])
        assert np.allclose(reading.states["target"], right.detach().numpy(), atol=1e-5)


def test_decoder_against_output_attentions(models):
    model = models["decoder"]
    tokenizer = model.tokenizer
    template = "En: {source} = Fr: {target}!"
    corpus = [CORPUS[k] for k in (0, 1, 3, 4)]  # a letter of the other is two tokens, and has a colon
    for pair, reading in zip(corpus, read(model, corpus, by="spaces", template=template), strict=True):
        ids = tokenizer(template.format(source=pair.source, target=pair.target), return_tensors="pt")["input_ids"]
        out = model.network(input_ids=ids, output_attentions=True)
        pieces = pieces_of(tokenizer, ids[0].tolist())
        marks = [k for k, piece in enumerate(pieces) if piece == ":"]
        source = groups([p if k > marks[0] else None for k, p in enumerate(pieces)], reading.source)
        target = groups([p if k > marks[-1] else None for k, p in enumerate(pieces)], reading.target)
        agree(reading.matrices["input"], out.attentions, target, source)
        agree(reading.matrices["output"], out.attentions, [[t - 1 for t in word] for word in target], source)


@pytest.mark.parametrize("kind", ["translation", "encoder", "decoder"])
def test_batches_and_windows_change_nothing(models, kind, monkeypatch):
    model = models[kind]
    corpus = [*CORPUS, Pair("", ""), Pair("the cat", ""), Pair("", "le chat dort"), *CORPUS[::-1]]
    alone = list(read(model, corpus, batch=1, states=True))
    taken = []
    monkeypatch.setattr(attention, "WINDOW", 4)
    several = []
    for reading in read(model, (taken.append(pair) or pair for pair in corpus), batch=3, states=True):
        several.append(reading)
        assert len(taken) <= len(several) + 3  # no further than the window
    monkeypatch.setattr(attention, "ROOM", 10_000)
    narrow = list(read(model, corpus, states=True))
    for other in (several, narrow):
        for pair, a, b in zip(corpus, alone, other, strict=True):
            n, m = len(words(pair.source)), len(words(pair.target))
            assert (a.source, a.target) == (b.source, b.target) == (words(pair.source), words(pair.target))
            for name, A in a.matrices.items():
                assert A.shape == (model.layers, model.heads, m, n)
                assert np.allclose(A, b.matrices[name], atol=1e-5)
            for name, x in a.states.items():
                assert x.shape[-2:] == (n if "source" in name else m, 16)
                assert np.allclose(x, b.states[name], atol=1e-4)


def test_pooling_and_scaling(models):
    model = models["translation"]
    (mean,), (mass,), (most,) = (list(read(model, CORPUS[1:2], how=how)) for how in ("mean", "mass", "any"))
    (scaled,) = read(model, CORPUS[1:2], normalise=True)
    for name, A in mean.matrices.items():
        assert np.allclose(scaled.matrices[name].sum(-1), 1, atol=1e-5)
        assert np.allclose(scaled.matrices[name] * A.sum(-1, keepdims=True), A, atol=1e-6)
        assert (most.matrices[name] >= A - 1e-7).all()
        assert (mass.matrices[name].sum(-1) < 1).all()  # the rest went to </s>
        assert (mass.matrices[name].sum(-1) > 0.3).all()
    (scaled,), (raw,) = (list(read(models["encoder"], CORPUS[:1], normalise=on)) for on in (True, False))
    assert np.allclose(scaled.matrices["source-target"].sum(-2), 1, atol=1e-5)  # a source word is what attends
    assert (raw.matrices["source-target"].sum(-2) < 1).all()


@pytest.mark.parametrize("kind", ["translation", "encoder", "decoder"])
def test_long_sentences_are_cut(models, kind):
    model = models[kind]
    (reading,) = read(model, [Pair("the cat " * 60, "le chat " * 60)], states=True)
    n, m = (side.sum() for side in reading.kept)
    assert not reading.whole
    assert 0 < n <= 120
    assert m < 120
    for A in reading.matrices.values():
        assert np.isfinite(A[..., :m, :n]).all()
        assert np.isnan(A[..., m:, :]).all()
    if n and m:
        assert reading.kept[1].tolist() == [True] * m + [False] * (120 - m)


def test_bad_input(models):
    translation, decoder = models["translation"], models["decoder"]
    with pytest.raises(ValueError, match=r"^readings must be one of cross-input, .*, got 'input'$"):
        read(translation, CORPUS, readings=["input"])
    with pytest.raises(ValueError, match=r"^readings must be a list of input, output, got 'input'$"):
        read(decoder, CORPUS, readings="input")
    with pytest.raises(ValueError, match=r"^template must have {source} and then {target}, once each, got '{target} {so"):
        read(decoder, CORPUS, template="{target} {source}")
    with pytest.raises(ValueError, match=r"^batch must be a whole number of at least 1, got 0$"):
        read(decoder, CORPUS, batch=0)
    with pytest.raises(ValueError, match=r"^how must be one of"):
        read(decoder, CORPUS, how="sum")
    with pytest.raises(ValueError, match=r"^by must be one of words, spaces, got 'lines'$"):
        read(decoder, CORPUS, by="lines")


def test_a_sentence_that_cannot_be_spelled_is_named(models, monkeypatch):
    model = models["translation"]
    convert = type(model.tokenizer).convert_ids_to_tokens
    wrong = lambda self, ids: ["@@" if "e" in piece else piece for piece in convert(self, ids)]  # noqa: E731  # of "the"
    monkeypatch.setattr(type(model.tokenizer), "convert_ids_to_tokens", wrong)
    with pytest.raises(ValueError, match=r"^'the cat' \|\|\| 'chat': tokenizer MarianTokenizer has no offsets"):
        list(read(model, [Pair("chat", "chat"), Pair("the cat", "chat")]))


@pytest.mark.parametrize("kind", ["translation", "encoder", "decoder"])
def test_text_that_is_not_unicode_is_named(models, kind):
    with pytest.raises(ValueError, match=r"^'caf\\udce9' \|\|\| 'chat': 'utf-8' codec can't encode"):
        list(read(models[kind], [Pair("caf\udce9", "chat")]))
