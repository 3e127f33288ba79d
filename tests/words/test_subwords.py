"""Words from subwords: against pooling by loops, and tiny tokenizers built here where transformers is installed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from helpers import tiny_models
from needs import missing
from otformer.words.models.subwords import (
    covered,
    encode,
    encode_pair,
    group_by_offsets,
    pool_matrix,
    pool_vectors,
    spell,
)
from otformer.words.text.text import word_spans

TEXT = ["the cat sleeps in the house", "le chat dort dans la maison", "l'homme, la femme: l'été"]


def members(member):
    return [np.flatnonzero(word).tolist() for word in member]


def test_offsets():
    text = "Hi  l'été..."
    spans = word_spans(text)  # Hi, l', été, ...
    offsets = [(0, 0), (0, 2), (2, 3), (3, 4), (4, 7), (7, 9), (9, 11), (11, 12), (0, 0)]
    #           <s>     Hi      space   space   l'é     té      ..       .         </s>
    assert members(group_by_offsets(offsets, spans)) == [[1], [3, 4], [4, 5], [6, 7]]
    assert group_by_offsets([], spans).shape == (4, 0)
    assert group_by_offsets(offsets, []).shape == (0, 9)
    over = group_by_offsets([(0, 1), (1, 4)], [(0, 1), (1, 2), (2, 3), (3, 4)])  # one subword is three words
    assert members(over) == [[0], [1], [1], [1]]


def grouped(word_ids, words):
    """The grouping [W, T] of subwords whose words have these numbers."""
    return np.array([[word == k for word in word_ids] for k in range(words)])


def test_covered():
    assert covered(grouped([None, 0, 2, 2, None], 4)).tolist() == [True, False, True, False]


ROWS, COLUMNS = grouped([None, 0, 0, 1, 3, None], 4), grouped([0, 1, 1, 1, 2, None, None], 3)


@pytest.mark.parametrize("how", ["mean", "mass", "any"])
@pytest.mark.parametrize("kind", [torch.tensor, lambda a: torch.tensor(a, dtype=torch.float32)])
def test_pooling_against_loops(how, kind):
    A = np.random.default_rng(0).normal(size=(2, 3, 6, 7))
    pooled = pool_matrix(kind(A), ROWS, COLUMNS, how)
    assert pooled.dtype == kind(A).dtype
    right = np.full((2, 3, 4, 3), np.nan)
    for (w, t), (v, s) in itertools.product(enumerate(members(ROWS)), enumerate(members(COLUMNS))):
        if t:
            block = A[..., t, :][..., s]
            pools = {"mean": block.mean((-1, -2)), "mass": block.mean(-2).sum(-1), "any": block.max((-1, -2))}
            right[..., w, v] = pools[how]
    assert np.allclose(np.asarray(pooled), right, atol=1e-6, equal_nan=True)
    assert np.isnan(np.asarray(pooled)[..., 2, :]).all()  # the word without subwords, and nothing else
    assert np.isfinite(np.asarray(pooled)[..., [0, 1, 3], :]).all()


def test_mass_keeps_distributions():
    A = np.random.default_rng(1).dirichlet(np.ones(7), size=6)
    A[:, 5:] = 0
    A /= A.sum(1, keepdims=True)
    assert np.allclose(pool_matrix(torch.tensor(A), ROWS, COLUMNS, "mass")[[0, 1, 3]].sum(1), 1)


def test_any_subword_links_words():
    links = torch.zeros((6, 7), dtype=torch.bool)
    links[2, 3] = links[4, 6] = True  # the second joins a special token
    pooled = pool_matrix(links, ROWS, COLUMNS, "any")
    assert pooled.dtype == torch.bool
    assert pooled.nonzero().tolist() == [[0, 1]]


def test_vectors_against_loops():
    x = np.random.default_rng(2).normal(size=(2, 6, 5))
    pooled = pool_vectors(torch.tensor(x), ROWS).numpy()
    for w, t in enumerate(members(ROWS)):
        assert np.allclose(pooled[:, w], x[:, t].mean(1)) if t else np.isnan(pooled[:, w]).all()


def test_bad_shapes():
    with pytest.raises(ValueError, match=r"^matrix must have shape \(..., 6, 7\) as the grouping has .* got \(7, 6\)$"):
        pool_matrix(torch.ones((7, 6)), ROWS, COLUMNS)
    with pytest.raises(ValueError, match=r"^vectors must have shape \(..., 6, d\)"):
        pool_vectors(torch.ones(6), ROWS)
    with pytest.raises(ValueError, match=r"^how must be one of mean, mass, any, got 'sum'$"):
        pool_matrix(torch.ones((6, 7)), ROWS, COLUMNS, "sum")


def test_spell():
    assert spell("the cats", ["▁the", "▁cat", "s", "</s>"], {"</s>"}) == [(0, 3), (4, 7), (7, 8), (0, 0)]
    assert spell("a été, b", ["▁a", "▁", "<unk>", ",", "▁b"], unknown="<unk>") == [(0, 1), (1, 2), (2, 5), (5, 6), (7, 8)]
    assert spell("xyz", ["<unk>"], unknown="<unk>") == [(0, 3)]
    assert spell("ﬁn…", ["▁fi", "n", "..."]) == [(0, 1), (1, 2), (2, 3)]  # one character, several in its plain form
    assert spell("", ["</s>"], {"</s>"}) == [(0, 0)]
    with pytest.raises(ValueError, match=r"^its piece '▁cat' does not spell ' dog'"):
        spell("the dog", ["▁the", "▁cat"])


class Slow:
    """A tokenizer as MarianTokenizer is one: no offsets, numbers and pieces."""

    is_fast = False
    unk_token = "<unk>"
    all_special_tokens = ("</s>", "<unk>")

    def __init__(self, pieces):
        self.pieces = [*pieces, "</s>"]

    def __call__(self, text):
        return {"input_ids": list(range(len(self.pieces)))}

    def convert_ids_to_tokens(self, ids):
        return [self.pieces[k] for k in ids]


def test_without_offsets():
    found = encode(Slow(["▁the", "▁cat", "s"]), "the cats")
    assert (found.ids, members(found.member)) == ([0, 1, 2, 3], [[0], [1, 2]])
    with pytest.raises(ValueError, match=r"^tokenizer Slow has no offsets .*, and its piece '##e' does not spell 'e c'"):
        encode(Slow(["th", "##e", "c"]), "the c")
    with pytest.raises(ValueError, match=r"^tokenizer Slow has no offsets .* need a fast tokenizer$"):
        encode_pair(Slow([]), "a", "b")


def fast(kind):
    transformers = pytest.importorskip("transformers", reason=missing("words"))
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    special = ["<unk>", "<s>", "</s>", "<pad>"]
    if kind == "wordpiece":
        core, before = Tokenizer(models.WordPiece(unk_token="<unk>")), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=70, special_tokens=special)
    elif kind == "bytes":
        core, before = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=before.alphabet())
        core.decoder = decoders.ByteLevel()
    else:
        core, before = Tokenizer(models.Unigram()), pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>")
    core.pre_tokenizer = before
    core.train_from_iterator(TEXT, trainer)
    marks = [("<s>", 1), ("</s>", 2)]
    core.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> $B </s>", marks)
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **names)


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "metaspace"])
def test_fast_tokenizers(kind):
    """Every subword but the special ones is in a word, and each word is spelled by its subwords."""
    tokenizer = fast(kind)
    for text in TEXT:
        ids, member = encode(tokenizer, text)
        assert ids == tokenizer(text)["input_ids"]
        assert member.any(0).tolist() == [False] + [True] * (len(ids) - 2) + [False]
        for word, group in zip(text.split(), members(member), strict=True):
            pieces = tokenizer.convert_ids_to_tokens([ids[k] for k in group])
            if kind == "bytes":
                spelled = tokenizer.backend_tokenizer.decoder.decode(pieces).strip()
            else:
                spelled = "".join(pieces).replace("▁", "").replace("##", "")
            assert spelled == word or "<unk>" in pieces


def test_offsets_agree_with_word_ids():
    tokenizer = fast("wordpiece")
    for text in TEXT:
        words = text.split()
        out = tokenizer(words, is_split_into_words=True)
        assert np.array_equal(encode(tokenizer, text).member, grouped(out.word_ids(), len(words)))


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "metaspace"])
def test_fast_pairs(kind):
    tokenizer = fast(kind)
    alone = [encode(tokenizer, text, by="words").member for text in TEXT[:2]]
    ids, source, target, types = encode_pair(tokenizer, *TEXT[:2], by="words")
    assert types == tokenizer(*TEXT[:2]).get("token_type_ids")
    n, m = (member.shape[1] - 1 for member in alone)  # <s> A </s> B </s>: the first sentence ends where the second begins
    assert len(ids) == n + m + 1
    assert np.array_equal(source[:, : n + 1], alone[0])
    assert not source[:, n + 1 :].any()
    assert np.array_equal(target[:, n:], alone[1])
    assert not target[:, :n].any()


def test_cut_off():
    tokenizer = fast("wordpiece")
    member = encode(tokenizer, TEXT[0], max_length=5).member
    assert member.shape == (6, 5)
    assert covered(member)[0]
    assert not covered(member)[-1]


def test_real_marian_tokenizer(tmp_path):
    """Marian's own tokenizer has no offsets in transformers; source and target side, with an unknown word."""
    transformers = pytest.importorskip("transformers", reason=missing("words"))
    pytest.importorskip("sentencepiece", reason=missing("words"))
    tokenizer = transformers.MarianTokenizer.from_pretrained(tiny_models.marian(tmp_path / "marian"))
    assert not tokenizer.is_fast
    for target in (False, True):
        for text in [*TEXT, "le chat Ж dort"]:
            ids, member = encode(tokenizer, text, target=target)
            assert len(ids) == member.shape[1]
            assert member.any(0).tolist() == [True] * (len(ids) - 1) + [False]  # all but </s>
            for word, group in zip(text.split(), members(member), strict=True):
                spelled = "".join(tokenizer.convert_ids_to_tokens([ids[k] for k in group])).replace("▁", "")
                assert spelled == word or (word == "Ж" and spelled == "<unk>")
    decomposed = "le vieil e\u0301te\u0301"
    assert covered(encode(tokenizer, decomposed).member).all()


@pytest.mark.parametrize(
    ("text", "pieces", "spans"),
    [
        ("l\u00b4e\u0301te\u0301", ["▁l", "'", "été"], [(0, 1), (1, 2), (2, 6)]),  # ´ folds into an apostrophe
        ("E\u0301te\u0301", ["▁é", "té"], [(0, 1), (2, 4)]),
        ("e\u0301 ½", ["▁e\u0301", "▁½"], [(0, 1), (3, 4)]),  # a model that leaves text as it is
    ],
)
def test_letters_and_marks_apart(text, pieces, spans):
    assert spell(text, pieces) == spans
