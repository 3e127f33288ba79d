"""Alignment models against sums over all alignments, one by one."""

import itertools
import os

import numpy as np
import pytest
from scipy.special import digamma

from otformer.lab.translators import __main__ as commands
from otformer.words.align.aligners import off_diagonal
from otformer.words.align.hmm import em, orders
from otformer.words.align.hmm.file import read_models, write_models
from otformer.words.align.hmm.model import AlignmentSettings, train_model
from otformer.words.align.hmm.numbered import Text
from otformer.words.align.hmm.orders import Direction

FURTHEST = 15  # jumps of `direction`


def direction(m, kappa=2.0, seed=0):
    rng = np.random.default_rng(seed)
    return Direction(np.ones(1), np.ones(m), kappa, rng.uniform(0.1, 1, 2 * FURTHEST + 1))


def brute_force(t, null, d, settings):
    """p(a_j = i) and expected jumps by adding up p(f, a) over all (n + 1)^m alignments; n stands for no word."""
    m, n = t.shape
    post, jumps, total = np.zeros((m, n)), np.zeros(2 * FURTHEST + 1), 0.0
    for a in itertools.product(range(n + 1), repeat=m):
        p, last, made = 1.0, -1, []
        for j, i in enumerate(a):
            if i == n:
                p *= settings.p_null * null[j]
                continue
            if settings.order == "jumps":
                steps = [max(-FURTHEST, min(FURTHEST, k - last)) + FURTHEST for k in range(n)]
                weights, last = d.jumps[steps], i
                made.append(steps[i])
            else:
                weights = [np.exp(-d.kappa * abs((k + 0.5) / n - (j + 0.5) / m)) for k in range(n)]
            p *= (1 - settings.p_null) * weights[i] / sum(weights) * t[j, i]
        total += p
        for j, i in enumerate(a):
            if i < n:
                post[j, i] += p
        np.add.at(jumps, made, p)
    return post / total, jumps / total


@pytest.mark.parametrize("order", ["diagonal", "jumps"])
@pytest.mark.parametrize("shape", [(4, 3), (2, 5), (1, 1), (1, 4), (4, 1), (2, 20), (2, 40)])  # jumps beyond FURTHEST, too
def test_posteriors_and_jumps_are_sums_over_all_alignments(order, shape):
    rng = np.random.default_rng(1)
    settings, d = AlignmentSettings(order=order, p_null=0.2), direction(shape[0])
    t, null = 10 ** rng.uniform(-7, 0, (3, *shape)), 10 ** rng.uniform(-7, 0, (3, shape[0]))
    post, found, (away, mass) = orders.posterior(t.transpose(1, 2, 0), null.T, d, order, settings.p_null)
    posts, jumps = zip(*(brute_force(t[k], null[k], d, settings) for k in range(3)), strict=True)
    np.testing.assert_allclose(post.transpose(2, 0, 1), posts, atol=1e-5)
    if order == "jumps":
        np.testing.assert_allclose(found, sum(jumps), atol=1e-5)
    else:
        np.testing.assert_allclose([away, mass], [(sum(posts) * off_diagonal(*shape)).sum(), sum(posts).sum()], atol=1e-5)


def test_the_tables_are_the_digamma_of_the_expected_counts():
    """Words a and b meet x; b meets y as well."""
    training = em.Training(Text.of([(["a", "b"], ["x"]), (["b"], ["x", "y"])]), alpha=0.01)
    assert list(zip(training.met.start.tolist(), [0, 1, 3], strict=True)) == [(0, 0), (1, 1), (3, 3)]
    counts = np.array([[0.7, 0.2], [0.3, 1.1], [2.0, 0.4]], np.float32)
    null = np.array([0.5, 0.1]), np.array([0.0, 0.2])
    now = training.evidence(em.Counts(counts, null, np.full(2, 4.0), np.ones((2, 31)))).parameters(0.01)
    by_owner = [[0.71, 2.32, 2.32], [1.32, 1.32, 0.41]]
    np.testing.assert_allclose(
        now.t.T, np.maximum(np.exp(digamma(counts.T + 0.01) - digamma(by_owner)), em.FLOOR), rtol=1e-5
    )
    expected = np.exp(digamma(np.array([0.51, 0.11])) - digamma(0.62))
    np.testing.assert_allclose(now.null[0], expected, rtol=1e-5)


@pytest.mark.parametrize("x", [1e-3, 0.01, 0.3, 1.0, 1.46, 5.99, 6.0, 50.0, 1e6])
def test_psi_is_the_digamma_function(x):
    assert em.psi(x) == pytest.approx(digamma(x), rel=1e-9, abs=1e-9)


def test_kappa_is_found_again():
    shapes = [(5, 7), (9, 4), (12, 12), (1, 3), (7, 1)]
    mass, found = np.zeros((13, 13)), 0.0
    for k, (m, n) in enumerate(shapes):
        d = off_diagonal(m, n)
        p = np.exp(-6.5 * d)
        mass[m, n] = m * (k + 1)
        found += (k + 1) * (p / p.sum(1, keepdims=True) * d).sum()
    assert orders.fit_kappa(found, mass, 1.0) == pytest.approx(6.5, abs=0.01)
    assert orders.fit_kappa(0.0, np.zeros((3, 3)), 1.0) == 1.0
    assert [orders.fit_kappa(x, mass, 1.0) for x in (1e9, 0.0)] == [0.1, 30.0]


