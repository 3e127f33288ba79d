"""Word aligners: source and target exchanged give the transposed scores and links where that is promised.

`grow-diag` is left out: it grows along the links in their order, which is not that of the links exchanged.

**Tolerances.** Plans come from `solve_batch` with tol 1e-6 (unbalanced: 1e-3, a factor exp(2e-3) of every entry), masses up
to N words; by `helpers.certificates.apart` with R ≤ 1.5 × the range of costs, over λ, two are √(N · 2e-6 · R) apart.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.certificates import EPS
from helpers.strategies import numbers
from otformer.words.align.aligners import RULES, Aligner, join, links, match, off_diagonal, similarity
from otformer.words.align.methods import method

TRANSPOSED = {
    "source": "target",
    "target": "source",
    "intersection": "intersection",
    "union": "union",
    "threshold": "threshold",
}


@st.composite
def similarities(draw: st.DrawFn) -> np.ndarray:
    """Cosines [m, n], with ties, of up to six words."""
    m, n = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    return draw(numbers((m, n))) / 8


def exchanged(pairs: frozenset[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(j, i) for i, j in pairs}


@pytest.mark.parametrize("rule", TRANSPOSED)
@given(S=similarities(), threshold=st.sampled_from((-2.0, 0.0, 0.3)))
def test_links_of_transposed_scores_are_exchanged(rule, S, threshold):
    assert exchanged(links(S.T, TRANSPOSED[rule], threshold)) == links(S, rule, threshold)


@given(similarities())
def test_rules_contain_one_another(S):
    """intersection ⊆ grow-diag ⊆ grow-diag-final ⊆ union; and one link at most of each word on the choosing side."""
    found = {rule: links(S, rule, -2.0) for rule in RULES}
    assert found["intersection"] <= found["grow-diag"] <= found["grow-diag-final"] <= found["union"]
    assert found["union"] == found["source"] | found["target"]
    assert found["intersection"] == found["source"] & found["target"]
    assert [len({i for i, _ in found["source"]}), len({j for _, j in found["target"]})] == [S.shape[1], S.shape[0]]


def room(S: np.ndarray, reg: float, most: float = 4.0) -> float:
    """Costs 2 − 2S from 0 to 4; null words add as many as there are words to the mass."""
    N = sum(S.shape)
    return math.sqrt(N * 2e-6 * (1.5 * max(most, 4.0) / reg + 4 + math.log(N)))


@given(similarities(), st.sampled_from((0.1, 0.5)))
def test_scores_of_transposed_similarities_are_transposed(S, reg):
    for how in ("similarity", "agreement"):
        np.testing.assert_allclose(match([S.T], how, reg)[0].T, match([S], how, reg)[0], rtol=64 * EPS * (1 + 8 / reg))
    for how in ("transport", "null"):
        assert abs(match([S.T], how, reg)[0].T - match([S], how, reg)[0]).sum() <= room(S, reg)
    one, other = match([S], "unbalanced", reg)[0], match([S.T], "unbalanced", reg)[0].T
    np.testing.assert_allclose(one, other, rtol=math.expm1(4e-3))
    best = [(S * match([S], "exact")[0]).sum(), (S.T * match([S.T], "exact")[0]).sum()]
    assert best[0] == best[1]  # 64ths, exactly


@given(similarities(), st.sampled_from(("transport", "null")), st.sampled_from((0.0, 0.5)))
def test_an_aligner_exchanged(S, how, diagonal):
    np.testing.assert_allclose(off_diagonal(*S.shape).T, off_diagonal(*S.T.shape), rtol=0, atol=4 * EPS)
    aligner = Aligner(how, diagonal=diagonal)
    assert abs(aligner.scores([S.T])[0].T - aligner.scores([S])[0]).sum() <= room(S, aligner.reg)


@given(st.data())
def test_directions_joined_in_either_order(data):
    m, n = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    A, B = (np.abs(data.draw(numbers(shape))) / 8 + 1e-3 for shape in ((m, n), (n, m)))
    for null in (None, 2.0):
        one, other = join([A], [B], null)[0], join([B], [A], null)[0].T
        assert abs(one - other).sum() <= room(A, 1.0, 7.0)  # −log of 1e-3


@given(st.data())
def test_cosines_of_vectors_exchanged_and_scaled(data):
    d = data.draw(st.integers(1, 4))
    x, y = (data.draw(numbers((data.draw(st.integers(1, 5)), d))) for _ in range(2))
    S = similarity(x, y)
    assert abs(S).max() <= 1 + 8 * EPS
    np.testing.assert_allclose(similarity(y, x).T, S, rtol=0, atol=8 * EPS)
    np.testing.assert_allclose(similarity(1024 * x, y / 3), S, rtol=0, atol=8 * EPS)


WORDS = [
    ["the", "cat", "sat", "on", "a", "red", "mat", ".", "1998"],
    ["le", "chat", "rouge", "est", "un", "tapis", ".", "1998"],
]
sentences = st.tuples(*(st.lists(st.sampled_from(words), min_size=1, max_size=6) for words in WORDS))


@pytest.fixture(scope="module")
def methods():
    return {(name, pair): method(name, pair) for name in ("hmm", "vectors") for pair in ("en-fr", "fr-en")}


@given(pair=sentences)
def test_a_language_pair_exchanged(methods, pair):
    """The shipped models serve both directions: hmm with the same bytes, vectors up to the tolerance of a plan."""
    there, back = (methods["hmm", languages] for languages in ("en-fr", "fr-en"))
    one, other = there.scores([pair])[0], back.scores([pair[::-1]])[0]
    np.testing.assert_array_equal(other.T, one)
    assert exchanged(back.links(other)) == there.links(one)
    one, other = methods["vectors", "en-fr"].scores([pair])[0], methods["vectors", "fr-en"].scores([pair[::-1]])[0]
    assert abs(other.T - one).sum() <= room(one, 0.3)
