r"""The scores of the author's notebooks: cosine with the identity, and the share that transport matches.

Take the source words that have a translation in the other sentence, i₁ < … < i_k, and the place j_r of each translation
(`first_matches`). For a matrix W [n, m] of source words by target words the crop is K_rs = W[i_r, j_s], and

    cosine    rows of W are scaled to Euclidean length 1, then  Σ_r K_rr / (√k ‖K‖_F), 1 where K is the identity;
    share     W holds distances; the share of r with mass on (r, r) in an exact transport plan of K.

Both depend on k: rows of equal entries give a cosine of 1/√k, and a random permutation matches 1/k.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otformer.transport.solve import solve
from otformer.words.text.dictionary import Dictionary

MATCHED = 1e-4  # mass of a pair above which it counts as matched; of 1 in all


def first_matches(source: Sequence[str], target: Sequence[str], dictionary: Dictionary) -> tuple[list[int], list[int]]:
    """Places i of the source words that have a translation in the target, and j, the first place of one.

    Where several translations are present the earliest listed is taken, so that the choice does not depend on the run.

    >>> d = Dictionary([("cat", "chat"), ("sees", "voit"), ("cats", "chat")])
    >>> first_matches("the cat sees cats".split(), "le chat voit un chat".split(), d)
    ([1, 2, 3], [1, 2, 1])
    """
    at = {word: j for j, word in reversed(list(enumerate(target)))}
    found = [(i, at[f]) for i, e in enumerate(source) for f in [next((f for f in dictionary[e] if f in at), None)] if f]
    return [i for i, _ in found], [j for _, j in found]


def identity_cosine(A: np.ndarray, rows: Sequence[int], columns: Sequence[int]) -> np.ndarray:
    """The cosine [...] of attention A [..., n, m], source words by target words, with the identity; nan if it is all 0.

    >>> identity_cosine(np.array([[0.9, 0.1], [0.2, 0.2]]), [0, 1], [0, 1]).round(3)
    np.float64(0.85)
    """
    length = np.linalg.norm(A, axis=-1, keepdims=True)
    K = (A / np.maximum(length, 1e-12))[..., np.asarray(rows)[:, None], np.asarray(columns)]
    size = np.sqrt((K**2).sum((-1, -2)) * len(rows))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.trace(K, axis1=-2, axis2=-1) / size)


def matched_share(D: np.ndarray, rows: Sequence[int], columns: Sequence[int]) -> float:
    """The share of matched words that exact transport of distances D [n, m] matches too.

    >>> matched_share(np.array([[0.1, 1.0], [1.0, 0.1]]), [0, 1], [0, 1])
    1.0
    """
    K = D[np.asarray(rows)[:, None], np.asarray(columns)]
    i, j, masses = solve(K, reg=0).pairs  # type: ignore[attr-defined]
    return float(np.isin(np.arange(len(rows)), i[(i == j) & (masses > MATCHED)]).mean())