@pytest.fixture(scope="module")
def language():
    """Every word has one translation, pairs of words change places, and now and then a word has none."""
    rng = np.random.default_rng(3)

    def pair():
        e = [f"e{k}" for k in rng.choice(40, rng.integers(3, 9), replace=False)]
        order = list(range(len(e)))
        at = int(rng.integers(len(e) - 1))
        order[at], order[at + 1] = order[at + 1], order[at]
        links = {(i, j) for j, i in enumerate(order)}
        f = ["f" + e[i][1:] for i in order]
        return e, [*f, "euh"], links

    made = [pair() for _ in range(400)]
    return [(e, f) for e, f, _ in made], [links for _, _, links in made]


@pytest.mark.parametrize("settings", [{"order": "diagonal"}, {}, {"stem_letters": 3}])
def test_a_made_up_language_is_learned(language, settings):
    pairs, gold = language
    model = train_model(pairs[:350], AlignmentSettings(**settings))
    A, B = model.posteriors(pairs[350:])
    found = [{(int(i), int(j)) for j, i in np.argwhere(a * b > 0.25)} for a, b in zip(A, B, strict=True)]
    right = sum(len(x & y) for x, y in zip(found, gold[350:], strict=True))
    assert right / sum(map(len, gold[350:])) > 0.97
    assert right / sum(map(len, found)) > 0.97


def test_directions_exchange_with_the_languages(language):
    pairs, _ = language
    A, B = train_model(pairs[:50]).posteriors(pairs[:5])
    C, D = train_model([(f, e) for e, f in pairs[:50]]).posteriors([(f, e) for e, f in pairs[:5]])
    for a, b, c, d in zip(A, B, C, D, strict=True):
        np.testing.assert_allclose(a, d.T, atol=1e-4)
        np.testing.assert_allclose(b, c.T, atol=1e-4)


def test_unknown_words_go_by_spelling_and_empty_sentences_stay(language):
    pairs, _ = language
    model = train_model(pairs)
    A, B = model.posteriors([(["Zoltan", "e1"], ["f1", "Zoltan"]), ([], ["f1"]), (["e1"], [])])
    assert (A[0] * B[0])[1].argmax() == 0
    assert [a.shape for a in A] == [(2, 2), (1, 0), (0, 1)]
    assert [b.shape for b in B] == [(2, 2), (1, 0), (0, 1)]
    A, B = model.posteriors([(["e1", "e2", "Kowalski"], ["Kowalsky", "f1", "f2"])])
    assert (A[0] * B[0]).argmax(1).tolist() == [2, 0, 1]


def test_letters_are_the_first_of_a_word(language):
    """Endings that are looked past change nothing."""
    pairs, _ = language
    text = [([f"{w:_<3}" for w in e], [f"{w:_<3}" for w in f]) for e, f in pairs]
    longer = [([f"{w}x" for w in e], [f"{w}y" for w in f]) for e, f in text]
    stems, whole = train_model(text, AlignmentSettings(stem_letters=3)), train_model(text)
    for found, expected in zip(stems.posteriors(longer[:3]), whole.posteriors(text[:3]), strict=True):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_small_model_has_the_likely_pairs_only(language):
    pairs, _ = language
    model = train_model(pairs)
    small = model.pruned()
    assert len(small.pair_keys) < len(model.pair_keys) / 3
    for k, d in zip(small.pair_keys, zip(*(d.table for d in small.directions), strict=True), strict=True):
        assert np.sqrt(d[0] * d[1]) >= 0.03
        assert k in model.pair_keys
    for found, expected in zip(small.posteriors(pairs[:20]), model.posteriors(pairs[:20]), strict=True):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a[:-1], b[:-1], atol=0.01)  # the last word has no partner


def test_bad_input_is_one_line():
    with pytest.raises(ValueError, match="pairs must hold sentences with words"):
        train_model([([], ["a"])])
    numbers = {"rounds": (0, 0)}, {"rounds": (5, -1)}, {"p_null": 1.0}, {"alpha": 0.0}
    for bad in ({"order": "random"}, {"stem_letters": 0}, *numbers):
        with pytest.raises(ValueError, match=f"^{next(iter(bad))} must be "):
            AlignmentSettings(**bad)


def test_long_sentences_of_unknown_words_are_placed_by_the_order_and_stay_finite(language):
    """All t are the floor: 200 factors of 1e-7 are beyond float32, and the answer is that of t = 1 everywhere."""
    pairs, _ = language
    model = train_model(pairs)
    long = [f"{k}?" for k in range(200)], [f"{k}!" for k in range(200)]
    (A,), (B,) = model.posteriors([long])
    for P, axis in ((A, 1), (B, 0)):
        np.testing.assert_allclose(P.sum(axis), 1 - model.settings.p_null, atol=1e-4)
    ones = np.ones((200, 200, 1))
    expected, _, _ = orders.posterior(ones, ones[0], model.directions[0], "jumps", model.settings.p_null)
    np.testing.assert_allclose(A, expected[..., 0], atol=1e-4)


