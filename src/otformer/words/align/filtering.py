"""Is a sentence pair a translation? Its coverage: how probably the words of a sentence have a partner, on the worse side.

With p_ji the probability that target word j and source word i are linked (words/align/confidence.py), [m, n],

    coverage = min( mean_i max_j p_ji,  mean_j max_i p_ji ).

A wrong partner sentence leaves words alone on both sides, half a translation on one; the mean does not grow with length. A
sentence that is repeated instead of translated has links of every word, to itself: its coverage is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

COPY_WORDS = 4  # words with letters from which on a side may be called a copy; a name alone may stay what it is
COPY_SHARE = 0.75  # of them that stand in the other sentence, letter for letter


def coverage(probabilities: Any, source: Sequence[str], target: Sequence[str]) -> float:
    """The coverage of a sentence pair with these words; 0 where a side is empty.

    >>> round(coverage([[0.9, 0.2], [0.1, 0.7], [0.1, 0.2]], ["black", "cats"], ["chats", "noirs", "etc"]), 2)
    0.6
    """
    p = np.asarray(probabilities)
    if not p.size or copied(source, target) or copied(target, source):
        return 0.0
    return float(min(p.max(0).mean(), p.max(1).mean()))


def copied(source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether the source's words stand in the target as they are.

    >>> copied("The black cat sleeps".split(), "the black cat is asleep".split())
    True
    >>> copied(["Paris"], ["Paris"])
    False
    """
    words = [word.lower() for word in source if any(map(str.isalpha, word))]
    there = {word.lower() for word in target}
    return len(words) >= COPY_WORDS and sum(word in there for word in words) >= COPY_SHARE * len(words)
