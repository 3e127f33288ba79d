"""Aligners trained on one's own text: a made-up language whose links are known, kills, more text, hostile text and files."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import otformer as of
from helpers.command import otformer
from otformer.words.align import own_text
from otformer.words.align.hmm import chunks, em
from otformer.words.align.hmm.model import AlignmentSettings, fitted
from otformer.words.align.hmm.numbered import Text, WordPairs
from otformer.words.align.own_folder import About
from otformer.words.text.gold import Gold, score_links
from otformer.words.text.text import words

SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]


def made_up(size, seed, vocabulary=300):
    """Sentence pairs and their links: each word has one translation, some change places, some words have no partner."""
    draw = random.Random(0)
    names = [["".join(draw.choices(SYLLABLES, k=3)) + str(k) for k in range(vocabulary)] for _ in (0, 1)]
    draw = random.Random(seed)
    pairs, links = [], []
    for _ in range(size):
        chosen = [min(int(draw.paretovariate(0.7)), vocabulary) - 1 for _ in range(draw.randint(3, 9))]
        order = list(range(len(chosen)))
        for k in range(0, len(order) - 1, 3):
            if draw.random() < 0.5:
                order[k], order[k + 1] = order[k + 1], order[k]
        source, target = [names[0][c] for c in chosen], [names[1][chosen[i]] for i in order]
        found = {(i, j) for j, i in enumerate(order)}
        if draw.random() < 0.3:
            target.append("uh")
        pairs.append((" ".join(source), " ".join(target)))
        links.append(frozenset((i, j) for i, j in found if source.count(source[i]) == 1))
    return pairs, links


@pytest.fixture(scope="module")
def text():
    return made_up(1500, seed=1)[0]


@pytest.fixture(scope="module")
def folder(text, tmp_path_factory):
    made = tmp_path_factory.mktemp("own") / "model"
    of.words.train(text, made, languages="xx-yy")
    return made


def contents(folder):
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_a_made_up_language_is_aligned_nearly_without_errors(folder):
    pairs, gold = made_up(200, seed=2)
    found = of.align(pairs, model=folder)
    once = [
        frozenset((i, j) for i, j in a if a.source_words.count(a.source_words[i]) == 1 and a.target_words[j] != "uh")
        for a in found
    ]
    assert score_links(once, [Gold(links, links) for links in gold]).aer < 0.03
    assert any(i != j for links in gold for i, j in links)


def test_the_aligner_the_folder_and_the_command_give_the_same_links(folder, tmp_path):
    pairs, _ = made_up(5, seed=3)
    aligner = of.words.load_aligner(folder)
    expected = [str(found) for found in of.align(pairs, model=aligner)]
    (tmp_path / "text").write_text("".join(f"{e} ||| {f}\n" for e, f in pairs))
    said = otformer("align", tmp_path / "text", "--model", folder).stdout
    otformer("align", tmp_path / "text", "--model", folder, "--out", tmp_path / "links")
    assert said.split("\n")[:-1] == (tmp_path / "links").read_text().split("\n")[:-1] == expected
    assert "xx-yy, of 1,500 sentence pairs" in repr(aligner)


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_gives_the_same_bytes(text, folder, tmp_path, threads, monkeypatch):
    monkeypatch.setattr(chunks, "CELLS", 3000)
    of.words.train(text, tmp_path / str(threads), languages="xx-yy", workers=threads)
    of.words.train(text, tmp_path / "again", languages="xx-yy", workers=2)
    assert contents(tmp_path / str(threads)) == contents(tmp_path / "again")
    assert contents(tmp_path / "again")["model.json"] == contents(folder)["model.json"]
    assert not list(tmp_path.glob("*.parts"))


def test_counts_do_not_depend_on_chunks(text, monkeypatch):
    numbered = Text.of((e.split(), f.split()) for e, f in text)
    whole = fitted(em.Training(numbered), AlignmentSettings(rounds=(2, 2)))
    monkeypatch.setattr(chunks, "CELLS", 1000)
    monkeypatch.setattr(chunks, "LANES", 5)
    parts = em.Training(numbered)
    assert len(parts.chunks) > 20
    found = fitted(parts, AlignmentSettings(rounds=(2, 2)))
    np.testing.assert_allclose(found.pairs, whole.pairs, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(found.jumps, whole.jumps, rtol=1e-4)
    words_ = sum(map(len, (f.split() for _, f in text)))
    assert found.pairs[:, 0].sum() + found.null[0].sum() == pytest.approx(
        words_, rel=1e-4
    )  # every word comes from somewhere


def test_pairs_of_words_that_meet_are_those_of_a_set(text):
    numbered = Text.of((e.split(), f.split()) for e, f in text[:100])
    met = WordPairs.of(numbered)
    found = {
        (numbered.words[0][e], numbered.words[1][f])
        for e in range(len(met.start) - 1)
        for f in met.target[met.start[e] : met.start[e + 1]]
    }
    assert found == {(e, f) for source, target in text[:100] for e in source.split() for f in target.split()}
    assert len(found) == len(met)
    assert all((np.diff(met.target[a:b]) > 0).all() for a, b in zip(met.start[:-1], met.start[1:], strict=True))


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", [0, 3, 9, 17, 20])
def test_what_was_stopped_goes_on_and_gives_the_same_bytes(text, folder, tmp_path, after):
    calls, done = 0, []

    def stop(many):
        nonlocal calls
        calls += 1
        if calls > after + 1:
            raise Stop

    with pytest.raises(Stop):
        of.words.train(text, tmp_path / "model", languages="xx-yy", progress=stop)
    assert not (tmp_path / "model").exists()
    assert (tmp_path / "model.parts").exists()
    of.words.train(text, tmp_path / "model", languages="xx-yy", progress=done.append)
    assert contents(tmp_path / "model") == contents(folder)
    assert os.listdir(tmp_path) == ["model"]
    assert sum(done) == own_text.ROUNDS_AND_READING * len(text)
    assert len(done) <= own_text.ROUNDS_AND_READING + 3  # each model begins with what was done


def test_other_text_or_settings_start_anew(text, tmp_path):
    def stop(many):
        if many == 0:
            return
        stop.calls += 1
        if stop.calls == 5:
            raise Stop

    for other, settings in ((text[:700], {}), (text[:800], {}), (text[:800], {"by": "spaces"})):
        stop.calls = 0
        with pytest.raises(Stop):
            of.words.train(other, tmp_path / "model", progress=stop, **settings)
        assert len(list((tmp_path / "model.parts").iterdir())) == 2  # a chunk and counts


def test_a_killed_command_goes_on(text, folder, tmp_path):
    (tmp_path / "text").write_text("".join(f"{e} ||| {f}\n" for e, f in text))
    command = [sys.executable, "-m", "otformer", "align", "--train", "text", "--out", "model", "-l", "xx-yy"]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not (tmp_path / "model.parts").exists() and running.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "model: 1,500 sentence pairs; " in ended.stderr
    assert contents(tmp_path / "model") == contents(folder)
    assert sorted(os.listdir(tmp_path)) == ["model", "text"]


def test_a_second_training_of_one_folder_is_refused(text, tmp_path):
    refused = []

    def other(done):
        if not refused:
            with pytest.raises(ValueError, match="is being written by another process"):
                of.words.train(text[:50], tmp_path / "model")
            refused.append(done)

    of.words.train(text[:200], tmp_path / "model", progress=other)
    assert refused


def test_more_text_brings_new_words_and_keeps_the_old(tmp_path):
    old, new = made_up(800, seed=4)[0], [(f"{e} zig", f"{f} zag") for e, f in made_up(300, seed=5)[0]]
    first = of.words.train(old, tmp_path / "one")
    second = of.words.train(new, tmp_path / "two", extend=tmp_path / "one")
    assert second.about == About("und-und", "words", first.about.letters, 5.0, 0.4, 1100, 0)
    assert str(of.align("zig ||| zag", model=tmp_path / "two")) == "0-0"
    lost = set(first.models[0].words[0]) - set(second.models[0].words[0])
    assert len(lost) < 0.1 * len(first.models[0].words[0])
    pairs, gold = made_up(100, seed=6)
    rates = [
        score_links(
            [
                frozenset((i, j) for i, j in a if a.source_words.count(a.source_words[i]) == 1)
                for a in of.align(pairs, model=m)
            ],
            [Gold(links, links) for links in gold],
        ).aer
        for m in (first, second)
    ]
    assert rates[1] < rates[0] + 0.01 < 0.08
    for bad in ({"languages": "xx-yy"}, {"by": "spaces"}):
        with pytest.raises(ValueError, match=r"must be that of the aligner to extend"):
            of.words.train(new, tmp_path / "three", extend=tmp_path / "one", **bad)


def test_counts_of_two_texts_are_those_of_one(text):
    """A round on the second half, with the counts of the first half added, has the tables of a round on the whole."""
    numbered = [Text.of((e.split(), f.split()) for e, f in some) for some in (text[:500], text)]
    half, whole = map(em.Training, numbered)
    earlier = half.evidence(half.expected(half.start(), is_jumps=False))
    rest = Text.of(((e.split(), f.split()) for e, f in text[500:]), numbered[0].words)
    added = em.Training(rest, earlier=earlier)
    both = added.evidence(added.expected(added.start(), is_jumps=False))
    found, expected = both.parameters(0.01), whole.evidence(whole.expected(whole.start(), is_jumps=False)).parameters(0.01)
    assert rest.words == numbered[1].words
    assert (both.met.target == whole.met.target).all()
    np.testing.assert_allclose(found.t, expected.t, rtol=1e-2, atol=1e-6)
    np.testing.assert_allclose(found.null[0], expected.null[0], rtol=1e-3)


def tables(found):
    """t of both directions by pair of words."""
    t, start = found.parameters(0.01).t.tolist(), found.met.start
    places = ((e, k) for e in range(len(start) - 1) for k in range(start[e], start[e + 1]))
    return {(found.words[0][e], found.words[1][found.met.target[k]]): t[k] for e, k in places}


def test_what_is_left_out_is_of_no_account_but_for_the_sums(text):
    numbered = Text.of((e.split(), f.split()) for e, f in text)
    training = em.Training(numbered)
    whole = training.evidence(fitted(training, AlignmentSettings(rounds=(3, 1))))
    small = whole.pruned(0.03, 0.01)
    assert len(small.met) < len(whole.met) / 3
    names = [tables(whole), tables(small)]
    for pair, t in names[1].items():
        assert t == pytest.approx(names[0][pair], rel=1e-4)
        assert np.sqrt(t[0] * t[1]) >= 0.03 * 0.999
    for side in (0, 1):
        kept = [whole.words[1 - side].index(word) for word in small.words[1 - side]]
        np.testing.assert_allclose(small.parameters(0.01).null[side], whole.parameters(0.01).null[side][kept], rtol=1e-4)


def test_scripts_without_spaces_are_split_by_letters():
    assert words("私はTシャツを2枚") == ["私", "は", "Tシャツ", "を", "2", "枚"]
    assert words("我爱你。") == ["我", "爱", "你", "。"]
    assert words("ที่นี่") == ["ที่", "นี่"]
    assert words("한국어 text") == ["한국어", "text"]


@pytest.mark.parametrize(("source", "target", "stems"), [("talossa", "猫", [5, 3]), ("猫", "house", [3]), ("猫", "cat", [])])
def test_stems_are_shorter_than_a_word_of_the_text(source, target, stems):
    assert own_text.stem_letters(Text.of([([source], [target])])) == stems


def test_hostile_text_trains_or_is_left_out(tmp_path, text):
    odd = [
        "كلب ||| dog",
        "בית ||| house",
        "猫 ||| cat",
        "😀 ||| 😀",
        "a\x00b ||| c\x00d",
        "\u202e ||| \u200b",
        " ||| ",
        "",
    ] * 5
    long = ["w " * 10_000 + "||| x", "y ||| " + "z" * 100_000]
    lines = [*odd, *long, *(f"{e} ||| {f}\r" for e, f in text[:200])]
    (tmp_path / "odd").write_bytes(("\n".join(lines) + "\n").encode())
    done = otformer("align", "--train", tmp_path / "odd", "--out", tmp_path / "model")
    assert "; 2 left out, over 100 words" in done.stderr
    assert str(of.align("كلب ||| dog", model=tmp_path / "model")) == "0-0"
    for found in of.align(lines[:8], model=tmp_path / "model"):
        assert all(0 <= score <= 1 for score in found.scores.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "text"], "--out must name the folder of the model"),
        (["--train", "--out", "model"], "text must be a file of sentence pairs"),
        (["--train", "text", "other", "--out", "model"], "other is short: it has 1 line, text has 2"),
        (["--train", "text", "--out", "text"], "--out must be a folder, got 'text', a file"),
        (["--train", "text", "--out", "full"], "--out must be a new folder, or that of an aligner"),
        (["--train", "text", "--out", "no/model"], "no/model cannot be written"),
        (["a ||| b", "-l", "fi-en"], "got 'fi-en': other languages need a model of your own text: otformer align --train"),
        (["--train", "text", "--out", "model", "-l", "english"], "--languages must be two codes such as fi-en"),
        (["--train", "text", "--out", "model", "--method", "vectors"], "--method cannot be combined with --train"),
        (["--train", "text", "--out", "model", "--workers", "0"], "--workers must be a whole number of at least 1"),
        (["--extend", "full", "text", "--out", "model"], "full must be a folder that otformer align --train made"),
        (
            ["--train", "text", "--out", "kept"],
            "--out must be a new folder, or that of an aligner, got 'kept' with other files",
        ),
        (["--train", "empty", "--out", "model"], "hold sentences with words on both sides, got none"),
        (["--model", "none", "a ||| b"], "none must be a folder that otformer align --train made"),
    ],
)
def test_bad_commands_are_one_line_and_change_nothing(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a ||| b\na ||| b\n")
    Path("other").write_text("c\n")
    Path("empty").write_text("\n\n")
    Path("full").mkdir()
    Path("full", "letter.txt").write_text("dear")
    Path("kept").mkdir()
    Path("kept", "model.json").write_text('{"format": "otformer aligner 1"}')
    Path("kept", "notes.txt").write_text("mine")
    before = sorted(map(str, Path().rglob("*")))
    done = otformer("align", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(map(str, Path().rglob("*"))) == before


def test_files_that_come_during_the_work_are_not_replaced(folder, text, tmp_path):
    """The work is kept, and goes on when they are gone."""
    out = tmp_path / "model"
    shutil.copytree(folder, out)
    notes = out / "notes.txt"

    def come(done: int) -> None:
        notes.write_text("mine")

    with pytest.raises(ValueError, match="with other files"):
        of.words.train(text[:50], out, progress=come)
    assert notes.read_text() == "mine"
    notes.unlink()
    of.words.train(text[:50], out)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model"]


def test_a_model_without_pairs_of_words_is_refused(folder, tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(folder, bad)
    tensors = load_file(bad / "model.safetensors")
    tensors |= {"0_start": 0 * tensors["0_start"], "0_met": tensors["0_met"][:0], "0_counts": tensors["0_counts"][:0]}
    save_file(tensors, bad / "model.safetensors")
    with pytest.raises(ValueError, match=r"0_met of .* must hold pairs of words, got none"):
        of.words.load_aligner(bad)


def test_text_without_words_that_go_together_leaves_nothing(text, tmp_path, monkeypatch):
    monkeypatch.setattr(own_text, "LEAST", 1.1)
    with pytest.raises(ValueError, match="pairs must have words that go together"):
        of.words.train(text[:50], tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_translation_memory_is_read_in_the_languages_of_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sides = [("fi", "kala ruma"), ("et", "xxx"), ("en", "fish house")]
    unit = "".join(f"<tuv xml:lang='{code}'><seg>{text}</seg></tuv>" for code, text in sides)
    Path("memory.tmx").write_text(f"<tmx><body>{f'<tu>{unit}</tu>' * 5}</body></tmx>")
    assert otformer("align", "--train", "memory.tmx", "--out", "said", "-l", "fi-en").returncode == 0
    assert otformer("align", "--model", "said", "memory.tmx", "--tokens").stdout.startswith("kala ruma ||| fish house ||| ")
    assert otformer("align", "--extend", "said", "memory.tmx", "--out", "said").returncode == 0
    assert of.words.load_aligner("said").about.pairs == 10
    assert otformer("align", "--train", "memory.tmx", "--out", "open").returncode == 0
    assert otformer("align", "--model", "open", "memory.tmx", "--tokens").stdout.startswith("kala ruma ||| xxx ||| ")
    done = otformer("align", "--train", "memory.tmx", "--out", "none", "-l", "fi")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--languages must be two codes such as fi-en" in done.stderr


TENSORS = ["source", "target", "start", "met", "counts", "null_0", "null_1", "null_rest", "kappa", "jumps"]
TENSORS += ["rest_0", "rest_1"]


def spoiled(t, how):
    if how == "shape":
        return t.flatten()[None, :-1].clone()
    if how == "kind":
        return t.to(torch.int16)
    worst = {torch.uint8: 255, torch.int32: -1, torch.int64: 2**62}.get(t.dtype, -1.0 if how == "negative" else float("nan"))
    out = t.clone()
    out.view(-1)[-1] = worst
    return out


@pytest.mark.parametrize("how", ["missing", "shape", "kind", "negative", "nan"])
@pytest.mark.parametrize("name", TENSORS)
def test_every_damaged_field_is_named_in_one_line(folder, tmp_path, name, how):
    shutil.copytree(folder, tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    whole = tensors.pop(f"0_{name}")
    if how != "missing":
        tensors[f"0_{name}"] = spoiled(whole, how)
    save_file(tensors, file)
    with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
        of.words.load_aligner(tmp_path / "model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "2"}, {"languages": 3}, {"languages": "x"}, {"by": "letters"}, {"letters": []}, {"letters": [None, 0]},
        {"letters": [5, None]}, {"letters": [None, True]}, {"letters": [None, "5"]}, {"letters": 5}, {"null": -1},
        {"letters": [None, 5, 3, 2]}, {"null": float("nan")}, {"null": "5"}, {"threshold": 1}, {"threshold": None},
        {"pairs": -1}, {"pairs": 1.5}, {"left_out": "no"}, {"more": 1}, {"by": None}, {"letters": [None]},
    ],
)  # fmt: skip
def test_every_setting_is_checked(folder, tmp_path, change):
    shutil.copytree(folder, tmp_path / "model")
    about = json.loads((folder / "model.json").read_text())
    (tmp_path / "model" / "model.json").write_text(json.dumps({**about, **change}))
    with pytest.raises(ValueError, match=r"model\.(json|safetensors)") as caught:
        of.words.load_aligner(tmp_path / "model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [b"", b"[]", b"[" * 100_000, b"\xff", b'{"format": 1', b"{}"])
def test_files_that_are_no_models(folder, tmp_path, bad):
    for name in ("model.json", "model.safetensors"):
        shutil.copytree(folder, tmp_path / name)
        (tmp_path / name / name).write_bytes(bad)
        with pytest.raises(ValueError, match=name) as caught:
            of.words.load_aligner(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="model must be a folder, or an aligner"):
        of.align("a ||| b", model=3)


def test_memory_is_that_of_pairs_of_words_and_not_of_the_text(tmp_path, monkeypatch):
    """Ten times the same sentences have the pairs of words of one: chunks lie on disk."""
    monkeypatch.setattr(chunks, "CELLS", 2**16)
    script = (
        "import resource, sys, otformer as of; from words.test_own_text import made_up;"
        "pairs = made_up(20_000, 7)[0]; of.words.train(pairs[:2000], 'warm');"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "of.words.train((p for _ in range(10) for p in pairs), 'model', workers=1);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent.parent)])
    env = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    cells = 200_000 * 6 * 6
    assert (
        int(ran.stdout) * 1024 < 8 * cells
    )  # a posterior in float32 of both directions would be 8 bytes for each cell, at once