def test_a_file_keeps_probabilities_within_a_sixteenth_of_an_octave(language, tmp_path):
    pairs, _ = language
    models = [train_model(pairs), train_model(pairs, AlignmentSettings(stem_letters=2))]
    write_models(tmp_path / "models.npz", models)
    read = read_models(tmp_path / "models.npz")
    assert [model.settings for model in read] == [model.settings for model in models]
    for model, stored in zip(models, read, strict=True):
        assert (stored.words, stored.pair_keys.tolist()) == (model.words, model.pair_keys.tolist())
        for d, s in zip(model.directions, stored.directions, strict=True):
            for exact, kept in ((d.table, s.table), (d.null, s.null)):
                assert np.abs(np.log2(exact) - np.log2(kept)).max() <= 1 / 16 + 1e-5
            np.testing.assert_allclose(s.jumps, d.jumps / d.jumps.sum(), rtol=1e-6)
        for found, expected in zip(stored.posteriors(pairs[:20]), model.posteriors(pairs[:20]), strict=True):
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, atol=0.05)


def test_words_without_pairs_are_not_kept(language, tmp_path):
    pairs, _ = language
    with pytest.raises(ValueError, match=r"least must leave some pairs of words, got 1.1"):
        train_model(pairs).pruned(1.1)
    some = train_model([*pairs, (["rare", "seldom"], ["mot", "peu"])]).pruned(0.5)
    write_models(tmp_path / "some.npz", [some])
    (read,) = read_models(tmp_path / "some.npz")
    used = {
        w
        for e, f in zip(*np.divmod(some.pair_keys, len(some.words[1])), strict=True)
        for w in (list(some.words[0])[e], list(some.words[1])[f])
    }
    assert {*read.words[0], *read.words[1]} == used
    said = [
        (list(m.words[0])[k // len(m.words[1])], list(m.words[1])[k % len(m.words[1])])
        for m in (some, read)
        for k in m.pair_keys
    ]
    assert said[: len(said) // 2] == said[len(said) // 2 :]


def test_bad_files_of_models(language, tmp_path):
    pairs, _ = language
    file = tmp_path / "models.npz"
    with pytest.raises(ValueError, match="models must have order 'jumps'"):
        write_models(file, [train_model(pairs[:20]), train_model(pairs[:20], AlignmentSettings(order="diagonal"))])
    assert not os.listdir(tmp_path)
    write_models(file, [train_model(pairs[:20])])
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(ValueError, match="is not a readable file of alignment models"):
        read_models(file)
    for other in ({"0_said": np.zeros(1)}, {}, {"M": np.zeros(3)}):
        np.savez(file, **other)
        with pytest.raises(ValueError, match="must hold alignment models, got one without 0_source"):
            read_models(file)
    with pytest.raises(ValueError, match="is not a readable file"):
        read_models(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("t", lambda t: t[:, :-1], "0_t must have shape"),
        ("null_0", lambda q: q[:1], "0_null_0 must have shape"),
        ("jumps", lambda s: s * np.nan, "0_jumps must be positive and finite"),
        ("said", lambda w: w + np.uint16(1000), "0_said must be places of the 4. target words"),
        ("said", lambda w: w[::-1], "0_said must rise"),
        ("letters", lambda k: k - 3, "letters must be a whole number"),
        ("said", lambda w: w.astype(object), "holds Python objects, which are never read"),
    ],
)
def test_an_npz_that_is_no_model_is_named_in_one_line(language, tmp_path, name, change, message):
    file = tmp_path / "models.npz"
    write_models(file, [train_model(language[0][:200]).pruned()])
    arrays = dict(np.load(file))
    np.savez(file, **{**arrays, f"0_{name}": change(arrays[f"0_{name}"])})
    with pytest.raises(ValueError, match=message) as caught:
        read_models(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_the_command_writes_the_same_file_again(language, tmp_path, monkeypatch, capsys):
    pairs, _ = language
    monkeypatch.setattr(commands, "training_parts", lambda languages: iter(pairs))
    for name in ("one", "two"):
        commands.main(["hmm", "--languages", "en-fr", "--out", str(tmp_path / f"{name}.npz"), "--pairs", "100"])
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    said = capsys.readouterr().out
    assert "100 sentence pairs" in said
    assert [model.settings.stem_letters for model in read_models(tmp_path / "one.npz")] == [None, 5]
    for bad in (["--languages", "en-es"], ["--languages", "en-fr", "--out", str(tmp_path / "none" / "x.npz")]):
        with pytest.raises(SystemExit):
            commands.main(["hmm", "--out", str(tmp_path / "bad.npz"), *bad])
    assert sorted(os.listdir(tmp_path)) == ["one.npz", "two.npz"]
