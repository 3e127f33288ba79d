"""Word vectors: files, lookup, and vectors from parallel text."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from needs import needs_data
from otformer.lab.translators.__main__ import main
from otformer.words.align.bilingual import VectorRecipe, train_vectors
from otformer.words.align.vectors import WordVectors, read_vectors, write_npz_vectors
from otformer.words.text.training_text import tokens, training_text


def test_vec_files_plain_and_gz(tmp_path):
    text = "2 3\nchat 1 0 0.5\nŒuf -1 2 3\n"
    (tmp_path / "a.vec").write_text(text)
    with gzip.open(tmp_path / "a.vec.gz", "wt") as stream:
        stream.write(text)
    for name in ("a.vec", "a.vec.gz"):
        v = read_vectors(tmp_path / name)
        assert v.words == ("chat", "Œuf")
        assert v.matrix.tolist() == [[1, 0, 0.5], [-1, 2, 3]]
    assert read_vectors(tmp_path / "a.vec", limit=1).words == ("chat",)
    (tmp_path / "bad.vec").write_text("chat 1 2\nchien 1\n")
    with pytest.raises(ValueError, match=r"line 2 must hold a word and 2 numbers, got 'chien 1'"):
        read_vectors(tmp_path / "bad.vec")
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ValueError, match=r"not a readable \.npz"):
        read_vectors(tmp_path / "bad.npz")


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-7), ("float16", 1e-3), ("int8", 1e-2)])
def test_npz_there_and_back_keeps_words_and_directions(tmp_path, dtype, error):
    matrix = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)
    sides = {"en": WordVectors(("a", "b", "c"), matrix), "fr": WordVectors(("é", "œ", "à"), -matrix)}
    write_npz_vectors(tmp_path / "v.npz", sides, dtype)
    for language, side in sides.items():
        back = read_vectors(tmp_path / "v.npz", language)
        assert back.words == side.words
        lengths = np.linalg.norm(back.matrix, axis=1) * np.linalg.norm(side.matrix, axis=1)
        cosine = (back.matrix * side.matrix).sum(1) / lengths
        assert (1 - cosine).max() < error**2 + 1e-6
    with pytest.raises(ValueError, match="must hold de_words and de_vecs, got en_words"):
        read_vectors(tmp_path / "v.npz", "de")


def test_lookup_folds_and_unknown_words_are_made_of_what_is_known():
    v = WordVectors(("Paris", "paris", "par", "dessus", "asyl", "antrag", "dass", "grossen", "le"), np.eye(9))
    assert v.rows(["Paris", "PARIS", "Daß", "L’", "lyon"]) == [0, 0, 6, 8, None]
    r = np.sqrt(0.5)
    np.testing.assert_allclose(v.embed(["par-dessus"])[0], [0, 0, r, r, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(v.embed(["Asylantrag", "Asylsantrag"]), [[0, 0, 0, 0, r, r, 0, 0, 0]] * 2)
    np.testing.assert_allclose(v.embed(["großem"])[0], np.eye(9)[7])
    assert v.embed([]).shape == (0, 9)
    wide = WordVectors(("a",), np.ones((1, 300)))
    names = wide.embed(["Mulroney", "MULRONEY", "Mulroneys", "Trudeau"])
    similar = names @ names.T
    assert similar[0, 1] == pytest.approx(1)
    assert similar[0, 2] > 0.7 > 0.3 > abs(similar[0, 3])


def test_bilingual_vectors_recover_a_made_up_language():
    """Sentences of random words, Zipf's law, and the same with every word renamed and the order mixed."""
    rng = np.random.default_rng(3)
    draw = 1 / np.arange(1, 101)
    sentences = [rng.choice(100, size=rng.integers(3, 9), p=draw / draw.sum()).tolist() for _ in range(4000)]
    pairs = [([f"e{w}" for w in s], [f"f{w}" for w in rng.permutation(s)]) for s in sentences]
    one, other = train_vectors(pairs, VectorRecipe(dim=50))
    nearest = (one.embed([f"e{k}" for k in range(100)]) @ other.matrix.T).argmax(1)
    assert sum(other.words[row] == f"f{k}" for k, row in enumerate(nearest)) >= 98
    assert one.words[0] == "e0"
    np.testing.assert_allclose(np.linalg.norm(one.matrix, axis=1), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="occur at least 2 times, got none"):
        train_vectors([(["a"], ["b"])])


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["vectors", "--languages", "en-xx", "--out", str(tmp_path / "v.npz")])
    assert stop.value.code == 2
    assert "languages must be one of" in capsys.readouterr().err


def test_training_text_has_no_test_sentence(tmp_path):
    """A small copy of the data folder, with a test sentence planted in the training text in other punctuation and case."""
    for folder in ("tatoeba_manythings", "po_catalogs", "wmt_newstest", "hansards_en-fr", "rwth_de-en"):
        (tmp_path / ("gold_alignments" if "-" in folder else "") / folder).mkdir(parents=True)

    def write(name, text):
        with gzip.open(tmp_path / name, "wt") as stream:
            stream.write(text)

    write("wmt_newstest/eng-fra.newstest2014.eng.gz", "The dog sleeps now.\n")
    write("wmt_newstest/eng-fra.newstest2014.fra.gz", "Le chien dort.\n")
    rows = ["the dog  sleeps, now !\tUn toutou dort.", "A cat.\tUn chat.", "A cat.\tUn chat.", "Some dog.\tle chien dort"]
    write("tatoeba_manythings/fra-eng.2019-04-07.tsv.gz", "\n".join(rows) + "\n")
    for name in ("hansards_en-fr/test.en-fr.src-tgt", "rwth_de-en/de", "rwth_de-en/en"):
        (tmp_path / "gold_alignments" / name).write_text("order . ||| le ordre .\n" if "hansards" in name else "x y\n")
    assert list(training_text("en-fr", tmp_path)) == [(["a", "cat", "."], ["un", "chat", "."])]
    assert list(training_text("fr-en", tmp_path)) == [(["un", "chat", "."], ["a", "cat", "."])]


@needs_data
def test_real_vectors_read_and_translate():
    folder = Path(os.environ["OTFORMER_DATA"], "word_vectors")
    file = folder / "fasttextM_aligned_en_fr_300d.npz"
    en, fr = read_vectors(file, "en"), read_vectors(file, "fr")
    assert (len(en), len(fr), en.dim) == (756, 757, 300)
    nearest = (en.embed(["year", "music", "Two", "world"]) @ fr.embed(fr.words).T).argmax(1)
    assert [fr.words[row] for row in nearest] == ["année", "musique", "deux", "monde"]
    spacy = read_vectors(folder / "spacy_fr_core_news_md_300d_muse_vocab.npz", limit=1000)
    assert (len(spacy), spacy.dim) == (1000, 300)
    assert tokens("L’heure") == ["le", "heure"]
